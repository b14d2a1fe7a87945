// Parses any text as a line of a prompt file. The result is an error that begins with the position
// of the line, or a prompt that equals the line's JSON.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "tests/json_mutator.h"
#include "tools/prompt_file.h"

namespace tandem {
namespace {

const std::vector<SortedJson>& Samples() {
  static const auto& samples = *new std::vector<SortedJson>(ParseAll(
      {R"({"prompt": "Once upon a time", "task": 7})", R"({"prompt_ids": [3, 0, 2147483647]})"}));
  return samples;
}

void FuzzOne(absl::string_view line) {
  const absl::StatusOr<Prompt> prompt = ParsePromptLine(line, "fuzz:7");
  if (!prompt.ok()) {
    TANDEM_CHECK(prompt.status().code() == absl::StatusCode::kInvalidArgument);
    TANDEM_CHECK(absl::StartsWith(prompt.status().message(), "fuzz:7: "));
    TANDEM_CHECK(prompt.status().message().size() < 1000);
    TANDEM_CHECK(!absl::StrContains(prompt.status().message(), '\n'));
    return;
  }
  const auto json = SortedJson::parse(line.begin(), line.end());
  TANDEM_CHECK(prompt->text.empty() != prompt->ids.empty());
  if (prompt->ids.empty()) {
    TANDEM_CHECK(json.at("prompt") == prompt->text);
  } else {
    TANDEM_CHECK(json.at("prompt_ids") == prompt->ids);
  }
}

}  // namespace
}  // namespace tandem

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return tandem::JsonMutator(tandem::Samples(), seed).MutateText(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
