// Tests that several ranks computing a model together have the same bits as a single one.
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/net/secret_testing.h"
#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/pass_message.h"
#include "model/ranks/linked_testing.h"
#include "model/ranks/shared_ranks.h"
#include "model/transformer.h"

namespace tandem {
namespace {

constexpr int kPageSize = 4;
constexpr int kNumPages = 64;

std::string ModelFolder(const std::string& name) {
  return absl::StrCat(SourcePath("tests/data/models/"), name);
}

std::vector<std::string> GoldenModels() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(ModelFolder(""))) {
    if (std::filesystem::exists(entry.path() / "golden.safetensors")) {
      names.push_back(entry.path().filename());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::unique_ptr<Backend> MakeCpu(int threads, CpuCompute compute = CpuCompute::kAuto) {
  return *MakeCpuBackend({.num_threads = threads, .compute = compute, .isa = ""});
}

// A rank's model and cache.
struct Rank {
  std::unique_ptr<RankGroup> group;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Transformer> model;
  std::unique_ptr<PagedKvCache> cache;

  void Load(const std::string& folder, Transformer::LoadOptions options, KvDType dtype,
            int threads) {
    backend = MakeCpu(threads);
    options.group = group.get();
    auto loaded = Transformer::Load(folder, backend.get(), options);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    model = *std::move(loaded);
    const KvLayout layout = model->kv_layout(kPageSize, dtype);
    if (layout.num_kv_heads > 0) cache = *PagedKvCache::Create(backend.get(), layout, kNumPages);
  }
  absl::Status Follow() {
    for (;;) {
      const auto message = group->Receive();
      if (!message.ok()) return message.status();
      const auto pass = PassMessage::Decode(*message);
      if (!pass.ok()) return pass.status();
      const absl::Status status = model->Follow(*pass, cache.get());
      if (!status.ok()) return status;
    }
  }
};

// Ranks that are threads of this process.
class Ranks {
 public:
  Ranks(const std::string& folder, int world, const Transformer::LoadOptions& options = {},
        KvDType dtype = KvDType::kF32, int threads = 1)
      : Ranks(Shared(world), folder, options, dtype, threads) {}
  Ranks(std::vector<std::unique_ptr<RankGroup>> groups, const std::string& folder,
        const Transformer::LoadOptions& options = {}, KvDType dtype = KvDType::kF32,
        int threads = 1) {
    const int world = static_cast<int>(groups.size());
    ranks_.resize(world);
    for (int r = 0; r < world; ++r) ranks_[r].group = std::move(groups[r]);
    for (int r = 1; r < world; ++r) {
      threads_.emplace_back([=, this, &rank = ranks_[r]] {
        rank.Load(folder, options, dtype, threads);
        EXPECT_THAT(std::string(rank.Follow().message()), testing::HasSubstr("rank 0 has ended"));
      });
    }
    ranks_[0].Load(folder, options, dtype, threads);
    ranks_[0].model->Lead(ranks_[0].cache.get());
  }
  ~Ranks() {
    ranks_[0].cache = nullptr;
    ranks_[0].model = nullptr;
    ranks_[0].group = nullptr;
    for (std::thread& thread : threads_) thread.join();
  }
  Rank& first() { return ranks_[0]; }

 private:
  static std::vector<std::unique_ptr<RankGroup>> Shared(int world) {
    const auto memory = *SharedMemory::Create(world);
    std::vector<std::unique_ptr<RankGroup>> groups;
    for (int r = 0; r < world; ++r) groups.push_back(JoinSharedRanks(memory, r));
    return groups;
  }

  std::vector<Rank> ranks_;
  std::vector<std::thread> threads_;
};

// Returns logits of prompts in chunks, of rolled-back drafts, of forks that copy a page, and of
// batches.
std::vector<float> LogitsOf(Transformer* model, PagedKvCache* cache) {
  std::vector<float> all;
  const auto pass = [&](std::vector<ForwardRequest> requests) {
    const auto logits = model->Forward(requests);
    ASSERT_TRUE(logits.ok()) << logits.status();
    for (int r = 0; r < logits->rows; ++r) {
      const auto* const row = static_cast<const float*>(logits->data) + r * logits->stride;
      all.insert(all.end(), row, row + logits->cols);
    }
  };
  std::vector<TokenId> prompt;
  for (int i = 0; i < 23; ++i) prompt.push_back((i * 37 + 5) % model->vocab_size());
  const auto tokens = absl::MakeConstSpan(prompt);
  KvSequence one = cache->NewSequence();
  KvSequence two = cache->NewSequence();
  pass({{.tokens = tokens.first(7), .kv = &one, .num_logits = 0}});
  pass({{.tokens = tokens.subspan(7, 6), .kv = &one, .num_logits = 6},
        {.tokens = tokens.first(3), .kv = &two, .num_logits = 1}});
  one.Truncate(one.length() - 3);
  KvSequence fork = one.Fork();
  pass({{.tokens = tokens.subspan(13, 1), .kv = &one},
        {.tokens = tokens.subspan(15, 5), .kv = &fork, .num_logits = 5}});
  pass({{.tokens = tokens.subspan(3, 20), .kv = &two, .num_logits = 20}});
  return all;
}

std::vector<float> LogitsAlone(const std::string& folder, const Transformer::LoadOptions& options,
                               KvDType dtype, int threads) {
  Rank alone;
  alone.Load(folder, options, dtype, threads);
  return LogitsOf(alone.model.get(), alone.cache.get());
}

bool AreSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && !a.empty() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class GoldenModelRanks : public testing::TestWithParam<std::string> {};

TEST_P(GoldenModelRanks, HaveTheSameBitsAsOneRank) {
  const std::string folder = ModelFolder(GetParam());
  const std::vector<float> alone = LogitsAlone(folder, {}, KvDType::kF32, 1);
  for (const int world : {1, 2, 3, 4}) {
    Ranks ranks(folder, world);
    EXPECT_TRUE(AreSameBits(LogitsOf(ranks.first().model.get(), ranks.first().cache.get()), alone))
        << world << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModelRanks, testing::ValuesIn(GoldenModels()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); },
                               '_');
                           return name;
                         });

TEST(TransformerRanks, HaveTheSameBitsInEveryFormat) {
  const std::string folder = ModelFolder("llama-gqa");
  for (const DType format :
       {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ2K,
        DType::kQ3K, DType::kQ4K, DType::kQ5K, DType::kQ6K, DType::kIq4Nl, DType::kIq4Xs}) {
    const Transformer::LoadOptions options{.quantized = format};
    const std::vector<float> alone = LogitsAlone(folder, options, KvDType::kF32, 1);
    Ranks ranks(folder, 2, options);
    EXPECT_TRUE(AreSameBits(LogitsOf(ranks.first().model.get(), ranks.first().cache.get()), alone))
        << NameOf(format);
  }
}

TEST(TransformerRanks, HaveTheSameBitsWithEveryCacheType) {
  const std::string folder = ModelFolder("llama-gqa");
  for (const KvDType dtype : kAllKvDTypes) {
    const std::vector<float> alone = LogitsAlone(folder, {}, dtype, 1);
    Ranks ranks(folder, 2, {}, dtype);
    EXPECT_TRUE(AreSameBits(LogitsOf(ranks.first().model.get(), ranks.first().cache.get()), alone))
        << NameOf(dtype);
  }
}

TEST(TransformerRanks, TwoRanksEqualOneWithTwoThreads) {
  const std::string folder = ModelFolder("llama-gqa");
  const std::vector<float> alone = LogitsAlone(folder, {}, KvDType::kF32, 2);
  Ranks ranks(folder, 2, {}, KvDType::kF32, 1);
  EXPECT_TRUE(AreSameBits(LogitsOf(ranks.first().model.get(), ranks.first().cache.get()), alone));
}

// Runs every golden model over the loopback network.
TEST(TransformerRanks, LinkedRanksHaveTheSameBitsAsOneRank) {
  for (const std::string& name : GoldenModels()) {
    const std::string folder = ModelFolder(name);
    const std::vector<float> alone = LogitsAlone(folder, {}, KvDType::kF32, 1);
    for (const int world : {2, 3}) {
      auto groups = JoinLoopback({.world = world,
                                  .secret = kTestSecret,
                                  .silence = absl::Hours(1),
                                  .patience = absl::Hours(1)});
      ASSERT_TRUE(groups.ok()) << groups.status();
      Ranks ranks(*std::move(groups), folder);
      EXPECT_TRUE(
          AreSameBits(LogitsOf(ranks.first().model.get(), ranks.first().cache.get()), alone))
          << name << " " << world << " ranks";
    }
  }
}

TEST(PassMessage, DecodeRejectsOtherBytes) {
  const std::vector<int32_t> integers(PassTables(1, 2, 1, 4).size, 7);
  const PageCopy copy{.from = 3, .to = 5};
  const PassMessage pass{.model = 8,
                         .tables = PassTables(1, 2, 1, 4),
                         .finds_argmax = true,
                         .copies = {&copy, 1},
                         .integers = integers};
  std::vector<std::byte> bytes = pass.Encode();
  const auto decoded = PassMessage::Decode(bytes);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->model, 8);
  EXPECT_EQ(decoded->tables.max_pages, 4);
  EXPECT_TRUE(decoded->finds_argmax);
  ASSERT_EQ(decoded->copies.size(), 1);
  EXPECT_EQ(decoded->copies[0].to, 5);
  EXPECT_THAT(decoded->integers, testing::Each(7));
  for (const size_t size : {size_t{0}, size_t{5}, bytes.size() - 4}) {
    EXPECT_FALSE(PassMessage::Decode(absl::MakeConstSpan(bytes).first(size)).ok()) << size;
  }
  const int32_t negative = -1;
  std::memcpy(bytes.data() + 8, &negative, sizeof(negative));
  EXPECT_FALSE(PassMessage::Decode(bytes).ok());
}

}  // namespace
}  // namespace tandem
