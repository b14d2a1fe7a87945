#ifndef TANDEM_ENGINE_DEVICE_MEMORY_H_
#define TANDEM_ENGINE_DEVICE_MEMORY_H_

#include <cstdint>

#include "tandem/engine_options.h"

namespace tandem {

// Returns about how much memory the models of the options take on a device: their weights, and an
// eighth of these for caches and scratch memory. Models that cannot be read count as nothing.
int64_t BytesOnDevice(const EngineOptions& options);

}  // namespace tandem

#endif  // TANDEM_ENGINE_DEVICE_MEMORY_H_
