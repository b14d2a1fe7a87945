#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "server/api/chat_fields.h"
#include "server/api/field_groups.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = JsonValue;
using Kind = OutputConstraint::Kind;

// A field whose value is a constraint.
struct PlainField {
  const char* name;
  Kind kind;
};
constexpr PlainField kFields[] = {{"guided_json", Kind::kJsonSchema},
                                  {"guided_regex", Kind::kRegex},
                                  {"guided_choice", Kind::kChoice},
                                  {"guided_grammar", Kind::kGrammar},
                                  {"json_schema", Kind::kJsonSchema},
                                  {"regex", Kind::kRegex},
                                  {"ebnf", Kind::kGrammar}};
constexpr PlainField kMembers[] = {{"json", Kind::kJsonSchema},
                                   {"regex", Kind::kRegex},
                                   {"choice", Kind::kChoice},
                                   {"grammar", Kind::kGrammar}};

// Reads the constraint fields of one request.
class ConstraintReader {
 public:
  ConstraintReader(RequestFields* fields, Request* options) : fields_(fields), options_(options) {}

  void ReadResponseFormat() {
    const Json* format = fields_->Find("response_format");
    if (format == nullptr) return;
    RequestFields inner(format, "response_format", fields_->ignored());
    ReadFormat("response_format", &inner, [&] {
      const Json* object = inner.Find("json_schema");
      if (object == nullptr) {
        return inner.FailNot("json_schema", nullptr, "an object with a schema");
      }
      RequestFields schema(object, inner.PathOf("json_schema"), fields_->ignored());
      ReadJsonSchema("response_format", &schema);
      inner.Fail(schema.Finish());
    });
    fields_->Fail(inner.Finish());
  }

  // {"format": {"type": "json_schema", "name": ..., "schema": {...}, "strict": true}}
  void ReadTextFormat() {
    const Json* text = fields_->Find("text");
    if (text == nullptr) return;
    RequestFields inner(text, "text", fields_->ignored());
    inner.AllowOnly("verbosity", {"medium"});
    if (const Json* object = inner.Find("format"); object != nullptr) {
      RequestFields format(object, "text.format", fields_->ignored());
      ReadFormat("text.format", &format, [&] { ReadJsonSchema("text.format", &format); });
      inner.Fail(format.Finish());
    }
    fields_->Fail(inner.Finish());
  }

  void ReadStructuredOutputs() {
    const Json* object = fields_->Find("structured_outputs");
    if (object == nullptr) return;
    RequestFields inner(object, fields_->PathOf("structured_outputs"), fields_->ignored());
    for (const PlainField& member : kMembers) ReadPlain(&inner, member);
    bool is_object = false;
    inner.Read("json_object", &is_object);
    if (is_object) Set("structured_outputs.json_object", {.kind = Kind::kJsonObject});
    inner.AllowOnly("structural_tag", {});
    for (const char* how :
         {"disable_fallback", "disable_any_whitespace", "disable_additional_properties"}) {
      inner.AllowOnly(how, {false});
    }
    inner.AllowOnly("whitespace_pattern", {});
    fields_->Fail(inner.Finish());
  }

  void ReadPlainFields() {
    for (const PlainField& field : kFields) ReadPlain(fields_, field);
  }

  const std::string& given() const { return given_; }

 private:
  void Set(const std::string& field, OutputConstraint constraint) {
    if (!given_.empty()) {
      return fields_->Fail(FieldError(field, absl::StrCat("is not possible with ", given_)));
    }
    given_ = field;
    options_->constraint = std::move(constraint);
  }

  // Reads a format as in both of OpenAI's APIs. `read_schema` reads the schema, which differs.
  void ReadFormat(const std::string& field, RequestFields* format,
                  absl::FunctionRef<void()> read_schema) {
    std::string type;
    format->Read("type", &type);
    if (type != "json_schema") format->AllowOnly("json_schema", {});
    if (type == "text") format->AllowOnly("schema", {});
    if (type == "json_object") {
      const Json* const schema = format->Find("schema");
      if (schema == nullptr) return Set(field, {.kind = Kind::kJsonObject});
      if (!schema->is_object()) return format->FailNot("schema", *schema, "a JSON schema");
      Set(field, {.kind = Kind::kJsonSchema, .text = schema->dump()});
    } else if (type == "json_schema") {
      read_schema();
    } else if (format->ok() && type != "text") {
      format->FailNot("type", type, "one of text, json_object, json_schema");
    }
  }

  // {"name": ..., "schema": {...}, "strict": true}
  void ReadJsonSchema(const std::string& field, RequestFields* object) {
    object->Ignore("name");
    object->Ignore("description");
    bool is_strict = true;
    object->Read("strict", &is_strict);
    const Json* schema = object->Find("schema");
    if (schema != nullptr && schema->is_object()) {
      Set(field, {.kind = Kind::kJsonSchema, .text = schema->dump(), .is_strict = is_strict});
    } else {
      object->FailNot("schema", schema == nullptr ? Json() : *schema, "a JSON schema");
    }
  }

  void ReadPlain(RequestFields* object, const PlainField& field) {
    const Json* value = object->Find(field.name);
    if (value == nullptr) return;
    OutputConstraint constraint{.kind = field.kind};
    if (field.kind == Kind::kChoice) {
      const bool is_list = value->is_array() && absl::c_all_of(*value, [](const Json& choice) {
                             return choice.is_string();
                           });
      if (!is_list) return object->FailNot(field.name, *value, "a list of strings");
      constraint.choices = value->get<std::vector<std::string>>();
    } else if (field.kind == Kind::kJsonSchema && value->is_object()) {
      constraint.text = value->dump();
    } else if (value->is_string()) {
      constraint.text = value->get<std::string>();
    } else {
      return object->FailNot(
          field.name, *value,
          field.kind == Kind::kJsonSchema ? "a JSON schema, or a string of one" : "a string");
    }
    Set(object->PathOf(field.name), std::move(constraint));
  }

  RequestFields* fields_;
  Request* options_;
  std::string given_;
};

}  // namespace

std::string ReadConstraint(RequestFields* fields, Request* options) {
  ConstraintReader reader(fields, options);
  reader.ReadResponseFormat();
  reader.ReadStructuredOutputs();
  reader.ReadPlainFields();
  return reader.given();
}

std::string ReadConstraintOfResponse(RequestFields* fields, Request* options) {
  ConstraintReader reader(fields, options);
  reader.ReadTextFormat();
  reader.ReadStructuredOutputs();
  reader.ReadPlainFields();
  return reader.given();
}

void ReadPrediction(RequestFields* fields, Request* options) {
  const Json* object = fields->Find("prediction");
  if (object == nullptr) return;
  RequestFields inner(object, fields->PathOf("prediction"), fields->ignored());
  std::string type = "content";
  inner.Read("type", &type);
  if (type != "content") inner.FailNot("type", type, "content");
  options->prediction = ReadContent(&inner, /*may_lack=*/false);
  fields->Fail(inner.Finish());
}

}  // namespace tandem
