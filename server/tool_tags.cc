#include "server/tool_tags.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "server/xml_arguments.h"

namespace tandem {
namespace {

using Json = JsonValue;
using Family = ToolFormat::Family;

Json Tag(std::string begin, Json content, std::string end) {
  return {{"type", "tag"},
          {"begin", std::move(begin)},
          {"content", std::move(content)},
          {"end", std::move(end)}};
}

// Whether calls are elements of a list.
bool AreListed(const ToolTagOptions& options) {
  const Family family = options.format.family;
  return family == Family::kMistral ||
         (family == Family::kMistralNamed && options.has_special_markers);
}

const char* SeparatorOf(const ToolTagOptions& options) {
  if (AreListed(options)) return ", ";
  if (options.format.family == Family::kLlama3) return "; ";
  return options.format.family == Family::kMistralNamed ? "" : "\n";
}

Json Calls(const ToolTagOptions& options, Json tags) {
  Json calls = {{"type", "tags_with_separator"},
                {"tags", std::move(tags)},
                {"separator", SeparatorOf(options)},
                {"at_least_one", true},
                {"stop_after_first", options.one_call}};
  if (!AreListed(options)) return calls;
  const std::string begin =
      options.has_special_markers ? "[" : absl::StrCat(View(options.format.begin), " [");
  return Tag(begin, std::move(calls), "]");
}

// f[ARGS]{...}
Json NamedCallTag(const ToolFormat& format, const std::string& name, Json arguments) {
  const std::string begin = absl::StrCat(View(format.begin), name);
  if (!format.has_call_ids) return Tag(begin + "[ARGS]", std::move(arguments), "");
  Json elements = Json::array();
  elements.push_back({{"type", "regex"}, {"pattern", "[A-Za-z0-9]{9}"}});
  elements.push_back({{"type", "const_string"}, {"value", "[ARGS]"}});
  elements.push_back(std::move(arguments));
  return Tag(begin + "[CALL_ID]", {{"type", "sequence"}, {"elements", std::move(elements)}}, "");
}

}  // namespace

absl::StatusOr<Json> CallTag(const ToolTagOptions& options, const ToolFunction& function,
                             bool keeps_schema) {
  const ToolFormat& format = options.format;
  if (format.family == Family::kQwenXml) {
    Json arguments = {{"type", "any_text"}};
    if (keeps_schema) {
      ASSIGN_OR_RETURN(arguments, XmlArguments(function.schema, function.is_strict));
    }
    return Tag(absl::StrCat("<tool_call>\n<function=", function.name, ">\n"), std::move(arguments),
               "</function>\n</tool_call>");
  }
  Json arguments = {{"type", "json_schema"},
                    {"json_schema", keeps_schema ? function.schema : Json{{"type", "object"}}},
                    {"strict", function.is_strict}};
  if (format.family == Family::kMistralNamed && !AreListed(options)) {
    return NamedCallTag(format, function.name, std::move(arguments));
  }
  const bool is_hermes = format.family == Family::kHermes;
  return Tag(absl::StrCat(is_hermes ? "<tool_call>\n" : "", "{\"name\": \"", function.name,
                          "\", \"", View(format.arguments), "\": "),
             std::move(arguments), is_hermes ? "}\n</tool_call>" : "}");
}

Json RequiredCalls(const ToolTagOptions& options, Json tags) {
  return Calls(options, std::move(tags));
}

Json CallsAtWill(const ToolTagOptions& options, Json tags) {
  std::string trigger(options.format.begin);
  if (options.format.family == Family::kLlama3) trigger = "{\"name\": \"";
  if (AreListed(options)) tags = Json::array({Calls(options, std::move(tags))});
  return {{"type", "triggered_tags"},
          {"triggers", Json::array({trigger})},
          {"tags", std::move(tags)},
          {"stop_after_first", options.one_call}};
}

}  // namespace tandem
