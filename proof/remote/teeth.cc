#include "proof/remote/teeth.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "base/instant.h"
#include "base/status_macros.h"
#include "proof/remote/remote_law.h"

namespace tandem {
namespace {

enum class Fault {
  kSwapsAnswers,
  kMissesStops,
  kTokensAreCertain,
  kIgnoresSeeds,
  kHalfIsGreedy,
  kRepeatsToken,
  kTellsWrongFinish,
  kLogprobsLate,
  kPairsAreEqual,
  kTakesWrongToken,
};

struct Tooth {
  Fault fault;
  const char* name;
  const char* seen_by;                    // how the names of the check's lines begin
  absl::Status (AnswerChecks::*check)();  // null: that of a law
  int prompts = 0;
};
// One of each check comes first; those are planted however long they take.
constexpr size_t kLeastTeeth = 5;
constexpr Tooth kTeeth[] = {
    {Fault::kSwapsAnswers, "1 answer in 8 is that of the request before",
     "greedy: ", &AnswerChecks::Greedy, 8},
    {Fault::kMissesStops, "stops are missed", "surface: stop", &AnswerChecks::Surface, 3},
    {Fault::kTokensAreCertain, "all tokens but the first claim p = 1", "log-probabilities",
     &AnswerChecks::Logprobs, 3},
    {Fault::kIgnoresSeeds, "every second seed is ignored", "seeds: ", &AnswerChecks::Seeds, 16},
    {Fault::kHalfIsGreedy, "every second request is answered with the likeliest tokens",
     "law: ", nullptr},
    {Fault::kRepeatsToken, "1 answer in 8 repeats a token", "greedy: ", &AnswerChecks::Greedy, 8},
    {Fault::kTellsWrongFinish, "stopped answers are said to be cut", "surface: stop",
     &AnswerChecks::Surface, 3},
    {Fault::kLogprobsLate, "log-probabilities are those of the token before", "log-probabilities",
     &AnswerChecks::Logprobs, 3},
    {Fault::kPairsAreEqual, "answers of a request are equal in pairs", "law: ", nullptr},
    {Fault::kTakesWrongToken, "1 token in 100 is wrong", "greedy: ", &AnswerChecks::Greedy, 8},
};

// Passes questions on, and changes them or their answers.
class FaultyEngine final : public RemoteEngine {
 public:
  FaultyEngine(RemoteEngine* engine, Fault fault) : engine_(*engine), fault_(fault) {}

  absl::StatusOr<RemoteReply> Ask(const Question& question) override {
    const int64_t number = num_requests_++;
    Question asked = question;
    if (fault_ == Fault::kMissesStops) asked.stop.clear();
    if (fault_ == Fault::kIgnoresSeeds && number % 2 == 1 && asked.seed.has_value()) {
      *asked.seed += 1000 + number;
    }
    if (fault_ == Fault::kHalfIsGreedy && number % 2 == 1) asked.temperature = 0.0;
    ASSIGN_OR_RETURN(RemoteReply reply, engine_.Ask(asked));
    for (RemoteAnswer& answer : reply.answers) Change(number, &answer);
    for (size_t i = 1; fault_ == Fault::kPairsAreEqual && i < reply.answers.size(); i += 2) {
      reply.answers[i] = reply.answers[i - 1];
    }
    return reply;
  }
  absl::StatusOr<std::vector<TopLogprobs>> Score(const RemotePrompt& prompt,
                                                 absl::Span<const TokenId> tokens) override {
    return engine_.Score(prompt, tokens);
  }
  const RemoteFeatures& features() const override { return engine_.features(); }
  std::string Description() const override { return engine_.Description(); }
  std::string BodyOf(const Question& question) const override { return engine_.BodyOf(question); }

 private:
  void Change(int64_t number, RemoteAnswer* answer) {
    std::vector<TokenId>& tokens = answer->tokens;
    if (fault_ == Fault::kSwapsAnswers) {
      const absl::MutexLock lock(&mutex_);
      RemoteAnswer before = std::exchange(before_, *answer);
      if (number % 8 == 7) *answer = std::move(before);
    }
    if (fault_ == Fault::kRepeatsToken && number % 8 == 7) {
      const auto twice = absl::c_adjacent_find(tokens, std::not_equal_to<>());
      if (twice != tokens.end()) *(twice + 1) = *twice;
    }
    if (fault_ == Fault::kTellsWrongFinish && answer->finish == "stop") answer->finish = "length";
    if (fault_ == Fault::kTokensAreCertain) {
      for (size_t i = 1; i < answer->logprobs.size(); ++i) answer->logprobs[i] = 0.0;
    }
    if (fault_ == Fault::kLogprobsLate && answer->logprobs.size() > 1) {
      answer->logprobs.insert(answer->logprobs.begin(), answer->logprobs[0]);
      answer->logprobs.pop_back();
    }
    if (fault_ == Fault::kTakesWrongToken) {
      for (size_t i = 1; i < tokens.size(); ++i) {
        if (++num_tokens_ % 100 != 0) continue;
        const bool has_list = i < answer->tops.size() && answer->tops[i].size() > 1;
        tokens[i] = has_list ? answer->tops[i][1].first : tokens[i - 1];
      }
    }
  }

  RemoteEngine& engine_;
  const Fault fault_;
  std::atomic<int64_t> num_requests_ = 0;
  std::atomic<int64_t> num_tokens_ = 0;
  absl::Mutex mutex_;
  RemoteAnswer before_ ABSL_GUARDED_BY(mutex_);
};

// Makes the check that should see the fault, and returns the lines that it gives.
absl::StatusOr<std::vector<RemoteCheck>> CheckWith(const Tooth& tooth, const RemoteTrial& trial,
                                                   const AnswerChecks& answers) {
  FaultyEngine faulty(trial.speculative.engine, tooth.fault);
  RemoteSide side = {.engine = &faulty};
  RemoteProof seen = {.near_tie = trial.proof.near_tie};
  RemoteProofOptions options = trial.options;
  const RemoteTrial again = {trial.plain, side, options, seen};
  if (tooth.check == nullptr) {
    options.time *= 0.05;
    RETURN_IF_ERROR(CheckOneLaw(again, trial.proof.law_prompts[0]));
    return seen.checks;
  }
  options.runs = tooth.prompts;
  AnswerChecks checks(answers, again);
  RETURN_IF_ERROR((checks.*tooth.check)());
  return seen.checks;
}

}  // namespace

absl::Status CheckTeeth(const RemoteTrial& trial, const AnswerChecks& answers) {
  const RemoteProofOptions& options = trial.options;
  RemoteProof* const proof = &trial.proof;
  const Instant end = Instant::Now() + options.time * 0.15;
  int num_caught = 0;
  std::vector<std::string> left_out, not_made;
  for (const Tooth& tooth : kTeeth) {
    const auto of_check = [&](const RemoteCheck& check) {
      return absl::StartsWith(check.name, tooth.seen_by);
    };
    const bool was_made = absl::c_any_of(proof->checks, [&](const RemoteCheck& check) {
      return of_check(check) && check.outcome != CheckOutcome::kNotTested;
    });
    const auto is_seen = [&](const RemoteCheck& check) {
      return of_check(check) &&
             (check.outcome == CheckOutcome::kFault || check.outcome == CheckOutcome::kUnclear);
    };
    const bool is_judged = tooth.fault != Fault::kIgnoresSeeds || answers.CanJudgeSeeds();
    if (!was_made || !is_judged) {
      not_made.emplace_back(tooth.name);
      continue;
    }
    if (absl::c_any_of(proof->checks, is_seen)) continue;
    const bool is_needed = &tooth < kTeeth + kLeastTeeth || options.runs > 0;
    if (!is_needed && Instant::Now() > end) {
      left_out.emplace_back(tooth.name);
      continue;
    }
    ASSIGN_OR_RETURN(const std::vector<RemoteCheck> seen, CheckWith(tooth, trial, answers));
    if (absl::c_any_of(seen, is_seen)) {
      ++num_caught;
    } else {
      proof->Add(absl::StrCat("teeth: ", tooth.name), CheckOutcome::kMissed,
                 "this planted fault was not seen");
    }
  }
  const auto listed = [](const char* why, const std::vector<std::string>& names) {
    return names.empty() ? "" : absl::StrCat(why, absl::StrJoin(names, "; "));
  };
  proof->Add("teeth", CheckOutcome::kNote,
             absl::StrCat(num_caught, " planted faults were seen",
                          listed("; the time was over for: ", left_out),
                          listed("; their checks cannot be made: ", not_made)));
  return absl::OkStatus();
}

}  // namespace tandem
