// Draft heads that `tandem quantize` writes as GGUF files.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/blocks.h"
#include "model/checkpoint/head_config.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_tensors.h"
#include "model/checkpoint/weights.h"
#include "tests/folder_testing.h"
#include "tools/checkpoints/quantized_model.h"

namespace tandem {
namespace {

struct Head {
  ModelConfig config;
  std::shared_ptr<const Weights> weights;
};

Head Open(const std::string& path) {
  Head head;
  head.config = *ReadModelConfig(path);
  head.weights = *ArrangeWeights(*Weights::Open(path), head.config);
  CompleteHead(*head.weights, &head.config);
  return head;
}

std::string GoldenHeadPath(const std::string& name) {
  return absl::StrCat(SourcePath("tests/data/heads/"), name);
}

absl::StatusOr<QuantizedModel> Quantize(const std::string& source, const std::string& out) {
  return WriteQuantizedModel(source, DType::kQ8_0, out, [](int64_t, int64_t) {});
}

std::vector<float> Widened(const ConstMatrixView& matrix) {
  std::vector<float> values(size_t(matrix.rows) * matrix.cols);
  for (int row = 0; row < matrix.rows; ++row) {
    WidenRow(
        static_cast<const std::byte*>(matrix.data) + row * RowBytes(matrix.dtype, matrix.stride),
        matrix.dtype, matrix.cols, values.data() + size_t(row) * matrix.cols);
  }
  return values;
}

// The rows of these heads are not whole blocks, so matrices keep their type, and norms become f32.
TEST(QuantizedHead, EqualsTheHeadOfTheFolder) {
  for (const char* const name :
       {"eagle3-flat", "eagle3-residual", "eagle3-speculators", "one-layer"}) {
    SCOPED_TRACE(name);
    const TestFolder folder;
    const std::string file = folder.Path("head.gguf");
    const absl::Status written = Quantize(GoldenHeadPath(name), file).status();
    ASSERT_TRUE(written.ok()) << written;
    const Head wanted = Open(GoldenHeadPath(name)), found = Open(file);
    const ModelConfig &a = wanted.config, &b = found.config;
    EXPECT_EQ(b.state_input, a.state_input);
    EXPECT_EQ(b.target_layers, a.target_layers);
    EXPECT_EQ(b.num_states, a.num_states);
    EXPECT_EQ(b.target_hidden_size, a.target_hidden_size);
    EXPECT_EQ(b.norms_states, a.norms_states);
    EXPECT_EQ(b.norms_residual, a.norms_residual);
    EXPECT_EQ(b.has_own_embedding, a.has_own_embedding);
    EXPECT_EQ(b.tied_embeddings, a.tied_embeddings);
    EXPECT_EQ(b.draft_vocab_size, a.draft_vocab_size);
    EXPECT_EQ(b.vocab_size, a.vocab_size);
    EXPECT_EQ(b.rope.theta, a.rope.theta);
    for (const TensorSpec& tensor : TensorsOf(a)) {
      const auto want = wanted.weights->Get(tensor.name, tensor.shape);
      const auto got = found.weights->Get(tensor.name, tensor.shape);
      ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
      EXPECT_EQ(Widened(*got), Widened(*want)) << tensor.name;
    }
    EXPECT_EQ(found.weights->Has("d2t"), wanted.weights->Has("d2t"));
    if (wanted.weights->Has("d2t")) {
      EXPECT_EQ(*found.weights->GetIntegers("d2t", a.draft_vocab_size),
                *wanted.weights->GetIntegers("d2t", a.draft_vocab_size));
    }
    std::filesystem::remove(file);
  }
}

}  // namespace
}  // namespace tandem
