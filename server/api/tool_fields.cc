#include "server/api/tool_fields.h"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "chat/json_types.h"
#include "chat/tool_calls.h"
#include "chat/tool_function.h"
#include "chat/tool_tags.h"
#include "json/json_text.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

using Json = JsonValue;
using Family = ToolFormat::Family;

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

// The schema whose objects have no properties but those that they name, unless they say otherwise:
// models that must call would write others without end. Parts of an allOf name each other's.
Json Closed(Json schema) {
  if (schema.is_array()) {
    for (Json& element : schema) element = Closed(std::move(element));
  }
  if (!schema.is_object()) return schema;
  for (const char* one : {"items", "additionalProperties", "anyOf", "oneOf", "prefixItems"}) {
    if (schema.contains(one)) schema[one] = Closed(std::move(schema[one]));
  }
  for (const char* many : {"properties", "$defs", "definitions"}) {
    if (!schema.contains(many) || !schema[many].is_object()) continue;
    for (Json& inner : schema[many]) inner = Closed(std::move(inner));
  }
  const bool says_which = absl::c_any_of(
      std::array{"additionalProperties", "patternProperties", "unevaluatedProperties", "allOf"},
      [&](const char* keyword) { return schema.contains(keyword); });
  if (schema.contains("properties") && !says_which) schema["additionalProperties"] = false;
  return schema;
}

// The parameters whose types the form of calls does not show.
CallableFunction CallableOf(const ToolFunction& function, const ToolFormat& format) {
  CallableFunction callable{.name = function.name};
  const Json* const object = Referenced(function.schema, function.schema);
  const bool is_shown = !format.has_plain_values() || object == nullptr || !object->is_object() ||
                        !object->contains("properties");
  if (is_shown) return callable;
  for (const auto& [name, schema] : object->at("properties").items()) {
    callable.parameters[name] = JsonTypes::AllowedBy(schema, function.schema);
  }
  return callable;
}

// How an API writes functions.
enum class ToolForm {
  kNested,  // {"type": "function", "function": {"name": ..., ...}}, as chats
  kFlat,    // {"type": "function", "name": ..., ...}, as OpenAI's Responses API
};

// Reads the fields of one request.
class ToolReader {
 public:
  ToolReader(const ServedModel& model, ToolForm form, RequestFields* fields)
      : model_(model), form_(form), fields_(fields) {}

  void ReadFunctions() {
    const Json* list = fields_->Find("tools");
    if (list == nullptr) return;
    if (!list->is_array() || list->size() > kMostTools) {
      return fields_->FailNot("tools", *list,
                              absl::StrCat("a list of at most ", kMostTools, " functions"));
    }
    for (size_t i = 0; i < list->size() && fields_->ok(); ++i) {
      RequestFields tool(&(*list)[i], absl::StrCat("tools[", i, "]"), fields_->ignored());
      std::string type;
      tool.Read("type", &type);
      if (tool.ok() && type != "function") tool.FailNot("type", type, "function");
      if (tool.ok()) ReadFunction((*list)[i], &tool);
      fields_->Fail(tool.Finish());
    }
  }

  void ReadChoices() {
    ReadChoice();
    fields_->Read("parallel_tool_calls", &parallel_);
  }

  void GiveToTemplate(ChatInput* chat) {
    if (!IsGiven()) return;
    chat->tools = *fields_->Find("tools");
    if (form_ == ToolForm::kNested) return;
    for (Json& tool : chat->tools) {
      tool.erase("type");
      Json nested = {{"type", "function"}};
      nested["function"] = std::move(tool);
      tool = std::move(nested);
    }
  }

  void GiveToRequest(ApiRequest* request) {
    if (!IsGiven()) return;
    ToolCallParser::Options options{.format = model_.tool_format,
                                    .functions = {},
                                    .must_call = must_call_,
                                    .parallel = parallel_};
    for (const ToolFunction& function : functions_) {
      options.functions.push_back(CallableOf(function, model_.tool_format));
    }
    request->tools = std::move(options);
    for (const std::string_view marker : model_.tool_format.Markers()) {
      if (!IsSpecial(marker)) continue;
      const TokenId id = model_.tokenizer->IdOf(std::string(marker));
      request->request.shown_special_tokens.push_back(id);
      special_.emplace_back(marker, id);
    }
    const auto strict =
        absl::c_find_if(functions_, [](const ToolFunction& f) { return f.is_strict; });
    if (must_call_) {
      Require(request);
    } else if (strict != functions_.end()) {
      HoldAtWill(FieldOfFunction(strict - functions_.begin(), "strict"), request);
    }
    // A constraint holds calls between their markers; other text that it allows is content.
    if (request->request.constraint.has_value() && model_.tool_format.family == Family::kHermes) {
      request->tools->format.may_lack_markers = false;
    }
  }

 private:
  bool IsGiven() const { return !functions_.empty() && is_allowed_ && fields_->ok(); }

  std::string FieldOfFunction(size_t i, const char* member) const {
    return absl::StrCat("tools[", i, "].", form_ == ToolForm::kNested ? "function." : "", member);
  }

  void ReadFunction(const Json& object, RequestFields* tool) {
    if (form_ == ToolForm::kFlat) return ReadMembers(object, tool);
    const Json* function = tool->Find("function");
    if (function == nullptr) return tool->FailNot("function", nullptr, "an object with a name");
    RequestFields fields(function, tool->PathOf("function"), tool->ignored());
    ReadMembers(*function, &fields);
    tool->Fail(fields.Finish());
  }

  void ReadMembers(const Json& object, RequestFields* fields) {
    ToolFunction function;
    fields->Read("name", &function.name);
    std::string description;
    fields->Read("description", &description);
    fields->Read("strict", &function.is_strict);
    const Json* parameters = fields->Find("parameters");
    if (!IsFunctionName(function.name)) {
      fields->FailNot("name", function.name,
                      absl::StrCat("1 to ", kLongestName, " of the characters a-z A-Z 0-9 _ . -"));
    } else if (absl::c_any_of(functions_,
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
    functions_.push_back(std::move(function));
  }

  // "none", "auto", "required", or {"type": "function", "function": {"name": "f"}}
  void ReadChoice() {
    const Json* choice = fields_->Find("tool_choice");
    if (choice == nullptr || IsText(*choice, "auto")) return;
    is_allowed_ = !IsText(*choice, "none");
    if (!is_allowed_) return;
    if (choice->is_object()) {
      ReadNamed(*choice);
    } else if (!IsText(*choice, "required")) {
      return fields_->FailNot("tool_choice", *choice,
                              "one of none, auto, required, or an object that names a function");
    }
    must_call_ = true;
    if (functions_.empty()) fields_->FailNot("tool_choice", *choice, "possible without tools");
  }

  void ReadNamed(const Json& object) {
    RequestFields choice(&object, "tool_choice", fields_->ignored());
    std::string type;
    choice.Read("type", &type);
    if (choice.ok() && type != "function") choice.FailNot("type", type, "function");
    if (form_ == ToolForm::kFlat) {
      ReadNameOfChoice(&choice);
    } else if (const Json* function = choice.Find("function"); function != nullptr) {
      RequestFields inner(function, "tool_choice.function", fields_->ignored());
      ReadNameOfChoice(&inner);
      choice.Fail(inner.Finish());
    } else {
      choice.FailNot("function", nullptr, "an object with the name of a function");
    }
    fields_->Fail(choice.Finish());
  }

  void ReadNameOfChoice(RequestFields* fields) {
    fields->Read("name", &named_);
    const bool is_known =
        absl::c_any_of(functions_, [this](const ToolFunction& f) { return f.name == named_; });
    if (!is_known) fields->FailNot("name", named_, "the name of one of tools");
  }

  bool IsSpecial(std::string_view marker) const {
    const TokenId id = marker.empty() ? -1 : model_.tokenizer->IdOf(std::string(marker));
    return id >= 0 && model_.tokenizer->IsSpecial(id);
  }

  void SetConstraint(const std::string& field, const Json& tag, ApiRequest* request) {
    if (!request->constraint_field.empty()) {
      return fields_->Fail(
          FieldError(field, absl::StrCat("is not possible with ", request->constraint_field)));
    }
    request->constraint_field = field;
    request->request.constraint = {.kind = OutputConstraint::Kind::kStructuralTag,
                                   .text = tag.dump()};
    std::vector<TokenId>& tokens = request->request.constraint->tokens;
    for (const auto& [marker, id] : special_) tokens.push_back(id);
    absl::c_sort(tokens);
  }

  // The tag of function i. A schema that the form of calls cannot keep is remembered as an error.
  Json TagOf(size_t i, const ToolTagOptions& options, bool keeps_schema) {
    absl::StatusOr<Json> tag = CallTag(options, functions_[i], keeps_schema);
    if (tag.ok()) return *std::move(tag);
    fields_->Fail(FieldError(FieldOfFunction(i, "parameters"), tag.status().message()));
    return nullptr;
  }

  void Require(ApiRequest* request) {
    const ToolTagOptions options{.format = model_.tool_format,
                                 .special = special_,
                                 .one_call = !parallel_ || !named_.empty()};
    Json tags = Json::array();
    for (size_t i = 0; i < functions_.size(); ++i) {
      const bool may_come = named_.empty() || functions_[i].name == named_;
      if (!may_come) continue;
      functions_[i].schema = Closed(std::move(functions_[i].schema));
      tags.push_back(TagOf(i, options, /*keeps_schema=*/true));
    }
    SetConstraint("tool_choice", RequiredCalls(options, std::move(tags)), request);
  }

  void HoldAtWill(const std::string& field, ApiRequest* request) {
    const ToolTagOptions options{
        .format = model_.tool_format, .special = special_, .one_call = !parallel_};
    Json tags = Json::array();
    for (size_t i = 0; i < functions_.size(); ++i) {
      tags.push_back(TagOf(i, options, functions_[i].is_strict));
    }
    SetConstraint(field, CallsAtWill(options, std::move(tags)), request);
  }

  const ServedModel& model_;
  const ToolForm form_;
  RequestFields* fields_;
  std::vector<ToolFunction> functions_;
  std::string named_;
  std::vector<std::pair<std::string_view, TokenId>> special_;  // markers
  bool is_allowed_ = true;
  bool must_call_ = false;
  bool parallel_ = true;
};

void ReadToolsOf(ToolForm form, const ServedModel& model, RequestFields* fields, ChatInput* chat,
                 ApiRequest* request) {
  ToolReader reader(model, form, fields);
  reader.ReadFunctions();
  reader.ReadChoices();
  reader.GiveToTemplate(chat);
  reader.GiveToRequest(request);
}

}  // namespace

void ReadTools(const ServedModel& model, RequestFields* fields, ChatInput* chat,
               ApiRequest* request) {
  ReadToolsOf(ToolForm::kNested, model, fields, chat, request);
}

void ReadToolsOfResponse(const ServedModel& model, RequestFields* fields, ChatInput* chat,
                         ApiRequest* request) {
  ReadToolsOf(ToolForm::kFlat, model, fields, chat, request);
}

void ReadToolsOfTemplate(const ServedModel& model, RequestFields* fields, ChatInput* chat) {
  ToolReader reader(model, ToolForm::kNested, fields);
  reader.ReadFunctions();
  reader.GiveToTemplate(chat);
}

}  // namespace tandem
