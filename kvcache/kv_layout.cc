#include "kvcache/kv_layout.h"

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "tandem/field_error.h"

namespace tandem {

absl::StatusOr<KvDType> ParseKvDType(std::string_view name, absl::string_view field,
                                     std::optional<KvDType> automatic) {
  if (automatic.has_value() && name == "auto") return *automatic;
  for (const KvDType dtype : kAllKvDTypes) {
    if (name == NameOf(dtype)) return dtype;
  }
  return FieldError(field, absl::StrCat("\"", View(name), "\" is not one of ",
                                        automatic.has_value() ? "auto, " : "", "f32, bf16, int8"));
}

}  // namespace tandem
