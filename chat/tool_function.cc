#include "chat/tool_function.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "chat/schema_reference.h"
#include "json/request_fields.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr size_t kMostTools = 128;
constexpr size_t kLongestName = 64;

bool IsFunctionName(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName && absl::c_all_of(name, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
}

// Arguments are objects even where a schema does not say so, and empty where it says nothing.
Json SchemaOf(const Json& function) {
  const auto parameters = function.find("parameters");
  if (parameters == function.end() || parameters->is_null() || parameters->empty()) {
    return {{"type", "object"}, {"additionalProperties", false}};
  }
  Json schema = *parameters;
  schema["type"] = "object";
  return schema;
}

// `object`, which `fields` reads and errors call `path`, has the function's members.
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

std::vector<ToolFunction> ReadToolFunctions(ToolForm form, RequestFields* fields) {
  std::vector<ToolFunction> functions;
  const Json* list = fields->Find("tools");
  if (list == nullptr) return functions;
  if (!list->is_array() || list->size() > kMostTools) {
    fields->FailNot("tools", *list, absl::StrCat("a list of at most ", kMostTools, " functions"));
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

}  // namespace tandem
