// Whole pages of caches, on a device.
#include "kernels/cuda/kv_pages.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/cuda/cuda_testing.h"
#include "kernels/cuda/page_mover.h"

namespace tandem::cuda {
namespace {

using PageBytes = std::vector<std::byte>;

// Pages in a device's memory.
struct DevicePages {
  DevicePages(Backend* of, int count, KvPages shape) : backend(*of), pages(shape) {
    const int64_t groups = (count + kKvGroupPages - 1) / kKvGroupPages;
    const int64_t words = groups * kKvGroupPages * shape.page_words();
    storage = *backend.Allocate(words * sizeof(uint32_t));
    pages.pieces = static_cast<uint32_t*>(storage.data());
    pages.states =
        pages.pieces + groups * kKvGroupPages * shape.num_pieces * int64_t{shape.piece_words};
    std::vector<uint32_t> numbers(words);
    std::iota(numbers.begin(), numbers.end(), 1u << 20);
    backend.Upload({reinterpret_cast<const std::byte*>(numbers.data()), words * sizeof(uint32_t)},
                   storage.data());
  }
  size_t page_bytes() const { return pages.page_words() * sizeof(uint32_t); }

  // Reads pages with one call, or piece by piece.
  std::vector<PageBytes> Read(const std::vector<int32_t>& ids, bool by_pieces = false) {
    std::vector<PageBytes> all;
    const auto take = [&](int i, Backend::CopyPage copy) {
      EXPECT_EQ(i, static_cast<int>(all.size()));
      copy(absl::MakeSpan(all.emplace_back(page_bytes())));
      return true;
    };
    EXPECT_TRUE((by_pieces ? backend.Backend::ReadPages(pages, ids, take)
                           : backend.ReadPages(pages, ids, take))
                    .ok());
    return all;
  }
  void Write(const std::vector<PageBytes>& from, const std::vector<int32_t>& ids) {
    const std::vector<absl::Span<const std::byte>> spans(from.begin(), from.end());
    EXPECT_TRUE(backend.WritePages(spans, ids, pages).ok());
  }

  Backend& backend;
  KvPages pages;
  Buffer storage;
};

// Copied by words of 16 and of 4 bytes, with and without states.
constexpr KvPages kShapes[] = {{.num_pieces = 6, .piece_words = 64},
                               {.num_pieces = 3, .piece_words = 36, .state_words = 12},
                               {.num_pieces = 5, .piece_words = 7},
                               {.num_pieces = 2, .piece_words = 3, .state_words = 2}};

using PageCopies = CudaTest;

TEST_F(PageCopies, ReadTheBytesOfPieces) {
  for (const KvPages& shape : kShapes) {
    DevicePages pages(&backend(), 40, shape);
    const std::vector<int32_t> ids = {39, 0, 17, 15, 16, 3};
    EXPECT_EQ(pages.Read(ids), pages.Read(ids, /*by_pieces=*/true));
  }
}

TEST_F(PageCopies, WriteOnlyTheirPages) {
  for (const KvPages& shape : kShapes) {
    DevicePages pages(&backend(), 20, shape);
    std::vector<int32_t> all(20);
    std::iota(all.begin(), all.end(), 0);
    std::vector<PageBytes> expected = pages.Read(all, /*by_pieces=*/true);
    std::vector<PageBytes> written;
    const std::vector<int32_t> ids = {19, 2, 16};
    for (const int32_t id : ids) {
      written.emplace_back(pages.page_bytes(), static_cast<std::byte>(id + 1));
      expected[id] = written.back();
    }
    pages.Write(written, ids);
    for (PageBytes& bytes : written) bytes.clear();
    EXPECT_EQ(pages.Read(all, /*by_pieces=*/true), expected);
  }
}

TEST_F(PageCopies, CopyWithinACache) {
  for (const KvPages& shape : kShapes) {
    DevicePages pages(&backend(), 20, shape);
    std::vector<int32_t> all(20);
    std::iota(all.begin(), all.end(), 0);
    std::vector<PageBytes> expected = pages.Read(all);
    const std::vector<PageCopy> copies = {{.from = 3, .to = 18}, {.from = 3, .to = 0}};
    for (const PageCopy& copy : copies) expected[copy.to] = expected[copy.from];
    backend().CopyPages(pages.pages, copies);
    EXPECT_EQ(pages.Read(all), expected);
  }
}

// More pages than fit in both halves of the pinned memory, so that halves are reused.
TEST_F(PageCopies, ReuseTheirMemory) {
  constexpr int kPages = 3 * kPagesPerLaunch + 5;
  DevicePages pages(&backend(), kPages, {.num_pieces = 2, .piece_words = 4});
  std::vector<int32_t> all(kPages);
  std::iota(all.begin(), all.end(), 0);
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<PageBytes> written;
    for (int i = 0; i < kPages; ++i) {
      written.emplace_back(pages.page_bytes(), static_cast<std::byte>(i + turn));
    }
    pages.Write(written, all);
    EXPECT_EQ(pages.Read(all), written);
    EXPECT_EQ(pages.Read(all, /*by_pieces=*/true), written);
  }
}

TEST_F(PageCopies, StopWhereTheCallerStops) {
  DevicePages pages(&backend(), 4, kShapes[0]);
  int num_taken = 0;
  const std::vector<int32_t> ids = {0, 1, 2, 3};
  EXPECT_TRUE(
      backend()
          .ReadPages(pages.pages, ids, [&](int, Backend::CopyPage) { return ++num_taken < 2; })
          .ok());
  EXPECT_EQ(num_taken, 2);
}

// The pinned memory grows to the size of a page.
TEST_F(PageCopies, FitOnePageAtLeast) {
  constexpr int64_t kWords = int64_t{PageMover::kHalfBytes / sizeof(uint32_t)} + 16;
  for (const int64_t words : {int64_t{16}, kWords}) {
    DevicePages pages(&backend(), 1, {.num_pieces = 1, .piece_words = words});
    EXPECT_TRUE(pages.Read({0}) == pages.Read({0}, /*by_pieces=*/true));
  }
}

}  // namespace
}  // namespace tandem::cuda
