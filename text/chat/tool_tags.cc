#include "text/chat/tool_tags.h"

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/json/request_fields.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr size_t kMaxTools = 128;
constexpr size_t kLongestName = 64;

bool IsFunctionName(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName && absl::c_all_of(name, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
}

// Returns the schema of a function's arguments. It always describes an object, which is empty if
// the function has no parameters.
Json SchemaOf(const Json& function) {
  const auto parameters = function.find("parameters");
  if (parameters == function.end() || parameters->is_null() || parameters->empty()) {
    return {{"type", "object"}, {"additionalProperties", false}};
  }
  Json schema = *parameters;
  schema["type"] = "object";
  return schema;
}

// Reads a function's members from `object` by means of `fields`. Errors name it `path`.
void ReadMembers(const Json& object, const std::string& path, RequestFields* fields,
                 std::vector<ToolFunction>* functions) {
  ToolFunction function;
  function.field = path;
  fields->Read("name", &function.name);
  std::string description;
  fields->Read("description", &description);
  fields->Read("strict", &function.is_strict);
  const Json* parameters = fields->Find("parameters");
  if (!IsFunctionName(function.name)) {
    fields->FailNot("name", function.name,
                    absl::StrCat("1 to ", kLongestName, " of the characters a-z A-Z 0-9 _ . -"));
  } else if (absl::c_any_of(*functions,
                            [&](const ToolFunction& f) { return f.name == function.name; })) {
    fields->FailNot("name", function.name, "given once");
  }
  if (parameters != nullptr && !parameters->is_object()) {
    fields->FailNot("parameters", *parameters, "a JSON schema");
  } else if (parameters != nullptr &&
             !JsonTypes::AllowedBy(*parameters, *parameters).Has(JsonTypes::kObject)) {
    fields->FailNot("parameters", *parameters, "a JSON schema of objects");
  }
  if (!fields->ok()) return;
  function.schema = SchemaOf(object);
  functions->push_back(std::move(function));
}

void ReadFunction(RequestFields* fields, std::vector<ToolFunction>* functions) {
  const Json* function = fields->Find("function");
  if (function == nullptr) return fields->FailNot("function", nullptr, "an object with a name");
  const std::string path = fields->PathOf("function");
  RequestFields inner(function, path, fields->ignored());
  ReadMembers(*function, path, &inner, functions);
  fields->Fail(inner.Finish());
}

}  // namespace

std::vector<SpecialMarker> SpecialMarkersAmong(absl::Span<const std::string_view> markers,
                                               const Tokenizer& tokenizer) {
  std::vector<SpecialMarker> special;
  for (const std::string_view marker : markers) {
    const TokenId id = marker.empty() ? -1 : tokenizer.IdOf(marker);
    if (id >= 0 && tokenizer.IsSpecial(id)) special.emplace_back(marker, id);
  }
  return special;
}

std::vector<ToolFunction> ReadToolFunctions(ToolForm form, RequestFields* fields) {
  std::vector<ToolFunction> functions;
  const Json* list = fields->Find("tools");
  if (list == nullptr) return functions;
  if (!list->is_array() || list->size() > kMaxTools) {
    fields->FailNot("tools", *list, absl::StrCat("a list of at most ", kMaxTools, " functions"));
    return functions;
  }
  for (size_t i = 0; i < list->size() && fields->ok(); ++i) {
    const std::string path = absl::StrCat("tools[", i, "]");
    RequestFields tool(&(*list)[i], path, fields->ignored());
    std::string type;
    tool.Read("type", &type);
    if (tool.ok() && type != "function") tool.FailNot("type", type, "function");
    if (tool.ok() && form == ToolForm::kFlat) ReadMembers((*list)[i], path, &tool, &functions);
    if (tool.ok() && form == ToolForm::kNested) ReadFunction(&tool, &functions);
    fields->Fail(tool.Finish());
  }
  return functions;
}

absl::StatusOr<std::vector<ToolFunction>> ToolFunctionsOf(const Json& tools) {
  const Json request = {{"tools", tools}};
  IgnoredFields ignored;
  RequestFields fields(&request, "", &ignored);
  std::vector<ToolFunction> functions = ReadToolFunctions(ToolForm::kNested, &fields);
  RETURN_IF_ERROR(fields.Finish());
  return functions;
}

std::vector<CallableFunction> CallablesOf(absl::Span<const ToolFunction> functions,
                                          const ToolFormat& format) {
  std::vector<CallableFunction> callables;
  for (const ToolFunction& function : functions) {
    CallableFunction& callable = callables.emplace_back(CallableFunction{.name = function.name});
    const Json* const object = Referenced(function.schema, function.schema);
    const bool is_shown = !format.has_plain_values() || object == nullptr || !object->is_object() ||
                          !object->contains("properties");
    if (is_shown) continue;
    for (const auto& [name, schema] : object->at("properties").items()) {
      callable.parameters[name] = JsonTypes::AllowedBy(schema, function.schema);
    }
  }
  return callables;
}

absl::StatusOr<std::vector<CallableFunction>> CallableFunctions(const Json& tools,
                                                                const ToolFormat& format) {
  ASSIGN_OR_RETURN(const std::vector<ToolFunction> functions, ToolFunctionsOf(tools));
  return CallablesOf(functions, format);
}

namespace {

// Returns the marker as a text, or as a token if it is a special one.
Json MarkerOf(const ToolTagOptions& options, std::string_view marker) {
  for (const auto& [text, id] : options.special) {
    if (text == marker) return {{"type", "token"}, {"token", id}};
  }
  return std::string(marker);
}

bool IsToken(const Json& part) { return part.is_object() && IsText(part["type"], "token"); }

// Makes a tag of a sequence of texts, tokens and formats. A tag must begin and end with a text or a
// token.
Json TagOf(const std::vector<Json>& all_parts) {
  std::vector<Json> parts = {""};
  for (const Json& part : all_parts) {
    if (IsText(part, "")) continue;
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

// Whether the format encloses all calls of an answer in markers or brackets.
bool AreEnclosed(const ToolFormat& format) {
  return !format.list_begin.empty() || !format.opening.empty();
}

// The marker before the first call.
std::string_view FirstMarker(const ToolFormat& format) {
  return format.opening.empty() ? format.begin : format.opening;
}

absl::StatusOr<Json> PlainArguments(const ToolTagOptions& options, const ToolFunction& function,
                                    bool keeps_schema) {
  const absl::Span<const CallPart> form = options.format.Parameter();
  for (const CallPart& part : form) {
    const absl::string_view marker = absl::StripAsciiWhitespace(View(part.text));
    if (!IsToken(MarkerOf(options, {marker.data(), marker.size()}))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("cannot be enforced because ", marker, " is a special token of this model"));
  }
  if (keeps_schema) return XmlArguments(function.schema, function.is_strict, form);
  if (options.format.end.empty()) return XmlArguments({{"type", "object"}}, false, form);
  return Json{{"type", "any_text"}};
}

absl::StatusOr<Json> TagOfCall(const ToolTagOptions& options, const ToolFunction& function,
                               bool keeps_schema) {
  const ToolFormat& format = options.format;
  std::vector<Json> parts;
  for (size_t i = 0; i < format.call.size(); ++i) {
    const CallPart& part = format.call[i];
    switch (part.kind) {
      case CallPart::Kind::kName:
        parts.emplace_back(function.name);
        continue;
      case CallPart::Kind::kId:
        parts.push_back({{"type", "regex"}, {"pattern", std::string(part.text)}});
        continue;
      case CallPart::Kind::kArguments:
        parts.push_back({{"type", "json_schema"},
                         {"json_schema", keeps_schema ? function.schema : Json{{"type", "object"}}},
                         {"strict", function.is_strict}});
        continue;
      default:
        break;
    }
    if (part.num_optional == CallPart::kParameterSize) {
      ASSIGN_OR_RETURN(Json arguments, PlainArguments(options, function, keeps_schema));
      parts.push_back(std::move(arguments));
    } else if (part.num_optional <= 1 || format.has_call_ids) {
      parts.push_back(MarkerOf(options, part.text));
      continue;
    }
    i += part.num_optional - 1;
  }
  if (!format.list_begin.empty() || format.is_bare()) return TagOf(parts);
  const Json end = MarkerOf(options, format.end);
  if (format.has_plain_values() && IsToken(end)) {
    // "any_text" ends at the text after it only if that text ends a tag.
    parts = {parts.front(), TagOf({parts.begin() + 1, parts.end() - 1}), parts.back()};
  }
  parts.insert(parts.begin(), MarkerOf(options, format.begin));
  parts.push_back(end);
  return TagOf(parts);
}

}  // namespace

absl::StatusOr<Json> CallTag(const ToolTagOptions& options, const ToolFunction& function,
                             bool keeps_schema) {
  absl::StatusOr<Json> tag = TagOfCall(options, function, keeps_schema);
  if (tag.ok()) return tag;
  return FieldError(absl::StrCat(function.field, ".parameters"), tag.status().message());
}

Json RequiredCalls(const ToolTagOptions& options, Json tags) {
  Json calls = {{"type", "tags_with_separator"},
                {"tags", std::move(tags)},
                {"separator", std::string(options.format.separator)},
                {"at_least_one", true},
                {"stop_after_first", options.one_call}};
  const ToolFormat& format = options.format;
  if (!AreEnclosed(format)) return calls;
  return TagOf({MarkerOf(options, FirstMarker(format)), std::string(format.list_begin),
                std::move(calls), std::string(format.list_end), MarkerOf(options, format.closing)});
}

absl::StatusOr<Json> OptionalCallsTag(const ToolTagOptions& options,
                                      absl::Span<const ToolFunction> functions) {
  const ToolFormat& format = options.format;
  Json tags = Json::array();
  for (const ToolFunction& function : functions) {
    ASSIGN_OR_RETURN(Json tag, CallTag(options, function, function.is_strict));
    tags.push_back(std::move(tag));
  }
  if (AreEnclosed(format)) tags = Json::array({RequiredCalls(options, std::move(tags))});
  const std::string_view first = format.is_bare() ? format.CallBegin() : FirstMarker(format);
  const Json trigger = MarkerOf(options, first);
  const bool is_token = IsToken(trigger);
  Json calls = {{"type", is_token ? "token_triggered_tags" : "triggered_tags"},
                {is_token ? "trigger_tokens" : "triggers",
                 Json::array({is_token ? trigger["token"] : trigger})},
                {"tags", std::move(tags)},
                {"stop_after_first", options.one_call}};
  if (!is_token) return calls;
  Json& others = calls["exclude_tokens"] = Json::array();  // they occur only within calls
  for (const auto& [text, id] : options.special) {
    if (text != first) others.push_back(id);
  }
  return calls;
}

OutputConstraint ConstraintFor(const ToolTagOptions& options, const Json& tag) {
  OutputConstraint constraint{.kind = OutputConstraint::Kind::kStructuralTag, .text = tag.dump()};
  for (const SpecialMarker& marker : options.special) constraint.tokens.push_back(marker.second);
  absl::c_sort(constraint.tokens);
  return constraint;
}

}  // namespace tandem
