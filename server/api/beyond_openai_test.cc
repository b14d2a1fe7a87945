// Features beyond OpenAI's API, with a real engine.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/http/http_server.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using Json = SortedJson;

Engine* SharedPair() {
  static Engine* const engine = MakeTestEngine(/*all_drafters=*/true).release();
  return engine;
}

Json AskJson(HttpServer* server, const std::string& target, const Json& body) {
  const Answer answer = Ask(server, "POST", target, body.dump());
  EXPECT_EQ(answer.status, 200) << answer.body;
  return answer.json();
}

Json Story() {
  return {{"prompt", "Once upon a time there was a cat. There was a cat"},
          {"max_tokens", 24},
          {"ignore_eos", true},
          {"temperature", 0}};
}

TEST(BeyondOpenAi, BestOfReturnsTheLikeliest) {
  const auto server = StartServer(SharedPair(), TestServerOptions());
  Json body = Story();
  body.update({{"temperature", 1}, {"seed", 7}, {"n", 4}, {"logprobs", 0}});
  const Json all = AskJson(server.get(), "/v1/completions", body);
  std::vector<std::pair<double, std::string>> ranked;
  for (const Json& choice : all["choices"]) {
    double sum = 0;
    for (const Json& logprob : choice["logprobs"]["token_logprobs"]) sum += logprob.get<double>();
    ranked.emplace_back(-sum, choice["text"]);
  }
  std::sort(ranked.begin(), ranked.end());
  body.update({{"n", 2}, {"best_of", 4}, {"logprobs", nullptr}});
  const Json best = AskJson(server.get(), "/v1/completions", body);
  ASSERT_EQ(best["choices"].size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(best["choices"][i]["index"], i);
    EXPECT_EQ(best["choices"][i]["text"], ranked[i].second);
    EXPECT_TRUE(best["choices"][i]["logprobs"].is_null());
  }
  // All generated tokens count, and the prompt counts once.
  EXPECT_EQ(best["usage"]["completion_tokens"], 4 * 24);
  EXPECT_EQ(best["usage"]["prompt_tokens"], all["usage"]["prompt_tokens"]);
}

TEST(BeyondOpenAi, PromptLogprobsEqualThoseOfAnEcho) {
  const auto server = StartServer(SharedPair(), TestServerOptions());
  Json body = Story();
  body.update({{"echo", true}, {"logprobs", 1}, {"prompt_logprobs", 3}, {"max_tokens", 2}});
  const Json choice = AskJson(server.get(), "/v1/completions", body)["choices"][0];
  const Json& rows = choice["prompt_logprobs"];
  const Json& echoed = choice["logprobs"];
  ASSERT_EQ(rows.size() + 2, echoed["tokens"].size());
  EXPECT_TRUE(rows[0].is_null());
  for (size_t i = 1; i < rows.size(); ++i) {
    // The three likeliest, and the prompt's own token if it is not one of them.
    EXPECT_THAT(rows[i].size(), testing::AnyOf(3u, 4u));
    bool is_there = false;
    for (const auto& [id, row] : rows[i].items()) {
      is_there = is_there || row["logprob"] == echoed["token_logprobs"][i];
      EXPECT_TRUE(row["rank"].is_null() == (rows[i].size() == 4 && !row["rank"].is_number()));
    }
    EXPECT_TRUE(is_there) << i;
    // The echo asked for one alternative.
    EXPECT_LE(echoed["top_logprobs"][i].size(), 2u);
  }
  const Json chat = AskJson(server.get(), "/v1/chat/completions",
                            {{"messages", {{{"role", "user"}, {"content", "Once upon a time"}}}},
                             {"prompt_logprobs", 0},
                             {"max_tokens", 2}});
  EXPECT_GT(chat["prompt_logprobs"].size(), 2u);
  EXPECT_FALSE(chat["choices"][0].contains("prompt_logprobs"));
}

TEST(BeyondOpenAi, LogprobsNameTokensByIdIfAsked) {
  const auto server = StartServer(SharedPair(), TestServerOptions());
  Json body = Story();
  body.update({{"logprobs", 3}, {"max_tokens", 4}});
  const Json by_text = AskJson(server.get(), "/v1/completions", body)["choices"][0]["logprobs"];
  body["return_tokens_as_token_ids"] = true;
  for (const bool stream : {false, true}) {
    body["stream"] = stream;
    const std::string answer = Ask(server.get(), "POST", "/v1/completions", body.dump()).body;
    const Json choice = (stream ? EventsOf(answer)[0] : Json::parse(answer))["choices"][0];
    for (size_t i = 0; i < choice["token_ids"].size(); ++i) {
      const std::string name = absl::StrCat("token_id:", choice["token_ids"][i].get<int>());
      EXPECT_EQ(choice["logprobs"]["tokens"][i], name);
      const Json& top = choice["logprobs"]["top_logprobs"][i];
      EXPECT_EQ(top[name], choice["logprobs"]["token_logprobs"][i]);
      EXPECT_EQ(top.size(), by_text["top_logprobs"][i].size());
      for (const auto& [key, logprob] : top.items()) EXPECT_THAT(key, HasSubstr("token_id:"));
    }
  }
  const Json chat = AskJson(server.get(), "/v1/chat/completions",
                            {{"messages", {{{"role", "user"}, {"content", "Once upon a time"}}}},
                             {"logprobs", true},
                             {"top_logprobs", 2},
                             {"return_tokens_as_token_ids", true},
                             {"max_tokens", 1}})["choices"][0];
  const Json& row = chat["logprobs"]["content"][0];
  EXPECT_EQ(row["token"], absl::StrCat("token_id:", chat["token_ids"][0].get<int>()));
  EXPECT_THAT(row["top_logprobs"][1]["token"].get<std::string>(), HasSubstr("token_id:"));
}

TEST(BeyondOpenAi, StopsCanBeIncludedInTheText) {
  const auto server = StartServer(SharedPair(), TestServerOptions());
  Json body = Story();
  const std::string whole = AskJson(server.get(), "/v1/completions", body)["choices"][0]["text"];
  const std::string stop = whole.substr(whole.size() / 2, 4);
  const std::string before = whole.substr(0, whole.find(stop));
  body["stop"] = stop;
  EXPECT_EQ(AskJson(server.get(), "/v1/completions", body)["choices"][0]["text"], before);
  body["include_stop_str_in_output"] = true;
  EXPECT_EQ(AskJson(server.get(), "/v1/completions", body)["choices"][0]["text"], before + stop);
  // A stop token's text is shown like any other, and a special token's if those are shown.
  Json by_token = Story();
  const Json ids = AskJson(server.get(), "/v1/completions", by_token)["choices"][0]["token_ids"];
  by_token["stop_token_ids"] = Json::array({ids[5]});
  const std::string cut = AskJson(server.get(), "/v1/completions", by_token)["choices"][0]["text"];
  by_token["include_stop_str_in_output"] = true;
  const std::string shown =
      AskJson(server.get(), "/v1/completions", by_token)["choices"][0]["text"];
  EXPECT_GT(shown.size(), cut.size());
  EXPECT_EQ(shown, whole.substr(0, shown.size()));
  Json special = Story();
  special.update({{"logit_bias", {{"0", 100}}}, {"max_tokens", 2}});
  EXPECT_EQ(AskJson(server.get(), "/v1/completions", special)["choices"][0]["text"], "");
  special["skip_special_tokens"] = false;
  EXPECT_EQ(AskJson(server.get(), "/v1/completions", special)["choices"][0]["text"],
            "<|endoftext|><|endoftext|>");
}

TEST(BeyondOpenAi, ChatsEchoTheAssistantsPrefix) {
  const auto server = StartServer(SharedPair(), TestServerOptions());
  Json body = {{"messages",
                {{{"role", "user"}, {"content", "Tell"}},
                 {{"role", "assistant"}, {"content", "Once upon"}}}},
               {"max_tokens", 4},
               {"temperature", 0}};
  const std::string plain =
      AskJson(server.get(), "/v1/chat/completions", body)["choices"][0]["message"]["content"];
  body["echo"] = true;
  EXPECT_EQ(AskJson(server.get(), "/v1/chat/completions", body)["choices"][0]["message"]["content"],
            "Once upon" + plain);
  body["stream"] = true;
  std::string streamed;
  for (const Json& event :
       EventsOf(Ask(server.get(), "POST", "/v1/chat/completions", body.dump()).body)) {
    streamed += event["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(streamed, "Once upon" + plain);
}

// The target decides, whichever drafter runs: greedily or with a seed, every drafter gives the same
// tokens.
TEST(BeyondOpenAi, EveryDrafterThatCanRunIsLossless) {
  const auto server = StartServer(SharedPair(), TestServerOptions());
  for (const float temperature : {0.0f, 0.9f}) {
    Json body = Story();
    body.update({{"temperature", temperature}, {"seed", 3}, {"max_tokens", 48}});
    body["speculation"] = {{"drafter", "none"}};
    const Json plain = AskJson(server.get(), "/v1/completions", body);
    EXPECT_EQ(plain["speculation"]["proposed"], 0);
    EXPECT_EQ(plain["speculation"]["drafter"], "none");
    for (const char* drafter : {"model", "ngram", "model+ngram"}) {
      SCOPED_TRACE(drafter);
      body["speculation"] = {{"drafter", drafter}, {"draft_tokens", 4}};
      const Json answer = AskJson(server.get(), "/v1/completions", body);
      EXPECT_EQ(answer["choices"][0]["token_ids"], plain["choices"][0]["token_ids"]);
      EXPECT_EQ(answer["speculation"]["drafter"], drafter);
      EXPECT_TRUE(temperature > 0 || answer["speculation"]["proposed"] > 0);
    }
  }
  EXPECT_TRUE(SharedPair()->CheckIntegrity().ok());
}

// Sequences with different drafters share rounds.
TEST(BeyondOpenAi, DraftersRunSideBySide) {
  std::vector<GenerationId> ids;
  std::vector<std::vector<TokenId>> tokens;
  Request request{.prompt = "One day a dog and a dog and a dog", .max_tokens = 64};
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  for (const DrafterKind kind : {DrafterKind::kNone, DrafterKind::kModel, DrafterKind::kNgram,
                                 DrafterKind::kModelAndNgram}) {
    for (const int draft_tokens : {3, kAutoDraftTokens}) {
      request.drafter = kind;
      request.draft_tokens = draft_tokens;
      const auto id = SharedPair()->Submit(request);
      ASSERT_TRUE(id.ok()) << id.status();
      ids.push_back(*id);
    }
  }
  for (const GenerationId id : ids) {
    const auto completion = SharedPair()->Wait(id);
    ASSERT_TRUE(completion.ok()) << completion.status();
    tokens.push_back(completion->token_ids);
  }
  for (const auto& other : tokens) EXPECT_EQ(other, tokens[0]);
  EXPECT_TRUE(SharedPair()->CheckIntegrity().ok());
}

TEST(BeyondOpenAi, RefusesDraftersThatTheEngineDoesNotHave) {
  const std::unique_ptr<Engine> engine = MakeTestEngine();
  Request request{.prompt = "A", .max_tokens = 1};
  request.drafter = DrafterKind::kNgram;
  const auto refused = engine->Submit(request);
  EXPECT_EQ(FieldOf(refused.status()), "drafter");
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("allowed: none, model"));
  request.drafter = DrafterKind::kNone;
  EXPECT_TRUE(engine->Generate(request).ok());
}

TEST(BeyondOpenAi, RendersPromptsAsTokens) {
  ManualEngine engine;
  const auto server = StartServer(&engine, TestServerOptions());
  const Answer both = Ask(server.get(), "POST", "/v1/completions/render",
                          R"({"prompt": [[1, 2.0, 3e0], [4.0]], "max_tokens": 5.0})");
  EXPECT_EQ(both.status, 200);
  EXPECT_EQ(Json::parse(both.body),
            Json::parse(R"([{"token_ids": [1, 2, 3]}, {"token_ids": [4]}])"));
  const std::string text = R"({"prompt": "Once upon a time"})";
  EXPECT_EQ(
      Json::parse(Ask(server.get(), "POST", "/v1/completions/render", text).body)[0]["token_ids"],
      Json::parse(Ask(server.get(), "POST", "/tokenize", text).body)["tokens"]);
  EXPECT_EQ(Ask(server.get(), "POST", "/detokenize", R"({"tokens": [300.0, 5e0]})").body,
            Ask(server.get(), "POST", "/detokenize", R"({"tokens": [300, 5]})").body);
  EXPECT_EQ(Ask(server.get(), "POST", "/v1/completions/render", R"({"prompt": [1.5]})").status,
            400);
  const std::string chat = R"({"messages": [{"role": "user", "content": "Hello"}]})";
  EXPECT_EQ(
      Json::parse(Ask(server.get(), "POST", "/v1/chat/completions/render", chat).body)["token_ids"],
      Json::parse(Ask(server.get(), "POST", "/tokenize", chat).body)["tokens"]);
  EXPECT_EQ(Ask(server.get(), "POST", "/v1/completions/render", R"({"prompt": 1})").status, 400);
}

// Row 157 of the bug catalogue: lm-eval's remote tokenizer finds its end token with this endpoint.
TEST(BeyondOpenAi, DescribesTheTokenizer) {
  const auto server = StartServer(SharedPair(), TestServerOptions());
  const Answer answer = Ask(server.get(), "GET", "/tokenizer_info");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json info = answer.json();
  EXPECT_EQ(info["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(info["bos_token"], "<|endoftext|>");
  EXPECT_EQ(info["eos_token"], "<|endoftext|>");
  EXPECT_EQ(info["pad_token"], "<|endoftext|>");
  EXPECT_EQ(info["add_bos_token"], true);
  EXPECT_EQ(info["add_prefix_space"], false);  // from tokenizer_config.json
  EXPECT_TRUE(info["chat_template"].is_null());
  const Json ids = AskJson(server.get(), "/tokenize",
                           {{"prompt", info["eos_token"]}, {"add_special_tokens", false}});
  EXPECT_EQ(ids["tokens"], Json({0}));
  EXPECT_EQ(info["model_max_length"], ids["max_model_len"]);
}

// The model's publisher recommends how to sample it. A request that sets the sampling itself is
// unchanged.
TEST(BeyondOpenAi, ServerDefaultsApplyToAbsentFields) {
  ServerOptions options = TestServerOptions();
  options.service.sampling.temperature = 0;
  const auto server = StartServer(SharedPair(), options);
  Json body = Story();
  const Json greedy = AskJson(server.get(), "/v1/completions", body)["choices"][0]["token_ids"];
  body.erase("temperature");
  EXPECT_EQ(AskJson(server.get(), "/v1/completions", body)["choices"][0]["token_ids"], greedy);
  body.update({{"temperature", 1.5}, {"seed", 1}});
  EXPECT_NE(AskJson(server.get(), "/v1/completions", body)["choices"][0]["token_ids"], greedy);
}

}  // namespace
}  // namespace tandem
