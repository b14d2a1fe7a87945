#include "tools/kernel_lab/probes.h"

#include <algorithm>
#include <numeric>

#include "base/split_mix.h"
#include "tools/kernel_lab/lab.h"

namespace tandem::kernel_lab {
namespace {

constexpr int kChainSteps = 4096;
// L2 holds what the latency probe follows and what its load reads: 4 and 20 MiB.
constexpr size_t kChasedBytes = size_t{4} << 20;
constexpr size_t kLoadBytes = size_t{24} << 20;
constexpr int kLineWords = 32;  // of 128 bytes
constexpr size_t kRingBytes = size_t{512} << 20;
constexpr int kNothings = 200;

// Returns indices, one in each line of 128 bytes, that lead through all lines in a random order.
std::vector<uint32_t> RandomCycle(size_t bytes) {
  const auto num_lines = static_cast<uint32_t>(bytes / 4 / kLineWords);
  std::vector<uint32_t> order(num_lines), next(bytes / 4);
  std::iota(order.begin(), order.end(), 0);
  uint64_t random = 1;
  for (uint32_t i = num_lines - 1; i > 0; --i) {
    random = SplitMix64(random);
    std::swap(order[i], order[random % (i + 1)]);
  }
  const auto line_zero = std::find(order.begin(), order.end(), 0u);
  std::rotate(order.begin(), line_zero, order.end());
  for (uint32_t i = 0; i < num_lines; ++i) {
    next[size_t{order[i]} * kLineWords] = order[(i + 1) % num_lines] * kLineWords;
  }
  return next;
}

bool IsRing(Probe probe) { return probe == Probe::kCopyRing || probe == Probe::kBulkRing; }

// Sets a probe's data and its number of blocks.
void SetData(Lab& lab, ProbeTask* task) {
  if (task->probe == Probe::kL2Latency) {
    task->data_bytes = kLoadBytes;
    task->num_steps = static_cast<int>(kChasedBytes / 4 / kLineWords);
    task->num_blocks = task->first != 0 ? lab.num_sms() : 1;
    const std::vector<uint32_t> cycle = RandomCycle(kChasedBytes);
    void* const data = lab.Allocate(kLoadBytes);
    if (!lab.ok()) return;
    lab.Copy(lab.Floats().device, data, kLoadBytes);
    lab.Note(cuda::CopyIn(cycle.data(), data, kChasedBytes, lab.stream()), "upload");
    task->data = data;
    return;
  }
  task->data = lab.Weights(DType::kBF16).device;
  task->num_steps = kChainSteps;
  if (IsRing(task->probe)) {
    task->num_blocks = lab.num_sms();
    const size_t round = size_t(task->num_blocks) * kRingWarps * task->second;
    task->data_bytes = kRingBytes / round * round;
  }
  if (task->probe == Probe::kClusterBarrier) {
    task->num_blocks = lab.num_sms() / 8 * 8;  // whole clusters
  }
}

// Launches a probe and returns the cycles of the timed loop: the median over blocks. Blocks without
// cycles are those of L2's load.
double Cycles(Lab& lab, ProbeTask* task) {
  task->cycles = static_cast<long long*>(lab.Allocate(size_t{8} * task->num_blocks));
  task->results = lab.Upload(std::vector<uint32_t>(task->num_blocks));
  task->flag = lab.Upload(std::vector<uint32_t>(1));
  lab.Run(*task, "probe");
  std::vector<long long> cycles = lab.Download<long long>(task->cycles, task->num_blocks);
  lab.Wait();
  if (!lab.ok() || cycles.empty()) return 0.0;
  if (task->probe == Probe::kL2Latency) return static_cast<double>(cycles[0]);
  std::sort(cycles.begin(), cycles.end());
  return static_cast<double>(cycles[cycles.size() / 2]);
}

void MeasureCycles(Lab& lab, const Line& line, JsonLine* json) {
  ProbeTask task = {.probe = line.probe, .first = line.first, .second = line.second};
  SetData(lab, &task);
  std::vector<double> samples;
  for (int i = 0; i <= kSamples && lab.ok(); ++i) {
    const double cycles = Cycles(lab, &task);
    if (i > 0) samples.push_back(cycles);  // the first run loads the code
  }
  if (!lab.ok()) return;
  std::sort(samples.begin(), samples.end());
  const double median = samples[samples.size() / 2];
  if (!IsRing(task.probe)) {
    json->Add("cycles", median / task.num_steps);
    json->Add("min_cycles", samples.front() / task.num_steps);
    return;
  }
  json->Add("bytes_per_cycle", static_cast<double>(task.data_bytes) / task.num_blocks / median);
  const Timing timing = lab.Time([&] { lab.Run(task, "probe"); });
  AddTiming(lab, timing, 1, static_cast<double>(task.data_bytes), json);
}

// The time of an empty kernel in a graph, next to a graph of one.
void MeasureNothings(Lab& lab, const Line& line, JsonLine* json) {
  const bool early = line.first != 0;
  lab.Note(LaunchNothing(early, lab.stream()), "an empty kernel");  // loads the code
  double seconds[2] = {};
  for (const int count : {1, 1 + kNothings}) {
    const Timing timing = lab.Time([&] {
      for (int i = 0; i < count && lab.ok(); ++i) {
        lab.Note(LaunchNothing(early, lab.stream()), "an empty kernel");
      }
    });
    seconds[count > 1 ? 1 : 0] = timing.median;
  }
  if (!lab.ok()) return;
  json->Add("node_us", (seconds[1] - seconds[0]) / kNothings * 1e6);
  json->Add("graph_us", seconds[0] * 1e6);
}

}  // namespace

void MeasureProbe(Lab& lab, const Line& line, JsonLine* json) {
  json->Add("first", line.first);
  json->Add("second", line.second);
  if (line.op == "boundary") return MeasureNothings(lab, line, json);
  MeasureCycles(lab, line, json);
}

}  // namespace tandem::kernel_lab
