#include "base/json/json_fields.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/utf8.h"

namespace tandem {
namespace {

const SortedJson& Absent() {
  static const SortedJson& absent = *new SortedJson();
  return absent;
}

}  // namespace

absl::Status JsonField::Error(std::string_view what) const {
  const std::string found = value_ == &Absent()   ? "a missing value"
                            : value_->is_object() ? "an object"
                            : value_->is_array()  ? "a list"
                                                  : Shown(*value_);
  return absl::InvalidArgumentError(absl::StrCat(path_, ": ", found, " ", View(what)));
}

absl::Status JsonField::CheckObject() const {
  return value_->is_object() ? absl::OkStatus() : Error("is not an object");
}

absl::Status JsonField::CheckArray() const {
  return value_->is_array() ? absl::OkStatus() : Error("is not a list");
}

absl::StatusOr<JsonField> JsonField::Member(std::string_view key) const {
  RETURN_IF_ERROR(CheckObject());
  const auto it = value_->find(std::string(key));
  return JsonField(it == value_->end() ? &Absent() : &*it,
                   absl::StrCat(path_, is_document_ ? ": " : ".", View(key)),
                   /*is_document=*/false);
}

absl::StatusOr<JsonField> JsonField::Element(size_t index) const {
  RETURN_IF_ERROR(CheckArray());
  return JsonField(&(*value_)[index], absl::StrCat(path_, "[", index, "]"),
                   /*is_document=*/false);
}

absl::StatusOr<std::string> JsonField::String() const {
  if (!value_->is_string()) return Error("is not a string");
  return value_->get<std::string>();
}

absl::StatusOr<std::string> JsonField::Character() const {
  ASSIGN_OR_RETURN(std::string text, String());
  if (text.empty() || ReadUtf8(text).size != static_cast<int>(text.size())) {
    return Error("is not one character");
  }
  return text;
}

absl::StatusOr<bool> JsonField::Bool() const {
  if (!value_->is_boolean()) return Error("is not true or false");
  return value_->get<bool>();
}

absl::StatusOr<bool> JsonField::Bool(bool if_null) const {
  if (value_->is_null()) return if_null;
  return Bool();
}

absl::StatusOr<int64_t> JsonField::Integer(int64_t low, int64_t high) const {
  const bool fits = value_->is_number_integer() && *value_ >= low && *value_ <= high;
  if (!fits) return Error(absl::StrCat("is not an integer from ", low, " to ", high));
  return value_->get<int64_t>();
}

absl::StatusOr<std::string> JsonField::Type() const {
  ASSIGN_OR_RETURN(const JsonField type, Member("type"));
  return type.String();
}

}  // namespace tandem
