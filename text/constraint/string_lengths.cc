#include "text/constraint/string_lengths.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

LengthRanges JoinedRanges(LengthRanges ranges) {
  std::sort(ranges.begin(), ranges.end());
  LengthRanges joined;
  for (const auto& [min, max] : ranges) {
    if (max >= 0 && max < min) continue;
    const bool touches =
        !joined.empty() && (joined.back().second < 0 || min <= joined.back().second + 1);
    if (!touches) {
      joined.emplace_back(min, max);
    } else if (joined.back().second >= 0) {
      joined.back().second = max < 0 ? -1 : std::max(joined.back().second, max);
    }
  }
  return joined;
}

void StringProgress::Add(char byte) {
  TANDEM_DCHECK(!has_ended_);
  if (num_escape_left_ < 0) {
    num_escape_left_ = byte == 'u' ? 4 : 0;
    code_ = 0;
    if (byte != 'u') is_high_ = false;
    return;
  }
  if (num_escape_left_ > 0) {
    const int digit = byte <= '9' ? byte - '0' : (byte & 0xf) + 9;
    code_ = static_cast<uint16_t>(code_ << 4 | digit);
    if (--num_escape_left_ == 0) is_high_ = code_ >= 0xd800 && code_ < 0xdc00;
    return;
  }
  if (byte == '"') {
    has_ended_ = true;
    return;
  }
  if (byte == '\\') {
    if (!is_high_) ++num_characters_;
    num_escape_left_ = -1;
    return;
  }
  is_high_ = false;
  if ((byte & 0xc0) != 0x80) ++num_characters_;
}

bool AreWithin(const LengthRanges& ranges, const StringProgress& progress) {
  const int64_t length = progress.num_characters();
  if (!progress.has_ended()) return ranges.back().second < 0 || length <= ranges.back().second;
  return std::any_of(ranges.begin(), ranges.end(), [length](const auto& range) {
    return length >= range.first && (range.second < 0 || length <= range.second);
  });
}

}  // namespace tandem
