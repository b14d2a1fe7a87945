#ifndef TANDEM_KERNELS_CUDA_CUDA_GRAPH_CACHE_H_
#define TANDEM_KERNELS_CUDA_CUDA_GRAPH_CACHE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "kernels/cuda/cuda_backend.h"

namespace tandem::cuda {

// Records work when it comes for the second time, and replays it from then on. By then its scratch
// memory is allocated, and work that comes only once is not worth the milliseconds that building a
// graph takes.
class CudaGraphCache final : public GraphCache {
 public:
  // `backend` must outlive this.
  explicit CudaGraphCache(CudaBackend* backend) : backend_(*backend) {}
  ~CudaGraphCache() override { Forget(); }

  void Run(absl::Span<const int64_t> key, absl::FunctionRef<void()> enqueue) override;
  bool replays() const override { return true; }
  void Forget() override;  // drops the recordings, but remembers which keys came before

  int num_recordings() const;

  // The most recently used keys are kept, up to this many.
  static constexpr int kMaxKeys = 64;

 private:
  struct Entry {
    Recording recording = nullptr;
    bool cannot_be_recorded = false;
    int64_t last_use = 0;
  };

  void MakeRoom();

  CudaBackend& backend_;
  std::map<std::vector<int64_t>, Entry> entries_;
  int64_t scratch_generation_ = 0;
  int64_t num_uses_ = 0;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_CUDA_GRAPH_CACHE_H_
