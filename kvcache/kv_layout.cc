#include "kvcache/kv_layout.h"

#include "absl/strings/str_cat.h"

namespace tandem {

absl::StatusOr<KvDType> ParseKvDType(std::string_view name) {
  for (const KvDType dtype : kAllKvDTypes) {
    if (name == NameOf(dtype)) return dtype;
  }
  return absl::InvalidArgumentError(absl::StrCat("kv_cache: \"",
                                                 absl::string_view(name.data(), name.size()),
                                                 "\" is not one of f32, bf16, int8"));
}

}  // namespace tandem
