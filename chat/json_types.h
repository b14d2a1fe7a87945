#ifndef TANDEM_CHAT_JSON_TYPES_H_
#define TANDEM_CHAT_JSON_TYPES_H_

#include <cstdint>

#include "tandem/json_value.h"

namespace tandem {

// A set of the types that JSON values have.
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
  // Those that a schema allows its values, as far as keywords say so by themselves. `root` is the
  // document that its references are into; what cannot be followed allows all.
  static JsonTypes AllowedBy(const JsonValue& schema, const JsonValue& root);

  constexpr bool Has(Type type) const { return (types_ & type) != 0; }
  constexpr bool Has(JsonTypes others) const { return (types_ & others.types_) == others.types_; }
  constexpr bool IsOnly(Type type) const { return types_ == type; }
  constexpr uint8_t bits() const { return types_; }
  friend bool operator==(JsonTypes, JsonTypes) = default;

 private:
  uint8_t types_ = kAll;
};

// The schema that a reference within the document is to, through others; `schema` itself if it is
// none. Null if there is no such, or it comes back to itself.
const JsonValue* Referenced(const JsonValue& schema, const JsonValue& root);

}  // namespace tandem

#endif  // TANDEM_CHAT_JSON_TYPES_H_
