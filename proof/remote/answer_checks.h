// The checks of single answers: all of a remote proof but its laws.
#ifndef TANDEM_PROOF_REMOTE_ANSWER_CHECKS_H_
#define TANDEM_PROOF_REMOTE_ANSWER_CHECKS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/instant.h"
#include "proof/remote/remote_engine.h"
#include "proof/remote/remote_proof.h"

namespace tandem {

// Adds its results to a proof. Errors are those of RemoteEngine::Ask. Thread-compatible.
class AnswerChecks {
 public:
  explicit AnswerChecks(const RemoteTrial& trial) : trial_(trial) {}
  // Goes on from the plain server's answers to the first `options.runs` prompts of `begun`.
  AnswerChecks(const AnswerChecks& begun, const RemoteTrial& trial);

  // Each needs those before it. Greedy answers of the plain server, which others are compared with.
  absl::Status Begin();
  absl::Status Arithmetic();
  absl::Status Greedy();
  absl::Status Surface();
  absl::Status Logprobs();
  absl::Status Seeds();
  absl::Status Forms();

  // Whether a changed seeded answer can be told from other arithmetic.
  bool CanJudgeSeeds() const { return SeededChange() < 0.5; }

 private:
  struct Comparison;
  enum class Kind { kEqual, kNearTie, kUnclear, kFault, kForm };

  // The probability that arithmetic changes a seeded answer.
  double SeededChange() const;
  Question Greedily(const RemotePrompt& prompt) const;
  // How many prompts a check of `passes` answers each may take within this share of the time.
  size_t Fitting(double share, int passes, size_t least) const;
  // Asks both servers. If one of them refuses, the check is listed as not tested, and there are no
  // replies.
  absl::Status AskBoth(const std::string& check, absl::Span<const Question> questions,
                       std::vector<RemoteReply>* plain, std::vector<RemoteReply>* speculative);
  // Compares the answer to a question with the plain server's.
  absl::StatusOr<Kind> Compare(const Question& question, const RemoteAnswer& plain,
                               const RemoteAnswer& other, double* margin);
  // Compares as well, and adds the result to `comparison`.
  absl::StatusOr<Kind> Tally(const Question& question, const RemoteAnswer& plain,
                             const RemoteAnswer& other, Comparison* comparison);
  absl::StatusOr<Comparison> CompareAll(const std::string& check,
                                        absl::Span<const Question> questions,
                                        absl::Span<const RemoteReply> others);
  void Keep(const std::string& check, const Question& question, const RemoteAnswer& plain,
            const RemoteAnswer& other);

  const RemoteTrial trial_;
  absl::Duration answer_time_{};      // of one greedy answer alone
  std::vector<Question> questions_;   // greedy, one per prompt
  std::vector<RemoteAnswer> greedy_;  // [questions] of the plain server, alone
  std::optional<double> noise_{};     // change of a margin between decoding and reading, in nats
};

}  // namespace tandem

#endif  // TANDEM_PROOF_REMOTE_ANSWER_CHECKS_H_
