#ifndef TANDEM_TOOLS_TOML_FILE_H_
#define TANDEM_TOOLS_TOML_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "tandem/json_value.h"

namespace tandem {

// Reads a file in TOML 1.0 (https://toml.io) of at most 1 MiB. Its tables become objects, whose
// members have the order of the file. Errors: those of ReadFile, and INVALID_ARGUMENT
// "FILE:LINE: ..." if the text is not TOML, or if a value has no counterpart in JSON (dates, times,
// infinities, NaN) or nests deeper than 64 values.
absl::StatusOr<JsonValue> ReadTomlFile(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TOML_FILE_H_
