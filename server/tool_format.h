#ifndef TANDEM_SERVER_TOOL_FORMAT_H_
#define TANDEM_SERVER_TOOL_FORMAT_H_

#include <string_view>

#include "model/chat_template.h"

namespace tandem {

// How a family of models writes the calls of functions into its answers.
struct ToolFormat {
  enum class Family {
    kHermes,   // <tool_call>{"name": "f", "arguments": {...}}</tool_call>, also Qwen's
    kLlama3,   // {"name": "f", "parameters": {...}}, perhaps behind <|python_tag|>
    kMistral,  // [TOOL_CALLS] [{"name": "f", "arguments": {...}}]
  };
  Family family = Family::kHermes;
  std::string_view begin = "<tool_call>";  // in front of calls, or of each call
  std::string_view end = "</tool_call>";   // behind each call; empty if that ends without
  std::string_view arguments = "arguments";

  // The format of a model that was taught by this template; Hermes' if it shows none.
  static ToolFormat Of(const ChatTemplate& chat) {
    if (chat.Mentions("<tool_call>")) return {};
    if (chat.Mentions("[TOOL_CALLS]")) {
      return {.family = Family::kMistral, .begin = "[TOOL_CALLS]", .end = ""};
    }
    const bool is_llama = chat.Mentions("<|python_tag|>") || chat.Mentions("ipython");
    if (!is_llama || !chat.Mentions("\"parameters\"")) return {};
    return {
        .family = Family::kLlama3, .begin = "<|python_tag|>", .end = "", .arguments = "parameters"};
  }
};

}  // namespace tandem

#endif  // TANDEM_SERVER_TOOL_FORMAT_H_
