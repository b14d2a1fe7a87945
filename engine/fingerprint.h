#ifndef TANDEM_ENGINE_FINGERPRINT_H_
#define TANDEM_ENGINE_FINGERPRINT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tandem/engine_options.h"

namespace tandem {

// What answers call `system_fingerprint`, "fp_0123456789abcdef": servers with the same one give the
// same request with a seed the same tokens. It is made of what decides the target's bits: the
// program's version, the target's configuration and weights (each file's name, size and both ends),
// how they are quantised, what the products compute in, what the cache holds, and the kind of
// device. The draft, the verifier, threads, batches and the CPU's instruction set decide nothing
// of that (docs/numerics.md); where --compute or --device is auto the machine may, and where
// --kv-cache is auto the device does.
std::string FingerprintOf(const EngineOptions& options, absl::string_view version);

}  // namespace tandem

#endif  // TANDEM_ENGINE_FINGERPRINT_H_
