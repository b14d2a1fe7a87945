#ifndef TANDEM_BASE_JSON_JSON_FIELDS_H_
#define TANDEM_BASE_JSON_JSON_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tandem/json_value.h"

namespace tandem {

// A field of a JSON document, with its path for errors: "tokenizer.json: model.vocab". The document
// must outlive it.
class JsonField {
 public:
  // The whole document of `file`.
  JsonField(const SortedJson* value, std::string file) : value_(value), path_(std::move(file)) {}

  const SortedJson& value() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_->is_null(); }
  // Returns whether the value is this string. (The library's own comparison allocates memory, and
  // aborts the process if that fails.)
  bool Is(std::string_view text) const {
    const auto* const string = value_->get_ptr<const std::string*>();
    return string != nullptr && *string == text;
  }

  // Returns the member `key`, null if it is absent. INVALID_ARGUMENT if this is not an object.
  absl::StatusOr<JsonField> Member(std::string_view key) const;
  // REQUIRES: this is a list with more than `index` elements.
  absl::StatusOr<JsonField> Element(size_t index) const;

  // Each returns INVALID_ARGUMENT if the field has another type or value.
  absl::StatusOr<std::string> String() const;
  absl::StatusOr<std::string> Character() const;  // a string of one character
  absl::StatusOr<bool> Bool() const;
  absl::StatusOr<bool> Bool(bool if_null) const;
  absl::StatusOr<int64_t> Integer(int64_t low, int64_t high) const;
  absl::Status CheckArray() const;
  absl::Status CheckObject() const;
  // Returns the member "type", a string.
  absl::StatusOr<std::string> Type() const;

  // Returns INVALID_ARGUMENT naming this field: "<path>: <found> <what>".
  absl::Status Error(std::string_view what) const;

 private:
  JsonField(const SortedJson* value, std::string path, bool is_document)
      : value_(value), path_(std::move(path)), is_document_(is_document) {}

  const SortedJson* value_;
  std::string path_;
  bool is_document_ = true;
};

}  // namespace tandem

#endif  // TANDEM_BASE_JSON_JSON_FIELDS_H_
