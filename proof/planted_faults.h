#ifndef TANDEM_PROOF_PLANTED_FAULTS_H_
#define TANDEM_PROOF_PLANTED_FAULTS_H_

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proof/proof_world.h"

namespace tandem {

// Which part of the proof must see a fault.
enum class SeenBy {
  kLaw,        // the law of the output changes
  kOutput,     // seeded output is no longer plain decoding's
  kProposals,  // only speed would suffer: proposals are not those of a draft that read the output
};

// Of sampling in which the fault about penalties is at home.
inline constexpr float kPlantedFrequencyPenalty = -1.5f;

// Where the law shows a fault most.
enum class FaultShows {
  kWhereCoinsDecide,  // accepted or not, both being likely
  kWhereOneCoinDrawsToo,
  kWhereDraftsVary,         // a draft that is sure of its tokens drops none
  kWhereSharedNoiseDelays,  // those whom both race for
  kWhereResidualsAreScaled,
  kWhereBlockPassesLater,  // a test behind a failed one
  kWhereTokensRepeat,      // and kPlantedFrequencyPenalty is at work
  kWhereAConstraintBinds,  // a ClassConstraint
};

// A mistake that engines have made, planted to see it caught.
struct PlantedFault {
  std::string_view name;
  std::string_view what;
  SeenBy seen_by = SeenBy::kLaw;
  std::vector<AcceptanceRule> rules;  // under which the law must show it
  bool needs_drawn_drafts = false;    // a drafter that draws its tokens; others cannot have it
  bool needs_own_cache = false;       // a drafter that is not a head
  bool needs_head = false;            // a drafter that reads the target's states
  FaultShows shows = FaultShows::kWhereCoinsDecide;
};
absl::Span<const PlantedFault> PlantedFaults();
// Whether such a drafter can have it.
bool AppliesTo(const PlantedFault& fault, const Drafter& drafter);
// NOT_FOUND, naming those there are.
absl::StatusOr<const PlantedFault*> FindPlantedFault(std::string_view name);

// A world with one part replaced by a broken one, built around the original.
class PlantedWorld {
 public:
  // What `base` points to must outlive this object. REQUIRES: base.drafter is not null, and the
  // fault applies to it.
  PlantedWorld(const ProofWorld& base, const PlantedFault& fault);
  const ProofWorld& world() const { return world_; }

 private:
  ProofWorld world_;
  std::unique_ptr<LanguageModel> target_;
  std::unique_ptr<Drafter> drafter_;
};

}  // namespace tandem

#endif  // TANDEM_PROOF_PLANTED_FAULTS_H_
