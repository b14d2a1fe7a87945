#include "proof/remote/remote_proof.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/instant.h"
#include "base/status_macros.h"
#include "proof/remote/answer_checks.h"
#include "proof/remote/remote_law.h"
#include "proof/remote/teeth.h"

namespace tandem {
namespace {

struct NamedCheck {
  const char* name;
  absl::Status (AnswerChecks::*of_answers)();
  absl::Status (*of_trial)(const RemoteTrial& trial, const AnswerChecks& answers) = nullptr;
};
constexpr NamedCheck kChecks[] = {
    {"arithmetic", &AnswerChecks::Arithmetic},
    {"greedy", &AnswerChecks::Greedy},
    {"surface", &AnswerChecks::Surface},
    {"logprobs", &AnswerChecks::Logprobs},
    {"seeds", &AnswerChecks::Seeds},
    {"forms", &AnswerChecks::Forms},
    {"laws", nullptr,
     [](const RemoteTrial& trial, const AnswerChecks&) { return CheckLaws(trial); }},
    {"teeth", nullptr, CheckTeeth},
};

bool Has(const RemoteProof& proof, CheckOutcome outcome) {
  return absl::c_any_of(proof.checks, [&](const RemoteCheck& c) { return c.outcome == outcome; });
}

std::string NamesOf(const RemoteProof& proof, CheckOutcome outcome) {
  std::string names;
  for (const RemoteCheck& check : proof.checks) {
    if (check.outcome == outcome) absl::StrAppend(&names, names.empty() ? "" : ", ", check.name);
  }
  return names;
}

// The differences that would not have been seen.
std::string BoundsOf(const RemoteProof& proof) {
  std::string bounds;
  if (proof.greedy_bound.has_value()) {
    bounds += Format(", greedy <= %.1f %%", 100.0 * *proof.greedy_bound);
  }
  if (proof.law_bound.has_value()) {
    bounds += Format(", law TV < %.3f at %d settings", *proof.law_bound, proof.num_laws);
  }
  return bounds;
}

// Adds what the servers told about drafts. Returns why that leaves the proof incomplete; empty if
// it does not.
std::string JudgeDrafts(const RemoteSide& plain, const RemoteSide& speculative,
                        RemoteProof* proof) {
  std::string fault;
  std::string text;
  if (plain.proposed.value_or(0) > 0) fault = "the plain server drafts, too";
  if (speculative.proposed.has_value()) {
    proof->proposed = *speculative.proposed;
    proof->accepted = speculative.accepted;
    text = Format("%d draft tokens, %d accepted, in %d answers", proof->proposed, proof->accepted,
                  speculative.answers);
    if (proof->proposed == 0) fault = "the speculative server drafted nothing";
    if (proof->proposed > 0 && proof->accepted == proof->proposed) {
      fault = "the speculative server rejected no draft";
    }
  } else if (speculative.has_wide_chunks) {
    text = "the speculative server tells no counts; chunks of its stream have several tokens";
  } else {
    text = "the speculative server tells no counts, and its stream has a token per chunk";
    fault = "it is not known whether the speculative server drafts";
  }
  if (!fault.empty()) absl::StrAppend(&text, ": ", fault);
  proof->checks.insert(proof->checks.begin(), {"drafts", CheckOutcome::kNote, text});
  return fault;
}

}  // namespace

absl::StatusOr<std::vector<RemoteReply>> RemoteSide::Ask(absl::Span<const Question> questions,
                                                         int concurrency, bool is_reversed) {
  const size_t count = questions.size();
  std::vector<absl::StatusOr<RemoteReply>> replies(count, RemoteReply());
  ForAll(count, concurrency, [&](size_t i) {
    const size_t at = is_reversed ? count - 1 - i : i;
    replies[at] = engine->Ask(questions[at]);
  });
  std::vector<RemoteReply> all;
  for (absl::StatusOr<RemoteReply>& reply : replies) {
    RETURN_IF_ERROR(reply.status());
    answers += static_cast<int64_t>(reply->answers.size());
    if (reply->proposed.has_value()) proposed = proposed.value_or(0) + *reply->proposed;
    accepted += reply->accepted.value_or(0);
    has_wide_chunks |= reply->has_wide_chunks;
    all.push_back(*std::move(reply));
  }
  return all;
}

absl::StatusOr<std::vector<std::vector<TopLogprobs>>> RemoteSide::Score(
    absl::Span<const Question> questions, absl::Span<const RemoteReply> replies, int concurrency) {
  std::vector<std::vector<TopLogprobs>> scores(questions.size());
  std::vector<absl::Status> errors(questions.size());
  ForAll(questions.size(), concurrency, [&](size_t i) {
    auto scored = engine->Score(questions[i].prompt, replies[i].answers[0].tokens);
    errors[i] = scored.status();
    if (scored.ok()) scores[i] = *std::move(scored);
  });
  for (const absl::Status& error : errors) RETURN_IF_ERROR(error);
  return scores;
}

std::vector<std::string> RemoteCheckNames() {
  std::vector<std::string> names;
  for (const NamedCheck& check : kChecks) names.emplace_back(check.name);
  return names;
}

const char* NameOf(CheckOutcome outcome) {
  constexpr const char* kNames[] = {"equal", "note",       "near ties", "unclear",
                                    "FAULT", "not tested", "MISSED"};
  return kNames[static_cast<int>(outcome)];
}

const char* NameOf(RemoteVerdict verdict) {
  constexpr const char* kNames[] = {"no difference", "arithmetic", "broken", "incomplete"};
  return kNames[static_cast<int>(verdict)];
}

absl::StatusOr<RemoteProof> ProveRemotely(RemoteEngine* plain, RemoteEngine* speculative,
                                          const RemoteProofOptions& options) {
  const Instant start = Instant::Now();
  RemoteProof proof = {.plain = plain->Description(), .speculative = speculative->Description()};
  RemoteSide plain_side = {.engine = plain}, speculative_side = {.engine = speculative};
  const RemoteTrial trial = {plain_side, speculative_side, options, proof};
  AnswerChecks answers(trial);
  RETURN_IF_ERROR(answers.Begin());
  std::string cut_short;
  size_t done = 0;
  for (const NamedCheck& check : kChecks) {
    if (options.on_progress) {
      options.on_progress(static_cast<double>(done++) / static_cast<double>(std::size(kChecks)));
    }
    const bool is_chosen =
        options.checks.empty() || absl::c_linear_search(options.checks, check.name);
    if (!is_chosen && check.name != kChecks[0].name) continue;  // others need its bound
    const absl::Status status = check.of_answers != nullptr ? (answers.*check.of_answers)()
                                                            : check.of_trial(trial, answers);
    if (absl::IsUnavailable(status)) return status;
    if (absl::IsResourceExhausted(status)) cut_short = std::string(status.message());
    if (!status.ok()) {
      proof.Add(check.name, CheckOutcome::kNotTested, std::string(status.message()));
    }
  }
  if (!speculative_side.proposed.has_value() && !speculative_side.has_wide_chunks &&
      cut_short.empty()) {
    // A stream shows whether it drafts.
    const Question question = {
        .prompt = options.prompts[0], .max_tokens = 48, .temperature = 0.0, .stream = true};
    const absl::Status status = speculative_side.Ask({question}, 1).status();
    if (absl::IsUnavailable(status)) return status;
  }
  proof.answers = plain_side.answers + speculative_side.answers;
  const std::string drafts = JudgeDrafts(plain_side, speculative_side, &proof);
  if (Has(proof, CheckOutcome::kFault)) {
    proof.verdict = RemoteVerdict::kBroken;
    proof.reason = absl::StrCat("speculation changes ", NamesOf(proof, CheckOutcome::kFault));
  } else if (Has(proof, CheckOutcome::kUnclear)) {
    proof.reason = "greedy answers differ, and no log-probabilities tell whether at near ties only";
  } else if (!drafts.empty() || !cut_short.empty()) {
    proof.reason = drafts.empty() ? cut_short : drafts;
  } else if (Has(proof, CheckOutcome::kMissed)) {
    proof.reason = "a planted fault was missed, so that the checks prove too little";
  } else if (Has(proof, CheckOutcome::kNearTies)) {
    proof.verdict = RemoteVerdict::kArithmetic;
    proof.reason = absl::StrCat("differences at near ties only", BoundsOf(proof));
  } else {
    proof.verdict = RemoteVerdict::kNoDifference;
    proof.reason = absl::StrCat("none seen", BoundsOf(proof));
  }
  proof.time = Instant::Now() - start;
  return proof;
}

}  // namespace tandem
