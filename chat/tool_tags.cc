#include "chat/tool_tags.h"

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "chat/xml_arguments.h"
#include "json/json_text.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

using Json = JsonValue;
using Family = ToolFormat::Family;

// A text, or the token that it is.
Json MarkerOf(const ToolTagOptions& options, std::string_view marker) {
  for (const auto& [text, id] : options.special) {
    if (text == marker) return {{"type", "token"}, {"token", id}};
  }
  return std::string(marker);
}

bool IsToken(const Json& part) { return part.is_object() && IsText(part["type"], "token"); }

// What stands behind each other: texts, tokens and formats. A tag begins and ends in a text or a
// token.
Json TagOf(const std::vector<Json>& all_parts) {
  std::vector<Json> parts = {""};
  for (const Json& part : all_parts) {
    if (part.is_string() && parts.back().is_string()) {
      parts.back() = parts.back().get<std::string>() + part.get<std::string>();
    } else {
      parts.push_back(part);
    }
  }
  if (IsText(parts[0], "") && IsToken(parts[1])) parts.erase(parts.begin());
  if (!parts.back().is_string() && !IsToken(parts.back())) parts.emplace_back("");
  Json elements = Json::array();
  for (size_t i = 1; i + 1 < parts.size(); ++i) {
    Json text = {{"type", "const_string"}, {"value", parts[i]}};
    elements.push_back(parts[i].is_string() ? std::move(text) : std::move(parts[i]));
  }
  Json content = elements.size() == 1
                     ? std::move(elements[0])
                     : Json{{"type", "sequence"}, {"elements", std::move(elements)}};
  return {{"type", "tag"},
          {"begin", std::move(parts.front())},
          {"content", std::move(content)},
          {"end", std::move(parts.back())}};
}

// Whether something stands around all calls of an answer.
bool AreEnclosed(const ToolTagOptions& options) {
  return options.format.family == Family::kList || options.format.family == Family::kDeepSeek;
}

std::string SeparatorOf(const ToolFormat& format) {
  switch (format.family) {
    case Family::kList:
      return std::string(format.list_separator);
    case Family::kLlama3:
      return "; ";
    case Family::kMistralNamed:
      return "";
    case Family::kDeepSeek:
      return format.is_fenced ? "\n" : "";
    default:
      return "\n";
  }
}

// What the first call stands behind.
std::string_view FirstMarker(const ToolFormat& format) {
  return format.opening.empty() ? format.begin : format.opening;
}

Json Calls(const ToolTagOptions& options, Json tags) {
  Json calls = {{"type", "tags_with_separator"},
                {"tags", std::move(tags)},
                {"separator", SeparatorOf(options.format)},
                {"at_least_one", true},
                {"stop_after_first", options.one_call}};
  if (!AreEnclosed(options)) return calls;
  const ToolFormat& format = options.format;
  std::vector<Json> parts = {MarkerOf(options, FirstMarker(format))};
  if (format.family == Family::kList) parts.emplace_back(std::string(format.list_begin));
  parts.push_back(std::move(calls));
  if (format.family == Family::kList) parts.emplace_back(std::string(format.list_end));
  parts.push_back(MarkerOf(options, format.closing));
  return TagOf(parts);
}

// f[ARGS]{...}
Json NamedCallTag(const ToolTagOptions& options, const std::string& name, Json arguments) {
  std::vector<Json> parts = {MarkerOf(options, options.format.begin), name};
  if (options.format.has_call_ids) {
    parts.push_back(MarkerOf(options, ToolFormat::kCallIdMarker));
    parts.push_back({{"type", "regex"}, {"pattern", "[A-Za-z0-9]{9}"}});
  }
  parts.push_back(MarkerOf(options, ToolFormat::kArgumentsMarker));
  parts.push_back(std::move(arguments));
  return TagOf(parts);
}

absl::StatusOr<Json> TagOfCall(const ToolTagOptions& options, const ToolFunction& function,
                               bool keeps_schema) {
  const ToolFormat& format = options.format;
  const Json begin = MarkerOf(options, format.begin);
  const Json end = MarkerOf(options, format.end);
  if (format.family == Family::kQwenXml) {
    Json arguments = {{"type", "any_text"}};
    if (keeps_schema) {
      ASSIGN_OR_RETURN(arguments, XmlArguments(function.schema, function.is_strict, kQwenXmlForm));
    }
    const std::string opening = absl::StrCat("<function=", function.name, ">\n");
    if (!IsToken(end)) {
      return TagOf({begin, "\n", opening, std::move(arguments), "</function>\n", end});
    }
    // Any text ends with the text behind it, if that ends a tag.
    Json inner = TagOf({opening, std::move(arguments), "</function>"});
    return TagOf({begin, "\n", std::move(inner), "\n", end});
  }
  if (format.family == Family::kGlm) {
    for (const std::string_view marker : ToolFormat::kGlmMarkers) {
      if (!IsToken(MarkerOf(options, marker))) continue;
      return absl::InvalidArgumentError(absl::StrCat("cannot be held to where ", View(marker),
                                                     " is a special token, as in this model"));
    }
    const Json any = {{"type", "object"}};
    ASSIGN_OR_RETURN(Json parameters, XmlArguments(keeps_schema ? function.schema : any,
                                                   keeps_schema && function.is_strict, kGlmForm));
    return TagOf({begin, function.name + "\n", std::move(parameters), end});
  }
  Json arguments = {{"type", "json_schema"},
                    {"json_schema", keeps_schema ? function.schema : Json{{"type", "object"}}},
                    {"strict", function.is_strict}};
  if (format.family == Family::kMistralNamed) {
    return NamedCallTag(options, function.name, std::move(arguments));
  }
  if (format.family == Family::kDeepSeek) {
    const Json separator = MarkerOf(options, ToolFormat::kDeepSeekSeparator);
    if (!format.is_fenced) return TagOf({begin, function.name, separator, arguments, end});
    return TagOf({begin, "function", separator, function.name + "\n```json\n", std::move(arguments),
                  "\n```", end});
  }
  const std::string opening = absl::StrCat("\"", View(format.name), "\": \"", function.name,
                                           "\", \"", View(format.arguments), "\": ");
  if (format.family == Family::kList && format.has_call_ids) {
    return TagOf({"{\"tool_call_id\": \"",
                  {{"type", "regex"}, {"pattern", "[0-9]{1,3}"}},
                  "\", " + opening,
                  std::move(arguments),
                  "}"});
  }
  if (format.family != Family::kHermes) return TagOf({"{" + opening, std::move(arguments), "}"});
  return TagOf({begin, "\n{" + opening, std::move(arguments), "}\n", end});
}

}  // namespace

absl::StatusOr<Json> CallTag(const ToolTagOptions& options, const ToolFunction& function,
                             bool keeps_schema) {
  absl::StatusOr<Json> tag = TagOfCall(options, function, keeps_schema);
  if (tag.ok()) return tag;
  return FieldError(absl::StrCat(function.field, ".parameters"), tag.status().message());
}

Json RequiredCalls(const ToolTagOptions& options, Json tags) {
  return Calls(options, std::move(tags));
}

Json CallsAtWill(const ToolTagOptions& options, Json tags) {
  const bool is_bare = options.format.family == Family::kLlama3;
  const std::string_view first = FirstMarker(options.format);
  const Json trigger = is_bare ? "{\"name\": \"" : MarkerOf(options, first);
  if (AreEnclosed(options)) tags = Json::array({Calls(options, std::move(tags))});
  if (!IsToken(trigger)) {
    return {{"type", "triggered_tags"},
            {"triggers", Json::array({trigger})},
            {"tags", std::move(tags)},
            {"stop_after_first", options.one_call}};
  }
  Json others = Json::array();  // they stand in calls alone
  for (const auto& [text, id] : options.special) {
    if (text != first) others.push_back(id);
  }
  return {{"type", "token_triggered_tags"},
          {"trigger_tokens", Json::array({trigger["token"]})},
          {"exclude_tokens", std::move(others)},
          {"tags", std::move(tags)},
          {"stop_after_first", options.one_call}};
}

absl::StatusOr<Json> CallsAtWillOf(const ToolTagOptions& options,
                                   absl::Span<const ToolFunction> functions) {
  Json tags = Json::array();
  for (const ToolFunction& function : functions) {
    ASSIGN_OR_RETURN(Json tag, CallTag(options, function, function.is_strict));
    tags.push_back(std::move(tag));
  }
  return CallsAtWill(options, std::move(tags));
}

OutputConstraint HoldTo(const ToolTagOptions& options, const Json& tag) {
  OutputConstraint constraint{.kind = OutputConstraint::Kind::kStructuralTag, .text = tag.dump()};
  for (const SpecialMarker& marker : options.special) constraint.tokens.push_back(marker.second);
  absl::c_sort(constraint.tokens);
  return constraint;
}

}  // namespace tandem
