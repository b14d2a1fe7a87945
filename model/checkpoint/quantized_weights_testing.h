// A fixture for tests of quantised checkpoints: a folder with one.
#ifndef TANDEM_MODEL_CHECKPOINT_QUANTIZED_WEIGHTS_TESTING_H_
#define TANDEM_MODEL_CHECKPOINT_QUANTIZED_WEIGHTS_TESTING_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/blocks.h"
#include "model/checkpoint/quantized_weights.h"
#include "tandem/json_value.h"
#include "tests/folder_testing.h"
#include "tests/safetensors_builder.h"

namespace tandem {

class QuantizedWeightsTest : public FolderTest {
 protected:
  absl::StatusOr<std::unique_ptr<Weights>> Open(const SafetensorsBuilder& file,
                                                const SortedJson& section,
                                                QuantizedForm form = QuantizedForm::kBlocks) const {
    Write("model.safetensors", file.Bytes());
    Write("config.json", SortedJson{{"quantization_config", section}}.dump());
    return Weights::Open(folder_, form);
  }
  // Returns the matrix of module "m" as f32, and checks that its dtype is `dtype`.
  static std::vector<float> Values(const Weights& weights, int rows, int cols, DType dtype) {
    const auto view = weights.Get("m.weight", {rows, cols});
    EXPECT_TRUE(view.ok()) << view.status();
    if (!view.ok()) return {};
    EXPECT_EQ(view->dtype, dtype) << NameOf(view->dtype) << ": " << weights.quantization();
    const auto described = weights.Describe("m.weight", {rows, cols});
    EXPECT_TRUE(described.ok() && described->dtype == dtype && described->data == nullptr);
    std::vector<float> values(size_t(rows) * cols);
    const auto* data = static_cast<const std::byte*>(view->data);
    for (int r = 0; r < rows; ++r) {
      WidenRow(data + r * RowBytes(view->dtype, cols), view->dtype, cols,
               values.data() + size_t(r) * cols);
    }
    return values;
  }
  // Checks the values in both forms.
  void ExpectWeights(const SafetensorsBuilder& file, const SortedJson& section,
                     const std::vector<float>& wanted, int rows, DType kept, DType floats) const {
    const int cols = static_cast<int>(wanted.size()) / rows;
    for (const auto& [form, dtype] :
         {std::pair(QuantizedForm::kBlocks, kept), {QuantizedForm::kFloats, floats}}) {
      const auto weights = Open(file, section, form);
      ASSERT_TRUE(weights.ok()) << weights.status();
      EXPECT_EQ(Values(**weights, rows, cols, dtype), wanted);
    }
  }
  void ExpectRefused(const SafetensorsBuilder& file, const SortedJson& section,
                     const std::string& says) const {
    const absl::Status status = Open(file, section).status();
    EXPECT_FALSE(status.ok()) << says;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(says));
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith(absl::StrCat(folder_, "/")));
    EXPECT_EQ(status.message().find('\n'), status.message().npos);
  }
};

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_QUANTIZED_WEIGHTS_TESTING_H_
