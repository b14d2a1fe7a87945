#ifndef TANDEM_CHAT_JINJA_PARSER_H_
#define TANDEM_CHAT_JINJA_PARSER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "chat/jinja/syntax_tree.h"

namespace tandem::jinja {

// Parses a template. INVALID_ARGUMENT naming the line, what was found and what is allowed;
// UNIMPLEMENTED, naming the line, for what chat templates do without: inheritance, imports,
// recursive loops. So deep, at most, may expressions and blocks nest: 100.
absl::StatusOr<Nodes> ParseTemplate(std::string_view source);

}  // namespace tandem::jinja

#endif  // TANDEM_CHAT_JINJA_PARSER_H_
