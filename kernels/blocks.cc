#include "kernels/blocks.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/block_reading.h"

namespace tandem {
namespace {

constexpr int kSuperBlock = 256;  // weights of a block of the K formats and of IQ4_XS

}  // namespace

BlockShape BlockShapeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return {1, static_cast<int>(SizeOf(dtype))};
    case DType::kInt8:
      break;
    case DType::kQ8_0:
      return {kBlockGroup, 34};
    case DType::kQ4_0:
    case DType::kIq4Nl:
      return {kBlockGroup, 18};
    case DType::kQ4_1:
      return {kBlockGroup, 20};
    case DType::kQ5_0:
      return {kBlockGroup, 22};
    case DType::kQ5_1:
      return {kBlockGroup, 24};
    case DType::kQ2K:
      return {kSuperBlock, 84};
    case DType::kQ3K:
      return {kSuperBlock, 110};
    case DType::kQ4K:
      return {kSuperBlock, 144};
    case DType::kQ5K:
      return {kSuperBlock, 176};
    case DType::kQ6K:
      return {kSuperBlock, 210};
    case DType::kIq4Xs:
      return {kSuperBlock, 136};
  }
  TANDEM_CHECK(false);
}

size_t RowBytes(DType dtype, int64_t cols) {
  const BlockShape shape = BlockShapeOf(dtype);
  TANDEM_CHECK(cols % std::min(shape.inputs, kBlockGroup) == 0);
  return static_cast<size_t>((cols + shape.inputs - 1) / shape.inputs) * shape.bytes;
}

BlockGroup ReadBlockGroup(const std::byte* row, DType dtype, int group) {
  const BlockShape shape = BlockShapeOf(dtype);
  const int groups = shape.inputs / kBlockGroup;  // of a block
  TANDEM_CHECK(groups > 0);
  const std::byte* const block = row + static_cast<size_t>(group / groups) * shape.bytes;
  return WithBlockFormat(dtype, [&]<DType kDType>() {
    return block_reading::ReadGroup<kDType>(block_reading::Block(block), group % groups);
  });
}

}  // namespace tandem
