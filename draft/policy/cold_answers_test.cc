// Replays answers of real pairs. tests/data/acceptance records for every position of an answer how
// many draft tokens would have been kept there, so every policy sees the same acceptance.
#include <algorithm>
#include <array>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/source_path_testing.h"
#include "draft/policy/speculation_policy.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr int kLongestDraft = 9;

struct RecordedAnswer {
  int prompt_tokens = 0;
  int num_tokens = 0;
  // Per position, from the second token on. `model`: how many tokens of the model's draft are kept,
  // at most 9. `lookup`: two characters, its evidence and the same number for a lookup, or "--".
  std::string model;
  std::string lookup;
  // The confidence of the draft's row per position and draft token, as a percentage of two digits;
  // "-" if it was not recorded.
  std::string confidence;

  bool has_confidence() const { return confidence != "-"; }
  float ConfidenceAt(int at, int depth) const {
    const std::string_view digits(&confidence[2 * (kLongestDraft * at + depth)], 2);
    return ((digits[0] - '0') * 10 + (digits[1] - '0') + 0.5f) / 100.0f;
  }
};

// All times are in plain passes of one row.
struct RecordedPair {
  std::string name;
  double step;             // a step of the draft model
  double reading;          // reading a token with the draft model
  double row;              // one more row in the target's pass
  double least = 1.0;      // required share of the speed of the best fixed length
  bool is_dear = false;    // rows cost what they did with AVX2 before their sums were in registers
  double prompt_row = 0.;  // a token of a prompt in the target's pass

  double Pass(int num_rows) const {
    if (!is_dear) return 1.0 + row * (num_rows - 1);
    constexpr std::array<double, 10> kDear = {1.0, 1.3, 1.6, 2.2, 2.75, 3.4, 4.05, 4.7, 5.35, 6.0};
    return kDear[num_rows - 1];
  }
};

constexpr double kNoise = 0.03;
constexpr absl::Duration kPlainPass = absl::Milliseconds(40);
// The part of a prompt that a draft with the automatic window reads.
constexpr int kWindow = 516;
constexpr int kChunk = 256;

std::vector<RecordedAnswer> AnswersOf(const std::string& pair) {
  std::ifstream file(absl::StrCat(SourcePath("tests/data/acceptance/"), pair, ".txt"));
  std::vector<RecordedAnswer> answers;
  RecordedAnswer answer;
  while (file >> answer.prompt_tokens >> answer.num_tokens >> answer.model >> answer.lookup >>
         answer.confidence) {
    answers.push_back(answer);
  }
  return answers;
}

// Replays one request after the other on its own engine.
class Replay {
 public:
  Replay(RecordedPair pair, uint64_t seed, const SpeculationPolicy& policy = {})
      : pair_(std::move(pair)), random_(seed), policy_(policy) {
    policy_.costs().ExpectStep(pair_.step);
  }

  // Returns the time of an answer, with drafts of `fixed` tokens or the policy's choices. Includes
  // the draft's reading of the prompt but not the target's.
  double Answer(const RecordedAnswer& answer, int fixed) {
    double time = Begin(answer, fixed);
    for (int done = 1; done < answer.num_tokens;) {
      const std::vector<DraftOption> options = OptionsAt(answer, done - 1);
      const std::vector<DraftCandidate> candidates = {
          {.options = options,
           .draft_tokens = fixed,
           .room = answer.num_tokens - done - 1,
           .num_wanted = answer.num_tokens - done,
           .num_written = done,
           .lost = lost_,
           .own = &own_,
           .wider = &policy_.unsalted().AcceptanceAt(0.0f),
           .confidence = &policy_.unsalted().ConfidenceAt(0.0f)}};
      const DraftChoice choice = policy_.Plan(candidates, 0).front();
      const DraftOption* option = choice.num_tokens == 0 ? nullptr : &options[choice.option];
      done += 1 + Round(answer, done - 1, option, choice, &time);
    }
    return time;
  }

  SpeculationPolicy& policy() { return policy_; }

 private:
  // Reads the prompt. Returns the time in which the draft reads along, which it does in all chunks
  // but the last.
  double Begin(const RecordedAnswer& answer, int fixed) {
    own_ = AcceptanceEstimate();
    lost_ = 0.0;
    unread_ = std::min(answer.prompt_tokens, kWindow);
    const Instant start = now_;
    now_ = now_ + kPlainPass;
    const bool reads_along =
        fixed > 0 || policy_.ReadsPrompt(policy_.unsalted(), unread_, answer.num_tokens);
    const int num_along = reads_along ? (unread_ - 1) / kChunk * kChunk : 0;
    if (num_along == 0) {
      policy_.costs().ObservePrompt(answer.prompt_tokens,
                                    Measured(answer.prompt_tokens * pair_.prompt_row));
    } else {
      policy_.costs().ObserveReading(num_along, Measured(num_along * pair_.reading));
    }
    policy_.EndRound({.has_read_much = true, .num_tokens = 1, .start = start, .end = now_});
    unread_ -= num_along;
    return num_along * pair_.reading;
  }

  std::vector<DraftOption> OptionsAt(const RecordedAnswer& answer, int at) const {
    std::vector<DraftOption> options;
    if (at >= static_cast<int>(answer.model.size())) return options;
    options.push_back({.source = DraftSource::kModel,
                       .max_tokens = kLongestDraft,
                       .num_unread = unread_ + 1,
                       .can_stop = answer.has_confidence()});
    if (answer.lookup[2 * at] == '-') return options;
    options.push_back({.source = DraftSource::kLookup,
                       .evidence = answer.lookup[2 * at] - '0',
                       .max_tokens = kLongestDraft});
    return options;
  }

  // Runs a round and returns the number of accepted tokens. `option` is null for a plain round.
  int Round(const RecordedAnswer& answer, int at, const DraftOption* option,
            const DraftChoice& choice, double* time) {
    int k = choice.num_tokens;
    int num_steps = k;
    bool has_stopped = false;
    if (choice.stop.curve != nullptr) Draft(answer, at, choice, &k, &num_steps, &has_stopped);
    RoundCosts::Round costs{.is_plain = k == 0, .num_rows = 1 + k};
    int accepted = 0;
    double draft = 0.0;
    if (option == nullptr) {
      ++unread_;
    } else {
      const bool is_model = option->source == DraftSource::kModel;
      accepted = std::min(k, (is_model ? answer.model[at] : answer.lookup[2 * at + 1]) - '0');
      if (is_model) {
        costs.num_steps = num_steps;
        costs.num_draft_sequences = 1;
        costs.num_unread = unread_;
        draft = num_steps * pair_.step + unread_ * pair_.reading;
      }
      unread_ = is_model ? (accepted == num_steps ? 1 : 0) : unread_ + accepted + 1;
      if (!is_model) lost_ += policy_.costs().LossOf(1, k, /*drafting=*/0.0, accepted);
      const int num_tested = k + (has_stopped ? 1 : 0);
      own_.Observe(*option, num_tested, accepted);
      policy_.unsalted().ObserveAcceptance(0.0f, *option, num_tested, accepted);
      for (int i = 0; is_model && answer.has_confidence() && i <= accepted && i < k; ++i) {
        policy_.unsalted().ConfidenceAt(0.0f).Observe(answer.ConfidenceAt(at, i), i < accepted);
      }
    }
    const double pass = pair_.Pass(1 + k);
    costs.draft_time = Measured(draft);
    costs.verify_time = Measured(pass);
    if (policy_.measures()) policy_.costs().Observe(costs);
    const Instant start = now_;
    now_ = now_ + costs.draft_time + costs.verify_time;
    policy_.EndRound({.has_read_much = costs.num_unread > 16,
                      .num_tokens = accepted + 1,
                      .start = start,
                      .end = now_});
    *time += draft + pass;
    return accepted;
  }

  // Drafts like ModelDrafter.
  void Draft(const RecordedAnswer& answer, int at, const DraftChoice& choice, int* k,
             int* num_steps, bool* has_stopped) const {
    DraftSurvival survival(choice.stop);
    *k = *num_steps = 0;
    while (*k < choice.num_tokens && !*has_stopped) {
      ++*num_steps;
      *has_stopped = !survival.Takes(answer.ConfidenceAt(at, *k));
      if (*has_stopped) break;
      ++*k;
      *has_stopped = *k < choice.num_tokens && !survival.GoesOn();
    }
  }

  absl::Duration Measured(double time) {
    std::uniform_real_distribution<double> uniform(1.0 - kNoise, 1.0 + kNoise);
    return time * uniform(random_) * kPlainPass;
  }

  RecordedPair pair_;
  std::mt19937_64 random_;
  SpeculationPolicy policy_;
  AcceptanceEstimate own_;
  double lost_ = 0.0;
  Instant now_ = Instant::Now();
  int unread_ = 0;
};

// Returns tokens per time over all answers, each on a fresh engine.
double SpeedOfColdAnswers(const RecordedPair& pair, const std::vector<RecordedAnswer>& answers,
                          int fixed) {
  double tokens = 0.0;
  double time = 0.0;
  for (size_t i = 0; i < answers.size(); ++i) {
    for (const uint64_t seed : {1, 2, 3}) {
      tokens += answers[i].num_tokens;
      time += Replay(pair, 100 * seed + i).Answer(answers[i], fixed);
    }
  }
  return tokens / time;
}

// A fixed length drafts in every round and reads every prompt, so choosing can be better.
std::vector<RecordedPair> Pairs() {
  std::vector<RecordedPair> pairs = {
      {.name = "smollm2", .step = 0.12, .reading = 0.01, .row = 0.06, .least = 1.02},
      {.name = "smollm2", .step = 0.09, .reading = 0.01, .row = 0.03, .least = 1.02},
      {.name = "qwen2.5_coder", .step = 0.43, .reading = 0.06, .row = 0.05, .least = 1.1},
      {.name = "qwen2.5_coder", .step = 0.43, .reading = 0.06, .row = 0.12, .least = 1.1},
      {.name = "gemma3_smollm2", .step = 0.5, .reading = 0.06, .row = 0.08, .least = 1.15}};
  // Both models read a token in the same part of a pass of their own.
  for (RecordedPair& pair : pairs) pair.prompt_row = pair.reading / pair.step;
  return pairs;
}

TEST(ColdAnswers, ComeCloseToTheBestFixedLength) {
  for (const RecordedPair& pair : Pairs()) {
    const std::vector<RecordedAnswer> answers = AnswersOf(pair.name);
    ASSERT_GE(answers.size(), 15u);
    const double chosen = SpeedOfColdAnswers(pair, answers, kAutoDraftTokens);
    double best = SpeedOfColdAnswers(pair, answers, 0);
    for (const int k : {1, 2, 3, 4, 6, 8}) {
      best = std::max(best, SpeedOfColdAnswers(pair, answers, k));
    }
    EXPECT_GE(chosen, pair.least * best)
        << pair.name << " " << pair.row << ": " << chosen << " " << best;
  }
}

// Returns the policy of a new process that restores the statistics of an earlier one.
SpeculationPolicy Restored(SpeculationPolicy* policy) {
  StateArchive written;
  policy->Serialize(&written);
  StateArchive read(written.numbers());
  SpeculationPolicy restored;
  restored.Serialize(&read);
  EXPECT_TRUE(read.is_complete());
  return restored;
}

// The pairs on a machine on which rows are dear.
std::vector<RecordedPair> PairsWithDearRows() {
  std::vector<RecordedPair> pairs;
  for (const char* const name : {"smollm2", "qwen2.5_coder", "gemma3_smollm2"}) {
    pairs.push_back({.name = name,
                     .step = 0.3,
                     .reading = 0.1,
                     .row = 0.3,
                     .is_dear = true,
                     .prompt_row = 0.33});
  }
  return pairs;
}

// Judges the first 72 tokens of each answer by the median of its runs, in the first process of a
// pair and in the fifth, which restores the statistics of four answers to other prompts.
TEST(ColdAnswers, AreNotSlowerThanPlainDecodingWhereRowsAreDear) {
  constexpr int kTokens = 72;
  constexpr int kRuns = 9;
  for (const RecordedPair& pair : PairsWithDearRows()) {
    std::vector<RecordedAnswer> answers = AnswersOf(pair.name);
    for (RecordedAnswer& answer : answers) answer.num_tokens = std::min(answer.num_tokens, kTokens);
    for (const int num_before : {0, 4}) {
      for (size_t i = 0; i < answers.size(); ++i) {
        std::vector<double> speeds;
        for (uint64_t seed = 1; seed <= kRuns; ++seed) {
          SpeculationPolicy kept;
          for (int j = 1; j <= num_before; ++j) {
            Replay before(pair, 100 * seed + j, Restored(&kept));
            before.Answer(answers[(i + j * seed) % answers.size()], kAutoDraftTokens);
            kept = before.policy();
          }
          Replay process(pair, seed, num_before == 0 ? SpeculationPolicy() : Restored(&kept));
          speeds.push_back((answers[i].num_tokens - 1) /
                           process.Answer(answers[i], kAutoDraftTokens));
        }
        std::nth_element(speeds.begin(), speeds.begin() + kRuns / 2, speeds.end());
        EXPECT_GE(speeds[kRuns / 2], 0.98)
            << pair.name << " answer " << i << " after " << num_before << " others";
      }
    }
  }
}

// Runs each answer in its own process, which restores the statistics of the answers before it.
TEST(ColdAnswers, LoseNothingWithRestoredStatistics) {
  for (const RecordedPair& pair : Pairs()) {
    const std::vector<RecordedAnswer> answers = AnswersOf(pair.name);
    double in_session = 0.0;
    double in_processes = 0.0;
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      Replay session(pair, seed);
      SpeculationPolicy kept;
      for (const RecordedAnswer& answer : answers) {
        in_session += session.Answer(answer, kAutoDraftTokens);
        Replay process(pair, seed, Restored(&kept));
        in_processes += process.Answer(answer, kAutoDraftTokens);
        kept = process.policy();
      }
    }
    EXPECT_LE(in_processes, 1.03 * in_session) << pair.name << " " << pair.row;
  }
}

// Serializing a restored policy gives the same numbers.
TEST(ColdAnswers, RestoreEverythingThatIsWritten) {
  const RecordedPair pair = Pairs().front();
  Replay replay(pair, 1);
  for (const RecordedAnswer& answer : AnswersOf(pair.name)) replay.Answer(answer, kAutoDraftTokens);
  StateArchive first;
  replay.policy().Serialize(&first);
  SpeculationPolicy restored = Restored(&replay.policy());
  StateArchive second;
  restored.Serialize(&second);
  EXPECT_EQ(first.numbers(), second.numbers());
  EXPECT_NE(first.numbers(), std::vector<double>(first.numbers().size()));
}

}  // namespace
}  // namespace tandem
