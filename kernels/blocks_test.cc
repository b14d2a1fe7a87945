#include "kernels/blocks.h"

#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/source_path_testing.h"
#include "gtest/gtest.h"
#include "kernels/kernel_testing.h"

namespace tandem {
namespace {

struct Reference {
  std::vector<std::byte> bytes;
  std::vector<float> weights;
};

std::vector<std::byte> BytesOfHex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// 512 weights of each format with random bytes, and their values according to the reference
// implementation (tests/data/README.md).
std::map<std::string, Reference> ReadReferences() {
  std::map<std::string, Reference> references;
  std::ifstream file(SourcePath("tests/data/blocks/blocks.txt"));
  std::string name, blocks, weights;
  while (file >> name >> blocks >> weights) {
    Reference reference{.bytes = BytesOfHex(blocks), .weights = {}};
    const std::vector<std::byte> floats = BytesOfHex(weights);
    reference.weights.resize(floats.size() / sizeof(float));
    std::memcpy(reference.weights.data(), floats.data(), floats.size());
    references[name] = std::move(reference);
  }
  return references;
}

class EveryBlockFormat : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Blocks, EveryBlockFormat, testing::ValuesIn(kAllBlockDTypes),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(EveryBlockFormat, MatchesTheReference) {
  const std::map<std::string, Reference> references = ReadReferences();
  ASSERT_TRUE(references.contains(NameOf(GetParam())));
  const Reference& reference = references.at(NameOf(GetParam()));
  const int size = static_cast<int>(reference.weights.size());
  ASSERT_EQ(size, 512);
  ASSERT_EQ(RowBytes(GetParam(), size), reference.bytes.size());
  std::vector<float> weights(size);
  WidenRow(reference.bytes.data(), GetParam(), size, weights.data());
  EXPECT_EQ(weights, reference.weights);
}

TEST_P(EveryBlockFormat, EveryBitOfABlockCounts) {
  const int size = BlockShapeOf(GetParam()).inputs;
  std::vector<std::byte> bytes = ReadReferences().at(NameOf(GetParam())).bytes;
  bytes.resize(BlockShapeOf(GetParam()).bytes);
  std::vector<float> before(size), after(size);
  WidenRow(bytes.data(), GetParam(), size, before.data());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
    WidenRow(bytes.data(), GetParam(), size, after.data());
    EXPECT_NE(std::memcmp(before.data(), after.data(), size * sizeof(float)), 0) << "bit " << bit;
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
  }
}

TEST(Blocks, IsBlocksAndRowBytesKnowEveryFormat) {
  for (const DType dtype : kAllBlockDTypes) EXPECT_TRUE(IsBlocks(dtype)) << NameOf(dtype);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kInt8}) {
    EXPECT_FALSE(IsBlocks(dtype)) << NameOf(dtype);
  }
  EXPECT_EQ(RowBytes(DType::kBF16, 7), 14u);
  EXPECT_EQ(RowBytes(DType::kQ4K, 512), 288u);
}

}  // namespace
}  // namespace tandem
