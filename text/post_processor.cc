#include "text/post_processor.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "text/component_fields.h"

namespace tandem {
namespace {

absl::StatusOr<TokenId> ReadId(const JsonField& field, int vocab_size) {
  ASSIGN_OR_RETURN(const int64_t id, field.Integer(0, vocab_size - 1));
  return static_cast<TokenId>(id);
}

// Returns the token that `key` names: a string, or an object with its "content".
absl::StatusOr<TokenId> ReadConfigToken(const JsonField& config, const char* key, TokenId unsaid,
                                        const PostProcessor::IdOf& id_of) {
  ASSIGN_OR_RETURN(JsonField token_field, config.Member(key));
  if (token_field.is_null() && unsaid >= 0) return unsaid;
  if (token_field.value().is_object()) {
    ASSIGN_OR_RETURN(token_field, token_field.Member("content"));
  }
  ASSIGN_OR_RETURN(const std::string token, token_field.String());
  const TokenId id = id_of(token);
  if (id < 0) return token_field.Error("is not a token of the vocabulary");
  return id;
}

}  // namespace

absl::StatusOr<PostProcessor> PostProcessor::FromJson(const JsonField& field, int vocab_size) {
  PostProcessor processor;
  if (!field.is_null()) RETURN_IF_ERROR(processor.Add(field, vocab_size));
  return processor;
}

PostProcessor PostProcessor::Around(const Ends& ends) {
  PostProcessor processor;
  if (ends.adds_bos) processor.before_.push_back(ends.bos);
  if (ends.adds_eos) processor.after_.push_back(ends.eos);
  return processor;
}

absl::Status PostProcessor::Add(const JsonField& field, int vocab_size) {
  ASSIGN_OR_RETURN(const std::string type, field.Type());
  if (type == "Sequence") {
    return ForEachPart(field, "processors",
                       [&](const JsonField& part) { return Add(part, vocab_size); });
  }
  if (type == "ByteLevel") return absl::OkStatus();  // concerns offsets only
  const bool is_template = type == "TemplateProcessing";
  if (!is_template && type != "BertProcessing" && type != "RobertaProcessing") {
    return UnknownType(
        field, "BertProcessing, ByteLevel, RobertaProcessing, TemplateProcessing, Sequence");
  }
  if (has_template_) return field.Error("is not implemented after another template");
  has_template_ = true;
  return is_template ? AddTemplate(field, vocab_size) : AddPair(field, vocab_size);
}

absl::Status PostProcessor::AddTemplate(const JsonField& field, int vocab_size) {
  ASSIGN_OR_RETURN(const JsonField special_tokens, field.Member("special_tokens"));
  ASSIGN_OR_RETURN(const JsonField single, field.Member("single"));
  bool is_behind_text = false;
  const auto add_piece = [&](const JsonField& piece) -> absl::Status {
    ASSIGN_OR_RETURN(const JsonField sequence, piece.Member("Sequence"));
    if (!sequence.is_null()) {
      ASSIGN_OR_RETURN(const JsonField name, sequence.Member("id"));
      if (!name.Is("A") || is_behind_text) return name.Error("is not the only text, \"A\"");
      is_behind_text = true;
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const JsonField special, piece.Member("SpecialToken"));
    ASSIGN_OR_RETURN(const JsonField name_field, special.Member("id"));
    ASSIGN_OR_RETURN(const std::string name, name_field.String());
    ASSIGN_OR_RETURN(const JsonField entry, special_tokens.Member(name));
    if (entry.is_null()) return name_field.Error("is not in special_tokens");
    return ForEachPart(entry, "ids", [&](const JsonField& id_field) -> absl::Status {
      ASSIGN_OR_RETURN(const TokenId id, ReadId(id_field, vocab_size));
      (is_behind_text ? after_ : before_).push_back(id);
      return absl::OkStatus();
    });
  };
  RETURN_IF_ERROR(ForEachPart(field, "single", add_piece));
  if (is_behind_text) return absl::OkStatus();
  return single.Error("has no place for the text, {\"Sequence\": {\"id\": \"A\"}}");
}

// Adds BERT's form: "cls" before and "sep" after the text, each [token, id].
absl::Status PostProcessor::AddPair(const JsonField& field, int vocab_size) {
  const std::pair<const char*, std::vector<TokenId>*> places[] = {{"cls", &before_},
                                                                  {"sep", &after_}};
  for (const auto& [key, place] : places) {
    ASSIGN_OR_RETURN(const JsonField token, field.Member(key));
    RETURN_IF_ERROR(token.CheckArray());
    if (token.value().size() != 2) return token.Error("is not a token and its id");
    ASSIGN_OR_RETURN(const JsonField id_field, token.Element(1));
    ASSIGN_OR_RETURN(const TokenId id, ReadId(id_field, vocab_size));
    place->push_back(id);
  }
  return absl::OkStatus();
}

absl::Status PostProcessor::ReadConfig(const JsonField& config, const Ends& ends,
                                       const IdOf& id_of) {
  RETURN_IF_ERROR(config.CheckObject());
  if (!before_.empty() || !after_.empty()) return absl::OkStatus();
  Ends read;
  ASSIGN_OR_RETURN(const JsonField adds_bos, config.Member("add_bos_token"));
  ASSIGN_OR_RETURN(read.adds_bos, adds_bos.Bool(ends.adds_bos));
  ASSIGN_OR_RETURN(const JsonField adds_eos, config.Member("add_eos_token"));
  ASSIGN_OR_RETURN(read.adds_eos, adds_eos.Bool(ends.adds_eos));
  if (read.adds_bos) {
    ASSIGN_OR_RETURN(read.bos, ReadConfigToken(config, "bos_token", ends.bos, id_of));
  }
  if (read.adds_eos) {
    ASSIGN_OR_RETURN(read.eos, ReadConfigToken(config, "eos_token", ends.eos, id_of));
  }
  *this = Around(read);
  return absl::OkStatus();
}

std::vector<TokenId> PostProcessor::Apply(std::vector<TokenId> ids) const {
  ids.insert(ids.begin(), before_.begin(), before_.end());
  ids.insert(ids.end(), after_.begin(), after_.end());
  return ids;
}

}  // namespace tandem
