// Whole engines whose draft has another vocabulary than the target: rewritten models and tokenizers
// of the golden pairs.
#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/mapped_file.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/checkpoint/safetensors.h"
#include "tandem/tokenizer.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using Json = SortedJson;
// For each token of the new vocabulary, its id in the old one.
using OldIds = std::vector<TokenId>;

// ---- Folders with another vocabulary ----

// Rearranges the weight rows that belong to tokens.
void RewriteWeights(const ModelCopy& model, const OldIds& old_ids) {
  const std::string file = model.Read("model.safetensors");
  const auto entries = ParseSafetensors(
      {reinterpret_cast<const std::byte*>(file.data()), file.size()}, "model.safetensors");
  ASSERT_TRUE(entries.ok()) << entries.status();
  Json header = Json::object();
  std::string data;
  for (const SafetensorsEntry& entry : *entries) {
    const absl::string_view bytes(reinterpret_cast<const char*>(entry.bytes.data()),
                                  entry.bytes.size());
    std::vector<int64_t> shape = entry.shape;
    const size_t begin = data.size();
    if (entry.name == "model.embed_tokens.weight" || entry.name == "lm_head.weight") {
      const size_t row_bytes = bytes.size() / static_cast<size_t>(shape[0]);
      for (const TokenId id : old_ids) data.append(bytes.data() + id * row_bytes, row_bytes);
      shape[0] = static_cast<int64_t>(old_ids.size());
    } else {
      data.append(bytes.data(), bytes.size());
    }
    header[entry.name] = {
        {"dtype", entry.dtype_name}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length;
  for (int i = 0; i < 8; ++i) length.push_back(static_cast<char>(uint64_t{text.size()} >> (8 * i)));
  model.Write("model.safetensors", length + text + data);
  model.SetConfig("vocab_size", old_ids.size());
}

// Changes the ids in tokenizer.json and the end tokens. Removes tokens that are not in `old_ids`,
// and the merges that form them.
void RewriteTokenizer(const ModelCopy& model, const OldIds& old_ids) {
  std::map<TokenId, TokenId> new_ids;
  for (size_t id = 0; id < old_ids.size(); ++id) new_ids[old_ids[id]] = static_cast<TokenId>(id);
  Json file = model.ReadJson("tokenizer.json");
  Json vocab = Json::object();
  for (const auto& [token, id] : file["model"]["vocab"].items()) {
    if (new_ids.count(id) > 0) vocab[token] = new_ids[id];
  }
  Json merges = Json::array();
  for (const Json& merge : file["model"]["merges"]) {
    const std::vector<std::string> parts = merge.is_array()
                                               ? merge.get<std::vector<std::string>>()
                                               : absl::StrSplit(merge.get<std::string>(), ' ');
    if (vocab.contains(parts[0]) && vocab.contains(parts[1]) &&
        vocab.contains(parts[0] + parts[1])) {
      merges.push_back(merge);
    }
  }
  file["model"]["vocab"] = vocab;
  file["model"]["merges"] = merges;
  for (Json& token : file["added_tokens"]) token["id"] = new_ids.at(token["id"]);
  for (Json& token : file["post_processor"]["special_tokens"]) {
    for (Json& id : token["ids"]) id = new_ids.at(id);
  }
  model.WriteJson("tokenizer.json", file);
  Json generation = model.ReadJson("generation_config.json");
  generation["eos_token_id"] = new_ids.at(generation["eos_token_id"]);
  model.WriteJson("generation_config.json", generation);
}

void RewriteVocabulary(const ModelCopy& model, const OldIds& old_ids) {
  RewriteWeights(model, old_ids);
  RewriteTokenizer(model, old_ids);
}

OldIds AllIds(int count) {
  OldIds ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}
OldIds ShuffledIds(int count, uint64_t seed) {
  OldIds ids = AllIds(count);
  std::mt19937_64 random(seed);
  std::shuffle(ids.begin(), ids.end(), random);
  return ids;
}

constexpr int kPairVocab = 320;    // of the pair "perturbed"
constexpr int kNumSmallest = 259;  // the special tokens and the bytes

const SamplingParams kSampled[] = {
    {},
    {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f},
    {.temperature = 1.2f, .repetition_penalty = 1.2f, .presence_penalty = 0.4f}};

// Expects that speculation with this draft gives the target's own text, greedily and with seeds,
// alone and in batches. Returns the fraction of draft tokens that was accepted.
double ExpectPlainOutput(const std::string& target, const std::string& draft,
                         const std::vector<TokenId>& prompt_ids) {
  EngineOptions options = DraftModelOptionsFor(target, draft);
  options.page_size = 4;
  options.max_batch = 3;
  options.chunk_tokens = 5;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  const std::unique_ptr<Engine> plain = MakeEngine(CpuOptionsFor(target, ""));
  std::vector<Request> requests;
  for (const std::vector<TokenId>& prompt : PromptsFrom(prompt_ids, 5)) {
    Request request{.prompt_ids = prompt,
                    .max_tokens = 24,
                    .sampling = kGreedy,
                    .ignore_eos = true,
                    .draft_tokens = 4,
                    .logprobs = {.num_top = 2}};
    requests.push_back(request);
    request.seed = prompt.size();
    request.verifier = AcceptanceRule::kExactMatch;
    for (const SamplingParams& sampling : kSampled) {
      request.sampling = sampling;
      requests.push_back(request);
    }
  }
  const std::vector<Completion> got = GenerateAll(engine.get(), requests);
  int64_t proposed = 0;
  int64_t accepted = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].draft_tokens = 0;
    ExpectSameOutput(got[i], Generate(plain.get(), requests[i]));
    ExpectConsistent(got[i]);
    proposed += got[i].stats.proposed;
    accepted += got[i].stats.accepted;
  }
  EXPECT_GT(proposed, 100);
  return static_cast<double>(accepted) / static_cast<double>(proposed);
}

// ---- The same tokens with other ids ----

// A draft whose ids are shuffled is the same draft, so it gives the reference's counts.
TEST(Vocabularies, ShuffledIdsChangeNothing) {
  const GoldenPair pair("perturbed");
  const ModelCopy draft(pair.draft);
  RewriteVocabulary(draft, ShuffledIds(kPairVocab, 1));
  const std::unique_ptr<Engine> engine =
      MakeEngine(DraftModelOptionsFor(pair.target, draft.path()));
  EXPECT_EQ(engine->draft_info()->mapped_tokens, kPairVocab);
  for (const SortedJson& run : pair.runs) {
    for (const AcceptanceRule verifier : kAllRules) {
      const Completion got = Generate(engine.get(), {.prompt_ids = pair.prompt_ids,
                                                     .max_tokens = 64,
                                                     .sampling = kGreedy,
                                                     .ignore_eos = true,
                                                     .draft_tokens = run["k"].get<int>(),
                                                     .verifier = verifier});
      EXPECT_EQ(got.token_ids, pair.output_ids);
      EXPECT_EQ(got.stats.rounds, run["rounds"]);
      EXPECT_EQ(got.stats.proposed, run["proposed"]);
      EXPECT_EQ(got.stats.accepted, run["accepted"]);
    }
  }
}

// Under every rule, sampled drafts with shuffled ids give the same tokens and counts as the pair
// whose ids agree, because noise follows the target's ids.
TEST(Vocabularies, ShuffledIdsAreSampledTheSame) {
  const GoldenPair pair("perturbed");
  const ModelCopy draft(pair.draft);
  RewriteVocabulary(draft, ShuffledIds(kPairVocab, 2));
  const auto same = MakeEngine(DraftModelOptionsFor(pair.target, pair.draft));
  const auto shuffled = MakeEngine(DraftModelOptionsFor(pair.target, draft.path()));
  EXPECT_EQ(same->draft_info()->mapped_tokens, std::nullopt);
  int64_t num_accepted = 0;
  for (const SamplingParams& sampling : kSampled) {
    for (const AcceptanceRule verifier : kAllRules) {
      const Request request{.prompt_ids = pair.prompt_ids,
                            .max_tokens = 48,
                            .sampling = sampling,
                            .seed = 7,
                            .ignore_eos = true,
                            .draft_tokens = 3,
                            .verifier = verifier,
                            .logprobs = {.num_top = 1}};
      const Completion want = Generate(same.get(), request);
      const Completion got = Generate(shuffled.get(), request);
      ExpectSameOutput(got, want);
      ExpectSameCounts(got.stats, want.stats);
      EXPECT_EQ(got.provenance, want.provenance);
      num_accepted += got.stats.accepted;
    }
  }
  EXPECT_GT(num_accepted, 50);
}

// ---- Other tokens ----

// Only a few of the draft's merges are left. It reads the missing tokens in pieces.
TEST(Vocabularies, ASmallerDraftIsLossless) {
  const GoldenPair pair("perturbed");
  const ModelCopy draft(pair.draft);
  OldIds ids = ShuffledIds(kNumSmallest + 30, 3);
  RewriteVocabulary(draft, ids);
  const double rate = ExpectPlainOutput(pair.target, draft.path(), pair.prompt_ids);
  EXPECT_GT(rate, 0.02);  // by chance 1 of 320
  const auto engine = MakeEngine(DraftModelOptionsFor(pair.target, draft.path()));
  EXPECT_EQ(engine->draft_info()->mapped_tokens, kNumSmallest + 30);
}

TEST(Vocabularies, ALargerDraftIsLossless) {
  const GoldenPair pair("perturbed");
  const ModelCopy target(pair.target);
  RewriteVocabulary(target, ShuffledIds(kNumSmallest + 30, 4));
  std::vector<TokenId> prompt = pair.prompt_ids;
  for (TokenId& id : prompt) id %= kNumSmallest;
  EXPECT_GT(ExpectPlainOutput(target.path(), pair.draft, prompt), 0.02);
}

// The tokenizers are the same, but the draft's head does not have rows for the last tokens.
TEST(Vocabularies, ADraftWithoutTheLastTokensReadsThemInPieces) {
  const GoldenPair pair("perturbed");
  const ModelCopy draft(pair.draft);
  RewriteWeights(draft, AllIds(300));
  const auto engine = MakeEngine(DraftModelOptionsFor(pair.target, draft.path()));
  EXPECT_EQ(engine->draft_info()->mapped_tokens, 300);
  // A prompt of missing tokens only.
  const Completion got = Generate(engine.get(), {.prompt_ids = {319, 318, 310, 305},
                                                 .max_tokens = 8,
                                                 .sampling = kGreedy,
                                                 .ignore_eos = true,
                                                 .draft_tokens = 4});
  EXPECT_GT(got.stats.proposed, 0);
  EXPECT_GT(ExpectPlainOutput(pair.target, draft.path(), pair.prompt_ids), 0.02);
}

// Pairs of unrelated golden models.
TEST(Vocabularies, UnrelatedPairsAreLossless) {
  const GoldenPair pair("shallow");
  ExpectPlainOutput(GoldenModelPath("llama-gqa"), GoldenModelPath("qwen3-shallow"),
                    pair.prompt_ids);
  ExpectPlainOutput(GoldenModelPath("qwen3-norm"), GoldenModelPath("llama-rope3"), pair.prompt_ids);
  ExpectPlainOutput(GoldenModelPath("gemma3-text"), GoldenModelPath("llama-gqa"), pair.prompt_ids);
  ExpectPlainOutput(GoldenModelPath("mixtral"), GoldenModelPath("phi3-short"), pair.prompt_ids);
}

// ---- A draft without a tokenizer ----

void RemoveTokenizer(const ModelCopy& model) {
  model.Remove("tokenizer.json");
  model.Remove("tokenizer_config.json");
}

TEST(Vocabularies, ADraftWithoutATokenizerUsesTheTargets) {
  const GoldenPair pair("perturbed");
  const ModelCopy draft(pair.draft);
  RemoveTokenizer(draft);
  const auto engine = MakeEngine(DraftModelOptionsFor(pair.target, draft.path()));
  EXPECT_EQ(engine->draft_info()->mapped_tokens, std::nullopt);
  const auto with_tokenizer = MakeEngine(DraftModelOptionsFor(pair.target, pair.draft));
  const Request request{
      .prompt_ids = pair.prompt_ids, .max_tokens = 48, .seed = 3, .draft_tokens = 2};
  const Completion got = Generate(engine.get(), request);
  const Completion want = Generate(with_tokenizer.get(), request);
  ExpectSameOutput(got, want);
  ExpectSameCounts(got.stats, want.stats);
  EXPECT_GT(got.stats.accepted, 0);
}

// The same with a GGUF file whose tokenizer key is renamed.
TEST(Vocabularies, AGgufDraftWithoutATokenizerUsesTheTargets) {
  const ModelCopy draft(GoldenModelPath("llama-gqa"));  // for its folder
  std::string bytes = *ReadFile(GoldenGgufPath("llama-small.Q8_0.gguf"));
  const std::string key = "tokenizer.ggml.model";
  bytes.replace(bytes.find(key), key.size(), "tokenizer.ggml.other");
  draft.Write("draft.gguf", bytes);
  const std::string target = GoldenGgufPath("llama-small.Q4_K_M.gguf");
  const auto engine = MakeEngine(DraftModelOptionsFor(target, draft.Path("draft.gguf")));
  EXPECT_EQ(engine->draft_info()->mapped_tokens, std::nullopt);
  const Completion got = Generate(
      engine.get(),
      {.prompt_ids = {1, 20, 300}, .max_tokens = 24, .sampling = kGreedy, .draft_tokens = 2});
  EXPECT_GT(got.stats.accepted, 0);
  // As a target the file is refused.
  const auto refused = Engine::Create(CpuOptionsFor(draft.Path("draft.gguf"), ""));
  EXPECT_THAT(std::string(refused.status().message()),
              testing::AllOf(HasSubstr("draft.gguf"), HasSubstr(key)));
}

TEST(Vocabularies, RefusesADraftWithoutATokenizerOfAnotherVocabularySize) {
  const GoldenPair pair("perturbed");
  const std::string file = pair.target + "/tokenizer.json";
  for (const int rows : {kPairVocab - 1, kPairVocab + 1025}) {
    const ModelCopy draft(pair.draft);
    OldIds ids(rows, 0);
    RewriteWeights(draft, ids);
    RemoveTokenizer(draft);
    const auto engine = Engine::Create(DraftModelOptionsFor(pair.target, draft.path()));
    ASSERT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument) << engine.status();
    EXPECT_EQ(std::string(engine.status().message()),
              absl::StrCat(draft.path(),
                           ": has no tokenizer, and cannot use its target's: vocabulary: found ",
                           rows, ", allowed: from 320 to 1344, for the 320 tokens of ", file));
  }
}

TEST(Vocabularies, RefusesATargetWithoutATokenizer) {
  const GoldenPair pair("perturbed");
  const ModelCopy target(pair.target);
  RemoveTokenizer(target);
  const auto engine = Engine::Create(DraftModelOptionsFor(target.path(), pair.draft));
  ASSERT_EQ(engine.status().code(), absl::StatusCode::kNotFound) << engine.status();
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("tokenizer.json"));
}

TEST(Vocabularies, NamesTheTokenizerWithMoreTokensThanTheModelHasRows) {
  const ModelCopy target(GoldenModelPath("mistral-full"));
  RewriteWeights(target, AllIds(300));
  const auto engine = Engine::Create(CpuOptionsFor(target.path(), ""));
  EXPECT_EQ(std::string(engine.status().message()),
            absl::StrCat(target.Path("tokenizer.json"),
                         ": has ids up to 319, but the model's vocabulary has 300"));
}

// ---- Pairs that are refused ----

TEST(Vocabularies, RefusesADraftThatSharesBytesOnly) {
  const ModelCopy draft(GoldenModelPath("mistral-noisy"));
  RewriteVocabulary(draft, ShuffledIds(kNumSmallest, 5));
  const std::string target = GoldenModelPath("llama-gqa");
  const auto engine = Engine::Create(DraftModelOptionsFor(target, draft.path()));
  ASSERT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument) << engine.status();
  EXPECT_EQ(std::string(engine.status().message()),
            absl::StrCat(draft.path(), ": cannot draft for ", target,
                         ": only 256 tokens have the same text; 241 of the target's 497 and 0 of "
                         "the draft's 256 have no counterpart"));
  // The other way round, every token of the target is also one of the draft's.
  const auto reverse = MakeEngine(DraftModelOptionsFor(draft.path(), target));
  EXPECT_EQ(reverse->draft_info()->mapped_tokens, kNumSmallest);
}

TEST(Vocabularies, RefusesADraftWithoutACommonToken) {
  const ModelCopy draft(GoldenModelPath("mistral-noisy"));
  Json file = draft.ReadJson("tokenizer.json");
  Json vocab = Json::object();
  for (const auto& [token, id] : file["model"]["vocab"].items()) vocab[token + "\u6f22"] = id;
  file["model"]["vocab"] = vocab;
  file["model"]["merges"] = Json::array();
  file["added_tokens"] = Json::array();
  file["post_processor"] = nullptr;
  draft.WriteJson("tokenizer.json", file);
  const auto engine =
      Engine::Create(DraftModelOptionsFor(GoldenModelPath("mistral-full"), draft.path()));
  ASSERT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument) << engine.status();
  EXPECT_THAT(std::string(engine.status().message()),
              HasSubstr("only 0 tokens have the same text; 317 of the target's 317 and 320 of the "
                        "draft's 320 have no counterpart"));
}

}  // namespace
}  // namespace tandem
