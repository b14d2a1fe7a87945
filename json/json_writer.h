#ifndef TANDEM_JSON_JSON_WRITER_H_
#define TANDEM_JSON_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/json_value.h"

namespace tandem {

// A value's JSON on one line. Invalid UTF-8 becomes U+FFFD.
std::string DumpJson(const JsonValue& value);

// Writes JSON to the end of a string as it is told to, without a tree, which takes ten times as
// much memory as its text. What is written is JSON if every Begin has its End, values within
// objects have keys and no key comes twice. Thread-compatible.
//
//   JsonWriter json(&text);
//   json.BeginObject().Key("ids").BeginArray().Integer(5).EndArray().EndObject();
class JsonWriter {
 public:
  explicit JsonWriter(std::string* text) : text_(text) {}  // which must outlive it

  JsonWriter& BeginObject() { return Begin('{'); }
  JsonWriter& EndObject() { return End('}'); }
  JsonWriter& BeginArray() { return Begin('['); }
  JsonWriter& EndArray() { return End(']'); }
  JsonWriter& Key(std::string_view name);

  // What is no UTF-8 becomes U+FFFD.
  JsonWriter& String(std::string_view text);
  JsonWriter& Integer(int64_t number);
  // Reads back as the same number; null unless it is finite.
  JsonWriter& Number(double number);
  JsonWriter& Null();
  JsonWriter& Value(const JsonValue& value);  // something small

 private:
  JsonWriter& Begin(char bracket);
  JsonWriter& End(char bracket);
  // The comma in front of a value or key that is not the first.
  void Separate();
  void AppendString(std::string_view text);

  std::string* text_;
  bool is_first_ = true;  // nothing stands before the next value that a comma must part it from
};

}  // namespace tandem

#endif  // TANDEM_JSON_JSON_WRITER_H_
