#include "model/ranks/numa_nodes.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

// Reads the nodes of a system with these lists of processors.
std::vector<cpu_set_t> NodesOf(const cpu_set_t& allowed, const std::vector<std::string>& lists) {
  const TestFolder root;
  for (size_t node = 0; node < lists.size(); ++node) {
    root.Write(absl::StrCat("sys/devices/system/node/node", node, "/cpulist"), lists[node] + "\n");
  }
  return NumaNodes(allowed, root.path());
}

cpu_set_t Cpus(int first, int last) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (int cpu = first; cpu <= last; ++cpu) CPU_SET(cpu, &cpus);
  return cpus;
}

TEST(NumaNodes, AreThoseWithAllowedProcessors) {
  // The second node has only memory.
  const auto nodes = NodesOf(Cpus(0, 9), {"0-3,8", "", "4-7,9-12", "nonsense"});
  ASSERT_EQ(nodes.size(), 2);
  EXPECT_EQ(CPU_COUNT(&nodes[0]), 5);
  EXPECT_TRUE(CPU_ISSET(8, &nodes[0]));
  EXPECT_EQ(CPU_COUNT(&nodes[1]), 5);
  EXPECT_FALSE(CPU_ISSET(10, &nodes[1]));
  EXPECT_EQ(NodesOf(Cpus(0, 3), {"0-3,8", "4-7"}).size(), 1);
  EXPECT_TRUE(NodesOf(Cpus(0, 3), {}).empty());
}

TEST(NumaNodes, AffinityIsRestored) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  { const OnNumaNode node(1, 2); }
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace tandem
