#include "base/process_limits.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

// A function of glibc; null with other C libraries.
extern "C" [[gnu::weak]] int malloc_trim(size_t keep_at_the_end) noexcept;

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Returns the folders of this process's group for `controller` and of all groups above it. Version
// 2 has one tree; version 1 has a tree for each controller, or for a few of them. In a container
// the group may be mounted as the root of the tree while /proc has its path on the host: then only
// the root exists.
std::vector<std::string> GroupFolders(const std::string& root, std::string_view controller) {
  std::vector<std::string> folders;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    const bool is_version_2 = fields[1].empty();
    if (!is_version_2 &&
        std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) {
      continue;
    }
    const std::string tree = is_version_2 ? "" : absl::StrCat("/", fields[1]);
    const fs::path top("/");
    for (fs::path group = (top / fields[2]).lexically_normal();; group = group.parent_path()) {
      folders.push_back(absl::StrCat(root, "/sys/fs/cgroup", tree, group.string()));
      if (group == top) break;
    }
  }
  return folders;
}

// Returns the number at the beginning of a file; nullopt if it begins otherwise, for example with
// "max".
std::optional<int64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// Returns the number after the word `wanted` at the beginning of a line.
std::optional<int64_t> NumberAfter(const std::string& path, std::string_view wanted) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    int64_t number = 0;
    if (word == wanted && file >> number) return number;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

// Returns the bytes of the page cache in a group and all groups below it. In version 1 these are
// the "total_" counters, in version 2 the plain ones.
int64_t BytesOfFiles(const std::string& folder) {
  const std::string path = folder + "/memory.stat";
  int64_t bytes = 0;
  for (const char* kind : {"active_file", "inactive_file"}) {
    const auto total = NumberAfter(path, absl::StrCat("total_", kind));
    bytes += total.has_value() ? *total : NumberAfter(path, kind).value_or(0);
  }
  return bytes;
}

// Returns the bytes that a group's limits leave; the largest integer if it does not have a limit.
int64_t BytesLeftIn(const std::string& folder) {
  int64_t left = std::numeric_limits<int64_t>::max();
  const struct {
    const char* limit;
    const char* used;
  } kinds[] = {{"/memory.max", "/memory.current"},
               {"/memory.high", "/memory.current"},
               {"/memory.limit_in_bytes", "/memory.usage_in_bytes"}};
  for (const auto& kind : kinds) {
    const auto limit = NumberIn(folder + kind.limit);
    if (!limit.has_value()) continue;
    const int64_t used = NumberIn(folder + kind.used).value_or(0) - BytesOfFiles(folder);
    left = std::min(left, std::max<int64_t>(0, *limit - std::max<int64_t>(0, used)));
  }
  return left;
}

// Returns how many processors the groups' quotas allow to be busy; the largest integer without a
// quota.
int ProcessorQuota(const std::string& root) {
  double quota = std::numeric_limits<int>::max();
  for (const std::string& folder : GroupFolders(root, "cpu")) {
    double time = -1.0;  // per period; stays negative if the file says "max"
    double period = 0.0;
    std::ifstream(folder + "/cpu.max") >> time >> period;
    if (const auto old = NumberIn(folder + "/cpu.cfs_quota_us"); old.has_value()) {
      time = static_cast<double>(*old);
      period = static_cast<double>(NumberIn(folder + "/cpu.cfs_period_us").value_or(0));
    }
    if (time > 0.0 && period > 0.0) quota = std::min(quota, time / period);
  }
  return static_cast<int>(quota);
}

int NumPhysicalCores(const std::string& root) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    return static_cast<int>(std::thread::hardware_concurrency());
  }
  std::set<std::string> cores;  // the sibling lists of the cores, one string each
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream file(
        absl::StrCat(root, "/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = absl::StrCat("cpu", cpu);
    cores.insert(siblings);
  }
  return static_cast<int>(cores.size());
}

}  // namespace

std::optional<int64_t> AvailableMemoryBytes(const std::string& root) {
  constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
  int64_t available = kUnknown;
  if (const auto kib = NumberAfter(root + "/proc/meminfo", "MemAvailable:"); kib.has_value()) {
    available = *kib << 10;
  }
  for (const std::string& folder : GroupFolders(root, "memory")) {
    available = std::min(available, BytesLeftIn(folder));
  }
  if (available == kUnknown) return std::nullopt;
  return available;
}

int NumUsableCores(const std::string& root) {
  return std::max(1, std::min(NumPhysicalCores(root), ProcessorQuota(root)));
}

int NumUsableProcessors(const std::string& root) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int count = sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                        ? CPU_COUNT(&allowed)
                        : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, std::min(count, ProcessorQuota(root)));
}

void ReturnFreeMemory() {
  if (&malloc_trim != nullptr) malloc_trim(0);
}

}  // namespace tandem
