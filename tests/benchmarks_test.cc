// `tandem bench` as scripts see it: the fields of its JSON, and those of its numbers that can be
// checked without a clock.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "base/source_path_testing.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/sampling.h"
#include "model/transformer.h"
#include "tandem/json_value.h"
#include "tests/folder_testing.h"
#include "tests/golden_file.h"
#include "tests/program_path.h"
#include "tests/run_program.h"
#include "tests/terminal.h"
#include "tools/bench/perplexity.h"

namespace tandem {
namespace {

using Json = SortedJson;
using testing::HasSubstr;
using testing::Not;

Json Bench(const std::vector<std::string>& words) {
  std::vector<std::string> all = {"bench"};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), {"--threads", "1", "--json"});
  const ProgramRun run = RunProgram(all);
  EXPECT_EQ(run.exit_status, 0) << run.err;
  return Json::parse(run.out, nullptr, /*allow_exceptions=*/false);
}

std::string RefusalOf(std::vector<std::string> words) {
  words.insert(words.begin(), "bench");
  const ProgramRun run = RunProgram(words);
  EXPECT_EQ(run.exit_status, 2) << run.err;
  return run.err;
}

void ExpectRate(const Json& entry) {
  EXPECT_GT(entry["ms"], 0.0);
  EXPECT_GT(entry["bytes_per_second"], 0.0);
  EXPECT_GT(entry["of_limit"], 0.0);
}

TEST(BenchProgram, KernelsReportLimitsOperationsAndPasses) {
  const Json json =
      Bench({"kernels", "--target", SourcePath("models/storyteller-1m"), "--dtypes", "bf16,q8_0",
             "--rows", "1,3", "--contexts", "16", "--pass-rows", "1,2,20", "--pass-contexts", "0,8",
             "--ops", "matmul,passes", "--repeat", "1"});
  EXPECT_GT(json["limits"]["read_bytes_per_second"]["dram"], 0.0);
  EXPECT_GT(json["limits"]["flops"]["f32"], 0.0);
  ASSERT_EQ(json["kernels"].size(), 2u * 5 * 2);
  for (const Json& kernel : json["kernels"]) {
    EXPECT_EQ(kernel["op"], "matmul");
    EXPECT_EQ(kernel["shape"].size(), 2u);
    EXPECT_GT(kernel["flops"], 0.0);
    ExpectRate(kernel);
  }
  ASSERT_EQ(json["passes"].size(), 6u);
  EXPECT_EQ(json["passes"][0]["what"], "decode");
  EXPECT_EQ(json["passes"][1]["what"], "verify");
  EXPECT_EQ(json["passes"][2]["what"], "prefill");
  EXPECT_EQ(json["passes"][5]["context"], 8);
  for (const Json& pass : json["passes"]) ExpectRate(pass);
}

TEST(BenchProgram, PhasesReportBothCurves) {
  const Json json = Bench({"phases", "--target", GoldenModelPath("llama-gqa"), "--prompt-lengths",
                           "4,20", "--max-tokens", "4", "--repeat", "1"});
  ASSERT_EQ(json["prefill"].size(), 2u);
  ASSERT_EQ(json["decode"].size(), 2u);
  EXPECT_EQ(json["prefill"][1]["prompt_tokens"], 20);
  EXPECT_EQ(json["decode"][1]["position"], 22);
  for (const Json& point : {json["prefill"][0], json["decode"][1]}) {
    ExpectRate(point);
    EXPECT_GT(point["intensity"], 0.0);
  }
}

TEST(PairProgram, MeasuresEveryTaskWithEveryLength) {
  const GoldenPair pair("itself");
  const ProgramRun run =
      RunProgram({"pair", pair.target, pair.draft, "--seconds", "1", "--threads", "1", "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("draft: reads 1.00 times the bytes of the target in a pass"));
  const Json found = Json::parse(run.out);
  EXPECT_EQ(found["draft_to_target_bytes"], 1.0);
  ASSERT_EQ(found["tasks"].size(), 5u);
  for (const Json& task : found["tasks"]) {
    ASSERT_EQ(task["runs"].size(), 4u) << task;
    for (const Json& of : task["runs"]) {
      const int k = of["draft_tokens"];
      EXPECT_EQ(of["acceptance_per_position"].size(), static_cast<size_t>(k));
      EXPECT_EQ(of["acceptance_rate"], k == 0 ? 0.0 : 1.0);  // a draft that is its own target
      EXPECT_GT(of["gain"], 0.0);
    }
  }
  EXPECT_NE(found["verdict"], "");
  EXPECT_EQ(RunProgram({"pair", pair.target}).exit_status, 2);
  EXPECT_THAT(RunProgram({"pair", pair.target, "/nowhere", "--seconds", "1"}).err,
              HasSubstr("/nowhere"));
}

TEST(BenchProgram, SyntheticAcceptanceForcesTheRate) {
  const auto run = [](const std::string& rate) {
    return Bench({"speculation", "--target", GoldenModelPath("llama-gqa"), "--draft",
                  GoldenModelPath("llama-gqa"), "--drafter", "model", "-k", "3", "--num-prompts",
                  "1", "--max-tokens", "33", "--repeat", "1", "--synthetic-acceptance", rate});
  };
  const Json all = run("1");
  EXPECT_EQ(all["synthetic_acceptance"], 1.0);
  EXPECT_EQ(all["runs"][0]["acceptance_rate"], 1.0);
  EXPECT_GT(all["runs"][0]["expected_ratio"], 0.0);
  // The draft is the target itself, so the coin decides, not the target.
  EXPECT_EQ(run("0")["runs"][0]["acceptance_rate"], 0.0);
  const double half = run("0.5")["runs"][0]["acceptance_rate"];
  EXPECT_GT(half, 0.0);
  EXPECT_LT(half, 1.0);
}

TEST(BenchProgram, OnlyBenchmarksAcceptSynthetically) {
  const ProgramRun run = RunProgram({"generate", "--prompt", "x", "--synthetic-acceptance", "1"});
  EXPECT_EQ(run.exit_status, 2);
}

TEST(BenchProgram, PerplexityCountsTokensAndBytes) {
  const std::string text = "The cat sat on the mat, and the cat sat on the mat.";
  const TestFolder folder;
  const std::string file = folder.Write("text.txt", text);
  const std::vector<std::string> words = {"perplexity", "--target", GoldenModelPath("llama-gqa"),
                                          "--file", file};
  const Json json = Bench(words);
  EXPECT_EQ(json["bytes"], text.size());
  const double tokens = json["tokens"];
  const double nats = json["nats"];
  EXPECT_GT(tokens, 10.0);
  EXPECT_NEAR(json["perplexity"], std::exp(nats / tokens), 1e-9 * std::exp(nats / tokens));
  // One window covers the whole text, so `generate` with the text as its prompt must agree.
  const ProgramRun run =
      RunProgram({"generate", "--target", GoldenModelPath("llama-gqa"), "--prompt-file", file,
                  "--max-tokens", "1", "--threads", "1", "--prompt-logprobs", "0", "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const Json report = Json::parse(run.out);
  double sum = 0.0;
  for (const Json& token : report["prompt_logprobs"]) {
    if (!token.is_null()) sum -= token["logprob"].get<double>();
  }
  // Both add the same f32 numbers, which JSON prints with all their digits.
  EXPECT_NEAR(nats, sum, 1e-6 * sum);
}

TEST(BenchProgram, RefusesWhatItCannotMeasure) {
  EXPECT_THAT(RefusalOf({"kernels", "--dtypes", "int3"}),
              HasSubstr("--dtypes: \"int3\" is not one of f32, f16"));
  EXPECT_THAT(RefusalOf({"kernels", "--rows", "0"}), HasSubstr("--rows: Value 0 not in range"));
  EXPECT_THAT(RefusalOf({"kernels", "--ops", "passes"}), HasSubstr("--target"));
  EXPECT_THAT(RefusalOf({"phases", "--drafter", "ngram"}), HasSubstr("--drafter"));
  EXPECT_THAT(RefusalOf({"perplexity", "--file", "x", "--window", "8", "--stride", "9"}),
              HasSubstr("--stride: found 9"));
  EXPECT_THAT(RefusalOf({}), HasSubstr("speculation, kernels, device, phases, perplexity"));
}

TEST(BenchProgram, KernelsRefuseBlockFormatsThatDoNotFitTheRows) {
  const ProgramRun run = RunProgram({"bench", "kernels", "--target", GoldenModelPath("llama-bf16"),
                                     "--dtypes", "q8_0", "--ops", "matmul", "--repeat", "1"});
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.err, HasSubstr("--dtypes: found q8_0, allowed: floats, because "));
}

TEST(BenchProgram, EveryReportSaysWhetherTheMachineWasBusy) {
  const std::string model = GoldenModelPath("llama-gqa");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"kernels", "--shape", "tiny", "--ops", "rms_norm", "--rows", "1",
                                 "--repeat", "1"},
        {"phases", "--target", model, "--prompt-lengths", "4", "--max-tokens", "2", "--repeat",
         "1"},
        {"speculation", "--target", model, "--drafter", "ngram", "-k", "1", "--num-prompts", "1",
         "--max-tokens", "4", "--repeat", "1"}}) {
    const Json json = Bench(words);
    EXPECT_TRUE(json["disturbed"].is_boolean()) << words[0];
    EXPECT_GE(json["share_of_others"], 0.0) << words[0];
  }
}

TEST(LabProgram, WritesAPageAndItsFigures) {
  const GoldenPair pair("itself");
  const TestFolder folder;
  const std::string page = folder.Path("lab.html");
  const std::string file = folder.Path("lab.json");
  const ProgramRun run = RunProgram({"lab", "--seconds", "2", "-m", pair.target, "-md", pair.draft,
                                     "--threads", "1", "-o", page, "--json-file", file});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("tokens in one pass"));
  EXPECT_THAT(run.out, HasSubstr("wrote " + page + " and " + file));
  const Json json = Json::parse(std::ifstream(file), nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(json["interrupted"], false);
  EXPECT_THAT(json["command"], HasSubstr("tandem lab "));
  EXPECT_THAT(json["program"], HasSubstr("tandem "));
  EXPECT_GT(json["limits"]["read_bytes_per_second"]["dram"], 0.0);
  EXPECT_EQ(json["phases"]["prefill"][0]["prompt_tokens"], 16);
  EXPECT_EQ(json["speculation"]["tasks"].size(), 5u);
  EXPECT_EQ(json["passes"]["rows"][0]["rows"], 1);
  for (const char* part : {"phases", "passes", "speculation"}) {
    EXPECT_TRUE(json[part]["disturbed"].is_boolean()) << part;
  }
  std::ifstream html(page);
  const std::string text((std::istreambuf_iterator<char>(html)), {});
  EXPECT_THAT(text, HasSubstr("</html>"));
  EXPECT_EQ(RunProgram({"lab", "-o", "/dev/null"}).exit_status, 1);
  EXPECT_EQ(RunProgram({"lab", "-o", folder.Path("none/x.html")}).exit_status, 1);
}

// ---- Ctrl-C on a terminal ----

constexpr char kCtrlC[] = "\x03";
constexpr int kInterrupted = 130;

// A benchmark that goes on for long after its first row.
const std::vector<std::string> kLongKernels = {
    "bench",        "kernels", "--shape", "tiny",     "--ops", "matmul,attention", "--dtypes",
    "f32,f16,bf16", "--rows",  "1,3",     "--repeat", "50",    "--threads",        "1"};

TEST(BenchTerminal, PrintsRowsAsTheyComeAndEndsWithCtrlC) {
  Terminal terminal(ProgramPath(), kLongKernels);
  ASSERT_TRUE(terminal.Await("bound by")) << terminal.seen();
  ASSERT_TRUE(terminal.Await("qkv")) << terminal.seen();
  terminal.Type(kCtrlC);
  EXPECT_EQ(terminal.AwaitEnd(), kInterrupted);
  EXPECT_THAT(terminal.seen(), HasSubstr("threads read memory at"));
  EXPECT_THAT(terminal.seen(), Not(HasSubstr("error")));
}

// Returns the JSON of a benchmark that Ctrl-C ends while the terminal says that it measures `what`.
Json InterruptedJson(const std::vector<std::string>& words, const std::string& what) {
  Terminal terminal(ProgramPath(), Joined(words, {"--json"}));
  EXPECT_TRUE(terminal.Await(what)) << terminal.seen();
  terminal.Type(kCtrlC);
  EXPECT_EQ(terminal.AwaitEnd(), kInterrupted);
  const std::string& seen = terminal.seen();
  const size_t begin = seen.find('{');
  EXPECT_NE(begin, seen.npos) << seen;
  return Json::parse(seen.substr(std::min(begin, seen.size())), nullptr,
                     /*allow_exceptions=*/false);
}

TEST(BenchTerminal, SaysWhatItMeasuresAndPrintsTheJsonOfCompleteRuns) {
  const Json kernels = InterruptedJson(kLongKernels, "measuring matmul ");
  EXPECT_LT(kernels["kernels"].size(), 3u * 5 * 2);
  EXPECT_GT(kernels["limits"]["flops"]["f32"], 0.0);

  const Json runs = InterruptedJson(
      {"bench", "speculation", "--target", GoldenModelPath("llama-gqa"), "--drafter", "ngram", "-k",
       "2", "--num-prompts", "1", "--max-tokens", "8", "--repeat", "10000", "--threads", "1"},
      "batch 1, ");
  ASSERT_EQ(runs["runs"].size(), 1u);
  EXPECT_GT(runs["runs"][0]["pairs"], 0);
  EXPECT_LT(runs["runs"][0]["pairs"], 10000);
  EXPECT_EQ(runs["runs"][0]["identical"], true);
  EXPECT_GT(runs["plain"]["tokens_per_second"], 0.0);
  EXPECT_EQ(runs["limits"], nullptr);

  const Json phases = InterruptedJson(
      {"bench", "phases", "--target", GoldenModelPath("llama-gqa"), "--prompt-lengths", "4",
       "--max-tokens", "4", "--repeat", "10000", "--threads", "1"},
      "measuring a prompt of 4 tokens");
  EXPECT_EQ(phases["prefill"].size(), 1u);
}

TEST(BenchTerminal, APerplexityIsThatOfTheTokensReadBeforeCtrlC) {
  const TestFolder folder;
  const std::string file = folder.Path("text.txt");
  std::ofstream out(file);
  for (int i = 0; i < 150'000; ++i) out << "The cat sat on the mat, and the cat sat on the mat.\n";
  out.close();
  const Json json =
      InterruptedJson({"bench", "perplexity", "--target", GoldenModelPath("llama-gqa"), "--file",
                       file, "--threads", "1"},
                      "reading token ");
  EXPECT_GT(json["tokens"], 0);
  // The bits are those of the bytes that were read, less than half of the file.
  const double bits = json["nats"].get<double>() / std::log(2.0);
  EXPECT_GT(json["bits_per_byte"].get<double>() * json["bytes"].get<double>(), 2 * bits);
}

TEST(PerplexityOfGoldenModels, EqualsTheReference) {
  for (const char* name : {"llama-gqa", "qwen3-norm", "mistral-window"}) {
    const auto backend = *MakeCpuBackend({.num_threads = 1, .compute = CpuCompute::kF32});
    const auto model = *Transformer::Load(GoldenModelPath(name), backend.get());
    const auto cache = *PagedKvCache::Create(backend.get(), model->kv_layout(16), 8);
    const Golden golden = ReadGolden(GoldenModelPath(name));
    const int vocab = model->vocab_size();
    double nats = 0.0;
    for (size_t i = 0; i + 1 < golden.input_ids.size(); ++i) {
      double sum = 0.0;
      for (int t = 0; t < vocab; ++t) sum += std::exp(double{golden.logits[i * vocab + t]});
      nats += std::log(sum) - golden.logits[i * vocab + golden.input_ids[i + 1]];
    }
    const auto result = MeasurePerplexity(
        golden.input_ids, {.window = 100, .stride = 50, .chunk_tokens = 7}, model.get(),
        cache.get(), [](const Perplexity&) { return absl::OkStatus(); });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->tokens, static_cast<int64_t>(golden.input_ids.size()) - 1);
    // A logit is within 2e-4 of the reference's (golden_models_test.cc), so a log-probability is
    // within twice that.
    EXPECT_NEAR(result->nats, nats, 4e-4 * static_cast<double>(result->tokens)) << name;
  }
}

TEST(LabTerminal, CtrlCKeepsWhatWasMeasured) {
  const GoldenPair pair("itself");
  const TestFolder folder;
  const std::string page = folder.Path("lab.html");
  const std::string file = folder.Path("lab.json");
  Terminal terminal(ProgramPath(), {"lab", "-m", pair.target, "-md", pair.draft, "--threads", "1",
                                    "-o", page, "--json-file", file});
  ASSERT_TRUE(terminal.Await("2 of 3: answering five tasks")) << terminal.seen();
  terminal.Type(kCtrlC);
  EXPECT_EQ(terminal.AwaitEnd(), kInterrupted);
  EXPECT_THAT(terminal.seen(), HasSubstr("was not measured: Ctrl-C came first"));
  const Json json = Json::parse(std::ifstream(file), nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_FALSE(json["phases"]["decode"].empty());
  EXPECT_TRUE(json["passes"].empty());
  EXPECT_TRUE(std::ifstream(page).good());
}

}  // namespace
}  // namespace tandem
