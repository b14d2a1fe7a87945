#ifndef TANDEM_INCLUDE_TANDEM_TOKENIZER_H_
#define TANDEM_INCLUDE_TANDEM_TOKENIZER_H_

#include "text/tokenizer.h"  // IWYU pragma: export

#endif  // TANDEM_INCLUDE_TANDEM_TOKENIZER_H_
