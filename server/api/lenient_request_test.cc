// Fields that clients and routers send beyond OpenAI's API: ignored, obeyed, or refused by name.
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/api_request.h"
#include "server/server_testing.h"
#include "tandem/chat_template.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = SortedJson;

const ServedModel& LenientModel() {
  static ServedModel& model = *new ServedModel(TestServedModel());
  model.drafter = "model";
  model.drafters = {"model", "ngram", "model+ngram"};
  return model;
}

absl::StatusOr<ApiRequest> LenientCompletion(const std::string& fields,
                                             const ServedModel& model = LenientModel()) {
  return ParseCompletionRequest("{\"prompt\": \"Once upon a time\"" + fields + "}", model);
}
absl::StatusOr<ApiRequest> LenientChat(const std::string& fields,
                                       const ServedModel& model = LenientModel()) {
  return ChatWith(fields, model);
}
absl::StatusOr<ApiRequest> LenientMessages(const std::string& messages,
                                           const ServedModel& model = LenientModel()) {
  return ChatWith("", model, messages);
}

TEST(LenientRequest, UnknownFieldsAreIgnoredAndReported) {
  const auto completion = LenientCompletion(
      R"(, "wait": 1, "no_such_field": {"a": [1]}, "stream": true,
         "stream_options": {"chunk_size": 4, "include_usage": true}, "a, b": 1)");
  ASSERT_TRUE(completion.ok()) << completion.status();
  EXPECT_THAT(completion->ignored.names(),
              ElementsAre("stream_options.chunk_size", "wait", "no_such_field", "a??b"));
  EXPECT_THAT(completion->ignored.Headers(),
              ElementsAre(std::make_pair("x-tandem-ignored-fields",
                                         "stream_options.chunk_size, wait, no_such_field, a??b")));
  // Indices of lists are dropped.
  const auto chat = LenientMessages(
      R"([{"role": "user", "content": "x", "mood": "me"}, {"role": "user", "mood": 1, "content":
          [{"type": "text", "text": "y", "cache_control": {"type": "ephemeral"}}]}])");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_THAT(chat->ignored.names(),
              ElementsAre("messages[].mood", "messages[].content[].cache_control"));
  EXPECT_THAT(LenientCompletion("")->ignored.Headers(), IsEmpty());
}

TEST(LenientRequest, ReportsNamesThatTheTemplateDoesNotWrite) {
  ServedModel model = LenientModel();
  const std::string messages =
      R"([{"role": "developer", "name": "a", "content": "x"},
          {"role": "user", "name": "b", "content": "x"}, {"role": "user", "content": "x"},
          {"role": "tool", "name": "f", "tool_call_id": "1", "content": "x"},
          {"role": "assistant", "name": "c", "content": "x"}])";
  const auto names_ignored = [&](const char* jinja) {
    model.chat_template = ChatTemplate::Parse(jinja, "", "");
    EXPECT_TRUE(model.chat_template.ok()) << model.chat_template.status();
    const auto request = LenientMessages(messages, model);
    EXPECT_TRUE(request.ok()) << request.status();
    return request->ignored.names();
  };
  EXPECT_THAT(names_ignored("{% for m in messages %}{{ m.content }}{% endfor %}"),
              ElementsAre("messages[].name"));
  EXPECT_THAT(names_ignored("{{ messages | tojson }}"), IsEmpty());
  EXPECT_THAT(names_ignored("{% for m in messages %}{{ m.name }}{{ m.content }}{% endfor %}"),
              IsEmpty());
  const char* for_users =
      "{% for m in messages %}{{ m.content }}"
      "{% if m.role != 'assistant' %}{{ m.get('name') }}{% endif %}"
      "{% endfor %}";
  EXPECT_THAT(names_ignored(for_users), ElementsAre("messages[].name"));
  const std::string input = "{\"input\": " + messages + "}";
  EXPECT_THAT(ParseResponsesRequest(input, model, absl::UnixEpoch())->ignored.names(),
              ElementsAre("input[].name"));
  model.is_strict = true;
  ExpectRefusal(LenientMessages(messages, model), "messages[4].name", "has no place for it");
}

TEST(LenientRequest, RefusesCallsThatTheTemplateDoesNotWrite) {
  ServedModel model = LenientModel();
  model.chat_template =
      ChatTemplate::Parse("{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}", "", "");
  ExpectRefusal(LenientMessages(R"([{"role": "user", "content": "x"},
      {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}]}])",
                                model),
                "messages[1].tool_calls", "has no place for them");
}

TEST(LenientRequest, AcceptsACacheSalt) {
  for (const auto& request :
       {LenientCompletion(R"(, "cache_salt": "s")"), LenientChat(R"(, "cache_salt": "s")"),
        ParseResponsesRequest(R"({"input": "A", "cache_salt": "s"})", LenientModel(),
                              absl::UnixEpoch())}) {
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_EQ(request->request.cache_salt, "s");
    EXPECT_THAT(request->ignored.names(), IsEmpty());
  }
  EXPECT_EQ(LenientChat(R"(, "cache_salt": null)")->request.cache_salt, "");
  for (const char* salt : {"\"\"", "1", "[\"s\"]"}) {
    ExpectRefusal(LenientChat(absl::StrCat(R"(, "cache_salt": )", salt)), "cache_salt",
                  "a string that is not empty");
  }
}

TEST(LenientRequest, IsStrictOnlyIfAsked) {
  ServedModel model = LenientModel();
  model.is_strict = true;
  ExpectRefusal(LenientCompletion(R"(, "no_such_field": 1)", model), "no_such_field", "not known");
  ExpectRefusal(LenientChat(R"(, "no_such_field": 1)", model), "no_such_field", "not known");
  ExpectRefusal(LenientMessages(R"([{"role": "user", "content": "x", "mood": 1}])", model),
                "messages[0].mood", "not known");
  // Unknown members of speculation are always refused.
  ExpectRefusal(LenientCompletion(R"(, "speculation": {"k": 1})"), "speculation.k", "not known");
}

TEST(LenientRequest, LimitsTheReportOfIgnoredFields) {
  Json body = {{"prompt", "A"}, {std::string(200, 'z'), 1}};
  for (int i = 0; i < 100; ++i) body[absl::StrCat("field", i)] = i;
  const auto request = ParseCompletionRequest(body.dump(), LenientModel());
  ASSERT_TRUE(request.ok());
  EXPECT_THAT(request->ignored.names(), SizeIs(IgnoredFields::kMaxNames));
  const std::string header = request->ignored.Headers()[0].second;
  EXPECT_THAT(header, HasSubstr(", ..."));
  IgnoredFields longest;
  longest.Add(std::string(200, 'z'));
  EXPECT_EQ(longest.names()[0], std::string(IgnoredFields::kLongestName, 'z'));
}

TEST(LenientRequest, LogsEachNameOnceUpToALimit) {
  IgnoredFieldsLog log;
  IgnoredFields two;
  two.Add("a");
  two.Add("messages[0].b");
  two.Add("messages[7].b");
  EXPECT_THAT(log.NewLines(two),
              ElementsAre(HasSubstr("field=a "), HasSubstr("field=messages[].b ")));
  EXPECT_THAT(log.NewLines(two), IsEmpty());
  size_t num_lines = 2;
  for (int i = 0; i < 1000; ++i) {
    IgnoredFields one;
    one.Add(absl::StrCat("field", i));
    num_lines += log.NewLines(one).size();
  }
  EXPECT_EQ(num_lines, IgnoredFieldsLog::kMaxNames + 1);
}

// Fields that a router adds to every request, and that packages for several servers send.
TEST(LenientRequest, AcceptsNeutralValues) {
  for (const char* field :
       {R"("no_stop_trim": false)", R"("use_beam_search": false)", R"("length_penalty": 1)",
        R"("bad_words": [])", R"("return_hidden_states": false)", R"("user": "u")",
        R"("safety_identifier": "s")", R"("prompt_cache_key": "k")", R"("service_tier": "flex")",
        R"("store": true)", R"("metadata": {"a": "b"})", R"("guided_json": null)",
        R"("response_format": {"type": "text"})", R"("return_token_ids": true)",
        R"("spaces_between_special_tokens": true)", R"("lora_path": "")", R"("rid": "r")"}) {
    const std::string fields = std::string(", ") + field;
    for (const auto& request : {LenientCompletion(fields), LenientChat(fields)}) {
      ASSERT_TRUE(request.ok()) << field << " " << request.status();
      EXPECT_THAT(request->ignored.names(), IsEmpty()) << field;
    }
  }
}

TEST(LenientRequest, RefusesUnsupportedValuesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"no_stop_trim", "true"},  {"use_beam_search", "true"},  {"length_penalty", "0.5"},
      {"bad_words", R"(["x"])"}, {"allowed_token_ids", "[1]"}, {"structural_tag", "{}"}};
  for (const auto& [name, value] : cases) {
    const std::string fields = absl::StrCat(", \"", name, "\": ", value);
    ExpectRefusal(LenientCompletion(fields), name, "is not supported");
    ExpectRefusal(LenientChat(fields), name, "is not supported");
  }
  ExpectRefusal(LenientChat(R"(, "chat_template": "x")"), "chat_template", "\"x\"");
  ExpectRefusal(LenientChat(R"(, "documents": [1])"), "documents", "[1]");
}

TEST(LenientRequest, ReadsIntegersInEveryNotation) {
  const auto request = LenientCompletion(
      R"(, "seed": 1.0, "max_tokens": 5e0, "n": 2.0, "top_k": 3.0, "min_tokens": 1.0,
         "speculation": {"draft_tokens": 2.0})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->request.seed, 1u);
  EXPECT_EQ(request->request.max_tokens, 5);
  EXPECT_EQ(request->n, 2);
  EXPECT_EQ(request->request.sampling.top_k, 3);
  EXPECT_EQ(request->request.draft_tokens, 2);
  EXPECT_EQ(LenientCompletion(R"(, "seed": -1.0)")->request.seed, ~uint64_t{0});
  EXPECT_EQ(LenientCompletion(R"(, "seed": 18446744073709551615)")->request.seed, ~uint64_t{0});
  for (const char* seed : {"1.5", "1e300", "9007199254740994.0", "-0.5", "18446744073709551616"}) {
    ExpectRefusal(LenientCompletion(absl::StrCat(", \"seed\": ", seed)), "seed", "64 bits");
  }
  ExpectRefusal(LenientCompletion(R"(, "top_k": 3e9)"), "top_k", "must be from -1 to 2147483647");
}

TEST(LenientRequest, MinusOneMeansAsManyTokensAsFit) {
  const int room = 1024 - static_cast<int>(LenientCompletion("")->prompts[0].size());
  EXPECT_EQ(LenientCompletion(R"(, "max_tokens": -1)")->request.max_tokens, room);
  const int chat_room = LenientChat("")->request.max_tokens;
  EXPECT_EQ(LenientChat(R"(, "max_tokens": -1)")->request.max_tokens, chat_room);
  EXPECT_EQ(LenientChat(R"(, "max_completion_tokens": -1)")->request.max_tokens, chat_room);
  ExpectRefusal(LenientChat(R"(, "max_tokens": 0)"), "max_tokens", "got 0");
}

TEST(LenientRequest, TruncatesPromptsFromTheFront) {
  const auto whole = LenientCompletion("");
  const auto cut = LenientCompletion(R"(, "truncate_prompt_tokens": 2)");
  ASSERT_TRUE(cut.ok()) << cut.status();
  const std::vector<TokenId>& ids = whole->prompts[0];
  EXPECT_THAT(cut->prompts[0], ElementsAre(ids[ids.size() - 2], ids.back()));
  const std::string longest = Json(std::vector<int>(2000, 7)).dump();
  const auto fits = ParseCompletionRequest(
      absl::StrCat(R"({"max_tokens": 24, "truncate_prompt_tokens": -1, "prompt": )", longest, "}"),
      LenientModel());
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_THAT(fits->prompts[0], SizeIs(1000));
  for (const char* wrong : {"0", "-2", "\"x\""}) {
    ExpectRefusal(LenientCompletion(absl::StrCat(R"(, "truncate_prompt_tokens": )", wrong)),
                  "truncate_prompt_tokens", "must be ");
  }
}

TEST(LenientRequest, ReadsFieldsThatChangeTheText) {
  const auto usual = LenientCompletion("");
  EXPECT_FALSE(usual->request.include_stop);
  EXPECT_TRUE(usual->request.skip_special_tokens);
  const auto other =
      LenientChat(R"(, "include_stop_str_in_output": true, "skip_special_tokens": false)");
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(other->request.include_stop);
  EXPECT_FALSE(other->request.skip_special_tokens);
  EXPECT_EQ(LenientCompletion(R"(, "add_special_tokens": false)")->prompts[0].size() + 1,
            usual->prompts[0].size());
}

TEST(LenientRequest, RequestsTheLogprobsThatItShows) {
  const auto best = LenientCompletion(R"(, "n": 2, "best_of": 4)");
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_EQ(best->num_sequences(), 4);
  EXPECT_EQ(best->request.logprobs.num_top, 0);
  EXPECT_EQ(best->num_logprobs, -1);
  const auto prompt = LenientCompletion(R"(, "prompt_logprobs": 3, "logprobs": 1, "echo": true)");
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(prompt->request.prompt_logprobs.num_top, 3);
  EXPECT_EQ(prompt->request.logprobs.num_top, 1);
  EXPECT_EQ(LenientChat(R"(, "prompt_logprobs": 0)")->request.prompt_logprobs.num_top, 0);
  ExpectRefusal(LenientChat(R"(, "prompt_logprobs": 1, "stream": true)"), "prompt_logprobs",
                "with stream");
}

TEST(LenientRequest, AcceptsDraftersThatCanRun) {
  for (const char* name : {"ngram", "model+ngram"}) {
    const auto request =
        LenientCompletion(absl::StrCat(R"(, "speculation": {"drafter": ")", name, "\"}"));
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_EQ(NameOf(*request->request.drafter), name);
  }
  EXPECT_FALSE(
      LenientCompletion(R"(, "speculation": {"drafter": "model"})")->request.drafter.has_value());
  ExpectRefusal(LenientCompletion(R"(, "speculation": {"drafter": "prediction"})"),
                "speculation.drafter", "allowed: model, ngram, model+ngram, none");
}

// A code model with infill tokens.
TEST(LenientRequest, EncodesASuffixWithInfillTokens) {
  const auto tokenizer = Tokenizer::Parse(R"({"added_tokens": [
      {"id": 3, "content": "<|fim_prefix|>", "special": true, "normalized": false},
      {"id": 4, "content": "<|fim_suffix|>", "special": true, "normalized": false},
      {"id": 5, "content": "<|fim_middle|>", "special": true, "normalized": false}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []}})",
                                          "", "test");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ServedModel model = LenientModel();
  model.tokenizer = tokenizer->get();
  const auto request = ParseCompletionRequest(R"({"prompt": "ab", "suffix": "c"})", model);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT(request->prompts, ElementsAre(ElementsAre(3, 0, 1, 4, 2, 5)));
  ExpectRefusal(ParseCompletionRequest(R"({"prompt": [0, 1], "suffix": "c"})", model), "suffix",
                "token ids");
  ExpectRefusal(LenientCompletion(R"(, "suffix": "c")"), "suffix", "<|fim_prefix|>");
  EXPECT_TRUE(LenientCompletion(R"(, "suffix": "")").ok());
}

TEST(LenientRequest, EchoesTheAssistantsPrefix) {
  const std::string messages =
      R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": "Once"}])";
  const auto request = ParseChatRequest("{\"echo\": true, \"messages\": " + messages + "}",
                                        LenientModel(), absl::UnixEpoch());
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->echoed, "Once");
  EXPECT_EQ(LenientChat(R"(, "echo": true)")->echoed, "");
}

// Returns the text that a template which prints its input makes of a request.
std::string ToldBy(const absl::StatusOr<ApiRequest>& request) {
  if (!request.ok()) return std::string(request.status().message());
  return LenientModel().tokenizer->Decode(request->prompts[0]);
}

TEST(LenientRequest, PassesEveryFieldToTheTemplate) {
  ServedModel model = LenientModel();
  model.chat_template = ChatTemplate::Parse(
      "{% for m in messages %}{{ m.role }}{{ m.name }}={{ m.content }}{{ m.tool_call_id }}"
      "{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments.a }}){% endfor %};"
      "{% endfor %}{{ enable_thinking }}{{ reasoning_effort }}"
      "{% if add_generation_prompt %}!{% endif %}",
      "", "");
  ASSERT_TRUE(model.chat_template.ok()) << model.chat_template.status();
  const auto chat = [&](const std::string& fields) { return ToldBy(LenientChat(fields, model)); };
  EXPECT_EQ(chat(""), "user=A;!");
  EXPECT_EQ(chat(R"(, "chat_template_kwargs": {"enable_thinking": "no"})"), "user=A;no!");
  EXPECT_EQ(chat(R"(, "chat_template_kwargs": {}, "reasoning_effort": "low")"), "user=A;low!");
  EXPECT_EQ(chat(R"(, "add_generation_prompt": false)"), "user=A;");
  EXPECT_EQ(chat(R"(, "continue_final_message": true)"), "user=A");
  ExpectRefusal(LenientChat(R"(, "continue_final_message": true, "add_generation_prompt": true)"),
                "add_generation_prompt", "continue_final_message");
  const auto messages = [&](const std::string& list) {
    return ToldBy(LenientMessages(list, model));
  };
  EXPECT_EQ(messages(R"([{"role": "tool", "tool_call_id": "1", "content": "x"}])"), "tool=x1;!");
  const std::string call = R"("tool_calls": [{"id": "1", "type": "function",
      "function": {"name": "f", "arguments": "{\"a\": 7}"}}])";
  EXPECT_EQ(messages("[{\"role\": \"assistant\", \"content\": null, " + call + "}]"),
            "assistant=f(7);!");
  EXPECT_EQ(messages(R"([{"role": "user", "name": "me", "content": "x"}])"), "userme=x;!");
}

TEST(LenientRequest, PassesCallsInTheTemplatesForm) {
  ServedModel model = LenientModel();
  // DeepSeek-R1's template writes calls if the content is none, and takes arguments as strings.
  model.chat_template = ChatTemplate::Parse(
      "{% for m in messages %}{% if m.role == 'assistant' and m.content is none %}"
      "{{ m.tool_calls[0].function.name + ':' + m.tool_calls[0].function.arguments }}"
      "{% else %}{{ m.content }}{% endif %};{% endfor %}",
      "", "");
  EXPECT_EQ(ToldBy(LenientMessages(R"([{"role": "user", "content": "x"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
       "function": {"name": "f", "arguments": "{\"a\":7}"}}]}])",
                                   model)),
            "x;f:{\"a\": 7};");
}

}  // namespace
}  // namespace tandem
