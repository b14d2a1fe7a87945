#ifndef TANDEM_TEXT_CHAT_JINJA_JINJA_TEMPLATE_H_
#define TANDEM_TEXT_CHAT_JINJA_JINJA_TEMPLATE_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "text/chat/jinja/runtime.h"
#include "text/chat/jinja/syntax_tree.h"
#include "text/chat/jinja/value.h"

namespace tandem::jinja {

// A template in the part of Jinja that chat templates use, with the additions of transformers:
// raise_exception, strftime_now, break, continue and generation blocks. It is parsed once and can
// be rendered any number of times. Thread-safe.
//
//   ASSIGN_OR_RETURN(const Template greeting, Template::Parse("Hello {{ name | trim }}!"));
//   ASSIGN_OR_RETURN(const MarkedText text, greeting.Render({{"name", name}}, now));
//
// The template's own text and the numbers that it writes are marked kParse. The text of variables
// keeps its marks.
class Template {
 public:
  // Errors are those of ParseTemplate, and INVALID_ARGUMENT if the source is not UTF-8 or longer
  // than 1 MiB.
  static absl::StatusOr<Template> Parse(std::string_view source);

  using Variables = std::vector<std::pair<std::string, Value>>;
  // INVALID_ARGUMENT with "line 3: message", or with the message that the template raised, followed
  // by "(line 3)". RESOURCE_EXHAUSTED names the limit that was exceeded.
  absl::StatusOr<MarkedText> Render(const Variables& variables, absl::Time now,
                                    const Limits& limits = Limits()) const;

 private:
  explicit Template(Nodes body) : body_(std::make_shared<const Nodes>(std::move(body))) {}

  std::shared_ptr<const Nodes> body_;
};

}  // namespace tandem::jinja

#endif  // TANDEM_TEXT_CHAT_JINJA_JINJA_TEMPLATE_H_
