// The OpenAPI document matches the server.
#include "server/api/openapi.h"

#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/api_request.h"
#include "server/api/draft_text_endpoints.h"
#include "server/api/field_groups.h"
#include "server/api/token_endpoints.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using Json = SortedJson;

const Json& Document() {
  static const Json* const document = new Json(Json::parse(OpenApiDocument()));
  return *document;
}

// The names in "..., allowed: a, b, c".
std::set<std::string> AllowedBy(const absl::Status& status) {
  const std::string message(status.message());
  const size_t begin = message.find("allowed: ");
  EXPECT_NE(begin, std::string::npos) << message;
  return absl::StrSplit(message.substr(begin + 9), ", ");
}

std::set<std::string> PropertiesOf(const char* schema) {
  std::set<std::string> names;
  for (const auto& [name, value] :
       Document()["components"]["schemas"][schema]["properties"].items()) {
    names.insert(name);
  }
  return names;
}

TEST(OpenApi, HasEveryPathAndMethod) {
  ManualEngine engine;
  const auto server = StartServer(&engine, TestServerOptions());
  ASSERT_GE(Document()["paths"].size(), 12u);
  for (const auto& [path, methods] : Document()["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) {
      const std::string target =
          absl::StrReplaceAll(path, {{"{model}", "story"}, {"{file}", "style.css"}});
      const Answer answer =
          Ask(server.get(), absl::AsciiStrToUpper(method), target, method == "post" ? "{}" : "");
      // A body without the required fields is an error, but the path exists.
      const bool has_id = absl::StrContains(path, "{id}");
      const bool needs_no_body = method == "get" || absl::EndsWith(path, "/load");
      const int of_post = absl::EndsWith(path, "/unload") ? 409 : 400;
      EXPECT_EQ(answer.status, has_id ? 404 : needs_no_body ? 200 : of_post) << path;
      EXPECT_THAT(answer.body, testing::Not(testing::HasSubstr("the path"))) << path;
      const Answer other = Ask(server.get(), has_id ? "POST" : "DELETE", target, "{}");
      EXPECT_EQ(other.status, 405) << path;
    }
  }
}

TEST(OpenApi, DescribesSharedFieldsInEveryRequest) {
  const Json& schemas = Document()["components"]["schemas"];
  EXPECT_FALSE(Document()["components"].contains("x-fields"));
  for (const char* schema :
       {"CompletionRequest", "ChatRequest", "ResponsesRequest", "MessagesRequest"}) {
    const Json& fields = schemas[schema]["properties"];
    EXPECT_EQ(fields["top_p"],
              Json::parse(R"({"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1,
                  "description": "Keep the most likely tokens whose probabilities reach this sum",
                  "default": 1})"));
    EXPECT_EQ(fields["top_k"]["type"], Json({"integer", "null"}));
    EXPECT_FALSE(fields["top_k"].contains("maximum"));
    EXPECT_EQ(fields["model"], schemas["ChatRequest"]["properties"]["model"]);
    EXPECT_TRUE(fields["seed"].is_object());
  }
}

TEST(OpenApi, HasEveryFieldOfEveryRequest) {
  ManualEngine engine;
  ServedModel model = ServedModel::Of(engine, "story", 4);
  model.is_strict = true;
  const std::string unknown = R"({"no_such_field": 1})";
  EXPECT_EQ(AllowedBy(ParseCompletionRequest(unknown, model).status()),
            PropertiesOf("CompletionRequest"));
  EXPECT_EQ(AllowedBy(ParseChatRequest(unknown, model, absl::Now()).status()),
            PropertiesOf("ChatRequest"));
  EXPECT_EQ(AllowedBy(ParseResponsesRequest(unknown, model, absl::Now()).status()),
            PropertiesOf("ResponsesRequest"));
  EXPECT_EQ(AllowedBy(ParseMessagesRequest(R"({"max_tokens": 1, "no_such_field": 1,
                          "messages": [{"role": "user", "content": "x"}]})",
                                           model, absl::Now())
                          .status()),
            PropertiesOf("MessagesRequest"));
  IgnoredFields ignored;
  std::set<std::string> of_tokenize;
  for (const char* body :
       {R"({"no_such_field": 1})",
        R"({"no_such_field": 1, "messages": [{"role": "user", "content": "x"}]})"}) {
    of_tokenize.merge(AllowedBy(TokenizeBody(body, model, absl::Now(), &ignored).status()));
  }
  EXPECT_EQ(of_tokenize, PropertiesOf("TokenizeRequest"));
  const std::string message =
      R"({"messages": [{"role": "user", "content": "x", "no_such_field": 1}]})";
  EXPECT_EQ(AllowedBy(ParseChatRequest(message, model, absl::Now()).status()),
            PropertiesOf("Message"));
  const std::string speculation = R"({"prompt": "x", "speculation": {"no_such_field": 1}})";
  EXPECT_EQ(AllowedBy(ParseCompletionRequest(speculation, model).status()),
            PropertiesOf("SpeculationOptions"));
}

TEST(OpenApi, HasAnExampleOfEveryBody) {
  ManualEngine engine;
  ServedModel model = ServedModel::Of(engine, "story", 4);
  model.is_strict = true;
  IgnoredFields ignored;
  for (const auto& [path, methods] : Document()["paths"].items()) {
    if (!methods.contains("post") || absl::EndsWith(path, "load")) continue;  // without a body
    const Json& content = methods["post"]["requestBody"]["content"]["application/json"];
    const std::string schema = content["schema"]["$ref"];
    const std::string body = content["example"].dump();
    if (absl::EndsWith(schema, "/CompletionRequest")) {
      EXPECT_TRUE(ParseCompletionRequest(body, model).ok()) << path;
    } else if (absl::EndsWith(schema, "/ChatRequest")) {
      EXPECT_TRUE(ParseChatRequest(body, model, absl::Now()).ok()) << path;
    } else if (absl::EndsWith(schema, "/ResponsesRequest")) {
      EXPECT_TRUE(ParseResponsesRequest(body, model, absl::Now()).ok()) << path;
    } else if (absl::EndsWith(schema, "/MessagesRequest")) {
      EXPECT_TRUE(ParseCountTokensRequest(body, model, absl::Now()).ok()) << path;
    } else if (absl::EndsWith(schema, "/TokenizeRequest")) {
      EXPECT_TRUE(TokenizeBody(body, model, absl::Now(), &ignored).ok()) << path;
    } else if (absl::EndsWith(schema, "/DraftTextRequest")) {
      ServedModel strict = TestServedModel();
      strict.is_strict = true;
      const absl::Status added = AddDraftText(body, strict, &engine, &ignored).status();
      EXPECT_TRUE(absl::IsUnimplemented(added)) << path;  // it has been read
    } else {
      EXPECT_TRUE(DetokenizeBody(body, model, &ignored).ok()) << path;
    }
  }
}

}  // namespace
}  // namespace tandem
