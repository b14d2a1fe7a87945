#include "kernels/cuda/attention_kernels.cuh"

namespace tandem::cuda {
namespace {

Error LaunchFewRowsAttention(const AttendTask& task, Stream stream) {
  const Error error = kAttendSizes[AttendSizeOf(task)].tensor ? LaunchTensorAttention(task, stream)
                                                              : LaunchPlainAttention(task, stream);
  if (error != kNoError || task.parts == nullptr) return error;
  return Enqueue<MergeSplitsKernel>(task, MergeSplitsShape(task), stream);
}

}  // namespace

Error Launch(const AttendTask& task, Stream stream) {
  if (task.out.rows == 0) return kNoError;
  if (!HasPrompts(task)) return LaunchFewRowsAttention(task, stream);
  if (task.decode_rows == 0) return LaunchPromptAttention(task, stream);
  AttendTask prompts = task, others = task;
  prompts.min_vectors = kPromptVectors;
  others.max_vectors = kPromptVectors - 1;
  const Error error = LaunchPromptAttention(prompts, stream);
  return error != kNoError ? error : LaunchFewRowsAttention(others, stream);
}

}  // namespace tandem::cuda
