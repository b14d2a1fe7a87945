#include "kernels/cuda/attention_plain.cuh"
#include "kernels/cuda/attention_prompt.cuh"
#include "kernels/cuda/attention_tensor.cuh"

namespace tandem::cuda {
namespace {

template <typename Tile>
Error EnqueueAttend(const AttendTask& task, AttendSize size, Stream stream) {
  return Enqueue<AttendKernel<Tile>>(task, AttendLaunchShape(size, task), stream);
}

template <typename Cache, bool kCaps>
Error EnqueuePlain(const AttendTask& task, int choice, Stream stream) {
  const AttendSize size = kAttendSizes[choice];
  switch (choice) {
    case 0:
      return EnqueueAttend<PlainTile<4, 64, Cache, kCaps>>(task, size, stream);
    case 1:
      return EnqueueAttend<PlainTile<16, 64, Cache, kCaps>>(task, size, stream);
    case 2:
      return EnqueueAttend<PlainTile<4, 128, Cache, kCaps>>(task, size, stream);
    case 3:
      return EnqueueAttend<PlainTile<16, 128, Cache, kCaps>>(task, size, stream);
    default:
      return EnqueueAttend<PlainTile<4, 256, Cache, kCaps>>(task, size, stream);
  }
}

template <bool kCaps>
Error EnqueueSized(const AttendTask& task, Stream stream) {
  static_assert(kNumAttendSizes == 8);
  const int heads = task.num_heads / task.kv.num_kv_heads;
  const int vectors = task.rows.num_rows * heads / task.rows.batch;
  const int choice = AttendSizeFor(task.kv.dtype, vectors, task.kv.head_dim);
  const AttendSize size = kAttendSizes[choice];
  switch (choice) {
    case 5:
      return EnqueueAttend<TensorTile<64, kCaps>>(task, size, stream);
    case 6:
      return EnqueueAttend<TensorTile<128, kCaps>>(task, size, stream);
    case 7:
      return EnqueueAttend<TensorTile<256, kCaps>>(task, size, stream);
    default:
      return task.kv.dtype == KvDType::kInt8 ? EnqueuePlain<Int8Cache, kCaps>(task, choice, stream)
                                             : EnqueuePlain<F32Cache, kCaps>(task, choice, stream);
  }
}

template <int kHeadDim>
Error EnqueuePrompt(const AttendTask& task, Stream stream) {
  const LaunchShape shape = PromptAttendShape(kHeadDim, task);
  return task.form.soft_cap > 0.0f
             ? Enqueue<PromptAttendKernel<kHeadDim, true>>(task, shape, stream)
             : Enqueue<PromptAttendKernel<kHeadDim, false>>(task, shape, stream);
}

Error EnqueuePrompts(const AttendTask& task, Stream stream) {
  return task.kv.head_dim > 64 ? EnqueuePrompt<128>(task, stream) : EnqueuePrompt<64>(task, stream);
}

Error EnqueueFew(const AttendTask& task, Stream stream) {
  const Error error = task.form.soft_cap > 0.0f ? EnqueueSized<true>(task, stream)
                                                : EnqueueSized<false>(task, stream);
  if (error != kNoError || task.parts == nullptr) return error;
  return Enqueue<MergeSplitsKernel>(task, MergeSplitsShape(task), stream);
}

}  // namespace

Error Launch(const AttendTask& task, Stream stream) {
  if (task.out.rows == 0) return kNoError;
  if (!HasPrompts(task)) return EnqueueFew(task, stream);
  if (task.decode_rows == 0) return EnqueuePrompts(task, stream);
  AttendTask prompts = task, others = task;
  prompts.min_vectors = kPromptVectors;
  others.max_vectors = kPromptVectors - 1;
  const Error error = EnqueuePrompts(prompts, stream);
  return error != kNoError ? error : EnqueueFew(others, stream);
}

}  // namespace tandem::cuda
