// The world in which the bug catalogue (docs/bug_catalogue.md) tests whole rounds: drafters from
// perfect to illegal, and every disturbance that a batch can meet, all derived from one seed.
#ifndef TANDEM_TESTS_DISTURBED_WORLD_H_
#define TANDEM_TESTS_DISTURBED_WORLD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "model/language_model.h"
#include "tests/round_world.h"

namespace tandem {

enum class Proposer {
  kOracle,          // the tokens of plain decoding
  kWrong,           // never those
  kRightThenWrong,  // two right tokens, then wrong ones
  kRandom,
  kIllegal,  // ids outside the vocabulary, after some right ones
  kStops,    // a stop token, repeatedly
  kNothing,
  kFailing,  // sometimes fails after half of its draft
  kModel,    // the draft model
  kSelf,     // the target itself, with a cache of its own
  kLookup,   // earlier tokens of the sequence
  kBoth,     // the draft model or lookups
};
inline constexpr int kNumProposers = 12;

// Drafts for a batch in which each sequence has its own proposer.
class CatalogueDrafter final : public Drafter {
 public:
  // The token that Proposer::kStops proposes.
  static constexpr TokenId kStopToken = 6;

  // The drafters of kModel, kSelf, kLookup and kBoth must outlive this one.
  struct Inner {
    Drafter* model;
    Drafter* self;
    Drafter* lookup;
    Drafter* both;
  };
  CatalogueDrafter(const Inner& inner, int vocab, uint64_t seed)
      : inner_(inner), vocab_(vocab), random_(seed) {}

  // `expected` is the whole text that plain decoding produces. It must outlive the state.
  std::unique_ptr<DraftState> NewStateFor(Proposer proposer, const Tokens* expected,
                                          absl::Span<const TokenId> prompt);

  std::string_view name() const override { return "catalogue"; }
  std::unique_ptr<DraftState> NewStateOf(DrafterKind /*kind*/, absl::Span<const TokenId> prompt,
                                         std::shared_ptr<const Tenant> /*tenant*/) override {
    return NewStateFor(Proposer::kModel, nullptr, prompt);
  }
  std::vector<DraftOption> Options(DraftState* state, absl::Span<const TokenId> context) override;
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override;
  void Rollback(DraftState* state, int length) override;
  void Publish(DraftState* state, absl::Span<const TokenId> tokens) override;
  void Evict(DraftState* state) override;

 private:
  struct State;

  // Returns the drafter that implements this proposer, or null.
  Drafter* InnerOf(Proposer proposer) const;
  void Suggestions(const State& state, const DraftRequest& request, Proposal* proposal);

  Inner inner_;
  int vocab_;
  std::mt19937_64 random_;
};

// Counts of what happened in a world.
struct CatalogueCounts {
  int mismatches = 0;  // generations that differ from plain decoding
  int failed_generations = 0;
  int failures = 0;  // failed rounds
  int preemptions = 0;
  int hit_tokens = 0;  // prompt tokens found published
  int published_evictions = 0;
  int64_t proposed = 0;
  int64_t accepted = 0;

  CatalogueCounts& operator+=(const CatalogueCounts& other);
};

// Wraps the target that the verifier sees, for planted faults. Returns null to leave it as it is.
using TargetWrapper = std::function<std::unique_ptr<LanguageModel>(FakeModel* target)>;

// Runs generations of every kind, with every proposer, through every disturbance, and compares each
// one with plain decoding. Expects that after every round the caches hold only committed tokens,
// that failed rounds change nothing, and that no page is lost.
CatalogueCounts RunCatalogueWorld(uint64_t seed, const TargetWrapper& wrapper = nullptr);

}  // namespace tandem

#endif  // TANDEM_TESTS_DISTURBED_WORLD_H_
