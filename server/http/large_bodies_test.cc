// Requests with large bodies: how many bytes are handled at once, on which threads, and under which
// path those that are too large are counted.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

std::string TokenizeBodyOf(size_t size) {
  return absl::StrCat(R"({"prompt": ")", std::string(size, 'a'), R"("})");
}

using LargeBodies = ServerTest;

TEST_F(LargeBodies, OnlyLargeOnesAreRefusedBeyondTheBudget) {
  Start();
  ByteBudget& budget = server_->service().large_bodies();
  const std::string large = TokenizeBodyOf(100'000);
  {
    const auto others = budget.Take((int64_t{64} << 20) - 50'000);
    ASSERT_TRUE(others.ok()) << others.status();
    const Answer refused = Ask("POST", "/tokenize", large);
    EXPECT_EQ(refused.status, 429);
    EXPECT_THAT(refused.error("message"), HasSubstr("body: has 100014 bytes, allowed: 50000 more"));
    EXPECT_EQ(refused.headers.count("retry-after"), 1);
    EXPECT_EQ(Ask("POST", "/tokenize", TokenizeBodyOf(1000)).status, 200);
  }
  Client client(server_->port());
  EXPECT_EQ(client.Ask("POST", "/tokenize", large).status, 200);
  EXPECT_EQ(client.Ask("GET", "/health").status, 200);  // the previous exchange has ended
  EXPECT_EQ(budget.num_held(), 0);
}

// The engine has the tokens, so the body is not needed any more.
TEST_F(LargeBodies, AreFreedWhenTheGenerationBegins) {
  Start();
  const std::string ignored(100'000, 'a');
  Client client(server_->port(), "/v1/completions",
                absl::StrCat(R"({"prompt": "a", "stream": true, "user": ")", ignored, "\"}"));
  engine_.Emit(1, "first");
  client.ReadUntil("first");
  EXPECT_EQ(server_->service().large_bodies().num_held(), 0);
  engine_.End(1);
  client.ReadUntil("[DONE]");
}

TEST_F(LargeBodies, TheRouteDecidesWhichRequestsMayWait) {
  Start();
  const auto may_wait = [&](const std::string& path) {
    HttpRequest request;
    request.method = "POST";
    request.path = path;
    request.body = R"({"prompt": "response_format regex tools"})";
    request.route = Service::RouteOf(request);
    return server_->service().MayBlock(request);
  };
  EXPECT_FALSE(may_wait("/tokenize"));
  EXPECT_FALSE(may_wait("/detokenize"));
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/responses"}) {
    EXPECT_TRUE(may_wait(path)) << path;
  }
}

TEST_F(LargeBodies, TooLargeOnesAreCountedUnderTheirPath) {
  options_.service.max_body_bytes = 1000;
  Start();
  const std::string large(1001, ' ');
  // An answer is counted before its connection closes or reads on, which may be after the client
  // has received it.
  Client announcing(server_->port());
  const Answer announced =
      announcing.Ask("POST", "/v1/completions", large, "X-Request-Id: mine\r\n");
  EXPECT_EQ(announced.status, 413);
  EXPECT_EQ(announced.headers.at("x-request-id"), "mine");
  announcing.AwaitClose();
  Client client(server_->port());
  client.Send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  client.Send(absl::StrCat("3e9\r\n", large, "\r\n0\r\n\r\n"));
  EXPECT_EQ(client.Read().status, 413);
  client.AwaitClose();
  Client lost(server_->port());
  EXPECT_EQ(lost.Ask("POST", "/no/such/path", large).status, 404);
  lost.AwaitClose();
  const std::string metrics = Ask("GET", "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr(R"({path="/v1/completions",status="413"} 1)"));
  EXPECT_THAT(metrics, HasSubstr(R"({path="/tokenize",status="413"} 1)"));
  EXPECT_THAT(metrics, HasSubstr(R"({path="other",status="404"} 1)"));
}

}  // namespace
}  // namespace tandem
