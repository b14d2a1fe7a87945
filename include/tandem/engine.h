#ifndef TANDEM_INCLUDE_TANDEM_ENGINE_H_
#define TANDEM_INCLUDE_TANDEM_ENGINE_H_

#include "engine/engine.h"  // IWYU pragma: export

#endif  // TANDEM_INCLUDE_TANDEM_ENGINE_H_
