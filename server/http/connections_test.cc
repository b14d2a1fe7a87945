// How many connections there may be, and what becomes of one whose work fails.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/http/http_server.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr char kBody[] = R"({"prompt": "A"})";

std::unique_ptr<HttpServer> StartSmallServer(Engine* engine, int max_connections,
                                             int io_threads = 2) {
  ServerOptions options = TestServerOptions();
  options.io_threads = io_threads;
  options.limits.max_connections = max_connections;
  return StartServer(engine, options);
}

TEST(Connections, TheLongestIdleMakesRoom) {
  ManualEngine engine;
  // By one thread, an exchange whose answer has been read is over before what its client does next.
  const auto server = StartSmallServer(&engine, 2, /*io_threads=*/1);
  Client silent(server->port());
  Client first(server->port()), second(server->port());
  // In this order they have become idle; the silent one was closed for the second.
  EXPECT_EQ(second.Ask("GET", "/health").status, 200);
  EXPECT_EQ(first.Ask("GET", "/health").status, 200);
  EXPECT_TRUE(silent.AwaitClose());
  Client third(server->port());
  EXPECT_EQ(third.Ask("GET", "/health").status, 200);
  EXPECT_TRUE(second.AwaitClose());
  EXPECT_EQ(first.Ask("GET", "/health").status, 200);
  EXPECT_EQ(third.Ask("GET", "/health").status, 200);
}

TEST(Connections, SilentOnesLockNobodyOut) {
  ManualEngine engine;
  const auto server = StartSmallServer(&engine, 4);
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(std::make_unique<Client>(server->port()));
    if (i % 2 == 0) silent.back()->Send("GET /health HTTP/1.1\r\nHos");
  }
  EXPECT_EQ(Ask(server.get(), "GET", "/health").status, 200);
  EXPECT_EQ(Ask(server.get(), "POST", "/tokenize", kBody).status, 200);
}

// Those that are worked for stay, and there is still a way to see how the server is.
TEST(Connections, ProbesHaveTheirOwnPlaces) {
  ManualEngine engine;
  const auto server = StartSmallServer(&engine, 2);
  Client first(server->port()), second(server->port());
  first.SendRequest("POST", "/v1/completions", kBody);
  engine.RequestOf(1);
  second.SendRequest("POST", "/v1/completions", kBody);
  engine.RequestOf(2);
  for (const char* path : {"/health", "/ready", "/metrics"}) {
    EXPECT_EQ(Ask(server.get(), "GET", path).status, 200) << path;
    EXPECT_EQ(Ask(server.get(), "HEAD", path).status, 200) << path;
  }
  for (const char* path : {"/tokenize", "/v1/completions", "/v1/chat/completions"}) {
    const Answer refused = Ask(server.get(), "POST", path, kBody);
    EXPECT_EQ(refused.status, 503) << path;
    EXPECT_EQ(refused.error("code"), "too_many_connections") << path;
    EXPECT_EQ(refused.headers.at("retry-after"), "1") << path;
  }
  // However many come that ask nothing.
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 3 * ConnectionSet::kPlacesForProbes; ++i) {
    silent.push_back(std::make_unique<Client>(server->port()));
  }
  EXPECT_EQ(Ask(server.get(), "GET", "/health").status, 200);
  engine.End(1);
  EXPECT_EQ(first.Read().status, 200);
  // The server counts the exchange as ended a moment after its client does.
  int status = 503;
  while (status == 503) status = Ask(server.get(), "POST", "/tokenize", kBody).status;
  EXPECT_EQ(status, 200);
  engine.End(2);
  EXPECT_EQ(second.Read().status, 200);
}

// Where even the places for probes are busy, the answer comes unasked.
TEST(Connections, ThereIsAnEndToThem) {
  ManualEngine engine;
  const auto server = StartSmallServer(&engine, 1);
  Client working(server->port());
  working.SendRequest("POST", "/v1/completions", kBody);
  engine.RequestOf(1);
  // Each has announced a body that does not come.
  std::vector<std::unique_ptr<Client>> busy;
  for (int i = 0; i < ConnectionSet::kPlacesForProbes; ++i) {
    busy.push_back(std::make_unique<Client>(server->port()));
    busy.back()->Send(
        "GET /health HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        "Content-Length: 1\r\n\r\n");
    EXPECT_THAT(busy.back()->ReadUntil("\r\n\r\n"), HasSubstr("100 Continue"));
  }
  Client last(server->port());
  EXPECT_EQ(last.Read().error("code"), "too_many_connections");
  busy.back()->Send("x");
  EXPECT_EQ(busy.back()->Read().status, 200);
  engine.End(1);
  EXPECT_EQ(working.Read().status, 200);
}

// As memory that is missing does, on the threads of connections and on that of large bodies.
TEST(Connections, WhatALibraryThrowsEndsOneRequest) {
  ManualEngine engine;
  const auto server = StartServer(&engine, TestServerOptions());
  for (const size_t body_size : {0, 200'000}) {
    Client client(server->port());
    engine.set_throws(true);
    const Answer answer = client.Ask("GET", "/v1/models", std::string(body_size, ' '));
    EXPECT_EQ(answer.status, 500) << body_size;
    EXPECT_EQ(answer.error("code"), "internal_error") << body_size;
    EXPECT_EQ(answer.headers.at("connection"), "close") << body_size;
    client.AwaitClose();  // counted by then
    engine.set_throws(false);
    EXPECT_EQ(Ask(server.get(), "GET", "/v1/models", std::string(body_size, ' ')).status, 200);
  }
  EXPECT_THAT(Ask(server.get(), "GET", "/metrics").body,
              HasSubstr("tandem_http_responses_total{path=\"/v1/models\",status=\"500\"} 2"));
  server->Drain();
  server->AwaitEnd();  // no exchange is left
}

}  // namespace
}  // namespace tandem
