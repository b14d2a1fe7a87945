#ifndef TANDEM_INCLUDE_TANDEM_MODEL_PLACES_H_
#define TANDEM_INCLUDE_TANDEM_MODEL_PLACES_H_

#include "engine/model_places.h"  // IWYU pragma: export

#endif  // TANDEM_INCLUDE_TANDEM_MODEL_PLACES_H_
