#ifndef TANDEM_INCLUDE_TANDEM_JSON_VALUE_H_
#define TANDEM_INCLUDE_TANDEM_JSON_VALUE_H_

#include "nlohmann/json.hpp"

namespace tandem {

// JSON as requests, schemas and answers have it: members of objects keep their order, and finding
// one looks at all of them.
using JsonValue = nlohmann::ordered_json;

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_JSON_VALUE_H_
