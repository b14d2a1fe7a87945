#ifndef TANDEM_INCLUDE_TANDEM_FIELD_ERROR_H_
#define TANDEM_INCLUDE_TANDEM_FIELD_ERROR_H_

#include "base/field_error.h"  // IWYU pragma: export

#endif  // TANDEM_INCLUDE_TANDEM_FIELD_ERROR_H_
