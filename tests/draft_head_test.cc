// Drafts whose heads were cut to the first tokens of the vocabulary, or to learned tokens.

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "model/transformer.h"
#include "tandem/engine.h"
#include "tests/folder_testing.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr int kCut = 700;  // out of the shipped pair's 4,096 tokens

// Returns the rows of logits after each of three tokens.
std::vector<std::vector<float>> Rows(Backend* backend, Transformer* model) {
  const auto cache = *PagedKvCache::Create(backend, model->kv_layout(16), 1);
  KvSequence kv = cache->NewSequence();
  const std::vector<TokenId> tokens = {5, 4000, 17};  // one of them is beyond the cut
  const ForwardRequest request{.tokens = tokens, .kv = &kv, .num_logits = 3};
  const MatrixView logits = *model->Forward({&request, 1});
  std::vector<std::vector<float>> rows;
  for (int r = 0; r < logits.rows; ++r) {
    const float* row = static_cast<const float*>(logits.data) + r * logits.stride;
    rows.emplace_back(row, row + logits.cols);
  }
  return rows;
}

TEST(DraftHead, CutRowsAreTheFirstColumnsOfFullRows) {
  const std::string path = ShippedModelPath("storyteller-1m");
  const TestFolder folder;
  const auto backend = *MakeCpuBackend({.num_threads = 1});
  for (const bool is_kept : {false, true}) {
    const auto load = [&](int head_tokens) {
      return *Transformer::Load(path, backend.get(),
                                {.packed_folder = is_kept ? folder.path() : "",
                                 .min_packed_bytes = 0,
                                 .head_tokens = head_tokens});
    };
    const auto whole = load(0);
    const auto cut = load(kCut);
    EXPECT_TRUE(cut->AwaitPackedFile().ok());
    const auto cut_again = load(kCut);  // from the file of packed weights
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
}

// A gathered row has the same bits as in the whole head.
TEST(DraftHead, GatheredRowsAreColumnsOfFullRows) {
  const std::string path = ShippedModelPath("storyteller-1m");
  const TestFolder folder;
  const auto backend = *MakeCpuBackend({.num_threads = 1});
  const std::vector<TokenId> some = {0, 3, 17, 1000, 1001, 4095};
  for (const std::optional<DType> quantized : {std::optional<DType>(), {DType::kQ4K}}) {
    const auto load = [&](bool is_kept, int sets_head_from) {
      return *Transformer::Load(path, backend.get(),
                                {.quantized = quantized,
                                 .packed_folder = is_kept ? folder.path() : "",
                                 .min_packed_bytes = 0,
                                 .sets_head_from = sets_head_from});
    };
    const auto whole = load(false, 0);
    const auto want = Rows(backend.get(), whole.get());
    EXPECT_EQ(load(false, 4097)->head_tokens(), 4096);
    for (const bool is_kept : {false, true, true}) {
      const auto model = load(is_kept, 4096);
      EXPECT_TRUE(model->AwaitPackedFile().ok());
      EXPECT_EQ(model->head_tokens(), 0);
      EXPECT_EQ(model->head_row_bytes() * 4096 + static_cast<int64_t>(model->bytes_read_per_pass()),
                static_cast<int64_t>(whole->bytes_read_per_pass()));
      for (const std::vector<TokenId>& ids : {some, {}, {2, 4}}) {
        ASSERT_TRUE(model->SetHead(ids).ok());
        ASSERT_EQ(model->head_tokens(), ids.empty() ? 4096 : static_cast<int>(ids.size()));
        const auto got = Rows(backend.get(), model.get());
        for (size_t r = 0; r < want.size(); ++r) {
          for (int i = 0; i < model->head_tokens(); ++i) {
            const float& column = want[r][ids.empty() ? i : ids[i]];
            ASSERT_EQ(std::memcmp(&got[r][i], &column, sizeof(float)), 0) << r << " " << i;
          }
        }
      }
    }
  }
}

// A head that is separate from the embedding can have another format.
TEST(DraftHead, RowBytesFollowTheHeadsFormat) {
  const auto backend = *MakeCpuBackend({.num_threads = 1});
  for (const char* const name : {"llama-small.Q4_K_M.gguf", "llama-small.Q8_0.gguf"}) {
    const std::string path = GoldenGgufPath(name);
    const auto whole = *Transformer::Load(path, backend.get(), {});
    const auto model = *Transformer::Load(path, backend.get(), {.sets_head_from = 1});
    const auto head_bytes =
        static_cast<int64_t>(whole->bytes_read_per_pass() - model->bytes_read_per_pass());
    EXPECT_GE(head_bytes, model->head_row_bytes() * whole->vocab_size()) << name;
    EXPECT_LT(head_bytes, model->head_row_bytes() * (whole->vocab_size() + 64)) << name;  // panels
    ASSERT_TRUE(model->SetHead({}).ok());
    EXPECT_EQ(model->bytes_read_per_pass(), whole->bytes_read_per_pass()) << name;
  }
}

// The head is rebuilt in the middle of answers, which stay those of plain decoding.
TEST(DraftHead, LearnsWithoutChangingTheText) {
  const std::string target = ShippedModelPath("storyteller-7m");
  const TestFolder folder;
  std::vector<Request> requests;
  for (const float temperature : {0.0f, 0.8f, 1.0f}) {
    requests.push_back({.prompt = "Once upon a time", .max_tokens = 150, .seed = 7});
    requests.back().sampling.temperature = temperature;
    requests.back().ignore_eos = true;
  }
  const auto plain = GenerateAll(MakeEngine(CpuOptionsFor(target, "")).get(), requests);
  for (Request& request : requests) request.draft_tokens = 3;
  EngineOptions options = DraftModelOptionsFor(target, ShippedModelPath("storyteller-1m"));
  options.draft_head_tokens = kAutoDraftHeadTokens;
  options.packed_weights = folder.path();
  // Returns the coverage of the head that an engine starts with.
  const auto start = [&] {
    const auto engine = MakeEngine(options);
    Generate(engine.get(), {.prompt = "a", .max_tokens = 1});
    return *engine->draft_info()->head_coverage;
  };
  const double unlearned = start();
  EXPECT_LT(unlearned, 1.0);
  for (int i = 0; i < 2; ++i) {
    const auto engine = MakeEngine(options);
    const auto got = GenerateAll(engine.get(), requests);
    for (size_t r = 0; r < requests.size(); ++r) ExpectSameOutput(got[r], plain[r]);
    EXPECT_GT(got[0].stats.accepted, 20);
    EXPECT_NE(*engine->draft_info()->head_coverage, unlearned);
  }
  // The next engine starts with the head that the first one learned, unless its file is damaged.
  EXPECT_NE(start(), unlearned);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (!absl::StartsWith(entry.path().filename().string(), "head-")) continue;
    EXPECT_LE(entry.file_size(), size_t{1} << 20);
    std::ofstream(entry.path()) << "damaged";
  }
  EXPECT_EQ(start(), unlearned);
}

TEST(DraftHead, ProposesTheFirstTokensWithoutChangingTheText) {
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

// Without a seed, the draft is judged with the distribution that it drew from, which covers fewer
// tokens.
TEST(DraftHead, EveryRuleAcceptsShorterRows) {
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

TEST(DraftHead, ImpossibleHeadSizesAreNamed) {
  EngineOptions options =
      DraftModelOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m"));
  options.draft_head_tokens = 4097;
  EXPECT_THAT(std::string(Engine::Create(options).status().message()),
              HasSubstr("draft_head_tokens: found 4097, allowed: up to 4096"));
  options.draft_head_tokens = -2;
  EXPECT_EQ(Engine::Create(options).status().message(),
            "draft_head_tokens: must be auto or at least 0, got -2");
}

}  // namespace
}  // namespace tandem
