// Drafts whose tokens come from one pass (docs/drafting/parallel_drafts.md), with the reference's
// models of tests/data/parallel.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/source_path_testing.h"
#include "draft/model_drafter.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/transformer.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"
#include "tests/folder_testing.h"
#include "tests/golden_file.h"
#include "tests/store_world.h"

namespace tandem {
namespace {

using Json = SortedJson;

using testing::HasSubstr;

Json ReadJson(const std::string& path) { return Json::parse(ReadFile(path).value()); }

class GoldenParallelDraft : public testing::TestWithParam<std::string> {
 protected:
  std::string draft_path() const { return ParallelGoldenPath(GetParam()); }
  GoldenPair pair() const { return GoldenPair("parallel/" + GetParam()); }
};

// The rows of all slots in all rounds of the reference, with the cache kept from round to round:
// the greedy proposals are equal, and so are the rows that sampled proposals were drawn from.
TEST_P(GoldenParallelDraft, RowsEqualTheReference) {
  constexpr double kMostApart = 2e-4;
  const Json reference = ReadJson(ParallelGoldenPath("reference.json"))["models"][GetParam()];
  const std::vector<float> slots = ReadGoldenFloats(draft_path(), "slots");
  const int target_vocab = ReadJson(pair().target + "/config.json")["vocab_size"];
  const std::unique_ptr<Backend> backend = *MakeBackend("cpu", {.num_threads = 1});
  const auto model =
      *Transformer::Load(draft_path(), backend.get(), {.has_exact_activations = true});
  const int vocab = model->vocab_size();
  EXPECT_EQ(model->config().mask_token, reference["mask_token_id"]);
  for (const Json& test : reference["cases"]) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const auto cache =
        *PagedKvCache::Create(backend.get(), model->kv_layout(16, KvDType::kF32), 64);
    ModelDrafter drafter(model.get(), cache.get(), target_vocab, /*chunk_tokens=*/256,
                         /*vocabulary=*/nullptr, model->config().mask_token);
    auto tokens = test["prompt"].get<std::vector<TokenId>>();
    const std::unique_ptr<DraftState> state = drafter.NewState(tokens);
    for (const Json& round : test["rounds"]) {
      ASSERT_EQ(static_cast<int>(tokens.size()), round["context_length"]);
      const auto propose = [&](const SamplingParams& sampling, int k) {
        Proposal proposal;
        Proposal* const into = &proposal;
        const DraftRequest request{
            .context = tokens, .granted = k, .sampling = &sampling, .state = state.get()};
        EXPECT_TRUE(drafter.Propose({&request, 1}, {&into, 1}).ok());
        return proposal;
      };
      EXPECT_EQ(drafter.Options(state.get(), tokens)[0].num_unread, round["num_unread"]);
      EXPECT_EQ(propose(kGreedy, round["k"]).tokens, round["proposed"].get<std::vector<TokenId>>());
      EXPECT_EQ(drafter.NumCached(*state), static_cast<int>(tokens.size()));
      // Again, to see the rows: probabilities at T = 1, whose logarithms are the logits but for a
      // constant.
      const int rows = round["rows"];
      drafter.Rollback(state.get(),
                       static_cast<int>(tokens.size()) - round["num_unread"].get<int>());
      const Proposal sampled = propose(SamplingParams{}, rows);
      ASSERT_EQ(sampled.tokens.size(), rows);
      for (int slot = 0; slot < rows; ++slot) {
        const float* expected = slots.data() + (round["first_row"].get<int64_t>() + slot) * vocab;
        const std::vector<float>& probs = sampled.drawn_from[slot].probs;
        const int best =
            static_cast<int>(std::max_element(expected, expected + target_vocab) - expected);
        for (int id = 0; id < target_vocab; ++id) {
          const double apart = std::log(probs[id] / probs[best]) - (expected[id] - expected[best]);
          ASSERT_LE(std::abs(apart), kMostApart) << slot << " " << id;
        }
      }
      for (const Json& id : round["committed_after"]) tokens.push_back(id);
      drafter.Rollback(state.get(), static_cast<int>(tokens.size()) - 1);
    }
  }
}

// The tokens that rejection sampling accepts in the first round, averaged over seeds: within five
// standard errors of the reference's expectation.
TEST_P(GoldenParallelDraft, AcceptsAsManySampledTokensAsExpected) {
  constexpr int kRounds = 4000;
  const GoldenPair pair = this->pair();
  const auto engine = MakeEngine(DraftModelOptionsFor(pair.target, pair.draft));
  for (int k = 1; k <= 2; ++k) {
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < kRounds; ++i) {
      const Completion got = Generate(engine.get(), {.prompt_ids = pair.prompt_ids,
                                                     .max_tokens = k + 1,
                                                     .sampling = {},
                                                     .seed = static_cast<uint64_t>(i),
                                                     .ignore_eos = true,
                                                     .draft_tokens = k,
                                                     .verifier = AcceptanceRule::kToken});
      const size_t first = got.provenance.find_first_not_of('a');
      const double accepted = static_cast<double>(std::min<size_t>(first, k));
      sum += accepted;
      squares += accepted * accepted;
    }
    const double mean = sum / kRounds;
    const double error = std::sqrt((squares / kRounds - mean * mean) / kRounds);
    EXPECT_NEAR(mean, pair.expected_accepted[k - 1], 5 * error) << k;
  }
}

// Every rule, with seeds and greedily, in batches with different k, with few pages and with a
// window: plain decoding's output bit for bit.
TEST_P(GoldenParallelDraft, DoesNotChangeTheOutput) {
  const GoldenPair pair = this->pair();
  std::vector<Request> requests = PlainRequests(PromptsFrom(pair.prompt_ids, 6), 48);
  EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
  options.drafter = DrafterKind::kNone;
  const std::vector<Completion> plain = GenerateAll(MakeEngine(options).get(), requests);
  const auto expect = [&](const EngineOptions& changed, absl::string_view what) {
    SCOPED_TRACE(what);
    const auto engine = MakeEngine(changed);
    EXPECT_TRUE(engine->draft_info()->mask_token.has_value());
    for (const int first_k : {1, 4, kAutoDraftTokens}) {
      for (size_t i = 0; i < requests.size(); ++i) {
        requests[i].draft_tokens = first_k < 0 ? first_k : first_k + static_cast<int>(i);
        requests[i].verifier = AcceptanceRule::kExactMatch;
      }
      const std::vector<Completion> got = GenerateAll(engine.get(), requests);
      int64_t proposed = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        ExpectSameOutput(got[i], plain[i]);
        ExpectConsistent(got[i]);
        proposed += got[i].stats.proposed;
      }
      if (first_k > 0) {  // otherwise drafts may not pay
        EXPECT_GT(proposed, 0);
      }
    }
    EXPECT_TRUE(engine->CheckIntegrity().ok());
  };
  options.drafter = DrafterKind::kModel;
  expect(options, "the default");
  EngineOptions small = options;
  small.max_batch = 6;
  small.page_size = 4;
  small.kv_memory_bytes = 60 * 4 * 1024;
  expect(small, "few pages");
  EngineOptions window = options;
  window.draft_window = 8;
  expect(window, "a window");
  EngineOptions chunks = options;
  chunks.chunk_tokens = 3;
  chunks.prefix_cache = false;
  expect(chunks, "small chunks");
  EngineOptions both = options;
  both.drafter = DrafterKind::kModelAndNgram;
  expect(both, "with lookups");
  EngineOptions formats = options;
  formats.draft_quantize = Quantization::kQ8_0;
  formats.draft_kv_cache = KvCacheType::kInt8;
  expect(formats, "another format and cache");
}

// The confidence of a constrained slot is the probability of its likeliest allowed token, and the
// output is that of plain decoding.
TEST_P(GoldenParallelDraft, KeepsToAConstraint) {
  const GoldenPair pair = this->pair();
  const auto engine = MakeEngine(DraftModelOptionsFor(pair.target, pair.draft));
  for (const AcceptanceRule verifier : kAllRules) {
    for (const float temperature : {0.0f, 1.0f}) {
      if (temperature > 0.0f && verifier != AcceptanceRule::kExactMatch) continue;
      Request request = RequestFor(PromptOf(pair, 9));
      request.ignore_eos = false;
      request.sampling.temperature = temperature;
      request.seed = 3;
      request.verifier = verifier;
      request.constraint =
          OutputConstraint{.kind = OutputConstraint::Kind::kRegex, .text = "[a-z]+( [a-z]+)*"};
      request.draft_tokens = 0;
      const Completion plain = Generate(engine.get(), request);
      for (const int k : {3, 8}) {
        request.draft_tokens = k;
        const Completion got = Generate(engine.get(), request);
        ExpectSameOutput(got, plain);
        EXPECT_GT(got.stats.proposed, 0);
      }
    }
  }
}

TEST_P(GoldenParallelDraft, IsSerialWithoutAMask) {
  const GoldenPair pair = this->pair();
  EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
  options.draft_mask_token = MaskToken::kNone;
  const auto engine = MakeEngine(options);
  EXPECT_EQ(engine->draft_info()->mask_token, std::nullopt);
  const Completion got = Generate(engine.get(), {.prompt_ids = pair.prompt_ids,
                                                 .max_tokens = 64,
                                                 .sampling = kGreedy,
                                                 .ignore_eos = true,
                                                 .draft_tokens = 1});
  // A draft of one token is the same in either form.
  EXPECT_EQ(got.token_ids, pair.output_ids);
  EXPECT_EQ(got.stats.accepted, pair.runs[0]["accepted"]);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenParallelDraft,
                         testing::Values("llama-parallel", "qwen2-parallel"), [](const auto& info) {
                           return info.param.substr(0, info.param.find('-'));
                         });

// ---- The option ----

using DraftMaskToken = FolderTest;

absl::Status CreationOf(const EngineOptions& options) { return Engine::Create(options).status(); }

TEST_F(DraftMaskToken, AMaskByHandIsTried) {
  const GoldenPair pair("parallel/qwen2-parallel");
  // The same draft, without the keys that a converter drops.
  const std::string dropped = Path("dropped");
  std::filesystem::copy(pair.draft, dropped);
  Json config = ReadJson(pair.draft + "/config.json");
  config.erase("pard_token");
  config.erase("spd_type");
  Write("dropped/config.json", config.dump());
  EngineOptions options = DraftModelOptionsFor(pair.target, dropped);
  EXPECT_EQ(MakeEngine(options)->draft_info()->mask_token, std::nullopt);
  options.draft_mask_token = MaskToken{405};
  EXPECT_EQ(MakeEngine(options)->draft_info()->mask_token, 405);
  options.draft_mask_token = MaskToken{100};
  options.draft = GoldenPair("unrelated").draft;
  options.target = GoldenPair("unrelated").target;
  const absl::Status refused = CreationOf(options);
  EXPECT_EQ(FieldOf(refused), "draft_mask_token");
  EXPECT_THAT(refused.message(), HasSubstr("was not trained for this mask ("));
  EXPECT_THAT(refused.message(), HasSubstr(" in its place); \"none\" drafts serially"));
}

TEST_F(DraftMaskToken, RefusesIdsThatCannotBeMasks) {
  const GoldenPair pair("parallel/llama-parallel");
  EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
  options.draft_mask_token = MaskToken{289};
  EXPECT_EQ(CreationOf(options).message(),
            "draft_mask_token: 289: must be an id of the draft, from 0 to 288");
  const TokenId end = ReadJson(pair.draft + "/generation_config.json")["eos_token_id"].is_array()
                          ? ReadJson(pair.draft + "/generation_config.json")["eos_token_id"][0]
                          : ReadJson(pair.draft + "/generation_config.json")["eos_token_id"];
  options.draft_mask_token = MaskToken{end};
  EXPECT_EQ(CreationOf(options).message(),
            absl::StrCat("draft_mask_token: ", end, ": ends a text, so it cannot be a mask"));
  options.draft_mask_token = MaskToken{3};
  options.draft = "self:q8_0";
  EXPECT_EQ(CreationOf(options).message(),
            "draft_mask_token: 3: needs a draft model of its own, but the draft is self:q8_0");
  options.draft = "";
  options.drafter = DrafterKind::kAuto;
  EXPECT_EQ(CreationOf(options).message(),
            "draft_mask_token: 3: needs a draft model, but none is used");
}

TEST_F(DraftMaskToken, OptionsAreAutoNoneOrAnId) {
  EXPECT_EQ(*ParseMaskToken("auto"), MaskToken::kAuto);
  EXPECT_EQ(*ParseMaskToken("none"), MaskToken::kNone);
  EXPECT_EQ(*ParseMaskToken("284"), MaskToken{284});
  for (const char* wrong : {"", "-1", "-2", "mask", "1.5", "99999999999"}) {
    EXPECT_EQ(ParseMaskToken(wrong).status().message(),
              absl::StrCat("draft_mask_token: must be auto, none or an id from 0 on, got ", wrong));
  }
}

}  // namespace
}  // namespace tandem
