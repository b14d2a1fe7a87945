#include "proof/remote/http_engine.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using Json = SortedJson;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// A server with recorded answers. Paths that it lacks are 404.
class RecordedServer : public HttpExchange {
 public:
  using Handler = std::function<absl::StatusOr<Json>(const Json& body)>;
  void On(const std::string& target, Handler handler) { handlers_[target] = std::move(handler); }
  void On(const std::string& target, const Json& answer) {
    On(target, [answer](const Json&) { return answer; });
  }

  absl::StatusOr<std::string> Send(const std::string& /*method*/, const std::string& target,
                                   const std::string& body) override {
    const auto at = handlers_.find(target);
    if (at == handlers_.end()) return absl::InvalidArgumentError(target + ": 404 Not Found");
    bodies.push_back(body.empty() ? Json() : Json::parse(body));
    absl::StatusOr<Json> answer = at->second(bodies.back());
    if (!answer.ok()) return answer.status();
    return answer->is_string() ? answer->get<std::string>() : answer->dump();
  }

  std::vector<Json> bodies;

 private:
  std::map<std::string, Handler> handlers_;
};

Json ModelsOf(const char* owner) { return {{"data", {{{"id", "m"}, {"owned_by", owner}}}}}; }

std::unique_ptr<HttpEngine> Connected(RecordedServer* server, HttpEngine::Options options = {}) {
  static TokenTexts& texts = *new TokenTexts;
  options.token_texts = &texts;
  if (options.body.is_null()) options.body = Json::object();
  auto engine = HttpEngine::Connect(server, options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// An answer of vLLM and Tandem for tokens 5 and 7, with prompt_logprobs where they are asked for.
absl::StatusOr<Json> AnswerWithIds(const Json& body) {
  Json choice = {{"index", 0},
                 {"finish_reason", "length"},
                 {"text", " a b"},
                 {"token_ids", {5, 7}},
                 {"logprobs", nullptr}};
  if (body.contains("logprobs")) {
    choice["logprobs"] = {
        {"tokens", {"token_id:5", "token_id:7"}},
        {"token_logprobs", {-0.5, -0.25}},
        {"top_logprobs", {{{"token_id:9", -1.5}, {"token_id:5", -0.5}}, {{"token_id:7", -0.25}}}}};
  }
  if (body.contains("prompt_logprobs")) {
    Json& rows = choice["prompt_logprobs"];
    for (const Json& id : body["prompt"]) {
      rows.push_back(
          {{absl::StrCat(id.get<int>()), {{"logprob", -0.125}}}, {"3", {{"logprob", -2.0}}}});
    }
    rows[0] = nullptr;
  }
  return Json{{"choices", {choice}},
              {"usage", {{"completion_tokens", 2}}},
              {"speculation", {{"proposed", 4}, {"accepted", 1}}}};
}

RecordedServer TandemServer() {
  RecordedServer server;
  server.On("/v1/models", ModelsOf("tandem"));
  server.On("/version", Json{{"version", "1"}});
  server.On("/tokenize", Json{{"tokens", {1, 2}}});
  server.On("/v1/completions", AnswerWithIds);
  return server;
}

TEST(HttpEngine, AsksTandemForIdsAndScores) {
  RecordedServer server = TandemServer();
  const auto engine = Connected(&server);
  EXPECT_EQ(engine->Description(), "tandem \"1\", model m");
  EXPECT_TRUE(engine->features().ids && engine->features().prompt_ids && engine->features().scores);
  EXPECT_EQ(engine->features().num_top, 20);
  EXPECT_TRUE(engine->features().seeds_as_plain);
  engine->AddMembers(engine->SpeculationMembers(3));
  const RemoteReply reply = engine->Ask({.prompt = {.text = "x"}, .wants_logprobs = true}).value();
  EXPECT_EQ(server.bodies.back()["speculation"], Json({{"draft_tokens", 3}}));
  const RemoteAnswer& answer = reply.answers[0];
  EXPECT_THAT(answer.tokens, ElementsAre(5, 7));
  EXPECT_THAT(answer.logprobs, ElementsAre(-0.5, -0.25));
  EXPECT_THAT(answer.tops[0], ElementsAre(Pair(5, -0.5), Pair(9, -1.5)));
  EXPECT_EQ(answer.text, " a b");
  EXPECT_EQ(answer.finish, "length");
  EXPECT_EQ(reply.proposed, 4);
  EXPECT_EQ(reply.accepted, 1);
  EXPECT_EQ(reply.usage_tokens, 2);
  const auto scores = engine->Score({.ids = {1, 2}}, {8, 9}).value();
  EXPECT_THAT(scores[0], ElementsAre(Pair(8, -0.125), Pair(3, -2.0)));
  EXPECT_THAT(scores[1], ElementsAre(Pair(9, -0.125), Pair(3, -2.0)));
}

TEST(HttpEngine, SendsEveryFieldOfAQuestion) {
  RecordedServer server = TandemServer();
  const auto engine = Connected(&server, {.body = {{"priority", 1}}});
  const Question question = {.prompt = {.ids = {4}},
                             .max_tokens = 3,
                             .n = 2,
                             .temperature = 0.5,
                             .top_k = 6,
                             .top_p = 0.75,
                             .min_p = 0.125,
                             .frequency_penalty = -1.5,
                             .logit_bias = {{7, 2.0}},
                             .seed = 11,
                             .stop = {"a"},
                             .min_tokens = 2,
                             .wants_logprobs = true};
  const Json want = {{"prompt", {4}},
                     {"max_tokens", 3},
                     {"n", 2},
                     {"temperature", 0.5},
                     {"top_k", 6},
                     {"top_p", 0.75},
                     {"min_p", 0.125},
                     {"frequency_penalty", -1.5},
                     {"presence_penalty", 0.0},
                     {"repetition_penalty", 1.0},
                     {"logit_bias", {{"7", 2.0}}},
                     {"seed", 11},
                     {"stop", {"a"}},
                     {"min_tokens", 2},
                     {"logprobs", 20},
                     {"stream", false},
                     {"model", "m"},
                     {"priority", 1},
                     {"return_token_ids", true},
                     {"return_tokens_as_token_ids", true}};
  EXPECT_EQ(Json::parse(engine->BodyOf(question)), want);
}

TEST(HttpEngine, AsksForForms) {
  RecordedServer server = TandemServer();
  const std::vector<RemoteForm> forms = ProofForms();
  const Json schema = Json::parse(forms[0].text);
  const auto body_of = [&](const std::string& engine, const RemoteForm& form) {
    return Json::parse(Connected(&server, {.engine = engine})->BodyOf({.form = form}));
  };
  EXPECT_EQ(body_of("tandem", forms[0])["guided_json"], schema);
  EXPECT_EQ(body_of("tandem", forms[1])["guided_choice"], Json({"red", "reddish", "dark blue"}));
  EXPECT_EQ(body_of("tandem", forms[2])["guided_regex"], "[a-f]{3}-[0-9]{2}");
  EXPECT_EQ(body_of("openai", forms[0])["response_format"]["json_schema"]["schema"], schema);
  EXPECT_TRUE(absl::IsInvalidArgument(
      Connected(&server, {.engine = "openai"})->Ask({.form = forms[2]}).status()));
  EXPECT_EQ(body_of("tandem", {}), Json::parse(Connected(&server)->BodyOf({})));
}

// In llama.cpp's answer the log-probabilities of accepted drafts are 0, with empty lists (#27972).
TEST(HttpEngine, ReadsLlamaCpp) {
  RecordedServer server;
  server.On("/props", Json::parse(R"({"default_generation_settings": {}, "build_info": "b1"})"));
  server.On("/v1/models", ModelsOf("llamacpp"));
  server.On("/tokenize", Json{{"tokens", {1, 2}}});
  server.On("/completion", Json::parse(R"({"index": 0, "content": " a b", "tokens": [5, 7],
      "stop_type": "limit", "tokens_predicted": 2,
      "timings": {"draft_n": 3, "draft_n_accepted": 1},
      "completion_probabilities": [
        {"id": 5, "token": " a", "logprob": -0.5,
         "top_logprobs": [{"id": 5, "logprob": -0.5}, {"id": 6, "logprob": -1.5}]},
        {"id": 7, "token": " b", "logprob": 0.0, "top_logprobs": []}]})"));
  const auto engine = Connected(&server);
  EXPECT_THAT(engine->Description(), HasSubstr("llama.cpp \"b1\""));
  EXPECT_TRUE(engine->features().scores);
  EXPECT_THAT(engine->SpeculationMembers(0), IsEmpty());
  const RemoteReply reply =
      engine->Ask({.prompt = {.ids = {1}}, .n = 2, .logit_bias = {{7, 2.0}}}).value();
  const Json body = server.bodies.back();
  EXPECT_EQ(body["n_cmpl"], 2);
  EXPECT_EQ(body["logit_bias"], Json::parse("[[7, 2.0]]"));
  EXPECT_EQ(body["cache_prompt"], false);
  const RemoteForm choice = {.kind = RemoteForm::Kind::kChoice, .parts = {{"a\"", "b"}, {"c"}}};
  EXPECT_EQ(Json::parse(engine->BodyOf({.form = choice}))["grammar"],
            R"(root ::= ("a\"" | "b") ("c"))");
  const RemoteAnswer& answer = reply.answers[0];
  EXPECT_THAT(answer.tokens, ElementsAre(5, 7));
  EXPECT_THAT(answer.logprobs, ElementsAre(-0.5, 0.0));
  EXPECT_THAT(answer.tops[0], ElementsAre(Pair(5, -0.5), Pair(6, -1.5)));
  EXPECT_THAT(answer.tops[1], IsEmpty());
  EXPECT_EQ(answer.finish, "length");
  EXPECT_EQ(reply.proposed, 3);
  // A score is the row of a request per token, which has the tokens before.
  const size_t before = server.bodies.size();
  EXPECT_EQ(engine->Score({.ids = {1}}, {8, 9})->size(), 2u);
  ASSERT_EQ(server.bodies.size(), before + 2);
  EXPECT_EQ(server.bodies[before]["prompt"], Json({1}));
  EXPECT_EQ(server.bodies[before + 1]["prompt"], Json({1, 8}));
}

TEST(HttpEngine, NamesTheProfileThatAServerRefuses) {
  RecordedServer server;
  TokenTexts texts;
  server.On("/v1/models", ModelsOf("llamacpp"));
  server.On("/completion", [](const Json&) -> absl::StatusOr<Json> {
    return absl::InvalidArgumentError("repeat_last_n: 400");
  });
  const auto engine = HttpEngine::Connect(&server, {.body = Json::object(), .token_texts = &texts});
  EXPECT_THAT(engine.status().message(),
              HasSubstr("refused as a request to llama.cpp (--engine): repeat_last_n: 400"));
}

TEST(HttpEngine, TakesWordsWhereLlamaCppTellsNoTokens) {
  RecordedServer server;
  server.On("/v1/models", ModelsOf("llamacpp"));
  server.On("/completion", Json::parse(R"({"content": " a b", "tokens": []})"));
  const auto engine = Connected(&server);
  EXPECT_FALSE(engine->features().ids);
  EXPECT_EQ(engine->Ask({})->answers[0].tokens.size(), 2u);
}

TEST(HttpEngine, RefusesWhatTheApiHasNoFieldFor) {
  RecordedServer server;
  server.On("/v1/models", ModelsOf("somebody"));
  server.On("/v1/completions", AnswerWithIds);
  const auto engine = Connected(&server);
  const size_t before = server.bodies.size();
  for (const Question& question :
       {Question{.top_k = 8}, Question{.min_p = 0.1}, Question{.min_tokens = 3}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(engine->Ask(question).status()));
  }
  EXPECT_EQ(server.bodies.size(), before);
}

// A server that refuses fields it does not know, and has at most 5 log-probabilities, by text.
TEST(HttpEngine, AsksLessOfAnApiThatOffersLess) {
  RecordedServer server;
  server.On("/v3/models", ModelsOf("somebody"));
  server.On("/v3/completions", [](const Json& body) -> absl::StatusOr<Json> {
    if (body.contains("top_k") || body.contains("return_token_ids") ||
        body.value("logprobs", 0) > 5) {
      return absl::InvalidArgumentError("400");
    }
    return Json::parse(R"({"choices": [{"index": 0, "text": " a b", "finish_reason": "stop",
        "logprobs": {"tokens": [" a", " b"], "token_logprobs": [-0.5, null],
                     "top_logprobs": [{" a": -0.5, " b": -1.5}, {" b": -0.25}]}}]})");
  });
  const auto engine = Connected(&server, {.path = "/v3"});
  EXPECT_EQ(engine->features().num_top, 5);
  EXPECT_FALSE(engine->features().ids || engine->features().prompt_ids);
  EXPECT_FALSE(engine->features().scores);
  EXPECT_EQ(engine->features().no_scores, "answers have no token ids");
  const RemoteReply reply = engine->Ask({.prompt = {.text = "x"}}).value();
  const RemoteAnswer& answer = reply.answers[0];
  ASSERT_EQ(answer.tokens.size(), 2u);
  EXPECT_EQ(answer.tops[0][0].first, answer.tokens[0]);
  EXPECT_EQ(answer.tops[0][1].first, answer.tokens[1]);  // the same text is the same token
  EXPECT_EQ(reply.proposed, std::nullopt);
}

TEST(HttpEngine, SplitsTextsWhereTheApiTellsNoTokens) {
  RecordedServer server;
  server.On("/v1/models", ModelsOf("somebody"));
  server.On(
      "/v1/completions",
      Json::parse(R"({"choices": [{"index": 0, "text": " a b  a", "finish_reason": "stop"}]})"));
  const auto engine = Connected(&server);
  EXPECT_EQ(engine->features().num_top, 0);
  const std::vector<TokenId> tokens = engine->Ask({})->answers[0].tokens;
  ASSERT_EQ(tokens.size(), 3u);  // " a", " b", "  a"
  EXPECT_NE(tokens[0], tokens[2]);
}

TEST(HttpEngine, JoinsTheChunksOfAStream) {
  RecordedServer server = TandemServer();
  const auto engine = Connected(&server);
  const std::string events[] = {
      R"({"choices": [{"index": 1, "text": "x", "token_ids": [3], "finish_reason": null}]})",
      R"({"choices": [{"index": 0, "text": " a", "token_ids": [5, 7]}]})",
      R"({"choices": [{"index": 0, "text": "b", "token_ids": [], "finish_reason": "stop"}]})",
      R"({"choices": [], "speculation": {"proposed": 2, "accepted": 1}})", "[DONE]"};
  std::string stream;
  for (const std::string& event : events) absl::StrAppend(&stream, "data: ", event, "\r\n\r\n");
  server.On("/v1/completions", Json(stream));
  const RemoteReply reply = engine->Ask({.n = 2, .stream = true}).value();
  EXPECT_TRUE(reply.has_wide_chunks);
  EXPECT_EQ(reply.answers[0].text, " ab");
  EXPECT_THAT(reply.answers[0].tokens, ElementsAre(5, 7));
  EXPECT_EQ(reply.answers[0].finish, "stop");
  EXPECT_THAT(reply.answers[1].tokens, ElementsAre(3));
  EXPECT_EQ(reply.proposed, 2);
}

TEST(HttpEngine, SendsNoMoreRequestsThanAllowed) {
  RecordedServer server = TandemServer();
  std::atomic<int64_t> requests_left = 5;
  const auto engine = Connected(&server, {.requests_left = &requests_left});
  absl::Status status;
  int num_asked = 0;
  while ((status = engine->Ask({}).status()).ok()) ++num_asked;
  EXPECT_LT(num_asked, 5);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(status.message(), HasSubstr("--requests"));
}

TEST(HttpEngine, TellsWhichAnswerItDoesNotUnderstand) {
  RecordedServer server = TandemServer();
  const auto engine = Connected(&server);
  for (const Json& answer : {Json::parse(R"({"choices": [{"text": 5}]})"), Json::object(),
                             Json::parse(R"({"choices": [7]})"), Json("no JSON")}) {
    server.On("/v1/completions", answer);
    EXPECT_THAT(engine->Ask({}).status().message(), HasSubstr("/v1/completions")) << answer;
    server.On("/v1/completions", Json("data: " + answer.dump() + "\n"));
    EXPECT_THAT(engine->Ask({.stream = true}).status().message(), HasSubstr("/v1/completions"));
  }
  server.On("/v1/completions", Json(R"(data: {"choices": [{"index": 4000000000}]})"));
  EXPECT_TRUE(engine->Ask({.stream = true}).ok());
  for (const char* rows : {"[null, {}, {}]", R"([null, {"1": {}}, {"2": {}}])", "[]", "7"}) {
    server.On("/v1/completions",
              Json::parse(absl::StrCat(R"({"choices": [{"prompt_logprobs": )", rows, "}]}")));
    EXPECT_FALSE(engine->Score({.ids = {1}}, {8, 9}).ok()) << rows;
  }
}

TEST(HttpEngine, ReadsLlamaCppsAnswersWithoutTheirMembers) {
  RecordedServer server;
  server.On("/v1/models", Json::parse(R"({"data": [{"id": 7, "owned_by": "llamacpp"}]})"));
  server.On("/completion", Json::parse(R"({"content": "a"})"));
  TokenTexts texts;
  const auto engine = HttpEngine::Connect(&server, {.body = Json::object(), .token_texts = &texts});
  EXPECT_THAT(engine.status().message(),
              HasSubstr("/completion: an answer that is not understood"));
}

TEST(HttpEngine, NeedsAServerThatAnswers) {
  RecordedServer server;
  TokenTexts texts;
  const auto engine = HttpEngine::Connect(&server, {.body = Json::object(), .token_texts = &texts});
  EXPECT_THAT(engine.status().message(), HasSubstr("/v1/models: 404"));
}

}  // namespace
}  // namespace tandem
