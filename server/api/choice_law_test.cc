#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/api_request.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class ChoiceLawOverHttp : public testing::Test {
 protected:
  ChoiceLawOverHttp()
      : engine_(MakeTestEngine()), server_(StartServer(engine_.get(), TestServerOptions())) {}

  Answer Ask(const std::string& fields, const std::string& law = "conditional") const {
    return Client(server_->port())
        .Ask("POST", "/v1/completions",
             R"({"prompt": "Once upon a", "choice_law": ")" + law + R"(", )" + fields + "}");
  }
  static void ExpectProbabilities(const JsonValue& list, const std::vector<std::string>& texts) {
    ASSERT_EQ(list.size(), texts.size()) << list;
    double sum = 0.0;
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(list[i]["text"], texts[i]);
      EXPECT_LT(list[i]["logprob"].get<double>(), list[i]["normalized_logprob"].get<double>());
      sum += std::exp(list[i]["normalized_logprob"].get<double>());
    }
    EXPECT_NEAR(sum, 1.0, 1e-12);  // of f64 numbers
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(ChoiceLawOverHttp, AnswersWithTheProbabilitiesOfAllChoices) {
  for (const char* field : {R"("guided_choice": [" time", " day", " cat"])",
                            R"("structured_outputs": {"choice": [" time", " day", " cat"]})"}) {
    const Answer answer = Ask(absl::StrCat(R"("n": 2, "seed": 3, "temperature": 0.5, )", field));
    ASSERT_EQ(answer.status, 200) << answer.body;
    const JsonValue json = JsonValue::parse(answer.body);
    ASSERT_EQ(json["choices"].size(), 2u);
    for (const JsonValue& choice : json["choices"]) {
      ExpectProbabilities(choice["choice_logprobs"], {" time", " day", " cat"});
      EXPECT_EQ(choice["choice_logprobs"], json["choices"][0]["choice_logprobs"]);
      EXPECT_EQ(choice["finish_reason"], "stop");
    }
  }
}

TEST_F(ChoiceLawOverHttp, StreamsThemWithTheText) {
  const Answer answer = Ask(R"("stream": true, "guided_choice": [" time", " day"])");
  ASSERT_EQ(answer.status, 200) << answer.body;
  int num_found = 0;
  for (const absl::string_view line : absl::StrSplit(answer.body, '\n')) {
    absl::string_view event = line;
    if (!absl::ConsumePrefix(&event, "data: ") || event == "[DONE]") continue;
    const JsonValue choices = JsonValue::parse(std::string(event))["choices"];
    if (choices.empty() || !choices[0].contains("choice_logprobs")) continue;
    ++num_found;
    ExpectProbabilities(choices[0]["choice_logprobs"], {" time", " day"});
    EXPECT_NE(choices[0]["text"], "");
  }
  EXPECT_EQ(num_found, 1);
}

TEST_F(ChoiceLawOverHttp, TakesAnEnumOfStringsAsAResponseFormat) {
  const Answer answer = Ask(R"("response_format": {"type": "json_schema", "json_schema":
      {"name": "n", "schema": {"type": "string", "enum": ["red", "blue"]}}})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  ExpectProbabilities(JsonValue::parse(answer.body)["choices"][0]["choice_logprobs"],
                      {R"("red")", R"("blue")"});
}

TEST_F(ChoiceLawOverHttp, NamesTheFieldsThatItCannotFollow) {
  const auto expect_refused = [&](const std::string& fields, const std::string& param,
                                  const std::string& part, const std::string& law = "conditional") {
    const Answer answer = Ask(fields, law);
    EXPECT_EQ(answer.status, 400) << answer.body;
    const JsonValue error = JsonValue::parse(answer.body)["error"];
    EXPECT_EQ(error["param"], param) << answer.body;
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(part));
  };
  const std::string choices = R"("guided_choice": ["a", "b"])";
  expect_refused(choices + R"(, "top_k": 2)", "top_k", "must be 0");
  expect_refused(choices + R"(, "top_p": 0.5)", "top_p", "must be 1");
  expect_refused(choices + R"(, "min_p": 0.5)", "min_p", "must be 0");
  expect_refused(choices + R"(, "logit_bias": {"1": 2})", "logit_bias", "must be empty");
  expect_refused(R"("guided_choice": ["a", "a"])", "guided_choice", "choices 0 and 1");
  expect_refused(R"("guided_choice": [])", "guided_choice", "found 0 choices");
  expect_refused(R"("guided_regex": "a")", "choice_law", "a choice, or a schema");
  expect_refused(R"("n": 1)", "choice_law", "without choices");
  expect_refused(choices, "choice_law", "\"fair\" is not one of masked, conditional", "fair");
}

TEST(ChoiceLawFields, LeaveOutTheModelsDefaultsThatDoNotApply) {
  ServedModel model = TestServedModel();
  model.sampling = {.temperature = 0.25f, .top_k = 20, .top_p = 0.75f};
  const auto conditional =
      ChatWith(R"(, "choice_law": "conditional", "guided_choice": ["a"])", model);
  ASSERT_TRUE(conditional.ok()) << conditional.status();
  EXPECT_EQ(conditional->request.sampling.temperature, 0.25f);
  EXPECT_EQ(conditional->request.sampling.top_k, 0);
  EXPECT_EQ(conditional->request.sampling.top_p, 1.0f);
  const auto masked = ChatWith(R"(, "choice_law": "masked", "guided_choice": ["a"])", model);
  ASSERT_TRUE(masked.ok()) << masked.status();
  EXPECT_EQ(masked->request.sampling.top_k, 20);
}

}  // namespace
}  // namespace tandem
