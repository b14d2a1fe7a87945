#ifndef TANDEM_INCLUDE_TANDEM_JSON_VALUE_H_
#define TANDEM_INCLUDE_TANDEM_JSON_VALUE_H_

#include "nlohmann/json.hpp"

namespace tandem {

// JSON values of requests, schemas and answers. Members of objects keep their order; finding one is
// a linear search.
using JsonValue = nlohmann::ordered_json;

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_JSON_VALUE_H_
