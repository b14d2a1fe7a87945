#ifndef TANDEM_CHAT_SCHEMA_REFERENCE_H_
#define TANDEM_CHAT_SCHEMA_REFERENCE_H_

#include "tandem/json_value.h"

namespace tandem {

// The schema that a "$ref" within the document leads to, through further references; `schema`
// itself if it has none. Null if the target does not exist, or the references form a ring.
const JsonValue* Referenced(const JsonValue& schema, const JsonValue& root);

}  // namespace tandem

#endif  // TANDEM_CHAT_SCHEMA_REFERENCE_H_
