#ifndef TANDEM_ENGINE_DEVICE_MEMORY_H_
#define TANDEM_ENGINE_DEVICE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "tandem/engine_options.h"

namespace tandem {

// Returns about how much memory the models of the options take on a device: their weights, and an
// eighth of these for caches and scratch memory. Models that cannot be read count as nothing.
int64_t BytesOnDevice(const EngineOptions& options);

// Makes the backend of an engine with these options.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackendFor(const EngineOptions& options,
                                                        const CpuOptions& cpu);

// About the memory that an engine will take.
struct MemoryPlan {
  std::string device;       // "cpu", "cuda:0"
  int64_t model_bytes = 0;  // BytesOnDevice
  int64_t cache_bytes = 0;  // of both caches
  int64_t free_bytes = 0;   // of the device, now
};
// Returns the plan of an engine with these options, whose names are resolved (ResolveModels).
// Without EngineOptions::kv_memory_bytes the caches are planned like those of Engine::Create, for
// `free_bytes` if that is less than the device's. Errors name the file.
absl::StatusOr<MemoryPlan> PlanMemory(const EngineOptions& options, int64_t free_bytes);

// The most pages that the sequences of a full batch and as many earlier prompts need, for a model
// with this limit of its context.
int64_t UsefulPages(const EngineOptions& options, int context_length);
// By default the caches take 1/kDefaultShareOfFreeMemory of the free memory.
inline constexpr int kDefaultShareOfFreeMemory = 4;

}  // namespace tandem

#endif  // TANDEM_ENGINE_DEVICE_MEMORY_H_
