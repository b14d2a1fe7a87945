// JSON schemas (2020-12) taken apart: checked, their references followed, their combinations
// multiplied out. A part that cannot be kept is refused by keyword and place.
#ifndef TANDEM_CONSTRAINT_JSON_SCHEMA_H_
#define TANDEM_CONSTRAINT_JSON_SCHEMA_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tandem/json_value.h"

namespace tandem {

class JsonSchema {
 public:
  // `root` must outlive it; references are looked up there. With `is_strict`, objects have no
  // properties but those that a schema names, unless it says otherwise.
  JsonSchema(const JsonValue* root, bool is_strict) : root_(*root), is_strict_(is_strict) {}

  // That each keyword is one that can be kept and has a value that it may have.
  absl::Status Check() const;

  // Schemas without references and combinations ("flat" ones), one of which a value keeps to if,
  // and only if, it keeps to `schema`. Without annotations. A flat schema may still have
  // combinations within its properties and items. None if no value keeps to it.
  // REQUIRES: Check() was OK.
  absl::StatusOr<std::vector<JsonValue>> Alternatives(const JsonValue& schema,
                                                      const std::string& path);

  // Why the first combination that has no value has none; empty if all have.
  const std::string& contradiction() const { return contradiction_; }

  // The types of values that a flat schema means: those that it names, else those of its keywords,
  // else all.
  static std::vector<std::string> TypesOf(const JsonValue& flat);
  // Whether the value keeps to the schema.
  absl::StatusOr<bool> IsValid(const JsonValue& value, const JsonValue& schema,
                               const std::string& path);
  // Whether `name` contains a match of the pattern, as patternProperties has it.
  static absl::StatusOr<bool> Contains(const std::string& name, const std::string& pattern);

 private:
  using Flats = std::vector<JsonValue>;

  absl::Status CheckAt(const JsonValue& schema, const std::string& path, int depth) const;
  absl::StatusOr<const JsonValue*> Referenced(const JsonValue& reference,
                                              const std::string& path) const;
  const JsonValue* FindAnchor(const JsonValue& value, const std::string& name) const;
  absl::StatusOr<Flats> AllOf(const Flats& left, const Flats& right, const std::string& path);
  absl::StatusOr<Flats> OneOf(const JsonValue& branches, const Flats& base,
                              const std::string& path);
  // Whether no text that is written for `a` is a value of `b`. Both are flat.
  absl::StatusOr<bool> Excludes(const JsonValue& a, const JsonValue& b, const std::string& path,
                                int depth);
  absl::StatusOr<bool> ExcludesAsObject(const JsonValue& a, const JsonValue& b,
                                        const std::string& path, int depth);
  absl::StatusOr<bool> IsFlatValid(const JsonValue& value, const JsonValue& flat,
                                   const std::string& path);
  absl::StatusOr<bool> IsValidObject(const JsonValue& value, const JsonValue& flat,
                                     const std::string& path);
  absl::StatusOr<bool> IsValidArray(const JsonValue& value, const JsonValue& flat,
                                    const std::string& path);

  const JsonValue& root_;
  const bool is_strict_;
  std::set<const JsonValue*> followed_;  // references on the way to where Alternatives is
  int64_t num_steps_ = 0;
  std::string contradiction_;
};

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_JSON_SCHEMA_H_
