#ifndef TANDEM_DRAFT_POLICY_KEPT_COUNTS_H_
#define TANDEM_DRAFT_POLICY_KEPT_COUNTS_H_

#include "draft/policy/state_archive.h"

namespace tandem {

// How many draft tokens were tested and kept, with exponential forgetting: each test multiplies the
// weight of those before it by `memory`, the same in all calls.
struct KeptCounts {
  double tested = 0.0;
  double accepted = 0.0;

  void Observe(double memory, bool is_accepted) {
    tested = memory * tested + 1.0;
    accepted = memory * accepted + (is_accepted ? 1.0 : 0.0);
  }
  // The share that was kept, with `prior` believed as if so many tests had shown it.
  double Rate(double prior, double prior_tests) const {
    return (accepted + prior_tests * prior) / (tested + prior_tests);
  }
  void Serialize(double memory, StateArchive* archive) {
    archive->Pass(0.0, 1.0 / (1.0 - memory), &tested);
    archive->Pass(0.0, tested, &accepted);
  }
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_KEPT_COUNTS_H_
