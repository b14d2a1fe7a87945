// Whatever else an engine runs at the same time, a seeded or greedy request gets the tokens and,
// bit for bit, the log-probabilities that it gets alone without speculation.
#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_testing.h"
#include "engine/judged_engine.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr int kLongest = 80;  // tokens of prompt and output

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int Uniform(int low, int high) { return std::uniform_int_distribution(low, high)(engine_); }
  bool OneIn(int count) { return Uniform(1, count) == 1; }
  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return values.begin()[Uniform(0, static_cast<int>(values.size()) - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

Request RandomRequest(Random& random, const GoldenPair& pair, int vocab_size) {
  // A prefix of one of a few texts, and mostly a few tokens of the request's own after it.
  Request request;
  std::vector<TokenId>& prompt = request.prompt_ids;
  const int text = random.Uniform(0, 2);
  const int shared = random.Uniform(1, 45);
  for (int i = 0; i < shared; ++i) {
    prompt.push_back(pair.output_ids[(i * (text + 1)) % pair.output_ids.size()]);
  }
  for (int i = random.Uniform(-1, 4); i > 0; --i)
    prompt.push_back(random.Uniform(0, vocab_size - 1));
  request.max_tokens = random.Uniform(1, 30);
  SamplingParams& sampling = request.sampling;
  sampling.temperature = random.OneIn(3) ? 0.0f : 0.25f * static_cast<float>(random.Uniform(1, 5));
  if (random.OneIn(3)) sampling.top_k = random.Uniform(1, 40);
  if (random.OneIn(3)) sampling.top_p = 0.8f;
  if (random.OneIn(4)) sampling.repetition_penalty = 1.2f;
  if (random.OneIn(4)) sampling.frequency_penalty = 0.3f;
  if (random.OneIn(6)) sampling.min_tokens = random.Uniform(0, request.max_tokens);
  request.seed = random.Uniform(0, 1 << 30);
  request.sequence = random.Uniform(0, 2);
  request.ignore_eos = random.OneIn(2);
  if (random.OneIn(3)) {
    for (int i = 0; i < 20; ++i) request.stop_tokens.push_back(random.Uniform(0, vocab_size - 1));
  }
  if (random.OneIn(5)) request.stop = {"e"};
  if (random.OneIn(2)) {
    request.draft_tokens = random.OneOf({0, 1, 2, 4, 7, kAutoDraftTokens});
  }
  request.logprobs.num_top = random.Uniform(-1, 2);
  request.prompt_logprobs.num_top = random.OneIn(4) ? random.Uniform(0, 2) : -1;
  return request;
}

// Requests for one pair, and the completion of each one alone.
struct Catalogue {
  explicit Catalogue(const std::string& name) : pair(name) {
    Random random(11);
    EngineOptions options = CpuOptionsFor(pair.target, "");
    options.prefix_cache = false;
    options.max_batch = 1;
    const std::unique_ptr<Engine> engine = MakeEngine(options);
    for (int i = 0; i < 80; ++i) {
      requests.push_back(RandomRequest(random, pair, engine->target_info().vocab_size));
      alone.push_back(Generate(engine.get(), requests.back()));
    }
    bytes_per_token = KvBytesFor(pair.target, pair.draft, 1);
  }

  GoldenPair pair;
  std::vector<Request> requests;
  std::vector<Completion> alone;
  int64_t bytes_per_token = 0;
};

const Catalogue& CatalogueOf(bool is_shallow) {
  static const Catalogue shallow("shallow");
  static const Catalogue perturbed("perturbed");
  return is_shallow ? shallow : perturbed;
}

// Returns `whole` cut to the length of `like`.
Completion BeginningOf(const Completion& whole, const Completion& like) {
  Completion beginning = whole;
  beginning.token_ids.resize(std::min(like.token_ids.size(), whole.token_ids.size()));
  beginning.logprobs.resize(std::min(like.logprobs.size(), whole.logprobs.size()));
  beginning.prompt_logprobs.resize(
      std::min(like.prompt_logprobs.size(), whole.prompt_logprobs.size()));
  beginning.text = like.text;
  beginning.finish_reason = like.finish_reason;
  return beginning;
}

struct LoadStats {
  int64_t requests = 0;
  int64_t cancelled = 0;
  int64_t preempted = 0;
  int64_t cached = 0;
  int64_t proposed = 0;
  int64_t accepted = 0;
  int64_t different = 0;  // requests whose tokens differ
};

// One engine, and up to 33 requests that are submitted and finished in random order.
class LoadSchedule {
 public:
  LoadSchedule(uint64_t seed, JudgeFunction judge, bool expects_same)
      : expects_same_(expects_same), random_(seed), catalogue_(CatalogueOf(random_.OneIn(2))) {
    EngineOptions options = CpuOptionsFor(catalogue_.pair.target,
                                          random_.OneIn(5) ? std::string() : catalogue_.pair.draft);
    options.drafter = options.draft.empty()
                          ? random_.OneOf({DrafterKind::kNone, DrafterKind::kNgram})
                          : random_.OneOf({DrafterKind::kModel, DrafterKind::kModelAndNgram});
    options.draft_tokens = random_.OneOf({kAutoDraftTokens, 1, 3, 6});
    options.callback_thread = random_.OneOf({CallbackThread::kOwn, CallbackThread::kEngine});
    options.page_size = random_.OneOf({1, 2, 4, 8, 16});
    options.max_batch = random_.OneOf({1, 4, 12, 33});
    options.chunk_tokens = random_.OneOf({1, 3, 10, 40, 256});
    options.prefix_cache = !random_.OneIn(4);
    const int room = random_.OneOf({0, 0, 20, 100, 3000});
    options.kv_memory_bytes =
        (kLongest + 2 * options.page_size + room) * catalogue_.bytes_per_token;
    absl::StatusOr<std::unique_ptr<Engine>> engine =
        CreateEngineWithJudge(options, std::move(judge));
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  void Run(LoadStats* stats) {
    int left = random_.Uniform(1, 33);
    while (left > 0 || !running_.empty()) {
      if (left > 0 && (running_.empty() || !random_.OneIn(6))) {
        Submit();
        --left;
      } else {
        const int i = random_.Uniform(0, static_cast<int>(running_.size()) - 1);
        Running one = std::move(running_[i]);
        running_.erase(running_.begin() + i);
        Finish(one, stats);
      }
    }
    const absl::Status integrity = engine_->CheckIntegrity();
    EXPECT_TRUE(integrity.ok()) << integrity;
    const EngineLoad load = engine_->load();
    EXPECT_EQ(load.num_running + load.num_waiting, 0);
    EXPECT_EQ(load.target_pages_in_use, 0);
    EXPECT_EQ(load.draft_pages_in_use, 0);
  }

 private:
  struct Running {
    GenerationId id = 0;
    int request = 0;
    bool may_be_cancelled = false;
  };

  void Submit() {
    Running running;
    running.request = random_.Uniform(0, static_cast<int>(catalogue_.requests.size()) - 1);
    Engine::OnPiece on_piece;
    if (random_.OneIn(6)) {
      running.may_be_cancelled = true;
      on_piece = [left = random_.Uniform(1, 6)](const Piece&) mutable { return --left > 0; };
    }
    Request request = catalogue_.requests[running.request];
    request.client = absl::StrCat(running.request % 3);
    const auto id = engine_->Submit(std::move(request), std::move(on_piece));
    ASSERT_TRUE(id.ok()) << id.status();
    running.id = *id;
    running_.push_back(running);
  }

  void Finish(Running one, LoadStats* stats) {
    if (random_.OneIn(6)) {
      engine_->Cancel(one.id);
      one.may_be_cancelled = true;
    }
    const absl::StatusOr<Completion> got = engine_->Wait(one.id);
    ASSERT_TRUE(got.ok()) << got.status();
    ++stats->requests;
    stats->cancelled += got->finish_reason == FinishReason::kCancelled;
    stats->preempted += got->num_preemptions;
    stats->cached += got->cached_tokens;
    stats->proposed += got->stats.proposed;
    stats->accepted += got->stats.accepted;
    ExpectConsistentUnlessCut(*got);
    Completion want = catalogue_.alone[one.request];
    if (one.may_be_cancelled && got->finish_reason == FinishReason::kCancelled) {
      want = BeginningOf(want, *got);
    }
    if (got->token_ids != want.token_ids) ++stats->different;
    if (expects_same_) ExpectSameOutput(*got, want);
  }

  // Rounds after a callback's last piece are counted, but their tokens are dropped.
  static void ExpectConsistentUnlessCut(const Completion& got) {
    const auto num_tokens = static_cast<int64_t>(got.token_ids.size());
    if (num_tokens > 0 && num_tokens == got.stats.emitted) ExpectConsistent(got);
  }

  const bool expects_same_;
  Random random_;
  const Catalogue& catalogue_;
  std::unique_ptr<Engine> engine_;
  std::vector<Running> running_;
};

class EngineUnderLoad : public testing::TestWithParam<int> {};

TEST_P(EngineUnderLoad, EveryRequestGetsTheSameAsAlone) {
  constexpr int kSchedules = 30;
  LoadStats stats;
  for (int i = 0; i < kSchedules; ++i) {
    const uint64_t seed = GetParam() * kSchedules + i;
    SCOPED_TRACE(absl::StrCat("schedule ", seed));
    LoadSchedule(seed, Judge, true).Run(&stats);
    if (HasFailure()) return;
  }
  // The schedules reached the interesting cases. How often depends on the threads' timing.
  EXPECT_GT(stats.requests, 300);
  EXPECT_GT(stats.cancelled, 20);
  EXPECT_GT(stats.preempted, 0);
  EXPECT_GT(stats.cached, 500);
  EXPECT_GT(stats.proposed, 500);
  EXPECT_GT(stats.accepted, 100);
}

INSTANTIATE_TEST_SUITE_P(Schedules, EngineUnderLoad, testing::Range(0, 10));

// One choice in a hundred uses the noise of another place.
TEST(EngineUnderLoadSelfTest, ARowThatUsesNoiseOfAnotherPlaceIsSeen) {
  int num_choices = 0;
  const JudgeFunction planted = [&](AcceptanceRule rule, int num_tokens, Slots& slots) {
    absl::StatusOr<Verdict> verdict = Judge(rule, num_tokens, slots);
    if (verdict.ok() && ++num_choices % 100 == 0) {
      const Distribution& row = slots.TargetRow(verdict->num_accepted);
      verdict->next = Draw(row, RandomSource(0), {.position = static_cast<uint32_t>(num_choices)});
    }
    return verdict;
  };
  LoadStats stats;
  for (uint64_t seed = 0; seed < 5 && stats.different == 0; ++seed) {
    LoadSchedule(seed, planted, false).Run(&stats);
  }
  EXPECT_GT(stats.different, 0);
}

}  // namespace
}  // namespace tandem
