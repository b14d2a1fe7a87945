// Every drafter and every disturbance of the bug catalogue (docs/bug_catalogue.md) crossed in one
// test, and the proof that the test sees faults.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "gtest/gtest.h"
#include "tests/disturbed_world.h"

namespace tandem {
namespace {

// Runs seeds [0, kSeeds), or fewer on a slow machine. TANDEM_CATALOGUE_SEEDS sets another number.
constexpr int kSeeds = 100;
constexpr int kMinSeeds = 4;
constexpr absl::Duration kEnough = absl::Seconds(3);

CatalogueCounts RunSeeds(const TargetWrapper& wrapper = nullptr) {
  const char* asked = std::getenv("TANDEM_CATALOGUE_SEEDS");
  const int num_seeds = asked == nullptr ? kSeeds : std::atoi(asked);
  const Instant start = Instant::Now();
  CatalogueCounts all;
  for (int seed = 0; seed < num_seeds; ++seed) {
    if (asked == nullptr && seed >= kMinSeeds && Instant::Now() - start > kEnough) break;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const CatalogueCounts counts = RunCatalogueWorld(seed, wrapper);
    if (!wrapper) {
      EXPECT_EQ(counts.mismatches, 0);
    }
    all += counts;
  }
  return all;
}

TEST(KnownFaults, EveryDrafterInEveryDisturbanceEqualsPlainDecoding) {
  const CatalogueCounts all = RunSeeds();
  // Every disturbance took place.
  EXPECT_GT(all.failed_generations, 3);
  EXPECT_GT(all.failures, 50);
  EXPECT_GT(all.preemptions, 50);
  EXPECT_GT(all.hit_tokens, 100);
  EXPECT_GT(all.published_evictions, 10);
  EXPECT_GT(all.accepted, 300);
  EXPECT_GT(all.proposed - all.accepted, 300);
}

// A target whose cache entries keep their first value, as if a rollback did not free them.
class KeepingModel final : public LanguageModel {
 public:
  KeepingModel(FakeModel* model, bool keeps) : model_(model), keeps_(keeps) {}
  int vocab_size() const override { return model_->vocab_size(); }
  int context_length() const override { return model_->context_length(); }

  absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) override {
    auto rows = model_->Forward(requests);
    if (!rows.ok()) return rows;
    auto* row = static_cast<float*>(rows->data);
    for (const ForwardRequest& r : requests) {
      const Tokens read = FakeModel::Contents(*r.kv);
      Tokens& kept = contents_[r.kv];
      const size_t start = read.size() - r.tokens.size();
      if (!keeps_ || start == 0) kept.clear();
      for (size_t i = kept.size(); i < read.size(); ++i) kept.push_back(read[i]);
      for (int length = r.kv->length() - r.num_logits + 1; length <= r.kv->length(); ++length) {
        const std::vector<float> wanted = model_->RowAfter(absl::MakeConstSpan(kept).first(length));
        std::copy(wanted.begin(), wanted.end(), row);
        row += rows->stride;
      }
    }
    return rows;
  }

 private:
  FakeModel* model_;
  bool keeps_;
  std::unordered_map<const KvSequence*, Tokens> contents_;
};

TEST(KnownFaults, ACacheThatKeepsRejectedTokensIsSeen) {
  for (const bool keeps : {false, true}) {
    const CatalogueCounts all = RunSeeds(
        [keeps](FakeModel* target) { return std::make_unique<KeepingModel>(target, keeps); });
    if (keeps) {
      EXPECT_GT(all.mismatches, 30);
    } else {
      EXPECT_EQ(all.mismatches, 0);
    }
  }
}

// A target whose rows depend on how many rows share the pass.
class BatchDependentModel final : public LanguageModel {
 public:
  explicit BatchDependentModel(FakeModel* model) : model_(model) {}
  int vocab_size() const override { return model_->vocab_size(); }
  int context_length() const override { return model_->context_length(); }

  absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) override {
    auto rows = model_->Forward(requests);
    if (!rows.ok() || rows->rows < 4) return rows;
    for (int64_t i = 0; i < rows->rows; ++i) {
      float& logit = static_cast<float*>(rows->data)[i * rows->stride];
      logit = std::nextafter(logit, 100.0f);
    }
    return rows;
  }

 private:
  FakeModel* model_;
};

// One unit in the last place of one logit does not change the text, but it changes the
// log-probabilities.
TEST(KnownFaults, ARowThatDependsOnItsBatchByOneBitIsSeen) {
  EXPECT_GT(RunSeeds([](FakeModel* target) {
              return std::make_unique<BatchDependentModel>(target);
            }).mismatches,
            30);
}

}  // namespace
}  // namespace tandem
