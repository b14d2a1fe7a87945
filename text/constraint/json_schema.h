// Analyses JSON schemas (2020-12): checks them, follows their references, and expands their
// combinations. Errors name the keyword and path of a part that is not supported.
#ifndef TANDEM_TEXT_CONSTRAINT_JSON_SCHEMA_H_
#define TANDEM_TEXT_CONSTRAINT_JSON_SCHEMA_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tandem/json_value.h"

namespace tandem {

// A schema and the schemas within it. Thread-compatible.
class JsonSchema {
 public:
  // References are looked up in `root`, which must outlive this object. With `is_strict`, objects
  // have only the properties that a schema names, unless it says otherwise.
  JsonSchema(const JsonValue* root, bool is_strict) : root_(*root), is_strict_(is_strict) {}

  // Checks that each keyword is supported and has an allowed value. INVALID_ARGUMENT if not.
  absl::Status Check() const;

  // Returns "flat" schemas, which have no references, combinations and annotations, although those
  // of their properties and items may. A value is valid for `schema` if and only if it is valid for
  // one of them. Empty if no value is valid. REQUIRES: Check() was OK.
  absl::StatusOr<std::vector<JsonValue>> Alternatives(const JsonValue& schema,
                                                      const std::string& path);

  // The reason why the first combination without values has no value; empty if all have values.
  const std::string& contradiction() const { return contradiction_; }

  // Returns the types of values that are generated for a flat schema: those that it names, else
  // those of its keywords, else all.
  static std::vector<std::string> TypesOf(const JsonValue& flat);
  // Returns whether the value is valid for the schema.
  absl::StatusOr<bool> IsValid(const JsonValue& value, const JsonValue& schema,
                               const std::string& path);
  // Returns whether `name` contains a match of `pattern`, as for patternProperties.
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
  // Returns whether no text that is generated for `a` is valid for `b`. Both are flat.
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
  std::set<const JsonValue*> followed_;  // targets of the references that Alternatives is within
  int64_t num_steps_ = 0;
  std::string contradiction_;
};

}  // namespace tandem

#endif  // TANDEM_TEXT_CONSTRAINT_JSON_SCHEMA_H_
