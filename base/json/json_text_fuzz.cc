// Parses any text as JSON. Accepted text must give the library's own value; refused text must be
// invalid JSON or UTF-8, nest too deeply or repeat a key. Error messages must be one printable
// line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/check.h"
#include "base/json/json_text.h"
#include "tests/json_mutator.h"

namespace tandem {
namespace {

using Json = SortedJson;

const std::vector<SortedJson>& Samples() {
  static const auto& samples = *new std::vector<SortedJson>(ParseAll(
      {R"({"a": [1, -2.5e3, "x\u00e9\ud83d\ude00\n"], "b": {"c": null, "": true}})",
       R"([[[[[[[[[[]]]]]]]]], 18446744073709551615, -9223372036854775808])", R"("")", "0"}));
  return samples;
}

int Depth(const Json& value) {
  int deepest = 0;
  if (!value.is_structured()) return 0;
  for (const Json& member : value) deepest = std::max(deepest, Depth(member));
  return deepest + 1;
}

bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isprint(c); });
}

void FuzzOne(absl::string_view text) {
  const absl::StatusOr<Json> parsed = ParseJson(text, "fuzz");
  const Json reference = Json::parse(text.begin(), text.end(), nullptr, false);
  const absl::StatusOr<JsonValue> ordered = ParseJsonValue(text, "fuzz");
  TANDEM_CHECK(ordered.ok() == parsed.ok());
  TANDEM_CHECK(Quoted(text).size() <= 90 && IsPrintable(Quoted(text)));
  if (!parsed.ok()) {
    const std::string message(parsed.status().message());
    TANDEM_CHECK(absl::StartsWith(message, "fuzz: ") && IsPrintable(message));
    const bool is_twice = absl::StrContains(message, " twice in one object");
    const bool has_nul = absl::StrContains(text, '\0');  // which the library takes for the end
    TANDEM_CHECK(reference.is_discarded() || is_twice || has_nul || Depth(reference) > 64);
    return;
  }
  TANDEM_CHECK(*parsed == reference || Json(*parsed).dump() == reference.dump());
  TANDEM_CHECK(ordered->dump() == JsonValue::parse(text.begin(), text.end()).dump());
  TANDEM_CHECK(Depth(*parsed) <= 64);
  TANDEM_CHECK(Shown(*parsed).size() <= 90 && IsPrintable(Shown(*parsed)));
  // A round trip through text gives the same document.
  const std::string written = parsed->dump();
  const absl::StatusOr<Json> again = ParseJson(written, "again");
  TANDEM_CHECK(again.ok() && again->dump() == written);
}

}  // namespace
}  // namespace tandem

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return tandem::JsonMutator(tandem::Samples(), seed).MutateText(data, size, max_size, 2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
