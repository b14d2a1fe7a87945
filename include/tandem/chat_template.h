#ifndef TANDEM_INCLUDE_TANDEM_CHAT_TEMPLATE_H_
#define TANDEM_INCLUDE_TANDEM_CHAT_TEMPLATE_H_

#include "chat/chat_template.h"  // IWYU pragma: export
#include "chat/generic_tools.h"  // IWYU pragma: export

#endif  // TANDEM_INCLUDE_TANDEM_CHAT_TEMPLATE_H_
