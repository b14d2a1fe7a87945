#ifndef TANDEM_ENGINE_FINGERPRINT_H_
#define TANDEM_ENGINE_FINGERPRINT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tandem/engine_options.h"

namespace tandem {

// Returns the `system_fingerprint` of answers, "fp_0123456789abcdef". Servers with the same
// fingerprint give the same tokens for the same request with a seed. It covers everything that
// determines the target's bits: the program's version, the target's configuration and weights (each
// file's name, size and both ends), their form (ModelInfo::weights_form), their quantisation, the
// type in which products compute, the type of the cache, and the kind of device. The draft, the
// verifier, threads, batches and the CPU's instruction set do not affect these bits
// (docs/numerics.md). If --compute or --device is auto the machine may, and if --kv-cache is auto
// the device does.
std::string FingerprintOf(const EngineOptions& options, absl::string_view version,
                          absl::string_view weights_form = "");

}  // namespace tandem

#endif  // TANDEM_ENGINE_FINGERPRINT_H_
