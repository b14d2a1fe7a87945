#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/http/request_target.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class DraftTextPaths : public testing::Test {
 protected:
  DraftTextPaths()
      : engine_(MakeTestEngine()), server_(StartServer(engine_.get(), TestServerOptions())) {}

  JsonValue Answered(const std::string& method, const std::string& target,
                     const std::string& body = "", int status = 200) const {
    const Answer answer = Ask(server_.get(), method, target, body);
    EXPECT_EQ(answer.status, status) << answer.body;
    return JsonValue::parse(answer.body, nullptr, false);
  }
  void ExpectRefused(const std::string& body, const std::string& param,
                     const std::string& part) const {
    const JsonValue error = Answered("POST", "/v1/draft_texts", body, 400)["error"];
    EXPECT_EQ(error["param"], param);
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(part));
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(DraftTextPaths, AddListAndRemoveTexts) {
  const JsonValue added = Answered("POST", "/v1/draft_texts",
                                   R"({"name": "story", "text": "Once upon a time there was"})");
  EXPECT_EQ(added["object"], "draft_text");
  EXPECT_EQ(added["name"], "story");
  EXPECT_EQ(added["num_texts"], 1);
  EXPECT_GT(added["num_tokens"], 3);
  const std::string id = added["id"].get<std::string>();
  EXPECT_EQ(Answered("GET", "/v1/draft_texts")["data"], JsonValue::array({added}));
  EXPECT_EQ(Answered("GET", "/v1/draft_texts/" + id), added);
  const JsonValue removed = Answered("DELETE", "/v1/draft_texts/" + id);
  EXPECT_EQ(removed["deleted"], true);
  EXPECT_EQ(removed["id"], id);
  EXPECT_EQ(Answered("GET", "/v1/draft_texts")["data"], JsonValue::array());
  Answered("DELETE", "/v1/draft_texts/" + id, "", 404);
  Answered("GET", "/v1/draft_texts/" + id, "", 404);
}

TEST_F(DraftTextPaths, ShowATenantOnlyItsOwn) {
  const JsonValue added =
      Answered("POST", "/v1/draft_texts", R"({"texts": ["One", "Two"], "cache_salt": "a b"})");
  const std::string path = "/v1/draft_texts/" + added["id"].get<std::string>();
  EXPECT_EQ(added["num_texts"], 2);
  EXPECT_EQ(Answered("GET", "/v1/draft_texts")["data"], JsonValue::array());
  EXPECT_EQ(Answered("GET", "/v1/draft_texts?cache_salt=a%20b")["data"], JsonValue::array({added}));
  Answered("GET", path, "", 404);
  Answered("DELETE", path, "", 404);
  Answered("DELETE", path + "?cache_salt=b", "", 404);
  Answered("DELETE", path + "?x=1&cache_salt=a%20b");
}

TEST_F(DraftTextPaths, NameTheFieldsThatAreWrong) {
  ExpectRefused("{}", "text", "is required");
  ExpectRefused(R"({"text": 3})", "text", "a string");
  ExpectRefused(R"({"text": ""})", "text", "must not be empty");
  ExpectRefused(R"({"texts": ["a", 1]})", "texts", "a list of strings");
  ExpectRefused(R"({"text": "a", "texts": ["b"]})", "texts", "is not possible with text");
  ExpectRefused(R"({"text": "a", "cache_salt": ""})", "cache_salt", "not empty");
  ExpectRefused(R"({"text": "a", "name": ")" + std::string(300, 'n') + "\"}", "name", "256");
  Answered("GET", "/v1/draft_texts?cache_salt=%2", "", 400);
  Answered("POST", "/v1/draft_texts/dt-1", "{}", 405);
  Answered("DELETE", "/v1/draft_texts", "", 405);
}

TEST(QueryValues, AreFoundAndDecoded) {
  EXPECT_EQ(QueryValue("/a?x=1&y=2%203&z", "y"), "2 3");
  EXPECT_EQ(QueryValue("/a?x=1", "y"), "");
  EXPECT_EQ(QueryValue("/a", "y"), "");
  EXPECT_EQ(QueryValue("/a?y", "y"), "");
  EXPECT_EQ(QueryValue("/a?y=%zz", "y"), std::nullopt);
}

}  // namespace
}  // namespace tandem
