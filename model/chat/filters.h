#ifndef TANDEM_MODEL_CHAT_FILTERS_H_
#define TANDEM_MODEL_CHAT_FILTERS_H_

#include <string_view>

#include "model/chat/runtime.h"

namespace tandem::jinja {

// The filters of lists, dictionaries and what else has elements. Null if there is none of the name.
const Builtin* FindSequenceFilter(std::string_view name);

}  // namespace tandem::jinja

#endif  // TANDEM_MODEL_CHAT_FILTERS_H_
