#include <array>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "tandem/json_types.h"
#include "text/chat/tool_tags.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr int kMaxChoices = 64;  // schemas visited for one value

absl::Status NotInXml(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is not supported by the format in which this model writes calls"));
}

Json Regex(std::string pattern) { return {{"type", "regex"}, {"pattern", std::move(pattern)}}; }

// Whether a schema restricts only the types of its values.
bool RestrictsOnlyTypes(const Json& schema) {
  if (!schema.is_object()) return schema == true;
  for (const auto& [keyword, value] : schema.items()) {
    if (keyword == "anyOf" || keyword == "oneOf") {
      if (!value.is_array() || !absl::c_all_of(value, RestrictsOnlyTypes)) return false;
      continue;
    }
    constexpr std::array kPlain = {"type", "title", "description", "default", "examples"};
    if (!absl::c_linear_search(kPlain, keyword)) return false;
  }
  return true;
}

// Converts the schema of one function's arguments.
class XmlFormat {
 public:
  XmlFormat(const Json& root, bool is_strict, absl::Span<const CallPart> form)
      : root_(root),
        is_strict_(is_strict),
        begin_(form[0].text),
        middle_(absl::StrCat(View(form[2].text), View(form[3].text))),
        end_(form[5].text) {}

  absl::StatusOr<Json> Arguments() {
    const Json* const object = Referenced(root_, root_);
    if (object == nullptr || !object->is_object()) return NotInXml("$ref of parameters");
    RETURN_IF_ERROR(CheckKeywords(*object));
    const Json properties = Member(*object, "properties", Json::object());
    const Json required = Member(*object, "required", Json::array());
    Json elements = Json::array();
    for (const auto& [name, schema] : properties.items()) {
      ASSIGN_OR_RETURN(Json parameter, Parameter(name, schema));
      if (!absl::c_linear_search(required, Json(name))) {
        parameter = {{"type", "optional"}, {"content", std::move(parameter)}};
      }
      elements.push_back(std::move(parameter));
    }
    for (const Json& name : required) {
      if (!name.is_string() || properties.contains(name.get<std::string>())) continue;
      ASSIGN_OR_RETURN(Json parameter, Parameter(name.get<std::string>(), true));
      elements.push_back(std::move(parameter));
    }
    const Json others = Member(*object, "additionalProperties", !is_strict_);
    if (others != false) {
      ASSIGN_OR_RETURN(Json parameter, OtherParameter(others));
      elements.push_back({{"type", "star"}, {"content", std::move(parameter)}});
    }
    if (elements.empty()) return Json{{"type", "const_string"}, {"value", ""}};
    return Json{{"type", "sequence"}, {"elements", std::move(elements)}};
  }

 private:
  Json AnyValue() const {
    return {{"type", "any_text"},
            {"excludes", Json::array({std::string(absl::StripAsciiWhitespace(end_))})}};
  }

  static Json Member(const Json& object, const char* name, const Json& otherwise) {
    const auto member = object.find(name);
    return member == object.end() || member->is_null() ? otherwise : *member;
  }

  static absl::Status CheckKeywords(const Json& object) {
    constexpr std::array kUnsupported = {"anyOf",
                                         "oneOf",
                                         "allOf",
                                         "not",
                                         "if",
                                         "enum",
                                         "const",
                                         "patternProperties",
                                         "propertyNames",
                                         "minProperties",
                                         "maxProperties",
                                         "dependentRequired",
                                         "dependencies",
                                         "dependentSchemas",
                                         "$dynamicRef",
                                         "unevaluatedProperties"};
    for (const auto& [keyword, value] : object.items()) {
      if (absl::c_linear_search(kUnsupported, keyword)) return NotInXml(keyword);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Json> Parameter(const std::string& name, const Json& schema) {
    if (name.empty() || name.find_first_of("<>\n") != std::string::npos) {
      return NotInXml(absl::StrCat("the name ", Quoted(name), " of a parameter"));
    }
    num_choices_ = 0;
    absl::StatusOr<Json> value = Value(schema);
    if (!value.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", Quoted(name), ": ", value.status().message()));
    }
    return Json{{"type", "tag"},
                {"begin", absl::StrCat(begin_, name, middle_)},
                {"content", *std::move(value)},
                {"end", end_}};
  }

  absl::StatusOr<Json> OtherParameter(const Json& schema) {
    ASSIGN_OR_RETURN(Json value, Value(schema));
    Json elements = Json::array();
    elements.push_back(Regex("[A-Za-z_][A-Za-z0-9_.-]*"));
    elements.push_back({{"type", "const_string"}, {"value", middle_}});
    elements.push_back(std::move(value));
    return Json{{"type", "tag"},
                {"begin", begin_},
                {"content", {{"type", "sequence"}, {"elements", std::move(elements)}}},
                {"end", end_}};
  }

  absl::StatusOr<Json> Value(const Json& given) {
    if (++num_choices_ > kMaxChoices) return NotInXml("a choice of so many schemas");
    const Json* const schema = Referenced(given, root_);
    if (schema == nullptr) return NotInXml(Shown(Member(given, "$ref", nullptr)));
    if (!schema->is_object()) return AnyValue();
    if (schema->contains("const")) return Texts(Json::array({schema->at("const")}));
    if (schema->contains("enum")) return Texts(schema->at("enum"));
    const JsonTypes types = JsonTypes::AllowedBy(*schema, root_);
    if (!types.Has(JsonTypes::kString)) return JsonFormat(given);
    if (RestrictsOnlyTypes(*schema)) return AnyValue();
    if (!types.IsOnly(JsonTypes::kString)) {
      return NotInXml("a choice between a string and another restricted type");
    }
    return String(*schema);
  }

  // Returns the format of a JSON value. References keep their meaning because the definitions are
  // copied.
  Json JsonFormat(const Json& schema) const {
    Json whole = schema;
    for (const char* name : {"$defs", "definitions"}) {
      if (root_.contains(name)) whole[name] = root_[name];
    }
    return {{"type", "json_schema"}, {"json_schema", std::move(whole)}, {"strict", is_strict_}};
  }

  static Json Texts(const Json& values) {
    Json texts = Json::array();
    for (const Json& value : values) {
      texts.push_back({{"type", "const_string"},
                       {"value", value.is_string() ? value.get<std::string>() : value.dump()}});
    }
    return {{"type", "or"}, {"elements", std::move(texts)}};
  }

  // Returns the format of a string, which is written without quotes and escapes.
  absl::StatusOr<Json> String(const Json& schema) {
    for (const char* name : {"allOf", "not", "if"}) {
      if (schema.contains(name)) return NotInXml(name);
    }
    for (const char* name : {"anyOf", "oneOf"}) {
      if (!schema.contains(name)) continue;
      Json branches = Json::array();
      for (const Json& branch : schema.at(name)) {
        ASSIGN_OR_RETURN(Json value, Value(branch));
        branches.push_back(std::move(value));
      }
      return Json{{"type", "or"}, {"elements", std::move(branches)}};
    }
    const Json least = Member(schema, "minLength", 0);
    const Json most = Member(schema, "maxLength", nullptr);
    const bool is_bounded = least != 0 || !most.is_null();
    if (schema.contains("pattern")) {
      if (is_bounded) return NotInXml("a length next to a pattern");
      const Json& pattern = schema["pattern"];
      if (!pattern.is_string()) return NotInXml(Shown(pattern));
      return Regex(pattern.get<std::string>());
    }
    if (!is_bounded) return AnyValue();
    return Regex(absl::StrCat("[^<]{", least.dump(), ",", most.is_null() ? "" : most.dump(), "}"));
  }

  const Json& root_;
  const bool is_strict_;
  const std::string begin_, middle_, end_;  // the texts around a parameter's name and value
  int num_choices_ = 0;
};

}  // namespace

absl::StatusOr<Json> XmlArguments(const Json& schema, bool is_strict,
                                  absl::Span<const CallPart> form) {
  return XmlFormat(schema, is_strict, form).Arguments();
}

}  // namespace tandem
