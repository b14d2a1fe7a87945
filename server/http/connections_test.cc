// The limits on connections and on descriptors, and exceptions in their handlers.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/instant.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/http/http_server.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr char kBody[] = R"({"prompt": "A"})";

class Connections : public ServerTest {
 protected:
  void StartSmall(int max_connections, int io_threads = 2) {
    options_.io_threads = io_threads;
    options_.limits.max_connections = max_connections;
    Start();
  }
};

TEST_F(Connections, LongestIdleConnectionMakesRoom) {
  // With one thread, an exchange whose answer has been read ends before the client's next action.
  StartSmall(2, /*io_threads=*/1);
  Client silent(server_->port());
  Client first(server_->port()), second(server_->port());
  // `second` became idle before `first`. The silent one was closed when the second connected.
  EXPECT_EQ(second.Ask("GET", "/health").status, 200);
  EXPECT_EQ(first.Ask("GET", "/health").status, 200);
  EXPECT_TRUE(silent.AwaitClose());
  Client third(server_->port());
  EXPECT_EQ(third.Ask("GET", "/health").status, 200);
  EXPECT_TRUE(second.AwaitClose());
  EXPECT_EQ(first.Ask("GET", "/health").status, 200);
  EXPECT_EQ(third.Ask("GET", "/health").status, 200);
}

TEST_F(Connections, SilentConnectionsDoNotBlockOthers) {
  StartSmall(4);
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(std::make_unique<Client>(server_->port()));
    if (i % 2 == 0) silent.back()->Send("GET /health HTTP/1.1\r\nHos");
  }
  EXPECT_EQ(Ask("GET", "/health").status, 200);
  EXPECT_EQ(Ask("POST", "/tokenize", kBody).status, 200);
}

// Busy connections stay open, and probes still get an answer.
TEST_F(Connections, ProbesHaveTheirOwnPlaces) {
  StartSmall(2);
  Client first(server_->port()), second(server_->port());
  first.SendRequest("POST", "/v1/completions", kBody);
  engine_.RequestOf(1);
  second.SendRequest("POST", "/v1/completions", kBody);
  engine_.RequestOf(2);
  for (const char* path : {"/health", "/ready", "/metrics"}) {
    EXPECT_EQ(Ask("GET", path).status, 200) << path;
    EXPECT_EQ(Ask("HEAD", path).status, 200) << path;
  }
  for (const char* path : {"/tokenize", "/v1/completions", "/v1/chat/completions"}) {
    const Answer refused = Ask("POST", path, kBody);
    EXPECT_EQ(refused.status, 503) << path;
    EXPECT_EQ(refused.error("code"), "too_many_connections") << path;
    EXPECT_EQ(refused.headers.at("retry-after"), "1") << path;
  }
  // Idle connections beyond the limit do not use up the places for probes.
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 3 * ConnectionSet::kPlacesForProbes; ++i) {
    silent.push_back(std::make_unique<Client>(server_->port()));
  }
  EXPECT_EQ(Ask("GET", "/health").status, 200);
  engine_.End(1);
  EXPECT_EQ(first.Read().status, 200);
  // The server counts the exchange as ended a moment after its client does.
  int status = 503;
  while (status == 503) status = Ask("POST", "/tokenize", kBody).status;
  EXPECT_EQ(status, 200);
  engine_.End(2);
  EXPECT_EQ(second.Read().status, 200);
}

// If even the places for probes are busy, new connections get an error without being read.
TEST_F(Connections, AreRefusedBeyondTheProbePlaces) {
  StartSmall(1);
  Client working(server_->port(), "/v1/completions", kBody);
  engine_.RequestOf(1);
  // Each has announced a body that is not sent.
  std::vector<std::unique_ptr<Client>> busy;
  for (int i = 0; i < ConnectionSet::kPlacesForProbes; ++i) {
    busy.push_back(std::make_unique<Client>(server_->port()));
    busy.back()->Send(
        "GET /health HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        "Content-Length: 1\r\n\r\n");
    EXPECT_THAT(busy.back()->ReadUntil("\r\n\r\n"), HasSubstr("100 Continue"));
  }
  Client last(server_->port());
  EXPECT_EQ(last.Read().error("code"), "too_many_connections");
  busy.back()->Send("x");
  EXPECT_EQ(busy.back()->Read().status, 200);
  engine_.End(1);
  EXPECT_EQ(working.Read().status, 200);
}

// Exceptions, as for lack of memory, on the threads of connections and of large bodies.
TEST_F(Connections, ExceptionsFailOneRequest) {
  Start();
  for (const size_t body_size : {0, 200'000}) {
    Client client(server_->port());
    engine_.set_throws(true);
    const Answer answer = client.Ask("GET", "/metrics", std::string(body_size, ' '));
    EXPECT_EQ(answer.status, 500) << body_size;
    EXPECT_EQ(answer.error("code"), "internal_error") << body_size;
    EXPECT_EQ(answer.headers.at("connection"), "close") << body_size;
    client.AwaitClose();  // counted by then
    engine_.set_throws(false);
    EXPECT_EQ(Ask("GET", "/metrics", std::string(body_size, ' ')).status, 200);
  }
  EXPECT_THAT(Ask("GET", "/metrics").body,
              HasSubstr("tandem_http_responses_total{path=\"/metrics\",status=\"500\"} 2"));
  server_->Drain();
  server_->AwaitEnd();  // no exchange is left
}

// While an object of this class exists, this process can open only `num_free` descriptors more.
class FullDescriptorTable {
 public:
  explicit FullDescriptorTable(size_t num_free) {
    TANDEM_CHECK(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    rlimit lowered = before_;
    for (int file = Open(); file >= 0; file = Open()) {
      opened_.push_back(file);
      lowered.rlim_cur = opened_.front() + 100;
      TANDEM_CHECK(setrlimit(RLIMIT_NOFILE, &lowered) == 0);
    }
    for (size_t i = 0; i < num_free; ++i) {
      close(opened_.back());
      opened_.pop_back();
    }
  }
  ~FullDescriptorTable() {
    setrlimit(RLIMIT_NOFILE, &before_);
    for (const int file : opened_) close(file);
  }

 private:
  static int Open() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

  rlimit before_ = {};
  std::vector<int> opened_;
};

TEST_F(Connections, StayOpenWithoutFreeDescriptorsIfNoneWaits) {
  Start();
  Client idle(server_->port()), last;
  EXPECT_EQ(idle.Ask("GET", "/health").status, 200);
  const FullDescriptorTable table(/*num_free=*/1);
  last.Connect(server_->port());
  EXPECT_EQ(last.Ask("GET", "/health").status, 200);
  absl::SleepFor(absl::Seconds(1));
  EXPECT_EQ(idle.Ask("GET", "/health").status, 200);
  EXPECT_EQ(last.Ask("GET", "/health").status, 200);
}

TEST_F(Connections, StayOpenWithoutFreeDescriptorsUntilTheyAreSilent) {
  auto clock = std::make_unique<FakeClock>();
  Start();
  Client idle(server_->port()), waiting;
  EXPECT_EQ(idle.Ask("GET", "/health").status, 200);
  const FullDescriptorTable table(/*num_free=*/0);
  waiting.Connect(server_->port());
  waiting.SendRequest("GET", "/health");
  absl::SleepFor(absl::Seconds(1));  // does not pass on the server's clock
  EXPECT_EQ(idle.Ask("GET", "/health").status, 200);
  clock.reset();
  EXPECT_TRUE(idle.AwaitClose());
  EXPECT_EQ(waiting.Read().status, 200);
}

TEST_F(Connections, ReportThatAnAddressIsInUse) {
  StartSmall(2);
  ServerOptions options = TestServerOptions();
  options.port = server_->port();
  const auto second = HttpServer::Start(&engine_, options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("127.0.0.1:", server_->port())));
}

}  // namespace
}  // namespace tandem
