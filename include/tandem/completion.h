#ifndef TANDEM_INCLUDE_TANDEM_COMPLETION_H_
#define TANDEM_INCLUDE_TANDEM_COMPLETION_H_

#include "engine/completion.h"  // IWYU pragma: export

#endif  // TANDEM_INCLUDE_TANDEM_COMPLETION_H_
