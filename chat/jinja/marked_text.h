#ifndef TANDEM_CHAT_JINJA_MARKED_TEXT_H_
#define TANDEM_CHAT_JINJA_MARKED_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/memory_meter.h"
#include "tandem/tokenizer.h"

namespace tandem::jinja {

// Of the template's own text.
inline constexpr SpecialTokens kOwn = SpecialTokens::kParse;

// A string of which every byte knows where it came from: kParse for the template's own text,
// kPlain for somebody's words. Operations on strings are made of Append and Slice, which keep the
// marks. Thread-compatible.
class MarkedText {
 public:
  // `[end of the one before, end)` of the text; neighbours differ in `special`, and none is empty.
  struct Run {
    size_t end = 0;
    SpecialTokens special = SpecialTokens::kPlain;
  };

  MarkedText() = default;
  MarkedText(std::string_view text, SpecialTokens special) { Append(text, special); }

  const std::string& text() const { return text_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  // Its size in memory, marks included.
  size_t memory_bytes() const {
    return sizeof(MarkedText) + text_.capacity() + runs_.capacity() * sizeof(Run);
  }
  // By how much a text grows each time that this one is appended.
  size_t appended_bytes() const {
    return text_.size() + (runs_.size() > 1 ? runs_.size() * sizeof(Run) : 0);
  }
  // For the result of a rendering: it outlives the meter.
  void LeaveMeter() { held_.LeaveMeter(); }
  const std::vector<Run>& runs() const { return runs_; }

  void Append(std::string_view text, SpecialTokens special);
  void Append(const MarkedText& other) { Append(other, 0, other.size()); }
  // Bytes [begin, end) of `other`, which is not this object.
  // REQUIRES: begin <= end <= other.size().
  void Append(const MarkedText& other, size_t begin, size_t end);

  // REQUIRES: begin <= end <= size().
  MarkedText Slice(size_t begin, size_t end) const;
  // REQUIRES: offset < size().
  SpecialTokens MarkAt(size_t offset) const;

 private:
  std::string text_;
  std::vector<Run> runs_;
  MemoryHold held_{sizeof(std::string) + sizeof(std::vector<Run>)};
};

}  // namespace tandem::jinja

#endif  // TANDEM_CHAT_JINJA_MARKED_TEXT_H_
