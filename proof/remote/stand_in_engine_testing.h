// An engine whose law is known exactly, since its rows come from tables, and which really drafts,
// accepts and corrects: soundly, or with a fault.
#ifndef TANDEM_PROOF_REMOTE_STAND_IN_ENGINE_TESTING_H_
#define TANDEM_PROOF_REMOTE_STAND_IN_ENGINE_TESTING_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "proof/remote/remote_engine.h"

namespace tandem {

// Faults that engines have had. Each changes the answers of an engine that speculates.
enum class StandInFault {
  kNone,
  kResidualIsTarget,       // after a rejection drawn from p in place of the residual
  kArgmaxAfterRejection,   // after a rejection the likeliest token
  kCoinDrawsTheDraft,      // the number that draws a draft decides about it
  kAcceptsLikely,          // drafts above a probability are accepted
  kPenaltiesEveryFourth,   // penalties count the first 4, 8, ... tokens
  kTopKOnDraftOnly,        // top-k is not applied to the target's row
  kBiasOnFirstOnly,        // the bias holds for the first token
  kArgmaxSometimes,        // one token in 5 % of the answers is the likeliest
  kRepeatsToken,           // after a tenth of the rejections a token comes twice
  kSharesStreams,          // each fourth answer of a request is the one before it
  kSwapsAnswers,           // each eighth answer goes to another request
  kGreedySometimesSecond,  // 1 in 500 greedy tokens is the second best
  kIgnoresSeedSometimes,   // each fifth request's seed
  kKeysNoiseByRound,       // seeded noise belongs to the round, not to the position
  kDraftsAreCertain,       // log-probability 0 for accepted drafts
  kLogprobsLate,           // accepted drafts have the log-probabilities of the token before
  kMissesStops,            // within drafts
  kTellsWrongFinish,       // "length" for answers that a stop ended
  kDropsForms,             // of each third request
  kDropsUnfinishedForms,   // of answers that are cut
  kCutsForms,              // answers lack the last byte of their form
};

class StandInEngine : public RemoteEngine {
 public:
  struct Options {
    bool speculates = false;
    StandInFault fault = StandInFault::kNone;
    double noise = 0.0;  // standard deviation of a logit's change from one pass to the next
    uint64_t seed = 1;   // of draws without a seed
    bool takes_forms = true;
  };
  explicit StandInEngine(const Options& options);

  absl::StatusOr<RemoteReply> Ask(const Question& question) override;
  absl::StatusOr<std::vector<TopLogprobs>> Score(const RemotePrompt& prompt,
                                                 absl::Span<const TokenId> tokens) override;
  const RemoteFeatures& features() const override { return features_; }
  std::string Description() const override { return "stand-in"; }
  std::string BodyOf(const Question& question) const override;

  static constexpr int kVocabSize = 48;
  static constexpr int kDraftTokens = 4;

 private:
  using Row = std::vector<double>;  // [kVocabSize]
  struct Answering;

  Row Logits(const Answering& at, absl::Span<const TokenId> tokens, bool is_draft);
  Row Probabilities(const Answering& at, Row logits, bool is_draft) const;
  TokenId DrawFrom(const Answering& at, const Row& row, int position);
  void Commit(TokenId token, const Row& logits, bool is_draft, Answering* at);
  void RunRound(Answering* at);
  RemoteAnswer Answer(const Question& question, int index);
  double Uniform() { return std::uniform_real_distribution<double>(0.0, 1.0)(random_); }
  bool Has(StandInFault fault) const { return options_.speculates && options_.fault == fault; }

  const Options options_;
  RemoteFeatures features_;
  absl::Mutex mutex_;  // all of the following
  std::mt19937_64 random_;
  int64_t num_requests_ = 0;
  int64_t proposed_ = 0;
  int64_t accepted_ = 0;
  RemoteReply held_;
};

}  // namespace tandem

#endif  // TANDEM_PROOF_REMOTE_STAND_IN_ENGINE_TESTING_H_
