// Products by a warpgroup, four adjacent warps, of which the first is a multiple of four (wgmma).
// Included by simt.h. Only Hopper has these instructions, so a kernel that uses them says so with
// kUsesWarpgroups and is empty in code for other devices (HasCode in simt.h).
//
// Products run while the warps go on. All threads of the four warps call each function at the same
// place, except where the contract says otherwise.
#ifndef TANDEM_KERNELS_CUDA_WARPGROUP_H_
#define TANDEM_KERNELS_CUDA_WARPGROUP_H_

namespace tandem::cuda {

inline constexpr int kWarpgroupThreads = 128;

// Rows in shared memory, in the form of wgmma's descriptors: 64 inputs of bf16 of each, in the
// layout of an image (product_layout.h).
struct SharedRows {
  uint64_t descriptor;
};
// `shared` has a chunk of an image and is aligned to 1,024 bytes. One thread may call it.
TANDEM_DEVICE SharedRows RowsAt(const void* shared) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kBytesOfTile = uint64_t{1024 >> 4} << 32;
  constexpr uint64_t kUnused = uint64_t{1} << 16;  // the distance along inputs, within a swizzle
  const uint64_t at = (static_cast<uint32_t>(__cvta_generic_to_shared(shared)) & 0x3FFFF) >> 4;
  return {at | kUnused | kBytesOfTile | kSwizzle128};
}
// Returns the rows from input `input` on, a multiple of 16 below 64.
TANDEM_DEVICE SharedRows FromInput(SharedRows rows, int input) {
  return {rows.descriptor + static_cast<uint64_t>(input / 8)};
}

// Orders what was done to these registers before the products that follow. Needed before the first
// product that uses them, and again after they have been written.
template <int kRowTiles, int kCount>
TANDEM_DEVICE void FenceRegisters(float (&sums)[kRowTiles][4], Words4 (&a)[kCount]) {
  // The compiler moves no other use of the registers across these lines.
  TANDEM_UNROLL
  for (int tile = 0; tile < kRowTiles; ++tile) {
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[tile][i])::"memory");
  }
  TANDEM_UNROLL
  for (int i = 0; i < kCount; ++i) {
    TANDEM_UNROLL
    for (int word = 0; word < 4; ++word) asm volatile("" : "+r"(a[i].words[word])::"memory");
  }
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

#define TANDEM_TEN(tens)                                                                  \
  "%" #tens "0, %" #tens "1, %" #tens "2, %" #tens "3, %" #tens "4, %" #tens "5, %" #tens \
  "6, %" #tens "7, %" #tens "8, %" #tens "9, "
#define TANDEM_LIST_32 TANDEM_TEN() TANDEM_TEN(1) TANDEM_TEN(2) "%30, %31"
#define TANDEM_SIXTY \
  TANDEM_TEN() TANDEM_TEN(1) TANDEM_TEN(2) TANDEM_TEN(3) TANDEM_TEN(4) TANDEM_TEN(5)
#define TANDEM_NINETY TANDEM_SIXTY TANDEM_TEN(6) TANDEM_TEN(7) TANDEM_TEN(8)
#define TANDEM_LIST_64 TANDEM_SIXTY "%60, %61, %62, %63"
#define TANDEM_LIST_96 TANDEM_NINETY "%90, %91, %92, %93, %94, %95"
#define TANDEM_LIST_128                      \
  TANDEM_NINETY TANDEM_TEN(9) TANDEM_TEN(10) \
      TANDEM_TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127"
#define TANDEM_SUMS(tile) \
  "+f"(sums[tile][0]), "+f"(sums[tile][1]), "+f"(sums[tile][2]), "+f"(sums[tile][3])
#define TANDEM_SUMS_4(tile) \
  TANDEM_SUMS(tile), TANDEM_SUMS((tile) + 1), TANDEM_SUMS((tile) + 2), TANDEM_SUMS((tile) + 3)
#define TANDEM_SUMS_32 TANDEM_SUMS_4(0), TANDEM_SUMS_4(4)
#define TANDEM_SUMS_64 TANDEM_SUMS_32, TANDEM_SUMS_4(8), TANDEM_SUMS_4(12)
#define TANDEM_SUMS_96 TANDEM_SUMS_64, TANDEM_SUMS_4(16), TANDEM_SUMS_4(20)
#define TANDEM_SUMS_128 TANDEM_SUMS_96, TANDEM_SUMS_4(24), TANDEM_SUMS_4(28)
#define TANDEM_MULTIPLY_ROWS(rows_of_n, count, a0, a1, a2, a3, b)                          \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #rows_of_n                              \
               "k16.f32.bf16.bf16 "                                                        \
               "{" TANDEM_LIST_##count "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b \
                                       ", 1, 1, 1, 0;\n"                                   \
               : TANDEM_SUMS_##count                                                       \
               : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]),       \
                 "l"(rows.descriptor))

// Starts sums += a * rows: a [64, 16] of bf16, 16 outputs for each warp, and kRowTiles tiles of 8
// rows. `a` and `sums` have the layout of MultiplyTile, for each warp and tile of rows, and the
// bits are those of MultiplyTile. Until a wait has ended the product, its sums may be given to
// further products only, `a` may not be written, and the rows must stay.
template <int kRowTiles>
TANDEM_DEVICE void MultiplyRowsAsync(const Words4& a, SharedRows rows,
                                     float (&sums)[kRowTiles][4]) {
  static_assert(kRowTiles == 8 || kRowTiles == 16 || kRowTiles == 24 || kRowTiles == 32);
  if constexpr (kRowTiles == 8) {
    TANDEM_MULTIPLY_ROWS(64, 32, 32, 33, 34, 35, 36);
  } else if constexpr (kRowTiles == 16) {
    TANDEM_MULTIPLY_ROWS(128, 64, 64, 65, 66, 67, 68);
  } else if constexpr (kRowTiles == 24) {
    TANDEM_MULTIPLY_ROWS(192, 96, 96, 97, 98, 99, 100);
  } else {
    TANDEM_MULTIPLY_ROWS(256, 128, 128, 129, 130, 131, 132);
  }
}

// Ends a group of products.
TANDEM_DEVICE void MultiplyCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
// Waits for all groups except the last kLeft.
template <int kLeft>
TANDEM_DEVICE void MultiplyWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kLeft) : "memory");
}
// Waits for all groups, after which the sums may be read.
template <int kRowTiles>
TANDEM_DEVICE void MultiplyWaitForAll(float (&sums)[kRowTiles][4]) {
  MultiplyWait<0>();
  TANDEM_UNROLL
  for (int tile = 0; tile < kRowTiles; ++tile) {
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[tile][i])::"memory");
  }
}

// Each thread of the warpgroup has kCount registers from now on, a multiple of 8 from 24 to 240. At
// first all have the same number. Raising it waits until others have lowered theirs.
template <int kCount>
TANDEM_DEVICE void LowerRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kCount));
}
template <int kCount>
TANDEM_DEVICE void RaiseRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kCount));
}

#undef TANDEM_TEN
#undef TANDEM_LIST_32
#undef TANDEM_SIXTY
#undef TANDEM_NINETY
#undef TANDEM_LIST_64
#undef TANDEM_LIST_96
#undef TANDEM_LIST_128
#undef TANDEM_SUMS
#undef TANDEM_SUMS_4
#undef TANDEM_SUMS_32
#undef TANDEM_SUMS_64
#undef TANDEM_SUMS_96
#undef TANDEM_SUMS_128
#undef TANDEM_MULTIPLY_ROWS

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_WARPGROUP_H_
