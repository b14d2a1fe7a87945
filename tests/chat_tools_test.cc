// Reasoning and function calls in conversations: `generate --chat` and `chat` show them separately.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "tandem/output_constraint.h"
#include "tests/golden_file.h"
#include "tests/program_path.h"
#include "tests/run_program.h"
#include "tests/terminal.h"
#include "text/constraint/grammar_engine.h"
#include "tools/conversation.h"

namespace tandem {
namespace {

using Json = SortedJson;
using Words = std::vector<std::string>;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kTools[] =
    R"([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
        "properties": {"city": {"type": "string"}}}}}])";
constexpr char kAnswer[] =
    "<think>\nThey ask.\n</think>\n\nLet me look.\n<tool_call>\n"
    "{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";

// A golden model with a template that mentions reasoning but has no place for tools. The first
// token of its answer to "How is it?" is renamed to `answer`.
class ThinkingModel : public ModelCopy {
 public:
  explicit ThinkingModel(const std::string& answer = kAnswer, const std::string& tools = kTools)
      : ModelCopy(GoldenModelPath("llama-gqa")) {
    Json config = ReadJson("tokenizer_config.json");
    config["chat_template"] =
        "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '\n' "
        "}}{% endfor %}{{ '<think>' if false }}{% if add_generation_prompt %}{{ '<|assistant|>' }}"
        "{% endif %}";
    WriteJson("tokenizer_config.json", config);
    SetConfig("max_position_embeddings", 1024);
    Write("tools.json", tools);
    const Json first = GenerateJson({"--prompt", "How is it?"});
    RenameToken(first["token_ids"][0], answer);
  }

  void WriteTools(const std::string& text) const { Write("tools.json", text); }
  std::string ToolsPath() const { return Path("tools.json"); }
  // Returns the words of a command that answers with one token.
  Words Command(const std::string& command) const {
    return {command, "--target", path(),      "--device",      "cpu", "--threads",
            "1",     "--tools",  ToolsPath(), "--compute",     "f32", "--kv-memory",
            "64M",   "-n",       "1",         "--temperature", "0"};
  }
  ProgramRun Generate(const Words& words) const {
    return RunProgram(Joined(Command("generate"), Joined({"--chat"}, words)));
  }
  Json GenerateJson(const Words& words) const {
    const ProgramRun run = Generate(Joined({"--json"}, words));
    EXPECT_EQ(run.exit_status, kExitDone) << run.err;
    return Json::parse(run.out, nullptr, /*allow_exceptions=*/false);
  }

 private:
  // Changes the text of a token. The prompt does not contain the token, so nothing else changes.
  void RenameToken(int id, const std::string& text) const {
    Json tokenizer = ReadJson("tokenizer.json");
    Json& vocabulary = tokenizer["model"]["vocab"];
    std::string old;
    for (const auto& [token, its_id] : vocabulary.items()) {
      if (its_id == id) old = token;
    }
    vocabulary.erase(old);
    vocabulary[absl::StrReplaceAll(text, {{" ", "\u0120"}, {"\n", "\u010A"}})] = id;
    Json merges = Json::array();
    for (const Json& merge : tokenizer["model"]["merges"]) {
      const std::string product = merge.is_string()
                                      ? absl::StrReplaceAll(merge.get<std::string>(), {{" ", ""}})
                                      : merge[0].get<std::string>() + merge[1].get<std::string>();
      if (product != old) merges.push_back(merge);
    }
    tokenizer["model"]["merges"] = merges;
    WriteJson("tokenizer.json", tokenizer);
  }
};

constexpr char kShown[] =
    "reasoning:\nThey ask.\n\nanswer:\nLet me look.\ncall weather {\"city\": \"Rome\"}\n";

// ---- One turn ----

TEST(GenerateChatTools, ReportsReasoningAndCallsSeparately) {
  const ThinkingModel model;
  const Json json = model.GenerateJson({"--prompt", "How is it?"});
  EXPECT_EQ(json["text"], kAnswer);
  EXPECT_EQ(json["reasoning"], "They ask.");
  EXPECT_EQ(json["content"], "Let me look.");
  EXPECT_EQ(json["tool_calls"], Json::parse(R"([{"name": "weather", "arguments":
                                                 "{\"city\": \"Rome\"}"}])"));
  const Json other = model.GenerateJson({"--prompt", "Why?"});
  EXPECT_EQ(other["content"], other["text"]);
  EXPECT_EQ(other["reasoning"], nullptr);
  EXPECT_EQ(other["tool_calls"], Json::array());
}

TEST(GenerateChatTools, ShowsReasoningAndCallsSeparately) {
  const ThinkingModel model;
  const ProgramRun run = model.Generate({"--prompt", "How is it?"});
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  EXPECT_EQ(run.out, kShown);
  model.Write("prompts.jsonl", "{\"prompt\": \"How is it?\"}\n{\"prompt\": \"How is it?\"}\n");
  const Words prompts = {"--prompts", model.Path("prompts.jsonl")};
  EXPECT_EQ(model.Generate(prompts).out,
            absl::StrCat("--- prompt 1\n", kShown, "--- prompt 2\n", kShown));
  for (const Words& more : {Words(), Words({"--compare"})}) {
    const Json results = model.GenerateJson(Joined(prompts, more));
    ASSERT_EQ(results.size(), 2u);
    EXPECT_EQ(results[1]["tool_calls"][0]["name"], "weather");
    EXPECT_EQ(results[1]["reasoning"], "They ask.");
  }
}

TEST(GenerateChatTools, SplitsAnAnswerThatAGrammarConstrains) {
  if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  const ThinkingModel model;
  model.Write("answer.ebnf",
              R"(root ::= "<think>Hm.</think>Well.<tool_call>{\"name\": \"weather\", )"
              R"(\"arguments\": {}}</tool_call>")");
  const Json json =
      model.GenerateJson({"--prompt", "Why?", "-n", "200", "--grammar", model.Path("answer.ebnf")});
  EXPECT_EQ(json["reasoning"], "Hm.");
  EXPECT_EQ(json["content"], "Well.");
  EXPECT_EQ(json["tool_calls"][0]["arguments"], "{}");
}

TEST(GenerateChatTools, ConstrainsStrictCallsToTheirSchemas) {
  if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  // The answer's first token begins a call. The grammar constrains the rest.
  const ThinkingModel model(
      "<tool_call>",
      R"([{"type": "function", "function": {"name": "pick", "strict": true, "parameters":
          {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"],
           "additionalProperties": false}}}])");
  const Words turn = {"--prompt", "How is it?", "-n", "64"};
  const Json answer = model.GenerateJson(turn);
  ASSERT_FALSE(answer["tool_calls"].empty()) << answer["text"];
  EXPECT_EQ(answer["tool_calls"][0]["name"], "pick");
  const std::string arguments = answer["tool_calls"][0]["arguments"];
  EXPECT_EQ(Json::parse(arguments), Json::parse(R"({"n": 7})"));
  const ProgramRun run = model.Generate(Joined(turn, {"--choice", "a,b"}));
  EXPECT_EQ(run.exit_status, kExitFailed);
  EXPECT_THAT(run.err, HasSubstr(absl::StrCat("--tools ", model.ToolsPath(),
                                              ": tools[0].function.strict: found true, allowed")));
}

TEST(GenerateChatTools, ErrorsOfSchemasNameTheToolsOption) {
  if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  const ThinkingModel model;
  model.WriteTools(R"([{"type": "function", "function": {"name": "pick", "strict": true,
      "parameters": {"type": "object", "properties": {"n": {"type": "nothing"}}}}}])");
  const ProgramRun run = model.Generate({"--prompt", "How is it?", "-n", "64"});
  EXPECT_EQ(run.exit_status, kExitFailed);
  EXPECT_THAT(run.err, HasSubstr(absl::StrCat("--tools ", model.ToolsPath(), ": schema.")));
}

TEST(GenerateChatTools, RefusesFilesWithoutTools) {
  const ThinkingModel model;
  const auto refusal = [&](const std::string& tools) {
    model.WriteTools(tools);
    const ProgramRun run = model.Generate({"--prompt", "Why?"});
    EXPECT_EQ(run.exit_status, kExitWrongLine) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr(absl::StrCat("tandem: error: --tools ", model.ToolsPath())));
    return run.err;
  };
  EXPECT_THAT(refusal("[{]"), HasSubstr("byte"));
  EXPECT_THAT(refusal("[]"), HasSubstr("found [], allowed: a list of at least one function"));
  EXPECT_THAT(refusal("{\"name\": \"f\"}"), HasSubstr(": tools: "));
  EXPECT_THAT(refusal("[{\"type\": \"search\"}]"),
              HasSubstr(": tools[0].type: \"search\" is not function"));
  EXPECT_THAT(refusal(R"([{"type": "function", "function": {"name": "a b"}}])"),
              HasSubstr(": tools[0].function.name: \"a b\" is not 1 to 64 of the characters"));
  const ProgramRun alone =
      RunProgram({"generate", "--target", model.path(), "--tools", "f", "--prompt", "a"});
  EXPECT_EQ(alone.exit_status, kExitWrongLine);
  EXPECT_THAT(alone.err, HasSubstr("--tools: needs --chat"));
  const ProgramRun missing =
      RunProgram({"chat", "--target", model.path(), "--tools", model.Path("none.json")});
  EXPECT_EQ(missing.exit_status, kExitWrongLine);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("--tools: "), HasSubstr("none.json")));
}

TEST(GenerateChatTools, LimitsTheReasoning) {
  const ThinkingModel model("<think>");
  const Words turn = {"--prompt", "How is it?", "-n", "24"};
  EXPECT_EQ(model.GenerateJson(turn)["content"], "");  // it thinks on
  for (const std::string limit : {"0", "5"}) {
    const Json json = model.GenerateJson(Joined(turn, {"--max-thinking-tokens", limit}));
    EXPECT_NE(json["content"], "") << json["text"];
    EXPECT_EQ(json["reasoning"].is_null(), limit == "0") << json["text"];
  }
  const ProgramRun alone = RunProgram(
      {"generate", "--target", model.path(), "--max-thinking-tokens", "1", "--prompt", "a"});
  EXPECT_EQ(alone.exit_status, kExitWrongLine);
  EXPECT_THAT(alone.err, HasSubstr("--max-thinking-tokens: needs --chat"));
  const ProgramRun negative = model.Generate(Joined(turn, {"--max-thinking-tokens", "-1"}));
  EXPECT_EQ(negative.exit_status, kExitWrongLine);
  EXPECT_THAT(negative.err, HasSubstr("--max-thinking-tokens: must be at least 0, got -1"));
  const ProgramRun chat = RunProgram(
      Joined(model.Command("chat"), {"-n", "24", "--max-thinking-tokens", "0"}), "How is it?\n");
  EXPECT_EQ(chat.exit_status, kExitDone) << chat.err;
  EXPECT_FALSE(absl::StartsWith(chat.out, "reasoning:")) << chat.out;
}

// ---- A conversation ----

TEST(ChatTools, ShowsCallsAndReadsTheirResults) {
  const ThinkingModel model;
  const ProgramRun run =
      RunProgram(model.Command("chat"),
                 "/tool early\nHow is it?\n/tool\n/tool 21 degrees\n/tool late\n/help\n");
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  EXPECT_TRUE(absl::StartsWith(run.out, kShown)) << run.out;
  EXPECT_GT(run.out.size(), std::string(kShown).size());  // the answer to the result
  EXPECT_THAT(run.err, AllOf(HasSubstr("(weather waits for its result: /tool TEXT)"),
                             HasSubstr("tandem: /tool: found nothing, allowed: the text"),
                             HasSubstr("tandem: /tool: no call waits for a result"),
                             HasSubstr("/tool TEXT     gives the result of the next open call")));
  EXPECT_THAT(run.out, Not(HasSubstr("\x1b")));
}

TEST(Conversation, PassesCallsAndResultsToTheTemplate) {
  if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  const ThinkingModel model;
  const auto engine = MakeEngine(CpuOptionsFor(model.path(), ""));
  auto format = ChatFormat::Load(engine.get());
  ASSERT_TRUE(format.ok()) << format.status();
  const std::string call = "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"";
  const std::string end = "\"}}</tool_call>";
  const Request base{.max_tokens = 300,
                     .sampling = kGreedy,
                     .constraint = {{.kind = OutputConstraint::Kind::kChoice,
                                     .choices = {absl::StrCat("<think>Hm.</think>Well.", call,
                                                              "Rome", end, call, "Oslo", end)}}}};
  Conversation conversation(engine.get(), *std::move(format), base);
  conversation.SetTools(JsonValue::parse(kTools));
  std::string prompt;
  const Conversation::Callbacks callbacks{
      .on_begin =
          [&](const Request& request, const AnswerReader::Options&) {
            prompt = engine->tokenizer().Decode(request.prompt_ids);
          },
      .on_piece = [](const Piece&) { return true; },
      .is_interrupted = [] { return false; }};
  EXPECT_TRUE(conversation.OpenCalls().empty());
  const auto answer = conversation.Send("How is it?", callbacks);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(prompt, HasSubstr("<tools>\n{\"type\": \"function\""));
  ASSERT_EQ(conversation.OpenCalls().size(), 2u) << answer->text;

  const auto none = conversation.GiveResult("warm", callbacks);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->has_value());
  ASSERT_EQ(conversation.OpenCalls().size(), 1u);
  EXPECT_EQ(conversation.OpenCalls()[0]["function"]["arguments"]["city"], "Oslo");
  const auto both = conversation.GiveResult("cold", callbacks);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_TRUE(both->has_value());
  EXPECT_THAT(prompt, AllOf(HasSubstr("<|assistant|>Well.\n<tool_call>\n{\"name\": \"weather\", "
                                      "\"arguments\": {\"city\": \"Rome\"}}\n</tool_call>"),
                            HasSubstr("{\"name\": \"weather\", \"content\": \"warm\"}"),
                            HasSubstr("{\"name\": \"weather\", \"content\": \"cold\"}"),
                            Not(HasSubstr("Hm."))));
  // A message in place of results continues without them.
  ASSERT_EQ(conversation.OpenCalls().size(), 2u);
  ASSERT_TRUE(conversation.Send("Never mind.", callbacks).ok());
  conversation.Reset();
  EXPECT_TRUE(conversation.OpenCalls().empty());
}

TEST(ChatToolsTerminal, DimsReasoning) {
  const ThinkingModel model;
  Terminal terminal(ProgramPath(), model.Command("chat"));
  ASSERT_TRUE(terminal.Await("> ")) << terminal.seen();
  terminal.Type("How is it?\r");
  ASSERT_TRUE(terminal.Await("\x1b[2mThey ask.\x1b[0m")) << terminal.seen();
  ASSERT_TRUE(terminal.Await("Let me look.")) << terminal.seen();
  ASSERT_TRUE(terminal.Await("call weather {\"city\": \"Rome\"}")) << terminal.seen();
  ASSERT_TRUE(terminal.Await("/tool TEXT)")) << terminal.seen();
  ASSERT_TRUE(terminal.Await("> "));
  EXPECT_THAT(terminal.seen(), Not(HasSubstr("reasoning:")));
  terminal.Type("\x04");
  EXPECT_EQ(terminal.AwaitEnd(), kExitDone);
}

}  // namespace
}  // namespace tandem
