#include "kernels/cuda/nccl.h"

#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "kernels/cuda/loaded_library.h"
#include "kernels/cuda/nccl_entries.h"

namespace tandem::cuda {
namespace {

// How often the state of the group is checked.
constexpr absl::Duration kLook = absl::Milliseconds(50);
// From 2.9, the first version that can be recorded in graphs, to before 3.
constexpr int kMinVersion = 20900;
constexpr int kVersionsEnd = 30000;

absl::StatusOr<NcclEntries> LoadEntries() {
  ASSIGN_OR_RETURN(const LoadedLibrary library,
                   LoadedLibrary::Open("TANDEM_NCCL", {"libnccl.so.2"}));
  NcclEntries nccl = {};
  absl::Status status;
  const auto find = [&](const char* name, auto* entry) { library.Find(name, entry, &status); };
  find("ncclGetVersion", &nccl.ncclGetVersion);
  find("ncclGetErrorString", &nccl.ncclGetErrorString);
  find("ncclGetUniqueId", &nccl.ncclGetUniqueId);
  find("ncclCommInitRank", &nccl.ncclCommInitRank);
  find("ncclCommGetAsyncError", &nccl.ncclCommGetAsyncError);
  find("ncclCommAbort", &nccl.ncclCommAbort);
  find("ncclAllGather", &nccl.ncclAllGather);
  if (!status.ok()) return status;
  return nccl;
}

class LoadedNccl final : public Nccl {
 public:
  explicit LoadedNccl(const NcclEntries& nccl) : nccl_(nccl) {}
  ~LoadedNccl() override {
    is_ending_.Notify();
    if (watcher_.joinable()) watcher_.join();
    Leave();
  }

  absl::StatusOr<std::string> NewGroup() override {
    NcclGroupId group = {};
    RETURN_IF_ERROR(Check(nccl_.ncclGetUniqueId(&group), "ncclGetUniqueId"));
    return std::string(group.bytes, sizeof(group.bytes));
  }

  absl::Status Join(const std::string& group, int rank, int world,
                    ColumnGatherer::TellGroup tell) override {
    NcclGroupId id = {};
    if (group.size() != sizeof(id.bytes)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "NCCL: a group id must have ", sizeof(id.bytes), " bytes, got ", group.size()));
    }
    std::memcpy(id.bytes, group.data(), sizeof(id.bytes));
    NcclRank joined = nullptr;
    RETURN_IF_ERROR(Check(nccl_.ncclCommInitRank(&joined, world, id, rank), "ncclCommInitRank"));
    rank_ = rank;
    tell_ = std::move(tell);
    {
      const absl::MutexLock lock(&mutex_);
      joined_ = joined;
    }
    watcher_ = std::thread([this] { Watch(); });
    return absl::OkStatus();
  }

  int rank() const override { return rank_; }
  absl::Status status() const override { return tell_(absl::OkStatus()); }

  absl::Status Gather(std::byte* all, size_t part_bytes, void* stream) override {
    NcclRank joined = nullptr;
    {
      const absl::MutexLock lock(&mutex_);
      if (joined_ == nullptr) return status();
      joined = joined_;
      is_calling_ = true;
    }
    const int result =
        nccl_.ncclAllGather(all + rank_ * part_bytes, all, part_bytes, kNcclBytes, joined, stream);
    const absl::MutexLock lock(&mutex_);
    is_calling_ = false;
    return Check(result, "ncclAllGather");
  }

 private:
  absl::Status Check(int result, const char* call) const {
    if (result == kNcclSuccess) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("NCCL: ", call, ": ", nccl_.ncclGetErrorString(result)));
  }

  // Leaves the group when it has failed: a gathering whose other ranks are gone never ends by
  // itself, nor does a wait for it.
  void Watch() {
    while (!is_ending_.WaitForNotificationWithTimeout(kLook)) {
      bool has_told = false;
      Attempt("NCCL", [&] { has_told = tell_(OfDevice()).ok(); });
      if (has_told) continue;
      return Leave();
    }
  }

  absl::Status OfDevice() {
    int result = kNcclSuccess;
    RETURN_IF_ERROR(Check(nccl_.ncclCommGetAsyncError(joined_, &result), "ncclCommGetAsyncError"));
    return result == kNcclInProgress ? absl::OkStatus() : Check(result, "a gathering");
  }

  // Aborts gatherings in progress. NCCL waits until all recordings with gatherings are forgotten,
  // so the thread that forgets them must do that before it calls Leave.
  void Leave() {
    NcclRank left = nullptr;
    {
      const absl::MutexLock lock(&mutex_);
      left = std::exchange(joined_, nullptr);
      // A call of ncclAllGather takes microseconds, unless it waits for a rank that is gone.
      mutex_.AwaitWithTimeout(absl::Condition(
                                  +[](bool* is_calling) { return !*is_calling; }, &is_calling_),
                              kLook);
    }
    if (left != nullptr) nccl_.ncclCommAbort(left);
  }

  const NcclEntries nccl_;
  int rank_ = 0;
  ColumnGatherer::TellGroup tell_;
  absl::Mutex mutex_;
  NcclRank joined_ = nullptr;  // written under the mutex; set to null by the watcher, or after it
  bool is_calling_ = false;    // guarded by the mutex
  absl::Notification is_ending_;
  std::thread watcher_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Nccl>> Nccl::Open() {
  const absl::StatusOr<NcclEntries> entries = LoadEntries();
  if (!entries.ok()) {
    return absl::UnavailableError(absl::StrCat("NCCL: ", entries.status().message()));
  }
  const NcclEntries& nccl = *entries;
  int version = 0;  // 22809 is 2.28.9
  nccl.ncclGetVersion(&version);
  if (version < kMinVersion || version >= kVersionsEnd) {
    return absl::UnavailableError(absl::StrCat("NCCL: found version ", version / 10000, ".",
                                               version / 100 % 100, ".", version % 100,
                                               ", allowed: from 2.9, before 3"));
  }
  return std::make_unique<LoadedNccl>(nccl);
}

}  // namespace tandem::cuda
