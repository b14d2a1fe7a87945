#ifndef TANDEM_SERVER_TOOL_FORMAT_H_
#define TANDEM_SERVER_TOOL_FORMAT_H_

#include <string_view>
#include <vector>

#include "model/chat_template.h"

namespace tandem {

// How a family of models writes the calls of functions into its answers.
struct ToolFormat {
  enum class Family {
    kHermes,        // <tool_call>{"name": "f", "arguments": {...}}</tool_call>, also Qwen's
    kLlama3,        // {"name": "f", "parameters": {...}}, perhaps behind <|python_tag|>
    kMistral,       // [TOOL_CALLS] [{"name": "f", "arguments": {...}}]
    kMistralNamed,  // [TOOL_CALLS]f[ARGS]{...}, the next call likewise
    // <tool_call><function=f><parameter=a>1</parameter></function></tool_call>, with line breaks:
    // Qwen3-Coder's, whose values are texts
    kQwenXml,
  };
  Family family = Family::kHermes;
  std::string_view begin = "<tool_call>";  // in front of calls, or of each call
  std::string_view end = "</tool_call>";   // behind each call; empty if that ends without
  std::string_view arguments = "arguments";
  bool has_call_ids = false;  // of kMistralNamed: [TOOL_CALLS]f[CALL_ID]id[ARGS]{...}

  // What calls are marked with, of which some may be special tokens.
  std::vector<std::string_view> Markers() const {
    if (family == Family::kMistralNamed) return {begin, "[ARGS]", "[CALL_ID]"};
    return {begin, end};
  }

  // The format of a model that was taught by this template; Hermes' if it shows none.
  static ToolFormat Of(const ChatTemplate& chat) {
    if (chat.Mentions("<tool_call>")) {
      const bool is_xml = chat.Mentions("<function=") && chat.Mentions("<parameter=");
      return {.family = is_xml ? Family::kQwenXml : Family::kHermes};
    }
    if (chat.Mentions("[TOOL_CALLS]")) {
      const bool is_named = chat.Mentions("[ARGS]");
      return {.family = is_named ? Family::kMistralNamed : Family::kMistral,
              .begin = "[TOOL_CALLS]",
              .end = "",
              .has_call_ids = is_named && chat.Mentions("[CALL_ID]")};
    }
    const bool is_llama = chat.Mentions("<|python_tag|>") || chat.Mentions("ipython");
    if (!is_llama || !chat.Mentions("\"parameters\"")) return {};
    return {
        .family = Family::kLlama3, .begin = "<|python_tag|>", .end = "", .arguments = "parameters"};
  }
};

}  // namespace tandem

#endif  // TANDEM_SERVER_TOOL_FORMAT_H_
