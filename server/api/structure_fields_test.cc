#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/api_request.h"
#include "server/api/field_groups.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using Kind = OutputConstraint::Kind;
using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<ApiRequest> StructureChat(const std::string& fields) {
  static const ServedModel& model = *new ServedModel(TestServedModel());
  return ChatWith(fields, model);
}
OutputConstraint ConstraintOf(const std::string& fields) {
  const auto request = StructureChat(fields);
  EXPECT_TRUE(request.ok()) << fields << " " << request.status();
  if (!request.ok() || !request->request.constraint.has_value()) {
    ADD_FAILURE() << fields;
    return {};
  }
  return *request->request.constraint;
}
void ExpectWrong(const std::string& fields, const std::string& param, const std::string& part) {
  ExpectRefusal(StructureChat(fields), param, part);
}

TEST(StructureFields, AcceptTheNamesOfOtherServers) {
  const std::string schema = R"({"type": "object", "properties": {"b": {}, "a": {}}})";
  const std::string as_written = R"({"type":"object","properties":{"b":{},"a":{}}})";
  for (const std::string& fields :
       {R"(, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": )" +
            schema + "}}",
        R"(, "structured_outputs": {"json": )" + schema + "}", R"(, "guided_json": )" + schema,
        R"(, "json_schema": )" + schema}) {
    const OutputConstraint constraint = ConstraintOf(fields);
    EXPECT_EQ(constraint.kind, Kind::kJsonSchema);
    EXPECT_EQ(constraint.text, as_written) << "properties keep the schema's order";
    EXPECT_TRUE(constraint.is_strict);
  }
  EXPECT_EQ(ConstraintOf(R"(, "guided_json": "{\"type\": \"null\"}")").text, R"({"type": "null"})");
  EXPECT_FALSE(ConstraintOf(R"(, "response_format": {"type": "json_schema", "json_schema":
                               {"strict": false, "schema": {}}})")
                   .is_strict);
  for (const char* fields : {R"(, "response_format": {"type": "json_object"})",
                             R"(, "structured_outputs": {"json_object": true})"}) {
    EXPECT_EQ(ConstraintOf(fields).kind, Kind::kJsonObject);
  }
  const OutputConstraint with_schema =
      ConstraintOf(R"(, "response_format": {"type": "json_object", "schema": {"type": "object"}})");
  EXPECT_EQ(with_schema.kind, Kind::kJsonSchema);
  EXPECT_EQ(with_schema.text, R"({"type":"object"})");
  for (const char* fields : {R"(, "guided_regex": "a+")", R"(, "regex": "a+")",
                             R"(, "structured_outputs": {"regex": "a+"})"}) {
    EXPECT_EQ(ConstraintOf(fields).kind, Kind::kRegex);
    EXPECT_EQ(ConstraintOf(fields).text, "a+");
  }
  for (const char* fields : {R"(, "guided_grammar": "root ::= [a]")", R"(, "ebnf": "root ::= [a]")",
                             R"(, "structured_outputs": {"grammar": "root ::= [a]"})"}) {
    EXPECT_EQ(ConstraintOf(fields).kind, Kind::kGrammar);
  }
  for (const char* fields :
       {R"(, "guided_choice": ["x", "y"])", R"(, "structured_outputs": {"choice": ["x", "y"]})"}) {
    EXPECT_EQ(ConstraintOf(fields).kind, Kind::kChoice);
    EXPECT_THAT(ConstraintOf(fields).choices, ElementsAre("x", "y"));
  }
}

TEST(StructureFields, MayBeAbsent) {
  for (const char* fields : {"", R"(, "response_format": {"type": "text"}, "guided_json": null)",
                             R"(, "structured_outputs": {})"}) {
    const auto request = StructureChat(fields);
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_FALSE(request->request.constraint.has_value());
  }
}

TEST(StructureFields, InvalidFieldsAreNamed) {
  ExpectWrong(R"(, "response_format": {"type": "xml"})", "response_format.type", "json_schema");
  ExpectWrong(R"(, "response_format": {"type": "json_schema"})", "response_format.json_schema",
              "is required");
  ExpectWrong(R"(, "response_format": {"type": "json_schema", "json_schema": {"schema": 1}})",
              "response_format.json_schema.schema", "1 is not a JSON schema");
  ExpectWrong(R"(, "guided_choice": ["a", 1])", "guided_choice", "a list of strings");
  ExpectWrong(R"(, "guided_regex": 1)", "guided_regex", "a string");
  ExpectWrong(R"(, "guided_json": [1])", "guided_json", "a JSON schema");
  ExpectWrong(R"(, "guided_json": {}, "regex": "a")", "regex", "with guided_json");
  ExpectWrong(R"(, "structured_outputs": {"json": {}, "regex": "a"})", "structured_outputs.regex",
              "with structured_outputs.json");
  ExpectWrong(R"(, "structured_outputs": {"whitespace_pattern": " "})",
              "structured_outputs.whitespace_pattern", "is not supported");
}

TEST(StructureFields, ResponsesUseTheTextField) {
  const ServedModel model = TestServedModel();
  const auto parse = [&](const std::string& text) {
    return ParseResponsesRequest(R"({"input": "A", "text": )" + text + "}", model,
                                 absl::UnixEpoch());
  };
  const auto schema =
      parse(R"({"format": {"type": "json_schema", "name": "n", "schema": {"b": 1, "a": 2}}})");
  ASSERT_TRUE(schema.ok()) << schema.status();
  EXPECT_EQ(schema->request.constraint->text, R"({"b":1,"a":2})");
  EXPECT_EQ(schema->constraint_field, "text.format");
  EXPECT_EQ(parse(R"({"format": {"type": "json_object"}})")->request.constraint->kind,
            Kind::kJsonObject);
  EXPECT_FALSE(parse(R"({"format": {"type": "text"}})")->request.constraint.has_value());
}

// The engine's error about a constraint names the request's field.
TEST(StructureFields, EngineErrorsNameThem) {
  const auto request = StructureChat(R"(, "structured_outputs": {"regex": "("})");
  ASSERT_TRUE(request.ok());
  const absl::Status status = request->WithRequestFieldNames(FieldError("constraint", "is wrong"));
  EXPECT_EQ(status.message(), "structured_outputs.regex: is wrong");
}

TEST(StructureFields, PredictionsAreTexts) {
  for (const char* fields :
       {R"(, "prediction": {"type": "content", "content": "ab"})",
        R"(, "prediction": {"type": "content", "content": [{"type": "text", "text": "a"},
                                                            {"type": "text", "text": "b"}]})"}) {
    const auto request = StructureChat(fields);
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_EQ(request->request.prediction, "ab");
  }
  ExpectWrong(R"(, "prediction": {"type": "content"})", "prediction.content", "is required");
  ExpectWrong(R"(, "prediction": {"type": "file", "content": "a"})", "prediction.type", "content");
}

}  // namespace
}  // namespace tandem
