// Replaces NCCL on simulated devices: its entry points for processes of one machine, which exchange
// data through shared memory. As in NCCL's documentation, it is a fault if ranks gather different
// sizes, or if only some of them record the gathering.
#include "tests/simt/nccl_stand_in.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>

#include "kernels/cuda/nccl_entries.h"
#include "tests/simt/toolkit_stream.h"

namespace tandem::simt {
namespace {

using cuda::NcclGroupId;
using cuda::NcclRank;

constexpr int kUnhandledError = 1, kSystemError = 2, kInvalidArgument = 4;
constexpr int kMaxRanks = 8;
constexpr size_t kMaxPartBytes = size_t{8} << 20;

struct GroupName {
  uint64_t mark = 0x6E63636C;
  pid_t process = 0;
  int descriptor = 0;
};

struct Part {
  size_t bytes = 0;
  bool is_repeated = false;
  bool operator==(const Part&) const = default;
};
struct Shared {
  std::atomic<uint32_t> arrivals{0};
  std::atomic<bool> is_aborted{false};
  Part parts[kMaxRanks];
};
constexpr size_t kPartsAt = 4096;
constexpr size_t kWholeBytes = kPartsAt + kMaxRanks * kMaxPartBytes;
static_assert(sizeof(Shared) <= kPartsAt);

NcclStandInOptions& Options() {
  static NcclStandInOptions options;
  return options;
}
struct Counts {
  std::atomic<int> joined{0}, gathered{0}, repeated{0};
};
Counts& CountsOf() {
  static Counts counts;
  return counts;
}

struct Rank {
  Shared* shared = nullptr;
  int rank = 0;
  int world = 0;
  uint32_t meetings = 0;

  std::byte* PartOf(int r) const {
    return reinterpret_cast<std::byte*>(shared) + kPartsAt + r * kMaxPartBytes;
  }
  // Returns false if the group was aborted.
  bool Meet() {
    shared->arrivals.fetch_add(1);
    const uint32_t wanted = ++meetings * static_cast<uint32_t>(world);
    while (shared->arrivals.load() < wanted) {
      if (shared->is_aborted.load()) return false;
      sched_yield();
    }
    return true;
  }
  std::string Gather(const void* own, void* all, const Part& part) {
    if (part.bytes > kMaxPartBytes) return "the stand-in's buffer is too small for this part";
    std::memcpy(PartOf(rank), own, part.bytes);
    shared->parts[rank] = part;
    if (!Meet()) return "";
    for (int r = 0; r < world; ++r) {
      const Part& other = shared->parts[r];
      if (other.bytes != part.bytes) {
        return "rank " + std::to_string(r) + " gathers " + std::to_string(other.bytes) +
               " bytes, rank " + std::to_string(rank) + " " + std::to_string(part.bytes);
      }
      if (!(other == part)) return "some ranks record a gathering, and others do not";
      std::memcpy(static_cast<std::byte*>(all) + r * part.bytes, PartOf(r), part.bytes);
    }
    ++CountsOf().gathered;
    if (part.is_repeated) ++CountsOf().repeated;
    Meet();
    return "";
  }
};

}  // namespace
}  // namespace tandem::simt

using tandem::simt::CountsOf;
using tandem::simt::GroupName;
using tandem::simt::kWholeBytes;
using tandem::simt::Options;
using tandem::simt::Rank;
using tandem::simt::Shared;

extern "C" {

// NOLINTBEGIN(readability-identifier-naming)
int ncclGetVersion(int* version) {
  *version = Options().version;
  return tandem::cuda::kNcclSuccess;
}

const char* ncclGetErrorString(int result) {
  return result == tandem::simt::kSystemError ? "unhandled system error" : "unhandled error";
}

int ncclGetUniqueId(tandem::cuda::NcclGroupId* group) {
  if (Options().group_result != 0) return Options().group_result;
  GroupName name;
  name.process = getpid();
  name.descriptor = memfd_create("nccl-stand-in", MFD_CLOEXEC);  // exists as long as this process
  if (name.descriptor < 0 || ftruncate(name.descriptor, kWholeBytes) != 0) {
    return tandem::simt::kSystemError;
  }
  std::memcpy(group->bytes, &name, sizeof(name));
  return tandem::cuda::kNcclSuccess;
}

int ncclCommInitRank(tandem::cuda::NcclRank* made, int world, tandem::cuda::NcclGroupId group,
                     int rank) {
  if (Options().join_result != 0) return Options().join_result;
  GroupName name;
  std::memcpy(&name, group.bytes, sizeof(name));
  if (name.mark != GroupName().mark || rank < 0 || rank >= world ||
      world > tandem::simt::kMaxRanks) {
    return tandem::simt::kInvalidArgument;
  }
  const std::string path =
      "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.descriptor);
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return tandem::simt::kSystemError;
  void* const data =
      mmap(nullptr, kWholeBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  close(descriptor);
  if (data == MAP_FAILED) return tandem::simt::kSystemError;
  // All members of Shared start as zero.
  auto* const joined = new Rank{std::launder(static_cast<Shared*>(data)), rank, world};
  joined->Meet();
  ++CountsOf().joined;
  *made = joined;
  return tandem::cuda::kNcclSuccess;
}

int ncclCommGetAsyncError(tandem::cuda::NcclRank /*rank*/, int* result) {
  *result = Options().async_result;
  return tandem::cuda::kNcclSuccess;
}

// Does not delete the rank, because recordings refer to it.
int ncclCommAbort(tandem::cuda::NcclRank rank) {
  static_cast<Rank*>(rank)->shared->is_aborted = true;
  --CountsOf().joined;
  return tandem::cuda::kNcclSuccess;
}

int ncclAllGather(const void* own, void* all, size_t count, int type, tandem::cuda::NcclRank rank,
                  void* stream) {
  if (Options().gather_result != 0) return Options().gather_result;
  if (type != tandem::cuda::kNcclBytes) return tandem::simt::kInvalidArgument;
  static bool is_in_call = false;
  auto* const joined = static_cast<Rank*>(rank);
  is_in_call = true;
  const int error = static_cast<tandem::simt::ToolkitStream*>(stream)->enqueue(
      [=] { return joined->Gather(own, all, {.bytes = count, .is_repeated = !is_in_call}); });
  is_in_call = false;
  return error == 0 ? tandem::cuda::kNcclSuccess : tandem::simt::kUnhandledError;
}
// NOLINTEND(readability-identifier-naming)

void TandemSetNcclStandIn(const tandem::simt::NcclStandInOptions& options) { Options() = options; }

tandem::simt::NcclStandInCounts TandemNcclStandInCounts() {
  const auto& counts = CountsOf();
  return {counts.joined, counts.gathered, counts.repeated};
}

}  // extern "C"
