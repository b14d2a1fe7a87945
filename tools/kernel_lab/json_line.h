// One line of results in JSON.
#ifndef TANDEM_TOOLS_KERNEL_LAB_JSON_LINE_H_
#define TANDEM_TOOLS_KERNEL_LAB_JSON_LINE_H_

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tandem::kernel_lab {

inline std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + "\"";
}

class JsonLine {
 public:
  void Add(const char* key, std::string_view text) { AddValue(key, Quoted(text)); }
  void Add(const char* key, const char* text) { AddValue(key, Quoted(text)); }
  void Add(const char* key, bool value) { AddValue(key, value ? "true" : "false"); }
  void Add(const char* key, double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.6g", value);
    AddValue(key, std::isfinite(value) ? text : "null");
  }
  template <typename T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  void Add(const char* key, T value) {
    AddValue(key, std::to_string(value));
  }
  void Add(const char* key, const std::vector<std::string>& texts) {
    std::string list;
    for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + Quoted(text);
    AddValue(key, "[" + list + "]");
  }
  std::string text() const { return "{" + fields_ + "}\n"; }

 private:
  void AddValue(const char* key, const std::string& value) {
    fields_ += (fields_.empty() ? "" : ", ") + Quoted(key) + ": " + value;
  }
  std::string fields_;
};

}  // namespace tandem::kernel_lab

#endif  // TANDEM_TOOLS_KERNEL_LAB_JSON_LINE_H_
