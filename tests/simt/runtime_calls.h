// The calls of the simulated runtime, as tests see and change them.
#ifndef TANDEM_TESTS_SIMT_RUNTIME_CALLS_H_
#define TANDEM_TESTS_SIMT_RUNTIME_CALLS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

namespace tandem::simt {

struct RuntimeCalls {
  // Calls by name, without those that only ask about devices or select one. Launches of kernels are
  // "launch".
  std::map<std::string, int64_t> counts;
  // The error (of cudaError_t) of every such call, which then does nothing; 0: none. Any thread may
  // set it.
  std::atomic<int> fault = 0;
  bool refuses_pinned = false;  // whether allocations of pinned memory fail

  int64_t total() const {
    int64_t sum = 0;
    for (const auto& [name, count] : counts) sum += count;
    return sum;
  }
  static RuntimeCalls& Get() {
    static RuntimeCalls calls;
    return calls;
  }
};

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_RUNTIME_CALLS_H_
