#ifndef TANDEM_KERNELS_CPU_CPU_BACKEND_H_
#define TANDEM_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/cpu_memory.h"

namespace tandem {

// The CPU's backend. Operations are complete when they return. A team of threads shares the work in
// ways that do not affect the results; small operations run on the calling thread. Scratch memory
// grows to the needs of the largest call.
class CpuBackend final : public Backend {
 public:
  // `rounds`: round activations in the operations for which `kernels` support it (CpuCompute).
  // REQUIRES: num_threads >= 1.
  CpuBackend(const CpuKernels& kernels, int num_threads, bool rounds);

  std::string_view name() const override { return "cpu"; }
  bool memory_is_host() const override { return true; }
  std::string_view description() const override { return description_; }
  std::string arithmetic() const override;

  absl::StatusOr<Buffer> Allocate(size_t bytes) override;
  void Upload(absl::Span<const std::byte> host, void* device) override;
  void Download(const void* device, absl::Span<std::byte> host) override;
  void Copy(const void* from, void* to, size_t bytes) override;
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::StatusOr<PackedWeight> Pack(absl::Span<const WeightPart> parts, PartOrder order,
                                    std::optional<DType> dtype) override;
  absl::StatusOr<PackedWeight> PackLater(absl::Span<const WeightPart> parts, PartOrder order,
                                         std::optional<DType> dtype) override;
  absl::StatusOr<PackedWeight> UsePacked(absl::Span<const WeightPart> parts, PartOrder order,
                                         std::optional<DType> dtype,
                                         absl::Span<const std::byte> packed) override;
  absl::StatusOr<PackedWeight> PackInto(absl::Span<const WeightPart> parts, PartOrder order,
                                        std::optional<DType> dtype,
                                        absl::Span<std::byte> memory) override;
  size_t PackedBytes(absl::Span<const WeightPart> parts, PartOrder order,
                     std::optional<DType> dtype) const override;
  absl::StatusOr<ConstMatrixView> Import(ConstMatrixView host, Buffer* storage) override;

  void Embed(const int32_t* ids, ConstMatrixView table, MatrixView out,
             const NextProduct& next) override;
  void GatherRows(ConstMatrixView x, const int32_t* indices, MatrixView out) override;
  void ArgMax(ConstMatrixView x, int32_t* largest) override;
  void RmsNorm(ConstMatrixView x, const float* weight, float epsilon, MatrixView out) override;
  void SubtractMean(ConstMatrixView x, MatrixView out) override;
  void ScaleAndCap(float scale, float soft_cap, MatrixView x) override;
  void AddScaled(ConstMatrixView x, float scale, MatrixView sum) override;
  bool computes_experts() const override { return true; }
  void ChooseExperts(MatrixView logits, bool renormalises, const ExpertChoices& choices) override;
  void MixExperts(ConstMatrixView x, const ExpertChoices& choices, const ExpertWeights& experts,
                  Activation activation, MatrixView out) override;
  void RunExperts(ConstMatrixView x, const ExpertChoices& choices, const ExpertWeights& experts,
                  Activation activation, MatrixView outputs) override;
  void SumExperts(ConstMatrixView outputs, const ExpertChoices& choices, MatrixView out) override;
  void RotaryAngles(const RaggedRows& rows, const int32_t* lengths, const RotaryTables& tables,
                    MatrixView out) override;
  void RotateAndCache(MatrixView qkv, ConstMatrixView angles, const HeadNorms& norms,
                      const RaggedRows& rows, const PagedKvView& kv) override;
  void Attend(ConstMatrixView q, const RaggedRows& rows, const PagedKvView& kv,
              const AttentionForm& form, MatrixView out, const NextProduct& next) override;

 private:
  // Operations that touch fewer elements than this run on one thread, for the reasons given at
  // kSmallWeight (cpu_backend.cc).
  static constexpr int64_t kSmallWork = 16 * 1024;

  void Free(void* data, size_t bytes) override { FreeAligned(data, bytes); }

  static const float* RowOf(const ConstMatrixView& x, int64_t row) {
    return static_cast<const float*>(x.data) + row * x.stride;
  }
  static float* RowOf(const MatrixView& x, int64_t row) {
    return static_cast<float*>(x.data) + row * x.stride;
  }

  // Calls body(begin, end) for shares of [0, count), one for each thread; on one thread if `work`
  // (elements touched) is small.
  template <typename Body>
  void ForShares(int count, int64_t work, Body body) {
    if (work < kSmallWork || pool_.num_threads() == 1) return body(0, count);
    pool_.Run([&](int thread) {
      const Share share = ShareOf(count, pool_.num_threads(), thread);
      if (share.begin < share.end) {
        body(static_cast<int>(share.begin), static_cast<int>(share.end));
      }
    });
  }
  void Product(ConstMatrixView x, const PackedWeight& weight, Epilogue end, MatrixView out,
               const NextProduct& next) override;
  // Calls use(choice, output) for every choice of one of `experts`, one expert after the other.
  // Several threads call it, but only for rows of the same expert at a time.
  //   choice: an index into the arrays of ExpertChoices; output: [x.cols], the expert's output
  template <typename Use>
  void ForExpertOutputs(ConstMatrixView x, const ExpertChoices& choices,
                        const ExpertWeights& experts, Activation activation, const Use& use);
  absl::StatusOr<PackedWeight> Describe(absl::Span<const WeightPart> parts, PartOrder order,
                                        std::optional<DType> dtype);
  void PackWhole(const PackedWeight& weight);
  void PackPanels(const PackedWeight& weight, IndexRange panels) const;
  void AttendAll(const AttendTask& task, const RaggedRows& rows);
  void PlanManyRows(const AttendTask& task, const RaggedRows& rows);
  void PlanFewRows(const AttendTask& task, const RaggedRows& rows);
  bool CutUnit(const AttendUnit& unit, int64_t num_chunks, int64_t* done);
  void PlaceStates(const AttendTask& task);
  float* AttendScratch(int thread, const AttendTask& task, const AttendUnit& unit);
  void AttendUnitOn(int thread, const AttendTask& task, const AttendUnit& unit);

  const CpuKernels& kernels_;
  const bool rounds_;
  const bool bf16_products_;
  ThreadPool pool_;
  std::string description_;

  Scratch activations_;                        // packed activations that threads share
  std::unique_ptr<Scratch[]> thread_scratch_;  // [num_threads]
  std::vector<AttendUnit> units_;              // of the current attention
  std::vector<AttendUnit> cut_units_;          // units that units_ contains in several parts
  std::vector<size_t> thread_units_;  // [num_threads + 1]: first index in units_ of each thread
  Scratch chunk_states_;              // states of the chunks of cut units
  Scratch expert_rows_;               // one expert's input, output and gated rows
  std::vector<std::vector<int>> rows_of_expert_;  // indices into the arrays of ExpertChoices
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_CPU_BACKEND_H_
