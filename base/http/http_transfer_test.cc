#include "base/http/http_transfer.h"

#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/http/http_server_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(HttpTransfer, FollowsRedirectsWithoutTheKeyToAnotherServer) {
  std::vector<std::string> keys;
  TestHttpServer other([&](const TestRequest& request, TestResponse* response) {
    keys.push_back(std::string(request["Authorization"]));
    response->set("X-Place", "other");
    response->body() = "found";
  });
  TestHttpServer server([&](const TestRequest& request, TestResponse* response) {
    keys.push_back(std::string(request["Authorization"]));
    response->result(http::status::found);
    response->set(http::field::location,
                  request.target() == "/a" ? "/b" : absl::StrCat(other.Url(), "/c"));
    response->body() = "gone";
  });
  HttpTransfer transfer;
  OutgoingRequest request{.url = server.Url() + "/a", .headers = {"Authorization: Bearer key"}};
  const HttpAnswer moved = *transfer.Run(request);
  EXPECT_EQ(moved.status, 302);
  EXPECT_EQ(moved.reason, "Found");
  EXPECT_EQ(moved.body, "gone");
  keys.clear();
  request.follows_redirects = true;
  const HttpAnswer found = *transfer.Run(request);
  EXPECT_EQ(found.status, 200);
  EXPECT_EQ(found.body, "found");
  EXPECT_EQ(found.url, other.Url() + "/c");
  EXPECT_EQ(found.Header("x-place"), "other");
  EXPECT_EQ(found.Header("location"), "");
  EXPECT_THAT(keys, ElementsAre("Bearer key", "Bearer key", ""));
}

TEST(HttpTransfer, GivesAwayTheBodyOfASuccessOnly) {
  std::atomic<int> status = 200;
  TestHttpServer server([&](const TestRequest&, TestResponse* response) {
    response->result(status);
    response->body() = R"({"error": "too much"})";
    response->set(http::field::retry_after, "3");
  });
  std::string taken;
  const OutgoingRequest request{.url = server.Url(),
                                .on_body = [&](const HttpAnswer& head, absl::string_view bytes) {
                                  absl::StrAppend(&taken, head.status, " ", bytes);
                                  return true;
                                }};
  HttpTransfer transfer;
  EXPECT_EQ(transfer.Run(request)->body, "");
  EXPECT_EQ(taken, "200 {\"error\": \"too much\"}");
  status = 429;
  taken.clear();
  const HttpAnswer answer = *transfer.Run(request);
  EXPECT_EQ(taken, "");
  EXPECT_EQ(answer.ErrorText(), "429 Too Many Requests: too much");
  EXPECT_EQ(answer.retry_after(), absl::Seconds(3));
}

TEST(HttpTransfer, ACutAnswerIsAnError) {
  TestHttpServer server([&](const TestRequest&, TestResponse* response) {
    response->body() = "hal";
    response->set("X-Cut", "yes");
  });
  const absl::Status cut = HttpTransfer().Run({.url = server.Url() + "/x"}).status();
  EXPECT_TRUE(absl::IsUnavailable(cut));
  EXPECT_THAT(std::string(cut.message()), StartsWith(server.Url() + "/x: "));
}

TEST(HttpTransfer, EndsWhenItsFunctionsSaySo) {
  absl::Notification end;
  TestHttpServer server([&](const TestRequest& request, TestResponse* response) {
    if (request.target() == "/waits") end.WaitForNotification();
    response->body() = "x";
  });
  HttpTransfer transfer;
  EXPECT_TRUE(
      absl::IsCancelled(transfer
                            .Run({.url = server.Url(),
                                  .on_body = [](const auto&, absl::string_view) { return false; }})
                            .status()));
  EXPECT_TRUE(absl::IsCancelled(
      transfer.Run({.url = server.Url() + "/waits", .is_cancelled = [] { return true; }})
          .status()));
  end.Notify();
  EXPECT_EQ(transfer.Run({.url = server.Url()})->body, "x");
}

TEST(HttpTransfer, SpeaksHttpOnly) {
  const absl::Status file = HttpTransfer().Run({.url = "file:///etc/passwd"}).status();
  EXPECT_TRUE(absl::IsUnavailable(file));
  EXPECT_THAT(std::string(file.message()), AllOf(HasSubstr("file"), HasSubstr("not supported")));
}

}  // namespace
}  // namespace tandem
