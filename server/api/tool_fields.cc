#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "server/api/field_groups.h"
#include "tandem/field_error.h"
#include "tandem/tool_calls.h"
#include "text/chat/tool_tags.h"

namespace tandem {
namespace {

using Json = JsonValue;

// Closes a schema: objects that do not say otherwise may have only the properties that they name. A
// model that must call a tool would add properties without end. Schemas inside an allOf stay open,
// because they name each other's properties.
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

// Reads the tool fields of one request.
class ToolReader {
 public:
  ToolReader(const ServedModel& model, ToolForm form, RequestFields* fields)
      : model_(model), form_(form), fields_(fields) {}

  void ReadFunctions() { functions_ = ReadToolFunctions(form_, fields_); }

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
    const ToolFormat& format = model_.tool_format;
    std::optional<ToolCallParser::Options>& options = request->reading.tools;
    options = {.format = format,
               .functions = CallablesOf(functions_, format),
               .must_call = must_call_,
               .parallel = parallel_};
    special_ = SpecialMarkersAmong(format.Markers(), *model_.tokenizer);
    for (const SpecialMarker& marker : special_) {
      request->request.shown_special_tokens.push_back(marker.second);
    }
    const auto strict =
        absl::c_find_if(functions_, [](const ToolFunction& f) { return f.is_strict; });
    if (must_call_) {
      Require(request);
    } else if (strict != functions_.end()) {
      ConstrainOptionalCalls(absl::StrCat(strict->field, ".strict"), request);
    }
    // Under a constraint, calls come between their markers, and other text that it allows is
    // content.
    if (request->request.constraint.has_value() && !format.is_bare()) {
      options->format.may_lack_markers = false;
    }
  }

 private:
  bool IsGiven() const { return !functions_.empty() && is_allowed_ && fields_->ok(); }

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
    if (!is_known) fields->FailNot("name", named_, "the name of one of the tools");
  }

  void SetConstraint(const std::string& field, const ToolTagOptions& options,
                     const absl::StatusOr<Json>& tag, ApiRequest* request) {
    if (!tag.ok()) return fields_->Fail(tag.status());
    if (!request->constraint_field.empty()) {
      return fields_->Fail(
          FieldError(field, absl::StrCat("is not possible with ", request->constraint_field)));
    }
    request->constraint_field = field;
    request->request.constraint = ConstraintFor(options, *tag);
  }

  ToolTagOptions TagOptions() const {
    return {.format = model_.tool_format,
            .special = special_,
            .one_call = !parallel_ || !named_.empty()};
  }

  void Require(ApiRequest* request) {
    const ToolTagOptions options = TagOptions();
    Json tags = Json::array();
    for (ToolFunction& function : functions_) {
      const bool may_come = named_.empty() || function.name == named_;
      if (!may_come) continue;
      function.schema = Closed(std::move(function.schema));
      absl::StatusOr<Json> tag = CallTag(options, function, /*keeps_schema=*/true);
      if (!tag.ok()) return fields_->Fail(tag.status());
      tags.push_back(*std::move(tag));
    }
    SetConstraint("tool_choice", options, RequiredCalls(options, std::move(tags)), request);
  }

  void ConstrainOptionalCalls(const std::string& field, ApiRequest* request) {
    const ToolTagOptions options = TagOptions();
    SetConstraint(field, options, OptionalCallsTag(options, functions_), request);
  }

  const ServedModel& model_;
  const ToolForm form_;
  RequestFields* fields_;
  std::vector<ToolFunction> functions_;
  std::string named_;
  std::vector<SpecialMarker> special_;
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
  reader.ReadChoices();
  reader.GiveToTemplate(chat);
}

}  // namespace tandem
