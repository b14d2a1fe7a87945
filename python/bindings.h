// What the module is made of.
#ifndef TANDEM_PYTHON_BINDINGS_H_
#define TANDEM_PYTHON_BINDINGS_H_

#include <nanobind/nanobind.h>

namespace tandem::python {

void BindText(nanobind::module_& module);         // Tokenizer, ChatTemplate
void BindRequests(nanobind::module_& module);     // EngineOptions, Request and what they hold
void BindCompletions(nanobind::module_& module);  // Completion, Piece and what they hold
void BindChatAnswers(nanobind::module_& module);  // the same of chats; after those
void BindEngine(nanobind::module_& module);       // Engine; after the others

}  // namespace tandem::python

#endif  // TANDEM_PYTHON_BINDINGS_H_
