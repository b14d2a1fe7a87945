#include "kernels/cuda/packing.h"

#include <cstring>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_testing.h"
#include "kernels/cuda/packing_on_device.h"
#include "kernels/product_testing.h"

namespace tandem::cuda {
namespace {

// Packs on the host, element after element, as product_layout.h describes.
class PlainTileLayout : public TileLayout {
 public:
  using TileLayout::TileLayout;

  std::vector<uint16_t> PackBf16() const {
    std::vector<uint16_t> packed;
    for (int tile = 0; tile < num_tiles(); ++tile) {
      for (int i = 0; i < NumSteps(num_inputs()) * kTileOutputs * kStepInputs; ++i) {
        const PlaceInTile at = WeightPlace(i / 256 % 2, i / 8 % 32, i / 2 % 4);
        const int input = i / (kTileOutputs * kStepInputs) * kStepInputs + at.input + i % 2;
        const Source source = SourceOf(tile * kTileOutputs + at.output);
        const bool is_inside = source.part != nullptr && input < num_inputs();
        const auto* const numbers = is_inside
                                        ? static_cast<const uint16_t*>(source.part->matrix.data) +
                                              source.row * source.part->matrix.stride
                                        : nullptr;
        packed.push_back(is_inside ? numbers[input] : 0);
      }
    }
    return packed;
  }
};

// Parts of bf16 with all bits of all numbers different from their neighbours'.
struct Parts {
  Parts(const std::vector<int>& outputs, int inputs, int gap) {
    for (const int rows : outputs) {
      const int stride = inputs + gap;
      std::vector<uint16_t> numbers(static_cast<size_t>(rows) * stride);
      for (uint16_t& number : numbers) number = static_cast<uint16_t>(next += 40503);
      storage.push_back(std::move(numbers));
      parts.push_back({{storage.back().data(), DType::kBF16, rows, inputs, stride}});
    }
  }
  uint32_t next = 1;
  std::vector<std::vector<uint16_t>> storage;
  std::vector<WeightPart> parts;
};

class PackingOnDevice : public CudaTest {
 protected:
  // Packs over memory with other contents, in pieces of the given number of bytes.
  void Compare(const Parts& of, PartOrder order, size_t piece_bytes) {
    const PlainTileLayout layout(of.parts, order);
    const std::vector<uint16_t> want = layout.PackBf16();
    ASSERT_EQ(want.size() * sizeof(uint16_t),
              PackedWeightBytes(layout.num_tiles(), layout.num_inputs()));
    const Buffer packed = Upload(std::vector<uint16_t>(want.size(), 0xABCD));
    auto& cuda = dynamic_cast<CudaBackend&>(backend());
    const absl::Status status =
        PackOnDevice(of.parts, order, &cuda, cuda.stream(), packed.data(), piece_bytes);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(Download<uint16_t>(packed), want)
        << layout.num_outputs() << "x" << layout.num_inputs() << " pieces of " << piece_bytes;
  }
};

TEST_F(PackingOnDevice, WritesEveryWeightOnceAndZerosElsewhere) {
  for (const int inputs : {1, 2, 31, 32, 33, 70, 129}) {
    for (const int gap : {0, 1, 5}) {
      for (const size_t piece_bytes : {size_t{1}, size_t{500}, kPieceBytes}) {
        Compare(Parts({19, 7, 1}, inputs, gap), PartOrder::kConcatenated, piece_bytes);
        Compare(Parts({19, 19}, inputs, gap), PartOrder::kGateAndUp, piece_bytes);
      }
    }
  }
}

// Several blocks for the inputs of an output.
TEST_F(PackingOnDevice, PacksManyInputs) {
  Compare(Parts({16}, 1025, 0), PartOrder::kConcatenated, kPieceBytes);
  Compare(Parts({8, 8}, 600, 2), PartOrder::kGateAndUp, 2000);
}

TEST_F(PackingOnDevice, IsWhatTheBackendPacks) {
  for (const PartOrder order : {PartOrder::kConcatenated, PartOrder::kGateAndUp}) {
    const Parts of({21, 21}, 45, 0);
    const PackedWeight weight = PackParts(backend(), of.parts, order);
    EXPECT_EQ(Download<uint16_t>(weight.data), PlainTileLayout(of.parts, order).PackBf16());
  }
}

TEST_F(PackingOnDevice, UploadsPlainRowsWithoutGaps) {
  const Parts of({5, 3}, 7, 2);
  EXPECT_EQ(PlainBytes(of.parts), sizeof(uint16_t) * 8 * 7);
  const Buffer rows = Upload(std::vector<uint16_t>(8 * 7));
  UploadPlainly(of.parts, &backend(), rows.data());
  std::vector<uint16_t> want;
  for (const WeightPart& part : of.parts) {
    for (int r = 0; r < part.matrix.rows; ++r) {
      const auto* const row = static_cast<const uint16_t*>(part.matrix.data) + r * 9;
      want.insert(want.end(), row, row + 7);
    }
  }
  EXPECT_EQ(Download<uint16_t>(rows), want);
}

TEST(TileLayout, HasABiasForEachOutputAndZerosElsewhere) {
  for (const PartOrder order : {PartOrder::kConcatenated, PartOrder::kGateAndUp}) {
    const bool alternates = order == PartOrder::kGateAndUp;
    const Parts first({19}, 1, 0), second({alternates ? 19 : 7}, 1, 0);
    const std::vector<float> bias(19, 3.0f);
    const std::vector<WeightPart> parts = {first.parts[0], {second.parts[0].matrix, bias.data()}};
    const std::vector<float> packed = TileLayout(parts, order).PackBias();
    ASSERT_EQ(packed.size(), alternates ? 48 : 32);
    for (size_t i = 0; i < packed.size(); ++i) {
      const bool has_bias = alternates ? i % 16 >= 8 && i / 16 * 8 + i % 8 < 19 : 19 <= i && i < 26;
      EXPECT_EQ(packed[i], has_bias ? 3.0f : 0.0f) << i;
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
