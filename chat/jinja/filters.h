#ifndef TANDEM_CHAT_JINJA_FILTERS_H_
#define TANDEM_CHAT_JINJA_FILTERS_H_

#include <string_view>

#include "chat/jinja/runtime.h"

namespace tandem::jinja {

// The filters of lists, dictionaries and what else has elements. Null if there is none of the name.
const Builtin* FindSequenceFilter(std::string_view name);

}  // namespace tandem::jinja

#endif  // TANDEM_CHAT_JINJA_FILTERS_H_
