#include "server/xml_arguments.h"

#include <array>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/formats/json_text.h"
#include "server/json_types.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kValueEnd[] = "\n</parameter>\n";
constexpr int kMostChoices = 64;  // of one value

absl::Status NotInXml(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is not supported in the form in which this model writes calls"));
}

OrderedJson AnyValue() {
  return {{"type", "any_text"}, {"excludes", OrderedJson::array({"</parameter>"})}};
}

OrderedJson Regex(std::string pattern) {
  return {{"type", "regex"}, {"pattern", std::move(pattern)}};
}

// Says nothing about its values but their types.
bool SaysTypesAlone(const OrderedJson& schema) {
  if (!schema.is_object()) return schema == true;
  for (const auto& [keyword, value] : schema.items()) {
    if (keyword == "anyOf" || keyword == "oneOf") {
      if (!value.is_array() || !absl::c_all_of(value, SaysTypesAlone)) return false;
      continue;
    }
    constexpr std::array kPlain = {"type", "title", "description", "default", "examples"};
    if (!absl::c_linear_search(kPlain, keyword)) return false;
  }
  return true;
}

// Reads the schemas of one function.
class XmlFormat {
 public:
  XmlFormat(const OrderedJson& root, bool is_strict) : root_(root), is_strict_(is_strict) {}

  absl::StatusOr<OrderedJson> Arguments() {
    const OrderedJson* const object = Referenced(root_, root_);
    if (object == nullptr || !object->is_object()) return NotInXml("$ref of parameters");
    RETURN_IF_ERROR(CheckKeywords(*object));
    const OrderedJson properties = Member(*object, "properties", OrderedJson::object());
    const OrderedJson required = Member(*object, "required", OrderedJson::array());
    OrderedJson elements = OrderedJson::array();
    for (const auto& [name, schema] : properties.items()) {
      ASSIGN_OR_RETURN(OrderedJson parameter, Parameter(name, schema));
      if (!absl::c_linear_search(required, OrderedJson(name))) {
        parameter = {{"type", "optional"}, {"content", std::move(parameter)}};
      }
      elements.push_back(std::move(parameter));
    }
    for (const OrderedJson& name : required) {
      if (!name.is_string() || properties.contains(name.get<std::string>())) continue;
      ASSIGN_OR_RETURN(OrderedJson parameter, Parameter(name.get<std::string>(), true));
      elements.push_back(std::move(parameter));
    }
    const OrderedJson others = Member(*object, "additionalProperties", !is_strict_);
    if (others != false) {
      ASSIGN_OR_RETURN(OrderedJson parameter, OtherParameter(others));
      elements.push_back({{"type", "star"}, {"content", std::move(parameter)}});
    }
    if (elements.empty()) return OrderedJson{{"type", "const_string"}, {"value", ""}};
    return OrderedJson{{"type", "sequence"}, {"elements", std::move(elements)}};
  }

 private:
  static OrderedJson Member(const OrderedJson& object, const char* name,
                            const OrderedJson& otherwise) {
    const auto member = object.find(name);
    return member == object.end() || member->is_null() ? otherwise : *member;
  }

  static absl::Status CheckKeywords(const OrderedJson& object) {
    constexpr std::array kKnown = {"type",     "properties",  "required", "additionalProperties",
                                   "$defs",    "definitions", "title",    "description",
                                   "default",  "examples",    "$schema",  "$id",
                                   "$comment", "strict"};
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
      if (absl::c_linear_search(kKnown, keyword)) continue;
      if (absl::c_linear_search(kUnsupported, keyword)) return NotInXml(keyword);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<OrderedJson> Parameter(const std::string& name, const OrderedJson& schema) {
    if (name.empty() || name.find_first_of(">\n") != std::string::npos) {
      return NotInXml(absl::StrCat("the name ", Quoted(name), " of a parameter"));
    }
    num_choices_ = 0;
    absl::StatusOr<OrderedJson> value = Value(schema);
    if (!value.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", Quoted(name), ": ", value.status().message()));
    }
    return OrderedJson{{"type", "tag"},
                       {"begin", absl::StrCat("<parameter=", name, ">\n")},
                       {"content", *std::move(value)},
                       {"end", kValueEnd}};
  }

  absl::StatusOr<OrderedJson> OtherParameter(const OrderedJson& schema) {
    ASSIGN_OR_RETURN(OrderedJson value, Value(schema));
    OrderedJson elements = OrderedJson::array();
    elements.push_back(Regex("[A-Za-z_][A-Za-z0-9_.-]*"));
    elements.push_back({{"type", "const_string"}, {"value", ">\n"}});
    elements.push_back(std::move(value));
    return OrderedJson{{"type", "tag"},
                       {"begin", "<parameter="},
                       {"content", {{"type", "sequence"}, {"elements", std::move(elements)}}},
                       {"end", kValueEnd}};
  }

  absl::StatusOr<OrderedJson> Value(const OrderedJson& given) {
    if (++num_choices_ > kMostChoices) return NotInXml("a choice of so many schemas");
    const OrderedJson* const schema = Referenced(given, root_);
    if (schema == nullptr) return NotInXml(Shown(Member(given, "$ref", nullptr)));
    if (!schema->is_object()) return AnyValue();
    if (schema->contains("const")) return Texts(OrderedJson::array({schema->at("const")}));
    if (schema->contains("enum")) return Texts(schema->at("enum"));
    const JsonTypes types = JsonTypes::AllowedBy(*schema, root_);
    if (!types.Has(JsonTypes::kString)) return Json(given);
    if (SaysTypesAlone(*schema)) return AnyValue();
    if (!types.IsOnly(JsonTypes::kString)) {
      return NotInXml("a choice between a string and what is bounded otherwise");
    }
    return String(*schema);
  }

  // JSON in one line. References go on meaning the same.
  OrderedJson Json(const OrderedJson& schema) const {
    OrderedJson whole = schema;
    for (const char* name : {"$defs", "definitions"}) {
      if (root_.contains(name)) whole[name] = root_[name];
    }
    return {{"type", "json_schema"}, {"json_schema", std::move(whole)}, {"strict", is_strict_}};
  }

  static OrderedJson Texts(const OrderedJson& values) {
    OrderedJson texts = OrderedJson::array();
    for (const OrderedJson& value : values) {
      texts.push_back({{"type", "const_string"},
                       {"value", value.is_string() ? value.get<std::string>() : value.dump()}});
    }
    return {{"type", "or"}, {"elements", std::move(texts)}};
  }

  // As it is, without quotes.
  absl::StatusOr<OrderedJson> String(const OrderedJson& schema) {
    for (const char* name : {"allOf", "not", "if"}) {
      if (schema.contains(name)) return NotInXml(name);
    }
    for (const char* name : {"anyOf", "oneOf"}) {
      if (!schema.contains(name)) continue;
      OrderedJson branches = OrderedJson::array();
      for (const OrderedJson& branch : schema.at(name)) {
        ASSIGN_OR_RETURN(OrderedJson value, Value(branch));
        branches.push_back(std::move(value));
      }
      return OrderedJson{{"type", "or"}, {"elements", std::move(branches)}};
    }
    const OrderedJson least = Member(schema, "minLength", 0);
    const OrderedJson most = Member(schema, "maxLength", nullptr);
    const bool is_bounded = least != 0 || !most.is_null();
    if (schema.contains("pattern")) {
      if (is_bounded) return NotInXml("a length beside a pattern");
      const OrderedJson& pattern = schema["pattern"];
      if (!pattern.is_string()) return NotInXml(Shown(pattern));
      return Regex(pattern.get<std::string>());
    }
    if (!is_bounded) return AnyValue();
    return Regex(absl::StrCat("[^<]{", least.dump(), ",", most.is_null() ? "" : most.dump(), "}"));
  }

  const OrderedJson& root_;
  const bool is_strict_;
  int num_choices_ = 0;
};

}  // namespace

absl::StatusOr<OrderedJson> XmlArguments(const OrderedJson& schema, bool is_strict) {
  return XmlFormat(schema, is_strict).Arguments();
}

}  // namespace tandem
