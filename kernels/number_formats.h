#ifndef TANDEM_KERNELS_NUMBER_FORMATS_H_
#define TANDEM_KERNELS_NUMBER_FORMATS_H_

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/matrix.h"
#include "kernels/paged_kv.h"
#include "tandem/number_formats.h"

namespace tandem {

// Returns the block format of quantised weights; nothing for kNone. REQUIRES: not kAuto.
std::optional<DType> BlockTypeOf(Quantization quantization);

// Returns the type of a cache's elements; `automatic` for kAuto.
KvDType KvDTypeOf(KvCacheType type, KvDType automatic);
// INVALID_ARGUMENT naming the field `kv_cache` unless `name` is that of a KvDType.
absl::StatusOr<KvDType> ParseKvDType(std::string_view name);

}  // namespace tandem

#endif  // TANDEM_KERNELS_NUMBER_FORMATS_H_
