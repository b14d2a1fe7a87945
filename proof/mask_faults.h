// Mistakes that a drafter can make if it drafts in one pass (Drafter::mask_token). Each function
// returns a drafter that makes the mistake in the drafts of `inner`, which must outlive it.
#ifndef TANDEM_PROOF_MASK_FAULTS_H_
#define TANDEM_PROOF_MASK_FAULTS_H_

#include <memory>

#include "draft/drafter.h"

namespace tandem {

// Takes accepted tokens as read where masks were, so that later drafts see masks in their place.
std::unique_ptr<Drafter> WithMasksKept(Drafter* inner);
// Takes each token from the row after its own.
std::unique_ptr<Drafter> WithMaskRowsOffByOne(Drafter* inner);
// Draws from the first mask's row in place of every other mask's.
std::unique_ptr<Drafter> WithMasksAlike(Drafter* inner);
// Draws every token with the noise of the first.
std::unique_ptr<Drafter> WithSlotsSharingNoise(Drafter* inner);

}  // namespace tandem

#endif  // TANDEM_PROOF_MASK_FAULTS_H_
