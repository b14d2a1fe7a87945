#ifndef TANDEM_BASE_JSON_JSON_WRITER_H_
#define TANDEM_BASE_JSON_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/json_value.h"

namespace tandem {

// Returns a value's JSON on one line. Invalid UTF-8 becomes U+FFFD.
std::string DumpJson(const JsonValue& value);

// Appends JSON to a string, call by call. It needs no tree, which would use ten times the memory of
// its text. The output is valid JSON if every Begin has its End, values within objects have keys,
// and no key is repeated. Thread-compatible.
//
//   JsonWriter json(&text);
//   json.BeginObject().Key("ids").BeginArray().Integer(5).EndArray().EndObject();
class JsonWriter {
 public:
  explicit JsonWriter(std::string* text) : text_(text) {}  // must outlive the writer

  JsonWriter& BeginObject() { return Begin('{'); }
  JsonWriter& EndObject() { return End('}'); }
  JsonWriter& BeginArray() { return Begin('['); }
  JsonWriter& EndArray() { return End(']'); }
  JsonWriter& Key(std::string_view name);

  // Invalid UTF-8 becomes U+FFFD.
  JsonWriter& String(std::string_view text);
  JsonWriter& Integer(int64_t number);
  // Writes digits that parse back to the same number, or null if `number` is not finite.
  JsonWriter& Number(double number);
  JsonWriter& Null();
  JsonWriter& Value(const JsonValue& value);  // for small values: builds the text twice

 private:
  JsonWriter& Begin(char bracket);
  JsonWriter& End(char bracket);
  // Writes the comma before a value or key that is not the first.
  void Separate();
  void AppendString(std::string_view text);

  std::string* text_;
  bool is_first_ = true;  // the next value or key needs no comma before it
};

}  // namespace tandem

#endif  // TANDEM_BASE_JSON_JSON_WRITER_H_
