#include "chat/jinja/marked_text.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::jinja {
namespace {

bool EndsAtOrBefore(const MarkedText::Run& run, size_t offset) { return run.end <= offset; }

}  // namespace

void MarkedText::Append(std::string_view text, SpecialTokens special) {
  if (text.empty()) return;
  if (runs_.empty() || runs_.back().special != special) runs_.push_back({size(), special});
  text_.append(text);
  runs_.back().end = size();
  held_.Set(memory_bytes());
}

void MarkedText::Append(const MarkedText& other, size_t begin, size_t end) {
  TANDEM_CHECK(begin <= end && end <= other.size());
  const std::string_view text = other.text_;
  auto run = std::lower_bound(other.runs_.begin(), other.runs_.end(), begin, EndsAtOrBefore);
  for (; begin < end; ++run) {
    const size_t next = std::min(run->end, end);
    Append(text.substr(begin, next - begin), run->special);
    begin = next;
  }
}

MarkedText MarkedText::Slice(size_t begin, size_t end) const {
  MarkedText slice;
  slice.Append(*this, begin, end);
  return slice;
}

SpecialTokens MarkedText::MarkAt(size_t offset) const {
  TANDEM_CHECK(offset < size());
  return std::lower_bound(runs_.begin(), runs_.end(), offset, EndsAtOrBefore)->special;
}

}  // namespace tandem::jinja
