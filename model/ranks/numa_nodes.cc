#include "model/ranks/numa_nodes.h"

#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tandem {
namespace {

// Parses a list such as "0-3,8" and keeps the processors in `allowed`. Ignores text that is not
// such a list.
cpu_set_t ParseCpuList(const std::string& text, const cpu_set_t& allowed) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const absl::string_view range : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(range, '-');
    int first = 0;
    int last = 0;
    if (!absl::SimpleAtoi(ends.first, &first)) continue;
    if (!absl::SimpleAtoi(ends.second, &last)) last = first;
    for (int cpu = first; cpu <= last && 0 <= cpu && cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &cpus);
    }
  }
  return cpus;
}

}  // namespace

std::vector<cpu_set_t> NumaNodes(const cpu_set_t& allowed, const std::string& root) {
  std::vector<cpu_set_t> nodes;
  constexpr int kMaxNodes = 1024;
  for (int node = 0; node < kMaxNodes; ++node) {
    std::ifstream file(absl::StrCat(root, "/sys/devices/system/node/node", node, "/cpulist"));
    std::string text;
    if (!std::getline(file, text)) continue;
    const cpu_set_t cpus = ParseCpuList(text, allowed);
    if (CPU_COUNT(&cpus) > 0) nodes.push_back(cpus);
  }
  return nodes;
}

OnNumaNode::OnNumaNode(int rank, int world) {
  CPU_ZERO(&before_);
  if (sched_getaffinity(0, sizeof(before_), &before_) != 0) return;
  const std::vector<cpu_set_t> nodes = NumaNodes(before_);
  if (nodes.size() < 2) return;
  const cpu_set_t& node = nodes[rank * nodes.size() / world];
  sched_setaffinity(0, sizeof(node), &node);
}

OnNumaNode::~OnNumaNode() {
  if (CPU_COUNT(&before_) > 0) sched_setaffinity(0, sizeof(before_), &before_);
}

}  // namespace tandem
