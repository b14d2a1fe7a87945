#include "tandem/tokenizer.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/hash_map.h"
#include "base/json/json_fields.h"
#include "base/json/json_text.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "model/checkpoint/gguf.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/bpe_tokenizer.h"
#include "text/component_fields.h"
#include "text/gguf_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Reads "added_tokens" of a tokenizer.json.
class AddedTokenReader {
 public:
  AddedTokenReader(const Normalizer* normalizer, const BytePairEncoder* encoder)
      : normalizer_(*normalizer), encoder_(*encoder) {}

  absl::StatusOr<std::vector<AddedToken>> Read(const JsonField& field) {
    std::vector<AddedToken> tokens;
    if (field.is_null()) return tokens;
    RETURN_IF_ERROR(field.CheckArray());
    const int64_t highest_id = HighestTokenId(encoder_.num_entries() + field.value().size());
    for (size_t i = 0; i < field.value().size(); ++i) {
      ASSIGN_OR_RETURN(const JsonField entry, field.Element(i));
      ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(entry));
      ASSIGN_OR_RETURN(const JsonField id_field, entry.Member("id"));
      ASSIGN_OR_RETURN(const int64_t id, id_field.Integer(0, highest_id));
      token.id = static_cast<TokenId>(id);
      RETURN_IF_ERROR(CheckIsNew(token, entry));
      names_.insert(token.written);
      ids_.insert(token.id);
      if (token.normalized) {
        ASSIGN_OR_RETURN(token.content, normalizer_.Apply(std::move(token.content)));
        if (token.content.empty())
          return entry.Error("has content that the normalizer makes empty");
      }
      tokens.push_back(std::move(token));
    }
    return tokens;
  }

 private:
  // Checks that an added token has an id of its own, or is the vocabulary's token of that id.
  absl::Status CheckIsNew(const AddedToken& token, const JsonField& entry) const {
    ASSIGN_OR_RETURN(const JsonField content, entry.Member("content"));
    ASSIGN_OR_RETURN(const JsonField id, entry.Member("id"));
    if (names_.contains(token.written)) return content.Error("is in added_tokens already");
    const TokenId known_id = encoder_.IdOf(token.written);
    if (known_id == token.id) return absl::OkStatus();
    if (known_id >= 0) {
      return id.Error(
          absl::StrCat("is not the id of ", Quoted(token.written), " in model.vocab, ", known_id));
    }
    const size_t index = token.id;
    const bool is_known = index < encoder_.tokens().size() && !encoder_.tokens()[index].empty();
    if (is_known || ids_.contains(token.id)) return id.Error("is the id of another token already");
    return absl::OkStatus();
  }

  const Normalizer& normalizer_;
  const BytePairEncoder& encoder_;
  HashSet<std::string> names_;
  HashSet<TokenId> ids_;
};

absl::StatusOr<std::unique_ptr<BpeTokenizer>> FromJson(const JsonField& file) {
  RETURN_IF_ERROR(file.CheckObject());
  ASSIGN_OR_RETURN(const JsonField version, file.Member("version"));
  if (!version.is_null() && !version.Is("1.0")) {
    return version.Error("is not implemented, allowed: \"1.0\"");
  }
  // "truncation" and "padding" are for batches of training texts; prompts are used whole, so both
  // are ignored.
  BpeTokenizer::Parts parts;
  ASSIGN_OR_RETURN(const JsonField normalizer, file.Member("normalizer"));
  ASSIGN_OR_RETURN(parts.normalizer, Normalizer::FromJson(normalizer));
  ASSIGN_OR_RETURN(const JsonField pre_tokenizer, file.Member("pre_tokenizer"));
  ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::FromJson(pre_tokenizer));
  ASSIGN_OR_RETURN(const JsonField decoder, file.Member("decoder"));
  ASSIGN_OR_RETURN(parts.decoder, TokenDecoder::FromJson(decoder));
  ASSIGN_OR_RETURN(const JsonField model, file.Member("model"));
  ASSIGN_OR_RETURN(parts.encoder, BytePairEncoder::FromJson(model));
  ASSIGN_OR_RETURN(const JsonField added, file.Member("added_tokens"));
  AddedTokenReader reader(&parts.normalizer, &parts.encoder);
  ASSIGN_OR_RETURN(parts.added_tokens, reader.Read(added));
  ASSIGN_OR_RETURN(auto tokenizer, BpeTokenizer::New(std::move(parts)));
  ASSIGN_OR_RETURN(const JsonField post_processor, file.Member("post_processor"));
  ASSIGN_OR_RETURN(tokenizer->post_processor(),
                   PostProcessor::FromJson(post_processor, tokenizer->vocab_size()));
  return tokenizer;
}

// Returns the contents of a tokenizer_config.json; empty if there is none.
absl::StatusOr<std::string> ReadConfig(const std::string& path) {
  absl::StatusOr<std::string> config = ReadFile(path);
  if (absl::IsNotFound(config.status())) return "";
  if (config.ok() && config->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is empty"));
  }
  return config;
}

// Returns the tokenizer file of a model folder: tokenizer.json, unless it has only a
// tokenizer.model.
fs::path TokenizerFileIn(const fs::path& folder) {
  std::error_code error;
  const fs::path file = folder / "tokenizer.json";
  const fs::path pieces = folder / "tokenizer.model";
  return !fs::exists(file, error) && fs::exists(pieces, error) ? pieces : file;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Parse(std::string_view contents,
                                                            std::string_view config,
                                                            const std::string& name) {
  ASSIGN_OR_RETURN(const SortedJson file, ParseJson(View(contents), name));
  ASSIGN_OR_RETURN(auto tokenizer, FromJson(JsonField(&file, name)));
  if (!config.empty()) {
    const std::string config_name =
        (fs::path(name).parent_path() / "tokenizer_config.json").string();
    ASSIGN_OR_RETURN(const SortedJson config_file, ParseJson(View(config), config_name));
    RETURN_IF_ERROR(tokenizer->post_processor().ReadConfig(
        JsonField(&config_file, config_name), {},
        [&](std::string_view token) { return tokenizer->IdOf(token); }));
  }
  return tokenizer;
}

absl::StatusOr<std::string> Tokenizer::FileOf(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string gguf, GgufIn(path));
  if (!gguf.empty()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(gguf));
    ASSIGN_OR_RETURN(const bool has_tokenizer, HasGgufTokenizer(*file));
    return has_tokenizer ? gguf : "";
  }
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  const fs::path file = TokenizerFileIn(path);
  if (fs::exists(file, error)) return file.string();
  // The folder has a tokenizer of an unsupported kind: name the missing file, so that no other
  // model's tokenizer is used in its place.
  for (const char* other : {"tokenizer_config.json", "vocab.json", "vocab.txt", "spiece.model"}) {
    if (fs::exists(fs::path(path) / other, error)) return file.string();
  }
  return "";
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string gguf, GgufIn(path));
  if (!gguf.empty()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(gguf));
    return ReadGgufTokenizer(*file);
  }
  std::error_code error;
  const fs::path file = fs::is_directory(path, error) ? TokenizerFileIn(path) : fs::path(path);
  ASSIGN_OR_RETURN(const std::string contents, ReadFile(file.string()));
  ASSIGN_OR_RETURN(const std::string config,
                   ReadConfig((file.parent_path() / "tokenizer_config.json").string()));
  if (file.extension() == ".model") {
    return ParseSentencePieceTokenizer(contents, config, file.string());
  }
  return Parse(contents, config, file.string());
}

}  // namespace tandem
