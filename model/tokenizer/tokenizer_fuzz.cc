// Arbitrary bytes as a tokenizer.json, whose tokenizer then has to bear text; and arbitrary text
// for a good one, which has to come back.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/tokenizer.h"

namespace tandem {
namespace {

// A byte-level tokenizer with the expression, template and flags of llama3-small, of bytes and a
// few merges.
std::unique_ptr<Tokenizer> MakeGood() {
  std::string vocabulary;
  int id = 0;
  const auto add = [&](const std::string& token) {
    if (id > 0) vocabulary += ", ";
    vocabulary += "\"" + token + "\": " + std::to_string(id++);
  };
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const int code = is_printable ? byte : next++;
    constexpr char kHex[] = "0123456789abcdef";
    add({'\\', 'u', '0', kHex[code >> 8], kHex[code >> 4 & 15], kHex[code & 15]});
  }
  for (const char* token : {"he", "\u0120t", "\u0120the", "\u00c3\u00a9", "12", "\u0120\u0120"}) {
    add(token);
  }
  const std::string file = R"({"added_tokens": [
      {"id": 262, "content": "<s>", "special": true, "normalized": false},
      {"id": 263, "content": "<t>", "special": false, "normalized": false}],
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|)"
                           R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "ignore_merges": true, "vocab": {)" +
                           vocabulary +
                           R"(}, "merges": ["h e", "\u0120 t", "\u0120t he", "\u00c3 \u00a9", "1 2",
      "\u0120 \u0120"]}})";
  auto tokenizer = Tokenizer::Parse(file, "", "good");
  TANDEM_CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

// Encodes, decodes whole and in pieces; these agree, whatever the tokenizer.
void Exercise(const Tokenizer& tokenizer, std::string_view text, bool is_good) {
  for (const SpecialTokens special : {SpecialTokens::kParse, SpecialTokens::kPlain}) {
    const auto ids = tokenizer.Encode(text, special);
    if (!ids.ok()) continue;
    const std::string decoded = tokenizer.Decode(*ids);
    TANDEM_CHECK(!is_good || decoded == text);
    const auto detokenizer = Detokenizer::New(&tokenizer, {}, /*skip_special=*/false);
    std::string joined;
    for (const TokenId id : *ids) {
      TANDEM_CHECK(id >= 0 && id < tokenizer.vocab_size());
      joined += detokenizer->Push(id);
    }
    TANDEM_CHECK(joined + detokenizer->Flush() == decoded);
    (void)tokenizer.WithTemplate(*ids);
  }
}

void FuzzOne(std::string_view input) {
  static const std::unique_ptr<Tokenizer> good = MakeGood();
  Exercise(*good, input, /*is_good=*/true);
  std::vector<TokenId> ids;
  for (const char byte : input) ids.push_back(static_cast<unsigned char>(byte) + ids.size() % 10);
  (void)good->Decode(ids);
  const auto tokenizer = Tokenizer::Parse(input, "", "fuzzed");
  if (tokenizer.ok()) Exercise(**tokenizer, "<s> it's\u00e912  \n\u4e2dab", /*is_good=*/false);
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
