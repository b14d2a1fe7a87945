// Constraints that would use all of the server's time or memory.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/server_testing.h"
#include "text/constraint/grammar_engine.h"

namespace tandem {
namespace {

using Json = SortedJson;
using testing::AnyOf;
using testing::HasSubstr;

class HostileConstraints : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
    engine_ = MakeTestEngine();
    server_ = StartServer(engine_.get(), TestServerOptions());
  }
  Answer Ask(const std::string& fields) const {
    return Client(server_->port())
        .Ask("POST", "/v1/completions", R"({"prompt": "A", "max_tokens": 900, )" + fields + "}");
  }
  void ExpectRefused(const Answer& answer, const std::string& field,
                     const testing::Matcher<std::string>& message) const {
    EXPECT_EQ(answer.status, 400) << answer.body;
    const Json error = Json::parse(answer.body, nullptr, false)["error"];
    EXPECT_EQ(error["param"], field) << answer.body;
    EXPECT_THAT(error["message"].get<std::string>(), message);
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<HttpServer> server_;
};

// Row 113 of the bug catalogue: each definition has a property of the next one.
TEST_F(HostileConstraints, AreRefusedByName) {
  std::string schema = R"({"$ref":"#/$defs/0","$defs":{)";
  for (int i = 0; i < 5000; ++i) {
    absl::StrAppend(&schema, "\"", i, R"(":{"properties":{"a":{"$ref":"#/$defs/)", i + 1, "\"}}},");
  }
  schema += R"("5000":{"type":"null"}}})";
  const Answer answer = Ask("\"guided_json\": " + schema);
  // A slow machine reaches the time limit first.
  if (answer.status != 200) {
    ExpectRefused(answer, "guided_json",
                  AnyOf(HasSubstr("nested too deeply"), HasSubstr("takes more than")));
  }
  EXPECT_EQ(Ask(R"("guided_choice": ["yes", "no"])").status, 200);
}

TEST_F(HostileConstraints, FailOnlyTheirOwnRequest) {
  const Answer answer = Ask(R"("min_tokens": 900, "guided_grammar":)"
                            R"( "root ::= root root root | root root | \"a\" | \"\"")");
  ExpectRefused(answer, "guided_grammar", HasSubstr("cannot be followed"));
  EXPECT_EQ(Ask(R"("guided_choice": ["yes", "no"])").status, 200);
  EXPECT_TRUE(engine_->CheckIntegrity().ok());
}

}  // namespace
}  // namespace tandem
