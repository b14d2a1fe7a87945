#include "tools/checkpoints/gguf_metadata.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "checkpoint/gguf_keys.h"
#include "json/json_text.h"
#include "nlohmann/json.hpp"
#include "tandem/chat_template.h"
#include "tandem/tokenizer.h"
#include "text/gguf_tokenizer.h"
#include "text/token_kinds.h"
#include "tools/checkpoints/gguf_config_keys.h"
#include "tools/checkpoints/gguf_pieces.h"

namespace tandem {
namespace {

// The tokens by id, with holes up to `vocab_size` that no text has.
struct FileTokens {
  std::vector<std::string> texts;
  std::vector<int32_t> kinds;
};

// What an added token says of how it is found, and a file cannot; empty if there is nothing.
std::string RuleOf(const nlohmann::json& added_token, bool has_normalizer) {
  for (const char* const rule : {"lstrip", "rstrip", "single_word"}) {
    if (added_token.value(rule, false)) return rule;
  }
  const bool is_special = added_token.value("special", false);
  return has_normalizer && added_token.value("normalized", !is_special) ? "normalized" : "";
}

absl::StatusOr<FileTokens> ReadTokens(const nlohmann::json& tokenizer, const std::string& file,
                                      int vocab_size) {
  FileTokens list;
  for (int id = 0; id < vocab_size; ++id) list.texts.push_back(absl::StrCat("[PAD", id, "]"));
  list.kinds.assign(vocab_size, static_cast<int32_t>(TokenKind::kUnused));
  const auto set = [&](int64_t id, const std::string& text, TokenKind kind) {
    if (id < 0 || id >= vocab_size) return false;
    list.texts[id] = text;
    list.kinds[id] = static_cast<int32_t>(kind);
    return true;
  };
  for (const auto& [text, id] : tokenizer.at("model").at("vocab").items()) {
    if (!set(id.get<int64_t>(), text, TokenKind::kNormal)) {
      return HasNoPlaceInGguf(file,
                              absl::StrCat("the id ", id.get<int64_t>(), " above the model's"));
    }
  }
  const bool has_normalizer = !tokenizer.value("normalizer", nlohmann::json()).is_null();
  for (const nlohmann::json& token : tokenizer.value("added_tokens", nlohmann::json::array())) {
    const auto id = token.at("id").get<int64_t>();
    const TokenKind kind =
        token.value("special", false) ? TokenKind::kControl : TokenKind::kUserDefined;
    const auto text = token.at("content").get<std::string>();
    if (const std::string rule = RuleOf(token, has_normalizer); !rule.empty()) {
      return HasNoPlaceInGguf(file, absl::StrCat(Quoted(rule), " of the token ", Quoted(text)));
    }
    if (!set(id, text, kind)) {
      return HasNoPlaceInGguf(file, absl::StrCat("the id ", id, " above the model's"));
    }
  }
  return list;
}

// What a text begins with, and the tokens that end one: GGUF has keys for three.
absl::Status AddEnds(const std::string& folder, const Tokenizer& tokenizer,
                     const ModelConfig& config, GgufHeader* header) {
  ASSIGN_OR_RETURN(const ChatTemplate::Source source, ChatTemplate::ReadSource(folder));
  const std::vector<TokenId> around = tokenizer.WithTemplate({});
  if (around.size() > 1) {
    return HasNoPlaceInGguf(folder, absl::StrCat("a template of ", around.size(), " tokens"));
  }
  const TokenId bos = around.empty() ? tokenizer.IdOf(source.bos_token) : around.front();
  if (bos >= 0) header->Add(kGgufBos, static_cast<uint32_t>(bos));
  header->Add(kGgufAddBos, !around.empty());
  header->Add(kGgufAddEos, false);
  std::vector<TokenId> ends = config.eos_token_ids;
  const auto named = absl::c_find(ends, tokenizer.IdOf(source.eos_token));
  if (named != ends.end()) std::rotate(ends.begin(), named, named + 1);  // what templates call eos
  if (ends.size() > std::size(kGgufEnds)) {
    return HasNoPlaceInGguf(folder, absl::StrCat("a list of ", ends.size(), " end tokens"));
  }
  for (size_t i = 0; i < ends.size(); ++i) {
    header->Add(kGgufEnds[i], static_cast<uint32_t>(ends[i]));
  }
  if (!source.jinja.empty()) header->Add("tokenizer.chat_template", source.jinja);
  if (!source.tool_use.empty()) {
    header->Add("tokenizer.chat_templates", std::vector<std::string>{"tool_use"});
    header->Add("tokenizer.chat_template.tool_use", source.tool_use);
  }
  return absl::OkStatus();
}

// The two must say the same of every token's text, once and twice and between others. (That they
// cut alike is known by then; what is left are merges that do not lead to a token, and the order of
// those that lead to one.)
absl::Status CheckSaysTheSame(const Tokenizer& tokenizer, const GgufHeader& header,
                              const std::string& file) {
  const std::string bytes = header.Bytes();
  ASSIGN_OR_RETURN(
      const std::unique_ptr<GgufFile> gguf,
      GgufFile::Parse({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, file));
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> written, ReadGgufTokenizer(*gguf));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string text = tokenizer.Decode({&id, 1});
    for (const std::string& around : {text, text + text, absl::StrCat(" a", text, " b")}) {
      for (const SpecialTokens special : {SpecialTokens::kPlain, SpecialTokens::kParse}) {
        const auto ours = tokenizer.Encode(around, special);
        const auto theirs = written->Encode(around, special);
        if (ours.ok() == theirs.ok() && (!ours.ok() || *ours == *theirs)) continue;
        return HasNoPlaceInGguf(file, absl::StrCat("the way to merge ", Quoted(around)));
      }
    }
    if (tokenizer.Decode({{id, id}}) != written->Decode({{id, id}})) {
      return HasNoPlaceInGguf(file, absl::StrCat("what it reads of the token ", Quoted(text)));
    }
  }
  return absl::OkStatus();
}

absl::Status AddByteLevel(const nlohmann::json& tokenizer, const FileTokens& tokens,
                          const std::string& file, GgufHeader* header) {
  const std::string pre = GgufPreOf(tokenizer);
  if (pre.empty()) return HasNoPlaceInGguf(file, "the way its pre_tokenizer cuts texts");
  header->Add(kGgufTokenizerModel, "gpt2");
  header->Add(kGgufPre, pre);
  header->Add(kGgufTokenKinds, tokens.kinds);
  std::vector<std::string> merges;
  for (const auto& [left, right] : MergesOf(tokenizer)) {
    merges.push_back(absl::StrCat(left, " ", right));
  }
  header->Add(kGgufMerges, merges);
  return absl::OkStatus();
}

absl::Status AddPieces(const nlohmann::json& tokenizer, const FileTokens& tokens,
                       const std::string& file, GgufHeader* header) {
  ASSIGN_OR_RETURN(const GgufPieces pieces, PiecesOf(tokenizer, tokens.texts, tokens.kinds, file));
  header->Add(kGgufTokenizerModel, "llama");
  header->Add(kGgufTokenKinds, pieces.kinds);
  header->Add(kGgufScores, pieces.scores);
  header->Add(kGgufAddSpace, pieces.adds_prefix);
  if (pieces.unknown >= 0) {
    header->Add(kGgufUnknown, static_cast<uint32_t>(pieces.unknown));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddTextKeys(const std::string& folder, const ModelConfig& config, GgufHeader* header) {
  const std::string file = absl::StrCat(folder, "/tokenizer.json");
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Load(folder));
  ASSIGN_OR_RETURN(const std::string of_tokenizer, Tokenizer::FileOf(folder));
  if (of_tokenizer != file) return HasNoPlaceInGguf(of_tokenizer, "a tokenizer of SentencePiece");
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text, file));
  ASSIGN_OR_RETURN(const FileTokens tokens, ReadTokens(json, file, config.vocab_size));
  header->Add(kGgufTokens, tokens.texts);
  RETURN_IF_ERROR(IsOfPieces(json) ? AddPieces(json, tokens, file, header)
                                   : AddByteLevel(json, tokens, file, header));
  RETURN_IF_ERROR(AddEnds(folder, *tokenizer, config, header));
  return CheckSaysTheSame(*tokenizer, *header, file);
}

void AddNoTextKeys(GgufHeader* header) { header->Add(kGgufTokenizerModel, "no_vocab"); }

}  // namespace tandem
