#include "server/http/http_server.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/server_testing.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = SortedJson;

constexpr char kGreedy[] =
    R"({"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0, "ignore_eos": true})";

// One engine for all tests: its answers do not depend on other requests.
Engine* SharedEngine() {
  static Engine* const engine = MakeTestEngine().release();
  return engine;
}

Request GreedyRequest() {
  Request request{.prompt = "Once upon a time", .max_tokens = 24, .ignore_eos = true};
  request.sampling.temperature = 0;
  return request;
}

// ---- Answers ----

TEST(HttpServer, AnswersEveryPath) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  const struct {
    const char* path;
    const char* type;
    const char* part;
  } cases[] = {{"/", "text/html", "Tandem"},
               {"/?a=b", "text/html", "Tandem"},
               {"/page/base.css", "text/css", "prefers-color-scheme"},
               {"/page/app.js", "text/javascript", "import"},
               {"/page/marked.js", "text/javascript", "MIT Licensed"},
               {"/page/icon.svg", "image/svg+xml", "<svg"},
               {"/docs", "text/html", "/page/api.js"},
               {"/health", "application/json", "ok"},
               {"/ready", "application/json", "ready"},
               {"/metrics", "text/plain", "tandem_generation_tokens_total"},
               {"/openapi.json", "application/json", "/v1/completions"},
               {"/v1/models", "application/json", "\"story\""},
               {"/v1/models/story", "application/json", "\"story\""}};
  for (const auto& c : cases) {
    const Answer answer = Ask(server.get(), "GET", c.path);
    EXPECT_EQ(answer.status, 200) << c.path;
    EXPECT_THAT(answer.headers.at("content-type"), HasSubstr(c.type)) << c.path;
    EXPECT_THAT(answer.body, HasSubstr(c.part)) << c.path;
    const Answer head = Ask(server.get(), "HEAD", c.path);
    EXPECT_EQ(head.status, 200) << c.path;
    EXPECT_THAT(head.body, IsEmpty()) << c.path;
  }
  for (const char* path : {"/", "/docs"}) {
    const Answer page = Ask(server.get(), "GET", path);
    EXPECT_THAT(page.headers.at("content-security-policy"), HasSubstr("default-src 'none'"));
    EXPECT_THAT(page.headers.at("content-security-policy"), Not(HasSubstr("unsafe")));
  }
}

// The page offers a chat if the model has a template, and stories otherwise.
TEST(HttpServer, ReportsWhetherTheModelHasAChatTemplate) {
  const TestFolder folder;
  const struct {
    std::string jinja;
    Json name;
    bool has;
  } cases[] = {{"", "plain", false},
               {"{{ '<|im_start|>' + messages[0]['role'] }}{{ '<|im_end|>' }}", "jinja", true},
               {"{% if messages %} without an end", nullptr, false}};
  for (const auto& c : cases) {
    folder.Write("chat_template.jinja", c.jinja);
    ManualEngine engine;
    engine.set_model_path(folder.path());
    const auto server = StartServer(&engine, TestServerOptions());
    for (const Json& model : {Ask(server.get(), "GET", "/v1/models").json()["data"][0],
                              Ask(server.get(), "GET", "/v1/models/story").json()}) {
      EXPECT_EQ(model["chat_template"], c.name) << c.jinja;
      EXPECT_EQ(model["has_chat_template"], c.has) << c.jinja;
    }
  }
}

TEST(HttpServer, ListsTheDraftersThatARequestMayName) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  const Json model = Ask(server.get(), "GET", "/v1/models").json()["data"][0];
  ASSERT_THAT(model["drafters"], Not(IsEmpty()));
  EXPECT_THAT(model["drafters"], Contains(model["drafter"]));
  for (const Json& drafter : model["drafters"]) {
    Json body = {{"prompt", "Once"}, {"max_tokens", 2}, {"speculation", {{"drafter", drafter}}}};
    EXPECT_EQ(Ask(server.get(), "POST", "/v1/completions", body.dump()).status, 200) << drafter;
  }
}

TEST(HttpServer, RefusesOtherPathsAndMethods) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  EXPECT_EQ(Ask(server.get(), "GET", "/v2").status, 404);
  EXPECT_EQ(Ask(server.get(), "GET", "/page/").status, 404);
  EXPECT_EQ(Ask(server.get(), "GET", "/page/none.js").status, 404);
  EXPECT_EQ(Ask(server.get(), "GET", "/page/openapi.json").status, 404);
  EXPECT_EQ(Ask(server.get(), "GET", "/page/docs.html").status, 404);
  EXPECT_EQ(Ask(server.get(), "GET", "/page/../page/app.js").status, 404);
  EXPECT_EQ(Ask(server.get(), "GET", "/v1/models/other").error("code"), "model_not_found");
  const Answer wrong = Ask(server.get(), "GET", "/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST, OPTIONS");
  for (const char* method : {"PUT", "DELETE", "PATCH", "POST", "TRACE", "BREW"}) {
    const Answer refused = Ask(server.get(), method, "/health");
    EXPECT_EQ(refused.status, 405) << method;
    EXPECT_EQ(refused.error("param"), "method") << method;
    EXPECT_EQ(refused.headers.at("allow"), "GET, HEAD, OPTIONS") << method;
  }
  EXPECT_EQ(Ask(server.get(), "CONNECT", "localhost:80").status, 404);
  EXPECT_EQ(Ask(server.get(), "HEAD", "/v1/completions").status, 405);
}

TEST(HttpServer, OptionsListsTheMethodsOfAPath) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  const struct {
    const char* path;
    const char* methods;
  } cases[] = {{"/health", "GET, HEAD, OPTIONS"},
               {"/v1/completions?x", "POST, OPTIONS"},
               {"/v1/models/any", "GET, HEAD, OPTIONS"},
               {"/v1/draft_texts/dt-1", "GET, HEAD, DELETE, OPTIONS"},
               {"*", "GET, HEAD, POST, DELETE, OPTIONS"}};
  Client client(server->port());
  for (const auto& c : cases) {
    const Answer answer = client.Ask("OPTIONS", c.path);
    EXPECT_EQ(answer.status, 204) << c.path;
    EXPECT_EQ(answer.headers.at("allow"), c.methods) << c.path;
    EXPECT_FALSE(answer.headers.contains("content-length")) << c.path;
    EXPECT_FALSE(answer.headers.contains("content-type")) << c.path;
  }
  EXPECT_EQ(client.Ask("OPTIONS", "/nowhere").status, 404);
}

TEST(HttpServer, DecodesTargets) {
  ServerOptions options = TestServerOptions();
  options.service.model_name = "a b/\xC3\xA9";
  const auto server = StartServer(SharedEngine(), options);
  for (const char* target : {"/v1/models/a%20b/%C3%A9", "/v1/models/a%20b%2F%c3%a9",
                             "/v1/models/a%20b/%C3%A9/", "/v1/models/a%20b/%C3%A9?b=%"}) {
    const Answer answer = Ask(server.get(), "GET", target);
    EXPECT_EQ(answer.status, 200) << target;
    EXPECT_EQ(answer.json()["id"], options.service.model_name) << target;
  }
  for (const char* target : {"/v1/models/", "/v1/models?limit=1", "/v1/mod%65ls/?limit=1"}) {
    EXPECT_EQ(Ask(server.get(), "GET", target).json()["object"], "list") << target;
  }
  EXPECT_EQ(Ask(server.get(), "POST", "/v1/completions/", kGreedy).status, 200);
  for (const char* target : {"/v1/models/a%", "/v1/models/a%2", "/%zz/health"}) {
    const Answer answer = Ask(server.get(), "GET", target);
    EXPECT_EQ(answer.status, 400) << target;
    EXPECT_EQ(answer.error("param"), "path") << target;
    EXPECT_THAT(answer.error("message"), HasSubstr(target)) << target;
  }
  // Text that is not valid UTF-8 is quoted.
  EXPECT_EQ(Ask(server.get(), "GET", "/v1/models/%ff%00").status, 404);
}

TEST(HttpServer, CompletionsMatchTheEngine) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  const auto want = SharedEngine()->Generate(GreedyRequest());
  ASSERT_TRUE(want.ok());
  const Json answer = Ask(server.get(), "POST", "/v1/completions", kGreedy).json();
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["text"], want->text);
  EXPECT_EQ(choice["token_ids"], Json(want->token_ids));
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["provenance"].get<std::string>().size(), want->token_ids.size());
  EXPECT_EQ(answer["usage"]["prompt_tokens"], want->prompt_tokens);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 24);
  EXPECT_EQ(answer["speculation"]["drafter"], "model");
  EXPECT_GT(answer["timings"]["e2e_ms"], 0);
  EXPECT_EQ(answer["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"],
            answer["speculation"]["accepted"]);
}

// The joined chunks of a stream equal the whole answer, and its rounds add up to its report.
TEST(HttpServer, StreamsMatchWholeAnswers) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  Json body = Json::parse(kGreedy);
  body["logprobs"] = 1;
  body["speculation"] = {{"draft_tokens", 3}};
  const Json whole = Ask(server.get(), "POST", "/v1/completions", body.dump()).json()["choices"][0];
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}, {"include_token_texts", true}};
  const Answer answer = Ask(server.get(), "POST", "/v1/completions", body.dump());
  EXPECT_THAT(answer.headers.at("content-type"), HasSubstr("text/event-stream"));
  const std::vector<Json> events = EventsOf(answer.body);
  ASSERT_GT(events.size(), 3u);
  std::string text, provenance, token_texts;
  int num_rejected = 0;
  Json ids = Json::array(), logprobs = Json::array(), offsets = Json::array();
  int proposed = 0, accepted = 0;
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    const Json& choice = events[i]["choices"][0];
    text += choice["text"].get<std::string>();
    provenance += choice["provenance"].get<std::string>();
    ids.insert(ids.end(), choice["token_ids"].begin(), choice["token_ids"].end());
    EXPECT_EQ(choice["token_texts"].size(), choice["token_ids"].size());
    for (const Json& token : choice["token_texts"]) token_texts += token.get<std::string>();
    const std::string letters = choice["provenance"];
    EXPECT_EQ(choice["rejected_texts"].size(), absl::c_count(letters, 'c'));
    for (const Json& draft : choice["rejected_texts"]) {
      // The correction is the last token of its round.
      EXPECT_NE(draft, choice["token_texts"].back());
      EXPECT_NE(draft, "");
      ++num_rejected;
    }
    const Json& rows = choice["logprobs"]["token_logprobs"];
    logprobs.insert(logprobs.end(), rows.begin(), rows.end());
    const Json& places = choice["logprobs"]["text_offset"];
    offsets.insert(offsets.end(), places.begin(), places.end());
    proposed += events[i]["round"]["proposed"].get<int>();
    accepted += events[i]["round"]["accepted"].get<int>();
    EXPECT_TRUE(events[i]["usage"].is_null());
    // Both caches are rolled back to all committed tokens except the last.
    EXPECT_EQ(events[i]["round"]["target_cached_tokens"], 6 + ids.size() - 1);
    EXPECT_LE(events[i]["round"]["draft_cached_tokens"], 6 + ids.size() - 1);
  }
  EXPECT_EQ(text, whole["text"]);
  EXPECT_EQ(token_texts, text);
  // One chunk has the counts, as tools expect.
  EXPECT_FALSE(events[events.size() - 2].contains("metrics"));
  EXPECT_EQ(events.back()["metrics"]["speculative_decoding"]["num_draft_tokens"], proposed);
  EXPECT_GT(num_rejected, 0);
  EXPECT_FALSE(whole.contains("token_texts") || whole.contains("rejected_texts"));
  EXPECT_EQ(provenance, whole["provenance"]);
  EXPECT_EQ(ids, whole["token_ids"]);
  EXPECT_EQ(logprobs, whole["logprobs"]["token_logprobs"]);
  EXPECT_EQ(offsets, whole["logprobs"]["text_offset"]);
  const Json& end = events[events.size() - 2];
  EXPECT_EQ(end["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(end["speculation"]["proposed"], proposed);
  EXPECT_EQ(end["speculation"]["accepted"], accepted);
  EXPECT_THAT(events.back()["choices"], IsEmpty());
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 24);
}

// Every turn finds the turns before it, including their answers, in both models' caches: all full
// pages of their cached tokens.
TEST(HttpServer, ChatTurnsReuseEarlierTurns) {
  constexpr int kPageSize = 16;
  for (const char* draft_tokens : {"0", "4", "\"auto\""}) {
    SCOPED_TRACE(draft_tokens);
    const std::unique_ptr<Engine> engine = MakeTestEngine();
    const auto server = StartServer(engine.get(), TestServerOptions());
    Json body = {{"max_tokens", 45}, {"temperature", 0}, {"ignore_eos", true}};
    body["speculation"]["draft_tokens"] = Json::parse(draft_tokens);
    int num_known = 0;  // tokens of earlier turns in the target's cache
    int num_found = 0;
    for (const char* question : {"Once upon a time there was a cat", "Then", "One day"}) {
      body["messages"].push_back({{"role", "user"}, {"content", question}});
      const Answer reply = Ask(server.get(), "POST", "/v1/chat/completions", body.dump());
      const Json answer = reply.json();
      const Json& usage = answer["usage"];
      EXPECT_EQ(usage["completion_tokens"], 45);
      const int found = usage["prompt_tokens_details"]["cached_tokens"];
      EXPECT_EQ(found, num_known / kPageSize * kPageSize);
      EXPECT_EQ(usage["prompt_tokens_details"]["memory_tokens"], found);
      EXPECT_EQ(usage["prompt_tokens_details"]["store_tokens"], 0);
      const int computed = usage["prompt_tokens"].get<int>() - found;
      EXPECT_EQ(reply.headers.at("x-tandem-cache"),
                absl::StrCat("memory=", found, " store=0 transfer=0 computed=", computed));
      num_found += found;
      num_known = usage["prompt_tokens"].get<int>() + 45 - 1;
      body["messages"].push_back(answer["choices"][0]["message"]);
    }
    const EngineLoad load = engine->load();
    EXPECT_EQ(load.prefix_hits, num_found);
    // A draft's cache may end a few tokens earlier, and so in the page before.
    if (*draft_tokens == '4') {
      EXPECT_LE(load.draft_prefix_hits, num_found);
      EXPECT_GE(load.draft_prefix_hits, num_found - 2 * kPageSize);
    }
  }
}

TEST(HttpServer, StreamsChats) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  const std::string body =
      R"({"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 12,
          "temperature": 0, "stream": STREAM, "n": 2})";
  const Json whole = Ask(server.get(), "POST", "/v1/chat/completions",
                         absl::StrReplaceAll(body, {{"STREAM", "false"}}))
                         .json();
  const Answer answer = Ask(server.get(), "POST", "/v1/chat/completions",
                            absl::StrReplaceAll(body, {{"STREAM", "true"}}));
  std::string texts[2];
  int ends = 0;
  for (const Json& event : EventsOf(answer.body)) {
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    const Json& choice = event["choices"][0];
    texts[choice["index"].get<int>()] += choice["delta"].value("content", "");
    ends += !choice["finish_reason"].is_null();
    EXPECT_EQ(event.contains("speculation"), ends == 2);
  }
  EXPECT_EQ(ends, 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(whole["choices"][i]["message"]["content"], texts[i]);
    EXPECT_FALSE(texts[i].empty());
  }
}

// A chat's stream reports the same about its tokens as a completion's stream.
TEST(HttpServer, ChatChunksReportProvenance) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  const Answer answer =
      Ask(server.get(), "POST", "/v1/chat/completions",
          R"({"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 24,
              "temperature": 0, "stream": true, "speculation": {"draft_tokens": 3},
              "stream_options": {"include_token_texts": true}})");
  std::string text;
  std::string text_of_tokens;
  std::string provenance;
  int proposed = 0;
  const std::vector<Json> events = EventsOf(answer.body);
  for (const Json& event : events) {
    const Json& choice = event["choices"][0];
    text += choice["delta"].value("content", "");
    provenance += choice["provenance"].get<std::string>();
    EXPECT_EQ(choice["token_ids"].size(), choice["provenance"].get<std::string>().size());
    if (!event.contains("round")) continue;
    EXPECT_EQ(choice["token_texts"].size(), choice["token_ids"].size());
    for (const Json& part : choice["token_texts"]) text_of_tokens += part.get<std::string>();
    proposed += event["round"]["proposed"].get<int>();
    EXPECT_GT(event["round"]["target_cached_tokens"], 0);
  }
  EXPECT_EQ(provenance.size(), 24u);
  EXPECT_THAT(provenance, HasSubstr("a"));
  EXPECT_EQ(text, text_of_tokens);
  EXPECT_GT(proposed, 0);
  EXPECT_EQ(events.back()["speculation"]["proposed"], proposed);
  EXPECT_EQ(events.back()["metrics"]["speculative_decoding"]["num_draft_tokens"], proposed);
}

TEST(HttpServer, SequencesDrawFromSeedAndNumber) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  const Json answer = Ask(server.get(), "POST", "/v1/completions",
                          R"({"prompt": ["The king", "A fox"], "n": 2, "seed": 7})")
                          .json();
  ASSERT_EQ(answer["choices"].size(), 4u);
  for (uint32_t i = 0; i < 4; ++i) {
    const Request request{
        .prompt = i < 2 ? "The king" : "A fox", .max_tokens = 16, .seed = 7, .sequence = i};
    const auto want = SharedEngine()->Generate(request);
    ASSERT_TRUE(want.ok());
    EXPECT_EQ(answer["choices"][i]["token_ids"], Json(want->token_ids)) << i;
  }
  EXPECT_NE(answer["choices"][0]["token_ids"], answer["choices"][1]["token_ids"]);
}

TEST(HttpServer, NamesTheFieldsThatTheEngineRefuses) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  const std::pair<const char*, const char*> cases[] = {
      {"stop_token_ids", R"({"prompt": "A", "stop_token_ids": [4096]})"},
      {"prompt", R"({"prompt": [4096]})"},
      {"logit_bias", R"({"prompt": "A", "logit_bias": {"4096": 1}})"},
      {"logit_bias", R"({"prompt": "A", "logit_bias": {"5": 100.5}})"},
      {"temperature", R"({"prompt": "A", "temperature": -1})"},
      {"min_tokens", R"({"prompt": "A", "min_tokens": 17})"}};
  for (const auto& [field, body] : cases) {
    const Answer answer = Ask(server.get(), "POST", "/v1/completions", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(answer.error("param"), field);
  }
}

// The size limit that a request is checked against bounds the actual size of its answer.
TEST(HttpServer, AnswersStayWithinTheSizeLimit) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  constexpr int64_t kAroundChoices = 3000;
  const std::string common =
      R"(, "n": 2, "max_tokens": 20, "min_tokens": 20, "seed": 1, "temperature": 2)";
  for (const int num_top : {0, 1, 100}) {
    const int64_t bound = 2 * 20 * BytesPerToken({.num_top = num_top}) + kAroundChoices;
    const Answer chat =
        Ask(server.get(), "POST", "/v1/chat/completions",
            absl::StrCat(R"({"messages": [{"role": "user", "content": "A"}])",
                         R"(, "logprobs": true, "top_logprobs": )", num_top, common, "}"));
    EXPECT_EQ(chat.json()["choices"][1]["logprobs"]["content"].size(), 20u);
    EXPECT_LE(chat.body.size(), bound);
    const Answer completion =
        Ask(server.get(), "POST", "/v1/completions",
            absl::StrCat(R"({"prompt": "A", "logprobs": )", num_top, common, "}"));
    EXPECT_EQ(completion.json()["choices"][1]["logprobs"]["tokens"].size(), 20u);
    EXPECT_LE(completion.body.size(), bound);
  }
}

TEST(HttpServer, EchoesPromptsWithTheirLogprobs) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  const Json choice =
      Ask(server.get(), "POST", "/v1/completions",
          R"({"prompt": "Once upon", "echo": true, "logprobs": 1, "max_tokens": 0})")
          .json()["choices"][0];
  EXPECT_EQ(choice["text"], "Once upon");
  EXPECT_THAT(choice["token_ids"], IsEmpty());
  const Json& rows = choice["logprobs"]["token_logprobs"];
  ASSERT_GT(rows.size(), 1u);
  EXPECT_TRUE(rows[0].is_null());
  EXPECT_LT(rows[1], 0);
}

TEST(HttpServer, TokenizesAndDetokenizes) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  const Json plain = Ask(server.get(), "POST", "/tokenize",
                         R"({"prompt": "a<|endoftext|>", "add_special_tokens": false,
                             "special": "plain"})")
                         .json();
  const Json parsed =
      Ask(server.get(), "POST", "/tokenize", R"({"prompt": "a<|endoftext|>"})").json();
  EXPECT_EQ(parsed["count"], 3);  // with the token that begins every prompt
  EXPECT_EQ(parsed["tokens"][2], 0);
  EXPECT_GT(plain["count"], 3);
  const Json back =
      Ask(server.get(), "POST", "/detokenize", Json{{"tokens", plain["tokens"]}}.dump()).json();
  EXPECT_EQ(back["prompt"], "a<|endoftext|>");
  EXPECT_EQ(Ask(server.get(), "POST", "/detokenize", R"({"tokens": [4096]})").error("param"),
            "tokens");
  EXPECT_EQ(Ask(server.get(), "POST", "/tokenize", R"({})").error("param"), "prompt");
}

// ---- The protocol ----

TEST(HttpServer, KeepsConnectionsAlive) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  Client client(server->port());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.Ask("POST", "/v1/completions", kGreedy).status, 200);
    EXPECT_EQ(client.Ask("POST", "/v1/completions", "{").status, 400);
    EXPECT_EQ(client.Ask("GET", "/nowhere").status, 404);
  }
  // Pipelined requests are answered in order.
  client.SendRequest("POST", "/v1/completions", kGreedy);
  client.SendRequest("GET", "/health");
  EXPECT_THAT(client.Read().body, HasSubstr("text_completion"));
  EXPECT_THAT(client.Read().body, HasSubstr("ok"));
  client.SendRequest("GET", "/health", "", "Connection: close\r\n");
  EXPECT_EQ(client.Read().headers.at("connection"), "close");
  EXPECT_EQ(client.Read().status, 0);
}

TEST(HttpServer, ServesHttp10) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  Client client(server->port());
  const std::string body = R"({"prompt": "A", "max_tokens": 4, "stream": true})";
  client.Send(absl::StrCat("POST /v1/completions HTTP/1.0\r\nContent-Length: ", body.size(),
                           "\r\n\r\n", body));
  const std::string answer = client.ReadUntil("no such text");
  EXPECT_THAT(answer, HasSubstr("HTTP/1.0 200"));
  EXPECT_THAT(answer, Not(HasSubstr("chunked")));
  EXPECT_THAT(EventsOf(answer.substr(answer.find("data: "))), Not(IsEmpty()));
}

TEST(HttpServer, AnswersExpectContinue) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  Client client(server->port());
  const std::string body = kGreedy;
  client.Send(
      absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n",
                   "Content-Length: ", body.size(), "\r\n\r\n"));
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), HasSubstr("100 Continue"));
  client.Send(body);
  EXPECT_EQ(client.Read().status, 200);
}

TEST(HttpServer, EnforcesItsLimits) {
  ServerOptions options = TestServerOptions();
  options.service.max_body_bytes = 1000;
  options.limits.max_header_bytes = 2000;
  const auto server = StartServer(SharedEngine(), options);
  const std::string large(1001, ' ');
  const Answer announced = Ask(server.get(), "POST", "/v1/completions", large);
  EXPECT_EQ(announced.status, 413);
  EXPECT_EQ(announced.error("code"), "body_too_large");
  {
    Client client(server->port());
    client.Send(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.Send(absl::StrCat("3e9\r\n", large, "\r\n0\r\n\r\n"));
    EXPECT_EQ(client.Read().status, 413);
  }
  EXPECT_EQ(
      Ask(server.get(), "GET", "/health", "", absl::StrCat("X: ", large, large, "\r\n")).status,
      431);
  {
    Client client(server->port());
    client.Send("nonsense\r\n\r\n");
    EXPECT_EQ(client.Read().status, 400);
  }
}

// If a proxy saw another end of the request, the rest of one client's bytes could become another
// client's request.
TEST(HttpServer, RefusesAmbiguousHeads) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  const std::string post = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n";
  const std::string old_post = "POST /v1/completions HTTP/1.0\r\nHost: localhost\r\n";
  const std::string smuggled = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (const std::string& head :
       {absl::StrCat(post, "Content-Length: 5\r\nTransfer-Encoding: chunked"),
        absl::StrCat(post, "Transfer-Encoding: chunked\r\nContent-Length: 5"),
        absl::StrCat(post, "Content-Length: 5\r\nContent-Length: 6"),
        absl::StrCat(post, "Transfer-Encoding: gzip"),
        absl::StrCat(post, "Transfer-Encoding: identity"),
        absl::StrCat(post, "Transfer-Encoding: chunked, gzip"),
        absl::StrCat(post, "Transfer-Encoding: gzip, chunked"),
        absl::StrCat(post, "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
        absl::StrCat(old_post, "Transfer-Encoding: chunked"), absl::StrCat(post, "Host: y"),
        std::string("GET /health HTTP/1.1"),
        std::string("GET /health HTTP/1.1\r\nHost : localhost")}) {
    Client client(server->port());
    client.Send(absl::StrCat(head, "\r\n\r\n", smuggled));
    EXPECT_EQ(client.Read().status, 400) << head;
    EXPECT_EQ(client.Read().status, 0) << head;
  }
}

TEST(HttpServer, AcceptsEveryFormOfTargetsAndBodies) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  for (const char* target : {"http://localhost/health", "HTTP://localhost:80/health?a"}) {
    EXPECT_EQ(Ask(server.get(), "GET", target).status, 200) << target;
  }
  EXPECT_THAT(Ask(server.get(), "GET", "http://localhost").body, HasSubstr("Tandem"));
  EXPECT_EQ(Ask(server.get(), "GET", "*").status, 404);
  // Chunks with an extension and a trailer, then another request.
  Client client(server->port());
  client.Send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
      "a;name=value\r\n{\"prompt\":\r\n4\r\n\"A\"}\r\n0\r\nTrailer: x\r\n\r\n");
  EXPECT_EQ(client.Read().json()["count"], 2);
  EXPECT_EQ(client.Ask("GET", "/health").status, 200);
  // Large enough to be handled on another thread.
  const std::string text(200'000, 'a');
  EXPECT_EQ(client.Ask("POST", "/tokenize", Json{{"prompt", text}}.dump()).json()["count"],
            text.size() + 1);
  const Answer too_long = client.Ask("POST", "/v1/completions", Json{{"prompt", text}}.dump());
  EXPECT_EQ(too_long.error("code"), "context_length_exceeded");
  Json large = Json::parse(kGreedy);
  large["user"] = text;
  EXPECT_EQ(client.Ask("POST", "/v1/completions", large.dump()).status, 200);
}

// The framing of a body counts towards a limit, too.
TEST(HttpServer, LimitsTheFramingOfABody) {
  ServerOptions options = TestServerOptions();
  options.service.max_body_bytes = 1000;
  const auto server = StartServer(SharedEngine(), options);
  const std::string long_line(300'000, 'x');
  std::string trailers = "0\r\n";
  while (trailers.size() < 300'000) trailers += "X: " + std::string(100, 'x') + "\r\n";
  std::string extensions;  // a thousand extension bytes for each byte of the body
  while (extensions.size() < 300'000) extensions += "1;" + std::string(1000, 'x') + "\r\n \r\n";
  // The limit that many trailers reach first, the body's or a line's, depends on how they arrive.
  const struct {
    std::string body;
    std::vector<int> statuses;
  } cases[] = {{"1;x=" + long_line, {400}},
               {"0\r\nX: " + long_line, {400}},
               {trailers, {400, 413}},
               {extensions, {413}}};
  for (const auto& c : cases) {
    Client client(server->port());
    client.Send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.Send(c.body);
    EXPECT_THAT(c.statuses, Contains(client.Read().status)) << c.body.substr(0, 10);
  }
}

TEST(HttpServer, ServesManyClientsAtOnce) {
  const auto server = StartServer(SharedEngine(), TestServerOptions());
  const std::string want =
      Ask(server.get(), "POST", "/v1/completions", kGreedy).json()["choices"][0]["text"];
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 24; ++i) {
    clients.push_back(std::make_unique<Client>(server->port()));
    clients.back()->SendRequest("POST", "/v1/completions", kGreedy);
  }
  for (const auto& client : clients) EXPECT_EQ(client->Read().json()["choices"][0]["text"], want);
}

}  // namespace
}  // namespace tandem
