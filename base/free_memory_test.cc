#include "base/free_memory.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

// Of the process, in pages: its addresses, and those that are in memory.
struct Statm {
  int64_t size = 0;
  int64_t resident = 0;
};
Statm ReadStatm() {
  std::ifstream file("/proc/self/statm");
  Statm statm;
  file >> statm.size >> statm.resident;
  return statm;
}

// In another thread's arena, where nothing else frees a large piece.
TEST(ReturnFreeMemory, OfSmallPieces) {
  constexpr int kNumPieces = 2'000'000;
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  if (ReadStatm().size * page_bytes > int64_t{1} << 40) {
    GTEST_SKIP() << "this program allocates otherwise, as sanitizers do";
  }
  std::thread([page_bytes] {
    auto keeps_the_arena = std::make_unique<int>(1);
    std::vector<std::unique_ptr<char[]>> pieces(kNumPieces);
    for (auto& piece : pieces) piece = std::make_unique<char[]>(40);
    auto behind_them = std::make_unique<int>(2);
    const int64_t most = ReadStatm().resident;
    for (auto& piece : pieces) piece.reset();
    ReturnFreeMemory();
    EXPECT_LT(ReadStatm().resident, most - kNumPieces * int64_t{40} / page_bytes);
    EXPECT_EQ(*keeps_the_arena + *behind_them, 3);
  }).join();
}

}  // namespace
}  // namespace tandem
