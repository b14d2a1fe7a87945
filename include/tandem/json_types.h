#ifndef TANDEM_INCLUDE_TANDEM_JSON_TYPES_H_
#define TANDEM_INCLUDE_TANDEM_JSON_TYPES_H_

#include <cstdint>

#include "tandem/json_value.h"

namespace tandem {

// A set of JSON types.
class JsonTypes {
 public:
  enum Type : uint8_t {
    kString = 1,
    kNumber = 2,
    kBoolean = 4,
    kNull = 8,
    kArray = 16,
    kObject = 32,
  };
  static constexpr uint8_t kAll = 63;

  constexpr JsonTypes() = default;  // all
  constexpr explicit JsonTypes(uint8_t types) : types_(types) {}

  // The type of one value.
  static JsonTypes Of(const JsonValue& value);
  // The types that a schema allows, as far as each keyword determines them by itself. References
  // are resolved in the document `root`; one that cannot be resolved allows all types.
  static JsonTypes AllowedBy(const JsonValue& schema, const JsonValue& root);

  constexpr bool Has(Type type) const { return (types_ & type) != 0; }
  constexpr bool Has(JsonTypes others) const { return (types_ & others.types_) == others.types_; }
  constexpr bool IsOnly(Type type) const { return types_ == type; }
  constexpr uint8_t bits() const { return types_; }
  friend bool operator==(JsonTypes, JsonTypes) = default;

 private:
  uint8_t types_ = kAll;
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_JSON_TYPES_H_
