// Products with weights in tiles: their bits, their sums in double precision on the host, and their
// time.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/float16.h"
#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/operations.h"
#include "tools/kernel_lab/lab.h"
#include "tools/kernel_lab/product_tasks.h"

namespace tandem::kernel_lab {
namespace {

using cuda::BlockTiles;
using cuda::CeilDiv;
using cuda::kStepInputs;
using cuda::kTileOutputs;

// Outputs are compared up to this size, and their first and last rows beyond.
constexpr int64_t kComparedBytes = int64_t{32} << 20;

// The numbers of a weight in double precision, read as product_layout.h describes them.
class HostWeight {
 public:
  HostWeight(const Pool& pool, size_t begin, DType dtype, int inputs)
      : pool_(pool), begin_(begin), dtype_(dtype), num_steps_(cuda::NumSteps(inputs)) {}

  // Output `output` counts in the order of tiles. Requires input < inputs.
  double at(int output, int input) const {
    const int tile = output / kTileOutputs, in_tile = output % kTileOutputs;
    const int step = input / kStepInputs, in_step = input % kStepInputs;
    return IsBlocks(dtype_) ? OfBlocks(tile, in_tile, step, in_step)
                            : OfBf16(tile, in_tile, step, in_step);
  }

 private:
  double OfBf16(int tile, int output, int step, int input) const {
    const int half = input / 16, pair = input % 16;
    const int lane = output % 8 * 4 + pair % 8 / 2, word = output / 8 + pair / 8 * 2;
    const size_t at =
        ((size_t(tile) * num_steps_ + step) * 2 + half) * 512 + lane * 16 + word * 4 + pair % 2 * 2;
    return Bf16ToFloat(pool_.Read<uint16_t>(begin_ + at));
  }
  double OfBlocks(int tile, int output, int step, int input) const {
    const BlockTiles tiles = cuda::BlockTilesOf(dtype_);
    const int pieces = CeilDiv(num_steps_, tiles.piece_steps());
    const size_t piece =
        begin_ + (size_t(tile) * pieces + step / tiles.piece_steps()) * tiles.piece_bytes();
    const int in_piece = step % tiles.piece_steps();
    const cuda::PlaceOfWhole place = cuda::WholePlace(output, input);
    const size_t numbers = piece + tiles.numbers_at(in_piece, place.lane);
    int number = 0;
    if (tiles.bits == 8) {
      number = pool_.Read<uint8_t>(numbers + 4 * place.place + input % 4);
    } else {
      const auto byte = pool_.Read<uint8_t>(numbers + place.place / 2 * 4 + input % 4);
      number = byte >> place.place % 2 * 4 & 0xF;
    }
    const double minimum =
        tiles.has_minimums ? Scale(tiles, piece + tiles.minimums_at(), in_piece, output) : 0.0;
    return Scale(tiles, piece + tiles.scales_at(), in_piece, output) * (number - tiles.zero) +
           minimum;
  }
  double Scale(const BlockTiles& tiles, size_t scales, int step, int output) const {
    const int pair = output % 8, of_pair = output / 8;
    const size_t record = scales + tiles.record_at(step, pair);
    if (!tiles.has_factors()) return F16ToFloat(pool_.Read<uint16_t>(record + of_pair * 2));
    const auto common = pool_.Read<uint16_t>(scales + tiles.common_at(pair) + of_pair * 2);
    return double{F16ToFloat(common)} * pool_.Read<int8_t>(record + of_pair);
  }

  const Pool& pool_;
  size_t begin_;
  DType dtype_;
  int num_steps_;
};

// A row as products read it: normed, and rounded to bf16 or quantised.
struct HostRow {
  std::vector<double> numbers;
  double factor = 1.0;
};

HostRow RoundedRow(const std::vector<float>& x, const std::vector<float>& norm, bool quantizes) {
  HostRow row;
  row.numbers.resize(x.size());
  std::vector<float> normed = x;
  double squares = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    squares += double{x[i]} * x[i];
    if (!norm.empty()) normed[i] = x[i] * norm[i];
  }
  if (!norm.empty()) {
    row.factor = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + kEpsilon);
  }
  for (size_t begin = 0; begin < x.size(); begin += kStepInputs) {
    const size_t end = std::min(x.size(), begin + kStepInputs);
    float largest = 0.0f;
    for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(normed[i]));
    const float scale = largest / 127.0f, inverse = 127.0f / largest;
    for (size_t i = begin; i < end; ++i) {
      row.numbers[i] = quantizes ? double{scale} * std::nearbyint(normed[i] * inverse)
                                 : double{Bf16ToFloat(FloatToBf16(normed[i]))};
    }
  }
  return row;
}

// A sum, and the sum of the magnitudes of its terms.
struct Sum {
  double value = 0.0;
  double magnitude = 0.0;
};
Sum SumOf(const HostRow& row, const HostWeight& weight, int output) {
  Sum sum;
  for (size_t i = 0; i < row.numbers.size(); ++i) {
    const double term = row.numbers[i] * weight.at(output, static_cast<int>(i)) * row.factor;
    sum.value += term;
    sum.magnitude += std::abs(term);
  }
  return sum;
}

// Compares some outputs with sums in double precision. A chain of n roundings or truncations errs
// by at most n 2^-23 of the magnitudes to first order; twice that covers the rest. A minimum
// cancels against its number, so that a term counts less than its two parts: 2^6 covers q4_k.
void CompareWithHost(const ProductSetting& setting, const Pool& weights, size_t weight,
                     const std::vector<float>& x, const std::vector<float>& norm, const float* row,
                     const float* before, Comparison* comparison) {
  const cuda::TileProductTask& task = setting.task;
  const HostWeight numbers(weights, weight, task.dtype, task.x.cols);
  const HostRow rounded = RoundedRow(x, norm, IsBlocks(task.dtype));
  const double unit =
      2.0 * (task.x.cols + 10) * 0x1p-23 * (cuda::BlockTilesOf(task.dtype).has_minimums ? 64 : 1);
  const bool is_pair = IsGated(task.end);
  const int tile_outputs = is_pair ? kTileOutputs / 2 : kTileOutputs;
  for (int i = 0; i < 8; ++i) {
    const int col = static_cast<int>(int64_t{task.out.cols - 1} * i / 7);
    const int output = col / tile_outputs * kTileOutputs + col % tile_outputs;
    const Sum sum = SumOf(rounded, numbers, output);
    double want = sum.value, bound = sum.magnitude * unit;
    if (is_pair) {
      const Sum up = SumOf(rounded, numbers, output + tile_outputs);
      const double gate = sum.value / (1.0 + std::exp(-sum.value));
      want = gate * up.value;
      bound = (1.1 * bound + 1e-6 * std::abs(gate)) * (std::abs(up.value) + up.magnitude * unit) +
              std::abs(gate) * up.magnitude * unit;
    } else if (task.end == Epilogue::kAdd) {
      want += before[col];
      bound += std::abs(want) * 0x1p-23;
    }
    comparison->CompareNear(row[col], want, bound + 1e-30);
  }
}

template <typename T>
std::vector<T> FromPool(const Pool& pool, size_t at, int count) {
  std::vector<T> values(count);
  for (int i = 0; i < count; ++i) values[i] = pool.Read<T>(at + size_t(i) * sizeof(T));
  return values;
}

// Fills the output with the numbers that it must have before the product: residuals, or poison.
void PrepareOut(Lab& lab, const ProductSetting& setting) {
  const MatrixView& out = setting.task.out;
  const size_t bytes = size_t{4} * out.rows * out.cols;
  if (setting.task.end == Epilogue::kAdd) {
    lab.Copy(lab.At(lab.Floats(), setting.residual_at), out.data, bytes);
  } else {
    lab.Poison(out.data, bytes);
  }
}

// Returns the first `rows` rows of the product from row `first` on.
std::vector<uint32_t> Result(Lab& lab, const ProductSetting& setting, int first, int rows) {
  const int cols = setting.task.out.cols;
  const auto* const out = static_cast<const float*>(setting.task.out.data);
  return lab.Download<uint32_t>(out + int64_t{first} * cols, size_t(rows) * cols);
}

// The product of one row alone, by the first variant.
std::vector<uint32_t> RowAlone(Lab& lab, const Line& line, const ProductSetting& whole, int row) {
  Line alone = line;
  alone.rows = 1;
  alone.variant = 0;
  ProductSetting setting = MakeProduct(lab, alone, row);
  setting.residual_at = whole.residual_at + size_t{4} * row * whole.task.out.cols;
  if (!lab.ok()) return {};
  PrepareOut(lab, setting);
  LaunchPack(lab, setting);
  lab.Run(setting.task, "product of one row");
  return Result(lab, setting, 0, 1);
}

}  // namespace

ProductSetting MakeProduct(Lab& lab, const Line& line, int first_row) {
  const PartShape shape = ShapeOf(*line.model, line.part);
  const int cols = IsGated(shape.end) ? shape.outputs / 2 : shape.outputs;
  const int num_tiles = shape.outputs / kTileOutputs;
  ProductSetting setting;
  setting.quantizes = IsBlocks(line.dtype);
  setting.weight_bytes = WeightBytes(line.dtype, shape.outputs, shape.inputs);
  const Pool& floats = lab.Floats();
  setting.rows_at = size_t{4} * first_row * shape.inputs;
  const ConstMatrixView x(lab.At(floats, setting.rows_at), DType::kF32, line.rows, shape.inputs,
                          shape.inputs);
  const size_t out_bytes = size_t{4} * line.rows * cols;
  const MatrixView out = {lab.Allocate(out_bytes), DType::kF32, line.rows, cols, cols};
  cuda::NormTask norm;
  if (shape.has_norm) {
    norm.weight = static_cast<const float*>(lab.At(floats, setting.norm_at));
    norm.epsilon = kEpsilon;
  }
  setting.task = {.x = x,
                  .norm = norm,
                  .dtype = line.dtype,
                  .num_tiles = num_tiles,
                  .num_sms = lab.num_sms(),
                  .variant = line.variant,
                  .wide_variant = line.variant,
                  .end = shape.end,
                  .out = out};
  const Pool& weights = lab.Weights(line.dtype);
  setting.task.weight = lab.At(weights, 0);
  void* const packed =
      lab.Allocate(setting.quantizes ? cuda::PackedWholeRowsBytes(line.rows, shape.inputs)
                                     : cuda::RowsImageBytes(line.rows, shape.inputs));
  float* squares = nullptr;
  if (shape.has_norm) {
    const size_t bytes = size_t{4} * line.rows * cuda::NumSquares(shape.inputs);
    squares = static_cast<float*>(lab.Allocate(bytes));
  }
  setting.pack = {
      .x = x, .out = packed, .quantizes = setting.quantizes, .norm = norm, .squares = squares};
  setting.task.rows = packed;
  setting.task.squares = squares;
  return setting;
}

void LaunchPack(Lab& lab, const ProductSetting& setting) { lab.Run(setting.pack, "packing rows"); }

void CompareRowsAlone(Lab& lab, const Line& line, Comparison* comparison) {
  const ProductSetting setting = MakeProduct(lab, line, 0);
  if (!lab.ok()) return;
  PrepareOut(lab, setting);
  LaunchPack(lab, setting);
  lab.Run(setting.task, "product");
  for (int row = 0; row < line.rows && lab.ok(); ++row) {
    comparison->Compare(Result(lab, setting, row, 1), RowAlone(lab, line, setting, row));
  }
}

void MeasureProduct(Lab& lab, const Line& line, JsonLine* json) {
  ProductSetting setting = MakeProduct(lab, line, 0);
  const Pool& weights = lab.Weights(line.dtype);
  if (!lab.ok()) return;
  const MatrixView& out = setting.task.out;
  PrepareOut(lab, setting);
  LaunchPack(lab, setting);
  lab.Run(setting.task, "product");
  lab.Wait();
  if (!lab.ok()) return;

  Comparison comparison;
  std::vector<int> rows = {0, line.rows / 3, 2 * line.rows / 3, line.rows - 1};
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  for (const int row : rows) {
    const std::vector<uint32_t> got = Result(lab, setting, row, 1);
    comparison.Compare(got, RowAlone(lab, line, setting, row));
    if (row != rows.back() || !lab.ok()) continue;
    const PartShape shape = ShapeOf(*line.model, line.part);
    const std::vector<float> x =
        FromPool<float>(lab.Floats(), size_t{4} * row * shape.inputs, shape.inputs);
    const std::vector<float> norm =
        shape.has_norm ? FromPool<float>(lab.Floats(), setting.norm_at, shape.inputs)
                       : std::vector<float>();
    const std::vector<float> before =
        FromPool<float>(lab.Floats(), setting.residual_at + size_t{4} * row * out.cols, out.cols);
    const std::vector<float> values = [&] {
      std::vector<float> floats(got.size());
      std::memcpy(floats.data(), got.data(), got.size() * 4);
      return floats;
    }();
    CompareWithHost(setting, weights, 0, x, norm, values.data(), before.data(), &comparison);
  }
  if (line.variant > 0) {
    Line first_line = line;
    first_line.variant = 0;
    ProductSetting first = MakeProduct(lab, first_line, 0);
    if (lab.ok()) PrepareOut(lab, first);
    LaunchPack(lab, first);
    lab.Run(first.task, "first variant");
    const int most = static_cast<int>(std::max<int64_t>(kComparedBytes / 4 / out.cols, 1));
    const int count = std::min(line.rows, most);
    comparison.Compare(Result(lab, setting, 0, count), Result(lab, first, 0, count));
  }
  AddComparison(comparison, json);

  const int copies = NumCopies(static_cast<int64_t>(setting.weight_bytes), lab.quick());
  const auto enqueue = [&](int i) {
    setting.task.weight = lab.At(weights, lab.Stretch(weights, i, setting.weight_bytes));
    lab.Run(setting.task, "product");
  };
  const double seconds =
      TimeParts(lab, copies, static_cast<double>(setting.weight_bytes), enqueue, json);
  const PartShape shape = ShapeOf(*line.model, line.part);
  if (!lab.ok()) return;
  json->Add("tflop_per_s", 2.0 * shape.outputs * shape.inputs * line.rows / seconds * 1e-12);
}

// The kernel that rounds or quantises rows before a product.
void MeasurePack(Lab& lab, const Line& line, JsonLine* json) {
  const ProductSetting setting = MakeProduct(lab, line, 0);
  if (!lab.ok()) return;
  LaunchPack(lab, setting);  // loads the code, before it is recorded
  constexpr int kCopies = 16;
  TimeParts(
      lab, kCopies, 0.0, [&](int) { LaunchPack(lab, setting); }, json);
}

}  // namespace tandem::kernel_lab
