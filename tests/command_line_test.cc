// The command line: the names of commands and options, and the errors for unknown ones.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/process_limits.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "tests/folder_testing.h"
#include "tests/golden_file.h"
#include "tests/program_path.h"
#include "tests/run_program.h"
#include "tests/terminal.h"

namespace tandem {
namespace {

using Json = SortedJson;
using Words = std::vector<std::string>;
using testing::HasSubstr;
using testing::Not;

Json RunJson(const Words& words) {
  const ProgramRun run = RunProgram(Joined(words, {"--json"}));
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  return Json::parse(run.out, nullptr, /*allow_exceptions=*/false);
}

TEST(CommandLine, ListsItsCommandsIfNoneIsGiven) {
  const std::string help = RunProgram({"--help"}).out;
  for (const Words& words : {Words{}, Words{"help"}}) {
    const ProgramRun run = RunProgram(words);
    EXPECT_EQ(run.exit_status, kExitDone);
    EXPECT_EQ(run.out, help);
  }
  for (const Words& words : {Words{"generate"}, Words{"bench", "kernels"}}) {
    EXPECT_EQ(RunProgram(Joined({"help"}, words)).out, RunProgram(Joined(words, {"--help"})).out);
  }
  ExpectRefused(RunProgram({"help", "frobnicate"}), {kExitWrongLine});
}

TEST(CommandLine, RefusesUnknownNamesAndSuggestsKnownOnes) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"frobnicate"}, "frobnicate: no such command of `tandem`; see `tandem --help`"},
      {{"genrate", "--prompt", "a"},
       "genrate: no such command of `tandem`, did you mean generate?"},
      {{"bench", "kernel"}, "kernel: no such command of `tandem bench`, did you mean kernels?"},
      {{"help", "gen"}, "gen: no such command of `tandem`, did you mean generate?"},
      {{"generate", "--promt", "a"},
       "--promt: no such option of `tandem generate`, did you mean --prompt?; see `tandem generate "
       "--help`"},
      {{"generate", "--temprature=3"},
       "--temprature: no such option of `tandem generate`, did you mean "},
      {{"generate", "-ngl", "99"}, "-ngl: no such option of `tandem generate`: --device cuda:0 "},
      {{"generate", "-hff", "a"}, "-hff: no such option of `tandem generate`: name the file "},
      {{"-hf", "a/b"}, "-hf: no such option of `tandem`; see"},
      {{"generate", "-x"}, "-x: no such option of `tandem generate`; see"},
      {{"generate", "a"}, "a: `tandem generate` does not take this argument; see"},
      {{"pull", "a"},
       "pull: no such command of `tandem`: `tandem fetch NAME` fetches a model; see"},
      {{"tokenize"}, "--tokenizer is required; see `tandem tokenize --help`"}};
  for (const auto& [words, message] : cases) {
    const ProgramRun run = RunProgram(words);
    ExpectRefused(run, {kExitWrongLine});
    EXPECT_THAT(run.err, HasSubstr(message));
  }
}

// A model that cannot be fetched is not a wrong command line.
TEST(CommandLine, FetchesModelsOfAHubUnlessItIsOffline) {
  const std::string script = R"(HF_ENDPOINT=http://127.0.0.1:1 exec "$0" "$@")";
  for (const Words& words :
       {Words{"generate", "-hf", "a/b", "-p", "c"}, Words{"inspect", "a/b"}, Words{"fetch", "a/b"},
        Words{"pair", "storyteller-7m", "a/b"}, Words{"tokenize", "-m", "a/b", "--text", "c"}}) {
    const ProgramRun run = RunScript(script, words);
    ExpectRefused(run, {kExitFailed});
    EXPECT_THAT(run.err,
                HasSubstr("a/b: is not here, and the hub cannot be asked for it: http://"));
    const ProgramRun offline = RunScript(script, Joined(words, {"--offline"}));
    ExpectRefused(offline, {kExitFailed});
    EXPECT_THAT(offline.err, HasSubstr("fetch"));
    EXPECT_THAT(offline.err, Not(HasSubstr("127.0.0.1")));
  }
}

TEST(CommandLine, ListsDraftsForATarget) {
  const Json all = RunJson({"drafts", "--json"});
  EXPECT_GT(all.size(), 10u);
  const Json found = RunJson({"drafts", "storyteller-7m", "--json"});
  const Json& draft = found["drafts"].at(0);
  EXPECT_EQ(draft["draft"], "storyteller-1m");
  EXPECT_THAT(draft["path"].get<std::string>(), HasSubstr("storyteller-1m"));
  EXPECT_GT(draft["expected_gain"], 1.0);
  EXPECT_LT(draft["expected_gain"], 5.0);
  const ProgramRun run = RunProgram({"drafts", "Org/Qwen3-8B-GGUF:Q4_K_M"});
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_THAT(run.out, HasSubstr("not here, so that no gain can be told"));
  EXPECT_THAT(run.out, HasSubstr("`tandem fetch AngelSlim/Qwen3-8B_eagle3` fetches the first"));
  ExpectRefused(RunProgram({"drafts", "no-such-model"}), {kExitFailed});
}

// The option names of llama.cpp.
TEST(CommandLine, AcceptsShortNames) {
  const std::string path = GoldenModelPath("llama-gqa");
  const Words rest = {"--threads",     "1", "--kv-memory", "64M",
                      "--temperature", "0", "--device",    "cpu"};
  const Json longer = RunJson(Joined({"generate", "--target", path, "--draft", path, "--prompt",
                                      "Once", "--max-tokens", "5", "--context", "16"},
                                     rest));
  const Json shorter = RunJson(
      Joined({"generate", "-m", path, "-md", path, "-p", "Once", "-n", "5", "-c", "16"}, rest));
  EXPECT_EQ(shorter["token_ids"], longer["token_ids"]);
  EXPECT_EQ(shorter["token_ids"].size(), 5u);
  EXPECT_EQ(shorter["speculation"]["drafter"], longer["speculation"]["drafter"]);
  const Json equals = RunJson(Joined({"generate", "-m", path, "-md=" + path, "-p", "-md"}, rest));
  EXPECT_EQ(equals["speculation"]["drafter"], longer["speculation"]["drafter"]);
}

TEST(CommandLine, AcceptsNamesOfOtherEngines) {
  const std::string path = GoldenModelPath("llama-gqa");
  const ModelCopy scratch(path);
  scratch.Write("prompt.txt", "Once");
  const Words own = {"generate",  "--target", path,        "--draft",     path,
                     "--drafter", "model",    "--threads", "1",           "--context",
                     "32",        "--device", "cpu",       "--kv-memory", "64M"};
  const Json expected = RunJson(Joined(
      own, {"--prompt", "Once", "--temperature", "0", "--max-tokens", "5", "--draft-tokens", "2"}));
  const Json other = RunJson({"generate",
                              "--model",
                              path,
                              "--model-draft",
                              path,
                              "--drafter",
                              "model",
                              "-t",
                              "1",
                              "--ctx-size",
                              "32",
                              "-dev",
                              "cpu",
                              "--kv-memory",
                              "64M",
                              "-f",
                              scratch.Path("prompt.txt"),
                              "--temp",
                              "0",
                              "--n-predict",
                              "5",
                              "--draft-max",
                              "2"});
  EXPECT_EQ(other["token_ids"], expected["token_ids"]);
  EXPECT_EQ(other["speculation"]["draft_tokens"], 2);
  const ProgramRun system = RunProgram(Joined(own, {"--prompt", "Once", "-sys", "Lie."}));
  ExpectRefused(system, {kExitWrongLine});
  EXPECT_THAT(system.err, HasSubstr("--system: needs --chat"));
}

TEST(CommandLine, WrapsItsHelpAtTheWidthOfTheTerminal) {
  const auto longest = [](const ProgramRun& run) {
    size_t most = 0;
    for (const absl::string_view line : absl::StrSplit(run.out, '\n')) {
      most = std::max(most, line.size());
    }
    return most;
  };
  for (const Words& words : {Words{"--help"}, Words{"help", "serve"}, Words{"generate", "-help"}}) {
    EXPECT_LE(longest(RunScript(R"(unset COLUMNS; "$0" "$@")", words)), 80u);
    EXPECT_LE(longest(RunScript(R"(COLUMNS=60 "$0" "$@")", words)), 60u);
    EXPECT_GT(longest(RunScript(R"(COLUMNS=150 "$0" "$@")", words)), 100u);
  }
  Terminal terminal(ProgramPath(), {"generate", "--help"}, "COLUMNS=50");
  EXPECT_EQ(terminal.AwaitEnd(), kExitDone);
  EXPECT_THAT(terminal.seen(), HasSubstr("Examples:"));
}

TEST(CommandLine, ShowsExamplesOfEveryListedCommand) {
  const std::string help = RunProgram({"--help"}).out;
  const std::string list = help.substr(help.find("Subcommands:"));
  int num_commands = 0;
  for (const absl::string_view line : absl::StrSplit(list, '\n')) {
    if (!absl::StartsWith(line, "  ") || absl::StartsWith(line, "   ")) continue;
    const Words words = absl::StrSplit(absl::StripLeadingAsciiWhitespace(line), ' ');
    if (words[0] == "tandem") continue;  // an example
    EXPECT_THAT(RunProgram({"help", words[0]}).out, HasSubstr("\nExamples:\n  tandem ")) << line;
    ++num_commands;
  }
  EXPECT_GT(num_commands, 10);
}

// Includes the commands that read a model without running it.
TEST(CommandLine, EveryCommandNamesTheModelTheSameWay) {
  const std::string path = GoldenModelPath("llama-gqa");
  const auto output = [](const Words& words) {
    const ProgramRun run = RunProgram(words);
    EXPECT_EQ(run.exit_status, kExitDone) << run.err;
    return run.out;
  };
  const std::string ids = output({"tokenize", "--tokenizer", path, "--text", "a king"});
  EXPECT_EQ(output({"tokenize", "-m", path, "--text", "a king"}), ids);
  const std::string supported = output({"inspect", path, "--config-only"});
  const TestFolder folder;
  for (const std::string name : {"-m", "--target"}) {
    EXPECT_EQ(output({"inspect", name, path, "--config-only"}), supported);
    const std::string file = folder.Path(name + ".gguf");
    EXPECT_THAT(output({"quantize", name, path, "--out", file}), HasSubstr("matrices as int8"));
  }
  const ProgramRun none = RunProgram({"inspect"});
  ExpectRefused(none, {kExitWrongLine});
  EXPECT_THAT(none.err, HasSubstr("--target is required; see `tandem inspect --help`"));
}

TEST(CommandLine, LimitsTheContext) {
  const Words words = {"generate",  "--target",      GoldenModelPath("llama-gqa"),
                       "--drafter", "none",          "--threads",
                       "1",         "--temperature", "0",
                       "--device",  "cpu",           "--prompt-ids"};
  const Json full = RunJson(Joined(words, {"5,6,7", "-c", "8", "--ignore-eos"}));
  EXPECT_EQ(full["token_ids"].size(), 5u);
  EXPECT_EQ(full["finish_reason"], "length");
  const ProgramRun long_prompt = RunProgram(Joined(words, {"1,2,3,4,5,6,7,8,9", "-c", "8"}));
  ExpectRefused(long_prompt, {kExitFailed});
  EXPECT_THAT(long_prompt.err, HasSubstr("has 9 tokens, but a context limited to 8"));
  const ProgramRun long_context = RunProgram(Joined(words, {"1", "-c", "1000000"}));
  ExpectRefused(long_context, {kExitFailed});
  EXPECT_THAT(long_context.err, HasSubstr("--context: found 1000000, allowed: at most "));
}

TEST(CommandLine, NamesTheOptionThatTheEngineRefuses) {
  const std::string target = GoldenModelPath("llama-gqa");
  const std::string draft = GoldenGgufPath("llama-small.Q8_0.gguf");
  const Words words = {"generate", "--prompt", "a", "--threads", "1", "--device", "cpu"};
  const auto error = [&](const Words& more) { return RunProgram(Joined(words, more)).err; };
  EXPECT_THAT(error({"--target", draft, "--quantize", "q4_0"}),
              HasSubstr("error: --quantize: found q4_0, allowed: none"));
  EXPECT_THAT(error({"--target", draft, "--draft", draft, "--draft-head-tokens", "some"}),
              HasSubstr("error: --draft-head-tokens: must be auto or at least 0, got some"));
  EXPECT_THAT(error({"--target", target, "--draft", "self:q8_0", "--draft-quantize", "q4_0"}),
              HasSubstr("error: --draft-quantize: found q4_0, allowed: auto and none"));
  EXPECT_THAT(error({"--target", target, "--kv-memory", "1"}), HasSubstr("error: --kv-memory: "));
  EXPECT_THAT(
      error({"--target", target, "--packed-weights-size", "0"}),
      HasSubstr("error: --packed-weights-size: must be none or a size such as 512M or 2G, got 0"));
}

TEST(CommandLine, TakesOptionsFromAFileAndTheEnvironment) {
  const TestFolder folder;
  const std::string file = folder.Path("options.toml");
  const auto write = [&](const std::string& more) {
    folder.Write("options.toml",
                 absl::StrCat("target = '", GoldenModelPath("llama-gqa"),
                              "'\nthreads = 1\nkv-memory = '64M'\ndevice = 'cpu'\n", more));
  };
  const auto run = [&](const std::string& environment, const Words& words) {
    return RunScript(absl::StrCat(environment, " exec \"$0\" generate -p a --config \"$@\""),
                     Joined({file}, words));
  };
  const auto num_tokens = [&](const std::string& environment, const Words& words) {
    const ProgramRun result = run(environment, words);
    EXPECT_EQ(result.exit_status, kExitDone) << result.err;
    return Json::parse(result.out, nullptr, /*allow_exceptions=*/false)["completion_tokens"];
  };
  // The second rank is a process that gets the environment, too.
  write("tensor-parallel = 2\nmax-tokens = 8\n[generate]\njson = true\nmax-tokens = 7\n");
  EXPECT_EQ(num_tokens("", {}), 7);
  EXPECT_EQ(num_tokens("TANDEM_OPT_MAX_TOKENS=5", {}), 5);
  EXPECT_EQ(num_tokens("TANDEM_OPT_MAX_TOKENS=5", {"-n", "3"}), 3);

  const auto error = [&](const std::string& environment, const Words& words = {}) {
    const ProgramRun result = run(environment, words);
    ExpectRefused(result, {kExitWrongLine});
    return result.err;
  };
  EXPECT_THAT(error("TANDEM_OPT_THREADS=x"), HasSubstr("error: TANDEM_OPT_THREADS: must be "));
  write("max-tokens = 0");
  EXPECT_THAT(error(""), HasSubstr(file + ": max-tokens: must be at least 1, got 0"));
  write("page-size = 0");
  EXPECT_THAT(error(""), HasSubstr(file + ": page-size: must be "));
  EXPECT_THAT(error("", {"--page-size", "-1"}), HasSubstr("error: --page-size: must be "));
  std::filesystem::remove(file);
}

TEST(CommandLine, LimitsThreadsToProcessors) {
  const ProgramRun run = RunProgram({"generate", "--target", GoldenModelPath("llama-gqa"),
                                     "--prompt", "a", "--threads", "999", "--max-tokens", "2"});
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  const int most = NumUsableProcessors();
  EXPECT_THAT(run.err, HasSubstr(absl::StrCat("threads=", most, " reason=\"--threads 999")));
  EXPECT_THAT(run.err, HasSubstr(absl::StrCat("device      ", most, " thread")));
}

// A machine without a GPU is normal, so it gets no message. With a GPU the report names the device.
TEST(CommandLine, DoesNotReportAMissingDriver) {
  const ProgramRun run = RunProgram({"generate", "--target", GoldenModelPath("llama-gqa"),
                                     "--prompt", "a", "--max-tokens", "2", "--threads", "1"});
  EXPECT_THAT(run.err, Not(HasSubstr("NVIDIA driver")));
}

TEST(CommandLine, InspectDescribesTheChatTemplate) {
  const ModelCopy model(GoldenModelPath("llama-gqa"));
  Json config = model.ReadJson("tokenizer_config.json");
  config["chat_template"] =
      "{% if tools %}{{ tools | tojson }}{% endif %}{% for message in messages %}"
      "{{ message['content'] }}{% endfor %}<think>";
  model.WriteJson("tokenizer_config.json", config);
  const Json json = RunJson({"inspect", model.path(), "--threads", "1"});
  EXPECT_EQ(json["chat_template"], (Json{{"tools", true}, {"reasoning", {"<think>", "</think>"}}}));
  EXPECT_EQ(json["known_draft"], nullptr);
}

TEST(CommandLine, InspectShowsTheDraftsInitialSettings) {
  const Words words = {
      "inspect", ShippedModelPath("storyteller-7m"), "--draft", "storyteller-1m", "--threads", "1"};
  const Json draft = RunJson(words)["draft"];
  EXPECT_EQ(draft["draft_quantize"], "none");
  EXPECT_LT(draft["draft_head_tokens"], 4096);
  EXPECT_THAT(RunProgram(words).out, HasSubstr("begins with a head of "));
}

TEST(CommandLine, InspectShowsWhatEachRankHolds) {
  const Words words = {
      "inspect", ShippedModelPath("storyteller-7m"), "--tensor-parallel", "2", "--threads", "1"};
  const Json ranks = RunJson(words)["ranks"];
  ASSERT_EQ(ranks.size(), 2);
  EXPECT_THAT(ranks[1].get<std::string>(), HasSubstr("key-value heads, reads "));
  EXPECT_THAT(RunProgram(words).out, HasSubstr("rank 1"));
}

}  // namespace
}  // namespace tandem
