#ifndef TANDEM_CHAT_JINJA_JINJA_TEMPLATE_H_
#define TANDEM_CHAT_JINJA_JINJA_TEMPLATE_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "chat/jinja/runtime.h"
#include "chat/jinja/syntax_tree.h"
#include "chat/jinja/value.h"

namespace tandem::jinja {

// A template in the part of Jinja that chat templates are written in, with what transformers adds:
// raise_exception, strftime_now, break, continue and generation blocks. It is parsed once and may
// be rendered at any time by any thread.
//
//   ASSIGN_OR_RETURN(const Template greeting, Template::Parse("Hello {{ name | trim }}!"));
//   ASSIGN_OR_RETURN(const MarkedText text, greeting.Render({{"name", name}}, now));
//
// Text of the template is marked kParse, and so is what it makes of numbers; words keep the marks
// of the values that they came in with.
class Template {
 public:
  // Errors: ParseTemplate's, INVALID_ARGUMENT for what is no UTF-8 or longer than 1 MiB.
  static absl::StatusOr<Template> Parse(std::string_view source);

  using Variables = std::vector<std::pair<std::string, Value>>;
  // INVALID_ARGUMENT "line 3: what", or what the template raised, with "(line 3)" behind it.
  // RESOURCE_EXHAUSTED naming the limit that it goes beyond.
  absl::StatusOr<MarkedText> Render(const Variables& variables, absl::Time now,
                                    const Limits& limits = Limits()) const;

 private:
  explicit Template(Nodes body) : body_(std::make_shared<const Nodes>(std::move(body))) {}

  std::shared_ptr<const Nodes> body_;
};

}  // namespace tandem::jinja

#endif  // TANDEM_CHAT_JINJA_JINJA_TEMPLATE_H_
