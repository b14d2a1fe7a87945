// The keys of a JSON object as config.json has them, read with errors that say what is allowed.
#ifndef TANDEM_JSON_CONFIG_FIELDS_H_
#define TANDEM_JSON_CONFIG_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "json/json_text.h"

namespace tandem {

// The keys of one JSON object of a file. Errors name the file, the key, what was found and what is
// allowed. A key that is null counts as absent, as in the reference.
class ConfigFields {
 public:
  ConfigFields(const nlohmann::json& object, std::string file, std::string prefix = "")
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  const nlohmann::json* Find(absl::string_view key) const {
    const auto found = object_.find(std::string(key));
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  // Whether the key is there, null included.
  bool Has(absl::string_view key) const { return object_.contains(std::string(key)); }
  const nlohmann::json& object() const { return object_; }
  const std::string& file() const { return file_; }
  const std::string& prefix() const { return prefix_; }

  absl::Status Wrong(absl::string_view key, absl::string_view allowed) const {
    const nlohmann::json* const value = Find(key);
    return absl::InvalidArgumentError(absl::StrCat(file_, ": ", prefix_, key, ": found ",
                                                   value != nullptr ? Shown(*value)
                                                   : Has(key)       ? "null"
                                                                    : "nothing",
                                                   ", allowed: ", allowed));
  }

  // An integer in [least, most]; `if_absent` where there is none, or an error without one.
  absl::StatusOr<int> Int(absl::string_view key, int least, int most,
                          std::optional<int> if_absent = std::nullopt) const {
    const nlohmann::json* const value = Find(key);
    if (value == nullptr && if_absent.has_value()) return *if_absent;
    if (value != nullptr && value->is_number_unsigned()) {
      const uint64_t number = value->get<uint64_t>();
      if (number >= static_cast<uint64_t>(least) && number <= static_cast<uint64_t>(most)) {
        return static_cast<int>(number);
      }
    }
    return Wrong(key, absl::StrCat("an integer from ", least, " to ", most));
  }

  // A number in [least, most], or an error.
  absl::StatusOr<double> Number(absl::string_view key, double least, double most,
                                std::optional<double> if_absent = std::nullopt) const {
    const nlohmann::json* const value = Find(key);
    if (value == nullptr && if_absent.has_value()) return *if_absent;
    if (value != nullptr && value->is_number()) {
      const double number = value->get<double>();
      if (number >= least && number <= most) return number;
    }
    return Wrong(key, absl::StrCat("a number from ", least, " to ", most));
  }

  absl::StatusOr<bool> Bool(absl::string_view key, bool if_absent) const {
    const nlohmann::json* const value = Find(key);
    if (value == nullptr) return if_absent;
    if (!value->is_boolean()) return Wrong(key, "true or false");
    return value->get<bool>();
  }

  // A key that says how to compute something of which only one way is implemented here.
  absl::Status Only(absl::string_view key, const nlohmann::json& allowed) const {
    const nlohmann::json* const value = Find(key);
    if (value == nullptr || *value == allowed) return absl::OkStatus();
    return Wrong(key, Shown(allowed));
  }

 private:
  const nlohmann::json& object_;
  std::string file_;
  std::string prefix_;  // of the object's keys, "rope_scaling."
};

}  // namespace tandem

#endif  // TANDEM_JSON_CONFIG_FIELDS_H_
