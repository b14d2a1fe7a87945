#include <tandem/answer_delta.h>
#include <tandem/answer_reader.h>
#include <tandem/chat_answer.h>
#include <tandem/chat_template.h>
#include <tandem/completion.h>
#include <tandem/field_error.h>
#include <tandem/owned_piece.h>
#include <tandem/tokenizer.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings.h"

namespace tandem::python {

struct AnswerParts {
  std::string reasoning{};
  std::string content{};
  std::vector<AnswerDelta::Call> tool_calls{};

  static AnswerParts Of(AnswerDelta delta) {
    return {std::move(delta.reasoning), std::move(delta.content), std::move(delta.calls)};
  }
  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
};
struct ChatPiece : OwnedPiece, AnswerParts {};
struct ChatCompletion : Completion, AnswerParts {};

// Reads one answer. Thread-compatible.
class ChatAnswerReader {
 public:
  explicit ChatAnswerReader(ChatAnswer answer)
      : answer_(std::move(answer)), reader_(answer_.reading) {}

  ChatPiece Push(const OwnedPiece& piece) {
    return {piece, AnswerParts::Of(reader_.Push(piece.text))};
  }
  // Returns the text that was held back until the end, as a piece without tokens; nothing if there
  // is none.
  std::optional<ChatPiece> Finish() {
    AnswerParts parts = AnswerParts::Of(reader_.Finish());
    if (parts.empty()) return std::nullopt;
    return ChatPiece{{}, std::move(parts)};
  }
  ChatCompletion Read(const Completion& completion) const {
    return {completion, AnswerParts::Of(AnswerReader::Read(answer_.reading, completion.text))};
  }
  const ChatAnswer& answer() const { return answer_; }

 private:
  ChatAnswer answer_;
  AnswerReader reader_;
};

namespace {

namespace nb = nanobind;

nb::object MessageOf(const ChatCompletion& self) {
  const JsonValue message = AssistantMessage({self.reasoning, self.content, self.tool_calls});
  const std::string text = message.dump(-1, ' ', true, JsonValue::error_handler_t::replace);
  return nb::module_::import_("json").attr("loads")(text);
}

}  // namespace

void BindChatAnswers(nb::module_& module) {
  auto call = nb::class_<AnswerDelta::Call>(module, "ToolCall",
                                            "A function call, or in a piece the next part of one.");
  call.def_ro("index", &AnswerDelta::Call::index, "Its index among the answer's calls.")
      .def_ro("name", &AnswerDelta::Call::name,
              "The function's name; empty in a piece that continues a call.")
      .def_ro("arguments", &AnswerDelta::Call::arguments,
              "The text of a JSON object; in a piece, the next part of it.");
  AddPickle<&AnswerDelta::Call::index, &AnswerDelta::Call::name, &AnswerDelta::Call::arguments>(
      call);
  AddRepr(call, {"index", "name", "arguments"});

  auto piece = nb::class_<ChatPiece, OwnedPiece>(
      module, "ChatPiece",
      "A piece of a chat's answer. `text` is the raw text. Reasoning, content and\n"
      "calls follow once they are recognised, the last ones in a piece without tokens.");
  piece.def_ro("tool_calls", &ChatPiece::tool_calls, "Calls that begin or continue here.");
  AddReadOnly<&OwnedPiece::text, &OwnedPiece::token_ids, &OwnedPiece::provenance,
              &OwnedPiece::logprobs, &OwnedPiece::choice_logprobs, &OwnedPiece::rejected,
              &OwnedPiece::round, &OwnedPiece::prompt_progress, &ChatPiece::reasoning,
              &ChatPiece::content, &ChatPiece::tool_calls>(piece);
  AddRepr(piece, {"text", "reasoning", "content", "tool_calls", "token_ids", "provenance"});

  auto completion =
      nb::class_<ChatCompletion, Completion>(module, "ChatCompletion",
                                             "The answer to a conversation. `text` is the whole\n"
                                             "answer, with the markers of reasoning and calls.");
  completion
      .def_ro("reasoning", &ChatCompletion::reasoning,
              "The reasoning before the answer; often empty.")
      .def_ro("content", &ChatCompletion::content, "The text without reasoning and calls.")
      .def_prop_ro("message", &MessageOf, nb::sig("def message(self) -> dict[str, typing.Any]"),
                   "The answer as a message to append to the conversation.");
  AddReadOnly<&Completion::text, &Completion::token_ids, &Completion::finish_reason,
              &Completion::provenance, &Completion::logprobs, &Completion::prompt_logprobs,
              &Completion::choice_logprobs, &Completion::prompt_tokens, &Completion::cached_tokens,
              &Completion::store_tokens, &Completion::transfer_tokens,
              &Completion::kv_transfer_params, &Completion::first_round_tokens,
              &Completion::num_preemptions, &Completion::verifier, &Completion::draft_tokens,
              &Completion::stats, &Completion::timings, &ChatCompletion::reasoning,
              &ChatCompletion::content, &ChatCompletion::tool_calls>(completion);
  AddRepr(completion, {"text", "reasoning", "content", "tool_calls", "finish_reason",
                       "prompt_tokens", "provenance", "stats", "timings"});

  auto reader = nb::class_<ChatAnswerReader>(module, "ChatAnswerReader",
                                             "Splits one answer to a conversation into its parts.");
  reader
      .def_static(
          "of",
          [](const ChatTemplate& chat, const Tokenizer& tokenizer, const nb::object& prompt,
             const std::optional<std::string>& tools, bool is_constrained,
             std::optional<int> max_thinking_tokens, const std::optional<std::string>& variables) {
            ChatInput input;
            if (tools.has_value()) input.tools = JsonOf("tools", *tools);
            if (variables.has_value()) input.kwargs = JsonOf("variables", *variables);
            input.max_thinking_tokens = max_thinking_tokens;
            return new ChatAnswerReader(ValueOrRaise(
                ChatAnswer::Of(chat, tokenizer, input, IdsOf(prompt, "prompt"), is_constrained)));
          },
          nb::rv_policy::take_ownership, nb::arg("chat_template"), nb::arg("tokenizer"),
          nb::arg("prompt"), nb::kw_only(), nb::arg("tools") = nb::none(),
          nb::arg("is_constrained") = false, nb::arg("max_thinking_tokens") = nb::none(),
          nb::arg("variables") = nb::none(),
          "`tools` and `variables` are JSON. `is_constrained`: the request has a constraint of "
          "its\n"
          "own.")
      .def("push", &ChatAnswerReader::Push, nb::arg("piece"))
      .def("finish", &ChatAnswerReader::Finish,
           "The text that was held back. Call after the last piece.")
      .def("read", &ChatAnswerReader::Read, nb::arg("completion"), "The parts of a whole answer.")
      .def_prop_ro(
          "shown_special_tokens",
          [](const ChatAnswerReader& self) { return self.answer().shown_special_tokens; },
          "The markers that the request must show.")
      .def_prop_ro(
          "constraint", [](const ChatAnswerReader& self) { return self.answer().constraint; },
          "The request's constraint, if a function is strict.")
      .def_prop_ro(
          "thinking_budget",
          [](const ChatAnswerReader& self) { return self.answer().thinking_budget; },
          "The request's limit on the reasoning, if it is limited.");
}

}  // namespace tandem::python
