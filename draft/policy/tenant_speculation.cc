#include "draft/policy/tenant_speculation.h"

#include <limits>

namespace tandem {
namespace {

// What a file may say of the budget for probes.
constexpr double kLargestBudget = 1e6;
// And of the rounds since an exploration, which come sooner.
constexpr int kMostRoundsSince = 64;

}  // namespace

int TenantSpeculation::TemperatureBucket(float temperature) {
  return temperature < 1e-5f ? 0 : temperature <= 0.5f ? 1 : temperature <= 0.9f ? 2 : 3;
}

void TenantSpeculation::Serialize(StateArchive* archive) {
  for (SpeedupMonitor& check : checks_) check.Serialize(archive);
  for (AcceptanceEstimate& estimate : general_) estimate.Serialize(archive);
  for (DraftTemperature& draft_temperature : draft_temperature_) {
    draft_temperature.Serialize(archive);
  }
  for (ConfidenceCurve& curve : confidence_) curve.Serialize(archive);
  archive->Pass(&is_on_);
  // Answers may be shorter than what lies between two explorations or probes.
  archive->Pass(0, kMostRoundsSince, &rounds_since_exploration_);
  archive->Pass(0, std::numeric_limits<int>::max() - 1, &num_explorations_);
  archive->Pass(0.0, kLargestBudget, &probe_budget_);
  archive->Pass(0, kRoundsOfPatience, &rounds_without_model_);
}

}  // namespace tandem
