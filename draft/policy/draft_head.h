#ifndef TANDEM_DRAFT_POLICY_DRAFT_HEAD_H_
#define TANDEM_DRAFT_POLICY_DRAFT_HEAD_H_

#include <array>
#include <vector>

#include "absl/types/span.h"
#include "draft/policy/acceptance_estimate.h"
#include "draft/policy/state_archive.h"
#include "tandem/types.h"

namespace tandem {

// Decides which rows of its head a draft model computes. A smaller head makes a step cheaper, but a
// token without a row is never proposed. Token frequencies are learned from committed text, and the
// size is the one with the greatest expected gain (docs/drafting/drafters.md). The choice depends
// only on the text and the sizes of the models, never on time. Thread-compatible.
class DraftHead {
 public:
  // Bytes that passes read. Costs are proportional to them.
  struct Bytes {
    double body = 0.0;         // the draft's step without its head
    double row = 0.0;          // one row of its head
    double target = 0.0;       // the target's pass over one row
    bool in_one_pass = false;  // whether one step drafts all tokens of a round
  };
  static constexpr int kMinTokens = 1024;
  // Smaller vocabularies are not cut: their heads take little time.
  static constexpr int kMinVocabulary = 4 * kMinTokens;

  // `ranking`: the tokens that can be proposed, in the expected order of their frequency. The first
  // `num_fixed` of them (end tokens) are in every head. No token is in it twice.
  DraftHead(std::vector<TokenId> ranking, int num_fixed, const Bytes& bytes);

  // Count tokens of a prompt or of an output. Output tokens also measure coverage: their place in
  // the current ranking is recorded before it changes. Tokens outside the ranking are ignored.
  void ObservePrompt(absl::Span<const TokenId> tokens);
  void ObserveOutput(absl::Span<const TokenId> tokens);

  // Whether enough tokens were observed since the last Update. The interval doubles up to a limit.
  bool is_due() const { return num_observed_ >= interval_; }
  // Updates the ranking and chooses the size. Returns whether the head is worth rebuilding.
  bool Update(const AcceptanceEstimate& acceptance);

  // Returns the tokens of the head by ascending id: the first size() of the ranking, or all of them
  // if cutting does not pay.
  std::vector<TokenId> Ids() const;
  int size() const { return size_; }
  // The share of output tokens in the ranking that have a row in a head of this size.
  double coverage() const { return CoverageOf(size_); }
  double CoverageOf(int size) const;

  void Serialize(StateArchive* archive);

 private:
  static constexpr int kNumSizes = 16;  // kMinTokens, twice as many, and so on

  int num_tokens() const { return static_cast<int>(ranking_.size()); }
  // Returns the number of sizes that are smaller than the whole ranking.
  int NumSizes() const;
  bool Count(TokenId token);
  void Rank();
  int BestSize(const AcceptanceEstimate& acceptance, double least_gain) const;

  std::vector<TokenId> prior_;    // the ranking given at construction
  std::vector<TokenId> ranking_;  // by counts, then by `prior_`
  int num_fixed_;
  Bytes bytes_;
  std::vector<int> place_;    // [ids]: place in the ranking, or -1
  std::vector<float> count_;  // [ids]: decayed number of occurrences
  std::vector<bool> is_in_;   // [ids]: whether the head has it
  int size_;
  double num_counted_ = 0.0;
  // Number of output tokens by the smallest size, kMinTokens << i, with a row for them; the last
  // entry also has all rarer ones.
  std::array<double, kNumSizes> found_{};
  int num_observed_ = 0;  // since the last update
  int interval_ = 256;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_DRAFT_HEAD_H_
