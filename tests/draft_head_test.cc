// Drafts whose heads were cut to the first tokens of the vocabulary.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "model/transformer.h"
#include "tandem/engine.h"
#include "tests/engine_testing.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr int kCut = 700;  // of the shipped pair's 4,096 tokens

// Rows of logits behind each of three tokens.
std::vector<std::vector<float>> Rows(Backend* backend, Transformer* model) {
  const auto cache = *PagedKvCache::Create(backend, model->kv_layout(16), 1);
  KvSequence kv = cache->NewSequence();
  const std::vector<TokenId> tokens = {5, 4000, 17};  // one of them is behind the cut
  const ForwardRequest request{.tokens = tokens, .kv = &kv, .num_logits = 3};
  const MatrixView logits = *model->Forward({&request, 1});
  std::vector<std::vector<float>> rows;
  for (int r = 0; r < logits.rows; ++r) {
    const float* row = static_cast<const float*>(logits.data) + r * logits.stride;
    rows.emplace_back(row, row + logits.cols);
  }
  return rows;
}

TEST(DraftHead, RowsAreTheFirstColumnsOfTheWholeOnes) {
  const std::string path = ShippedModelPath("storyteller-1m");
  const std::string folder = absl::StrCat(testing::TempDir(), "/tandem_draft_head.", getpid());
  const auto backend = *MakeCpuBackend({.num_threads = 1});
  for (const bool is_kept : {false, true}) {
    const auto load = [&](int head_tokens) {
      return *Transformer::Load(path, backend.get(),
                                {.packed_folder = is_kept ? folder : "",
                                 .min_packed_bytes = 0,
                                 .head_tokens = head_tokens});
    };
    const auto whole = load(0);
    const auto cut = load(kCut);
    const auto cut_again = load(kCut);  // from what was kept
    EXPECT_EQ(whole->head_tokens(), whole->vocab_size());
    EXPECT_EQ(cut->vocab_size(), whole->vocab_size());
    EXPECT_EQ(cut->head_tokens(), kCut);
    EXPECT_LT(cut->bytes_read_per_pass(), whole->bytes_read_per_pass());
    const auto want = Rows(backend.get(), whole.get());
    for (Transformer* const model : {cut.get(), cut_again.get()}) {
      const auto got = Rows(backend.get(), model);
      ASSERT_EQ(got.size(), want.size());
      for (size_t r = 0; r < got.size(); ++r) {
        ASSERT_EQ(got[r].size(), size_t{kCut});
        EXPECT_EQ(std::memcmp(got[r].data(), want[r].data(), kCut * sizeof(float)), 0) << r;
      }
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(DraftHead, ProposesTheFirstTokensAndChangesNoText) {
  const std::string target = ShippedModelPath("storyteller-7m");
  std::vector<Request> requests;
  for (const float temperature : {0.0f, 0.8f}) {
    requests.push_back({.prompt = "Once upon a time", .max_tokens = 60, .seed = 7});
    requests.back().sampling.temperature = temperature;
  }
  const auto plain = GenerateAll(MakeEngine(CpuOptionsFor(target, "")).get(), requests);
  for (const std::string& draft : {ShippedModelPath("storyteller-1m"), std::string("self:q8_0")}) {
    EngineOptions options = DraftModelOptionsFor(target, draft);
    options.draft_head_tokens = kCut;
    const auto engine = MakeEngine(options);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].draft_tokens = 3;
      const Completion got = Generate(engine.get(), requests[i]);
      ExpectSameOutput(got, plain[i]);
      int num_behind = 0;
      for (size_t t = 0; t < got.token_ids.size(); ++t) {
        const bool is_accepted = got.provenance[t] == static_cast<char>(Provenance::kAccepted);
        num_behind += is_accepted && got.token_ids[t] >= kCut;
      }
      EXPECT_EQ(num_behind, 0) << draft;
      EXPECT_GT(got.stats.accepted, 10) << draft;
    }
  }
}

// Without a seed the draft is judged by what it drew from, which is of fewer tokens.
TEST(DraftHead, EveryRuleTakesShorterRows) {
  EngineOptions options =
      DraftModelOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m"));
  options.draft_head_tokens = kCut;
  const auto engine = MakeEngine(options);
  for (const AcceptanceRule rule :
       {AcceptanceRule::kExactMatch, AcceptanceRule::kBlock, AcceptanceRule::kToken}) {
    Request request{.prompt = "Once upon a time", .max_tokens = 60, .draft_tokens = 3};
    request.verifier = rule;
    request.ignore_eos = true;
    const Completion got = Generate(engine.get(), request);
    EXPECT_EQ(got.token_ids.size(), 60u);
    EXPECT_GT(got.stats.accepted, 0);
  }
}

TEST(DraftHead, ARowThatIsNotThereIsNamed) {
  EngineOptions options =
      DraftModelOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m"));
  options.draft_head_tokens = 4097;
  EXPECT_THAT(std::string(Engine::Create(options).status().message()),
              HasSubstr("draft_head_tokens: found 4097, allowed: up to 4096"));
  options.draft_head_tokens = -1;
  EXPECT_THAT(std::string(Engine::Create(options).status().message()),
              HasSubstr("draft_head_tokens"));
}

}  // namespace
}  // namespace tandem
