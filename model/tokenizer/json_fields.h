#ifndef TANDEM_MODEL_TOKENIZER_JSON_FIELDS_H_
#define TANDEM_MODEL_TOKENIZER_JSON_FIELDS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace tandem {

// A field of a JSON object, with its path for errors: "tokenizer.json: model.vocab".
class JsonField {
 public:
  JsonField(const nlohmann::json* value, std::string path)
      : value_(value), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_->is_null(); }

  // The member `key`; null if there is none. INVALID_ARGUMENT if this is no object.
  absl::StatusOr<JsonField> Member(std::string_view key) const;
  absl::StatusOr<JsonField> Element(size_t index) const;
  absl::StatusOr<std::string> String() const;
  absl::StatusOr<bool> Bool(bool if_null) const;
  absl::StatusOr<int64_t> Integer(int64_t low, int64_t high) const;
  absl::Status CheckArray() const;
  absl::Status CheckObject() const;
  // Member "type", a string.
  absl::StatusOr<std::string> Type() const;

  // INVALID_ARGUMENT naming this field: "<path>: <found> <what>".
  absl::Status Error(std::string_view what) const;

 private:
  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace tandem

#endif  // TANDEM_MODEL_TOKENIZER_JSON_FIELDS_H_
