// Reads any JSON as the keys of a tokenizer in a GGUF file, mostly nearly right ones, and any bytes
// as a tokenizer.model. They must be refused with the file's name, or give a tokenizer that
// survives any text and, if it is SentencePiece's, encodes by its definition.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "base/utf8.h"
#include "tandem/detokenizer.h"
#include "tests/fuzzing.h"
#include "tests/gguf_builder.h"
#include "tests/json_mutator.h"
#include "text/gguf_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"

namespace tandem {
namespace {

using Json = SortedJson;

const std::vector<Json>& Samples() {
  static const auto& samples = *new std::vector<Json>(ParseAll({
      R"({"model": "gpt2", "pre": "llama-bpe", "bos_token_id": 6, "add_eos_token": true,
          "eos_token_id": 6, "tokens": ["a", "b", "ab", "Ġ", "1", "12", "<s>", "<t>"],
          "token_type": [1, 1, 1, 1, 1, 1, 3, 4], "merges": ["a b", "1 2"],
          "tokens": ["a", "b", "ab", "Ġ", "1", "2", "<s>", "12"]})",
      R"({"model": "llama", "tokens": ["<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "▁", "a", "b",
            "ab", "▁a", "ba", "aba", "é1", "12"], "add_space_prefix": true,
          "scores": [0, 0, 0, 0, 0, -1, -1, -1, -2.5, -2.5, -2, -7, -1, -3],
          "token_type": [2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1]})",
      R"({"model": "llama", "tokens": ["a", "b", "ab", " a"], "scores": [0, -1, -2, -3],
          "token_type": [1, 1, 5, 4], "add_bos_token": false, "add_eos_token": false,
          "unknown_token_id": 1})",
      R"({"model": "llama", "tokens": ["a", "b", "ab", "<unk>"], "scores": [0, -1, -2, -3],
          "token_type": [[]], "unknown_token_id": 3})"}));
  return samples;
}

// Encodes a list; it is of integers if all its elements are.
std::string ListValue(const Json& list) {
  bool are_integers = true, are_numbers = true, are_strings = true;
  for (const Json& element : list) {
    are_integers = are_integers && element.is_number_integer();
    are_numbers = are_numbers && element.is_number();
    are_strings = are_strings && element.is_string();
  }
  if (are_strings) return GgufStrings(list);
  std::string bytes;
  for (const Json& element : list) {
    if (!are_numbers) return "";
    bytes += are_integers ? GgufNumber(static_cast<int32_t>(element.get<int64_t>()))
                          : GgufNumber(element.get<float>());
  }
  return GgufArray(are_integers ? 5 : 6, list.size(), bytes);
}

// Returns the bytes of a key's value; empty if a file cannot hold it.
std::string ValueOf(const std::string& key, const Json& value) {
  if (value.is_string()) return GgufString(value.get<std::string>());
  if (value.is_boolean()) return GgufBool(value.get<bool>());
  if (value.is_number_integer()) return GgufUint32(static_cast<uint32_t>(value.get<int64_t>()));
  if (value.is_number_float()) return GgufFloat32(value.get<float>());
  if (!value.is_array()) return "";
  if (key != "scores") return ListValue(value);
  // Scores are floats even if all are integers.
  Json floats = value;
  if (!floats.empty() && floats[0].is_number()) floats[0] = floats[0].get<double>();
  return ListValue(floats);
}

// Removes the keys that a file cannot hold, and returns the file of the others.
std::string FileOf(Json& keys) {
  GgufBuilder file;
  for (auto key = keys.begin(); key != keys.end();) {
    const std::string bytes = ValueOf(key.key(), *key);
    if (!bytes.empty()) file.Set("tokenizer.ggml." + key.key(), bytes);
    key = bytes.empty() ? keys.erase(key) : std::next(key);
  }
  return file.Bytes();
}

// Encodes, decodes whole and in pieces; the results agree, whatever the tokenizer. Plain text does
// not become special tokens, except the `unknown` one and those of bytes ("<0xC3>"), which are
// found by their text even if a file calls them control tokens.
void Exercise(const Tokenizer& tokenizer, std::string_view text, TokenId unknown) {
  for (const SpecialTokens special : {SpecialTokens::kParse, SpecialTokens::kPlain}) {
    const auto ids = tokenizer.Encode(text, special);
    if (!ids.ok()) continue;
    const auto detokenizer = Detokenizer::New(&tokenizer, {}, /*skip_special=*/false);
    std::string joined;
    for (const TokenId id : *ids) {
      TANDEM_CHECK(id >= 0 && id < tokenizer.vocab_size());
      const auto token = tokenizer.TextOf(id, /*is_first=*/false);
      TANDEM_CHECK(special == SpecialTokens::kParse || !tokenizer.IsSpecial(id) || id == unknown ||
                   (token.has_value() && token->bytes.starts_with("<0x")));
      joined += detokenizer->Push(id);
    }
    TANDEM_CHECK(joined + detokenizer->Flush() == tokenizer.Decode(*ids));
    (void)tokenizer.WithTemplate(*ids);
  }
}

// Returns whether text may become a token: it is normal or unused. Callers exclude user-defined
// tokens.
bool IsOfText(const Json& keys, size_t id) {
  if (!keys.contains("token_type")) return true;
  const Json& kind = keys["token_type"][id];
  return kind == 1 || kind == 5;
}

// Returns the symbols of a text by SentencePiece's definition, which joins neighbours as long as
// that makes tokens. REQUIRES: a file with `keys` has been read.
std::vector<std::string> Merged(const Json& keys, std::string_view text) {
  std::vector<std::string> symbols;
  for (size_t at = 0; at < text.size(); at += ReadUtf8(text.substr(at)).size) {
    symbols.emplace_back(text.substr(at, ReadUtf8(text.substr(at)).size));
  }
  const auto score_of = [&](const std::string& token) {
    for (size_t id = 0; id < keys["tokens"].size(); ++id) {
      if (keys["tokens"][id] == token && IsOfText(keys, id)) {
        return static_cast<double>(keys["scores"][id].get<float>());
      }
    }
    return -std::numeric_limits<double>::infinity();
  };
  while (true) {
    double best = -std::numeric_limits<double>::infinity();
    size_t place = symbols.size();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const double score = score_of(symbols[i] + symbols[i + 1]);
      if (score > best) place = i;
      best = std::max(best, score);
    }
    if (place == symbols.size()) return symbols;
    symbols[place] += symbols[place + 1];
    symbols.erase(symbols.begin() + static_cast<int64_t>(place) + 1);
  }
}

// Checks that the tokens of the definition are in the encoded text, in order, possibly with others
// between.
void CheckMerges(const Json& keys, const Tokenizer& tokenizer, std::string_view text) {
  for (const Json& kind : keys.value("token_type", Json::array())) {
    if (kind == 4) return;  // user-defined tokens cut the text
  }
  const auto ids = tokenizer.Encode(text, SpecialTokens::kPlain);
  if (!ids.ok()) return;
  std::string marked = absl::StrReplaceAll(View(text), {{" ", "\u2581"}});
  if (keys.value("add_space_prefix", Json()) != Json(false)) marked.insert(0, "\u2581");
  std::vector<TokenId> expected;
  for (const std::string& symbol : Merged(keys, marked)) {
    const TokenId id = tokenizer.IdOf(symbol);
    if (id >= 0 && IsOfText(keys, id)) expected.push_back(id);
  }
  size_t next = 0;
  for (const TokenId id : *ids) {
    if (next < expected.size() && id == expected[next]) ++next;
  }
  TANDEM_CHECK(next == expected.size());
}

void FuzzKeys(Json keys) {
  constexpr char kText[] = "ab<s> aba1\u00e912 \u4e2dab</s>  ba";
  const std::string bytes = FileOf(keys);
  const auto file =
      GgufFile::Parse({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "fuzz");
  if (!file.ok()) return CheckRefusal(file.status());
  const auto tokenizer = ReadGgufTokenizer(**file);
  if (!tokenizer.ok()) return CheckRefusal(tokenizer.status());
  const Json unknown = keys.value("unknown_token_id", Json(0));
  Exercise(**tokenizer, kText,
           static_cast<TokenId>(unknown.is_number_integer() ? unknown.get<int64_t>() : 0));
  if (keys["model"] == "llama") CheckMerges(keys, **tokenizer, kText);
  const auto ends = ReadGgufTextEnds(**file);
  TANDEM_CHECK(ends.ok());
}

void FuzzOne(std::string_view input) {
  const auto tokenizer = ParseSentencePieceTokenizer(input, "", "fuzz");
  if (tokenizer.ok()) {
    const auto model = ParseSentencePieceModel(input, "fuzz");
    Exercise(**tokenizer, " ab  a<s>\u00e9", model->unknown);
  } else {
    CheckRefusal(tokenizer.status());
  }
  const Json keys = Json::parse(input, nullptr, /*allow_exceptions=*/false);
  if (keys.is_object()) FuzzKeys(keys);
}

// A tokenizer.model with pieces of every type.
std::string SampleModel() {
  const auto bytes = [](int number, const std::string& value) {
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(value.size())} + value;
  };
  const auto integer = [](int number, int value) {
    return std::string{static_cast<char>(number << 3), static_cast<char>(value)};
  };
  std::string model;
  const std::pair<const char*, int> pieces[] = {{"<unk>", 2},  {"<s>", 3}, {"</s>", 3},
                                                {"<0x61>", 6}, {"b", 1},   {"\u2581", 1},
                                                {"ab", 1},     {"ba", 4},  {"\u2581ab", 1}};
  for (const auto& [piece, type] : pieces) {
    model += bytes(1, bytes(1, piece) + std::string("\x15\0\0\x80\x3f", 5) + integer(3, type));
  }
  return model + bytes(2, integer(3, 2)) + bytes(3, integer(3, 1) + integer(4, 1));
}

void CheckSamples() {
  TANDEM_CHECK(ParseSentencePieceTokenizer(SampleModel(), "", "sample").ok());
  for (Json sample : Samples()) {
    FuzzKeys(sample);
    const std::string bytes = FileOf(sample);
    const auto file =
        GgufFile::Parse({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "sample");
    TANDEM_CHECK(file.ok() && ReadGgufTokenizer(**file).ok());
  }
}

}  // namespace
}  // namespace tandem

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  tandem::JsonMutator mutator(tandem::Samples(), seed);
  if (mutator.Below(3) != 0) return mutator.MutateText(data, size, max_size);
  const std::string model = tandem::SampleModel();
  if (mutator.Below(4) == 0 && model.size() <= max_size) {
    std::memcpy(data, model.data(), model.size());
    size = model.size();
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool checked = (tandem::CheckSamples(), true);
  TANDEM_CHECK(checked);
  tandem::FuzzOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
