#include "model/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/decoder.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/unicode.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostTokens = int64_t{1} << 24;

absl::StatusOr<Json> ParseJson(std::string_view contents, const std::string& name) {
  Json json = Json::parse(contents, nullptr, /*allow_exceptions=*/false);
  if (!json.is_discarded()) return json;
  return absl::InvalidArgumentError(absl::StrCat(name, ": is not JSON"));
}

// What stands around a text.
struct Template {
  std::vector<TokenId> before;
  std::vector<TokenId> after;
};

class BpeTokenizer final : public Tokenizer {
 public:
  absl::Status Init(const JsonField& file);
  absl::Status ReadConfig(const JsonField& config);

  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                              SpecialTokens special) const override;
  std::vector<TokenId> WithTemplate(std::vector<TokenId> ids) const override;
  std::string Decode(absl::Span<const TokenId> ids, bool skip_special) const override;
  int vocab_size() const override { return static_cast<int>(texts_.size()); }
  bool IsSpecial(TokenId id) const override { return IsKnown(id) && is_special_[id]; }
  TokenId IdOf(std::string_view token) const override;
  TokenText TextOf(TokenId id) const override {
    if (!IsKnown(id)) return {};
    return {.bytes = texts_[id].bytes, .is_byte = texts_[id].is_byte};
  }
  bool has_byte_tokens() const override { return decoder_.has_byte_tokens(); }
  int num_stripped() const override { return decoder_.num_stripped(); }
  std::string_view separator() const override { return decoder_.separator(); }

 private:
  bool IsKnown(TokenId id) const { return id >= 0 && id < vocab_size(); }
  absl::Status ReadAddedTokens(const JsonField& field);
  absl::Status ReadPostProcessor(const JsonField& field);
  absl::Status ReadTemplate(const JsonField& field);
  absl::Status AddTemplateToken(const JsonField& config, const char* flag, const char* token_key,
                                bool in_front);
  absl::Status EncodePart(std::string_view text, bool is_first, SpecialTokens special,
                          std::vector<TokenId>* ids) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BytePairEncoder encoder_;
  TokenDecoder decoder_;
  Template template_;
  std::vector<TokenDecoder::TokenText> texts_;  // [vocab]
  std::vector<bool> is_special_;                // [vocab]
  absl::flat_hash_map<std::string, TokenId> added_ids_;
  AddedTokenFinder raw_finder_;         // in the text as it is
  AddedTokenFinder normalized_finder_;  // in what the normaliser makes of it
};

absl::Status BpeTokenizer::Init(const JsonField& file) {
  RETURN_IF_ERROR(file.CheckObject());
  // "truncation" and "padding" are about batches of training texts; prompts get neither.
  ASSIGN_OR_RETURN(const JsonField normalizer, file.Member("normalizer"));
  ASSIGN_OR_RETURN(normalizer_, Normalizer::FromJson(normalizer));
  ASSIGN_OR_RETURN(const JsonField pre_tokenizer, file.Member("pre_tokenizer"));
  ASSIGN_OR_RETURN(pre_tokenizer_, PreTokenizer::FromJson(pre_tokenizer));
  ASSIGN_OR_RETURN(const JsonField model, file.Member("model"));
  ASSIGN_OR_RETURN(encoder_, BytePairEncoder::FromJson(model));
  ASSIGN_OR_RETURN(const JsonField decoder, file.Member("decoder"));
  ASSIGN_OR_RETURN(decoder_, TokenDecoder::FromJson(decoder));
  for (const std::string& token : encoder_.tokens()) texts_.push_back(decoder_.TextOf(token));
  is_special_.resize(texts_.size());
  ASSIGN_OR_RETURN(const JsonField added, file.Member("added_tokens"));
  if (!added.is_null()) RETURN_IF_ERROR(ReadAddedTokens(added));
  ASSIGN_OR_RETURN(const JsonField post_processor, file.Member("post_processor"));
  return post_processor.is_null() ? absl::OkStatus() : ReadPostProcessor(post_processor);
}

absl::Status BpeTokenizer::ReadAddedTokens(const JsonField& field) {
  RETURN_IF_ERROR(field.CheckArray());
  std::vector<AddedToken> raw, normalized;
  for (size_t i = 0; i < field.value().size(); ++i) {
    ASSIGN_OR_RETURN(const JsonField entry, field.Element(i));
    AddedToken token;
    ASSIGN_OR_RETURN(const JsonField content, entry.Member("content"));
    ASSIGN_OR_RETURN(token.content, content.String());
    if (token.content.empty()) return content.Error("is empty");
    ASSIGN_OR_RETURN(const JsonField id_field, entry.Member("id"));
    ASSIGN_OR_RETURN(const int64_t id, id_field.Integer(0, kMostTokens - 1));
    token.id = static_cast<TokenId>(id);
    const std::pair<const char*, bool*> flags[] = {{"special", &token.special},
                                                   {"single_word", &token.single_word},
                                                   {"lstrip", &token.left_strip},
                                                   {"rstrip", &token.right_strip}};
    for (const auto& [key, flag] : flags) {
      ASSIGN_OR_RETURN(const JsonField member, entry.Member(key));
      ASSIGN_OR_RETURN(*flag, member.Bool(false));
    }
    ASSIGN_OR_RETURN(const JsonField member, entry.Member("normalized"));
    ASSIGN_OR_RETURN(token.normalized, member.Bool(!token.special));
    if (vocab_size() <= id) {
      texts_.resize(id + 1);
      is_special_.resize(id + 1);
    }
    texts_[id] = decoder_.TextOf(token.content);
    is_special_[id] = token.special;
    added_ids_[token.content] = token.id;
    if (token.normalized) {
      ASSIGN_OR_RETURN(token.content, normalizer_.Apply(std::move(token.content)));
    }
    (token.normalized ? normalized : raw).push_back(std::move(token));
  }
  raw_finder_ = AddedTokenFinder(std::move(raw));
  normalized_finder_ = AddedTokenFinder(std::move(normalized));
  return absl::OkStatus();
}

absl::Status BpeTokenizer::ReadPostProcessor(const JsonField& field) {
  ASSIGN_OR_RETURN(const std::string type, field.Type());
  if (type == "ByteLevel") return absl::OkStatus();  // about offsets; it adds nothing
  if (type == "TemplateProcessing") return ReadTemplate(field);
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const JsonField parts, field.Member("processors"));
    RETURN_IF_ERROR(parts.CheckArray());
    for (size_t i = 0; i < parts.value().size(); ++i) {
      ASSIGN_OR_RETURN(const JsonField part, parts.Element(i));
      RETURN_IF_ERROR(ReadPostProcessor(part));
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const JsonField member, field.Member("type"));
  return member.Error("is not implemented; there are ByteLevel, TemplateProcessing and Sequence");
}

absl::Status BpeTokenizer::ReadTemplate(const JsonField& field) {
  ASSIGN_OR_RETURN(const JsonField single, field.Member("single"));
  ASSIGN_OR_RETURN(const JsonField special_tokens, field.Member("special_tokens"));
  RETURN_IF_ERROR(single.CheckArray());
  Template result;
  bool after_text = false;
  for (size_t i = 0; i < single.value().size(); ++i) {
    ASSIGN_OR_RETURN(const JsonField piece, single.Element(i));
    ASSIGN_OR_RETURN(const JsonField special, piece.Member("SpecialToken"));
    if (special.is_null()) {
      ASSIGN_OR_RETURN(const JsonField sequence, piece.Member("Sequence"));
      ASSIGN_OR_RETURN(const JsonField name, sequence.Member("id"));
      if (name.value() != "A" || after_text) return name.Error("is not the only text, \"A\"");
      after_text = true;
      continue;
    }
    ASSIGN_OR_RETURN(const JsonField name_field, special.Member("id"));
    ASSIGN_OR_RETURN(const std::string name, name_field.String());
    ASSIGN_OR_RETURN(const JsonField entry, special_tokens.Member(name));
    if (entry.is_null()) return name_field.Error("is not in special_tokens");
    ASSIGN_OR_RETURN(const JsonField ids, entry.Member("ids"));
    RETURN_IF_ERROR(ids.CheckArray());
    for (size_t j = 0; j < ids.value().size(); ++j) {
      ASSIGN_OR_RETURN(const JsonField id_field, ids.Element(j));
      ASSIGN_OR_RETURN(const int64_t id, id_field.Integer(0, vocab_size() - 1));
      (after_text ? result.after : result.before).push_back(static_cast<TokenId>(id));
    }
  }
  if (!after_text)
    return single.Error("has no place for the text, {\"Sequence\": {\"id\": \"A\"}}");
  template_ = std::move(result);
  return absl::OkStatus();
}

absl::Status BpeTokenizer::ReadConfig(const JsonField& config) {
  RETURN_IF_ERROR(config.CheckObject());
  RETURN_IF_ERROR(AddTemplateToken(config, "add_bos_token", "bos_token", /*in_front=*/true));
  return AddTemplateToken(config, "add_eos_token", "eos_token", /*in_front=*/false);
}

// The token that `flag` asks for, unless the template has it in that place already.
absl::Status BpeTokenizer::AddTemplateToken(const JsonField& config, const char* flag,
                                            const char* token_key, bool in_front) {
  ASSIGN_OR_RETURN(const JsonField flag_field, config.Member(flag));
  ASSIGN_OR_RETURN(const bool wanted, flag_field.Bool(false));
  if (!wanted) return absl::OkStatus();
  ASSIGN_OR_RETURN(JsonField token_field, config.Member(token_key));
  if (token_field.value().is_object()) {
    ASSIGN_OR_RETURN(token_field, token_field.Member("content"));
  }
  ASSIGN_OR_RETURN(const std::string token, token_field.String());
  const TokenId id = IdOf(token);
  if (id < 0) return token_field.Error("is not a token of tokenizer.json");
  std::vector<TokenId>& place = in_front ? template_.before : template_.after;
  if (std::find(place.begin(), place.end(), id) == place.end()) {
    place.insert(in_front ? place.begin() : place.end(), id);
  }
  return absl::OkStatus();
}

TokenId BpeTokenizer::IdOf(std::string_view token) const {
  const auto it = added_ids_.find(absl::string_view(token.data(), token.size()));
  return it != added_ids_.end() ? it->second : encoder_.IdOf(token);
}

absl::StatusOr<std::vector<TokenId>> BpeTokenizer::Encode(std::string_view text,
                                                          SpecialTokens special) const {
  if (const size_t at = FindInvalidUtf8(text); at != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("text: is not UTF-8 at byte ", at, " of ", text.size()));
  }
  std::vector<TokenId> ids;
  for (const TextPart& part : raw_finder_.Cut(text, special)) {
    if (part.added_id >= 0) {
      ids.push_back(part.added_id);
    } else {
      const bool is_first = part.text.data() == text.data();
      RETURN_IF_ERROR(EncodePart(part.text, is_first, special, &ids));
    }
  }
  return ids;
}

// Text without added tokens that are looked for before the normaliser.
absl::Status BpeTokenizer::EncodePart(std::string_view text, bool is_first, SpecialTokens special,
                                      std::vector<TokenId>* ids) const {
  ASSIGN_OR_RETURN(const std::string normal, normalizer_.Apply(std::string(text)));
  for (const TextPart& part : normalized_finder_.Cut(normal, special)) {
    if (part.added_id >= 0) {
      ids->push_back(part.added_id);
      continue;
    }
    const bool part_is_first = is_first && part.text.data() == normal.data();
    ASSIGN_OR_RETURN(const std::vector<std::string> pieces,
                     pre_tokenizer_.Split(std::string(part.text), part_is_first));
    for (const std::string& piece : pieces) encoder_.Encode(piece, ids);
  }
  return absl::OkStatus();
}

std::vector<TokenId> BpeTokenizer::WithTemplate(std::vector<TokenId> ids) const {
  ids.insert(ids.begin(), template_.before.begin(), template_.before.end());
  ids.insert(ids.end(), template_.after.begin(), template_.after.end());
  return ids;
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
  ASSIGN_OR_RETURN(const Json file, ParseJson(contents, name));
  auto tokenizer = std::make_unique<BpeTokenizer>();
  RETURN_IF_ERROR(tokenizer->Init(JsonField(&file, name)));
  if (!config.empty()) {
    const std::string config_name =
        (std::filesystem::path(name).parent_path() / "tokenizer_config.json").string();
    ASSIGN_OR_RETURN(const Json config_file, ParseJson(config, config_name));
    RETURN_IF_ERROR(tokenizer->ReadConfig(JsonField(&config_file, config_name)));
  }
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path file =
      fs::is_directory(path, error) ? fs::path(path) / "tokenizer.json" : fs::path(path);
  const absl::StatusOr<std::string> contents = ReadFile(file.string());
  if (absl::IsNotFound(contents.status()) &&
      fs::exists(file.parent_path() / "tokenizer.model", error)) {
    return absl::NotFoundError(absl::StrCat(
        file.string(), ": is missing; tokenizer.model alone (SentencePiece) is not implemented"));
  }
  RETURN_IF_ERROR(contents.status());
  std::string config;
  const std::string config_path = (file.parent_path() / "tokenizer_config.json").string();
  if (fs::exists(config_path, error)) {
    ASSIGN_OR_RETURN(config, ReadFile(config_path));
    if (config.empty()) return absl::InvalidArgumentError(absl::StrCat(config_path, ": is empty"));
  }
  return Parse(*contents, config, file.string());
}

}  // namespace tandem
