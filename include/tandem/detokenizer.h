#ifndef TANDEM_INCLUDE_TANDEM_DETOKENIZER_H_
#define TANDEM_INCLUDE_TANDEM_DETOKENIZER_H_

#include "text/detokenizer.h"  // IWYU pragma: export

#endif  // TANDEM_INCLUDE_TANDEM_DETOKENIZER_H_
