#include "kernels/cuda/attention_kernels.cuh"

namespace tandem::cuda {
namespace {

Error LaunchSplits(const AttendTask& task, Stream stream) {
  return kAttendSizes[AttendSizeOf(task)].tensor ? LaunchTensorAttention(task, stream)
                                                 : LaunchPlainAttention(task, stream);
}

Error LaunchFewRowsAttention(const AttendTask& task, Stream stream) {
  if (task.parts == nullptr) return LaunchSplits(task, stream);
  AttendTask step = task;
  Error error = kNoError;
  for (; error == kNoError && step.first_split < task.num_splits;
       step.first_split += task.part_splits) {
    error = LaunchSplits(step, stream);
    if (error == kNoError) {
      error = Enqueue<MergeSplitsKernel>(step, MergeSplitsShape(step), stream);
    }
  }
  return error;
}

}  // namespace

Error Launch(const AttendTask& task, Stream stream) {
  if (task.out.rows == 0) return kNoError;
  const PlanLayout plan = PlanLayoutOf(task);
  AttendTask part = task;
  if (plan.num_prompts > 0) {
    part.units = task.rows.plan + plan.prompts;
    const Error error = LaunchPromptAttention(part, stream);
    if (error != kNoError || plan.num_few == 0) return error;
  }
  part.units = task.rows.plan + plan.few;
  return LaunchFewRowsAttention(part, stream);
}

}  // namespace tandem::cuda
