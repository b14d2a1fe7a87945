#ifndef TANDEM_KERNELS_CUDA_CUDA_BACKEND_H_
#define TANDEM_KERNELS_CUDA_CUDA_BACKEND_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/cublas_products.h"
#include "kernels/cuda/cublas_reference.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_errors.h"
#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/nccl.h"
#include "kernels/cuda/packing_on_device.h"
#include "kernels/cuda/page_mover.h"
#include "kernels/cuda/pinned_uploads.h"
#include "kernels/cuda/prepared_rows.h"
#include "kernels/cuda/tuner.h"
#include "kernels/cuda_devices.h"

namespace tandem::cuda {

// The backend for CUDA devices. Operations are kernels on one stream. Products with weights of bf16
// round activations to bf16, row by row; products with weights of block formats quantise them.
// Attention to caches of bf16 rounds queries and attention weights to bf16. Products with f32
// weights, and f16 weights that are kept, and attention to caches of f32 and int8, compute in f32.
// Scratch memory grows to the largest call.
class CudaBackend final : public Backend,
                          public ColumnGatherer,
                          public DeviceMeter,
                          public Sampler {
 public:
  // Takes ownership of the stream.
  CudaBackend(int device, const DeviceProperties& properties, Stream stream,
              const CudaOptions& options = {});
  ~CudaBackend() override;

  std::string_view name() const override { return name_; }
  std::string_view description() const override { return description_; }

  std::optional<int64_t> free_memory_bytes() override;
  absl::StatusOr<Buffer> Allocate(size_t bytes) override;
  void Upload(absl::Span<const std::byte> host, void* device) override;
  void Download(const void* device, absl::Span<std::byte> host) override;
  void Copy(const void* from, void* to, size_t bytes) override;
  absl::Status ReadPages(const KvPages& cache, absl::Span<const int32_t> pages,
                         absl::FunctionRef<bool(int index, CopyPage copy)> take) override;
  absl::Status WritePages(absl::Span<const absl::Span<const std::byte>> from,
                          absl::Span<const int32_t> pages, const KvPages& cache) override;
  void CopyPages(const KvPages& cache, absl::Span<const PageCopy> copies) override;
  absl::Status Synchronize() override;
  absl::Status health() const override { return errors_.lost(); }
  absl::StatusOr<PackedWeight> Pack(absl::Span<const WeightPart> parts, PartOrder order,
                                    std::optional<DType> dtype) override;
  absl::StatusOr<ConstMatrixView> Import(ConstMatrixView host, Buffer* storage) override;
  std::unique_ptr<GraphCache> MakeGraphCache() override;
  Sampler* sampler() override { return this; }
  DeviceMeter* meter() override { return this; }
  ColumnGatherer* gatherer() override { return this; }

  absl::Status TuneProducts(const std::string& how) override { return tuner_.Open(how); }
  std::vector<std::string> product_report() const override;

  void Embed(const int32_t* ids, ConstMatrixView table, MatrixView out,
             const NextProduct& next) override;
  void GatherRows(ConstMatrixView x, const int32_t* indices, MatrixView out) override;
  void ArgMax(ConstMatrixView x, int32_t* largest) override;
  void RmsNorm(ConstMatrixView x, const float* weight, float epsilon, MatrixView out) override;
  void SubtractMean(ConstMatrixView x, MatrixView out) override;
  void ScaleAndCap(float scale, float soft_cap, MatrixView x) override;
  void AddScaled(ConstMatrixView x, float scale, MatrixView sum) override;
  std::vector<int32_t> PlanRows(absl::Span<const int32_t> starts, int num_rows,
                                const AttentionSizes& sizes) const override;
  void RotaryAngles(const RaggedRows& rows, const int32_t* lengths, const RotaryTables& tables,
                    MatrixView out) override;
  void RotateAndCache(MatrixView qkv, ConstMatrixView angles, const HeadNorms& norms,
                      const RaggedRows& rows, const PagedKvView& kv) override;
  void Attend(ConstMatrixView q, const RaggedRows& rows, const PagedKvView& kv,
              const AttentionForm& form, MatrixView out, const NextProduct& next) override;

  void Read(const void* data, size_t bytes, uint32_t* sums) override;
  size_t NumReadSums(size_t bytes) const override;
  absl::StatusOr<double> SecondsWithoutHost(absl::FunctionRef<void()> enqueue,
                                            int replays) override;
  absl::Status ReferenceProduct(ConstMatrixView x, ConstMatrixView weight, MatrixView out) override;

  absl::Status Prepare(absl::Span<const RowTask> rows, absl::Span<const SlotTask> slots) override;
  void Run(int num_rows, int num_slots) override;
  void TakeDrawn(const int32_t* sources, int count, int32_t* ids) override;
  absl::Status Collect(absl::Span<RowState> states, absl::Span<SlotAnswer> answers) override;

  absl::Status Open() override;
  absl::StatusOr<std::string> NewGroup() override;
  absl::Status Join(const std::string& group, int rank, int world, TellGroup tell) override;
  void GatherColumns(MatrixView whole, absl::Span<const int> bounds) override;
  // Whether it has joined a group.
  bool has_ranks() const { return has_ranks_; }

  Tuner& tuner() { return tuner_; }
  // Records the work that `enqueue` enqueues, without doing it. Returns the first failure of an
  // operation or of the recording.
  absl::StatusOr<Recording> Record(absl::FunctionRef<void()> enqueue);
  bool is_recording() const { return is_recording_; }
  Stream stream() const { return stream_; }
  void Repeat(Recording recording) {
    ForgetRows();
    Note(Replay(recording, stream_), "replaying");
  }
  // Operations do not use rows that an operation before this call wrote for them.
  void ForgetRows() { prepared_rows_.Forget(); }
  // Remembers the first failure.
  void Note(absl::Status status);
  // Limits the scratch memory of attention, for tests.
  void LimitSplitParts(int64_t bytes) { most_split_parts_bytes_ = bytes; }
  // Changes whenever scratch memory that recordings may use has been freed.
  int64_t scratch_generation() const { return scratch_generation_; }

 private:
  void Free(void* data, size_t bytes) override;

  void Note(Error error, absl::string_view operation);
  // Returns the failure of the work that was waited for, and forgets it.
  absl::Status TakeFailure();
  // Returns scratch memory of at least `bytes`, valid until the next call. Returns null, and notes
  // the failure, if it cannot be allocated.
  void* Reserve(Buffer* scratch, size_t bytes);
  bool CanCache(const PagedKvView& kv);
  // Checks a matrix that an operation is about to read, or to write.
  void WillRead(const ConstMatrixView& x) const;
  void WillWrite(const MatrixView& out);
  void Product(ConstMatrixView x, const PackedWeight& weight, Epilogue end, MatrixView out,
               const NextProduct& next) override;
  void NormedProduct(const NormedRows& rows, const PackedWeight& weight, Epilogue end,
                     MatrixView out, const NextProduct& next) override;
  void MultiplyTiles(ConstMatrixView x, const NormTask& norm, const PackedWeight& weight,
                     Epilogue end, MatrixView out, const NextProduct& next);
  // Returns the rows of a product, which are packed now unless an operation has written them.
  PreparedRows::Rows RowsFor(const ConstMatrixView& x, const NormTask& norm, bool quantizes);

  const Stream stream_;
  const int num_sms_;
  const std::string name_;
  const std::string description_;
  DeviceErrors errors_;
  std::unique_ptr<PageMover> page_mover_;
  std::unique_ptr<PinnedUploads> uploads_;
  WeightPacker packer_;
  std::unique_ptr<CublasProducts> products_;
  std::unique_ptr<CublasReference> reference_;
  Tuner tuner_;
  absl::Status failure_;
  bool is_recording_ = false;
  int64_t scratch_generation_ = 0;
  PreparedRows prepared_rows_;
  Buffer split_parts_;
  int64_t most_split_parts_bytes_ = kSplitPartsBytes;
  Buffer sampling_tables_;
  std::unique_ptr<Nccl> nccl_;
  bool has_ranks_ = false;
  bool has_recorded_ = false;
  Buffer gathered_parts_;
  // Scratch memory that became too small. It is kept because recordings use it, and a rank cannot
  // forget its recordings alone.
  std::vector<Buffer> kept_scratch_;
  // The tasks that Run launches next, and all answers.
  DistributionsTask next_rows_;
  SlotsTask next_slots_;
  SlotAnswer* answers_ = nullptr;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_CUDA_BACKEND_H_
