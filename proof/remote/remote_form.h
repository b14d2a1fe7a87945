// Forms of answers whose texts a few lines can judge, without a grammar engine.
#ifndef TANDEM_PROOF_REMOTE_REMOTE_FORM_H_
#define TANDEM_PROOF_REMOTE_REMOTE_FORM_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem {

// A form that a request prescribes for the whole text of its answers.
struct RemoteForm {
  enum class Kind { kNone, kJsonSchema, kChoice, kRegex };
  Kind kind = Kind::kNone;
  const char* name = "";
  std::string text{};  // as JSON: the schema, the list of texts, or the expression
  // The same as texts: one of each part, in this order. A part without texts is any white space.
  std::vector<std::vector<std::string>> parts{};
};

// A text is a beginning if bytes may follow it, and invalid if it is neither that nor complete.
struct FormMatch {
  bool is_complete = false;
  std::string next{};  // the bytes that may follow, but for white space

  bool is_valid() const { return is_complete || !next.empty(); }
};
FormMatch Match(const RemoteForm& form, absl::string_view text);

// Returns a grammar in llama.cpp's notation. REQUIRES: every part has texts.
std::string GrammarOf(const RemoteForm& form);

// One form of each kind. Objects have their properties in the schema's order.
std::vector<RemoteForm> ProofForms();
// Strings of letters, of which few may come next at every step.
RemoteForm LawForm();

}  // namespace tandem

#endif  // TANDEM_PROOF_REMOTE_REMOTE_FORM_H_
