// What Python's str.format and % make of values.
#ifndef TANDEM_CHAT_JINJA_FORMAT_TEXT_H_
#define TANDEM_CHAT_JINJA_FORMAT_TEXT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "chat/jinja/runtime.h"
#include "chat/jinja/text_tools.h"
#include "chat/jinja/value.h"

namespace tandem::jinja {

// The text with `fill`, one character, on the sides named until it has `width` characters; on both
// sides as str.center does.
absl::StatusOr<Value> PadText(Runtime* runtime, const MarkedText& text, int64_t width,
                              const MarkedText& fill, Sides sides);

// format.format(arguments): fields {}, {0} and {name} with [[fill]align][sign][0][width][,]
// [.precision][type]. UNIMPLEMENTED for other fields.
absl::StatusOr<Value> FormatBraces(Runtime* runtime, const MarkedText& format,
                                   const Arguments& arguments);

}  // namespace tandem::jinja

#endif  // TANDEM_CHAT_JINJA_FORMAT_TEXT_H_
