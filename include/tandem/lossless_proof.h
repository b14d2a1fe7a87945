#ifndef TANDEM_INCLUDE_TANDEM_LOSSLESS_PROOF_H_
#define TANDEM_INCLUDE_TANDEM_LOSSLESS_PROOF_H_

#include "proof/lossless_proof.h"  // IWYU pragma: export

#endif  // TANDEM_INCLUDE_TANDEM_LOSSLESS_PROOF_H_
