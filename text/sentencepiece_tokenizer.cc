#include "text/sentencepiece_tokenizer.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "json/json_fields.h"
#include "json/json_text.h"
#include "text/component_fields.h"

namespace tandem {
namespace {

// The model's own: those that users defined are found in the normalised text, as by its library.
std::vector<AddedToken> OwnTokens(const KindedTokens& pieces) {
  std::vector<AddedToken> tokens = pieces.AddedTokens();
  for (AddedToken& token : tokens) {
    token.normalized = !token.special;
    token.is_literal = token.special;
  }
  return tokens;
}

// Adds the entries of `added_tokens_decoder`: {"32000": {"content": "<|im_start|>", ...}, ...}.
// They are found in the text as it is; one of the model's own gets the entry's flags.
absl::Status AddTokensOf(const JsonField& config, const KindedTokens& pieces,
                         std::vector<AddedToken>* tokens) {
  ASSIGN_OR_RETURN(const JsonField entries, config.Member("added_tokens_decoder"));
  if (entries.is_null()) return absl::OkStatus();
  RETURN_IF_ERROR(entries.CheckObject());
  absl::flat_hash_map<std::string, TokenId> ids;
  for (size_t id = 0; id < pieces.tokens.size(); ++id) {
    ids.emplace(pieces.tokens[id], static_cast<TokenId>(id));
  }
  absl::flat_hash_map<TokenId, size_t> places;  // in `tokens`
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
  ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(View(config), config_name));
  const JsonField root(&document, config_name);
  RETURN_IF_ERROR(AddTokensOf(root, model.pieces, &added));
  ASSIGN_OR_RETURN(auto tokenizer, NewSentencePieceTokenizer(model, std::move(added)));
  RETURN_IF_ERROR(tokenizer->post_processor().ReadConfig(
      root, ends, [&](std::string_view token) { return tokenizer->IdOf(token); }));
  return tokenizer;
}

}  // namespace tandem
