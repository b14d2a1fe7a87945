// The program as its users see it: output, exit status, and errors for bad input.
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "tests/folder_testing.h"
#include "tests/golden_file.h"
#include "tests/run_program.h"

namespace tandem {
namespace {

using Json = SortedJson;
using Words = std::vector<std::string>;
using testing::HasSubstr;
using testing::StartsWith;

std::string Ids(const std::vector<TokenId>& ids) { return absl::StrJoin(ids, ","); }

// Returns the words that every run of a golden pair or model starts with.
Words Generate(const std::string& target, const std::string& draft) {
  Words words = {"generate",  "--device", "cpu",      "--threads", "1",
                 "--compute", "f32",      "--target", target};
  return draft.empty() ? words : Joined(words, {"--draft", draft});
}

// ---- Output ----

TEST(Program, PrintsHelpAndVersion) {
  const ProgramRun help = RunProgram({"--help"});
  EXPECT_EQ(help.exit_status, kExitDone);
  EXPECT_THAT(help.out, AllOf(HasSubstr("generate"), HasSubstr("tokenize")));
  const ProgramRun generate_help = RunProgram({"generate", "--help"});
  EXPECT_EQ(generate_help.exit_status, kExitDone);
  EXPECT_THAT(generate_help.out, AllOf(HasSubstr("--draft-tokens"), HasSubstr("--top-p")));
  const ProgramRun version = RunProgram({"--version"});
  EXPECT_EQ(version.exit_status, kExitDone);
  EXPECT_THAT(version.out, AllOf(StartsWith("tandem "), HasSubstr("\ninstruction set: "),
                                 HasSubstr("portable; CUDA: ")));
}

TEST(Program, StreamsTextToStdoutAndReportsToStderr) {
  const Words words =
      Joined(Generate(GoldenModelPath("llama-gqa"), ""),
             {"--prompt", "Once upon a time", "--temperature", "0", "--max-tokens", "6"});
  const ProgramRun run = RunProgram(words);
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  EXPECT_EQ(run.out, absl::StrCat(RunJson(words)["text"].get<std::string>(), "\n"));
  EXPECT_THAT(run.err, AllOf(HasSubstr("tokens/s"), HasSubstr("rounds"), HasSubstr("6 tokens")));
}

// Checks the names and types that scripts rely on.
TEST(Program, JsonHasTheFieldsThatScriptsRead) {
  const GoldenPair pair("shallow");
  const Json json = RunJson(Joined(Generate(pair.target, pair.draft),
                                   {"--prompt-ids", Ids(pair.prompt_ids), "--max-tokens", "64",
                                    "--temperature", "0", "--ignore-eos", "--drafter", "model",
                                    "-k", "3", "--logprobs", "2", "--prompt-logprobs", "1"}));
  const Json& run = pair.runs[2];
  ASSERT_EQ(run["k"], 3);
  EXPECT_EQ(json["prompt_tokens"], pair.prompt_ids.size());
  EXPECT_EQ(json["completion_tokens"], 64);
  EXPECT_TRUE(json["text"].is_string());
  EXPECT_EQ(json["token_ids"], pair.output_ids);
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["provenance"].get<std::string>().size(), 64u);

  ASSERT_EQ(json["logprobs"].size(), 64u);
  for (size_t i = 0; i < 64; ++i) {
    const Json& entry = json["logprobs"][i];
    EXPECT_EQ(entry["id"], pair.output_ids[i]);
    EXPECT_TRUE(entry["logprob"].is_number_float());
    ASSERT_EQ(entry["top"].size(), 2u);
    EXPECT_EQ(entry["top"][0],
              Json({entry["id"], entry["logprob"]}));  // the greedy token is the most likely one
  }
  ASSERT_EQ(json["prompt_logprobs"].size(), pair.prompt_ids.size());
  EXPECT_TRUE(json["prompt_logprobs"][0].is_null());
  for (size_t i = 1; i < pair.prompt_ids.size(); ++i) {
    EXPECT_EQ(json["prompt_logprobs"][i]["id"], pair.prompt_ids[i]);
    EXPECT_LE(json["prompt_logprobs"][i]["logprob"], 0.0);
    EXPECT_EQ(json["prompt_logprobs"][i]["top"].size(), 1u);
  }
  for (const char* name :
       {"ttft_ms", "tpot_ms", "e2e_ms", "tokens_per_second", "queue_ms", "prompt_tokens",
        "prompt_ms", "prompt_tokens_per_second", "decode_tokens", "decode_ms",
        "decode_tokens_per_second", "draft_ms", "verify_ms", "other_ms", "prefill_ms"}) {
    EXPECT_TRUE(json["timings"][name].is_number()) << name;
    EXPECT_GE(json["timings"][name], 0.0) << name;
  }
  const Json& speculation = json["speculation"];
  EXPECT_EQ(speculation["drafter"], "model");
  EXPECT_EQ(speculation["verifier"], "exact_match");
  EXPECT_EQ(speculation["draft_tokens"], 3);
  for (const char* name :
       {"rounds", "proposed", "accepted", "proposed_per_position", "accepted_per_position"}) {
    EXPECT_EQ(speculation[name], run[name]) << name;
  }
  EXPECT_NEAR(speculation["acceptance_rate"],
              run["accepted"].get<double>() / run["proposed"].get<double>(), 1e-9);
  EXPECT_NEAR(speculation["tokens_per_round"], 64.0 / run["rounds"].get<double>(), 1e-9);
  EXPECT_EQ(speculation["acceptance_per_position"].size(), 3u);
  EXPECT_FALSE(json.contains("plain"));
}

TEST(Program, BatchesAnswerInTheOrderOfThePrompts) {
  const GoldenPair pair("perturbed");
  const ModelCopy scratch(pair.draft);
  std::string lines;
  for (int i = 0; i < 9; ++i) {
    const std::vector<TokenId> prompt(pair.prompt_ids.begin(), pair.prompt_ids.begin() + 3 + i);
    absl::StrAppend(&lines, Json({{"prompt_ids", prompt}}).dump(), i == 4 ? "\n\n" : "\n");
  }
  absl::StrAppend(&lines, R"({"prompt": "the end"})");
  scratch.Write("prompts.jsonl", lines);
  const Words words = Joined(Generate(pair.target, pair.draft),
                             {"--prompts", scratch.Path("prompts.jsonl"), "--max-tokens", "20",
                              "--temperature", "0.9", "--seed", "5"});
  const Json one = RunJson(Joined(words, {"--batch", "1"}));
  ASSERT_EQ(one.size(), 10u);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(one[i]["prompt_tokens"], 3 + i);
  for (const char* batch : {"3", "9"}) {
    const Json several = RunJson(Joined(words, {"--batch", batch}));
    ASSERT_EQ(several.size(), 10u);
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(several[i]["token_ids"], one[i]["token_ids"]);
      EXPECT_EQ(several[i]["text"], one[i]["text"]);
    }
  }
  // Sequence i draws with the key (seed, i), so the first equals a run alone.
  const Json alone =
      RunJson(Joined(Generate(pair.target, pair.draft),
                     {"--prompt-ids", Ids({pair.prompt_ids.begin(), pair.prompt_ids.begin() + 3}),
                      "--max-tokens", "20", "--temperature", "0.9", "--seed", "5"}));
  EXPECT_EQ(alone["token_ids"], one[0]["token_ids"]);
}

TEST(Program, ReadsPromptsFromEverySource) {
  const Words words = Joined(Generate(GoldenModelPath("llama-gqa"), ""),
                             {"--max-tokens", "5", "--temperature", "0"});
  const Json by_option = RunJson(Joined(words, {"--prompt", "Once upon a time"}));
  EXPECT_EQ(by_option["token_ids"].size(), 5u);
  EXPECT_EQ(RunJson(words, "Once upon a time")["token_ids"], by_option["token_ids"]);
  const ModelCopy scratch(GoldenModelPath("llama-gqa"));
  scratch.Write("prompt.txt", "Once upon a time");
  EXPECT_EQ(RunJson(Joined(words, {"--prompt-file", scratch.Path("prompt.txt")}))["token_ids"],
            by_option["token_ids"]);
}

TEST(Program, ComparesWithPlainDecoding) {
  const GoldenPair pair("perturbed");
  const Words words = Joined(Generate(pair.target, pair.draft),
                             {"--prompt-ids", Ids(pair.prompt_ids), "--max-tokens", "24",
                              "--ignore-eos", "--temperature", "0.8", "--compare"});
  const Json json = RunJson(words);
  EXPECT_EQ(json["identical"], true);
  EXPECT_EQ(json["plain"]["token_ids"], json["token_ids"]);
  EXPECT_TRUE(json["plain"]["timings"]["e2e_ms"].is_number());
  EXPECT_GT(json["speedup"], 0.0);
  EXPECT_EQ(json["compared"]["speedup"], json["speedup"]);
  const ProgramRun text = RunProgram(words);
  EXPECT_EQ(text.exit_status, kExitDone);
  EXPECT_THAT(text.err, HasSubstr("identical: true"));
}

TEST(Program, StopsAtStopStringsAndTokens) {
  const Words words =
      Joined(Generate(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m")),
             {"--prompt", "Once upon a time", "--max-tokens", "24", "--temperature", "0"});
  const std::string text = RunJson(words)["text"];
  ASSERT_THAT(text, HasSubstr(" was"));
  const Json cut = RunJson(Joined(words, {"--stop", "xyzzy", "--stop", " was"}));
  EXPECT_EQ(cut["text"], text.substr(0, text.find(" was")));
  EXPECT_EQ(cut["finish_reason"], "stop");
  EXPECT_EQ(cut["speculation"]["drafter"], "model+ngram");  // the default
  const TokenId second = cut["token_ids"][1];
  const Json stopped = RunJson(Joined(words, {"--stop-token", absl::StrCat(second)}));
  EXPECT_EQ(stopped["token_ids"].size(), 2u);
  EXPECT_EQ(stopped["finish_reason"], "stop");
  const Json later =
      RunJson(Joined(words, {"--stop-token", absl::StrCat(second), "--min-tokens", "2"}));
  EXPECT_GT(later["token_ids"].size(), 2u);
  EXPECT_NE(later["token_ids"][1], second);
}

TEST(Program, TheLastOfRepeatedOptionsWinsAndListsCollect) {
  const Words words = Joined(Generate(GoldenModelPath("llama-gqa"), ""), {"--prompt", "a"});
  const Json json = RunJson(Joined(words, {"--max-tokens", "9", "--temperature", "1.5",
                                           "--temperature", "0", "--max-tokens", "3"}));
  EXPECT_EQ(json["token_ids"].size(), 3u);
  const Json again = RunJson(Joined(words, {"--max-tokens", "3", "--temperature", "0"}));
  EXPECT_EQ(json["token_ids"], again["token_ids"]);
  // Both biases are decisive, and the first one is the larger.
  const Json biased = RunJson(Joined(words, {"--max-tokens", "3", "--temperature", "0",
                                             "--logit-bias", "70:100", "--logit-bias", "71:60"}));
  EXPECT_EQ(biased["token_ids"], Json({70, 70, 70}));
}

// ---- Refusals ----

TEST(Program, RefusesWrongCommandLines) {
  const std::string target = GoldenModelPath("llama-gqa");
  const Words words = {"generate", "--target", target, "--drafter", "none", "--threads", "1"};
  const std::vector<int> either = {kExitFailed, kExitWrongLine};
  const std::vector<int> wrong = {kExitWrongLine};
  const std::vector<std::pair<Words, std::vector<int>>> cases = {
      {{"--prompt", ""}, either},
      {{"--prompt-ids", "1,999999"}, either},
      {{"--prompt-ids", "-1"}, either},
      {{"--prompt-ids", "1,x"}, either},
      {{"--prompt-ids", "1,,2"}, either},
      {{"--prompt-ids", Ids(std::vector<TokenId>(50000, 1))}, either},
      {{"--prompt-file", "/nonexistent/prompt"}, either},
      {{"--prompts", "/nonexistent/prompts"}, either},
      {{"--prompt", "a", "--prompt-ids", "1"}, wrong},
      {{"--prompt", "a", "--foo"}, wrong},
      {{"--prompt", "a", "-k", "-1"}, wrong},
      {{"--prompt", "a", "-k", "many"}, wrong},
      {{"--prompt", "a", "-k", "33"}, wrong},
      {{"--prompt", "a", "--temperature", "-0.5"}, wrong},
      {{"--prompt", "a", "--temperature", "nan"}, wrong},
      {{"--prompt", "a", "--temperature", "warm"}, wrong},
      {{"--prompt", "a", "--top-p", "1.5"}, wrong},
      {{"--prompt", "a", "--top-p", "0"}, wrong},
      {{"--prompt", "a", "--top-k", "-3"}, wrong},
      {{"--prompt", "a", "--min-p", "2"}, wrong},
      {{"--prompt", "a", "--repetition-penalty", "0"}, wrong},
      {{"--prompt", "a", "--frequency-penalty", "2.5"}, wrong},
      {{"--prompt", "a", "--logit-bias", "7"}, wrong},
      {{"--prompt", "a", "--logit-bias", "7:hot"}, wrong},
      {{"--prompt", "a", "--logit-bias", "7:101"}, wrong},
      {{"--prompt", "a", "--seed", "-1"}, wrong},
      {{"--prompt", "a", "--stop", ""}, wrong},
      {{"--prompt", "a", "--stop-token", "999999"}, either},
      {{"--prompt", "a", "--logprobs", "-1"}, wrong},
      {{"--prompt", "a", "--logprobs", "3"}, wrong},
      {{"--prompt", "a", "--prompt-logprobs", "3"}, wrong},
      {{"--prompt", "a", "--max-tokens", "0"}, wrong},
      {{"--prompt", "a", "--min-tokens", "-1"}, wrong},
      {{"--prompt", "a", "--max-tokens", "7", "--min-tokens", "8"}, wrong},
      {{"--prompt", "a", "--max-tokens", "99999999999999999999"}, wrong},
      {{"--prompt", "a", "--verifier", "foo"}, wrong},
      {{"--prompt", "a", "--drafter", "foo"}, wrong},
      {{"--prompt", "a", "--device", "foo"}, either},
      {{"--prompt", "a", "--compute", "foo"}, wrong},
      {{"--prompt", "a", "--kv-cache", "int4"}, wrong},
      {{"--prompt", "a", "--draft-kv-cache", "int4"}, wrong},
      {{"--prompt", "a", "--threads", "0"}, wrong},
      {{"--prompt", "a", "--page-size", "0"}, wrong},
      {{"--prompt", "a", "--kv-memory", "much"}, wrong},
      {{"--prompt", "a", "--kv-memory", "1"}, either},
      {{"--prompt", "a", "--log-level", "loud"}, wrong},
  };
  for (const auto& [extra, exit_statuses] : cases) {
    SCOPED_TRACE(absl::StrJoin(extra, " ").substr(0, 60));
    ExpectRefused(RunProgram(Joined(words, extra)), exit_statuses);
  }
}

TEST(Program, RefusesToServeWithWrongOptions) {
  const std::vector<Words> cases = {
      {"--port", "70000"},        {"--port", "http"},        {"--max-batch", "0"},
      {"--max-waiting", "-1"},    {"--chunk-tokens", "0"},   {"--max-body", "much"},
      {"--max-connections", "0"}, {"--drain-seconds", "-1"}, {"--io-threads", "0"}};
  for (const Words& extra : cases) {
    SCOPED_TRACE(absl::StrJoin(extra, " "));
    ExpectRefused(RunProgram(Joined({"serve"}, extra)), {kExitWrongLine});
  }
  ExpectRefused(
      RunProgram({"serve", "--host", "nowhere.invalid", "--threads", "1", "--log-level", "off"}),
      {kExitFailed});
}

// Covers every option that can be a fraction.
TEST(Program, RefusesNumbersThatAreNotFinite) {
  const std::vector<std::pair<Words, std::vector<const char*>>> commands = {
      {{"generate", "--prompt", "a", "--target", GoldenModelPath("llama-gqa")},
       {"--temperature", "--top-p", "--min-p", "--repetition-penalty", "--frequency-penalty",
        "--presence-penalty"}},
      {{"serve"}, {"--drain-seconds"}},
      {{"verify-lossless"}, {"--seconds"}},
      {{"prove"}, {"--seconds"}},
      {{"bench"}, {"--temperature", "--synthetic-acceptance"}}};
  for (const auto& [words, options] : commands) {
    for (const char* option : options) {
      for (const char* value : {"nan", "-nan", "inf", "-inf", "1e999"}) {
        SCOPED_TRACE(absl::StrCat(words[0], " ", option, " ", value));
        ExpectRefused(RunProgram(Joined(words, {absl::StrCat(option, "=", value)})),
                      {kExitWrongLine});
      }
    }
  }
}

TEST(Program, RefusesPromptsThatAreNotText) {
  const Words words = {"generate", "--target", GoldenModelPath("llama-gqa"), "--max-tokens", "4"};
  ExpectRefused(RunProgram(words, "\xff\xfe\xc3("), {kExitFailed});
  ExpectRefused(RunProgram(words, ""), {kExitFailed, kExitWrongLine});
  const ModelCopy scratch(GoldenModelPath("llama-gqa"));
  for (const std::string contents :
       {"", "\n\n", "{", "[]", "{}", "{\"prompt\": 3}", "{\"prompt\": \"\"}",
        "{\"prompt\": \"a\", \"prompt_ids\": [1]}", "{\"prompt_ids\": [1, \"2\"]}",
        "{\"prompt_ids\": [-1]}", "{\"prompt_ids\": [4294967297]}", "{\"prompt_ids\": []}",
        "{\"prompt\": \"\\ud800\"}"}) {
    SCOPED_TRACE(contents);
    scratch.Write("prompts.jsonl", contents);
    ExpectRefused(RunProgram(Joined(words, {"--prompts", scratch.Path("prompts.jsonl")})),
                  {kExitFailed});
  }
}

TEST(Program, RefusesMissingModels) {
  const std::string target = GoldenModelPath("llama-gqa");
  const Words prompt = {"--prompt", "a", "--max-tokens", "4"};
  ExpectRefused(RunProgram(Joined({"generate", "--target", target + "-no"}, prompt)),
                {kExitFailed});
  ExpectRefused(
      RunProgram(Joined({"generate", "--target", target, "--draft", target + "-no"}, prompt)),
      {kExitFailed});
}

struct Damage {
  std::string what;
  std::function<void(const ModelCopy&)> make;
};

constexpr char kWeights[] = "model.safetensors";
constexpr char kConfig[] = "config.json";
constexpr char kTokenizer[] = "tokenizer.json";

Damage Removed(const std::string& name) {
  return {name + " missing", [name](const ModelCopy& model) { model.Remove(name); }};
}

Damage Rewritten(const std::string& what, const std::string& name,
                 std::function<std::string(std::string)> make) {
  return {what,
          [name, make](const ModelCopy& model) { model.Write(name, make(model.Read(name))); }};
}

std::string EightBytes(uint64_t number) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

// Changes the header of the weights.
Damage Header(const std::string& what, std::function<void(Json*)> change) {
  return Rewritten(what, kWeights, [change](const std::string& file) {
    uint64_t size = 0;
    std::memcpy(&size, file.data(), sizeof(size));
    Json header = Json::parse(file.substr(8, size));
    change(&header);
    const std::string text = header.dump();
    return EightBytes(text.size()) + text + file.substr(8 + size);
  });
}

// Changes one tensor's entry in the header.
Damage Tensor(const std::string& what, const std::string& key, const Json& value) {
  return Header(what, [key, value](Json* header) {
    (*header)["model.layers.0.mlp.up_proj.weight"][key] = value;
  });
}

Damage Config(const std::string& key, const Json& value) {
  return {absl::StrCat(key, " is ", value.dump()),
          [key, value](const ModelCopy& model) { model.SetConfig(key, value); }};
}

Damage TokenizerField(const std::string& what, std::function<void(Json*)> change) {
  return {what, [change](const ModelCopy& model) {
            Json json = model.ReadJson(kTokenizer);
            change(&json);
            model.WriteJson(kTokenizer, json);
          }};
}

std::vector<Damage> Damages() {
  return {
      Removed(kWeights),
      Removed(kConfig),
      Removed(kTokenizer),
      Rewritten("weights empty", kWeights, [](const std::string&) { return ""; }),
      Rewritten("weights cut to 5 bytes", kWeights,
                [](const std::string& file) { return file.substr(0, 5); }),
      Rewritten("weights cut in the header", kWeights,
                [](const std::string& file) { return file.substr(0, 60); }),
      Rewritten("weights cut by one byte", kWeights,
                [](const std::string& file) { return file.substr(0, file.size() - 1); }),
      Rewritten("weights cut in the middle", kWeights,
                [](const std::string& file) { return file.substr(0, file.size() / 2); }),
      Rewritten("header length 2^63", kWeights,
                [](const std::string& file) { return EightBytes(1ull << 63) + file.substr(8); }),
      Rewritten("header length past the end", kWeights,
                [](const std::string& file) { return EightBytes(file.size()) + file.substr(8); }),
      Rewritten("header is not JSON", kWeights,
                [](std::string file) {
                  file[8] = 'x';
                  return file;
                }),
      Rewritten("header is not UTF-8", kWeights,
                [](std::string file) {
                  file[10] = '\xff';
                  return file;
                }),
      Tensor("offsets past the end", "data_offsets", {0, int64_t{1} << 40}),
      Tensor("offsets negative", "data_offsets", {-4, 4}),
      Tensor("offsets reversed", "data_offsets", {400, 0}),
      Tensor("offsets as text", "data_offsets", "0,4"),
      Tensor("offsets contradict the shape", "data_offsets", {0, 4}),
      Tensor("shape huge", "shape", {int64_t{1} << 62, int64_t{1} << 62}),
      Tensor("shape negative", "shape", {-1, 8}),
      Tensor("shape as text", "shape", "88x32"),
      Tensor("dtype unknown", "dtype", "F3"),
      Header("tensor missing",
             [](Json* header) { header->erase("model.layers.0.mlp.up_proj.weight"); }),
      Header("tensor of a wrong shape",
             [](Json* header) {
               (*header)["model.norm.weight"]["shape"] = {16, 2};
             }),
      Header("two tensors overlap",
             [](Json* header) {
               Json& offsets = (*header)["model.norm.weight"]["data_offsets"];
               offsets = {2, 2 + 4 * 32};
             }),
      Rewritten("config is not JSON", kConfig, [](const std::string&) { return "{"; }),
      Rewritten("config is a list", kConfig, [](const std::string&) { return "[]"; }),
      Rewritten("config nested 100,000 deep", kConfig,
                [](const std::string&) { return std::string(100000, '['); }),
      {"hidden_size missing",
       [](const ModelCopy& model) {
         Json config = model.ReadJson(kConfig);
         config.erase("hidden_size");
         model.WriteJson(kConfig, config);
       }},
      Config("hidden_size", "32"),
      Config("hidden_size", 0),
      Config("hidden_size", -32),
      Config("hidden_size", 64),
      Config("num_key_value_heads", 3),
      Config("num_hidden_layers", 7),
      Config("num_hidden_layers", int64_t{1} << 40),
      Config("vocab_size", 100),
      Config("model_type", "foo"),
      Config("architectures", {"FooForCausalLM"}),
      Config("hidden_act", "foo"),
      Config("rope_scaling", {{"rope_type", "foo"}, {"factor", 2.0}}),
      Config("rms_norm_eps", "small"),
      Config("max_position_embeddings", 0),
      Rewritten("tokenizer is not JSON", kTokenizer,
                [](const std::string& file) { return file.substr(0, file.size() / 2); }),
      TokenizerField("tokenizer of an unknown kind",
                     [](Json* json) { (*json)["model"]["type"] = "Foo"; }),
      TokenizerField("tokenizer with an id past the vocabulary",
                     [](Json* json) {
                       Json& vocabulary = (*json)["model"]["vocab"];
                       vocabulary[vocabulary.begin().key()] = 1 << 30;
                     }),
      TokenizerField("tokenizer with an unknown step",
                     [](Json* json) { (*json)["pre_tokenizer"]["type"] = "Foo"; }),
  };
}

TEST(Program, RefusesDamagedModels) {
  for (const Damage& damage : Damages()) {
    SCOPED_TRACE(damage.what);
    const ModelCopy model(GoldenModelPath("llama-gqa"));
    damage.make(model);
    const ProgramRun run =
        RunProgram({"generate", "--target", model.path(), "--drafter", "none", "--prompt",
                    "Once upon a time", "--max-tokens", "4", "--device", "cpu", "--threads", "1"});
    ExpectRefused(run, {kExitFailed});
    EXPECT_THAT(run.err, HasSubstr(model.path()));  // the error names the file
  }
}

// Shows that the cases above are refused for their damage, not for being copies.
TEST(Program, AcceptsAnUndamagedCopy) {
  const ModelCopy model(GoldenModelPath("llama-gqa"));
  EXPECT_EQ(RunProgram({"generate", "--target", model.path(), "--drafter", "none", "--prompt",
                        "Once upon a time", "--max-tokens", "4", "--device", "cpu"})
                .exit_status,
            kExitDone);
}

// ---- The proof ----

Words Proof(const GoldenPair& pair, const std::string& prompts) {
  return {"verify-lossless", "--device", "cpu",      "--threads", "1",
          "--compute",       "f32",      "--target", pair.target, "--draft",
          pair.draft,        "-k",       "3",        "--runs",    "300",
          "--prompts",       prompts};
}

TEST(Program, ProvesThatSpeculationIsLossless) {
  const GoldenPair pair("perturbed");
  const TestFolder folder;
  const std::string prompts =
      folder.Write("prompts.jsonl", absl::StrCat("{\"prompt_ids\": [", Ids(pair.prompt_ids),
                                                 "]}\n{\"prompt\": \"Once upon a time\"}\n"));
  const Json json = RunJson(Proof(pair, prompts));
  EXPECT_EQ(json["verdict"], "lossless") << json["reason"];
  EXPECT_EQ(json["planted"], nullptr);
  EXPECT_EQ(json["prompts"], 2);
  for (const Json& check : json["exact"]) {
    EXPECT_GT(check["compared"].get<int>(), 0);
    EXPECT_EQ(check["different"], 0);
  }
  for (const Json& law : json["laws"]) {
    EXPECT_GE(law["runs"].get<int>(), 300);
    EXPECT_TRUE(law["p_value"].is_number());
  }
  const std::set<std::string> of_other_drafters = {"head-states-off-by-one", "mask-keys-kept",
                                                   "mask-rows-off-by-one", "masks-alike",
                                                   "slots-share-noise"};
  for (const Json& fault : json["faults"]) {
    EXPECT_EQ(fault["applies"], of_other_drafters.count(fault["fault"]) == 0) << fault;
    EXPECT_EQ(fault["caught"], fault["applies"]) << fault;
  }

  const ProgramRun broken =
      RunProgram(Joined(Proof(pair, prompts), {"--plant", "target-rows-late"}));
  EXPECT_EQ(broken.exit_status, kExitFailed);
  EXPECT_THAT(broken.out, AllOf(HasSubstr("verdict: broken"), HasSubstr("row 1 of 2")));
  EXPECT_THAT(broken.err, HasSubstr("tandem: error: verify-lossless: "));
}

TEST(Program, RefusesProofsWithoutChecks) {
  const GoldenPair pair("perturbed");
  for (const Words& words :
       {Words{"--plant", "nonsense"}, Words{"-k", "0"}, Words{"--runs", "-1"},
        Words{"--seconds", "0"}, Words{"--drafter", "none"}, Words{"--verifier", "token"}}) {
    ExpectRefused(RunProgram(Joined({"verify-lossless", "--target", pair.target}, words)),
                  {kExitWrongLine});
  }
  ExpectRefused(RunProgram({"verify-lossless", "--target", pair.target, "--prompts", "/none"}),
                {kExitFailed});
}

TEST(Program, ReportsWhetherAConfigurationIsSupported) {
  const ModelCopy model(GoldenModelPath("llama-gqa"));
  model.Remove("model.safetensors");
  const Words words = {"inspect", "--config-only", model.path()};
  const ProgramRun supported = RunProgram(words);
  EXPECT_EQ(supported.exit_status, kExitDone) << supported.err;
  EXPECT_THAT(supported.out, HasSubstr("configuration   supported\n"));
  EXPECT_EQ(RunJson(words)["supported"], true);
  model.SetConfig("some_future_key", 3);
  const ProgramRun refused = RunProgram(words);
  ExpectRefused(refused, {kExitFailed});
  EXPECT_THAT(refused.err, HasSubstr("some_future_key: found 3, allowed: nothing, null or false"));
  const ProgramRun as_json = RunProgram(Joined(words, {"--json"}));
  EXPECT_EQ(as_json.exit_status, kExitFailed);
  const Json json = Json::parse(as_json.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(json["supported"], false);
  EXPECT_THAT(json["reason"].get<std::string>(), HasSubstr("some_future_key"));
  const Words allow = {"--allow-unknown-config", "some_future_key"};
  EXPECT_THAT(RunProgram(Joined(words, allow)).out,
              HasSubstr("some_future_key: not known, and allowed\n"));
}

TEST(Program, IgnoresAnUnknownKeyThatIsAllowed) {
  const ModelCopy model(GoldenModelPath("llama-gqa"));
  const Words more = {"--prompt-ids", "5,6", "--max-tokens", "3", "--temperature", "0"};
  const std::string plain = RunProgram(Joined(Generate(model.path(), ""), more)).out;
  model.SetConfig("some_future_key", 3);
  model.SetConfig("another", "a");
  const Words words = Joined(Generate(model.path(), ""), more);
  ExpectRefused(RunProgram(words), {kExitFailed});
  const ProgramRun run = RunProgram(Joined(
      words, {"--allow-unknown-config", "some_future_key", "--allow-unknown-config", "another"}));
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  EXPECT_EQ(run.out, plain);
  EXPECT_THAT(run.err, HasSubstr("some_future_key: is not known, and ignored"));
}

}  // namespace
}  // namespace tandem
