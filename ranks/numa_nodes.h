#ifndef TANDEM_RANKS_NUMA_NODES_H_
#define TANDEM_RANKS_NUMA_NODES_H_

#include <sched.h>

#include <string>
#include <vector>

namespace tandem {

// The processors of each of the machine's memory nodes that has any, of those that `allowed` holds.
// `root` is the folder in which /sys is found; for tests.
std::vector<cpu_set_t> NumaNodes(const cpu_set_t& allowed, const std::string& root = "");

// While it exists, this thread, and threads that it starts for good, run on the memory node of rank
// `rank` of `world` on this machine, and so their memory lies there. Changes nothing on a machine
// of one node.
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

#endif  // TANDEM_RANKS_NUMA_NODES_H_
