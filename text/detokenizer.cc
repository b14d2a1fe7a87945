#include "tandem/detokenizer.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/algorithm/container.h"
#include "base/utf8.h"

namespace tandem {
namespace {

class StreamDetokenizer final : public Detokenizer {
 public:
  StreamDetokenizer(const Tokenizer* tokenizer, bool skip_special, absl::Span<const TokenId> shown)
      : tokenizer_(*tokenizer),
        rules_(tokenizer->text_rules()),
        skip_special_(skip_special),
        shown_(shown.begin(), shown.end()),
        num_to_strip_(rules_.num_stripped) {}

  std::string Push(TokenId id) override {
    if (skip_special_ && tokenizer_.IsSpecial(id) && !absl::c_linear_search(shown_, id)) return "";
    const std::optional<Tokenizer::TokenText> token = tokenizer_.TextOf(id, is_first_);
    if (!token.has_value()) return "";
    std::string text;
    // A run of byte tokens ends here; an unfinished character in it can no longer be completed.
    if (rules_.has_byte_tokens && !token->is_byte) ReplaceHeld(&text);
    if (!is_first_) held_ += rules_.separator;
    is_first_ = false;
    held_ += token->bytes;
    LetOut(&text);
    Strip(&text);
    return text;
  }

  std::string Flush() override {
    std::string text;
    ReplaceHeld(&text);
    return text;
  }

  std::unique_ptr<Detokenizer> Clone() const override {
    return std::make_unique<StreamDetokenizer>(*this);
  }

 private:
  void LetOut(std::string* text) {
    size_t done = 0;
    while (done < held_.size()) {
      const Utf8Prefix prefix = ReadUtf8(std::string_view(held_).substr(done));
      if (prefix.kind == Utf8Prefix::Kind::kIncomplete) break;
      if (prefix.kind == Utf8Prefix::Kind::kCharacter) {
        text->append(held_, done, prefix.size);
      } else {
        AppendReplacements(prefix.size, text);
      }
      done += prefix.size;
    }
    held_.erase(0, done);
  }

  void ReplaceHeld(std::string* text) {
    if (held_.empty()) return;
    num_to_strip_ = 0;
    AppendReplacements(static_cast<int>(held_.size()), text);
    held_.clear();
  }

  // Appends the replacements for an invalid part of `size` bytes.
  void AppendReplacements(int size, std::string* text) const {
    const int count = rules_.has_byte_tokens ? size : 1;
    for (int i = 0; i < count; ++i) *text += kReplacementCharacter;
  }

  // Removes the characters that the beginning of the whole text loses.
  void Strip(std::string* text) {
    if (num_to_strip_ == 0) return;
    const std::string& content = rules_.stripped;
    size_t size = 0;
    while (num_to_strip_ > 0 && text->compare(size, content.size(), content) == 0) {
      size += content.size();
      --num_to_strip_;
    }
    if (size < text->size()) num_to_strip_ = 0;  // past the beginning
    text->erase(0, size);
  }

  const Tokenizer& tokenizer_;
  const TextRules& rules_;
  const bool skip_special_;
  const std::vector<TokenId> shown_;
  bool is_first_ = true;
  int num_to_strip_;
  std::string held_;  // bytes of an unfinished character
};

}  // namespace

std::unique_ptr<Detokenizer> Detokenizer::New(const Tokenizer* tokenizer,
                                              absl::Span<const TokenId> context, bool skip_special,
                                              absl::Span<const TokenId> shown) {
  auto detokenizer = std::make_unique<StreamDetokenizer>(tokenizer, skip_special, shown);
  for (const TokenId id : context) (void)detokenizer->Push(id);
  return detokenizer;
}

}  // namespace tandem
