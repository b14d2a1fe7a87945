// Pages of caches. Without pinned memory they are copied piece by piece.
#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/kv_pages.h"

namespace tandem::cuda {

absl::Status CudaBackend::ReadPages(const KvPages& cache, absl::Span<const int32_t> pages,
                                    absl::FunctionRef<bool(int index, CopyPage copy)> take) {
  if (!failure_.ok()) return failure_;
  const absl::Status opened = page_mover_->Open(cache.page_words() * sizeof(uint32_t));
  if (absl::IsResourceExhausted(opened)) return Backend::ReadPages(cache, pages, take);
  return opened.ok() ? page_mover_->Read(cache, pages, take) : opened;
}

absl::Status CudaBackend::WritePages(absl::Span<const absl::Span<const std::byte>> from,
                                     absl::Span<const int32_t> pages, const KvPages& cache) {
  const absl::Status opened = page_mover_->Open(cache.page_words() * sizeof(uint32_t));
  if (absl::IsResourceExhausted(opened)) return Backend::WritePages(from, pages, cache);
  return opened.ok() ? page_mover_->Write(from, pages, cache) : opened;
}

void CudaBackend::CopyPages(const KvPages& cache, absl::Span<const PageCopy> copies) {
  CopyPagesTask task{.cache = cache};
  for (; !copies.empty(); copies.remove_prefix(task.num_pages)) {
    task.num_pages = static_cast<int>(std::min<size_t>(copies.size(), kPagesPerLaunch));
    for (int i = 0; i < task.num_pages; ++i) {
      task.pages[i] = copies[i].from;
      task.targets[i] = copies[i].to;
    }
    Note(Launch(task, stream_), "copying pages");
  }
}

}  // namespace tandem::cuda
