// Makes the tokenizer and chat template keys of a GGUF file from a Hugging Face folder.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/format.h"
#include "base/json/json_text.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/utf8.h"
#include "model/checkpoint/gguf_keys.h"
#include "tandem/chat_template.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"
#include "text/gguf_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"
#include "tools/checkpoints/gguf_output.h"

namespace tandem {
namespace {

using Json = SortedJson;

constexpr char kSpace[] = "\u2581";

Json ReplaceOf(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

// Whether the tokenizer puts a space before every text; nullopt if a GGUF file cannot express the
// normalizer, pre_tokenizer or decoder.
std::optional<bool> AddsPrefix(const Json& tokenizer) {
  const Json normalizer = tokenizer.value("normalizer", Json());
  const Json spaces = ReplaceOf(" ", kSpace);
  const Json with_prefix = {{"type", "Sequence"},
                            {"normalizers", {{{"type", "Prepend"}, {"prepend", kSpace}}, spaces}}};
  const bool adds_prefix = normalizer == with_prefix;
  if (!adds_prefix && normalizer != spaces) return std::nullopt;
  const Json pre_tokenizer = tokenizer.value("pre_tokenizer", Json());
  // A split at spaces changes nothing, because the normalizer has replaced every space.
  const Json at_spaces = {{"type", "Split"},
                          {"pattern", {{"String", " "}}},
                          {"behavior", "MergedWithPrevious"},
                          {"invert", false}};
  if (!pre_tokenizer.is_null() && pre_tokenizer != at_spaces) return std::nullopt;
  Json steps = {ReplaceOf(kSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (adds_prefix) {
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  const Json decoder = {{"type", "Sequence"}, {"decoders", steps}};
  if (tokenizer.value("decoder", Json()) != decoder) return std::nullopt;
  return adds_prefix;
}

// The pairs that a tokenizer.json merges. It has them in one of two forms: arrays, or strings with
// a space between the halves.
std::vector<std::pair<std::string, std::string>> MergesOf(const Json& tokenizer) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const Json& merge : tokenizer.at("model").at("merges")) {
    if (merge.is_array()) {
      merges.emplace_back(merge.at(0).get<std::string>(), merge.at(1).get<std::string>());
    } else {
      const auto text = merge.get<std::string>();
      const size_t space = text.find(' ');
      merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
  }
  return merges;
}

struct GgufPieces {
  bool adds_prefix = false;    // puts a space in front of a text
  std::vector<float> scores;   // [vocab]; of two pairs, the one with the higher score is merged
  std::vector<int32_t> kinds;  // [vocab]; TokenKind, including kUnknown and kByte
  int32_t unknown = -1;        // id of the unknown token; -1 if there is no such token
};

class PieceReader {
 public:
  PieceReader(const Json& tokenizer, absl::Span<const std::string> tokens,
              absl::Span<const int32_t> kinds, const std::string& file)
      : merges_(MergesOf(tokenizer)), model_(tokenizer.at("model")), tokens_(tokens), file_(file) {
    pieces_.kinds.assign(kinds.begin(), kinds.end());
    pieces_.scores.assign(tokens.size(), 0.0f);
    for (size_t id = 0; id < tokens.size(); ++id) {
      if (kinds[id] != static_cast<int32_t>(TokenKind::kUnused)) ids_.emplace(tokens[id], id);
    }
  }

  absl::StatusOr<GgufPieces> Read() {
    RETURN_IF_ERROR(CheckModel());
    RETURN_IF_ERROR(MarkBytes());
    RETURN_IF_ERROR(ReadScores());
    RETURN_IF_ERROR(CheckPairs());
    return std::move(pieces_);
  }

 private:
  absl::Status CheckModel() {
    for (const char* const key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json value = model_.value(key, Json());
      if (!value.is_null() && value != "") return CannotBeStored(absl::StrCat("model.", key));
    }
    if (model_.value("ignore_merges", false)) return CannotBeStored("model.ignore_merges");
    const Json unknown = model_.value("unk_token", Json());
    if (unknown.is_string()) {
      const auto found = ids_.find(unknown.get<std::string>());
      if (found != ids_.end()) {
        pieces_.unknown = static_cast<int32_t>(found->second);
        SetKind(found->second, TokenKind::kUnknown);
      }
    }
    return absl::OkStatus();
  }

  absl::Status MarkBytes() {
    for (int byte = 0; byte < 256; ++byte) {
      const std::string name = Format("<0x%02X>", byte);
      const auto found = ids_.find(name);
      if (found == ids_.end()) return CannotBeStored(absl::StrCat("the lack of a token ", name));
      SetKind(found->second, TokenKind::kByte);
    }
    return absl::OkStatus();
  }

  absl::Status ReadScores() {
    std::string last;
    absl::flat_hash_set<std::string> seen;
    float score = 0.0f;
    for (const auto& [left, right] : merges_) {
      const std::string merged = left + right;
      pairs_.emplace(left, right);
      if (merged == last) continue;
      if (!seen.insert(merged).second) {
        return CannotBeStored(absl::StrCat("the position of the merge ", Quoted(View(left)), " ",
                                           Quoted(View(right)),
                                           ", apart from other merges to that token,"));
      }
      const auto found = ids_.find(merged);
      if (found == ids_.end()) {
        return CannotBeStored(
            absl::StrCat("a merge to ", Quoted(merged), ", which is not a token,"));
      }
      pieces_.scores[found->second] = score -= 1.0f;
      last = merged;
    }
    return absl::OkStatus();
  }

  // Checks that the merges are exactly those of a GGUF reader, which merges any two parts of a
  // token that are themselves tokens or characters.
  absl::Status CheckPairs() const {
    size_t num_pairs = 0;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (!IsText(id)) continue;
      const std::string_view token = tokens_[id];
      for (size_t at = ReadUtf8(token).size; at < token.size();
           at += ReadUtf8(token.substr(at)).size) {
        const std::string left(token.substr(0, at));
        const std::string right(token.substr(at));
        if (!IsPart(left) || !IsPart(right)) continue;
        ++num_pairs;
        if (pairs_.contains({left, right})) continue;
        return CannotBeStored(
            absl::StrCat("the lack of a merge ", Quoted(View(left)), " ", Quoted(View(right))));
      }
    }
    return num_pairs == pairs_.size() ? absl::OkStatus()
                                      : CannotBeStored("a merge of special tokens");
  }

  bool IsText(size_t id) const {
    const auto kind = static_cast<TokenKind>(pieces_.kinds[id]);
    return kind == TokenKind::kNormal || kind == TokenKind::kUserDefined;
  }
  bool IsPart(const std::string& text) const {
    if (ReadUtf8(text).size == static_cast<int>(text.size())) return true;
    const auto found = ids_.find(text);
    return found != ids_.end() && IsText(found->second);
  }
  void SetKind(size_t id, TokenKind kind) { pieces_.kinds[id] = static_cast<int32_t>(kind); }
  absl::Status CannotBeStored(const std::string& what) const {
    return HasNoPlaceInGguf(file_, what);
  }

  const std::vector<std::pair<std::string, std::string>> merges_;
  const Json& model_;
  const absl::Span<const std::string> tokens_;
  const std::string& file_;
  absl::flat_hash_map<std::string, size_t> ids_;
  absl::flat_hash_set<std::pair<std::string, std::string>> pairs_;
  GgufPieces pieces_;
};

// Whether a tokenizer.json is of SentencePiece's kind: BPE that encodes characters without a token
// as bytes.
bool IsOfPieces(const Json& tokenizer) {
  return tokenizer.at("model").value("byte_fallback", false);
}

// Makes scores in place of merges for such a tokenizer. `tokens` and `kinds` are [vocab]. A GGUF
// reader merges every pair that makes a token, so the tokenizer's merges must be exactly these
// pairs. All pairs that make the same token share one score, so their merges must be adjacent in
// the list. INVALID_ARGUMENT names `file` and the property that a GGUF file cannot express.
absl::StatusOr<GgufPieces> PiecesOf(const Json& tokenizer, absl::Span<const std::string> tokens,
                                    absl::Span<const int32_t> kinds, const std::string& file) {
  const std::optional<bool> adds_prefix = AddsPrefix(tokenizer);
  if (!adds_prefix.has_value()) {
    return HasNoPlaceInGguf(file, "its combination of normalizer, pre_tokenizer and decoder");
  }
  ASSIGN_OR_RETURN(GgufPieces pieces, PieceReader(tokenizer, tokens, kinds, file).Read());
  pieces.adds_prefix = *adds_prefix;
  return pieces;
}

// The tokens by id, each vector [vocab_size]. Ids without a token have kind kUnused.
struct FileTokens {
  std::vector<std::string> texts;
  std::vector<int32_t> kinds;
};

// The name of an added token's matching rule that a GGUF file cannot express; empty if there is
// none.
std::string RuleOf(const Json& added_token, bool has_normalizer) {
  for (const char* const rule : {"lstrip", "rstrip", "single_word"}) {
    if (added_token.value(rule, false)) return rule;
  }
  const bool is_special = added_token.value("special", false);
  return has_normalizer && added_token.value("normalized", !is_special) ? "normalized" : "";
}

absl::StatusOr<FileTokens> ReadTokens(const Json& tokenizer, const std::string& file,
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
      return HasNoPlaceInGguf(
          file, absl::StrCat("the id ", id.get<int64_t>(), ", outside of the model's vocabulary,"));
    }
  }
  const bool has_normalizer = !tokenizer.value("normalizer", Json()).is_null();
  for (const Json& token : tokenizer.value("added_tokens", Json::array())) {
    const auto id = token.at("id").get<int64_t>();
    const TokenKind kind =
        token.value("special", false) ? TokenKind::kControl : TokenKind::kUserDefined;
    const auto text = token.at("content").get<std::string>();
    if (const std::string rule = RuleOf(token, has_normalizer); !rule.empty()) {
      return HasNoPlaceInGguf(file, absl::StrCat(Quoted(rule), " of the token ", Quoted(text)));
    }
    if (!set(id, text, kind)) {
      return HasNoPlaceInGguf(file,
                              absl::StrCat("the id ", id, ", outside of the model's vocabulary,"));
    }
  }
  return list;
}

// Adds the token that begins a text, the tokens that end one (GGUF has keys for three) and the chat
// templates.
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
  // The token that templates call eos comes first.
  if (named != ends.end()) std::rotate(ends.begin(), named, named + 1);
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

// Checks that the tokenizer and the one that a GGUF reader makes of `header` agree on every token's
// text: alone, twice in a row, and between other characters. (Their pre-tokenizers are known to
// agree at this point. They could still differ in merges that do not lead to a token, and in the
// order of those that do.)
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
        return HasNoPlaceInGguf(file, absl::StrCat("the way it encodes ", Quoted(around)));
      }
    }
    if (tokenizer.Decode({{id, id}}) != written->Decode({{id, id}})) {
      return HasNoPlaceInGguf(file, absl::StrCat("the way it decodes the token ", Quoted(text)));
    }
  }
  return absl::OkStatus();
}

absl::Status AddByteLevel(const Json& tokenizer, const FileTokens& tokens, const std::string& file,
                          GgufHeader* header) {
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

absl::Status AddPieces(const Json& tokenizer, const FileTokens& tokens, const std::string& file,
                       GgufHeader* header) {
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
  ASSIGN_OR_RETURN(const SortedJson Json, ParseJson(text, file));
  ASSIGN_OR_RETURN(const FileTokens tokens, ReadTokens(Json, file, config.vocab_size));
  header->Add(kGgufTokens, tokens.texts);
  RETURN_IF_ERROR(IsOfPieces(Json) ? AddPieces(Json, tokens, file, header)
                                   : AddByteLevel(Json, tokens, file, header));
  RETURN_IF_ERROR(AddEnds(folder, *tokenizer, config, header));
  return CheckSaysTheSame(*tokenizer, *header, file);
}

void AddNoTextKeys(GgufHeader* header) { header->Add(kGgufTokenizerModel, "no_vocab"); }

}  // namespace tandem
