// Reads the input as stop strings and the tokens of a text. Checks that the text only grows, and
// that the final text is cut as the definition says.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "engine/output_text.h"
#include "tandem/tokenizer.h"

namespace tandem {
namespace {

constexpr size_t kNumTokens = 32;

// Returns a token of a few letters from a to c, so that letters repeat often.
std::string TokenText(size_t token) {
  std::string text;
  for (size_t rest = token + 1; rest > 0; rest /= 4) text += "abca"[rest % 4];
  return text;
}

struct Letters {
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::string> texts;  // of each id
};

Letters MakeLetters() {
  Letters letters;
  std::string vocabulary;
  for (size_t token = 0; letters.texts.size() < kNumTokens; ++token) {
    const std::string text = TokenText(token);
    if (std::find(letters.texts.begin(), letters.texts.end(), text) != letters.texts.end())
      continue;
    vocabulary += (letters.texts.empty() ? "\"" : ", \"") + text +
                  "\": " + std::to_string(letters.texts.size());
    letters.texts.push_back(text);
  }
  auto tokenizer = Tokenizer::Parse(
      R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
          "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "merges": [], "vocab": {)" +
          vocabulary + "}}}",
      "", "fuzz");
  TANDEM_CHECK(tokenizer.ok());
  letters.tokenizer = *std::move(tokenizer);
  return letters;
}

// The definition: the text grows token by token until it contains a stop string that ends after the
// first `min_tokens` tokens, and is cut before the first of these.
std::string CutPlainly(const std::vector<std::string>& pieces,
                       const std::vector<std::string>& stops, size_t min_tokens) {
  std::string text;
  size_t early_size = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    text += pieces[i];
    if (i < min_tokens) early_size = text.size();
    size_t cut = std::string::npos;
    for (const std::string& stop : stops) {
      const size_t first = early_size < stop.size() ? 0 : early_size - stop.size() + 1;
      cut = std::min(cut, text.find(stop, first));
    }
    if (cut != std::string::npos) return text.substr(0, cut);
  }
  return text;
}

// The first byte gives `min_tokens`, the second the number of stop strings, each of up to 8
// letters, that follow. The remaining bytes are tokens.
void FuzzOne(std::string_view bytes) {
  static const Letters& letters = *new Letters(MakeLetters());
  const auto next = [&bytes](size_t end) -> size_t {
    if (bytes.empty()) return 0;
    const size_t value = static_cast<unsigned char>(bytes[0]) % end;
    bytes.remove_prefix(1);
    return value;
  };
  const size_t min_tokens = next(8);
  std::vector<std::string> stops(next(6));
  for (std::string& stop : stops) {
    for (size_t size = 1 + next(8); size > 0; --size) stop += static_cast<char>('a' + next(3));
  }
  OutputText output(letters.tokenizer.get(), {}, stops, static_cast<int>(min_tokens));
  std::vector<std::string> pieces;
  std::string shown;
  bool goes_on = true;
  while (goes_on && !bytes.empty()) {
    const size_t token = next(kNumTokens);
    pieces.push_back(letters.texts[token]);
    goes_on = output.Append(static_cast<TokenId>(token));
    TANDEM_CHECK(output.text().compare(0, shown.size(), shown) == 0);
    shown = output.text();
  }
  output.Finish();
  TANDEM_CHECK(output.text().compare(0, shown.size(), shown) == 0);
  TANDEM_CHECK(output.text() == CutPlainly(pieces, stops, min_tokens));
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const char*>(data), std::min<size_t>(size, 400)});
  return 0;
}
