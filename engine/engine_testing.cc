#include "engine/engine_testing.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/source_path_testing.h"
#include "gtest/gtest.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

using Json = SortedJson;

template <typename T>
T ValueOf(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << std::endl;
    std::abort();
  }
  return *std::move(value);
}

bool SameBits(float a, float b) { return std::memcmp(&a, &b, sizeof(float)) == 0; }

bool SameBits(const TokenLogprobs& a, const TokenLogprobs& b) {
  return a.id == b.id && SameBits(a.logprob, b.logprob) &&
         std::equal(a.top.begin(), a.top.end(), b.top.begin(), b.top.end(),
                    [](const auto& x, const auto& y) {
                      return x.first == y.first && SameBits(x.second, y.second);
                    });
}

std::string ReadFileOrDie(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TANDEM_CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::string ShippedModelPath(absl::string_view name) {
  return absl::StrCat(SourcePath("models/"), name);
}

GoldenPair::GoldenPair(const std::string& name) {
  absl::string_view parallel = name;
  const bool is_parallel = absl::ConsumePrefix(&parallel, "parallel/");
  const Json file = Json::parse(
      ReadFileOrDie(is_parallel ? ParallelGoldenPath("pairs.json")
                                : absl::StrCat(SourcePath("tests/data/pairs/"), name, ".json")));
  const Json& json = is_parallel ? file.at(std::string(parallel)) : file;
  target = GoldenModelPath(json["target"].get<std::string>());
  draft = json["draft"].get<std::string>();
  draft = is_parallel ? ParallelGoldenPath(draft) : GoldenModelPath(draft);
  prompt_ids = json["prompt_ids"].get<std::vector<TokenId>>();
  output_ids = json["output_ids"].get<std::vector<TokenId>>();
  if (!is_parallel) {
    draft_ids_on_path = json["draft_ids_on_path"].get<std::vector<TokenId>>();
  } else {
    expected_accepted = json["expected_accepted_at_temperature_1"].get<std::vector<double>>();
  }
  runs = json["runs"];
}

EngineOptions CpuOptionsFor(const std::string& target, const std::string& draft) {
  EngineOptions options;
  options.target = target;
  options.draft = draft;
  options.device = "cpu";
  options.threads = 1;
  options.compute = CpuCompute::kF32;
  options.draft_head_tokens = 0;
  return options;
}

EngineOptions DraftModelOptionsFor(const std::string& target, const std::string& draft) {
  EngineOptions options = CpuOptionsFor(target, draft);
  options.drafter = DrafterKind::kModel;
  return options;
}

std::vector<std::vector<TokenId>> PromptsFrom(const std::vector<TokenId>& ids, int count) {
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < count; ++i) {
    std::vector<TokenId> prompt;
    for (int j = 0; j <= 2 * i; ++j) prompt.push_back(ids[j % ids.size()] + (j > 9 ? i : 0));
    prompts.push_back(prompt);
  }
  return prompts;
}

std::vector<Request> PlainRequests(const std::vector<std::vector<TokenId>>& prompts,
                                   int max_tokens) {
  std::vector<Request> requests;
  for (const std::vector<TokenId>& prompt : prompts) {
    requests.push_back({.prompt_ids = prompt,
                        .max_tokens = max_tokens,
                        .sampling = {.temperature = requests.size() % 2 == 0 ? 0.0f : 0.8f},
                        .seed = requests.size(),
                        .ignore_eos = true,
                        .draft_tokens = 0,
                        .verifier = AcceptanceRule::kExactMatch,
                        .logprobs = {.num_top = 2}});
  }
  return requests;
}

int64_t KvBytesFor(const std::string& target, const std::string& draft, int num_tokens) {
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(target, draft));
  return num_tokens * (engine->target_info().kv_bytes_per_token +
                       (draft.empty() ? 0 : engine->draft_info()->kv_bytes_per_token));
}

std::unique_ptr<Engine> MakeEngine(const EngineOptions& options) {
  return ValueOf(Engine::Create(options));
}

Completion Generate(Engine* engine, const Request& request) {
  return ValueOf(engine->Generate(request));
}

std::vector<Completion> GenerateAll(Engine* engine, const std::vector<Request>& requests) {
  std::vector<GenerationId> ids;
  for (const Request& request : requests) ids.push_back(ValueOf(engine->Submit(request, nullptr)));
  std::vector<Completion> completions;
  for (const GenerationId id : ids) completions.push_back(ValueOf(engine->Wait(id)));
  return completions;
}

void ExpectSameOutput(const Completion& got, const Completion& want) {
  EXPECT_EQ(got.token_ids, want.token_ids);
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(got.finish_reason, want.finish_reason);
  EXPECT_EQ(got.prompt_tokens, want.prompt_tokens);
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
  for (size_t i = 0; i < got.logprobs.size(); ++i) {
    EXPECT_TRUE(SameBits(got.logprobs[i], want.logprobs[i])) << "output token " << i;
  }
  ASSERT_EQ(got.prompt_logprobs.size(), want.prompt_logprobs.size());
  for (size_t i = 0; i < got.prompt_logprobs.size(); ++i) {
    ASSERT_EQ(got.prompt_logprobs[i].has_value(), want.prompt_logprobs[i].has_value());
    EXPECT_TRUE(!got.prompt_logprobs[i].has_value() ||
                SameBits(*got.prompt_logprobs[i], *want.prompt_logprobs[i]))
        << "prompt token " << i;
  }
}

void ExpectSameCounts(const RoundStats& got, const RoundStats& want) {
  EXPECT_EQ(got.rounds, want.rounds);
  EXPECT_EQ(got.proposed, want.proposed);
  EXPECT_EQ(got.accepted, want.accepted);
  EXPECT_EQ(got.emitted, want.emitted);
  EXPECT_EQ(got.proposed_at, want.proposed_at);
  EXPECT_EQ(got.accepted_at, want.accepted_at);
  EXPECT_EQ(got.by_source, want.by_source);
  EXPECT_EQ(got.draft_failures, want.draft_failures);
}

void ExpectConsistent(const Completion& completion) {
  const RoundStats& stats = completion.stats;
  const std::string& letters = completion.provenance;
  const auto count = [&](char letter) {
    return std::count(letters.begin(), letters.end(), letter);
  };
  ASSERT_EQ(letters.size(), completion.token_ids.size());
  EXPECT_EQ(letters.find_first_not_of("pacb"), std::string::npos);
  EXPECT_EQ(count('a'), stats.accepted);
  EXPECT_EQ(static_cast<int64_t>(letters.size()), stats.emitted);
  if (completion.choice_logprobs.empty()) {
    EXPECT_LE(count('p') + count('c') + count('b'), stats.rounds);
    // A generation can end inside a draft. Its last round then has no token of the target's own.
    const bool ended_inside = !letters.empty() && letters.back() == 'a';
    EXPECT_EQ(count('p') + count('c') + count('b') + ended_inside, stats.rounds);
  } else {  // one round draws a whole choice
    EXPECT_EQ(letters, std::string(letters.size(), 'p'));
    EXPECT_EQ(stats.rounds, 1);
  }
  RoundStats::SourceCounts of_sources;
  for (const RoundStats::SourceCounts& counts : stats.by_source) {
    of_sources.proposed += counts.proposed;
    of_sources.accepted += counts.accepted;
  }
  EXPECT_EQ(of_sources.proposed, stats.proposed);
  EXPECT_EQ(of_sources.accepted, stats.accepted);
  RoundStats of_lengths;
  for (int k = 0; k <= kMaxDraftTokens; ++k) {
    for (int j = 0; j <= kMaxDraftTokens; ++j) {
      const int64_t rounds = completion.rounds_by_length.counts[k][j];
      of_lengths.rounds += rounds;
      of_lengths.proposed += k * rounds;
      of_lengths.accepted += j * rounds;
    }
  }
  EXPECT_EQ(of_lengths.rounds, stats.rounds);
  EXPECT_EQ(of_lengths.proposed, stats.proposed);
  EXPECT_EQ(of_lengths.accepted, stats.accepted);
  int64_t proposed = 0;
  int64_t accepted = 0;
  for (int i = 0; i < kMaxDraftTokens; ++i) {
    proposed += stats.proposed_at[i];
    accepted += stats.accepted_at[i];
    EXPECT_LE(stats.accepted_at[i], stats.proposed_at[i]);
    EXPECT_TRUE(i == 0 || stats.proposed_at[i] <= stats.proposed_at[i - 1]);
    EXPECT_TRUE(i == 0 || stats.accepted_at[i] <= stats.accepted_at[i - 1]);
  }
  EXPECT_EQ(proposed, stats.proposed);
  EXPECT_EQ(accepted, stats.accepted);
  EXPECT_GE(completion.first_round_tokens, letters.empty() ? 0 : 1);
}

ModelCopy::ModelCopy(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    // Writes new files, so that copies of read-only originals are writable.
    Write(entry.path().filename().string(), ReadFileOrDie(entry.path()));
  }
}

void ModelCopy::Remove(absl::string_view name) const {
  TANDEM_CHECK(std::filesystem::remove(Path(name)));
}

Json ModelCopy::ReadJson(absl::string_view name) const { return Json::parse(Read(name)); }

void ModelCopy::WriteJson(absl::string_view name, const Json& json) const {
  Write(name, json.dump());
}

void ModelCopy::SetConfig(const std::string& key, const Json& value) const {
  Json config = ReadJson("config.json");
  config[key] = value;
  WriteJson("config.json", config);
}

}  // namespace tandem
