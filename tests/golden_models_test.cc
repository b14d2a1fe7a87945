// Every golden model compared with the reference's logits and greedy continuation
// (tests/data/README.md), and row independence: the other rows of a pass do not change a row's
// bits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/kv_testing.h"
#include "kvcache/paged_kv_cache.h"
#include "model/sampling.h"
#include "model/transformer.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

// From the README next to the data: the reference differs from its own float64 run by up to 2.6e-5,
// and from another order of summation by up to 2.4e-5. 2e-4 leaves a factor of 8 for further
// orders, and the smallest mistake tried moves logits by 4e-3.
constexpr float kTolerance = 2e-4f;

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenModelPath(""))) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A model on the CPU with its own cache.
struct World {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Transformer> model;
  std::unique_ptr<PagedKvCache> cache;

  World(const std::string& name, const CpuOptions& options, int page_size) {
    backend = *MakeCpuBackend(options);
    model = *Transformer::Load(GoldenModelPath(name), backend.get());
    cache = *PagedKvCache::Create(backend.get(), model->kv_layout(page_size), 2048 / page_size);
  }

  // Returns a sequence of the variant for the reference's longest text, its greedy continuation.
  KvSequence NewSequence() const { return cache->NewSequence(model->cache_variant(72)); }

  // Feeds `tokens` to `kv` in passes of `chunk` and returns the logits of every row.
  std::vector<float> Feed(KvSequence* kv, absl::Span<const TokenId> tokens, size_t chunk) {
    std::vector<float> logits;
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const ForwardRequest request{
          .tokens = tokens.subspan(begin, chunk),
          .kv = kv,
          .num_logits = static_cast<int>(std::min(chunk, tokens.size() - begin))};
      Append(*model->Forward({&request, 1}), &logits);
    }
    return logits;
  }

  static void Append(const MatrixView& rows, std::vector<float>* logits) {
    const float* data = static_cast<const float*>(rows.data);
    logits->insert(logits->end(), data, data + static_cast<size_t>(rows.rows) * rows.cols);
  }
};

class GoldenModel : public testing::TestWithParam<std::string> {
 protected:
  GoldenModel() : golden_(ReadGolden(GoldenModelPath(GetParam()))) {}
  Golden golden_;
};

TEST_P(GoldenModel, LogitsEqualTheReferenceOnEveryInstructionSet) {
  for (const std::string& isa : CpuIsas()) {
    SCOPED_TRACE(isa);
    World world(GetParam(), {.num_threads = 2, .compute = CpuCompute::kF32, .isa = isa}, 16);
    KvSequence kv = world.NewSequence();
    const std::vector<float> logits = world.Feed(&kv, golden_.input_ids, golden_.input_ids.size());
    ASSERT_EQ(logits.size(), golden_.logits.size());
    float worst = 0.0f;
    for (size_t i = 0; i < logits.size(); ++i) {
      worst = std::max(worst, std::abs(logits[i] - golden_.logits[i]));
    }
    EXPECT_LE(worst, kTolerance);
  }
}

TEST_P(GoldenModel, GreedyContinuationEqualsTheReference) {
  for (const std::string& isa : CpuIsas()) {
    SCOPED_TRACE(isa);
    World world(GetParam(), {.num_threads = 2, .compute = CpuCompute::kF32, .isa = isa}, 16);
    KvSequence kv = world.NewSequence();
    std::vector<TokenId> tokens(golden_.input_ids.begin(), golden_.input_ids.begin() + 8);
    std::vector<TokenId> continuation;
    while (continuation.size() < golden_.greedy_ids.size()) {
      const ForwardRequest request{
          .tokens = absl::MakeConstSpan(tokens).subspan(kv.length()), .kv = &kv, .num_logits = 1};
      const MatrixView row = *world.model->Forward({&request, 1});
      const TokenId next =
          ArgMax({static_cast<const float*>(row.data), static_cast<size_t>(row.cols)});
      tokens.push_back(next);
      continuation.push_back(next);
    }
    EXPECT_EQ(continuation, golden_.greedy_ids);
  }
}

// Passes of 1 to 17 rows, chunks around the page size, and garbage beyond the length: every row has
// the same bits as when one token is fed at a time.
TEST_P(GoldenModel, RowsHaveTheSameBitsInEveryChunking) {
  for (const std::string& isa : CpuIsas()) {
    for (const CpuCompute compute : {CpuCompute::kF32, CpuCompute::kAuto}) {
      SCOPED_TRACE(isa);
      const CpuOptions options{.num_threads = 2, .compute = compute, .isa = isa};
      World reference(GetParam(), options, 16);
      KvSequence alone = reference.NewSequence();
      const std::vector<float> want = reference.Feed(&alone, golden_.input_ids, 1);
      for (const int page_size : {1, 4, 16}) {
        World world(GetParam(), options, page_size);
        FillFreePages(world.cache.get(), std::nanf(""));
        for (size_t chunk = 2; chunk <= 17; ++chunk) {
          KvSequence kv = world.NewSequence();
          const std::vector<float> got = world.Feed(&kv, golden_.input_ids, chunk);
          ASSERT_EQ(got.size(), want.size());
          ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
              << "page size " << page_size << ", chunk " << chunk;
          kv.Truncate(0);
          FillFreePages(world.cache.get(), chunk % 2 == 0 ? 1e30f : std::nanf(""));
        }
      }
    }
  }
}

// Sequences of different lengths in one pass, in every rotation of their order.
TEST_P(GoldenModel, RowsHaveTheSameBitsInEveryBatch) {
  constexpr int kSequences = 5;
  World world(GetParam(), {.num_threads = 2}, 4);
  const absl::Span<const TokenId> ids = golden_.input_ids;
  std::vector<std::vector<float>> want(kSequences);
  const auto prefix_of = [&](int i) { return ids.first(1 + 3 * i); };
  const auto rest_of = [&](int i) { return ids.subspan(1 + 3 * i, 1 + i); };
  for (int i = 0; i < kSequences; ++i) {
    KvSequence kv = world.NewSequence();
    world.Feed(&kv, prefix_of(i), 1);
    want[i] = world.Feed(&kv, rest_of(i), 1);
  }
  for (int rotation = 0; rotation < kSequences; ++rotation) {
    std::vector<KvSequence> sequences(kSequences);
    std::vector<ForwardRequest> requests;
    for (int slot = 0; slot < kSequences; ++slot) {
      const int i = (slot + rotation) % kSequences;
      sequences[slot] = world.NewSequence();
      world.Feed(&sequences[slot], prefix_of(i), 17);
      requests.push_back({.tokens = rest_of(i),
                          .kv = &sequences[slot],
                          .num_logits = static_cast<int>(rest_of(i).size())});
    }
    std::vector<float> got;
    World::Append(*world.model->Forward(requests), &got);
    std::vector<float> expected;
    for (int slot = 0; slot < kSequences; ++slot) {
      const std::vector<float>& rows = want[(slot + rotation) % kSequences];
      expected.insert(expected.end(), rows.begin(), rows.end());
    }
    ASSERT_EQ(got.size(), expected.size());
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
  }
}

// After a prefix hit the rows have the same bits as after reading all tokens.
TEST_P(GoldenModel, PrefixHitsChangeNoBit) {
  World world(GetParam(), {.num_threads = 2}, 4);
  const absl::Span<const TokenId> ids = golden_.input_ids;
  KvSequence first = world.NewSequence();
  const std::vector<float> want = world.Feed(&first, ids, 1);
  world.cache->Publish(ids, &first);
  for (int length = 1; length <= static_cast<int>(ids.size()); ++length) {
    KvSequence hit = world.cache->NewSequenceWithPrefix(ids.first(length), first.variant());
    EXPECT_EQ(hit.length(), (length - 1) / 4 * 4);
    const std::vector<float> got = world.Feed(&hit, ids.first(length).subspan(hit.length()), 3);
    const size_t begin = want.size() / ids.size() * length - got.size();
    EXPECT_EQ(std::memcmp(got.data(), want.data() + begin, got.size() * sizeof(float)), 0);
  }
}

TEST_P(GoldenModel, FailedPassesChangeNothing) {
  World world(GetParam(), {.num_threads = 1}, 4);
  const std::vector<TokenId> long_tokens(world.model->context_length() + 1, 1);
  KvSequence fits = world.NewSequence();
  KvSequence too_long = world.NewSequence();
  const std::vector<ForwardRequest> requests = {
      {.tokens = absl::MakeConstSpan(golden_.input_ids).first(3), .kv = &fits, .num_logits = 1},
      {.tokens = long_tokens, .kv = &too_long, .num_logits = 1}};
  EXPECT_EQ(world.model->Forward(requests).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(fits.length(), 0);
  EXPECT_EQ(too_long.length(), 0);
  EXPECT_EQ(world.cache->num_free_pages(), world.cache->num_pages());
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModel, testing::ValuesIn(ModelNames()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace tandem
