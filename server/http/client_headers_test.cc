// Headers and other details of answers, for clients, routers and readers of the log.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using Json = SortedJson;

using ClientHeaders = ServerTest;

TEST_F(ClientHeaders, NameIgnoredFields) {
  Start();
  const std::string body = R"({"prompt": "A", "no_such_field": false, "wait": 1)";
  Client client(server_->port(), "/v1/completions", body + "}");
  engine_.End(1);
  EXPECT_EQ(client.Read().headers.at("x-tandem-ignored-fields"), "no_such_field, wait");
  client.SendRequest("POST", "/v1/completions", body + ", \"stream\": true}");
  engine_.Emit(2, "x");
  EXPECT_THAT(client.ReadUntil("\"x\""), HasSubstr("x-tandem-ignored-fields: no_such_field, wait"));
  engine_.End(2);
  const Answer tokens = Ask("POST", "/tokenize", R"({"prompt": "A", "wait": 1})");
  EXPECT_EQ(tokens.headers.at("x-tandem-ignored-fields"), "wait");
  EXPECT_FALSE(
      Ask("POST", "/tokenize", R"({"prompt": "A"})").headers.contains("x-tandem-ignored-fields"));
}

// The test's model does not have a chat template, like many models without tool support.
TEST_F(ClientHeaders, ReportToolsInTheGenericForm) {
  Start();
  const std::string body = R"({"messages": [{"role": "user", "content": "A"}],
      "tools": [{"type": "function", "function": {"name": "f"}}])";
  constexpr char kCall[] =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  Client client(server_->port(), "/v1/chat/completions", body + "}");
  engine_.Emit(1, kCall);
  engine_.End(1);
  const Answer answer = client.Read();
  EXPECT_EQ(answer.headers.at("x-tandem-tool-format"), "generic");
  const Json choice = answer.json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"a": 1})");

  client.SendRequest("POST", "/v1/chat/completions", body + ", \"stream\": true}");
  engine_.Emit(2, "{\"name\": \"f\", \"arguments\": {\"a");  // without the marker
  const std::string head = client.ReadUntil("\"arguments\":\"{\\\"a\"");
  EXPECT_THAT(head, HasSubstr("X-Tandem-Tool-Format: generic"));
  engine_.Emit(2, "\": 1}}");
  engine_.End(2);
  EXPECT_THAT(client.ReadUntil("[DONE]"), HasSubstr(R"("finish_reason":"tool_calls")"));

  Client without_tools(server_->port(), "/v1/chat/completions",
                       body + R"(, "tool_choice": "none"})");
  engine_.End(3);
  EXPECT_FALSE(without_tools.Read().headers.contains("x-tandem-tool-format"));

  const Answer tokens = Ask("POST", "/tokenize", body + "}");
  EXPECT_EQ(tokens.status, 200) << tokens.body;
  EXPECT_EQ(tokens.headers.at("x-tandem-tool-format"), "generic");
  EXPECT_FALSE(
      Ask("POST", "/tokenize", R"({"prompt": "A"})").headers.contains("x-tandem-tool-format"));
}

TEST_F(ClientHeaders, StrictServersRefuseUnknownFields) {
  options_.service.strict_requests = true;
  Start();
  for (const char* path : {"/v1/completions", "/tokenize"}) {
    const Answer answer = Ask("POST", path, R"({"prompt": "A", "wait": 1})");
    EXPECT_EQ(answer.status, 400) << path;
    EXPECT_EQ(answer.error("code"), "unknown_parameter") << path;
    EXPECT_EQ(answer.error("param"), "wait") << path;
  }
}

TEST_F(ClientHeaders, KeepTheClientsRequestId) {
  Start();
  const auto id_of = [&](const std::string& headers, const std::string& target = "/health") {
    return Ask("GET", target, "", headers).headers.at("x-request-id");
  };
  EXPECT_EQ(id_of("X-Request-Id: abc-1\r\n"), "abc-1");
  EXPECT_EQ(id_of("X-Request-Id: abc-1\r\n", "/nowhere"), "abc-1");
  EXPECT_EQ(id_of(absl::StrCat("x-request-id: ", std::string(128, 'x'), "\r\n")),
            std::string(128, 'x'));
  // Ids that could break a line of the log, or fill it, are not accepted.
  for (const std::string& bad : {std::string(), std::string("X-Request-Id: a b\r\n"),
                                 absl::StrCat("X-Request-Id: ", std::string(129, 'x'), "\r\n")}) {
    EXPECT_THAT(id_of(bad), MatchesRegex("req-[0-9a-f]+-[0-9]+")) << bad;
  }
  EXPECT_NE(id_of(""), id_of(""));
}

TEST_F(ClientHeaders, HaveADate) {
  Start();
  EXPECT_THAT(Ask("GET", "/health").headers.at("date"),
              MatchesRegex("[A-Z][a-z][a-z], [0-9][0-9] [A-Z][a-z][a-z] [0-9]+ "
                           "[0-9][0-9]:[0-9][0-9]:[0-9][0-9] GMT"));
}

TEST_F(ClientHeaders, VersionAndFingerprintAreTheServers) {
  options_.service.version = "1.2.3";
  options_.service.system_fingerprint = "fp_1";
  Start();
  EXPECT_EQ(Ask("GET", "/version").json(), Json({{"version", "1.2.3"}}));
  Client client(server_->port(), "/v1/completions", R"({"prompt": "A"})");
  engine_.End(1);
  EXPECT_EQ(client.Read().json()["system_fingerprint"], "fp_1");
}

TEST_F(ClientHeaders, UnservedPathsHaveTheirOwnError) {
  Start();
  for (const char* path : {"/v1/embeddings", "/v1/embeddings/", "/v1/audio/speech", "/rerank"}) {
    const Answer answer = Ask("POST", path, "{}");
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_EQ(answer.error("code"), "not_served") << path;
    EXPECT_THAT(answer.error("message"), HasSubstr("not served here")) << path;
  }
  EXPECT_EQ(Ask("POST", "/v1/nothing", "{}").error("code"), "not_found");
}

// ---- Streams that wait for their first token ----

class Comments : public ServerTest {
 protected:
  Comments() {
    options_.limits.comment_interval = absl::Milliseconds(20);
    Start();
  }
};

TEST_F(Comments, KeepAWaitingStreamAlive) {
  Client client(server_->port(), "/v1/completions", R"({"prompt": "A", "stream": true})");
  const std::string waiting = client.ReadUntil(": queued\n\n\r\n");
  EXPECT_THAT(waiting, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(waiting, HasSubstr("text/event-stream"));
  EXPECT_THAT(client.ReadUntil(": queued\n\n\r\n"), Not(HasSubstr("HTTP/1.1")));
  engine_.Emit(1, "once");
  EXPECT_THAT(client.ReadUntil("once"), Not(HasSubstr("HTTP/1.1")));
  // No comments are sent once tokens arrive.
  absl::SleepFor(absl::Milliseconds(100));
  engine_.End(1);
  EXPECT_THAT(client.ReadUntil("0\r\n\r\n"), Not(HasSubstr("queued")));
  // The connection can be reused.
  EXPECT_EQ(client.Ask("GET", "/health").status, 200);
}

TEST_F(Comments, FailuresAfterThemAreEvents) {
  Client client(server_->port(), "/v1/completions", R"({"prompt": "A", "stream": true})");
  client.ReadUntil(": queued\n\n\r\n");
  engine_.Fail(1, absl::InternalError("broken"));
  const std::string end = client.ReadUntil("[DONE]\n\n");
  EXPECT_THAT(end, HasSubstr("data: {\"error\""));
  EXPECT_THAT(end, HasSubstr("broken"));
}

TEST_F(Comments, RefusedRequestsGetAnErrorStatus) {
  EXPECT_EQ(
      Ask("POST", "/v1/completions", R"({"prompt": "A", "stream": true, "top_k": 666})").status,
      400);
}

TEST_F(Comments, WholeAnswersHaveNoComments) {
  Client client(server_->port(), "/v1/completions", R"({"prompt": "A"})");
  absl::SleepFor(absl::Milliseconds(100));
  engine_.End(1);
  EXPECT_EQ(client.Read().status, 200);
}

using TokenEndpoints = ServerTest;

TEST_F(TokenEndpoints, AcceptChats) {
  Start();
  const Json chat =
      Ask("POST", "/tokenize", R"({"messages": [{"role": "user", "content": "A"}]})").json();
  EXPECT_EQ(chat["count"], chat["tokens"].size());
  EXPECT_GT(chat["count"], 1);
  const Json bare =
      Ask("POST", "/tokenize", R"({"prompt": "A", "return_token_strs": false})").json();
  EXPECT_TRUE(bare["token_strs"].is_null());
  EXPECT_EQ(Ask("POST", "/tokenize", R"({"messages": []})").error("param"), "messages");
  const Json text = Ask("POST", "/detokenize", Json{{"tokens", chat["tokens"]}}.dump()).json();
  EXPECT_THAT(text["prompt"].get<std::string>(), HasSubstr("A"));
}

}  // namespace
}  // namespace tandem
