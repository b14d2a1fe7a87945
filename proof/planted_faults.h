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
inline constexpr int kNumFaultShows = 8;

// A mistake that engines have made, planted to see it caught.
struct PlantedFault {
  std::string_view name;
  std::string_view what;
  // Replaces a part of the world by a broken one around it, which is returned if it is to be kept.
  std::function<std::shared_ptr<void>(ProofWorld* world)> plant;
  SeenBy seen_by = SeenBy::kLaw;
  // Whether such a drafter can have it.
  bool (*applies_to)(const Drafter& drafter) = [](const Drafter&) { return true; };
  FaultShows shows = FaultShows::kWhereCoinsDecide;
  // Under which the law must show it.
  std::vector<AcceptanceRule> rules = {AcceptanceRule::kToken, AcceptanceRule::kBlock};
};
absl::Span<const PlantedFault> PlantedFaults();
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
  std::shared_ptr<void> broken_;
};

}  // namespace tandem

#endif  // TANDEM_PROOF_PLANTED_FAULTS_H_
