// Copies of whole pages of a cache.
#include "kernels/cuda/kv_pages.h"
#include "kernels/cuda/simt.h"

namespace tandem::cuda {

// Copies units of one or four words. The pieces and states of pages begin and end at multiples of
// them.
template <typename Unit>
struct CopyPagesKernel {
  using Task = CopyPagesTask;
  static constexpr int kThreads = kPageThreads;
  static constexpr int kUnitWords = sizeof(Unit) / sizeof(uint32_t);

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const int64_t num_units = task.cache.page_words() / kUnitWords;
    const int stride = CopyPagesShape(task).x * kThreads;
    for (int64_t i = BlockX() * kThreads + ThreadIndex(); i < num_units; i += kPageUnits * stride) {
      Unit units[kPageUnits];
      TANDEM_UNROLL
      for (int u = 0; u < kPageUnits; ++u) {
        const int64_t at = i + u * stride;
        if (at < num_units) units[u] = Load(reinterpret_cast<const Unit*>(Source(task, at)));
      }
      TANDEM_UNROLL
      for (int u = 0; u < kPageUnits; ++u) {
        const int64_t at = i + u * stride;
        if (at < num_units) Store(reinterpret_cast<Unit*>(Target(task, at)), units[u]);
      }
    }
  }

 private:
  TANDEM_DEVICE static uint32_t* Source(const Task& task, int64_t unit) {
    if (task.kind == Task::Kind::kFromBuffer) return InBuffer(task, unit);
    return InCache(task.cache, task.pages[BlockY()], unit);
  }
  TANDEM_DEVICE static uint32_t* Target(const Task& task, int64_t unit) {
    if (task.kind == Task::Kind::kToBuffer) return InBuffer(task, unit);
    const bool is_within = task.kind == Task::Kind::kWithin;
    return InCache(task.cache, is_within ? task.targets[BlockY()] : task.pages[BlockY()], unit);
  }
  TANDEM_DEVICE static uint32_t* InBuffer(const Task& task, int64_t unit) {
    return task.buffer + BlockY() * task.cache.page_words() + unit * kUnitWords;
  }
  TANDEM_DEVICE static uint32_t* InCache(const KvPages& cache, int page, int64_t unit) {
    const int64_t word = unit * kUnitWords;
    const int64_t piece = word / cache.piece_words;
    if (piece >= cache.num_pieces) {
      return cache.states + page * cache.state_words +
             (word - cache.num_pieces * cache.piece_words);
    }
    return cache.pieces + cache.OffsetOf(page, piece) + (word - piece * cache.piece_words);
  }
};

Error Launch(const CopyPagesTask& task, Stream stream) {
  const LaunchShape shape = CopyPagesShape(task);
  if (task.cache.piece_words % 4 == 0 && task.cache.state_words % 4 == 0) {
    return Enqueue<CopyPagesKernel<Words4>>(task, shape, stream);
  }
  return Enqueue<CopyPagesKernel<uint32_t>>(task, shape, stream);
}

}  // namespace tandem::cuda
