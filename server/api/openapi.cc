#include "server/api/openapi.h"

#include <cmath>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/json/json_text.h"
#include "base/json/json_writer.h"
#include "base/string_view.h"
#include "server/api/field_groups.h"
#include "server/api/web_files.h"
#include "tandem/json_value.h"
#include "tandem/sampling_params.h"

namespace tandem {
namespace {

using Json = JsonValue;

void AddSamplingParams(Json* fields) {
  VisitSamplingParams([fields](const Parameter& parameter, auto member, const Limits& limits) {
    const auto value = SamplingParams().*member;
    Json& field = (*fields)[parameter.name];
    field["type"] = {std::is_integral_v<decltype(value)> ? "integer" : "number", "null"};
    field["description"] = parameter.help;
    field[limits.excludes_low ? "exclusiveMinimum" : "minimum"] = limits.low;
    if (!std::isinf(limits.high)) field["maximum"] = limits.high;
    field["default"] = value;
  });
}

std::string MakeDocument() {
  absl::StatusOr<Json> parsed = ParseJsonValue(View(OpenApiTables()), "openapi.json");
  TANDEM_CHECK(parsed.ok());
  Json document = *std::move(parsed);
  Json& components = document["components"];
  Json fields = std::move(components["x-fields"]);
  components.erase("x-fields");
  AddSamplingParams(&fields);
  Json& schemas = components["schemas"];
  for (const KnownField& field : KnownFields()) {
    if (field.effect != kNoEffect || std::string_view(field.name) == "model") continue;
    schemas["FieldsWithoutEffect"]["properties"][field.name] = Json::object();
  }
  for (Json& schema : schemas) {
    const auto properties = schema.find("properties");
    if (properties == schema.end()) continue;
    for (const auto& [name, property] : properties->items()) {
      if (property.is_boolean()) property = fields.at(name);
    }
  }
  return DumpJson(document);
}

}  // namespace

const std::string& OpenApiDocument() {
  static const std::string* const document = new std::string(MakeDocument());
  return *document;
}

}  // namespace tandem
