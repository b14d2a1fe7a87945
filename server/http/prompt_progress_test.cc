// stream_options.prompt_progress: chunks that tell how much of a prompt has been read.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/instant.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/served_request.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = SortedJson;

constexpr char kStory[] = "Once upon a time there was a little girl. She lived in a small house";

// ---- With the shipped pair ----

std::string BodyOf(bool is_chat, const Json& options) {
  Json body = {{"max_tokens", 6}, {"temperature", 0}, {"stream", true}, {"n", 2}};
  if (is_chat) {
    body["messages"] = {{{"role", "user"}, {"content", kStory}}};
  } else {
    body["prompt"] = kStory;
  }
  if (!options.is_null()) body["stream_options"] = options;
  return body.dump();
}

// Returns the events of a stream without what differs between two equal requests. Moves the
// progress of each choice to `progress`, and drops chunks that have nothing else.
std::vector<Json> TextEventsOf(const Answer& answer, std::vector<std::vector<Json>>* progress) {
  std::vector<Json> events;
  for (Json event : EventsOf(answer.body)) {
    for (const char* name : {"id", "created", "timings", "speculation"}) event.erase(name);
    if (event.contains("prompt_progress")) {
      const Json& choice = event["choices"][0];
      progress->at(choice["index"].get<int>()).push_back(event["prompt_progress"]);
      event.erase("prompt_progress");
      if (choice["token_ids"].empty()) continue;
    }
    events.push_back(event);
  }
  return events;
}

TEST(PromptProgress, StreamsTellHowMuchOfThePromptIsRead) {
  for (const bool is_chat : {false, true}) {
    const char* path = is_chat ? "/v1/chat/completions" : "/v1/completions";
    EngineOptions options;
    options.target = TestModel("storyteller-7m");
    options.drafter = DrafterKind::kNone;  // one token per round
    options.device = "cpu";
    options.threads = 1;
    options.compute = CpuCompute::kF32;
    options.kv_memory_bytes = 64 << 20;
    options.chunk_tokens = 4;
    options.page_size = 4;
    options.callback_thread = CallbackThread::kEngine;
    const auto engine = Engine::Create(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    const auto server = StartServer(engine->get(), TestServerOptions());
    std::vector<std::vector<Json>> progress(2);
    const Answer asked =
        Ask(server.get(), "POST", path, BodyOf(is_chat, {{"prompt_progress", true}}));
    const std::vector<Json> with = TextEventsOf(asked, &progress);
    for (const std::vector<Json>& of_choice : progress) {
      ASSERT_FALSE(of_choice.empty());
      const int total = of_choice.front()["total"];
      int before = -1;
      for (const Json& one : of_choice) {
        EXPECT_EQ(one.size(), 4u);
        EXPECT_EQ(one["total"], total);
        EXPECT_GT(one["processed"], before);
        EXPECT_GE(one["processed"], one["cached"]);
        EXPECT_GE(one["time_ms"], 0);
        before = one["processed"];
      }
      EXPECT_EQ(before, total);
    }
    // The other choice finds what this one has read.
    EXPECT_EQ(progress[0].back()["cached"], 0);
    EXPECT_GT(progress[1].back()["cached"], 0);
    // Nothing else differs from a stream without progress.
    const Answer unasked = Ask(server.get(), "POST", path, BodyOf(is_chat, nullptr));
    EXPECT_THAT(unasked.body, Not(HasSubstr("prompt_progress")));
    std::vector<std::vector<Json>> none(2);
    std::vector<Json> without = TextEventsOf(unasked, &none);
    const auto text_of = [](const std::vector<Json>& events) {
      std::vector<std::string> texts(2);
      for (const Json& event : events) {
        const Json& choice = event["choices"][0];
        absl::StrAppend(&texts[choice["index"].get<int>()], choice.dump(), "\n");
      }
      return texts;
    };
    EXPECT_EQ(text_of(with), text_of(without));
  }
}

// ---- With an engine that the test controls ----

class ProgressQueue : public ::testing::Test {
 protected:
  std::shared_ptr<ServedRequest> Start(bool prompt_progress) {
    ApiRequest request;
    request.prompts = {{5}};
    request.stream = true;
    request.request.prompt_progress = prompt_progress;
    auto generation = ServedRequest::Start({.pair = pair_, .max_unread_bytes = 1000},
                                           std::move(request), {.id = "id"}, Instant::Now());
    EXPECT_TRUE(generation.ok());
    return *std::move(generation);
  }

  ManualEngine engine_;
  Metrics metrics_;
  PairLease pair_ = TestPair(&engine_, &metrics_);
};

TEST_F(ProgressQueue, StreamsWithoutItKeepTheirBytes) {
  const auto generation = Start(/*prompt_progress=*/false);
  EXPECT_FALSE(engine_.RequestOf(1).prompt_progress);
  EXPECT_TRUE(engine_.Emit(1, "once"));
  EXPECT_EQ(generation->Take().events,
            "data: {\"id\":\"id\",\"object\":\"text_completion\",\"created\":0,\"model\":\"story\","
            "\"system_fingerprint\":\"\",\"choices\":[{\"index\":0,\"finish_reason\":null,"
            "\"text\":\"once\",\"token_ids\":[5],\"provenance\":\"p\",\"logprobs\":null}],"
            "\"round\":{\"proposed\":0,\"accepted\":0,\"target_cached_tokens\":0,"
            "\"draft_cached_tokens\":0}}\n\n");
  engine_.End(1);
}

TEST_F(ProgressQueue, SlowReadersGetTheLatestProgress) {
  const auto generation = Start(/*prompt_progress=*/true);
  EXPECT_TRUE(engine_.RequestOf(1).prompt_progress);
  const auto read = [&](int processed) {
    engine_.EmitProgress(1, {.total = 99,
                             .cached = 1,
                             .processed = processed,
                             .time = processed * absl::Milliseconds(10)});
  };
  read(1);
  EXPECT_THAT(generation->Take().events,
              HasSubstr("\"prompt_progress\":{\"total\":99,\"cached\":1,\"processed\":1,"
                        "\"time_ms\":10}}\n\n"));
  for (int i = 2; i <= 98; ++i) read(i);
  EXPECT_TRUE(engine_.Emit(1, "once"));
  const std::string events = generation->Take().events;
  EXPECT_THAT(events, HasSubstr("\"processed\":98"));
  EXPECT_THAT(events, HasSubstr("\"text\":\"once\""));
  EXPECT_EQ(events.find("data: "), events.rfind("data: "));
  // The progress of the prompt does not count as a token.
  EXPECT_THAT(TextOf(metrics_), HasSubstr("tandem_time_to_first_token_seconds_count 1\n"));
  EXPECT_THAT(TextOf(metrics_), HasSubstr("tandem_inter_token_latency_seconds_count 0\n"));
  engine_.End(1);
}

}  // namespace
}  // namespace tandem
