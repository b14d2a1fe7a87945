#include "text/sentencepiece_tokenizer.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/hash_map.h"
#include "base/json/json_fields.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "text/component_fields.h"

namespace tandem {
namespace {

// A field of a message in the wire format: https://protobuf.dev/programming-guides/encoding/
struct WireField {
  enum class Type { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  int number = 0;
  Type type = Type::kVarint;
  uint64_t integer = 0;    // for all types but kBytes
  std::string_view bytes;  // for kBytes
};

// Reads a field. Returns false if its type is wrong.
using TakeField = std::function<absl::StatusOr<bool>(const WireField& field)>;

// Reads the fields of a message; `what` names it in errors.
class WireReader {
 public:
  WireReader(std::string_view bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {}

  absl::Status ForEach(const TakeField& take) {
    while (at_ < bytes_.size()) {
      ASSIGN_OR_RETURN(const WireField field, Next());
      ASSIGN_OR_RETURN(const bool has_type, take(field));
      if (has_type) continue;
      return Error(absl::StrCat("field ", field.number, " of type ", static_cast<int>(field.type)));
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<WireField> Next() {
    ASSIGN_OR_RETURN(const uint64_t tag, Varint());
    WireField field;
    field.number = static_cast<int>(tag >> 3 & 0x1FFFFFFF);
    field.type = static_cast<WireField::Type>(tag & 7);
    switch (field.type) {
      case WireField::Type::kVarint: {
        ASSIGN_OR_RETURN(field.integer, Varint());
        return field;
      }
      case WireField::Type::kFixed64:
      case WireField::Type::kFixed32: {
        const size_t size = field.type == WireField::Type::kFixed64 ? 8 : 4;
        ASSIGN_OR_RETURN(const std::string_view bytes, Take(size));
        std::memcpy(&field.integer, bytes.data(), size);
        return field;
      }
      case WireField::Type::kBytes: {
        ASSIGN_OR_RETURN(const uint64_t size, Varint());
        ASSIGN_OR_RETURN(field.bytes, Take(size));
        return field;
      }
    }
    return Error(absl::StrCat("a field of type ", tag & 7, ", allowed: 0, 1, 2, 5"));
  }

  absl::Status Error(absl::string_view found) const {
    return NotAllowed(what_, absl::StrCat(found, " before byte ", at_, " of ", bytes_.size()),
                      "a SentencePiece model");
  }

  absl::StatusOr<std::string_view> Take(uint64_t size) {
    if (size > bytes_.size() - at_) return Error(absl::StrCat("a field of ", size, " bytes"));
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

  absl::StatusOr<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return Error("a number without an end");
  }

  std::string_view bytes_;
  std::string what_;
  size_t at_ = 0;
};

absl::Status NotImplemented(const std::string& name, absl::string_view field,
                            absl::string_view found, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", field, ": ", found, " is not implemented, allowed: ", allowed));
}

// Reads one model. The Take functions return false if the type of the field is wrong.
class ModelReader {
 public:
  explicit ModelReader(const std::string& name) : name_(name) {
    model_.pieces.path = absl::StrCat(name, ": pieces");
  }

  absl::StatusOr<SentencePieceModel> Read(std::string_view bytes) {
    RETURN_IF_ERROR(WireReader(bytes, name_).ForEach([&](const WireField& field) {
      return TakeMember(field);
    }));
    if (model_.pieces.tokens.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name_, ": has no pieces, allowed: a SentencePiece model"));
    }
    if (model_type_ != kBpe) {
      constexpr absl::string_view kNames[] = {"0", "UNIGRAM", "BPE", "WORD", "CHAR"};
      return NotImplemented(
          name_, "trainer_spec.model_type",
          model_type_ < std::size(kNames) ? kNames[model_type_] : absl::StrCat(model_type_), "BPE");
    }
    for (TokenId* id : {&model_.bos, &model_.eos}) {
      if (*id < 0 || *id >= static_cast<int64_t>(model_.pieces.tokens.size())) *id = -1;
    }
    return std::move(model_);
  }

 private:
  static constexpr uint64_t kBpe = 2;

  absl::StatusOr<bool> TakeMember(const WireField& field) {
    constexpr int kPieces = 1, kTrainer = 2, kNormalizer = 3, kDenormalizer = 5;
    const bool is_known = field.number == kPieces || field.number == kTrainer ||
                          field.number == kNormalizer || field.number == kDenormalizer;
    if (!is_known) return true;
    if (field.type != WireField::Type::kBytes) return false;
    if (field.number == kPieces) return TakePiece(field.bytes);
    const bool is_normalizer = field.number == kNormalizer;
    const char* const member = field.number == kTrainer ? "trainer_spec"
                               : is_normalizer          ? "normalizer_spec"
                                                        : "denormalizer_spec";
    WireReader reader(field.bytes, absl::StrCat(name_, ": ", member));
    RETURN_IF_ERROR(reader.ForEach([&](const WireField& f) {
      return field.number == kTrainer ? TakeTrainer(f) : TakeNormalizer(f, member, is_normalizer);
    }));
    return true;
  }

  absl::StatusOr<bool> TakePiece(std::string_view bytes) {
    const std::string path =
        absl::StrCat(model_.pieces.path, "[", model_.pieces.tokens.size(), "]");
    std::string piece;
    float score = 0;
    uint64_t kind = static_cast<uint64_t>(TokenKind::kNormal);
    WireReader reader(bytes, path);
    RETURN_IF_ERROR(reader.ForEach([&](const WireField& f) -> absl::StatusOr<bool> {
      if (f.number == 1) piece = f.bytes;
      if (f.number == 2) {
        const auto bits = static_cast<uint32_t>(f.integer);
        std::memcpy(&score, &bits, sizeof(score));
        return f.type == WireField::Type::kFixed32;
      }
      if (f.number == 3) kind = f.integer;
      return f.number > 3 || (f.type == WireField::Type::kBytes) == (f.number == 1);
    }));
    if (piece.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": is empty"));
    if (!std::isfinite(score)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": score is not finite"));
    }
    if (kind < 1 || kind > 6 || kind == static_cast<uint64_t>(TokenKind::kUnused)) {
      return NotImplemented(path, "type", absl::StrCat(kind), "1, 2, 3, 4, 6");
    }
    if (static_cast<TokenKind>(kind) == TokenKind::kUnknown) {
      model_.unknown = static_cast<TokenId>(model_.pieces.tokens.size());
    }
    model_.pieces.tokens.push_back(std::move(piece));
    model_.pieces.kinds.push_back(static_cast<TokenKind>(kind));
    model_.scores.push_back(score);
    return true;
  }

  absl::StatusOr<bool> TakeTrainer(const WireField& field) {
    constexpr int kModelType = 3, kSuffix = 24, kBos = 41, kEos = 42;
    const bool is_integer = field.type == WireField::Type::kVarint;
    switch (field.number) {
      case kModelType:
        model_type_ = field.integer;
        return is_integer;
      case kSuffix:
        if (field.integer == 0) return is_integer;
        return NotImplemented(name_, "trainer_spec.treat_whitespace_as_suffix", "true", "false");
      case kBos:
        model_.bos = static_cast<TokenId>(field.integer);
        return is_integer;
      case kEos:
        model_.eos = static_cast<TokenId>(field.integer);
        return is_integer;
      default:
        return true;
    }
  }

  absl::StatusOr<bool> TakeNormalizer(const WireField& field, const char* member,
                                      bool is_normalizer) {
    constexpr int kCharacterMap = 2, kPrefix = 3, kTrims = 4, kEscapes = 5;
    if (field.number == kCharacterMap) {
      if (field.bytes.empty()) return field.type == WireField::Type::kBytes;
      return NotImplemented(name_, absl::StrCat(member, ".precompiled_charsmap"),
                            absl::StrCat("one of ", field.bytes.size(), " bytes"),
                            "none (normalization_rule_name identity)");
    }
    if (!is_normalizer) return true;
    const bool is_integer = field.type == WireField::Type::kVarint;
    switch (field.number) {
      case kPrefix:
        model_.adds_prefix = field.integer != 0;
        return is_integer;
      case kTrims:
        model_.trims = field.integer != 0;
        return is_integer;
      case kEscapes:
        if (field.integer != 0) return is_integer;
        return NotImplemented(name_, "normalizer_spec.escape_whitespaces", "false", "true");
      default:
        return true;
    }
  }

  const std::string& name_;
  SentencePieceModel model_;
  uint64_t model_type_ = 1;  // the default is UNIGRAM
};

// Returns the model's own added tokens. User-defined ones are found in the normalised text, as in
// the model's own library.
std::vector<AddedToken> OwnTokens(const KindedTokens& pieces) {
  std::vector<AddedToken> tokens = pieces.AddedTokens();
  for (AddedToken& token : tokens) {
    token.normalized = !token.special;
    token.is_literal = token.special;
  }
  return tokens;
}

// Adds the entries of `added_tokens_decoder`: {"32000": {"content": "<|im_start|>", ...}, ...}.
// They are found in the text as it is; a token of the model gets the entry's flags.
absl::Status AddTokensOf(const JsonField& config, const KindedTokens& pieces,
                         std::vector<AddedToken>* tokens) {
  ASSIGN_OR_RETURN(const JsonField entries, config.Member("added_tokens_decoder"));
  if (entries.is_null()) return absl::OkStatus();
  RETURN_IF_ERROR(entries.CheckObject());
  HashMap<std::string, TokenId> ids;
  for (size_t id = 0; id < pieces.tokens.size(); ++id) {
    ids.emplace(pieces.tokens[id], static_cast<TokenId>(id));
  }
  HashMap<TokenId, size_t> places;  // in `tokens`
  for (const AddedToken& token : *tokens) places.emplace(token.id, places.size());
  const int64_t highest = HighestTokenId(pieces.tokens.size() + entries.value().size());
  for (const auto& [key, value] : entries.value().items()) {
    ASSIGN_OR_RETURN(const JsonField entry, entries.Member(key));
    ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(entry));
    int64_t id = -1;
    if (!absl::SimpleAtoi(key, &id) || id < 0 || id > highest) {
      return entry.Error(absl::StrCat("has a key that is not an id from 0 to ", highest));
    }
    token.id = static_cast<TokenId>(id);
    token.normalized = false;
    token.is_literal = true;
    const auto [known, is_new] = ids.emplace(token.written, token.id);
    const bool is_other_piece = is_new && id < static_cast<int64_t>(pieces.tokens.size());
    if (known->second != id || is_other_piece) {
      return entry.Error(
          is_other_piece ? absl::StrCat("is not the piece of that id, ", Quoted(pieces.tokens[id]))
                         : absl::StrCat("has content that is token ", known->second, " already"));
    }
    const auto [place, is_added] = places.emplace(token.id, tokens->size());
    if (is_added) tokens->emplace_back();
    (*tokens)[place->second] = std::move(token);
  }
  return absl::OkStatus();
}

}  // namespace

TokenList KindedTokens::List() const {
  TokenList list{.tokens = tokens, .is_text = {}, .path = path};
  for (const TokenKind kind : kinds) {
    list.is_text.push_back(kind == TokenKind::kNormal || kind == TokenKind::kUserDefined ||
                           kind == TokenKind::kUnused);
  }
  return list;
}

std::vector<AddedToken> KindedTokens::AddedTokens() const {
  std::vector<AddedToken> added;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const bool is_special = IsSpecial(static_cast<TokenId>(id));
    if (tokens[id].empty() || (!is_special && kinds[id] != TokenKind::kUserDefined)) continue;
    AddedToken token;
    token.id = static_cast<TokenId>(id);
    token.content = tokens[id];
    token.written = tokens[id];
    token.special = is_special;
    token.is_literal = true;
    added.push_back(std::move(token));
  }
  return added;
}

absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(std::string_view bytes,
                                                           const std::string& name) {
  return ModelReader(name).Read(bytes);
}

absl::StatusOr<std::unique_ptr<BpeTokenizer>> NewSentencePieceTokenizer(
    const SentencePieceModel& model, std::vector<AddedToken> added_tokens) {
  BpeTokenizer::Parts parts;
  parts.normalizer = Normalizer::SentencePiece(model.adds_prefix, model.trims);
  ASSIGN_OR_RETURN(parts.encoder,
                   BytePairEncoder::FromScores(model.pieces.List(), model.scores, model.unknown));
  parts.decoder = TokenDecoder::SentencePiece(/*strips_space=*/model.adds_prefix);
  parts.added_tokens = std::move(added_tokens);
  return BpeTokenizer::New(std::move(parts));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePieceTokenizer(std::string_view contents,
                                                                       std::string_view config,
                                                                       const std::string& name) {
  ASSIGN_OR_RETURN(const SentencePieceModel model, ParseSentencePieceModel(contents, name));
  const PostProcessor::Ends ends{.adds_bos = model.bos >= 0, .bos = model.bos, .eos = model.eos};
  std::vector<AddedToken> added = OwnTokens(model.pieces);
  if (config.empty()) {
    ASSIGN_OR_RETURN(auto tokenizer, NewSentencePieceTokenizer(model, std::move(added)));
    tokenizer->post_processor() = PostProcessor::Around(ends);
    return tokenizer;
  }
  const std::string config_name =
      (std::filesystem::path(name).parent_path() / "tokenizer_config.json").string();
  ASSIGN_OR_RETURN(const SortedJson document, ParseJson(View(config), config_name));
  const JsonField root(&document, config_name);
  RETURN_IF_ERROR(AddTokensOf(root, model.pieces, &added));
  ASSIGN_OR_RETURN(auto tokenizer, NewSentencePieceTokenizer(model, std::move(added)));
  RETURN_IF_ERROR(tokenizer->post_processor().ReadConfig(
      root, ends, [&](std::string_view token) { return tokenizer->IdOf(token); }));
  return tokenizer;
}

}  // namespace tandem
