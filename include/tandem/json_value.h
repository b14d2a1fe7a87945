// JSON as requests, schemas and answers have it.
#ifndef TANDEM_INCLUDE_TANDEM_JSON_VALUE_H_
#define TANDEM_INCLUDE_TANDEM_JSON_VALUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace tandem {

// Makes JsonValue a type of its own, and does nothing else.
template <typename T>
struct JsonAllocator : std::allocator<T> {
  JsonAllocator() = default;
  template <typename U>
  // NOLINTNEXTLINE(google-explicit-constructor): allocators convert.
  JsonAllocator(const JsonAllocator<U>& /*other*/) noexcept {}
};

// Members of objects come in their order; who looks one up looks at all. Destroying a value asks
// for no memory, unlike the library's own, which end the process where there is none. Recurses as
// deep as the value.
using JsonValue = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool,
                                       std::int64_t, std::uint64_t, double, JsonAllocator>;

}  // namespace tandem

// In place of the library's, which puts what is inside into a vector first.
template <>
inline void tandem::JsonValue::json_value::destroy(tandem::JsonValue::value_t type) {
  using Type = tandem::JsonValue::value_t;
  if (type == Type::object) delete object;
  if (type == Type::array) delete array;
  if (type == Type::string) delete string;
  if (type == Type::binary) delete binary;
}

#endif  // TANDEM_INCLUDE_TANDEM_JSON_VALUE_H_
