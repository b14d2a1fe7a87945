// Reads the keys of a config.json object. Errors say which values are allowed.
#ifndef TANDEM_BASE_JSON_CONFIG_FIELDS_H_
#define TANDEM_BASE_JSON_CONFIG_FIELDS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/hash_map.h"
#include "base/json/json_text.h"

namespace tandem {

// Returns whether `words`, which have one space between them, have this one.
inline bool HasWord(absl::string_view words, absl::string_view word) {
  return absl::c_linear_search(absl::StrSplit(words, ' '), word);
}

// The keys of one JSON object in a file. Errors name the file, the key, the value found and the
// values allowed. A null value counts as absent, as in the reference. The object remembers which
// keys were read, so that a reader can refuse unknown keys. Thread-compatible.
class ConfigFields {
 public:
  ConfigFields(const SortedJson& object, std::string file, std::string prefix = "")
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  const SortedJson* Find(absl::string_view key) const {
    read_->emplace(key);
    const auto found = object_.find(std::string(key));
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  // Returns whether the key is present, even with a null value.
  bool Has(absl::string_view key) const {
    read_->emplace(key);
    return object_.contains(std::string(key));
  }
  // Returns whether this object or a copy of it was asked for the key before.
  bool WasRead(absl::string_view key) const { return read_->contains(key); }
  const SortedJson& object() const { return object_; }
  const std::string& file() const { return file_; }
  const std::string& prefix() const { return prefix_; }

  absl::Status Wrong(absl::string_view key, absl::string_view allowed) const {
    const SortedJson* const value = Find(key);
    return NotAllowed(absl::StrCat(file_, ": ", prefix_, KeyText(key)),
                      value != nullptr ? Shown(*value)
                      : Has(key)       ? "null"
                                       : "nothing",
                      allowed);
  }

  // Returns the integer at `key`, which must be in [least, most]. If the key is absent, returns
  // `if_absent`, or an error if that is not set.
  absl::StatusOr<int> Int(absl::string_view key, int least, int most,
                          std::optional<int> if_absent = std::nullopt) const {
    const SortedJson* const value = Find(key);
    if (value == nullptr && if_absent.has_value()) return *if_absent;
    if (value != nullptr && value->is_number_unsigned()) {
      const uint64_t number = value->get<uint64_t>();
      if (number >= static_cast<uint64_t>(least) && number <= static_cast<uint64_t>(most)) {
        return static_cast<int>(number);
      }
    }
    return Wrong(key, absl::StrCat("an integer from ", least, " to ", most));
  }

  // Returns the number at `key`, which must be in [least, most]. `if_absent` as in Int().
  absl::StatusOr<double> Number(absl::string_view key, double least, double most,
                                std::optional<double> if_absent = std::nullopt) const {
    const SortedJson* const value = Find(key);
    if (value == nullptr && if_absent.has_value()) return *if_absent;
    if (value != nullptr && value->is_number()) {
      const double number = value->get<double>();
      if (number >= least && number <= most) return number;
    }
    return Wrong(key, absl::StrCat("a number from ", least, " to ", most));
  }

  absl::StatusOr<bool> Bool(absl::string_view key, bool if_absent) const {
    const SortedJson* const value = Find(key);
    if (value == nullptr) return if_absent;
    if (!value->is_boolean()) return Wrong(key, "true or false");
    return value->get<bool>();
  }

  // Returns the object at `key`. It is an error if the key is absent.
  absl::StatusOr<ConfigFields> Object(absl::string_view key) const {
    const SortedJson* const value = Find(key);
    if (value == nullptr || !value->is_object()) return Wrong(key, "an object");
    return ConfigFields(*value, file_, absl::StrCat(prefix_, KeyText(key), "."));
  }

  // Checks a key that selects a way of computing of which only one, `allowed`, is implemented here.
  // An absent key passes.
  absl::Status Only(absl::string_view key, const SortedJson& allowed) const {
    const SortedJson* const value = Find(key);
    if (value == nullptr || *value == allowed) return absl::OkStatus();
    return Wrong(key, Shown(allowed));
  }

 private:
  // Formats a key, which may be any text, for messages.
  static std::string KeyText(absl::string_view key) {
    const bool is_plain = !key.empty() && key.size() <= 40 && absl::c_all_of(key, [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
    });
    return is_plain ? std::string(key) : Quoted(key);
  }

  const SortedJson& object_;
  std::string file_;
  std::string prefix_;  // of the object's keys, "rope_scaling."
  std::shared_ptr<HashSet<std::string>> read_ = std::make_shared<HashSet<std::string>>();
};

}  // namespace tandem

#endif  // TANDEM_BASE_JSON_CONFIG_FIELDS_H_
