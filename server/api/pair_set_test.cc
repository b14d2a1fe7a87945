// Several pairs in one server.
#include "server/api/pair_set.h"

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/log_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kMegabyte = 1'000'000;

std::string BodyFor(const std::string& model) {
  return absl::StrCat(R"({"prompt": "a", "model": ")", model, "\"}");
}

// The engines of pairs that the test controls.
class Several : public ::testing::Test {
 protected:
  // A pair whose engine the test controls, of this size.
  PairSource Source(const std::string& name, int64_t megabytes = 10) {
    return {.name = name,
            .plan =
                [megabytes] {
                  return PairMemory{.bytes = megabytes * kMegabyte,
                                    .free_bytes = 1000 * kMegabyte,
                                    .parts = "weights and caches"};
                },
            .load = [this, name](const PairFailures& failures) -> absl::StatusOr<LoadedPair> {
              auto engine = std::make_unique<ManualEngine>();
              const absl::MutexLock lock(&mutex_);
              if (refusals_.contains(name)) return refusals_[name];
              engines_[name] = engine.get();
              failures_[name] = failures;
              ++num_loads_[name];
              return LoadedPair{.engine = std::move(engine), .system_fingerprint = "fp_" + name};
            },
            .max_sequences = 4};
  }
  // The same, with a load that waits.
  PairSource SlowSource(const std::string& name, absl::Notification* may_load) {
    PairSource source = Source(name);
    source.load = [load = source.load, may_load](const PairFailures& failures) {
      may_load->WaitForNotification();
      return load(failures);
    };
    return source;
  }
  void Start(std::vector<PairSource> sources, int64_t megabytes = 1000) {
    options_.service.pairs = std::move(sources);
    options_.service.pair_memory_bytes = megabytes * kMegabyte;
    options_.service.on_all_pairs_lost = [this](const absl::Status&) { all_lost_.Notify(); };
    auto server = HttpServer::Start(options_);
    TANDEM_CHECK(server.ok());
    server_ = *std::move(server);
  }
  Answer Ask(const std::string& method, const std::string& target, const std::string& body = "",
             const std::string& headers = "") {
    return tandem::Ask(server_.get(), method, target, body, headers);
  }
  // The state of a model in the list.
  std::string StateOf(const std::string& name) {
    const SortedJson list = Ask("GET", "/v1/models").json();
    for (const SortedJson& model : list["data"]) {
      if (model["id"] == name) return model["status"]["value"];
    }
    return "none";
  }
  void AwaitState(const std::string& name, const std::string& state) {
    while (StateOf(name) != state) absl::SleepFor(absl::Milliseconds(1));
  }
  void Load(const std::string& name) {
    ASSERT_EQ(Ask("POST", "/v1/models/" + name + "/load").status, 200);
  }
  // The engine of a loaded pair.
  ManualEngine& EngineOf(const std::string& name) {
    const absl::MutexLock lock(&mutex_);
    return *engines_.at(name);
  }
  PairFailures FailuresOf(const std::string& name) {
    const absl::MutexLock lock(&mutex_);
    return failures_.at(name);
  }
  int NumLoads(const std::string& name) {
    const absl::MutexLock lock(&mutex_);
    return num_loads_[name];
  }
  // Makes later loads of the pair fail, or succeed if `why` is OK.
  void Refuse(const std::string& name, const absl::Status& why) {
    const absl::MutexLock lock(&mutex_);
    why.ok() ? void(refusals_.erase(name)) : void(refusals_[name] = why);
  }

  ServerOptions options_ = TestServerOptions();
  absl::Notification all_lost_;
  absl::Mutex mutex_;
  std::map<std::string, ManualEngine*> engines_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, PairFailures> failures_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> num_loads_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, absl::Status> refusals_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<HttpServer> server_;
};

TEST_F(Several, TheModelOfARequestChooses) {
  Start({Source("a"), Source("b")});
  EXPECT_EQ(StateOf("a"), "unloaded");
  for (const std::string name : {"b", "a"}) {
    Client client(server_->port(), "/v1/completions", BodyFor(name));
    AwaitState(name, "loaded");
    EngineOf(name).Emit(1, "hello from " + name);
    EngineOf(name).End(1);
    const Answer answer = client.Read();
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json()["model"], name);
    EXPECT_EQ(answer.json()["system_fingerprint"], "fp_" + name);
    EXPECT_EQ(answer.json()["choices"][0]["text"], "hello from " + name);
  }
  EXPECT_EQ(NumLoads("a"), 1);
  const SortedJson list = Ask("GET", "/v1/models").json()["data"];
  EXPECT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["max_model_len"], 1024);
  EXPECT_EQ(Ask("GET", "/v1/models/b").json()["status"]["value"], "loaded");
}

TEST_F(Several, RequestsMustNameOneThatIsThere) {
  Start({Source("a"), Source("b")});
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/v1/messages",
                           "/v1/draft_texts"}) {
    EXPECT_THAT(Ask("POST", path, R"({"prompt": "a"})").error("message"),
                HasSubstr("model: is required, allowed: a, b"))
        << path;
    const Answer unknown = Ask("POST", path, R"({"model": "c"})");
    EXPECT_EQ(unknown.status, 404) << path;
    EXPECT_THAT(unknown.error("message"),
                HasSubstr("model: \"c\" is not served here, allowed: a, b"));
    EXPECT_THAT(Ask("POST", path, R"({"model": )").error("message"), HasSubstr("not JSON"));
  }
  EXPECT_EQ(Ask("POST", "/v1/models/c/load").status, 404);
  EXPECT_EQ(Ask("GET", "/v1/models/c").error("code"), "model_not_found");
  EXPECT_THAT(Ask("GET", "/tokenizer_info").error("message"), HasSubstr("model: is required"));
  EXPECT_EQ(Ask("GET", "/tokenizer_info?model=a").status, 200);
  EXPECT_EQ(Ask("POST", "/tokenize", R"({"prompt": "a", "model": "a"})").status, 200);
  // A name that occurs elsewhere in the request does not count.
  EXPECT_EQ(
      Ask("POST", "/tokenize", R"({"x": {"model": "c"}, "prompt": "model", "model": "a"})").status,
      200);
}

TEST_F(Several, NamesWithASlashArePercentEncoded) {
  Start({Source("org/a:Q4"), Source("load")});
  EXPECT_EQ(Ask("POST", "/v1/models/org%2Fa%3AQ4/load").status, 200);
  EXPECT_EQ(Ask("GET", "/v1/models/org%2Fa%3AQ4").json()["status"]["value"], "loaded");
  EXPECT_EQ(Ask("POST", "/v1/models/load/load").json()["id"], "load");
  EXPECT_EQ(Ask("POST", "/v1/models/load").status, 405);
  EXPECT_EQ(Ask("POST", "/v1/models//load").status, 405);
}

TEST_F(Several, LoadingNeedsTheKey) {
  options_.service.api_key = "secret";
  Start({Source("a")});
  EXPECT_EQ(Ask("POST", "/v1/models/a/load").status, 401);
  EXPECT_EQ(Ask("POST", "/v1/models/a/unload").status, 401);
  EXPECT_EQ(NumLoads("a"), 0);
  EXPECT_EQ(Ask("POST", "/v1/models/a/load", "", "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(NumLoads("a"), 1);
}

TEST_F(Several, UnloadingWaitsForRequests) {
  Start({Source("a")});
  Load("a");
  Client running(server_->port(), "/v1/completions", BodyFor("a"));
  EngineOf("a").Emit(1, "x");
  Client unload(server_->port());
  unload.SendRequest("POST", "/v1/models/a/unload");
  AwaitState("a", "unloading");
  // A request that comes meanwhile waits, and loads the pair again.
  Client later(server_->port(), "/v1/completions", BodyFor("a"));
  EngineOf("a").Emit(1, "y");
  EngineOf("a").End(1);
  EXPECT_EQ(running.Read().json()["choices"][0]["text"], "xy");
  EXPECT_EQ(unload.Read().status, 200);
  AwaitState("a", "loaded");
  EXPECT_EQ(NumLoads("a"), 2);
  EngineOf("a").Emit(1, "z");
  EngineOf("a").End(1);
  EXPECT_EQ(later.Read().json()["choices"][0]["text"], "z");
  EXPECT_EQ(Ask("POST", "/v1/models/a/unload").json()["status"]["value"], "unloaded");
  EXPECT_EQ(Ask("POST", "/v1/models/a/unload").json()["status"]["value"], "unloaded");
}

// The one that was not used for the longest time goes; a pinned one stays.
TEST_F(Several, RoomIsMadeByUnloading) {
  PairSource pinned = Source("pinned", 40);
  pinned.is_pinned = true;
  Start({pinned, Source("a", 30), Source("b", 30), Source("c", 30)}, 100);
  Load("pinned");
  Load("a");
  Load("b");
  ASSERT_EQ(Ask("POST", "/tokenize", R"({"prompt": "a", "model": "a"})").status, 200);
  Load("c");
  EXPECT_EQ(StateOf("a"), "loaded");
  EXPECT_EQ(StateOf("b"), "unloaded");
  EXPECT_EQ(StateOf("pinned"), "loaded");
  // Two that are used one after the other do not deadlock.
  for (int i = 0; i < 3; ++i) {
    Load("b");
    Load("c");
    Load("a");
  }
  const std::string metrics = Ask("GET", "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("tandem_pair_planned_bytes{pair=\"pinned\"} 40000000"));
  EXPECT_THAT(metrics, HasSubstr("tandem_pair_loaded{pair=\"b\"}"));
}

// The pair with requests finishes them first.
TEST_F(Several, RoomIsMadeAfterRunningRequests) {
  std::atomic<int> num_plans = 0;
  PairSource b = Source("b", 80);
  b.plan = [plan = b.plan, &num_plans] {
    ++num_plans;
    return plan();
  };
  Start({Source("a", 80), b}, 100);
  Load("a");
  Client first(server_->port(), "/v1/completions", BodyFor("a"));
  EngineOf("a").Emit(1, "x");
  Client second(server_->port(), "/v1/completions", BodyFor("b"));
  AwaitState("a", "unloading");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(StateOf("b"), "waiting");
  EXPECT_LT(num_plans, 5);  // the thread sleeps meanwhile
  EngineOf("a").End(1);
  EXPECT_EQ(first.Read().status, 200);
  AwaitState("b", "loaded");
  EngineOf("b").End(1);
  EXPECT_EQ(second.Read().status, 200);
}

TEST_F(Several, APairThatCannotFitIsRefusedWithNumbers) {
  PairSource pinned = Source("pinned", 40);
  pinned.is_pinned = true;
  Start({pinned, Source("big", 70)}, 100);
  Load("pinned");
  const Answer refusal = Ask("POST", "/v1/completions", BodyFor("big"));
  EXPECT_EQ(refusal.status, 503);
  EXPECT_EQ(refusal.error("code"), "model_failed");
  for (const char* part :
       {"model \"big\" cannot be used: it needs 70.0 MB on cpu (weights and caches)",
        "at most 60.0 MB", "100 MB are there", "pinned ones hold 40.0 MB"}) {
    EXPECT_THAT(refusal.error("message"), HasSubstr(part));
  }
  EXPECT_EQ(StateOf("pinned"), "loaded");
  EXPECT_EQ(NumLoads("big"), 0);
}

TEST_F(Several, AFailureLeavesTheOthersAlone) {
  Start({Source("a"), Source("b")});
  Load("a");
  Refuse("b", absl::NotFoundError("/models/b: no such file"));
  const Answer failed = Ask("POST", "/v1/completions", BodyFor("b"));
  EXPECT_EQ(failed.status, 503);
  EXPECT_THAT(failed.error("message"),
              HasSubstr("model \"b\" cannot be used: /models/b: no such file"));
  EXPECT_EQ(Ask("GET", "/v1/models/b").json()["status"]["value"], "failed");
  EXPECT_THAT(Ask("GET", "/v1/models/b").json()["status"]["error"].get<std::string>(),
              HasSubstr("no such file"));
  EXPECT_EQ(Ask("GET", "/health").status, 200);
  EXPECT_EQ(Ask("POST", "/tokenize", R"({"prompt": "a", "model": "a"})").status, 200);
  // Requests get the same error for a while; a load tries again at once.
  Refuse("b", absl::OkStatus());
  EXPECT_EQ(Ask("POST", "/v1/completions", BodyFor("b")).status, 503);
  Load("b");
  EXPECT_EQ(StateOf("b"), "loaded");
}

TEST_F(Several, LostRanksEndOnePairWhichCanBeLoadedAgain) {
  Start({Source("a"), Source("b")});
  Load("a");
  Load("b");
  FailuresOf("a").lose_ranks(absl::UnavailableError("rank 1 ended"));
  AwaitState("a", "failed");
  EXPECT_THAT(Ask("POST", "/v1/completions", BodyFor("a")).error("message"),
              HasSubstr("rank 1 ended"));
  EXPECT_EQ(StateOf("b"), "loaded");
  Load("a");
  EXPECT_EQ(NumLoads("a"), 2);
}

TEST_F(Several, ALostDeviceEndsAllPairsOnIt) {
  PairSource other = Source("other");
  other.plan = [] { return PairMemory{.device = "cuda:1", .bytes = 1, .free_bytes = 9}; };
  Start({Source("a"), Source("b"), other});
  for (const char* name : {"a", "b", "other"}) Load(name);
  FailuresOf("a").lose_device(absl::DataLossError("cpu: an illegal access"));
  EXPECT_EQ(StateOf("a"), "lost");
  EXPECT_EQ(StateOf("b"), "lost");
  EXPECT_EQ(StateOf("other"), "loaded");
  EXPECT_THAT(Ask("POST", "/v1/models/b/load").error("message"), HasSubstr("an illegal access"));
  EXPECT_EQ(Ask("GET", "/health").status, 200);
  EXPECT_FALSE(all_lost_.HasBeenNotified());
  FailuresOf("other").lose_device(absl::DataLossError("cuda:1: an illegal access"));
  all_lost_.WaitForNotification();
  EXPECT_EQ(Ask("GET", "/health").status, 503);
}

TEST_F(Several, IdlePairsAreUnloaded) {
  FakeClock clock;
  PairSource idle = Source("idle");
  idle.idle_timeout = absl::Minutes(10);
  PairSource pinned = idle;
  pinned.is_pinned = true;
  pinned.name = "pinned";
  Start({idle, pinned, Source("a")});
  Load("idle");
  Load("a");
  clock.Advance(absl::Minutes(9));
  ASSERT_EQ(Ask("POST", "/tokenize", R"({"prompt": "a", "model": "idle"})").status, 200);
  clock.Advance(absl::Minutes(9));
  Load("pinned");  // wakes the thread, which looks at the clock
  EXPECT_EQ(StateOf("idle"), "loaded");
  clock.Advance(absl::Minutes(1));
  Load("a");
  ASSERT_EQ(Ask("POST", "/tokenize", R"({"prompt": "a", "model": "a"})").status, 200);
  AwaitState("idle", "unloaded");
  EXPECT_EQ(StateOf("pinned"), "loaded");
  EXPECT_EQ(StateOf("a"), "loaded");
}

// The idle time begins when the last request ends. Reading metrics is not a use.
TEST_F(Several, LongRequestsCountAsAUseUntilTheirEnd) {
  FakeClock clock;
  PairSource idle = Source("idle");
  idle.idle_timeout = absl::Minutes(10);
  Start({idle, Source("a")});
  Load("idle");
  Client client(server_->port(), "/v1/completions", BodyFor("idle"));
  EngineOf("idle").Emit(1, "x");
  clock.Advance(absl::Minutes(20));
  EngineOf("idle").End(1);
  EXPECT_EQ(client.Read().status, 200);
  Load("a");  // wakes the thread, which looks at the clock
  EXPECT_EQ(StateOf("idle"), "loaded");
  clock.Advance(absl::Minutes(9));
  EXPECT_EQ(Ask("GET", "/metrics").status, 200);
  clock.Advance(absl::Minutes(1));
  EXPECT_EQ(Ask("GET", "/metrics").status, 200);  // its lease wakes the thread
  AwaitState("idle", "unloaded");
}

TEST_F(Several, PreloadedPairsAreLoadedBeforeTheServerIsReady) {
  absl::Notification may_load;
  PairSource slow = SlowSource("slow", &may_load);
  slow.is_preloaded = true;
  Start({slow, Source("a")});
  EXPECT_EQ(Ask("GET", "/ready").status, 503);
  EXPECT_EQ(Ask("GET", "/health").status, 200);
  may_load.Notify();
  while (Ask("GET", "/ready").status != 200) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(StateOf("slow"), "loaded");
  EXPECT_EQ(StateOf("a"), "unloaded");
}

// A stream begins while its model is loaded, so that clients and proxies do not give up.
class SlowLoads : public Several {
 protected:
  SlowLoads() { options_.limits.comment_interval = absl::Milliseconds(20); }
  // A client whose stream has begun with comments.
  std::unique_ptr<Client> WaitingStream(const std::string& path, const std::string& body) {
    auto client = std::make_unique<Client>(server_->port(), path, body);
    EXPECT_THAT(client->ReadUntil(": loading\n\n\r\n"),
                AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("text/event-stream")));
    EXPECT_THAT(client->ReadUntil(": loading\n\n\r\n"), Not(HasSubstr("HTTP/1.1")));
    return client;
  }

  absl::Notification may_load_;
  const std::string stream_ = R"({"model": "slow", "stream": true, "prompt": "a"})";
};

TEST_F(SlowLoads, KeepStreamsAlive) {
  Start({SlowSource("slow", &may_load_), Source("a")});
  const auto client = WaitingStream("/v1/completions", stream_);
  may_load_.Notify();
  client->ReadUntil(": queued\n\n\r\n");
  EngineOf("slow").Emit(1, "once");
  EXPECT_THAT(client->ReadUntil("once"), Not(HasSubstr("HTTP/1.1")));
  EngineOf("slow").End(1);
  EXPECT_THAT(client->ReadUntil("0\r\n\r\n"), HasSubstr("[DONE]"));
  EXPECT_EQ(client->Ask("GET", "/health").status, 200);
}

TEST_F(SlowLoads, FailuresAreEventsOfTheStream) {
  Start({SlowSource("slow", &may_load_), Source("a")});
  Refuse("slow", absl::NotFoundError("no such file"));
  const std::string chat = R"({"model": "slow", "stream": true, "max_tokens": 4,
                               "messages": [{"role": "user", "content": "a"}]})";
  const auto completion = WaitingStream("/v1/completions", stream_);
  const auto messages = WaitingStream("/v1/messages", chat);
  may_load_.Notify();
  EXPECT_THAT(completion->ReadUntil("0\r\n\r\n"),
              AllOf(HasSubstr("data: {\"error\""), HasSubstr("no such file"),
                    HasSubstr("\n\ndata: [DONE]\n\n")));
  EXPECT_THAT(messages->ReadUntil("0\r\n\r\n"),
              AllOf(HasSubstr("event: error\ndata: {\"type\":\"error\""), HasSubstr("no such file"),
                    Not(HasSubstr("[DONE]"))));
  EXPECT_EQ(completion->Ask("GET", "/health").status, 200);
}

TEST_F(SlowLoads, RefusalsAfterThemAreEventsToo) {
  Start({SlowSource("slow", &may_load_), Source("a")});
  const auto client = WaitingStream(
      "/v1/completions", R"({"model": "slow", "stream": true, "prompt": "a", "top_k": -7})");
  may_load_.Notify();
  EXPECT_THAT(client->ReadUntil("0\r\n\r\n"),
              AllOf(HasSubstr("top_k"), HasSubstr("[DONE]"), Not(HasSubstr("HTTP/1.1"))));
}

TEST_F(SlowLoads, OtherAnswersWaitForTheirStatus) {
  Start({SlowSource("slow", &may_load_), Source("a")});
  Client whole(server_->port(), "/v1/completions", BodyFor("slow"));
  Client rendered(server_->port(), "/v1/completions/render", stream_);
  const auto stream = WaitingStream("/v1/completions", stream_);  // as long as this waits
  may_load_.Notify();
  EXPECT_EQ(rendered.Read().headers["content-type"], "application/json");
  for (GenerationId id : {1, 2}) EngineOf("slow").End(id);
  EXPECT_EQ(whole.Read().headers["content-type"], "application/json");
}

TEST_F(SlowLoads, ClientsThatLeaveAreNotWaitedFor) {
  Start({SlowSource("slow", &may_load_), Source("a")});
  WaitingStream("/v1/completions", stream_)->Close();
  may_load_.Notify();
  AwaitState("slow", "loaded");
  EngineOf("slow").AwaitCancel(1);
  EngineOf("slow").End(1, FinishReason::kCancelled);
}

// The time to the next comment does not hold a stop.
TEST_F(SlowLoads, AStopDoesNotWaitForAComment) {
  options_.limits.comment_interval = absl::Hours(1);
  Start({SlowSource("slow", &may_load_), Source("a")});
  Client client(server_->port(), "/v1/completions", stream_);
  AwaitState("slow", "loading");
  server_->Drain();
  EXPECT_EQ(client.Read().status, 503);
  may_load_.Notify();
  server_->AwaitEnd();
}

// Requests that wait for a pair are limited like those that wait in one, and end with the server.
TEST_F(Several, TheQueueForALoadIsLimited) {
  absl::Notification may_load;
  const PairSource slow = SlowSource("slow", &may_load);
  Start({slow, Source("a")});
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(
        std::make_unique<Client>(server_->port(), "/v1/completions", BodyFor("slow")));
  }
  const std::string waiting = "tandem_pair_requests_waiting{pair=\"slow\"} 4";
  while (Ask("GET", "/metrics").body.find(waiting) == std::string::npos) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  AwaitState("slow", "loading");
  const Answer refusal = Ask("POST", "/v1/completions", BodyFor("slow"));
  EXPECT_EQ(refusal.status, 429);
  EXPECT_THAT(refusal.error("message"), HasSubstr("4 requests wait until \"slow\" is loaded"));
  EXPECT_EQ(Ask("POST", "/v1/models/slow/unload").status, 409);
  // The others are not held up, although a load is in progress.
  EXPECT_EQ(Ask("GET", "/v1/models/a").status, 200);
  server_->Drain();
  for (auto& client : clients) EXPECT_EQ(client->Read().status, 503);
  may_load.Notify();
  server_->AwaitEnd();
}

TEST_F(Several, ASinglePairCannotBeUnloaded) {
  ManualEngine engine;
  server_ = StartServer(&engine, TestServerOptions());
  EXPECT_EQ(Ask("GET", "/v1/models/story").json()["status"]["value"], "loaded");
  EXPECT_EQ(Ask("POST", "/v1/models/story/load").status, 200);
  const Answer refusal = Ask("POST", "/v1/models/story/unload");
  EXPECT_EQ(refusal.status, 409);
  EXPECT_EQ(refusal.error("code"), "always_loaded");
  EXPECT_THAT(Ask("GET", "/metrics").body, Not(HasSubstr("pair")));
}

}  // namespace
}  // namespace tandem
