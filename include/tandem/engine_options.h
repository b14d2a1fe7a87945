#ifndef TANDEM_INCLUDE_TANDEM_ENGINE_OPTIONS_H_
#define TANDEM_INCLUDE_TANDEM_ENGINE_OPTIONS_H_

#include "engine/engine_options.h"  // IWYU pragma: export

#endif  // TANDEM_INCLUDE_TANDEM_ENGINE_OPTIONS_H_
