#include "server/tool_fields.h"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/string_view.h"
#include "model/formats/json_text.h"
#include "server/tool_calls.h"

namespace tandem {
namespace {

using Json = JsonValue;
using Family = ToolFormat::Family;

constexpr size_t kMostTools = 128;
constexpr size_t kLongestName = 64;

struct ToolFunction {
  std::string name;
  Json schema;
  bool is_strict = false;
};

bool IsFunctionName(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName && absl::c_all_of(name, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
}

// Arguments are objects even where a schema does not say so, and empty without one.
Json SchemaOf(const Json& function) {
  if (!function.contains("parameters") || function["parameters"].is_null()) {
    return {{"type", "object"}, {"additionalProperties", false}};
  }
  Json schema = function["parameters"];
  const bool says_what =
      absl::c_any_of(std::array{"type", "$ref", "anyOf", "oneOf", "allOf", "const", "enum"},
                     [&](const char* keyword) { return schema.contains(keyword); });
  if (!says_what) schema["type"] = "object";
  return schema;
}

// Reads the fields of one request.
class ToolReader {
 public:
  ToolReader(const ServedModel& model, RequestFields* fields) : model_(model), fields_(fields) {}

  void Read() {
    ReadFunctions();
    ReadChoice();
    fields_->Read("parallel_tool_calls", &parallel_);
    if (functions_.empty() || !is_allowed_) return;
    const absl::StatusOr<ChatTemplate>& chat = model_.chat_template;
    if (chat.ok() && !chat->Mentions("tools")) {
      fields_->Fail(FieldError("tools", "the model's chat template has no place for them"));
    }
  }

  void Give(ChatInput* chat, ApiRequest* request) {
    if (functions_.empty() || !is_allowed_ || !fields_->ok()) return;
    chat->tools = *fields_->Find("tools");
    ToolCallParser::Options options{
        .format = model_.tool_format, .names = {}, .must_call = must_call_, .parallel = parallel_};
    for (const ToolFunction& function : functions_) options.names.push_back(function.name);
    request->tools = std::move(options);
    for (const std::string_view marker : {model_.tool_format.begin, model_.tool_format.end}) {
      if (IsSpecial(marker)) {
        request->options.shown_special_tokens.push_back(
            model_.tokenizer->IdOf(std::string(marker)));
      }
    }
    const auto strict =
        absl::c_find_if(functions_, [](const ToolFunction& f) { return f.is_strict; });
    if (must_call_) {
      SetConstraint("tool_choice", RequiredCalls(), request);
    } else if (strict != functions_.end()) {
      const std::string field =
          absl::StrCat("tools[", strict - functions_.begin(), "].function.strict");
      const bool has_trigger =
          model_.tool_format.family == Family::kLlama3 || !IsSpecial(model_.tool_format.begin);
      if (has_trigger) return SetConstraint(field, CallsAtWill(), request);
      fields_->Fail(FieldError(
          field, absl::StrCat("true is not possible here unless tool_choice demands a call: ",
                              View(model_.tool_format.begin), " is a special token")));
    }
  }

 private:
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
      const Json* function = tool.Find("function");
      if (function == nullptr) {
        tool.FailNot("function", nullptr, "an object with a name");
      } else {
        ReadFunction(*function, &tool);
      }
      fields_->Fail(tool.Finish());
    }
  }

  void ReadFunction(const Json& object, RequestFields* parent) {
    RequestFields fields(&object, parent->PathOf("function"), parent->ignored());
    ToolFunction function;
    fields.Read("name", &function.name);
    std::string description;
    fields.Read("description", &description);
    fields.Read("strict", &function.is_strict);
    const Json* parameters = fields.Find("parameters");
    if (!IsFunctionName(function.name)) {
      fields.FailNot("name", function.name,
                     absl::StrCat("1 to ", kLongestName, " of the characters a-z A-Z 0-9 _ . -"));
    } else if (absl::c_any_of(functions_,
                              [&](const ToolFunction& f) { return f.name == function.name; })) {
      fields.FailNot("name", function.name, "given once");
    }
    if (parameters != nullptr && !parameters->is_object()) {
      fields.FailNot("parameters", *parameters, "a JSON schema");
    }
    parent->Fail(fields.Finish());
    if (!parent->ok()) return;
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
    const Json* function = choice.Find("function");
    if (function == nullptr) {
      choice.FailNot("function", nullptr, "an object with the name of a function");
    } else {
      RequestFields inner(function, "tool_choice.function", fields_->ignored());
      inner.Read("name", &named_);
      const bool is_known =
          absl::c_any_of(functions_, [this](const ToolFunction& f) { return f.name == named_; });
      if (!is_known) inner.FailNot("name", named_, "the name of one of tools");
      choice.Fail(inner.Finish());
    }
    fields_->Fail(choice.Finish());
  }

  bool IsSpecial(std::string_view marker) const {
    const TokenId id = marker.empty() ? -1 : model_.tokenizer->IdOf(std::string(marker));
    return id >= 0 && model_.tokenizer->IsSpecial(id);
  }

  void SetConstraint(const std::string& field, const Json& tag, ApiRequest* request) {
    if (!request->constraint_field.empty()) {
      return fields_->Fail(
          FieldError(field, absl::StrCat("is not possible beside ", request->constraint_field)));
    }
    request->constraint_field = field;
    request->options.constraint = {.kind = OutputConstraint::Kind::kStructuralTag,
                                   .text = tag.dump()};
  }

  // A call that the model writes as it was taught to.
  Json TagOf(const ToolFunction& function, bool keeps_schema) const {
    const ToolFormat& format = model_.tool_format;
    const bool is_hermes = format.family == Family::kHermes;
    const Json any = {{"type", "object"}};
    return {{"type", "tag"},
            {"begin", absl::StrCat(is_hermes ? "<tool_call>\n" : "", "{\"name\": \"", function.name,
                                   "\", \"", View(format.arguments), "\": ")},
            {"content",
             {{"type", "json_schema"},
              {"json_schema", keeps_schema ? function.schema : any},
              {"strict", function.is_strict}}},
            {"end", is_hermes ? "}\n</tool_call>" : "}"}};
  }

  Json RequiredCalls() const {
    Json tags = Json::array();
    for (const ToolFunction& function : functions_) {
      if (named_.empty() || function.name == named_) tags.push_back(TagOf(function, true));
    }
    const ToolFormat& format = model_.tool_format;
    const char* const separator = format.family == Family::kHermes   ? "\n"
                                  : format.family == Family::kLlama3 ? "; "
                                                                     : ", ";
    Json calls = {{"type", "tags_with_separator"},
                  {"tags", std::move(tags)},
                  {"separator", separator},
                  {"at_least_one", true},
                  {"stop_after_first", !parallel_ || !named_.empty()}};
    if (format.family != Family::kMistral) return calls;
    // Constraints have no special tokens: the list begins without.
    const std::string begin =
        IsSpecial(format.begin) ? "[" : absl::StrCat(View(format.begin), " [");
    return {{"type", "tag"}, {"begin", begin}, {"content", std::move(calls)}, {"end", "]"}};
  }

  // Text, and calls where their beginning comes.
  Json CallsAtWill() const {
    Json tags = Json::array();
    for (const ToolFunction& function : functions_) {
      tags.push_back(TagOf(function, function.is_strict));
    }
    std::string trigger = "{\"name\": \"";
    if (model_.tool_format.family == Family::kHermes) trigger = "<tool_call>";
    if (model_.tool_format.family == Family::kMistral) {
      trigger = std::string(model_.tool_format.begin);
      Json calls = {{"type", "tags_with_separator"},
                    {"tags", std::move(tags)},
                    {"separator", ", "},
                    {"at_least_one", true},
                    {"stop_after_first", !parallel_}};
      tags = Json::array({{{"type", "tag"},
                           {"begin", absl::StrCat(trigger, " [")},
                           {"content", std::move(calls)},
                           {"end", "]"}}});
    }
    return {{"type", "triggered_tags"},
            {"triggers", Json::array({trigger})},
            {"tags", std::move(tags)},
            {"stop_after_first", !parallel_}};
  }

  const ServedModel& model_;
  RequestFields* fields_;
  std::vector<ToolFunction> functions_;
  std::string named_;
  bool is_allowed_ = true;
  bool must_call_ = false;
  bool parallel_ = true;
};

}  // namespace

void ReadTools(const ServedModel& model, RequestFields* fields, ChatInput* chat,
               ApiRequest* request) {
  ToolReader reader(model, fields);
  reader.Read();
  reader.Give(chat, request);
}

}  // namespace tandem
