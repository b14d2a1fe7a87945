#include "tools/checkpoints/gguf_pieces.h"

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/utf8.h"
#include "json/json_text.h"
#include "text/sentencepiece_tokenizer.h"
#include "tools/checkpoints/gguf_config_keys.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr char kSpace[] = "\u2581";

json ReplaceOf(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

// Whether a space stands in front of every text; nothing if normalizer, pre_tokenizer or decoder do
// what a file cannot say.
std::optional<bool> AddsPrefix(const json& tokenizer) {
  const json normalizer = tokenizer.value("normalizer", json());
  const json spaces = ReplaceOf(" ", kSpace);
  const json with_prefix = {{"type", "Sequence"},
                            {"normalizers", {{{"type", "Prepend"}, {"prepend", kSpace}}, spaces}}};
  const bool adds_prefix = normalizer == with_prefix;
  if (!adds_prefix && normalizer != spaces) return std::nullopt;
  const json pre_tokenizer = tokenizer.value("pre_tokenizer", json());
  // No text has a space then.
  const json at_spaces = {{"type", "Split"},
                          {"pattern", {{"String", " "}}},
                          {"behavior", "MergedWithPrevious"},
                          {"invert", false}};
  if (!pre_tokenizer.is_null() && pre_tokenizer != at_spaces) return std::nullopt;
  json steps = {ReplaceOf(kSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (adds_prefix) {
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  const json decoder = {{"type", "Sequence"}, {"decoders", steps}};
  if (tokenizer.value("decoder", json()) != decoder) return std::nullopt;
  return adds_prefix;
}

class PieceReader {
 public:
  PieceReader(const json& tokenizer, absl::Span<const std::string> tokens,
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
      const json value = model_.value(key, json());
      if (!value.is_null() && value != "") return HasNoPlace(absl::StrCat("model.", key));
    }
    if (model_.value("ignore_merges", false)) return HasNoPlace("model.ignore_merges");
    const json unknown = model_.value("unk_token", json());
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
      const std::string name = absl::StrFormat("<0x%02X>", byte);
      const auto found = ids_.find(name);
      if (found == ids_.end()) return HasNoPlace(absl::StrCat("the lack of a token ", name));
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
        return HasNoPlace(absl::StrCat("the place of the merge ", Quoted(View(left)), " ",
                                       Quoted(View(right)), ", apart from others to that token"));
      }
      const auto found = ids_.find(merged);
      if (found == ids_.end()) {
        return HasNoPlace(absl::StrCat("a merge to ", Quoted(merged), ", which is no token"));
      }
      pieces_.scores[found->second] = score -= 1.0f;
      last = merged;
    }
    return absl::OkStatus();
  }

  // A file's tokenizer merges any two parts of a token that are tokens or characters.
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
        return HasNoPlace(
            absl::StrCat("the lack of a merge ", Quoted(View(left)), " ", Quoted(View(right))));
      }
    }
    return num_pairs == pairs_.size() ? absl::OkStatus() : HasNoPlace("a merge of special tokens");
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
  absl::Status HasNoPlace(const std::string& what) const { return HasNoPlaceInGguf(file_, what); }

  const std::vector<std::pair<std::string, std::string>> merges_;
  const json& model_;
  const absl::Span<const std::string> tokens_;
  const std::string& file_;
  absl::flat_hash_map<std::string, size_t> ids_;
  absl::flat_hash_set<std::pair<std::string, std::string>> pairs_;
  GgufPieces pieces_;
};

}  // namespace

std::vector<std::pair<std::string, std::string>> MergesOf(const json& tokenizer) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const json& merge : tokenizer.at("model").at("merges")) {
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

bool IsOfPieces(const json& tokenizer) {
  return tokenizer.at("model").value("byte_fallback", false);
}

absl::StatusOr<GgufPieces> PiecesOf(const json& tokenizer, absl::Span<const std::string> tokens,
                                    absl::Span<const int32_t> kinds, const std::string& file) {
  const std::optional<bool> adds_prefix = AddsPrefix(tokenizer);
  if (!adds_prefix.has_value()) {
    return HasNoPlaceInGguf(file, "what its normalizer, pre_tokenizer and decoder do");
  }
  ASSIGN_OR_RETURN(GgufPieces pieces, PieceReader(tokenizer, tokens, kinds, file).Read());
  pieces.adds_prefix = *adds_prefix;
  return pieces;
}

}  // namespace tandem
