// The world in which the bug catalogue (docs/bug_catalogue.md) tests whole rounds: drafters from
// right to illegal, and everything that may befall a batch, all from one seed.
#ifndef TANDEM_TESTS_CATALOGUE_WORLD_H_
#define TANDEM_TESTS_CATALOGUE_WORLD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "model/language_model.h"
#include "tests/round_world.h"

namespace tandem {

enum class Proposer {
  kOracle,          // what plain decoding will say
  kWrong,           // never that
  kRightThenWrong,  // two right tokens, then wrong ones
  kRandom,
  kIllegal,  // ids outside the vocabulary behind some right ones
  kStops,    // a stop token, again and again
  kNothing,
  kFailing,  // fails now and then, behind a half of its draft
  kModel,    // the draft model
  kSelf,     // the target itself, with a cache of its own
  kLookup,   // what stood in the sequence before
  kBoth,     // the draft model or that, by turns
};
inline constexpr int kNumProposers = 12;

// Drafts for a batch whose sequences have a proposer each.
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

  // `expected`: the whole text that plain decoding makes; must outlive the state.
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

  // The drafter that works for this proposer, or null.
  Drafter* InnerOf(Proposer proposer) const;
  void Suggestions(const State& state, const DraftRequest& request, Proposal* proposal);

  Inner inner_;
  int vocab_;
  std::mt19937_64 random_;
};

// What happened in a world.
struct CatalogueCounts {
  int mismatches = 0;  // generations that differ from plain decoding
  int failed_generations = 0;
  int failures = 0;  // rounds
  int preemptions = 0;
  int hit_tokens = 0;  // of prompts, found published
  int published_evictions = 0;
  int64_t proposed = 0;
  int64_t accepted = 0;

  CatalogueCounts& operator+=(const CatalogueCounts& other);
};

// Puts something between the verifier and the target; null for nothing. For planted faults.
using TargetWrapper = std::function<std::unique_ptr<LanguageModel>(FakeModel* target)>;

// Runs generations of every kind, with every proposer, through every disturbance, and compares each
// with plain decoding. Expects that caches hold committed tokens only after every round, that
// failed rounds change nothing, and that no page is lost.
CatalogueCounts RunCatalogueWorld(uint64_t seed, const TargetWrapper& wrapper = nullptr);

}  // namespace tandem

#endif  // TANDEM_TESTS_CATALOGUE_WORLD_H_
