// Decodes bytes as tokens of one byte each: every piece is whole characters, and the joined pieces
// are the decoding of all tokens, which is the bytes with U+FFFD for invalid UTF-8.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "tandem/detokenizer.h"

namespace tandem {
namespace {

// A byte-level tokenizer whose ids are the bytes; 256 is a special token.
std::unique_ptr<Tokenizer> MakeBytes() {
  std::string vocabulary;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const int code = is_printable ? byte : next++;
    constexpr char kHex[] = "0123456789abcdef";
    const char written[] = {'\\', 'u', '0', kHex[code >> 8], kHex[code >> 4 & 15], kHex[code & 15]};
    vocabulary += (byte == 0 ? "\"" : ", \"") + std::string(written, sizeof(written)) +
                  "\": " + std::to_string(byte);
  }
  auto tokenizer = Tokenizer::Parse(
      R"({"added_tokens": [{"id": 256, "content": "<s>", "special": true, "normalized": false}],
          "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
          "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "merges": [], "vocab": {)" +
          vocabulary + "}}}",
      "", "fuzz");
  TANDEM_CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

std::string WithReplacements(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const Utf8Prefix prefix = ReadUtf8(bytes);
    const size_t size = prefix.kind == Utf8Prefix::Kind::kIncomplete ? bytes.size() : prefix.size;
    text += prefix.kind == Utf8Prefix::Kind::kCharacter ? bytes.substr(0, size)
                                                        : std::string_view(kReplacementCharacter);
    bytes.remove_prefix(size);
  }
  return text;
}

bool IsWhole(std::string_view piece) { return FindInvalidUtf8(piece) == std::string_view::npos; }

// The first byte is the number of bytes that are context.
void FuzzOne(std::string_view bytes) {
  static const std::unique_ptr<Tokenizer> tokenizer = MakeBytes();
  if (bytes.empty()) return;
  const size_t num_context =
      std::min<size_t>(static_cast<unsigned char>(bytes[0]), bytes.size() - 1);
  bytes.remove_prefix(1);
  std::vector<TokenId> ids;
  for (const char byte : bytes) ids.push_back(static_cast<unsigned char>(byte));
  const std::string whole = tokenizer->Decode(ids);
  TANDEM_CHECK(whole == WithReplacements(bytes));
  const auto detokenizer = Detokenizer::New(tokenizer.get(), {}, /*skip_special=*/true);
  const auto continued = Detokenizer::New(
      tokenizer.get(), absl::MakeSpan(ids).subspan(0, num_context), /*skip_special=*/true);
  std::string text;
  std::string tail;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string piece = detokenizer->Push(ids[i]);
    TANDEM_CHECK(IsWhole(piece));
    text += piece;
    if (i >= num_context) tail += continued->Push(ids[i]);
  }
  TANDEM_CHECK(text + detokenizer->Flush() == whole);
  TANDEM_CHECK(detokenizer->Flush().empty());
  tail += continued->Flush();
  TANDEM_CHECK(IsWhole(tail) && tail.size() <= whole.size());
  TANDEM_CHECK(whole.compare(whole.size() - tail.size(), tail.size(), tail) == 0);
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
