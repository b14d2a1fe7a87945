#include "tandem/tool_format.h"

#include <array>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "base/string_view.h"

namespace tandem {
namespace {

using Family = ToolFormat::Family;
using Kind = CallPart::Kind;

constexpr std::string_view kArgumentsMarker = "[ARGS]";
constexpr std::string_view kCallIdMarker = "[CALL_ID]";
constexpr std::string_view kDeepSeekBegin = "<\uff5ctool\u2581calls\u2581begin\uff5c>";

constexpr CallPart Text(std::string_view text, size_t num_optional = 0) {
  return {.kind = Kind::kText, .text = text, .num_optional = num_optional};
}
constexpr CallPart Marker(std::string_view text, size_t num_optional = 0) {
  return {.kind = Kind::kMarker, .text = text, .num_optional = num_optional};
}
constexpr CallPart Id(std::string_view pattern) { return {.kind = Kind::kId, .text = pattern}; }
constexpr CallPart kWord = {.kind = Kind::kWord, .text = "function"};
constexpr CallPart kName = {.kind = Kind::kName};
constexpr CallPart kArguments = {.kind = Kind::kArguments};
constexpr CallPart kKey = {.kind = Kind::kKey};
constexpr CallPart kValue = {.kind = Kind::kValue};
constexpr CallPart kSeparator = Marker("<\uff5ctool\u2581sep\uff5c>");
constexpr size_t kParameter = CallPart::kParameterSize;

constexpr CallPart kLlamaCall[] = {Text("{\"name\": \""), kName, Text("\", \"parameters\": "),
                                   kArguments, Text("}")};
constexpr CallPart kListedCall[] = {Text("{\"name\": \""), kName, Text("\", \"arguments\": "),
                                    kArguments, Text("}")};
constexpr CallPart kCommandRCall[] = {Text("{\"tool_call_id\": \""),
                                      Id("[0-9]{1,3}"),
                                      Text("\", \"tool_name\": \""),
                                      kName,
                                      Text("\", \"parameters\": "),
                                      kArguments,
                                      Text("}")};
constexpr CallPart kNamedCall[] = {kName, Marker(kCallIdMarker, 2), Id("[A-Za-z0-9]{9}"),
                                   Marker(kArgumentsMarker, 1), kArguments};
constexpr CallPart kQwenXmlCall[] = {Text("\n"),
                                     Text("<function="),
                                     kName,
                                     Text(">\n"),
                                     Text("<parameter=", kParameter),
                                     kKey,
                                     Text(">"),
                                     Text("\n"),
                                     kValue,
                                     Text("\n</parameter>\n"),
                                     Text("</function>"),
                                     Text("\n")};
constexpr CallPart kGlmCall[] = {kName,
                                 Text("\n"),
                                 Marker("<arg_key>", kParameter),
                                 kKey,
                                 Marker("</arg_key>"),
                                 Marker("\n<arg_value>"),
                                 kValue,
                                 Marker("</arg_value>\n"),
                                 Marker("</tool_call>")};
constexpr CallPart kFencedCall[] = {kWord,      kSeparator,   kName, Text("\n```json\n"),
                                    kArguments, Text("\n```")};
constexpr CallPart kUnfencedCall[] = {kName, kSeparator, kArguments};

ToolFormat List(std::string_view begin, std::string_view list_begin, std::string_view closing) {
  return {Family::kList, begin, "", kListedCall, {}, "", closing, list_begin, ", ", "]"};
}

// A format, and the texts that identify it: it belongs to templates that mention all of them. Empty
// texts are ignored.
struct KnownFormat {
  std::array<std::string_view, 3> mentioned;
  ToolFormat format;
};

// Returns all formats. The first whose texts a template mentions is used.
std::array<KnownFormat, 14> KnownFormats() {
  constexpr std::string_view kMistral = "[TOOL_CALLS]";
  ToolFormat named = {Family::kMistralNamed, kMistral, "", kNamedCall};
  named.separator = "";
  ToolFormat named_with_ids = named;
  named_with_ids.has_call_ids = true;
  ToolFormat unfenced = {Family::kDeepSeek,
                         "<\uff5ctool\u2581call\u2581begin\uff5c>",
                         "<\uff5ctool\u2581call\u2581end\uff5c>",
                         kUnfencedCall,
                         kFencedCall,
                         kDeepSeekBegin,
                         "<\uff5ctool\u2581calls\u2581end\uff5c>"};
  ToolFormat fenced = unfenced;
  std::swap(fenced.call, fenced.other_call);
  unfenced.separator = "";
  ToolFormat llama = {Family::kLlama3, "<|python_tag|>", "", kLlamaCall};
  llama.separator = "; ";
  llama.may_lack_markers = true;
  const ToolFormat command_r = {
      Family::kList,    "<|START_ACTION|>", "",        kCommandRCall, {}, "",
      "<|END_ACTION|>", "[\n    ",          ",\n    ", "\n]"};
  return {{{{"<tool_call>", "<arg_key>"}, {Family::kGlm, "<tool_call>", "", kGlmCall}},
           {{"<tool_call>", "<function=", "<parameter="},
            {Family::kQwenXml, "<tool_call>", "</tool_call>", kQwenXmlCall}},
           {{"<tool_call>"}, {}},
           {{kMistral, kArgumentsMarker, kCallIdMarker}, named_with_ids},
           {{kMistral, kArgumentsMarker}, named},
           {{kMistral}, List(kMistral, " [", "")},
           {{"<|START_ACTION|>"}, command_r},
           {{kDeepSeekBegin, "```json"}, fenced},
           {{kDeepSeekBegin}, unfenced},
           {{"<|/tool_call|>"}, List("<|tool_call|>", "[", "<|/tool_call|>")},
           {{"<|tool|>", "<|/tool|>"}, List("<|tool_call|>", "[", "<|/tool_call|>")},
           {{"<|tool_call|>"}, List("<|tool_call|>", "[", "")},
           {{"<|python_tag|>", "\"parameters\""}, llama},
           {{"ipython", "\"parameters\""}, llama}}};
}

}  // namespace

constexpr CallPart ToolFormat::kHermesCall[] = {
    Text("\n{\"name\": \""), kName, Text("\", \"arguments\": "), kArguments, Text("}\n")};

std::vector<std::string_view> ToolFormat::Markers() const {
  std::vector<std::string_view> markers = {begin, end, opening, closing};
  for (const CallPart& part : call) {
    const absl::string_view text = absl::StripAsciiWhitespace(View(part.text));
    if (part.kind == Kind::kMarker) markers.emplace_back(text.data(), text.size());
  }
  return markers;
}

absl::Span<const CallPart> ToolFormat::Parameter() const {
  const auto key = absl::c_find_if(call, [](const CallPart& p) { return p.kind == Kind::kKey; });
  if (key == call.end()) return {};
  return call.subspan(key - call.begin() - 1, CallPart::kParameterSize);
}

std::string_view ToolFormat::CallBegin() const {
  for (const CallPart& part : call) {
    if (part.kind != Kind::kText) break;
    const absl::string_view text = absl::StripAsciiWhitespace(View(part.text));
    if (!text.empty()) return {text.data(), text.size()};
  }
  return {};
}

ToolFormat ToolFormat::Of(const ChatTemplate& chat) {
  if (!chat.HasPlaceForTools()) return {.may_lack_markers = true};
  for (const KnownFormat& known : KnownFormats()) {
    const bool fits =
        absl::c_all_of(known.mentioned, [&](std::string_view text) { return chat.Mentions(text); });
    if (fits) return known.format;
  }
  return {};
}

ToolFormat ToolFormat::Of(Family family) {
  const auto known = KnownFormats();
  return absl::c_find_if(known, [&](const KnownFormat& k) { return k.format.family == family; })
      ->format;
}

}  // namespace tandem
