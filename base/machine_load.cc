#include "base/machine_load.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <sstream>

namespace tandem {
namespace {

constexpr double kDisturbingShare = 0.1;
constexpr int64_t kUncertainTicks = 5;

int64_t TicksOfOthers(const ProcessorTimes& before, const ProcessorTimes& after) {
  return std::max<int64_t>((after.busy - before.busy) - (after.own - before.own), 0);
}

// The first line of /proc/stat (proc_stat(5)).
bool ReadMachine(const std::string& root, ProcessorTimes* times) {
  std::ifstream file(root + "/proc/stat");
  std::string name;
  if (!(file >> name) || name != "cpu") return false;
  // user, nice, system, idle, iowait, irq, softirq, steal; guests' time is in user and nice.
  constexpr size_t kIdle = 3;
  constexpr size_t kWaiting = 4;
  std::array<int64_t, 8> ticks{};
  for (size_t i = 0; i < ticks.size(); ++i) {
    if (!(file >> ticks[i])) return false;
    times->total += ticks[i];
    if (i != kIdle && i != kWaiting) times->busy += ticks[i];
  }
  return true;
}

// The fields utime and stime (proc_pid_stat(5)), the 14th and 15th. The second is the program's
// name in parentheses, which may itself have blanks and parentheses.
bool ReadOwn(const std::string& root, ProcessorTimes* times) {
  std::ifstream file(root + "/proc/self/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return false;
  std::istringstream fields(line.substr(name_end + 1));
  constexpr int kFieldsBetween = 11;
  std::string skipped;
  for (int i = 0; i < kFieldsBetween; ++i) fields >> skipped;
  int64_t user = 0;
  int64_t system = 0;
  if (!(fields >> user >> system)) return false;
  times->own = user + system;
  return true;
}

}  // namespace

absl::Duration ThreadProcessorTime() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

std::optional<ProcessorTimes> ReadProcessorTimes(const std::string& root) {
  ProcessorTimes times;
  if (!ReadMachine(root, &times) || !ReadOwn(root, &times)) return std::nullopt;
  return times;
}

double ShareOfOthers(const ProcessorTimes& before, const ProcessorTimes& after) {
  const int64_t total = after.total - before.total;
  if (total <= 0) return 0.0;
  return std::min(static_cast<double>(TicksOfOthers(before, after)) / static_cast<double>(total),
                  1.0);
}

bool IsDisturbed(const ProcessorTimes& before, const ProcessorTimes& after) {
  return ShareOfOthers(before, after) > kDisturbingShare &&
         TicksOfOthers(before, after) > kUncertainTicks;
}

OtherLoad LoadWatch::Read() const {
  const std::optional<ProcessorTimes> after = ReadProcessorTimes();
  if (!before_.has_value() || !after.has_value()) return {};
  return {.share = ShareOfOthers(*before_, *after), .is_disturbing = IsDisturbed(*before_, *after)};
}

}  // namespace tandem
