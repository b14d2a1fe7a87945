// How requests and the server end, with an engine that the test controls step by step.
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/instant.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/served_request.h"
#include "server/http/http_server.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = SortedJson;

constexpr char kWhole[] = R"({"prompt": "A"})";
constexpr char kStream[] = R"({"prompt": "A", "stream": true})";

class Endings : public ServerTest {
 protected:
  // Waits until no generation is left.
  void AwaitEnd() { server_->service().pairs().AwaitEmpty(absl::InfiniteDuration()); }
};

TEST_F(Endings, DisconnectedClientsAreCancelled) {
  Start();
  GenerationId id = 0;
  for (const char* body : {kWhole, kStream}) {
    Client client(server_->port(), "/v1/completions", body);
    EXPECT_TRUE(engine_.Emit(++id, "once"));
    client.Close();
    engine_.AwaitCancel(id);
    EXPECT_FALSE(engine_.Emit(id, "upon"));
    engine_.End(id, FinishReason::kCancelled);
    AwaitEnd();
  }
}

TEST_F(Endings, StreamsSendEachPieceAtOnce) {
  Start();
  Client client(server_->port(), "/v1/completions", kStream);
  for (const char* text : {"once", "upon", "a"}) {
    EXPECT_TRUE(engine_.Emit(1, text));
    EXPECT_THAT(client.ReadUntil("\n\n"), HasSubstr(absl::StrCat("\"text\":\"", text, "\"")));
  }
  engine_.End(1);
  EXPECT_THAT(client.ReadUntil("[DONE]"), HasSubstr("\"finish_reason\":\"stop\""));
}

TEST_F(Endings, FullQueueRefusesRequests) {
  options_.service.max_sequences = 3;
  Start();
  const Answer too_many = Ask("POST", "/v1/completions", R"({"prompt": ["A", "B"], "n": 2})");
  EXPECT_EQ(too_many.status, 400);
  EXPECT_EQ(too_many.error("param"), "n");
  Client first(server_->port(), "/v1/completions", R"({"prompt": "A", "n": 2})");
  engine_.RequestOf(2);
  const Answer refused = Ask("POST", "/v1/completions", R"({"prompt": "A", "n": 2})");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_EQ(refused.error("type"), "rate_limit_error");
  // One more sequence fits; after the others have ended, all places are free again.
  Client second(server_->port(), "/v1/completions", kWhole);
  for (GenerationId id = 1; id <= 3; ++id) engine_.End(id);
  EXPECT_EQ(first.Read().status, 200);
  EXPECT_EQ(second.Read().status, 200);
  AwaitEnd();
}

TEST_F(Endings, RefusedRequestsReleaseTheirPlaces) {
  Start();
  const Answer answer = Ask("POST", "/v1/completions", R"({"prompt": "A", "n": 2, "top_k": 666})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.error("param"), "top_k");
  EXPECT_EQ(server_->service().pairs().num_inside(), 0);
}

// The engine's errors use the library's field names, but clients know those of the API.
TEST_F(Endings, EngineErrorsUseTheClientsFieldNames) {
  class RefusingEngine : public ManualEngine {
   public:
    using ManualEngine::Submit;
    absl::StatusOr<GenerationId> Submit(Request, OnPiece, OnDone) override {
      return FieldError(field, "token 9999 is not in the vocabulary");
    }
    std::string field;
  };
  RefusingEngine engine;
  const auto server = StartServer(&engine, TestServerOptions());
  const struct {
    const char* field;
    const char* of_completions;
    const char* of_chats;
  } cases[] = {{"stop_tokens", "stop_token_ids", "stop_token_ids"},
               {"prompt_ids", "prompt", "messages"},
               {"prompt", "prompt", "messages"},
               {"logprobs", "logprobs", "top_logprobs"},
               {"prompt_logprobs", "logprobs", "top_logprobs"},
               {"draft_tokens", "speculation.draft_tokens", "speculation.draft_tokens"},
               {"verifier", "speculation.verifier", "speculation.verifier"},
               {"logit_bias", "logit_bias", "logit_bias"}};
  for (const auto& c : cases) {
    engine.field = c.field;
    const Answer completion = tandem::Ask(server.get(), "POST", "/v1/completions", kWhole);
    EXPECT_EQ(completion.status, 400);
    EXPECT_EQ(completion.error("param"), c.of_completions);
    EXPECT_EQ(completion.error("message"),
              absl::StrCat(c.of_completions, ": token 9999 is not in the vocabulary"));
    const Answer chat = tandem::Ask(server.get(), "POST", "/v1/chat/completions",
                                    R"({"messages": [{"role": "user", "content": "A"}]})");
    EXPECT_EQ(chat.error("param"), c.of_chats);
  }
}

TEST_F(Endings, LargeRequestsLeavePlacesToOthers) {
  options_.service.max_sequences = 8;
  Start();
  const Answer all = Ask("POST", "/v1/completions", R"({"prompt": "A", "n": 8})");
  EXPECT_EQ(all.status, 400);
  EXPECT_EQ(all.error("param"), "n");
  Client half(server_->port()), one(server_->port());
  half.SendRequest("POST", "/v1/completions", R"({"prompt": "A", "n": 4})");
  engine_.RequestOf(4);
  const Answer again = Ask("POST", "/v1/completions", R"({"prompt": "A", "n": 4})");
  EXPECT_EQ(again.status, 429);
  one.SendRequest("POST", "/v1/completions", kWhole);
  for (GenerationId id = 1; id <= 5; ++id) engine_.End(id);
  EXPECT_EQ(half.Read().status, 200);
  EXPECT_EQ(one.Read().status, 200);
  AwaitEnd();
}

TEST_F(Endings, FailuresAreReportedBeforeAndWithinAStream) {
  Start();
  for (const char* body : {kWhole, kStream}) {
    Client client(server_->port(), "/v1/completions", body);
    engine_.Fail(body == kWhole ? 1 : 2, absl::InternalError("the device is lost"));
    const Answer answer = client.Read();
    EXPECT_EQ(answer.status, 500);
    EXPECT_EQ(answer.error("message"), "the device is lost");
  }
  // With two sequences, the failure of one ends the other.
  Client client(server_->port(), "/v1/completions", R"({"prompt": "A", "n": 2, "stream": true})");
  engine_.Emit(3, "once");
  EXPECT_THAT(client.ReadUntil("once"), HasSubstr("200 OK"));
  engine_.Fail(4, absl::InternalError("the device is lost"));
  EXPECT_THAT(client.ReadUntil("[DONE]"), HasSubstr("the device is lost"));
  engine_.AwaitCancel(3);
  engine_.End(3, FinishReason::kCancelled);
  AwaitEnd();
}

// The system buffers a few megabytes for a connection. Most of an answer of this size waits in the
// server.
constexpr size_t kMuch = 16 << 20;

// Other sequences end while the failure of the first is still being sent to the client.
TEST_F(Endings, LaterFailuresDoNotAnswerAgain) {
  Start();
  Client client(server_->port(), "/v1/completions", R"({"prompt": "A", "n": 3})");
  engine_.Fail(1, absl::InternalError(std::string(kMuch, 'x') + "the end"));
  std::string answer = client.ReadUntil("xxx");
  for (const GenerationId id : {2, 3}) {
    engine_.Fail(id, absl::InternalError("too late"));
    // This gives the server time to process it.
    EXPECT_EQ(Ask("GET", "/health").status, 200);
  }
  answer += client.ReadUntil("}}");
  EXPECT_EQ(answer.find("too late"), answer.npos);
  EXPECT_EQ(answer.rfind("HTTP/1.1"), 0u);
  EXPECT_GT(answer.size(), kMuch);
  EXPECT_EQ(client.Ask("GET", "/health").status, 200);
  AwaitEnd();
}

// The write timeout applies to each part, so a client that reads slowly is not cut off.
TEST_F(Endings, SlowReadersGetTheWholeAnswer) {
  options_.limits.write_timeout = absl::Seconds(3);
  options_.service.max_unread_bytes = 2 * kMuch;
  Start();
  Client whole(server_->port()), stream(server_->port());
  whole.SendRequest("POST", "/v1/completions", kWhole);
  engine_.RequestOf(1);
  stream.SendRequest("POST", "/v1/completions", kStream);
  const Instant start = Instant::Now();
  for (const GenerationId id : {1, 2}) {
    EXPECT_TRUE(engine_.Emit(id, std::string(kMuch, 'x')));
    engine_.End(id);
  }
  std::string answers[2];
  for (int i = 0; i < 64; ++i) {
    answers[0] += whole.ReadSome(kMuch / 64);
    answers[1] += stream.ReadSome(kMuch / 64);
    absl::SleepFor(absl::Milliseconds(72));
  }
  EXPECT_GT(Instant::Now() - start, 1.5 * options_.limits.write_timeout);
  answers[0] += whole.ReadUntil("timings");
  answers[1] += stream.ReadUntil("[DONE]");
  for (const std::string& answer : answers) {
    EXPECT_GT(answer.size(), kMuch);
    EXPECT_NE(answer.find("\"finish_reason\":\"stop\""), answer.npos);
  }
}

// The client closes its side while the answer is on its way, and reads all of it.
TEST_F(Endings, ClientsThatCloseAndReadCountAsAnswered) {
  options_.service.max_unread_bytes = 3 * kMuch;
  Start();
  GenerationId id = 0;
  for (const char* body : {kWhole, kStream}) {
    Client client(server_->port(), "/v1/completions", body);
    EXPECT_TRUE(engine_.Emit(++id, std::string(kMuch, 'x')));
    EXPECT_TRUE(engine_.Emit(id, std::string(kMuch, 'y')));
    engine_.End(id);
    // The write in progress is the last.
    std::string answer = client.ReadUntil("yyy");
    client.EndSending();
    for (int i = 0; i < 10; ++i) {
      // This gives the server time to process it.
      EXPECT_EQ(Ask("GET", "/health").status, 200);
    }
    answer += client.ReadUntil(body == kWhole ? "timings" : "[DONE]");
    EXPECT_GT(answer.size(), 2 * kMuch);
    EXPECT_NE(answer.find("\"finish_reason\":\"stop\""), answer.npos);
    // Waits for the end of the connection; until then the answer may not be counted yet.
    client.ReadUntil("no such text");
  }
  const std::string metrics = Ask("GET", "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("{path=\"/v1/completions\",status=\"200\"} 2"));
  EXPECT_THAT(metrics, Not(HasSubstr("status=\"499\"")));
  AwaitEnd();
}

TEST_F(Endings, ClientsThatDoNotReadAreCancelled) {
  options_.limits.write_timeout = absl::Milliseconds(100);
  options_.service.max_unread_bytes = 2 * kMuch;
  Start();
  Client client(server_->port(), "/v1/completions", kStream);
  EXPECT_TRUE(engine_.Emit(1, std::string(kMuch, 'x')));
  engine_.AwaitCancel(1);
  EXPECT_FALSE(engine_.Emit(1, "x"));
  engine_.End(1, FinishReason::kCancelled);
  AwaitEnd();
}

TEST_F(Endings, DrainFinishesRunningRequestsAndRefusesNewOnes) {
  Start();
  Client running(server_->port()), idle(server_->port());
  EXPECT_EQ(idle.Ask("GET", "/ready").status, 200);
  running.SendRequest("POST", "/v1/completions", kStream);
  engine_.Emit(1, "once");
  server_->Drain();
  const Answer refused = idle.Ask("POST", "/v1/completions", kWhole);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_EQ(Ask("GET", "/ready").status, 503);
  EXPECT_EQ(Ask("GET", "/health").status, 200);
  engine_.Emit(1, "upon");
  engine_.End(1);
  server_->AwaitEnd();
  const std::string answer = running.ReadUntil("[DONE]");
  EXPECT_THAT(answer, HasSubstr("upon"));
  EXPECT_THAT(answer, HasSubstr("[DONE]"));
}

TEST_F(Endings, ALostDeviceFailsProbesAndRequests) {
  Start();
  Client running(server_->port(), "/v1/completions", kWhole);
  engine_.RequestOf(1);
  EXPECT_EQ(Ask("GET", "/health").status, 200);
  const absl::Status lost = absl::DataLossError("cuda:0: waiting: the GPU is gone");
  engine_.set_health(lost);
  engine_.Fail(1, lost);
  const auto expect_lost = [](const Answer& answer) {
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.error("message"), "cuda:0: waiting: the GPU is gone");
    EXPECT_EQ(answer.error("code"), "device_failed");
  };
  expect_lost(running.Read());
  expect_lost(Ask("GET", "/health"));
  expect_lost(Ask("GET", "/ready"));
  expect_lost(Ask("POST", "/v1/completions", kWhole));
  EXPECT_EQ(Ask("GET", "/metrics").status, 200);
}

// Row 204 of the bug catalogue. The engine ends the requests after the clients have their answers.
TEST_F(Endings, RunningRequestsFailAtTheEndOfADrainAndOnStopNow) {
  const absl::Status lost = absl::UnavailableError("rank 1 has ended");
  const struct {
    bool drains;
    bool stops;
    std::string message;
  } cases[] = {{true, false, "the server is stopping"},
               {true, true, "rank 1 has ended"},
               {false, true, "rank 1 has ended"}};
  for (const auto& c : cases) {
    ManualEngine engine;
    ServerOptions options = TestServerOptions();
    options.drain_timeout = c.stops ? absl::Hours(1) : absl::Milliseconds(20);
    const auto server = StartServer(&engine, options);
    Client late(server->port());
    Client whole(server->port(), "/v1/completions", kWhole);
    engine.RequestOf(1);
    Client waiting(server->port(), "/v1/completions", kStream);
    engine.RequestOf(2);
    Client stream(server->port(), "/v1/completions", kStream);
    engine.Emit(3, "once");
    EXPECT_THAT(stream.ReadUntil("once"), HasSubstr("200 OK"));
    if (c.drains) server->Drain();
    if (c.stops) server->StopNow(lost);
    for (Client* client : {&whole, &waiting}) {
      const Answer answer = client->Read();
      EXPECT_EQ(answer.status, 503);
      EXPECT_EQ(answer.error("message"), c.message);
      EXPECT_TRUE(client->AwaitClose());
    }
    EXPECT_THAT(stream.ReadUntil("0\r\n\r\n"), HasSubstr(c.message));
    EXPECT_EQ(stream.Ask("GET", "/ready").status, 503);
    EXPECT_EQ(late.Ask("POST", "/v1/completions", kWhole).status, 503);
    EXPECT_TRUE(late.AwaitClose());
    const std::string metrics = tandem::Ask(server.get(), "GET", "/metrics").body;
    EXPECT_THAT(metrics, HasSubstr("{path=\"/v1/completions\",status=\"200\"} 1"));
    EXPECT_THAT(metrics, HasSubstr("{path=\"/v1/completions\",status=\"503\"} 3"));
    for (const GenerationId id : {1, 2, 3}) {
      engine.AwaitCancel(id);
      engine.End(id, FinishReason::kCancelled);
    }
    server->AwaitEnd();
  }
}

TEST_F(Endings, ClientsThatDoNotReadOrSendDoNotHoldAStop) {
  options_.service.max_unread_bytes = 2 * kMuch;
  Start();
  Client reads_nothing(server_->port(), "/v1/completions", kStream);
  EXPECT_TRUE(engine_.Emit(1, std::string(kMuch, 'x')));
  Client sends_half(server_->port());
  sends_half.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
      "Content-Length: 9\r\n\r\n");
  EXPECT_THAT(sends_half.ReadUntil("Continue"), HasSubstr("100 Continue"));
  const Instant start = Instant::Now();
  server_->StopNow(ServerIsStopping());
  engine_.AwaitCancel(1);
  engine_.End(1, FinishReason::kCancelled);
  server_->AwaitEnd();
  EXPECT_LT(Instant::Now() - start, options_.limits.write_timeout / 2);
}

// Clients connect throughout. Each is answered, or its connection is refused.
TEST_F(Endings, EveryClientThatConnectsIsAnswered) {
  constexpr int kStops = 100;
  constexpr int kClients = 8;
  std::atomic<int> num_reset = 0;
  std::vector<std::thread> clients;  // the last connection of each takes a second to be refused
  for (int stop = 0; stop < kStops; ++stop) {
    ManualEngine engine;
    const std::unique_ptr<HttpServer> server = StartServer(&engine, options_);
    const auto num_answered = std::make_shared<std::atomic<int>>(0);
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back([&num_reset, num_answered, port = server->port()] {
        for (;;) {
          Client client;
          if (!client.TryToConnect(port)) return;
          ++(client.Ask("GET", "/health").status == 0 ? num_reset : *num_answered);
        }
      });
    }
    while (*num_answered < kClients) std::this_thread::yield();
    server->StopNow(ServerIsStopping());
    server->AwaitEnd();
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(num_reset, 0);
}

TEST_F(Endings, DestructionWaitsForGenerations) {
  Start();
  Client client(server_->port(), "/v1/completions", kStream);
  engine_.Emit(1, "once");
  std::thread ends([&] {
    engine_.AwaitCancel(1);
    EXPECT_FALSE(engine_.Emit(1, "upon"));
    engine_.End(1, FinishReason::kCancelled);
  });
  server_ = nullptr;
  ends.join();
}

// ---- The queue between engine and client ----

class QueueTest : public ::testing::Test {
 protected:
  std::shared_ptr<ServedRequest> Start(size_t max_unread_bytes) {
    ApiRequest request;
    request.prompts = {{5}};
    request.stream = true;
    auto generation = ServedRequest::Start({.pair = pair_, .max_unread_bytes = max_unread_bytes},
                                           request, {.id = "id"}, Instant::Now());
    EXPECT_TRUE(generation.ok());
    return *std::move(generation);
  }

  ManualEngine engine_;
  Metrics metrics_;
  PairLease pair_ = TestPair(&engine_, &metrics_);
};

TEST_F(QueueTest, CallbacksDoNotWaitAndLoseNothing) {
  const auto generation = Start(1 << 20);
  int num_news = 0;
  generation->Listen([&] { ++num_news; });
  std::string want, got;
  for (int i = 0; i < 100; ++i) {
    const std::string text = absl::StrCat("<", i, ">");
    EXPECT_TRUE(engine_.Emit(1, text));
    want += text;
    if (i % 7 != 0) continue;
    // The listener is called once, however many pieces arrive.
    EXPECT_EQ(num_news, 1);
    num_news = 0;
    for (const auto& line : absl::StrSplit(generation->Take().events, "\n\n", absl::SkipEmpty())) {
      got += Json::parse(line.substr(6))["choices"][0]["text"].get<std::string>();
    }
  }
  engine_.End(1);
  const ServedRequest::Update last = generation->Take();
  EXPECT_TRUE(last.is_over);
  for (const Json& event : EventsOf(last.events)) {
    got += event["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(got, want);
}

TEST_F(QueueTest, TooManyUnreadBytesCancelTheRequest) {
  const auto generation = Start(4000);
  int emitted = 0;
  while (engine_.Emit(1, std::string(100, 'x'))) ASSERT_LT(++emitted, 100);
  // A piece occupies its text and less than 250 bytes.
  EXPECT_GT(emitted, 4000 / 350);
  engine_.End(1, FinishReason::kCancelled);
  const ServedRequest::Update update = generation->Take();
  EXPECT_TRUE(update.is_over);
  ASSERT_TRUE(update.response.has_value());
  EXPECT_THAT(update.response->body, HasSubstr("slow_client"));
}

TEST_F(QueueTest, LatenciesUseTheMonotonicClock) {
  FakeClock clock;
  const auto generation = Start(1 << 20);
  clock.Advance(absl::Seconds(2));
  EXPECT_TRUE(engine_.Emit(1, "once"));
  clock.Advance(absl::Seconds(3));
  engine_.End(1);
  EXPECT_THAT(TextOf(metrics_), HasSubstr("tandem_time_to_first_token_seconds_sum 2\n"));
  EXPECT_THAT(TextOf(metrics_), HasSubstr("tandem_e2e_request_latency_seconds_sum 5\n"));
}

// Throws when the second of three sequences is submitted, as a full memory would.
class ThrowingEngine : public ManualEngine {
 public:
  using ManualEngine::Submit;
  absl::StatusOr<GenerationId> Submit(Request request, OnPiece on_piece, OnDone on_done) override {
    if (request.sequence == 1) std::vector<int>().at(0);
    return ManualEngine::Submit(std::move(request), std::move(on_piece), std::move(on_done));
  }
};

TEST_F(QueueTest, ExceptionsReleaseAllPlaces) {
  ThrowingEngine engine;
  ApiRequest request;
  request.prompts = {{5}};
  request.n = 3;
  const PairLease pair = TestPair(&engine, &metrics_, 6);
  const auto start = [&] {
    return ServedRequest::Start({.pair = pair}, request, {.id = "id"}, Instant::Now());
  };
  EXPECT_THROW(start().IgnoreError(), std::out_of_range);
  EXPECT_EQ(pair->admission.num_inside(), 1);
  engine.AwaitCancel(1);
  engine.End(1, FinishReason::kCancelled);
  EXPECT_EQ(pair->admission.num_inside(), 0);
}

TEST_F(QueueTest, ClientsThatReadAreNotCancelled) {
  const auto generation = Start(4000);
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(engine_.Emit(1, std::string(100, 'x')));
    generation->Take();
  }
  engine_.End(1);
  EXPECT_THAT(generation->Take().events, Not(HasSubstr("error")));
}

}  // namespace
}  // namespace tandem
