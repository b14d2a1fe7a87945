#include "text/gguf_tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "model/checkpoint/gguf_keys.h"
#include "text/bpe_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"

namespace tandem {
namespace {

// The expressions of the models' own tokenizer.json.
constexpr char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kTekkenPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kGpt4oPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kDigitPattern[] = R"(\p{N})";

// How the texts of a family of models are cut, and the other meanings of its name.
struct PreTokenization {
  std::vector<std::string_view> names;
  std::vector<std::string_view> patterns;  // each cuts the pieces of the one before
  bool ignore_merges = false;
  bool adds_bos = false;  // if add_bos_token is absent
  bool composes = false;  // to NFC, as the models' own tokenizer.json does and llama.cpp does not
};

const std::vector<PreTokenization>& PreTokenizations() {
  static const auto& table = *new std::vector<PreTokenization>{
      {.names = {"llama-bpe", "llama3", "llama-v3"},
       .patterns = {kLlama3Pattern},
       .ignore_merges = true,
       .adds_bos = true},
      {.names = {"qwen2", "deepseek-r1-qwen"}, .patterns = {kQwen2Pattern}, .composes = true},
      {.names = {"glm4"}, .patterns = {kLlama3Pattern}, .ignore_merges = true},
      {.names = {"dbrx", "smaug-bpe", "chatglm-bpe"}, .patterns = {kLlama3Pattern}},
      {.names = {"smollm", "refact", "starcoder"}, .patterns = {kDigitPattern, kGpt2Pattern}},
      {.names = {"command-r"}, .patterns = {kDigitPattern, kGpt2Pattern}, .composes = true},
      {.names = {"gpt-4o"}, .patterns = {kGpt4oPattern}},
      {.names = {"gpt-2"}, .patterns = {kGpt2Pattern}},
      {.names = {"tekken"}, .patterns = {kTekkenPattern}, .ignore_merges = true, .adds_bos = true},
      {.names = {"default"},
       .patterns = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}}};
  return table;
}

absl::Status Wrong(const GgufFile& file, const char* key, absl::string_view found,
                   absl::string_view allowed) {
  return NotAllowed(absl::StrCat(file.path(), ": key ", Quoted(key)), found, allowed);
}

absl::StatusOr<const PreTokenization*> ReadPre(const GgufFile& file) {
  std::vector<std::string_view> allowed;
  const bool has_name = file.Has(kGgufPre);
  std::string_view name;
  if (has_name) {
    ASSIGN_OR_RETURN(name, file.GetString(kGgufPre));
  }
  for (const PreTokenization& entry : PreTokenizations()) {
    for (const std::string_view candidate : entry.names) {
      if (has_name && candidate == name) return &entry;
      allowed.push_back(candidate);
    }
  }
  return Wrong(file, kGgufPre, has_name ? Quoted(View(name)) : "nothing",
               absl::StrJoin(allowed, ", ", [](std::string* out, std::string_view candidate) {
                 absl::StrAppend(out, View(candidate));
               }));
}

absl::StatusOr<bool> GetBoolOr(const GgufFile& file, const char* key, bool if_absent) {
  if (!file.Has(key)) return if_absent;
  return file.GetBool(key);
}

// Reads an id of the vocabulary. Returns `if_absent` if the key is absent, or -1 if that is not in
// the vocabulary.
absl::StatusOr<TokenId> GetIdOr(const GgufFile& file, const char* key, TokenId if_absent,
                                size_t vocab_size) {
  const auto size = static_cast<int64_t>(vocab_size);
  if (!file.Has(key)) return if_absent < size ? if_absent : -1;
  ASSIGN_OR_RETURN(const int64_t id, file.GetInteger(key, 0, size - 1));
  return static_cast<TokenId>(id);
}

absl::Status CheckCount(const GgufFile& file, const char* key, size_t count, size_t vocab_size) {
  if (count == vocab_size) return absl::OkStatus();
  return Wrong(file, key, absl::StrCat(count, " elements"),
               absl::StrCat(vocab_size, ", as many as tokens"));
}

// Returns whether a token ends an answer, or a turn of one. Some files call such tokens normal, so
// that a user could write them; llama.cpp treats them as control tokens as well.
bool EndsTurns(std::string_view token) {
  constexpr std::string_view kTokens[] = {
      "</s>",       "<EOT>",      "<end_of_turn>", "<|end_of_text|>", "<|end|>",
      "<|eom_id|>", "<|eot_id|>", "<|endoftext|>", "<|im_end|>"};
  return std::find(std::begin(kTokens), std::end(kTokens), token) != std::end(kTokens);
}

// Returns whether this is the name that converters give to an id of the model without a token of
// the tokenizer.
bool IsHole(std::string_view token, TokenKind kind, size_t id) {
  return kind == TokenKind::kUnused && View(token) == absl::StrCat("[PAD", id, "]");
}

absl::StatusOr<KindedTokens> ReadTokens(const GgufFile& file) {
  KindedTokens tokens;
  tokens.path = absl::StrCat(file.path(), ": ", kGgufTokens);
  ASSIGN_OR_RETURN(const std::vector<std::string_view> texts, file.GetStrings(kGgufTokens));
  if (texts.empty()) return Wrong(file, kGgufTokens, "no tokens", "one or more");
  tokens.tokens.assign(texts.begin(), texts.end());
  tokens.kinds.assign(texts.size(), TokenKind::kNormal);
  if (file.Has(kGgufTokenKinds)) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> kinds, file.GetIntegers(kGgufTokenKinds));
    RETURN_IF_ERROR(CheckCount(file, kGgufTokenKinds, kinds.size(), texts.size()));
    for (size_t id = 0; id < kinds.size(); ++id) {
      if (kinds[id] < 1 || kinds[id] > 6) {
        return Wrong(file, kGgufTokenKinds, absl::StrCat(kinds[id], " at ", id), "1 to 6");
      }
      tokens.kinds[id] = static_cast<TokenKind>(kinds[id]);
    }
  }
  for (size_t id = 0; id < texts.size(); ++id) {
    TokenKind& kind = tokens.kinds[id];
    const bool is_ordinary = kind == TokenKind::kNormal || kind == TokenKind::kUserDefined;
    if (is_ordinary && EndsTurns(texts[id])) kind = TokenKind::kControl;
    if (IsHole(texts[id], kind, id)) tokens.tokens[id].clear();
  }
  return tokens;
}

// Reads the tokens around a text; `ends` has the defaults of absent keys.
absl::StatusOr<PostProcessor> ReadEnds(const GgufFile& file, PostProcessor::Ends ends,
                                       size_t vocab_size) {
  ASSIGN_OR_RETURN(ends.adds_bos, GetBoolOr(file, kGgufAddBos, ends.adds_bos));
  ASSIGN_OR_RETURN(ends.adds_eos, GetBoolOr(file, kGgufAddEos, ends.adds_eos));
  ASSIGN_OR_RETURN(ends.bos, GetIdOr(file, kGgufBos, ends.bos, vocab_size));
  ASSIGN_OR_RETURN(ends.eos, GetIdOr(file, kGgufEnds[0], ends.eos, vocab_size));
  if (ends.adds_bos && ends.bos < 0) {
    return Wrong(file, kGgufBos, "nothing", "the id of the token before a text");
  }
  if (ends.adds_eos && ends.eos < 0) {
    return Wrong(file, kGgufEnds[0], "nothing", "the id of the token after a text");
  }
  return PostProcessor::Around(ends);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadByteLevel(const GgufFile& file) {
  ASSIGN_OR_RETURN(const PreTokenization* const pre, ReadPre(file));
  ASSIGN_OR_RETURN(const KindedTokens tokens, ReadTokens(file));
  ASSIGN_OR_RETURN(const std::vector<std::string_view> merges, file.GetStrings(kGgufMerges));
  BpeTokenizer::Parts parts;
  if (pre->composes) parts.normalizer = Normalizer::Nfc();
  ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::ByteLevel(pre->patterns));
  ASSIGN_OR_RETURN(
      parts.encoder,
      BytePairEncoder::FromMerges(
          tokens.List(), merges, absl::StrCat(file.path(), ": ", kGgufMerges), pre->ignore_merges));
  parts.decoder = TokenDecoder::ByteLevel();
  parts.added_tokens = tokens.AddedTokens();
  ASSIGN_OR_RETURN(auto tokenizer, BpeTokenizer::New(std::move(parts)));
  PostProcessor::Ends ends;
  ends.adds_bos = pre->adds_bos;
  ASSIGN_OR_RETURN(tokenizer->post_processor(), ReadEnds(file, ends, tokens.tokens.size()));
  return tokenizer;
}

// The ids of SentencePiece's models if the keys are absent.
constexpr TokenId kDefaultUnknown = 0;
constexpr TokenId kDefaultBos = 1;
constexpr TokenId kDefaultEos = 2;

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadSentencePiece(const GgufFile& file) {
  SentencePieceModel model;
  ASSIGN_OR_RETURN(model.pieces, ReadTokens(file));
  const size_t vocab_size = model.pieces.tokens.size();
  ASSIGN_OR_RETURN(model.scores, file.GetFloats(kGgufScores));
  RETURN_IF_ERROR(CheckCount(file, kGgufScores, model.scores.size(), vocab_size));
  ASSIGN_OR_RETURN(model.unknown, GetIdOr(file, kGgufUnknown, kDefaultUnknown, vocab_size));
  // A token of text cannot be the unknown token: it would be merged with its neighbours.
  if (!model.pieces.IsSpecial(model.unknown)) model.unknown = -1;
  ASSIGN_OR_RETURN(model.adds_prefix, GetBoolOr(file, kGgufAddSpace, true));
  model.trims = false;
  // User-defined tokens have spaces in newer files and U+2581 in older ones.
  std::vector<AddedToken> added_tokens = model.pieces.AddedTokens();
  for (AddedToken& token : added_tokens) {
    if (!token.special) absl::StrReplaceAll({{"\u2581", " "}}, &token.content);
  }
  ASSIGN_OR_RETURN(auto tokenizer, NewSentencePieceTokenizer(model, std::move(added_tokens)));
  ASSIGN_OR_RETURN(
      tokenizer->post_processor(),
      ReadEnds(file, {.adds_bos = true, .bos = kDefaultBos, .eos = kDefaultEos}, vocab_size));
  return tokenizer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadGgufTokenizer(const GgufFile& file) {
  ASSIGN_OR_RETURN(const std::string_view model, file.GetString(kGgufTokenizerModel));
  if (model == "gpt2") return ReadByteLevel(file);
  if (model == "llama") return ReadSentencePiece(file);
  return Wrong(file, kGgufTokenizerModel, Quoted(View(model)), "gpt2, llama");
}

std::string GgufPreOf(const SortedJson& tokenizer) {
  const auto text_at = [](const SortedJson& object, const char* pointer) {
    const SortedJson::json_pointer at(pointer);
    const auto* const text =
        object.contains(at) ? object.at(at).get_ptr<const std::string*>() : nullptr;
    return text == nullptr ? "" : *text;
  };
  const SortedJson pre = tokenizer.value("pre_tokenizer", SortedJson());
  const bool composes = text_at(tokenizer, "/normalizer/type") == "NFC";
  if (!composes && !tokenizer.value("normalizer", SortedJson()).is_null()) return "";
  const bool is_sequence = text_at(pre, "/type") == "Sequence";
  const SortedJson steps =
      is_sequence ? pre.value("pretokenizers", SortedJson::array()) : SortedJson::array({pre});
  std::vector<std::string> patterns;
  for (const SortedJson& step : steps) {
    const std::string type = text_at(step, "/type");
    if (type == "Split" && text_at(step, "/behavior") == "Isolated") {
      patterns.push_back(text_at(step, "/pattern/Regex"));
    } else if (type == "Digits" && step.value("individual_digits", false)) {
      patterns.emplace_back(kDigitPattern);
    } else if (type == "ByteLevel" && !step.value("add_prefix_space", true)) {
      if (step.value("use_regex", true)) patterns.emplace_back(kGpt2Pattern);
    } else {
      return "";
    }
  }
  // Without merges it does not matter how texts are cut.
  const SortedJson::json_pointer merges("/model/merges");
  if (tokenizer.contains(merges) && tokenizer.at(merges).empty()) patterns = {kGpt2Pattern};
  // Prefer a name with the same ignore_merges.
  const SortedJson::json_pointer ignores("/model/ignore_merges");
  const bool ignore_merges = tokenizer.contains(ignores) && tokenizer.at(ignores) == true;
  std::string found;
  for (const PreTokenization& entry : PreTokenizations()) {
    const bool is_this =
        entry.composes == composes &&
        std::equal(patterns.begin(), patterns.end(), entry.patterns.begin(), entry.patterns.end());
    if (is_this && (found.empty() || entry.ignore_merges == ignore_merges)) {
      found = entry.names.front();
      if (entry.ignore_merges == ignore_merges) break;
    }
  }
  return found;
}

absl::StatusOr<bool> HasGgufTokenizer(const GgufFile& file) {
  if (!file.Has(kGgufTokenizerModel)) return false;
  ASSIGN_OR_RETURN(const std::string_view model, file.GetString(kGgufTokenizerModel));
  return model != "none" && model != "no_vocab";
}

absl::StatusOr<GgufTextEnds> ReadGgufTextEnds(const GgufFile& file) {
  GgufTextEnds ends;
  ASSIGN_OR_RETURN(const std::string_view model, file.GetString(kGgufTokenizerModel));
  ASSIGN_OR_RETURN(const std::vector<std::string_view> tokens, file.GetStrings(kGgufTokens));
  const bool has_defaults = model == "llama";
  ASSIGN_OR_RETURN(const TokenId bos,
                   GetIdOr(file, kGgufBos, has_defaults ? kDefaultBos : -1, tokens.size()));
  ASSIGN_OR_RETURN(const TokenId eos,
                   GetIdOr(file, kGgufEnds[0], has_defaults ? kDefaultEos : -1, tokens.size()));
  if (bos >= 0) ends.bos = tokens[bos];
  if (eos >= 0) ends.eos = tokens[eos];
  return ends;
}

}  // namespace tandem
