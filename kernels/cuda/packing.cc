#include "kernels/cuda/packing.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/process_limits.h"
#include "base/thread_pool.h"
#include "kernels/blocks.h"
#include "kernels/cuda/product_layout.h"
#include "kernels/quantize.h"

namespace tandem::cuda {
namespace {

static_assert(kStepInputs == kBlockGroup);

constexpr bool TableIsThatOfBlocks() {
  for (int i = 0; i < 16; ++i) {
    if (static_cast<int>(kTableWords[i / 4] >> 8 * (i % 4) & 0xFF) != kIq4Numbers[i] + 128) {
      return false;
    }
  }
  return true;
}
static_assert(TableIsThatOfBlocks());

void OrWord(std::byte* at, uint32_t bits) {
  uint32_t word;
  std::memcpy(&word, at, sizeof(word));
  word |= bits;
  std::memcpy(at, &word, sizeof(word));
}

// Writes the numbers of a step and output into the tile's piece.  REQUIRES: they are zero there.
void PlaceNumbers(const BlockGroup& group, const BlockTiles& tiles, int step, int output,
                  std::byte* piece) {
  for (int input = 0; input < kBlockGroup; input += 4) {
    const PlaceOfWhole at = WholePlace(output, input);
    uint32_t codes;
    std::memcpy(&codes, group.codes + input, sizeof(codes));
    std::byte* const numbers = piece + tiles.numbers_at(step, at.lane);
    if (tiles.bits == 8) {
      OrWord(numbers + 4 * at.place, codes);
      continue;
    }
    OrWord(numbers + at.place / 2 * 4, (codes & 0x0F0F0F0F) << at.place % 2 * 4);
    if (tiles.bits == 6) {
      OrWord(piece + tiles.high_bits_at(step, at.lane), (codes >> 4 & 0x03030303) << 2 * at.place);
    }
  }
}

void PlaceF16(uint16_t bits, std::byte* at) { std::memcpy(at, &bits, sizeof(bits)); }

// Writes the scale or the minimum of a step and output, as stored in its group.
void PlaceScales(uint16_t common, const int8_t* factors, const BlockTiles& tiles, int step,
                 int output, std::byte* scales) {
  const int pair = output % (kTileOutputs / 2), of_pair = output / (kTileOutputs / 2);
  std::byte* const record = scales + tiles.record_at(step, pair);
  if (!tiles.has_factors()) return PlaceF16(common, record + of_pair * sizeof(common));
  for (int half = 0; half < tiles.halves(); ++half) {
    record[2 * half + of_pair] = static_cast<std::byte>(factors[half]);
  }
  PlaceF16(common, scales + tiles.common_at(pair) + of_pair * sizeof(common));
}

}  // namespace

void TileLayout::PackTileOfBlocks(int tile, DType dtype, std::byte* pieces) const {
  const BlockTiles tiles = BlockTilesOf(dtype);
  std::vector<std::byte> storage;
  for (int output = 0; output < kTileOutputs; ++output) {
    const Source source = SourceOf(tile * kTileOutputs + output);
    if (source.part == nullptr) continue;
    const std::byte* const row = BlockRow(source.part->matrix, source.row, dtype, &storage);
    for (int group = 0; group < NumSteps(num_inputs()); ++group) {
      const BlockGroup numbers = ReadBlockGroup(row, dtype, group);
      const int step = group % tiles.piece_steps();
      std::byte* const piece =
          pieces + static_cast<size_t>(group / tiles.piece_steps()) * tiles.piece_bytes();
      PlaceNumbers(numbers, tiles, step, output, piece);
      PlaceScales(numbers.scale, numbers.scale_factors, tiles, step, output,
                  piece + tiles.scales_at());
      if (!tiles.has_minimums) continue;
      PlaceScales(numbers.minimum, numbers.minimum_factors, tiles, step, output,
                  piece + tiles.minimums_at());
    }
  }
}

std::vector<std::byte> TileLayout::PackBlocks(DType dtype) const {
  TANDEM_CHECK(num_inputs() % kBlockGroup == 0);
  const BlockTiles tiles = BlockTilesOf(dtype);
  std::vector<std::byte> packed(tiles.packed_bytes(num_tiles(), num_inputs()));
  // Uses threads, because quantising floats searches for the best scales.
  ThreadPool pool(std::clamp(num_tiles(), 1, NumUsableCores()));
  pool.Run([&](int thread) {
    const Share share = ShareOf(num_tiles(), pool.num_threads(), thread);
    for (int64_t tile = share.begin; tile < share.end; ++tile) {
      PackTileOfBlocks(static_cast<int>(tile), dtype,
                       packed.data() + tiles.packed_bytes(static_cast<int>(tile), num_inputs()));
    }
  });
  return packed;
}

std::vector<float> TileLayout::PackBias() const {
  std::vector<float> bias(size_t(num_tiles()) * kTileOutputs);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = SourceOf(static_cast<int>(i)).bias();
  return bias;
}

std::vector<float> PackBiasPlainly(absl::Span<const WeightPart> parts) {
  std::vector<float> bias;
  for (const WeightPart& part : parts) {
    if (part.bias == nullptr) {
      bias.resize(bias.size() + part.matrix.rows);
    } else {
      bias.insert(bias.end(), part.bias, part.bias + part.matrix.rows);
    }
  }
  return bias;
}

}  // namespace tandem::cuda
