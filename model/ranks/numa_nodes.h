#ifndef TANDEM_MODEL_RANKS_NUMA_NODES_H_
#define TANDEM_MODEL_RANKS_NUMA_NODES_H_

#include <sched.h>

#include <string>
#include <vector>

namespace tandem {

// Returns the processors in `allowed` of each NUMA node; omits nodes without any. `root`: the
// folder that contains /sys, for tests.
std::vector<cpu_set_t> NumaNodes(const cpu_set_t& allowed, const std::string& root = "");

// While this object exists, this thread runs on the NUMA node of rank `rank` of `world`, so that
// its memory is allocated there. Threads that it starts meanwhile stay on that node. No-op on a
// machine with one node.
class OnNumaNode {
 public:
  OnNumaNode(int rank, int world);
  ~OnNumaNode();
  OnNumaNode(const OnNumaNode&) = delete;
  OnNumaNode& operator=(const OnNumaNode&) = delete;

 private:
  cpu_set_t before_;
};

}  // namespace tandem

#endif  // TANDEM_MODEL_RANKS_NUMA_NODES_H_
