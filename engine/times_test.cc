// The times that the engine reports, to the nanosecond: its clock advances only where the test says
// so.
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/instant.h"
#include "engine/engine_testing.h"
#include "engine/judged_engine.h"
#include "engine/report_json.h"
#include "gtest/gtest.h"
#include "tests/round_world.h"

namespace tandem {
namespace {

constexpr absl::Duration kMillisecond = absl::Milliseconds(1);

// Returns an engine without drafts whose judge takes 10 ms for each sequence of a round.
std::unique_ptr<Engine> SlowEngine(const GoldenPair& pair, int max_batch, FakeClock* clock) {
  EngineOptions options = CpuOptionsFor(pair.target, "");
  options.drafter = DrafterKind::kNone;
  options.callback_thread = CallbackThread::kEngine;
  options.max_batch = max_batch;
  options.prefix_cache = false;
  auto engine =
      CreateEngineWithJudge(options, [clock](AcceptanceRule rule, int count, auto& slots) {
        clock->Advance(10 * kMillisecond);
        return Judge(rule, count, slots);
      });
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

Request FourTokens(const GoldenPair& pair) {
  return {.prompt_ids = pair.prompt_ids,
          .max_tokens = 4,
          .sampling = kGreedy,
          .ignore_eos = true,
          .draft_tokens = 0};
}

void ExpectTimes(const Timings& t, absl::Duration queue, absl::Duration prompt,
                 absl::Duration verify, absl::Duration other) {
  EXPECT_EQ(t.queue, queue);
  EXPECT_EQ(t.prompt, prompt);
  EXPECT_EQ(t.draft, absl::ZeroDuration());
  EXPECT_EQ(t.verify, verify);
  EXPECT_EQ(t.other(), other);
  EXPECT_EQ(t.decode(), verify + other);
  EXPECT_EQ(t.end_to_end, queue + prompt + verify + other);
}

// Rows 153 and 155: a prompt that takes one pass has that pass as its prompt time, and no rate
// includes the time in the queue.
TEST(EngineTimes, QueuePromptAndDecodeTimesAreSeparate) {
  const GoldenPair pair("itself");
  FakeClock clock;
  const std::unique_ptr<Engine> engine = SlowEngine(pair, /*max_batch=*/1, &clock);
  absl::Notification first_has_read;
  absl::Notification second_waits;
  const auto first = engine->Submit(FourTokens(pair), [&](const Piece&) {
    if (!first_has_read.HasBeenNotified()) first_has_read.Notify();
    second_waits.WaitForNotification();
    clock.Advance(3 * kMillisecond);
    return true;
  });
  ASSERT_TRUE(first.ok()) << first.status();
  first_has_read.WaitForNotification();
  const auto second = engine->Submit(FourTokens(pair));
  ASSERT_TRUE(second.ok()) << second.status();
  second_waits.Notify();
  const auto a = engine->Wait(*first);
  const auto b = engine->Wait(*second);
  ASSERT_TRUE(a.ok() && b.ok());
  ExpectTimes(a->timings, absl::ZeroDuration(), 10 * kMillisecond, 30 * kMillisecond,
              12 * kMillisecond);
  EXPECT_EQ(a->timings.time_to_first_token, 10 * kMillisecond);
  EXPECT_EQ(a->num_decoded_tokens(), 3);
  EXPECT_DOUBLE_EQ(a->DecodeTokensPerSecond(), 3 / 0.042);
  const double prompt_tokens = static_cast<double>(pair.prompt_ids.size());
  EXPECT_DOUBLE_EQ(a->PromptTokensPerSecond(), prompt_tokens / 0.010);
  // The second request arrived after the first had read its prompt, and waited for the first to
  // end.
  ExpectTimes(b->timings, 42 * kMillisecond, 10 * kMillisecond, 30 * kMillisecond,
              absl::ZeroDuration());
  EXPECT_DOUBLE_EQ(b->TokensPerSecond(), 4 / 0.040);
}

TEST(EngineTimes, ASharedPassCountsFullyForEachSequence) {
  const GoldenPair pair("itself");
  FakeClock clock;
  const std::unique_ptr<Engine> engine = SlowEngine(pair, /*max_batch=*/2, &clock);
  // Both start in the same round, because the engine waits for the earlier request's callback.
  absl::Notification has_begun;
  absl::Notification both_wait;
  const auto before = engine->Submit(FourTokens(pair), [&](const Piece&) {
    has_begun.Notify();
    both_wait.WaitForNotification();
    return false;
  });
  ASSERT_TRUE(before.ok());
  has_begun.WaitForNotification();
  std::vector<GenerationId> ids;
  for (int i = 0; i < 2; ++i) {
    const auto id = engine->Submit(FourTokens(pair));
    ASSERT_TRUE(id.ok()) << id.status();
    ids.push_back(*id);
  }
  both_wait.Notify();
  ASSERT_TRUE(engine->Wait(*before).ok());
  std::vector<Completion> completions;
  for (const GenerationId id : ids) {
    auto completion = engine->Wait(id);
    ASSERT_TRUE(completion.ok()) << completion.status();
    completions.push_back(*std::move(completion));
  }
  for (const Completion& completion : completions) {
    ExpectTimes(completion.timings, absl::ZeroDuration(), 20 * kMillisecond, 60 * kMillisecond,
                absl::ZeroDuration());
  }
  const Completion joint = JointCompletion(completions);
  ExpectTimes(joint.timings, absl::ZeroDuration(), 20 * kMillisecond, 60 * kMillisecond,
              absl::ZeroDuration());
  EXPECT_EQ(joint.num_decoded_tokens(), 6);
}

// Draft and pass times of rounds with fakes: those of the first round belong to the prompt span.
TEST(EngineTimes, DraftAndPassTimesCoverTheDecodeSpan) {
  FakeClock clock;
  RoundModels models;
  models.target.options().on_pass = [&](int num_tokens) {
    clock.Advance(num_tokens * kMillisecond);
  };
  FunctionDrafter drafter([&](const DraftRequest& request, Proposal* proposal) {
    for (int i = 0; i < request.granted; ++i) {
      clock.Advance(absl::Microseconds(100));
      Suggest(0, proposal);
    }
  });
  const auto s = Start(&models, &drafter, {.prompt = {1, 2, 3, 4, 5}, .max_tokens = 40});
  s->times = SessionTimes(Instant::Now());
  clock.Advance(6 * kMillisecond);
  s->times.OnPlace(Instant::Now());
  const RoundStep part = {.session = s.get(), .num_fed = 2};
  ASSERT_TRUE(models.Round(&drafter, {&part, 1}).ok());
  EXPECT_FALSE(s->times.has_read_prompt());
  ASSERT_TRUE(models.Round(&drafter, s.get(), 2).ok());  // 3 tokens of the prompt, 2 drafted
  EXPECT_TRUE(s->times.has_read_prompt());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(models.Round(&drafter, s.get(), 4).ok());  // one token and 4 drafted
    clock.Advance(5 * kMillisecond);
  }
  const Timings t = s->times.Until(Instant::Now());
  EXPECT_EQ(t.queue, 6 * kMillisecond);
  EXPECT_EQ(t.prompt, 2 * kMillisecond + absl::Microseconds(200) + 5 * kMillisecond);
  EXPECT_EQ(t.draft, absl::Microseconds(800));
  EXPECT_EQ(t.verify, 10 * kMillisecond);
  EXPECT_EQ(t.other(), 10 * kMillisecond);
  EXPECT_EQ(t.queue + t.prompt + t.draft + t.verify + t.other(), t.end_to_end);
  const RoundStats& stats = s->completion.stats;
  EXPECT_EQ(stats.prefill_time, 7 * kMillisecond);
  EXPECT_EQ(stats.verify_time, 10 * kMillisecond);
  EXPECT_EQ(stats.draft_time, absl::Milliseconds(1));
}

// The first sequence decodes while the second waits and reads its own prompt.
TEST(EngineTimes, JointSpansCoverAllSequences) {
  std::vector<Completion> completions(2);
  for (Completion& completion : completions) {
    completion.prompt_tokens = 7;
    completion.token_ids.resize(10);
    completion.first_round_tokens = 1;
  }
  completions[0].timings = {.time_to_first_token = 11 * kMillisecond,
                            .end_to_end = 100 * kMillisecond,
                            .queue = absl::ZeroDuration(),
                            .prompt = 10 * kMillisecond,
                            .draft = 20 * kMillisecond,
                            .verify = 55 * kMillisecond,
                            .all_prompts = 10 * kMillisecond};
  completions[1].timings = {.time_to_first_token = 71 * kMillisecond,
                            .end_to_end = 110 * kMillisecond,
                            .queue = 30 * kMillisecond,
                            .prompt = 40 * kMillisecond,
                            .draft = 25 * kMillisecond,
                            .verify = 10 * kMillisecond,
                            .all_prompts = 40 * kMillisecond};
  for (int turn = 0; turn < 2; ++turn) {
    const Completion joint = JointCompletion(completions);
    const Timings& t = joint.timings;
    EXPECT_EQ(t.time_to_first_token, 11 * kMillisecond);
    EXPECT_EQ(t.end_to_end, 110 * kMillisecond);
    EXPECT_EQ(t.queue, absl::ZeroDuration());
    EXPECT_EQ(t.prompt, 10 * kMillisecond);
    EXPECT_EQ(t.draft, 25 * kMillisecond);
    EXPECT_EQ(t.verify, 55 * kMillisecond);
    EXPECT_EQ(t.other(), 20 * kMillisecond);
    EXPECT_DOUBLE_EQ(joint.PromptTokensPerSecond(), 14 / 0.070);
    EXPECT_DOUBLE_EQ(joint.DecodeTokensPerSecond(), 18 / 0.100);
    std::swap(completions[0], completions[1]);
  }
}

// The printed times add up, like the stored ones.
TEST(EngineTimes, JsonHasEveryPart) {
  Completion completion;
  completion.prompt_tokens = 9;
  completion.cached_tokens = 4;
  completion.token_ids = {1, 2, 3};
  completion.first_round_tokens = 1;
  completion.timings = {.time_to_first_token = 14 * kMillisecond,
                        .end_to_end = 40 * kMillisecond,
                        .queue = 4 * kMillisecond,
                        .prompt = 10 * kMillisecond,
                        .draft = 5 * kMillisecond,
                        .verify = 20 * kMillisecond,
                        .all_prompts = 10 * kMillisecond};
  const JsonValue json = TimingsJson(completion);
  EXPECT_EQ(json["queue_ms"], 4.0);
  EXPECT_EQ(json["prompt_tokens"], 5);
  EXPECT_EQ(json["prompt_ms"], 10.0);
  EXPECT_EQ(json["prefill_ms"], 10.0);
  EXPECT_EQ(json["prompt_tokens_per_second"], 500.0);
  EXPECT_EQ(json["decode_tokens"], 2);
  EXPECT_EQ(json["decode_ms"], 26.0);
  EXPECT_DOUBLE_EQ(json["decode_tokens_per_second"], 2 / 0.026);
  EXPECT_EQ(json["draft_ms"], 5.0);
  EXPECT_EQ(json["verify_ms"], 20.0);
  EXPECT_EQ(json["other_ms"], 1.0);
  EXPECT_DOUBLE_EQ(json["tokens_per_second"], 3 / 0.036);
}

}  // namespace
}  // namespace tandem
