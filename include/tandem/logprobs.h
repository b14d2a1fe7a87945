#ifndef TANDEM_INCLUDE_TANDEM_LOGPROBS_H_
#define TANDEM_INCLUDE_TANDEM_LOGPROBS_H_

#include "model/logprobs.h"  // IWYU pragma: export

#endif  // TANDEM_INCLUDE_TANDEM_LOGPROBS_H_
