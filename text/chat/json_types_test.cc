#include "tandem/json_types.h"

#include "gtest/gtest.h"

namespace tandem {
namespace {

using OrderedJson = JsonValue;

TEST(JsonTypes, FollowSchemas) {
  const OrderedJson root = OrderedJson::parse(R"({"$defs": {
      "text": {"type": "string"}, "more": {"$ref": "#/$defs/text"}, "a/b": {"const": 1},
      "ring": {"$ref": "#/$defs/ring"},
      "tree": {"anyOf": [{"$ref": "#/$defs/tree"}, {"$ref": "#/$defs/tree"}]}}})");
  const struct {
    const char* schema;
    int types;
  } cases[] = {
      {R"({})", JsonTypes::kAll},
      {R"(true)", JsonTypes::kAll},
      {R"({"type": "string"})", JsonTypes::kString},
      {R"({"type": "integer"})", JsonTypes::kNumber},
      {R"({"type": ["string", "null"]})", JsonTypes::kString | JsonTypes::kNull},
      {R"({"type": "thing"})", JsonTypes::kAll},
      {R"({"enum": ["a", 1]})", JsonTypes::kString | JsonTypes::kNumber},
      {R"({"type": "string", "enum": ["a", 1]})", JsonTypes::kString},
      {R"({"const": null})", JsonTypes::kNull},
      {R"({"anyOf": [{"type": "array"}, {"type": "object"}]})",
       JsonTypes::kArray | JsonTypes::kObject},
      {R"({"oneOf": [{"const": true}, {}]})", JsonTypes::kAll},
      {R"({"allOf": [{"type": ["string", "null"]}, {"type": ["string", "number"]}]})",
       JsonTypes::kString},
      {R"({"$ref": "#/$defs/more"})", JsonTypes::kString},
      {R"({"$ref": "#/$defs/a~1b"})", JsonTypes::kNumber},
      {R"({"$ref": "#/$defs/none"})", JsonTypes::kAll},
      {R"({"$ref": "other.json"})", JsonTypes::kAll},
      {R"({"$ref": "#/$defs/ring"})", JsonTypes::kAll},
      {R"({"$ref": "#/$defs/tree"})", JsonTypes::kAll},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(JsonTypes::AllowedBy(OrderedJson::parse(c.schema), root).bits(), c.types) << c.schema;
  }
}

}  // namespace
}  // namespace tandem
