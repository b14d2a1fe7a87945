// The stand-in for NCCL in tests, and test processes that are ranks.
#ifndef TANDEM_TESTS_SIMT_NCCL_TESTING_H_
#define TANDEM_TESTS_SIMT_NCCL_TESTING_H_

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/environment.h"
#include "kernels/backend.h"
#include "model/ranks/rank_group.h"
#include "model/ranks/shared_ranks.h"
#include "tests/simt/nccl_stand_in.h"

namespace tandem::simt {

// Returns a function of the stand-in, whose path is in TANDEM_NCCL.
template <typename Function>
Function OfNcclStandIn(const char* name) {
  void* const library = dlopen(EnvironmentVariable("TANDEM_NCCL").c_str(), RTLD_NOW | RTLD_LOCAL);
  TANDEM_CHECK(library != nullptr);
  return reinterpret_cast<Function>(dlsym(library, name));
}
inline void SetNcclStandIn(const NcclStandInOptions& options) {
  OfNcclStandIn<SetNcclStandInOptions>("TandemSetNcclStandIn")(options);
}
inline NcclStandInCounts CountsOfNcclStandIn() {
  return OfNcclStandIn<GetNcclStandInCounts>("TandemNcclStandInCounts")();
}

// A rank with its own device. The members' order destroys users before the objects that they use.
struct DeviceRank {
  std::unique_ptr<RankGroup> host;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<RankGroup> group;

  // Waits until all ranks construct theirs. Aborts on an error.
  DeviceRank(std::shared_ptr<SharedMemory> memory, int rank) {
    host = JoinSharedRanks(std::move(memory), rank);
    auto made = MakeCudaBackend(rank);
    TANDEM_CHECK(made.ok());
    backend = *std::move(made);
    TANDEM_CHECK(backend->gatherer()->Open().ok());
    std::string words;
    if (rank == 0) words = *backend->gatherer()->NewGroup();
    auto joined = JoinDeviceRanks(host.get(), backend.get(), host->Exchange(words)->front());
    TANDEM_CHECK(joined.ok());
    group = *std::move(joined);
  }
};

// Processes of ranks 1 and up.
class OtherRanks {
 public:
  // Each process calls `run`, then waits for rank 0 to end, so that no rank leaves while others
  // still gather. An error of `run` is printed and ends the process with status 1.
  OtherRanks(std::shared_ptr<SharedMemory> memory,
             const std::function<absl::Status(DeviceRank& rank)>& run) {
    for (int r = 1; r < memory->world(); ++r) {
      processes_.push_back(fork());
      TANDEM_CHECK(processes_.back() >= 0);
      if (processes_.back() > 0) continue;
      absl::Status status;
      {
        DeviceRank rank(memory, r);
        status = run(rank);
        while (status.ok() && !rank.host->is_over()) status = rank.host->Receive().status();
        if (rank.host->is_over()) status = absl::OkStatus();
      }
      if (!status.ok()) std::cerr << "rank " << r << ": " << status.message() << std::endl;
      _exit(status.ok() ? 0 : 1);
    }
  }
  ~OtherRanks() { Wait(); }
  // Waits for all processes and returns whether all succeeded.
  bool Wait() {
    for (const pid_t process : processes_) {
      int status = 0;
      waitpid(process, &status, 0);
      are_well_ = are_well_ && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    processes_.clear();
    return are_well_;
  }

 private:
  std::vector<pid_t> processes_;
  bool are_well_ = true;
};

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_NCCL_TESTING_H_
