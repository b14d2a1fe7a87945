#ifndef TANDEM_INCLUDE_TANDEM_REQUEST_H_
#define TANDEM_INCLUDE_TANDEM_REQUEST_H_

#include "engine/request.h"  // IWYU pragma: export

#endif  // TANDEM_INCLUDE_TANDEM_REQUEST_H_
