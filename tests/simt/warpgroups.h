// Products by warpgroups (kernels/cuda/warpgroup.h) in a simulated block. A product is made when a
// warp waits for it, and not before: until then its sums read as a NaN, and its rows are read last.
//
// Reported: sums or weights of an unfinished product that were changed, a stored sum of one,
// registers that no fence has ordered, rows that are overwritten while a product may read them,
// rows written without a fence (watched_memory.h), products that the warps of a warpgroup do not
// share or do not wait for, and more registers than a processor has.
#ifndef TANDEM_TESTS_SIMT_WARPGROUPS_H_
#define TANDEM_TESTS_SIMT_WARPGROUPS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <source_location>
#include <string>
#include <vector>

#include "tests/simt/watched_memory.h"

namespace tandem::simt {

// What unfinished sums read as.
inline constexpr uint32_t kUnfinished = 0x7FF5A5A5;

class Warpgroups {
 public:
  using Where = std::source_location;

  void BeginBlock(int num_threads);
  // Returns the fault of a block whose threads have left, or an empty string.
  std::string EndBlock() const;
  // Whether an unfinished product may read the 16 bytes there, or a part of them.
  bool MayRead(const void* at) const;

  // Called by device threads; `thread` is the one that calls.
  // sums: [row_tiles][4]; a: [count] of 16 bytes
  void Fence(int thread, const float* sums, int row_tiles, const void* a, int count);
  // rows: the address of input 0, 16, 32 or 48 of the first row
  void Multiply(int thread, const void* a, uint64_t rows, float* sums, int row_tiles,
                const Where& where);
  void Commit(int thread);
  void Wait(int thread, int groups_left, const Where& where);
  void SetRegisters(int thread, int count, bool raises, const Where& where);

 private:
  using Registers = std::vector<uint32_t>;
  // A thread's part of a product.
  struct Product {
    std::array<uint32_t, 4> a;
    const void* a_at;
    std::byte* rows;  // of the image
    int slice;        // of 16 inputs
    float* sums;
    int row_tiles;
  };
  struct Thread {
    std::deque<std::vector<Product>> groups;
    std::vector<Product> open_group;
    std::map<const void*, Registers> fenced;  // what registers had at their last fence
    // The sums so far of unfinished products, by the address of their sums.
    std::map<float*, std::vector<float>> unfinished;
  };
  // A product of a warp, which the others of its warpgroup must multiply too.
  struct Call {
    uint64_t rows;
    int row_tiles;
    unsigned line;
    bool operator==(const Call&) const = default;
  };

  template <typename Do>
  static void ForEachPart(const Product& product, int lane, const Do& what);
  // As the thread, whose accesses these are ordered with.
  void AccessRows(int thread, const Product& product, AccessKind kind, const Where& where) const;
  void Make(int warp, size_t product, const Where& where);
  void Finish(Thread* thread, const Where& where) const;

  std::vector<Thread> threads_;
  std::vector<std::vector<Call>> calls_;  // [warps]
  std::vector<int> registers_;            // [warps]: of a thread
};

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_WARPGROUPS_H_
