#include "tests/simt/warpgroups.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/simt/machine.h"

namespace tandem::simt {
namespace {

constexpr int kWarpgroupWarps = 4;
constexpr int kTileRows = 8;
constexpr int kRowBytes = 128;
constexpr int kTileBytes = kTileRows * kRowBytes;
constexpr int kPartBytes = 16;
constexpr int kSliceBytes = 2 * kPartBytes;
constexpr int kAllRegisters = 65536;  // of a processor

void Fault(const std::string& what, const Warpgroups::Where& where) {
  Machine::Get().Fault(what, where);
}

std::vector<uint32_t> Copied(const void* registers, size_t words) {
  std::vector<uint32_t> copy(words);
  std::memcpy(copy.data(), registers, words * sizeof(uint32_t));
  return copy;
}

bool AreUnfinished(const float* sums, size_t count) {
  return std::all_of(sums, sums + count,
                     [](float sum) { return std::bit_cast<uint32_t>(sum) == kUnfinished; });
}

}  // namespace

void Warpgroups::BeginBlock(int num_threads) {
  const int num_warps = num_threads / kWarpThreads;
  threads_.assign(num_threads, {});
  calls_.assign(num_warps, {});
  registers_.assign(num_warps, kAllRegisters / num_threads / 8 * 8);
}

std::string Warpgroups::EndBlock() const {
  int registers = 0;
  for (const int of_warp : registers_) registers += of_warp * kWarpThreads;
  if (registers > kAllRegisters) return "threads have " + std::to_string(registers) + " registers";
  for (size_t warp = 0; warp < calls_.size(); ++warp) {
    const size_t first = warp / kWarpgroupWarps * kWarpgroupWarps;
    if (registers_[warp] != registers_[first])
      return "a warpgroup's warps have different registers";
    if (calls_[warp].size() != calls_[first].size()) {
      return "warps of a warpgroup have different products";
    }
    if (!calls_[warp].empty() && first + kWarpgroupWarps > calls_.size()) {
      return "a warpgroup has less than four warps";
    }
  }
  for (const Thread& thread : threads_) {
    if (!thread.open_group.empty() || !thread.groups.empty()) {
      return "leaves with products that it did not wait for";
    }
  }
  return "";
}

// Calls what(address, element) for the two parts of 16 bytes of each row that this lane checks:
// parts of 8 inputs of row element / 16 from element % 16 on.
template <typename Do>
void Warpgroups::ForEachPart(const Product& product, int lane, const Do& what) {
  for (int row = lane; row < product.row_tiles * kTileRows; row += kWarpThreads) {
    for (int part = 0; part < 2; ++part) {
      const int place = (product.slice * 2 + part) ^ (row % kTileRows);
      what(product.rows + row * kRowBytes + place * kPartBytes, row * 16 + part * 8);
    }
  }
}

bool Warpgroups::MayRead(const void* at) const {
  const auto reads = [&](const Product& product) {
    const std::ptrdiff_t offset = static_cast<const std::byte*>(at) - product.rows;
    if (offset < 0 || offset >= product.row_tiles * kTileBytes) return false;
    const auto part = (offset % kRowBytes / kPartBytes) ^ (offset / kRowBytes % kTileRows);
    return part / 2 == product.slice;
  };
  // All lanes of a warp have the same products.
  for (size_t t = 0; t < threads_.size(); t += kWarpThreads) {
    if (std::any_of(threads_[t].open_group.begin(), threads_[t].open_group.end(), reads))
      return true;
    for (const auto& group : threads_[t].groups) {
      if (std::any_of(group.begin(), group.end(), reads)) return true;
    }
  }
  return false;
}

void Warpgroups::Fence(int thread, const float* sums, int row_tiles, const void* a, int count) {
  auto& fenced = threads_[thread].fenced;
  fenced[sums] = Copied(sums, row_tiles * 4);
  for (int i = 0; i < count; ++i) {
    const void* const one = static_cast<const std::byte*>(a) + i * 16;
    fenced[one] = Copied(one, 4);
  }
}

void Warpgroups::AccessRows(int thread, const Product& product, AccessKind kind,
                            const Where& where) const {
  ForEachPart(product, thread % kWarpThreads, [&](const std::byte* at, int) {
    Machine::Get().Access(at, kPartBytes, kind, where);
  });
}

void Warpgroups::Multiply(int thread, const void* a, uint64_t rows, float* sums, int row_tiles,
                          const Where& where) {
  Thread& mine = threads_[thread];
  const size_t num_sums = size_t{4} * row_tiles;
  if (thread % kWarpThreads == 0) {
    const int warp = thread / kWarpThreads;
    const size_t index = calls_[warp].size();
    calls_[warp].push_back({rows, row_tiles, where.line()});
    for (int w = warp / kWarpgroupWarps * kWarpgroupWarps; w < warp; ++w) {
      if (index < calls_[w].size() && !(calls_[w][index] == calls_[warp][index])) {
        return Fault("the product of another warp of the warpgroup differs", where);
      }
    }
  }
  const auto is_fenced = [&](const void* registers, size_t words) {
    const auto found = mine.fenced.find(registers);
    return found != mine.fenced.end() && found->second == Copied(registers, words);
  };
  const auto [unfinished, is_new] = mine.unfinished.try_emplace(sums, sums, sums + num_sums);
  if (!is_fenced(a, 4) || (is_new && !is_fenced(sums, num_sums))) {
    return Fault("multiplies registers that no fence has ordered", where);
  }
  if (!is_new && !AreUnfinished(sums, num_sums)) {
    return Fault("changes sums of an unfinished product", where);
  }
  std::fill(sums, sums + num_sums, std::bit_cast<float>(kUnfinished));
  Product product{.a = {},
                  .a_at = a,
                  .rows = reinterpret_cast<std::byte*>(rows / kTileBytes * kTileBytes),
                  .slice = static_cast<int>(rows % kTileBytes / kSliceBytes),
                  .sums = sums,
                  .row_tiles = row_tiles};
  std::memcpy(product.a.data(), a, sizeof(product.a));
  if (rows % kTileBytes >= kRowBytes) return Fault("rows that are not aligned", where);
  AccessRows(thread, product, AccessKind::kBeginProduct, where);
  mine.open_group.push_back(product);
}

void Warpgroups::Commit(int thread) {
  threads_[thread].groups.push_back(std::move(threads_[thread].open_group));
  threads_[thread].open_group.clear();
}

// Makes a product of the first group of each lane.
void Warpgroups::Make(int warp, size_t index, const Where& where) {
  Thread* const lanes = &threads_[size_t(warp) * kWarpThreads];
  const Product& first = lanes[0].groups.front()[index];
  std::vector<TensorNumber> right(size_t{16} * first.row_tiles * kTileRows);
  TensorNumber left[16][kTensorDepth];
  for (int lane = 0; lane < kWarpThreads; ++lane) {
    ForEachPart(first, lane, [&](const std::byte* at, int element) {
      uint16_t numbers[8];
      std::memcpy(numbers, at, sizeof(numbers));
      for (int i = 0; i < 8; ++i) right[element + i] = TensorNumber::OfBf16(numbers[i]);
    });
    const Product& product = lanes[lane].groups.front()[index];
    if (std::memcmp(product.a_at, product.a.data(), sizeof(product.a)) != 0) {
      Fault("changes weights of an unfinished product", where);
    }
    for (int i = 0; i < 8; ++i) {  // two numbers in each of four words
      const uint32_t word = product.a[i / 2];
      left[lane / 4 + i / 2 % 2 * 8][lane % 4 * 2 + i / 4 * 8 + i % 2] =
          TensorNumber::OfBf16(static_cast<uint16_t>(word >> 16 * (i % 2)));
    }
  }
  const TensorCore& core = Machine::Get().tensor_core();
  for (int lane = 0; lane < kWarpThreads; ++lane) {
    std::vector<float>& sums = lanes[lane].unfinished.at(lanes[lane].groups.front()[index].sums);
    for (int i = 0; i < first.row_tiles * 4; ++i) {
      const int m = lane / 4 + i % 4 / 2 * 8, n = i / 4 * kTileRows + lane % 4 * 2 + i % 2;
      sums[i] = MultiplyAndAdd(core, left[m], &right[size_t{16} * n], sums[i]);
    }
  }
}

// Returns the sums to the thread that no product is left for.
void Warpgroups::Finish(Thread* thread, const Where& where) const {
  std::erase_if(thread->unfinished, [&](const auto& entry) {
    const auto& [sums, values] = entry;
    const auto adds = [sums = sums](const Product& product) { return product.sums == sums; };
    if (std::any_of(thread->open_group.begin(), thread->open_group.end(), adds)) return false;
    for (const auto& group : thread->groups) {
      if (std::any_of(group.begin(), group.end(), adds)) return false;
    }
    if (!AreUnfinished(sums, values.size())) Fault("changes sums of an unfinished product", where);
    std::copy(values.begin(), values.end(), sums);
    thread->fenced[sums] = Copied(sums, values.size());
    return true;
  });
}

void Warpgroups::Wait(int thread, int groups_left, const Where& where) {
  auto& mine = threads_[thread].groups;
  for (size_t i = 0; i + groups_left < mine.size(); ++i) {
    for (const Product& product : mine[i]) {
      AccessRows(thread, product, AccessKind::kEndProduct, where);
    }
  }
  Machine::Get().Collective({}, where, [&](const LaneValues&, LaneValues*) {
    const int warp = thread / kWarpThreads;
    Thread* const lanes = &threads_[size_t(warp) * kWarpThreads];
    while (static_cast<int>(lanes[0].groups.size()) > groups_left) {
      const size_t count = lanes[0].groups.front().size();
      for (int lane = 0; lane < kWarpThreads; ++lane) {
        if (lanes[lane].groups.empty() || lanes[lane].groups.front().size() != count) {
          return Fault("lanes of a warp have different products", where);
        }
      }
      for (size_t i = 0; i < count; ++i) Make(warp, i, where);
      for (int lane = 0; lane < kWarpThreads; ++lane) lanes[lane].groups.pop_front();
    }
    for (int lane = 0; lane < kWarpThreads; ++lane) Finish(&lanes[lane], where);
  });
}

void Warpgroups::SetRegisters(int thread, int count, bool raises, const Where& where) {
  int& registers = registers_[thread / kWarpThreads];
  if (count % 8 != 0 || count < 24 || count > 256)
    return Fault("a wrong number of registers", where);
  if (thread % kWarpThreads != 0) return;
  if (raises ? count < registers : count > registers) {
    Fault("changes registers from " + std::to_string(registers) + " to " + std::to_string(count),
          where);
  }
  registers = count;
}

}  // namespace tandem::simt
