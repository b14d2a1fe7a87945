// The numerics contract over random schedules. However a sequence's tokens are split into passes,
// and whatever else shares the passes (other sequences, drafts that are rolled back, prefix hits,
// recomputed caches), every row has the bits of one-row decoding on every instruction set.
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_testing.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/kv_testing.h"
#include "kvcache/paged_kv_cache.h"
#include "model/transformer.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

using LogitRow = std::vector<float>;

// A model with its cache.
struct Machine {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Transformer> model;
  std::unique_ptr<PagedKvCache> cache;

  Machine(const std::string& folder, const CpuOptions& options, int page_size, KvDType kv_dtype)
      : backend(*MakeCpuBackend(options)),
        model(*Transformer::Load(folder, backend.get())),
        cache(*PagedKvCache::Create(backend.get(), model->kv_layout(page_size, kv_dtype), 256)) {}

  std::vector<LogitRow> Forward(const std::vector<ForwardRequest>& requests) {
    const MatrixView logits = *model->Forward(requests);
    std::vector<LogitRow> rows;
    for (int64_t i = 0; i < logits.rows; ++i) {
      const float* row = static_cast<const float*>(logits.data) + i * logits.stride;
      rows.emplace_back(row, row + logits.cols);
    }
    return rows;
  }
};

class Schedule {
 public:
  static constexpr int kSequences = 4;
  static constexpr int kLength = 40;

  Schedule(const std::string& folder, const CpuOptions& options, int page_size, KvDType kv_dtype,
           uint64_t seed)
      : random_(seed), machine_(folder, options, page_size, kv_dtype) {
    Machine reference(folder, options, 16, kv_dtype);
    // The sequences share the first half of their tokens.
    for (int s = 0; s < kSequences; ++s) {
      texts_.emplace_back();
      for (int i = 0; i < kLength; ++i) {
        const bool is_shared = s > 0 && i < kLength / 2;
        texts_[s].push_back(is_shared ? texts_[0][i] : AnyToken());
      }
      KvSequence kv = reference.cache->NewSequence();
      rows_.emplace_back();
      for (int i = 0; i < kLength; ++i) {
        rows_[s].push_back(
            reference.Forward({{.tokens = {&texts_[s][i], 1}, .kv = &kv, .num_logits = 1}})[0]);
      }
      sequences_.push_back(machine_.cache->NewSequence());
    }
  }

  void Run(int num_passes) {
    for (int pass = 0; pass < num_passes; ++pass) {
      for (int s = 0; s < kSequences; ++s) Disturb(s);
      constexpr float kPoisons[] = {std::numeric_limits<float>::quiet_NaN(), 1e30f};
      FillFreePages(machine_.cache.get(), kPoisons[pass % 2]);
      Pass();
      if (testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  int Uniform(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  TokenId AnyToken() { return Uniform(0, machine_.model->vocab_size() - 1); }

  // Preempts the sequence, rolls it back, starts it from a prefix hit, or does nothing.
  void Disturb(int s) {
    KvSequence& kv = sequences_[s];
    if (kv.length() == kLength || Uniform(0, 9) == 0) {
      machine_.cache->Publish(texts_[s], &kv);
      kv = machine_.cache->NewSequenceWithPrefix(texts_[s]);
    } else if (Uniform(0, 9) == 0) {
      kv.Truncate(Uniform(0, kv.length()));
    }
  }

  // Runs one pass over some of the sequences in any order, each with some true tokens, sometimes
  // followed by a draft.
  void Pass() {
    struct Part {
      int sequence;
      int begin;
      int num_true;
      std::vector<TokenId> tokens;
    };
    std::vector<int> order(kSequences);
    for (int s = 0; s < kSequences; ++s) order[s] = s;
    std::shuffle(order.begin(), order.end(), random_);
    order.resize(Uniform(1, kSequences));
    std::vector<Part> parts;
    for (const int s : order) {
      const int begin = sequences_[s].length();
      const int num_true = std::min(Uniform(1, Uniform(1, 17)), kLength - begin);
      Part part{.sequence = s, .begin = begin, .num_true = num_true, .tokens = {}};
      part.tokens.assign(texts_[s].begin() + begin, texts_[s].begin() + begin + num_true);
      for (int k = Uniform(0, 1) * Uniform(0, 8); k > 0; --k) part.tokens.push_back(AnyToken());
      parts.push_back(part);
    }
    std::vector<ForwardRequest> requests;
    for (const Part& part : parts) {
      requests.push_back({.tokens = part.tokens,
                          .kv = &sequences_[part.sequence],
                          .num_logits = static_cast<int>(part.tokens.size())});
    }
    const std::vector<LogitRow> got = machine_.Forward(requests);
    size_t first = 0;
    for (const Part& part : parts) {
      for (int i = 0; i < part.num_true; ++i) {
        const LogitRow& want = rows_[part.sequence][part.begin + i];
        ASSERT_EQ(got[first + i].size(), want.size());
        ASSERT_EQ(std::memcmp(got[first + i].data(), want.data(), want.size() * sizeof(float)), 0)
            << "position " << part.begin + i << " in a pass of " << got.size() << " rows";
      }
      first += part.tokens.size();
      sequences_[part.sequence].Truncate(part.begin + part.num_true);
    }
  }

  std::mt19937_64 random_;
  Machine machine_;
  std::vector<std::vector<TokenId>> texts_;
  std::vector<std::vector<LogitRow>> rows_;  // the expected row of every text and position
  std::vector<KvSequence> sequences_;
};

TEST(Numerics, RandomSchedulesChangeNoBit) {
  uint64_t seed = 0;
  for (const std::string model :
       {"llama-gqa", "llama-mqa", "mistral-window", "qwen2-fp16", "qwen3-norm", "llama-bf16",
        "gemma2", "gemma3-text", "cohere2", "olmo2"}) {
    for (const std::string& isa : CpuIsas()) {
      for (const CpuCompute compute : {CpuCompute::kF32, CpuCompute::kAuto}) {
        for (const int page_size : {1, 4, 16}) {
          SCOPED_TRACE(absl::StrCat(model, " ", isa, " page ", page_size, " seed ", ++seed));
          Schedule schedule(GoldenModelPath(model),
                            {.num_threads = 1, .compute = compute, .isa = isa}, page_size,
                            KvDType::kF32, seed);
          schedule.Run(25);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(Numerics, RandomSchedulesChangeNoBitWithEveryCacheType) {
  uint64_t seed = 1000;
  for (const KvDType kv_dtype : {KvDType::kBF16, KvDType::kInt8}) {
    for (const std::string model : {"llama-gqa", "mistral-window", "qwen3-norm", "llama-bf16"}) {
      for (const std::string& isa : CpuIsas()) {
        for (const int page_size : {1, 4, 16}) {
          SCOPED_TRACE(absl::StrCat(model, " ", isa, " page ", page_size, " cache ",
                                    NameOf(kv_dtype), " seed ", ++seed));
          Schedule schedule(GoldenModelPath(model),
                            {.num_threads = 1, .compute = CpuCompute::kAuto, .isa = isa}, page_size,
                            kv_dtype, seed);
          schedule.Run(25);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// The shipped shapes, whose products are cut into chunks and shared among threads.
TEST(Numerics, RandomSchedulesChangeNoBitOfTheShippedDraft) {
  for (const std::string& isa : CpuIsas()) {
    for (const int num_threads : {1, 2}) {
      SCOPED_TRACE(absl::StrCat(isa, " threads ", num_threads));
      Schedule schedule(ShippedModelPath("storyteller-1m"),
                        {.num_threads = num_threads, .compute = CpuCompute::kAuto, .isa = isa}, 16,
                        KvDType::kF32, 7);
      schedule.Run(4);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace tandem
