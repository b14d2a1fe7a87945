#ifndef TANDEM_DRAFT_POLICY_DRAFT_HEAD_H_
#define TANDEM_DRAFT_POLICY_DRAFT_HEAD_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "draft/policy/acceptance_estimate.h"
#include "draft/policy/state_archive.h"
#include "tandem/types.h"

namespace tandem {

// Decides which rows of its head a draft model computes. A smaller head makes a step cheaper, and a
// token without a row is never proposed. Which tokens are common is learned from committed text,
// and the size is the one of the greatest expected gain (docs/drafters.md). It depends on the text
// and the sizes of the models alone, never on time. Thread-compatible.
class DraftHead {
 public:
  // Bytes that passes read: what costs are proportional to.
  struct Bytes {
    double body = 0.0;    // the draft's step without its head
    double row = 0.0;     // of one row of its head
    double target = 0.0;  // the target's pass over one row
  };
  static constexpr int kMinTokens = 1024;
  // Vocabularies below this are not cut: their heads take little time.
  static constexpr int kMinVocabulary = 4 * kMinTokens;

  // `ranking`: the tokens that can be proposed, the commonest first as far as is known beforehand;
  // the first `num_fixed` of them (end tokens) are in every head. No token is in it twice.
  DraftHead(std::vector<TokenId> ranking, int num_fixed, const Bytes& bytes);

  // Tokens of a prompt count as common. Tokens of an output are also looked for in the ranking as
  // it was, which is how coverage is known. Others than the ranking's count for nothing.
  void ObservePrompt(absl::Span<const TokenId> tokens);
  void ObserveOutput(absl::Span<const TokenId> tokens);

  // Whether enough was observed since the last Update: seldom, and ever more so.
  bool is_due() const { return num_observed_ >= interval_; }
  // Ranks anew and chooses the size. Whether the head is worth making anew.
  bool Update(const AcceptanceEstimate& acceptance);

  // The tokens of the head that was last found worth making, ascending; all of the ranking's if it
  // is not worth cutting.
  std::vector<TokenId> Ids() const;
  int size() const { return size_; }
  // The share of output tokens, of those that can be proposed, with a row in such a head.
  double coverage() const { return CoverageOf(size_); }
  double CoverageOf(int size) const;

  void Serialize(StateArchive* archive);

 private:
  static constexpr int kNumSizes = 16;  // kMinTokens, twice as many, and so on

  int num_tokens() const { return static_cast<int>(ranking_.size()); }
  // The number of sizes below all.
  int NumSizes() const;
  bool Count(TokenId token);
  void Rank();
  int BestSize(const AcceptanceEstimate& acceptance, double least_gain) const;

  std::vector<TokenId> prior_;    // the ranking as it was given
  std::vector<TokenId> ranking_;  // by counts, then by `prior_`
  int num_fixed_;
  Bytes bytes_;
  std::vector<int> place_;    // [ids]: in the ranking, or -1
  std::vector<float> count_;  // [ids]
  std::vector<bool> is_in_;   // [ids]: the head
  int size_;
  double num_counted_ = 0.0;
  // Output tokens whose place was below kMinTokens, twice as many, and so on, that or the last.
  std::array<double, kNumSizes> found_{};
  int num_observed_ = 0;  // since the last update
  int interval_ = 256;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_DRAFT_HEAD_H_
