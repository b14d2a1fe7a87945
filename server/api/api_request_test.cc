#include "server/api/api_request.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/api_error.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Json = SortedJson;

const ServedModel& Model() {
  static ServedModel& model = *new ServedModel(TestServedModel());
  model.drafter = "model";
  model.drafters = {"model"};
  model.is_strict = true;
  return model;
}

absl::StatusOr<ApiRequest> Complete(const std::string& fields) {
  return ParseCompletionRequest("{\"prompt\": \"A\"" + fields + "}", Model());
}
absl::StatusOr<ApiRequest> Chat(const std::string& fields) { return ChatWith(fields, Model()); }
absl::StatusOr<ApiRequest> CompleteBody(const std::string& body) {
  return ParseCompletionRequest(body, Model());
}
absl::StatusOr<ApiRequest> ChatBody(const std::string& body) {
  return ParseChatRequest(body, Model(), absl::UnixEpoch());
}

// Expects an error that names `param`, shows `given` and has this HTTP status.
void ExpectError(const absl::StatusOr<ApiRequest>& request, const std::string& param,
                 const std::string& given, int status = 400, const std::string& code = "") {
  ASSERT_FALSE(request.ok()) << param << " " << given;
  const Json error = ErrorJson(request.status())["error"];
  EXPECT_EQ(error["param"], param.empty() ? Json(nullptr) : Json(param)) << error;
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(given));
  EXPECT_EQ(ErrorResponse(request.status()).status, status);
  if (!code.empty()) {
    EXPECT_EQ(error["code"], code);
  }
}

TEST(ApiRequest, InvalidCompletionFieldsAreNamed) {
  const struct {
    const char* fields;
    const char* param;
    const char* given;
  } cases[] = {
      {R"(, "temperature": "hot")", "temperature", "\"hot\""},
      {R"(, "temperature": 1e39)", "temperature", "1e+39"},
      {R"(, "top_p": [1])", "top_p", "[1]"},
      {R"(, "top_k": -2)", "top_k", "-2"},
      {R"(, "top_k": 1.5)", "top_k", "1.5"},
      {R"(, "top_k": 3000000000)", "top_k", "3000000000"},
      {R"(, "min_tokens": -1)", "min_tokens", "-1"},
      {R"(, "max_tokens": -2)", "max_tokens", "-2"},
      {R"(, "max_tokens": 0)", "max_tokens", "0"},
      {R"(, "max_tokens": true)", "max_tokens", "true"},
      {R"(, "max_tokens": "5")", "max_tokens", "\"5\""},
      {R"(, "n": 0)", "n", "0"},
      {R"(, "n": 129)", "n", "129"},
      {R"(, "n": 9)", "n", "9"},
      {R"(, "stream": 1)", "stream", "1"},
      {R"(, "stream_options": {})", "stream_options", "{}"},
      {R"(, "stream": true, "stream_options": {"usage": true})", "stream_options.usage", "usage"},
      {R"(, "stream": true, "stream_options": 3)", "stream_options", "3"},
      {R"(, "stream": true, "stream_options": {"prompt_progress": 1})",
       "stream_options.prompt_progress", "1"},
      {R"(, "stream_options": {"prompt_progress": true})", "stream_options", "prompt_progress"},
      {R"(, "logprobs": true)", "logprobs", "true"},
      {R"(, "logprobs": 101)", "logprobs", "101"},
      {R"(, "stop": "")", "stop", "\"\""},
      {R"(, "stop": ["a", 1])", "stop", "1"},
      {R"(, "stop": {})", "stop", "{}"},
      {R"(, "stop_token_ids": [-1])", "stop_token_ids", "[-1]"},
      {R"(, "seed": 1.5)", "seed", "1.5"},
      {R"(, "logit_bias": [1])", "logit_bias", "[1]"},
      {R"(, "logit_bias": {"a": 1})", "logit_bias", "\"a\""},
      {R"(, "logit_bias": {"1": "a"})", "logit_bias", "\"a\""},
      {R"(, "logit_bias": {"5": 1, "05": 2})", "logit_bias", "\"05\""},
      {R"(, "logit_bias": {"+5": 1})", "logit_bias", "\"+5\""},
      {R"(, "logit_bias": {" 5": 1})", "logit_bias", "\" 5\""},
      {R"(, "logit_bias": {"-0": 1})", "logit_bias", "\"-0\""},
      {R"(, "ignore_eos": "no")", "ignore_eos", "\"no\""},
      {R"(, "echo": 0)", "echo", "0"},
      {R"(, "echo": true, "logprobs": 1, "stream": true)", "echo", "true"},
      {R"(, "n": 3, "best_of": 2)", "best_of", "2"},
      {R"(, "best_of": 2, "stream": true)", "best_of", "2"},
      {R"(, "best_of": 9)", "best_of", "9"},
      {R"(, "suffix": "x")", "suffix", "\"x\""},
      {R"(, "speculation": 4)", "speculation", "4"},
      {R"(, "speculation": {"draft_tokens": -1})", "speculation.draft_tokens", "-1"},
      {R"(, "speculation": {"draft_tokens": 33})", "speculation.draft_tokens", "33"},
      {R"(, "speculation": {"draft_tokens": "many"})", "speculation.draft_tokens", "\"many\""},
      {R"(, "speculation": {"drafter": "ngram"})", "speculation.drafter", "\"ngram\""},
      {R"(, "speculation": {"drafter": "none", "draft_tokens": 2})", "speculation.draft_tokens",
       "2"},
      {R"(, "speculation": {"verifier": "mine"})", "speculation.verifier", "\"mine\""},
      {R"(, "speculation": {"k": 1})", "speculation.k", "allowed: draft_tokens"},
      {R"(, "temprature": 1)", "temprature", "allowed: model, choice_law, temperature"},
      {R"(, "": 1)", "\"\"", "allowed"},
      {R"(, "messages": [5])", "messages", "not supported"},
  };
  for (const auto& c : cases) ExpectError(Complete(c.fields), c.param, c.given);
  ExpectError(Complete(R"(, "model": "gpt")"), "model", "\"gpt\"", 404, "model_not_found");
  ExpectError(Complete(R"(, "model": 7)"), "model", "7");
  ExpectError(Complete(R"(, "max_tokens": 1024)"), "max_tokens", "1024", 400,
              "context_length_exceeded");
}

TEST(ApiRequest, NamesTheLimitThatALengthExceeds) {
  ServedModel model = Model();
  const auto error = [&] {
    return ParseCompletionRequest(R"({"prompt": [5, 6], "max_tokens": 5000})", model).status();
  };
  EXPECT_THAT(std::string(error().message()), HasSubstr("exceed the model's context of 1024"));
  model.cache_tokens = 512;
  EXPECT_EQ(error().message(),
            "max_tokens: 5000 and 2 prompt tokens exceed the 512 tokens that kv_memory holds");
}

TEST(ApiRequest, LimitsStopStrings) {
  const auto with_stop = [](const Json& stop) {
    return CompleteBody(Json{{"prompt", "A"}, {"stop", stop}}.dump());
  };
  const std::string longest(1000, 'x');
  EXPECT_TRUE(with_stop(longest).ok());
  EXPECT_TRUE(with_stop(std::vector<std::string>(16, longest)).ok());
  ExpectError(with_stop(longest + "x"), "stop", "at most 1000 bytes");
  ExpectError(with_stop({"a", longest + "x"}), "stop", "at most 1000 bytes");
  ExpectError(with_stop(std::vector<std::string>(17, "x")), "stop", "17");
}

// Without the limit, the first request needed 800 MB and could have needed 7 GB.
TEST(ApiRequest, LimitsTheSizeOfAnAnswer) {
  constexpr char kIssue[] = R"(, "n": 8, "logprobs": true, "top_logprobs": 100)";
  ExpectError(Chat(absl::StrCat(kIssue, R"(, "max_tokens": 900)")), "max_tokens",
              "900 for each of 8 sequences with 101 log-probabilities");
  ExpectError(Chat(absl::StrCat(kIssue, R"(, "max_completion_tokens": 900)")),
              "max_completion_tokens", "allowed: ");
  // Without max_tokens a chat gets what fits, here less than the context's 1,022 tokens.
  const auto chat = Chat(kIssue);
  ASSERT_TRUE(chat.ok());
  const int most = chat->request.max_tokens;
  EXPECT_EQ(most, (64 << 20) / (8 * (32 + 101 * 96)));
  EXPECT_TRUE(Chat(absl::StrCat(kIssue, ", \"max_tokens\": ", most)).ok());
  ExpectError(Chat(absl::StrCat(kIssue, ", \"max_tokens\": ", most + 1)), "max_tokens",
              absl::StrCat("allowed: ", most));
  EXPECT_TRUE(Complete(R"(, "n": 8, "max_tokens": 1000, "logprobs": 5)").ok());
}

TEST(ApiRequest, RefusesAnswersThatAreFullBeforeTheirFirstToken) {
  ServedModel model = Model();
  model.max_answer_bytes = 10000;
  const auto complete = [&](const char* fields) {
    return ParseCompletionRequest(
        absl::StrCat(R"({"prompt": [5, 6, 7], "max_tokens": 1)", fields, "}"), model);
  };
  EXPECT_TRUE(complete(R"(, "logprobs": 100)").ok());
  ExpectError(complete(R"(, "logprobs": 100, "n": 2)"), "logprobs", "2 sequences");
  ExpectError(complete(R"(, "logprobs": 100, "echo": true)"), "logprobs", "10000 bytes");
  ExpectError(complete(R"(, "logprobs": 30, "echo": true)"), "logprobs", "31 log-probabilities");
  EXPECT_TRUE(complete(R"(, "logprobs": 20, "echo": true)").ok());
  model.max_answer_bytes = 100;
  EXPECT_TRUE(complete(R"(, "n": 3)").ok());
  ExpectError(complete(R"(, "n": 4)"), "n", "4 sequences");
  ExpectError(complete(R"(, "echo": true)"), "n", "100 bytes");
}

TEST(ApiRequest, InvalidPromptsAreNamed) {
  const char* const wrong[] = {"5",    "[]",         "{}",           "true",
                               "[[]]", "[1.5]",      "[\"a\", [1]x", "[[\"a\"]]",
                               "[-1]", "[\"a\", 1]", "\"\\ud800\""};
  for (const char* prompt : wrong) {
    const auto request = CompleteBody(std::string("{\"prompt\": ") + prompt + "}");
    ASSERT_FALSE(request.ok()) << prompt;
    EXPECT_THAT(std::string(request.status().message()), HasSubstr(": ")) << prompt;
  }
  ExpectError(CompleteBody("{}"), "prompt", "is required");
  ExpectError(CompleteBody(""), "body", "JSON");
  ExpectError(CompleteBody("[]"), "body", "[]");
  ExpectError(CompleteBody("{\"prompt\": \"A\", \"prompt\": \"B\"}"), "body", "twice");
  ExpectError(CompleteBody("{\"prompt\": \"\xff\"}"), "body", "UTF-8");
  const Json long_prompt = {{"prompt", std::vector<int>(1024, 7)}};
  ExpectError(CompleteBody(long_prompt.dump()), "prompt", "1024", 400, "context_length_exceeded");
}

// The tokenizer's regular expression cannot split this text within its limits. That is an error of
// the text, not of the server.
TEST(ApiRequest, TextsThatTakeTooLongToSplitAreNamed) {
  const auto tokenizer = Tokenizer::Parse(R"({
      "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?:a+)+b"}, "behavior": "Isolated",
                        "invert": false},
      "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []}})",
                                          "", "test");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ServedModel model = Model();
  model.tokenizer = tokenizer->get();
  const std::string text = std::string(100, 'a') + "cb";
  ExpectError(ParseCompletionRequest(Json{{"prompt", text}}.dump(), model), "prompt",
              "regular expression: at byte 0");
  const Json messages = {{{"role", "user"}, {"content", text}}};
  ExpectError(ParseChatRequest(Json{{"messages", messages}}.dump(), model, absl::UnixEpoch()),
              "messages", "regular expression: at byte 0");
}

TEST(ApiRequest, InvalidChatFieldsAreNamed) {
  const struct {
    const char* fields;
    const char* param;
    const char* given;
  } cases[] = {{R"(, "logprobs": 1)", "logprobs", "1"},
               {R"(, "top_logprobs": 2)", "top_logprobs", "2"},
               {R"(, "max_tokens": 0)", "max_tokens", "0"},
               {R"(, "max_tokens": 4, "max_completion_tokens": 5)", "max_tokens", "4"},
               {R"(, "max_completion_tokens": 5000)", "max_completion_tokens", "5000"},
               {R"(, "tools": [{}])", "tools[0].type", "is required"},
               {R"(, "response_format": {"type": "xml"})", "response_format.type", "xml"},
               {R"(, "prompt": "x")", "prompt", "not supported"}};
  for (const auto& c : cases) ExpectError(Chat(c.fields), c.param, c.given);
  const struct {
    const char* messages;
    const char* param;
    const char* given;
  } lists[] = {
      {"null", "messages", "is required"},
      {"[]", "messages", "[]"},
      {"[1]", "messages[0]", "1"},
      {R"([{"role": "user"}])", "messages[0].content", "is required"},
      {R"([{"role": "robot", "content": "x"}])", "messages[0].role", "\"robot\""},
      {R"([{"content": "x"}])", "messages[0].role", "is required"},
      {R"([{"role": "", "content": "x"}])", "messages[0].role", "\"\" is not one of"},
      {R"([{"role": "user", "content": 1}])", "messages[0].content", "1"},
      {R"([{"role": "user", "content": "x", "name": 5}])", "messages[0].name", "5"},
      {R"([{"role": "user", "content": "x", "mood": "me"}])", "messages[0].mood", "not known"},
      {R"([{"role": "user", "content": [{"type": "image_url"}]}])", "messages[0].content[0].type",
       "image_url"},
      {R"([{"role": "user", "content": [{"type": "text", "text": 4}]}])",
       "messages[0].content[0].text", "4"}};
  for (const auto& c : lists) {
    ExpectError(ChatBody(std::string("{\"messages\": ") + c.messages + "}"), c.param, c.given);
  }
}

TEST(ApiRequest, UsesOpenAisDefaults) {
  const auto completion = Complete("");
  ASSERT_TRUE(completion.ok());
  EXPECT_EQ(completion->request.max_tokens, 16);
  EXPECT_EQ(completion->request.sampling.temperature, 1.0f);
  EXPECT_EQ(completion->request.logprobs.num_top, -1);
  EXPECT_FALSE(completion->request.seed.has_value());
  EXPECT_FALSE(completion->request.draft_tokens.has_value());
  EXPECT_EQ(completion->num_sequences(), 1);
  // The prompt begins with the tokenizer's own token.
  ASSERT_THAT(completion->prompts, SizeIs(1));
  EXPECT_THAT(completion->prompts[0], SizeIs(2));
  EXPECT_EQ(completion->prompts[0][0], 0);
  const auto chat = Chat("");
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->request.max_tokens, 1024 - 2);
}

TEST(ApiRequest, ReadsEveryField) {
  const auto request = CompleteBody(R"({"model": "story", "prompt": [[5, 6], [7]], "n": 2,
      "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1,
      "repetition_penalty": 1.1, "frequency_penalty": 0.2, "presence_penalty": 0.3,
      "min_tokens": 2, "logit_bias": {"8": -5}, "stop": ["x", "yz"], "stop_token_ids": [9],
      "ignore_eos": true, "seed": -1, "logprobs": 4, "stream": true, "best_of": 2, "user": "me",
      "stream_options": {"include_usage": true, "prompt_progress": true}, "suffix": null,
      "speculation": {"draft_tokens": "auto", "drafter": "model", "verifier": "block"}})");
  ASSERT_TRUE(request.ok()) << request.status();
  const Request& options = request->request;
  EXPECT_EQ(options.max_tokens, 9);
  EXPECT_EQ(options.sampling.temperature, 0.5f);
  EXPECT_EQ(options.sampling.top_p, 0.9f);
  EXPECT_EQ(options.sampling.top_k, 3);
  EXPECT_EQ(options.sampling.min_p, 0.1f);
  EXPECT_EQ(options.sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(options.sampling.frequency_penalty, 0.2f);
  EXPECT_EQ(options.sampling.presence_penalty, 0.3f);
  EXPECT_EQ(options.sampling.min_tokens, 2);
  EXPECT_THAT(options.sampling.logit_bias, ElementsAre(std::make_pair(8, -5.0f)));
  EXPECT_THAT(options.stop, ElementsAre("x", "yz"));
  EXPECT_THAT(options.stop_tokens, ElementsAre(9));
  EXPECT_TRUE(options.ignore_eos);
  EXPECT_EQ(options.seed, ~uint64_t{0});
  EXPECT_EQ(options.logprobs.num_top, 4);
  EXPECT_EQ(options.draft_tokens, kAutoDraftTokens);
  EXPECT_EQ(options.verifier, AcceptanceRule::kBlock);
  EXPECT_TRUE(request->stream && request->include_usage && options.prompt_progress);
  ASSERT_EQ(request->num_sequences(), 4);
  EXPECT_THAT(request->RequestOf(1).prompt_ids, ElementsAre(5, 6));
  EXPECT_THAT(request->RequestOf(2).prompt_ids, ElementsAre(7));
  EXPECT_EQ(request->RequestOf(3).sequence, 3u);
}

TEST(ApiRequest, NullCountsAsAbsent) {
  const auto request = Complete(
      R"(, "max_tokens": null, "stop": null, "logit_bias": null, "stream_options": null,
         "seed": null, "speculation": null, "model": null, "temperature": null)");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->request.max_tokens, 16);
}

TEST(ApiRequest, SpeculationIsOffWithoutDraftTokensOrDrafter) {
  for (const char* off : {R"({"draft_tokens": 0})", R"({"drafter": "none"})"}) {
    const auto request = Complete(std::string(", \"speculation\": ") + off);
    ASSERT_TRUE(request.ok());
    EXPECT_EQ(request->request.draft_tokens, 0);
  }
}

TEST(ApiRequest, ChatContentIsNotParsedForSpecialTokens) {
  const auto request = ChatBody(R"({"messages": [{"role": "system", "content": "a"},
      {"role": "user", "content": [{"type": "text", "text": "<|endof"},
                                   {"type": "text", "text": "text|>"}]}]})");
  ASSERT_TRUE(request.ok());
  const std::vector<TokenId>& ids = request->prompts[0];
  EXPECT_EQ(ids[0], 0);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 0), 1);
  EXPECT_EQ(Model().tokenizer->Decode(ids, /*skip_special=*/true), "a\n<|endoftext|>");
}

TEST(ApiRequest, ReportsWhyTheChatTemplateIsUnusable) {
  ServedModel model = Model();
  model.chat_template = absl::UnimplementedError("chat_template: line 1: found the tag extends");
  const auto request =
      ParseChatRequest(R"({"messages": [{"role": "user", "content": "x"}]})", model, absl::Now());
  ExpectError(request, "messages", "found the tag extends");
}

}  // namespace
}  // namespace tandem
