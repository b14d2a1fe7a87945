#include "tandem/tool_format.h"

#include <string_view>

namespace tandem {
namespace {

using Family = ToolFormat::Family;

// A template that mentions both texts is of a model that writes calls like this. `also` may be
// empty.
struct KnownFormat {
  std::string_view mentioned;
  std::string_view also;
  ToolFormat format;
};

ToolFormat List(std::string_view begin, std::string_view closing) {
  return {
      .family = Family::kList, .begin = begin, .end = "", .closing = closing, .list_begin = "["};
}

ToolFormat Mistral(bool is_named, bool has_call_ids) {
  return {.family = is_named ? Family::kMistralNamed : Family::kList,
          .begin = "[TOOL_CALLS]",
          .end = "",
          .has_call_ids = has_call_ids};
}

ToolFormat Llama() {
  return {.family = Family::kLlama3,
          .begin = "<|python_tag|>",
          .end = "",
          .arguments = "parameters",
          .may_lack_markers = true};
}

ToolFormat CommandR() {
  ToolFormat format = List("<|START_ACTION|>", "<|END_ACTION|>");
  format.arguments = "parameters";
  format.has_call_ids = true;
  format.list_begin = "[\n    ";
  format.list_separator = ",\n    ";
  format.list_end = "\n]";
  format.name = "tool_name";
  return format;
}

ToolFormat DeepSeek(bool is_fenced) {
  return {.family = Family::kDeepSeek,
          .begin = "<\uff5ctool\u2581call\u2581begin\uff5c>",
          .end = "<\uff5ctool\u2581call\u2581end\uff5c>",
          .opening = ToolFormat::kDeepSeekBegin,
          .closing = "<\uff5ctool\u2581calls\u2581end\uff5c>",
          .is_fenced = is_fenced};
}

}  // namespace

ToolFormat ToolFormat::Of(const ChatTemplate& chat) {
  if (!chat.HasPlaceForTools()) return {.may_lack_markers = true};
  const bool is_xml = chat.Mentions("<function=") && chat.Mentions("<parameter=");
  // The first that fits.
  const KnownFormat known[] = {
      {"<tool_call>", "<arg_key>", {.family = Family::kGlm}},
      {"<tool_call>", "", {.family = is_xml ? Family::kQwenXml : Family::kHermes}},
      {"[TOOL_CALLS]", kArgumentsMarker, Mistral(/*is_named=*/true, chat.Mentions(kCallIdMarker))},
      {"[TOOL_CALLS]", "", Mistral(/*is_named=*/false, /*has_call_ids=*/false)},
      {"<|START_ACTION|>", "", CommandR()},
      {kDeepSeekBegin, "", DeepSeek(chat.Mentions("```json"))},
      {"<|/tool_call|>", "", List("<|tool_call|>", "<|/tool_call|>")},
      {"<|tool|>", "<|/tool|>", List("<|tool_call|>", "<|/tool_call|>")},
      {"<|tool_call|>", "", List("<|tool_call|>", "")},
      {"<|python_tag|>", "\"parameters\"", Llama()},
      {"ipython", "\"parameters\"", Llama()}};
  for (const KnownFormat& one : known) {
    const bool fits = chat.Mentions(one.mentioned) && (one.also.empty() || chat.Mentions(one.also));
    if (fits) return one.format;
  }
  return {};
}

}  // namespace tandem
