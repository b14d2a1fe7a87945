#include "model/tokenizer/tokenizer.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/field_error.h"
#include "base/hash_map.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "model/formats/json_text.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/decoder.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/post_processor.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/unicode.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// An element of "added_tokens".
absl::StatusOr<AddedToken> ReadAddedToken(const JsonField& entry, int64_t highest_id) {
  AddedToken token;
  ASSIGN_OR_RETURN(const JsonField content, entry.Member("content"));
  ASSIGN_OR_RETURN(token.content, content.String());
  if (token.content.empty()) return content.Error("is empty");
  ASSIGN_OR_RETURN(const JsonField id_field, entry.Member("id"));
  ASSIGN_OR_RETURN(const int64_t id, id_field.Integer(0, highest_id));
  token.id = static_cast<TokenId>(id);
  const std::pair<const char*, bool*> flags[] = {{"special", &token.special},
                                                 {"single_word", &token.single_word},
                                                 {"lstrip", &token.left_strip},
                                                 {"rstrip", &token.right_strip}};
  for (const auto& [key, flag] : flags) {
    ASSIGN_OR_RETURN(const JsonField member, entry.Member(key));
    ASSIGN_OR_RETURN(*flag, member.Bool(false));
  }
  ASSIGN_OR_RETURN(const JsonField normalized, entry.Member("normalized"));
  ASSIGN_OR_RETURN(token.normalized, normalized.Bool(!token.special));
  return token;
}

class BpeTokenizer final : public Tokenizer {
 public:
  absl::Status Init(const JsonField& file);
  absl::Status ReadConfig(const JsonField& config) {
    return post_processor_.ReadConfig(config,
                                      [this](std::string_view token) { return IdOf(token); });
  }

  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                              SpecialTokens special) const override;
  absl::StatusOr<std::vector<TokenId>> EncodeMarked(
      absl::Span<const MarkedText> parts) const override;
  std::vector<TokenId> WithTemplate(std::vector<TokenId> ids) const override {
    return post_processor_.Apply(std::move(ids));
  }
  std::string Decode(absl::Span<const TokenId> ids, bool skip_special) const override;
  int vocab_size() const override { return static_cast<int>(entries_.size()); }
  bool IsSpecial(TokenId id) const override { return IsInRange(id) && entries_[id].is_special; }
  TokenId IdOf(std::string_view token) const override;
  std::optional<TokenText> TextOf(TokenId id, bool is_first) const override;
  const TextRules& text_rules() const override { return decoder_.rules(); }

 private:
  // What is known of an id.
  struct Entry {
    std::string bytes;
    bool is_known = false;
    bool is_byte = false;
    bool is_special = false;
  };

  bool IsInRange(TokenId id) const { return id >= 0 && id < vocab_size(); }
  absl::Status AddEntry(TokenId id, std::string_view token, bool is_special);
  absl::Status ReadAddedTokens(const JsonField& field);
  absl::Status CheckIsNew(const AddedToken& token, const JsonField& entry) const;
  absl::Status EncodePart(std::string_view text, bool is_first, SpecialTokens special,
                          std::vector<TokenId>* ids) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BytePairEncoder encoder_;
  TokenDecoder decoder_;
  PostProcessor post_processor_;
  std::vector<Entry> entries_;  // [vocab]
  // Of the ids whose bytes are others where they begin a text.
  HashMap<TokenId, std::string> first_bytes_;
  HashMap<std::string, TokenId> added_ids_;
  AddedTokenFinder raw_finder_;         // in the text as it is
  AddedTokenFinder normalized_finder_;  // in what the normaliser makes of it
};

absl::Status BpeTokenizer::Init(const JsonField& file) {
  RETURN_IF_ERROR(file.CheckObject());
  ASSIGN_OR_RETURN(const JsonField version, file.Member("version"));
  if (!version.is_null() && version.value() != "1.0") {
    return version.Error("is not implemented, allowed: \"1.0\"");
  }
  // "truncation" and "padding" are for batches of training texts: prompts are generated from whole,
  // and get neither.
  ASSIGN_OR_RETURN(const JsonField normalizer, file.Member("normalizer"));
  ASSIGN_OR_RETURN(normalizer_, Normalizer::FromJson(normalizer));
  ASSIGN_OR_RETURN(const JsonField pre_tokenizer, file.Member("pre_tokenizer"));
  ASSIGN_OR_RETURN(pre_tokenizer_, PreTokenizer::FromJson(pre_tokenizer));
  ASSIGN_OR_RETURN(const JsonField decoder, file.Member("decoder"));
  ASSIGN_OR_RETURN(decoder_, TokenDecoder::FromJson(decoder));
  ASSIGN_OR_RETURN(const JsonField model, file.Member("model"));
  ASSIGN_OR_RETURN(encoder_, BytePairEncoder::FromJson(model));
  entries_.resize(encoder_.tokens().size());
  for (size_t id = 0; id < encoder_.tokens().size(); ++id) {
    const std::string& token = encoder_.tokens()[id];
    if (token.empty()) continue;
    RETURN_IF_ERROR(AddEntry(static_cast<TokenId>(id), token, /*is_special=*/false));
  }
  ASSIGN_OR_RETURN(const JsonField added, file.Member("added_tokens"));
  if (!added.is_null()) RETURN_IF_ERROR(ReadAddedTokens(added));
  ASSIGN_OR_RETURN(const JsonField post_processor, file.Member("post_processor"));
  ASSIGN_OR_RETURN(post_processor_, PostProcessor::FromJson(post_processor, vocab_size()));
  return absl::OkStatus();
}

absl::Status BpeTokenizer::AddEntry(TokenId id, std::string_view token, bool is_special) {
  if (!IsInRange(id)) entries_.resize(id + 1);
  ASSIGN_OR_RETURN(TokenDecoder::Text text, decoder_.TextOf(token, /*is_first=*/false));
  if (decoder_.first_differs()) {
    ASSIGN_OR_RETURN(TokenDecoder::Text first, decoder_.TextOf(token, /*is_first=*/true));
    if (first.bytes != text.bytes) first_bytes_[id] = std::move(first.bytes);
  }
  entries_[id] = {.bytes = std::move(text.bytes),
                  .is_known = true,
                  .is_byte = text.is_byte,
                  .is_special = is_special};
  return absl::OkStatus();
}

// An added token has an id of its own, or is the vocabulary's token of that id.
absl::Status BpeTokenizer::CheckIsNew(const AddedToken& token, const JsonField& entry) const {
  ASSIGN_OR_RETURN(const JsonField content, entry.Member("content"));
  ASSIGN_OR_RETURN(const JsonField id, entry.Member("id"));
  if (added_ids_.contains(token.content)) return content.Error("is in added_tokens already");
  const TokenId known_id = encoder_.IdOf(token.content);
  if (known_id >= 0 && known_id != token.id) {
    return id.Error(
        absl::StrCat("is not the id of ", Quoted(token.content), " in model.vocab, ", known_id));
  }
  if (known_id < 0 && IsInRange(token.id) && entries_[token.id].is_known) {
    return id.Error("is the id of another token already");
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::ReadAddedTokens(const JsonField& field) {
  RETURN_IF_ERROR(field.CheckArray());
  const int64_t highest_id = HighestTokenId(encoder_.num_entries() + field.value().size());
  // The reference looks for special ones first; that matters where two are the same once
  // normalised.
  std::vector<AddedToken> raw, normalized, special_normalized;
  for (size_t i = 0; i < field.value().size(); ++i) {
    ASSIGN_OR_RETURN(const JsonField entry, field.Element(i));
    ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(entry, highest_id));
    RETURN_IF_ERROR(CheckIsNew(token, entry));
    RETURN_IF_ERROR(AddEntry(token.id, token.content, token.special));
    added_ids_[token.content] = token.id;
    if (!token.normalized) {
      raw.push_back(std::move(token));
      continue;
    }
    ASSIGN_OR_RETURN(token.content, normalizer_.Apply(std::move(token.content)));
    if (token.content.empty())
      return entry.Error("has content of which the normalizer leaves nothing");
    (token.special ? special_normalized : normalized).push_back(std::move(token));
  }
  special_normalized.insert(special_normalized.end(), normalized.begin(), normalized.end());
  raw_finder_ = AddedTokenFinder(std::move(raw));
  normalized_finder_ = AddedTokenFinder(std::move(special_normalized));
  return absl::OkStatus();
}

TokenId BpeTokenizer::IdOf(std::string_view token) const {
  const auto it = added_ids_.find(View(token));
  return it != added_ids_.end() ? it->second : encoder_.IdOf(token);
}

absl::StatusOr<std::vector<TokenId>> BpeTokenizer::Encode(std::string_view text,
                                                          SpecialTokens special) const {
  return EncodeMarked({{.text = text, .special = special}});
}

absl::StatusOr<std::vector<TokenId>> BpeTokenizer::EncodeMarked(
    absl::Span<const MarkedText> parts) const {
  std::string text;
  std::vector<TextRange> plain;
  for (const MarkedText& part : parts) {
    if (part.special == SpecialTokens::kPlain && !part.text.empty()) {
      plain.push_back({text.size(), text.size() + part.text.size()});
    }
    text += part.text;
  }
  if (const size_t at = FindInvalidUtf8(text); at != std::string_view::npos) {
    return FieldError("text", absl::StrCat("is not UTF-8 at byte ", at, " of ", text.size()));
  }
  std::vector<TokenId> ids;
  for (const TextPart& part : raw_finder_.Cut(text, plain)) {
    if (part.added_id >= 0) {
      ids.push_back(part.added_id);
    } else {
      const size_t begin = part.text.data() - text.data();
      const bool is_first = begin == 0;
      const SpecialTokens special = FirstOverlap(plain, {begin, begin + part.text.size()})
                                        ? SpecialTokens::kPlain
                                        : SpecialTokens::kParse;
      RETURN_IF_ERROR(EncodePart(part.text, is_first, special, &ids));
    }
  }
  return ids;
}

// Text without added tokens that are looked for before the normaliser.
absl::Status BpeTokenizer::EncodePart(std::string_view text, bool is_first, SpecialTokens special,
                                      std::vector<TokenId>* ids) const {
  ASSIGN_OR_RETURN(const std::string normal, normalizer_.Apply(std::string(text)));
  std::vector<TextRange> plain;
  if (special == SpecialTokens::kPlain) plain.push_back({0, normal.size()});
  for (const TextPart& part : normalized_finder_.Cut(normal, plain)) {
    if (part.added_id >= 0) {
      ids->push_back(part.added_id);
      continue;
    }
    const bool part_is_first = is_first && part.text.data() == normal.data();
    ASSIGN_OR_RETURN(
        const std::vector<PreTokenizer::Piece> pieces,
        pre_tokenizer_.Split({.text = std::string(part.text), .is_first = part_is_first}));
    for (const PreTokenizer::Piece& piece : pieces) {
      RETURN_IF_ERROR(encoder_.Encode(piece.text, ids));
    }
  }
  return absl::OkStatus();
}

std::optional<Tokenizer::TokenText> BpeTokenizer::TextOf(TokenId id, bool is_first) const {
  if (!IsInRange(id) || !entries_[id].is_known) return std::nullopt;
  if (is_first) {
    const auto it = first_bytes_.find(id);
    if (it != first_bytes_.end()) return TokenText{.bytes = it->second, .is_byte = false};
  }
  return TokenText{.bytes = entries_[id].bytes, .is_byte = entries_[id].is_byte};
}

std::string BpeTokenizer::Decode(absl::Span<const TokenId> ids, bool skip_special) const {
  const std::unique_ptr<Detokenizer> detokenizer = Detokenizer::New(this, {}, skip_special);
  std::string text;
  for (const TokenId id : ids) text += detokenizer->Push(id);
  return text + detokenizer->Flush();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Parse(std::string_view contents,
                                                            std::string_view config,
                                                            const std::string& name) {
  ASSIGN_OR_RETURN(const JsonDocument file, ParseJsonDocument(View(contents), name));
  auto tokenizer = std::make_unique<BpeTokenizer>();
  RETURN_IF_ERROR(tokenizer->Init(JsonField(&*file, name)));
  if (!config.empty()) {
    const std::string config_name =
        (fs::path(name).parent_path() / "tokenizer_config.json").string();
    ASSIGN_OR_RETURN(const JsonDocument config_file, ParseJsonDocument(View(config), config_name));
    RETURN_IF_ERROR(tokenizer->ReadConfig(JsonField(&*config_file, config_name)));
  }
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& path) {
  std::error_code error;
  const fs::path file =
      fs::is_directory(path, error) ? fs::path(path) / "tokenizer.json" : fs::path(path);
  const absl::StatusOr<std::string> contents = ReadFile(file.string());
  if (absl::IsNotFound(contents.status()) &&
      fs::exists(file.parent_path() / "tokenizer.model", error)) {
    return absl::NotFoundError(
        absl::StrCat(file.string(),
                     ": not found; tokenizer.model beside it (SentencePiece) is not implemented, "
                     "tokenizer.json is needed"));
  }
  RETURN_IF_ERROR(contents.status());
  const std::string config_path = (file.parent_path() / "tokenizer_config.json").string();
  absl::StatusOr<std::string> config = ReadFile(config_path);
  if (absl::IsNotFound(config.status())) return Parse(*contents, "", file.string());
  RETURN_IF_ERROR(config.status());
  if (config->empty()) return absl::InvalidArgumentError(absl::StrCat(config_path, ": is empty"));
  return Parse(*contents, *config, file.string());
}

}  // namespace tandem
