// Parses any bytes as a tokenizer.json, mostly one that is nearly right, whose tokenizer must
// survive any text; and encodes any text with a good tokenizer, which must decode to the same text.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tandem/detokenizer.h"
#include "tandem/tokenizer.h"
#include "tests/json_mutator.h"

namespace tandem {
namespace {

// A byte-level tokenizer of bytes and a few merges, with the expression, template and flags of
// llama3-small.
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

// A tokenizer.json of each family, with few tokens, and together with every supported component.
const std::vector<SortedJson>& Samples() {
  static const auto& samples = *new std::vector<SortedJson>(ParseAll({
      R"({"version": "1.0", "truncation": null, "padding": null,
          "added_tokens": [{"id": 4, "content": "<s>", "single_word": false, "lstrip": true,
            "rstrip": false, "normalized": false, "special": true}],
          "normalizer": {"type": "NFC"},
          "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\p{N}{1,3}|\\s+(?!\\S)|\\s+"},
             "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
             "use_regex": false}]},
          "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
          "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
            "use_regex": true},
          "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": true,
            "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3}, "merges": [["a", "b"]]}})",
      R"({"added_tokens": [{"id": 0, "content": "<unk>", "special": true},
            {"id": 1, "content": "<s>", "special": true}],
          "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
          "pre_tokenizer": null,
          "post_processor": {"type": "Sequence", "processors": [
            {"type": "ByteLevel", "trim_offsets": true}]},
          "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
          "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": {"<unk>": 0, "<s>": 1, "<0x20>": 2, "<0xC3>": 3, "<0xA9>": 4, "a": 5, "b": 6,
                      "ab": 7, "▁": 8, "▁a": 9},
            "merges": ["a b", "▁ a"]}})",
      R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": true}, {"type": "Punctuation",
             "behavior": "Contiguous"}, {"type": "Whitespace"}, {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
             "split": true}]},
          "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"},
            {"type": "Lowercase"}, {"type": "NFD"},
            {"type": "Strip", "strip_left": true, "strip_right": true},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}]},
          "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
          "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "1": 2, "▁": 3}, "merges": []}})"}));
  return samples;
}

// Encodes, decodes whole and in pieces; the results agree, whatever the tokenizer.
void Exercise(const Tokenizer& tokenizer, std::string_view text, bool keeps_text) {
  for (const SpecialTokens special : {SpecialTokens::kParse, SpecialTokens::kPlain}) {
    const auto ids = tokenizer.Encode(text, special);
    if (!ids.ok()) continue;
    const std::string decoded = tokenizer.Decode(*ids);
    TANDEM_CHECK(!keeps_text || decoded == text);
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

void CheckSamples() {
  for (const SortedJson& sample : Samples()) {
    TANDEM_CHECK(Tokenizer::Parse(sample.dump(), "", "sample").ok());
  }
}

void FuzzOne(std::string_view input) {
  static const bool checked = (CheckSamples(), true);
  (void)checked;
  static const std::unique_ptr<Tokenizer> good = MakeGood();
  if (input.empty() || input[0] != '{') Exercise(*good, input.substr(0, 300), /*keeps_text=*/true);
  std::vector<TokenId> ids;
  for (const char byte : input) ids.push_back(static_cast<unsigned char>(byte) + ids.size() % 10);
  (void)good->Decode(ids);
  const auto tokenizer = Tokenizer::Parse(input, "", "fuzzed");
  if (tokenizer.ok()) Exercise(**tokenizer, "<s> it's\u00e912  \n\u4e2dab", /*keeps_text=*/false);
}

}  // namespace
}  // namespace tandem

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return tandem::JsonMutator(tandem::Samples(), seed).MutateText(data, size, max_size, 4);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
