#ifndef TANDEM_PROOF_PLANTED_FAULTS_H_
#define TANDEM_PROOF_PLANTED_FAULTS_H_

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proof/proof_world.h"

namespace tandem {

// The part of the proof that must see a fault.
enum class SeenBy {
  kLaw,        // the law of the output changes
  kOutput,     // seeded output differs from plain decoding
  kProposals,  // only speed would suffer: proposals differ from those of a draft that has read the
               // output
};

// The frequency penalty in the case for the fault about penalties.
inline constexpr float kPlantedFrequencyPenalty = -1.5f;

// The cases in which the law shows a fault most.
enum class FaultShows {
  kWhereCoinsDecide,  // acceptance depends on the coin, with both outcomes likely
  kWhereOneCoinDrawsToo,
  kWhereDraftsVary,         // a draft that is certain of its tokens drops none
  kWhereSharedNoiseDelays,  // for tokens in both races
  kWhereResidualsAreScaled,
  kWhereBlockPassesLater,  // a test passes after a failed one
  kWhereTokensRepeat,      // with kPlantedFrequencyPenalty
  kWhereAConstraintBinds,  // with a ClassConstraint
  kWhereSlotsShareNoise,   // the second slot's race depends on the first one's winner
};
inline constexpr int kNumFaultShows = 9;

// A mistake that engines have made, planted to show that the proof catches it.
struct PlantedFault {
  std::string_view name;
  std::string_view what;
  // Replaces a part of the world with a broken wrapper. Returns the wrapper if it must be kept
  // alive.
  std::function<std::shared_ptr<void>(ProofWorld* world)> plant;
  SeenBy seen_by = SeenBy::kLaw;
  // Whether a drafter of this kind can have the fault.
  bool (*applies_to)(const Drafter& drafter) = [](const Drafter&) { return true; };
  FaultShows shows = FaultShows::kWhereCoinsDecide;
  // The rules under which the law must show it.
  std::vector<AcceptanceRule> rules = {AcceptanceRule::kToken, AcceptanceRule::kBlock};
};
absl::Span<const PlantedFault> PlantedFaults();
// Returns NOT_FOUND, naming all faults, if there is no such fault.
absl::StatusOr<const PlantedFault*> FindPlantedFault(std::string_view name);

// A world with one part replaced by a broken one, built around the original.
class PlantedWorld {
 public:
  // Everything that `base` points to must outlive this object. REQUIRES: base.drafter is not null,
  // and the fault applies to it.
  PlantedWorld(const ProofWorld& base, const PlantedFault& fault);
  const ProofWorld& world() const { return world_; }

 private:
  ProofWorld world_;
  std::shared_ptr<void> broken_;
};

}  // namespace tandem

#endif  // TANDEM_PROOF_PLANTED_FAULTS_H_
