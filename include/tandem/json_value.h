#ifndef TANDEM_INCLUDE_TANDEM_JSON_VALUE_H_
#define TANDEM_INCLUDE_TANDEM_JSON_VALUE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace tandem {

// Makes the types below Tandem's own, so that their destructors can be replaced.
template <typename Type, typename Enable = void>
struct JsonSerializer : nlohmann::adl_serializer<Type, Enable> {};

template <template <typename, typename, typename...> class Object>
using BasicJson = nlohmann::basic_json<Object, std::vector, std::string, bool, int64_t, uint64_t,
                                       double, std::allocator, JsonSerializer>;

// JSON values of requests, schemas and answers. Members of objects keep their order; finding one is
// a linear search.
using JsonValue = BasicJson<nlohmann::ordered_map>;
// JSON values whose objects are sorted by key.
using SortedJson = BasicJson<std::map>;

// The library's own destructor allocates, which ends the program if no memory is left. This one
// recurses instead: parsed documents are at most 64 values deep.
template <typename Value, typename Type>
void DeleteContents(Value& value, Type type) {
  if (type == Type::object) delete value.object;
  if (type == Type::array) delete value.array;
  if (type == Type::string) delete value.string;
  if (type == Type::binary) delete value.binary;
}

}  // namespace tandem

template <>
inline void tandem::JsonValue::json_value::destroy(value_t type) {
  tandem::DeleteContents(*this, type);
}

template <>
inline void tandem::SortedJson::json_value::destroy(value_t type) {
  tandem::DeleteContents(*this, type);
}

#endif  // TANDEM_INCLUDE_TANDEM_JSON_VALUE_H_
