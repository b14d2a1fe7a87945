// The plan of a pass's rows: every row has its place, and every query vector is in one unit.
#include "kernels/cuda/row_plan.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/launch_shapes.h"

namespace tandem::cuda {
namespace {

struct Case {
  std::vector<int> counts;
  int num_padding;
  AttentionSizes sizes;
};

AttendTask TaskOf(const Case& one, int num_rows, int num_sms) {
  AttendTask task;
  task.rows = {.batch = static_cast<int>(one.counts.size()), .num_rows = num_rows};
  task.num_heads = one.sizes.num_heads;
  task.kv.num_kv_heads = one.sizes.num_kv_heads;
  task.kv.head_dim = one.sizes.head_dim;
  task.kv.dtype = one.sizes.dtype;
  task.num_sms = num_sms;
  task.decode_rows = DecodeRowsBesidePrompts(task);
  return task;
}

// Adds the vectors of `count` units to `seen`, as [sequence, vector].
void AddUnits(const Case& one, const std::vector<int32_t>& starts, const int32_t* unit, int count,
              int vectors, std::set<std::pair<int, int>>* seen) {
  const int heads = one.sizes.num_heads / one.sizes.num_kv_heads;
  for (int i = 0; i < count; ++i, unit += kUnitIntegers) {
    const int s = unit[0];
    if (s < 0) continue;
    ASSERT_EQ(unit[1], starts[s]);
    ASSERT_EQ(unit[2], one.counts[s]);
    for (int v = unit[3]; v < std::min(unit[3] + vectors, one.counts[s] * heads); ++v) {
      EXPECT_TRUE(seen->insert({s, v}).second) << "sequence " << s << " vector " << v;
    }
  }
}

void ExpectWholePlan(const Case& one, int num_sms, int* num_prompts) {
  std::vector<int32_t> starts = {0};
  for (const int count : one.counts) starts.push_back(starts.back() + count);
  const int num_rows = starts.back() + one.num_padding;
  const AttendTask task = TaskOf(one, num_rows, num_sms);
  const PlanLayout at = PlanLayoutOf(task);
  const std::vector<int32_t> plan = RowPlanOf(starts, num_rows, one.sizes, num_sms);
  ASSERT_EQ(static_cast<int64_t>(plan.size()), at.num_integers);
  EXPECT_EQ(at.few % 4, 0);
  EXPECT_GE(at.few, num_rows * kPlaceIntegers);
  for (size_t s = 0; s < one.counts.size(); ++s) {
    for (int row = starts[s]; row < starts[s + 1]; ++row) {
      EXPECT_EQ(plan[row * kPlaceIntegers], static_cast<int>(s));
      EXPECT_EQ(plan[row * kPlaceIntegers + 1], starts[s + 1] - row);
    }
  }
  for (int row = starts.back(); row < num_rows; ++row) EXPECT_EQ(plan[row * kPlaceIntegers], -1);
  std::set<std::pair<int, int>> seen;
  AddUnits(one, starts, plan.data() + at.prompts, at.num_prompts, kPromptVectors, &seen);
  AddUnits(one, starts, plan.data() + at.few, at.num_few, kAttendSizes[AttendSizeOf(task)].vectors,
           &seen);
  const int heads = one.sizes.num_heads / one.sizes.num_kv_heads;
  EXPECT_EQ(static_cast<int>(seen.size()), starts.back() * heads);
  *num_prompts += at.num_prompts > 0 ? 1 : 0;
}

TEST(RowPlan, HasAPlaceForEveryRowAndAUnitForEveryVector) {
  std::mt19937 random(3);
  int num_prompts = 0;
  constexpr int kTries = 600;
  for (int i = 0; i < kTries; ++i) {
    Case one;
    const int batch = 1 + static_cast<int>(random() % 9);
    for (int s = 0; s < batch; ++s) {
      const int most = random() % 3 == 0 ? 90 : 6;
      one.counts.push_back(static_cast<int>(random() % most));
    }
    one.num_padding = 1 + static_cast<int>(random() % 4);
    const int kv_heads = 1 + static_cast<int>(random() % 3);
    const int heads = 1 + static_cast<int>(random() % 9);
    one.sizes = {kv_heads * heads, kv_heads, random() % 2 == 0 ? 64 : 200,
                 kAllKvDTypes[random() % kNumKvDTypes]};
    ExpectWholePlan(one, /*num_sms=*/1, &num_prompts);
  }
  EXPECT_GT(num_prompts, 10);
  EXPECT_LT(num_prompts, kTries - 10);
}

// A rank without heads computes angles, which need places only.
TEST(RowPlan, HasOnlyPlacesWithoutHeads) {
  const std::vector<int32_t> starts = {0, 2, 3};
  const std::vector<int32_t> expected = {0, 2, 0, 1, 1, 1, -1, -1};
  EXPECT_EQ(RowPlanOf(starts, 4, {}, /*num_sms=*/1), expected);
}

}  // namespace
}  // namespace tandem::cuda
