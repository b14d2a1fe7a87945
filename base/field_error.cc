#include "tandem/field_error.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"

namespace tandem {
namespace {

constexpr char kPayload[] = "tandem/field";
constexpr char kCodePayload[] = "tandem/code";

std::string PayloadOf(const absl::Status& status, absl::string_view type) {
  const absl::optional<absl::Cord> payload = status.GetPayload(type);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace

absl::Status FieldError(absl::string_view field, absl::string_view what) {
  absl::Status status = absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
  status.SetPayload(kPayload, absl::Cord(field));
  return status;
}

std::string FieldOf(const absl::Status& status) { return PayloadOf(status, kPayload); }

absl::Status WithField(const absl::Status& status, absl::string_view field) {
  const std::string old = FieldOf(status);
  if (old.empty()) return status;
  absl::string_view what = status.message();
  absl::ConsumePrefix(&what, absl::StrCat(old, ": "));
  absl::Status renamed(status.code(), absl::StrCat(field, ": ", what));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    renamed.SetPayload(type, payload);
  });
  renamed.SetPayload(kPayload, absl::Cord(field));
  return renamed;
}

absl::Status WithCode(absl::Status status, absl::string_view code) {
  status.SetPayload(kCodePayload, absl::Cord(code));
  return status;
}

std::string CodeOf(const absl::Status& status) { return PayloadOf(status, kCodePayload); }

}  // namespace tandem
