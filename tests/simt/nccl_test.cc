// Gatherings of devices: the bytes that move, recordings, and failures.
#include "kernels/cuda/nccl.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_graph_cache.h"
#include "tests/simt/nccl_testing.h"

namespace tandem::cuda {
namespace {

using simt::DeviceRank;
using simt::OtherRanks;
using testing::HasSubstr;

// Sets TANDEM_NCCL and the stand-in's options during its lifetime.
class Named {
 public:
  explicit Named(const char* file, const simt::NcclStandInOptions& options = {}) {
    simt::SetNcclStandIn(options);  // TANDEM_NCCL still names the stand-in here
    setenv("TANDEM_NCCL", file, 1);
  }
  ~Named() {
    setenv("TANDEM_NCCL", NCCL_STAND_IN, 1);
    simt::SetNcclStandIn({});
  }
};

std::string Refusal() {
  const absl::Status status = Nccl::Open().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  return std::string(status.message());
}

TEST(Nccl, IsRefusedIfTheLibraryDoesNotFit) {
  {
    const Named named("none");
    EXPECT_EQ(Refusal(), "NCCL: TANDEM_NCCL is none");
  }
  {
    const Named named("/no/such/libnccl.so");
    EXPECT_THAT(Refusal(), HasSubstr("NCCL: /no/such/libnccl.so"));
  }
  {
    const Named named(NCCL_WITHOUT_ENTRIES);
    EXPECT_EQ(Refusal(), "NCCL: it has no ncclGetErrorString");
  }
  for (const auto& [version, text] :
       {std::pair{20806, "2.8.6"}, {2708, "0.27.8"}, {30000, "3.0.0"}}) {
    const Named named(NCCL_STAND_IN, {.version = version});
    EXPECT_EQ(Refusal(),
              absl::StrCat("NCCL: found version ", text, ", allowed: from 2.9, before 3"));
  }
  for (const int version : {20900, 22809, 29999}) {
    const Named named(NCCL_STAND_IN, {.version = version});
    EXPECT_TRUE(Nccl::Open().ok()) << version;
  }
}

TEST(Nccl, ErrorsNameTheFailedCall) {
  const auto opened = [] {
    auto nccl = Nccl::Open();
    EXPECT_TRUE(nccl.ok());
    return *std::move(nccl);
  };
  const auto tell = [](const absl::Status& status) { return status; };
  {
    const Named named(NCCL_STAND_IN, {.group_result = 2});
    EXPECT_EQ(opened()->NewGroup().status().message(),
              "NCCL: ncclGetUniqueId: unhandled system error");
  }
  const std::string group = *opened()->NewGroup();
  {
    const Named named(NCCL_STAND_IN, {.join_result = 2});
    EXPECT_EQ(opened()->Join(group, 0, 1, tell).message(),
              "NCCL: ncclCommInitRank: unhandled system error");
  }
  EXPECT_EQ(opened()->Join("short", 0, 1, tell).message(),
            "NCCL: a group id must have 128 bytes, got 5");
}

// Columns with and without a gap on either side, of ranks with many, few and no columns.
struct Gathering {
  int rows = 1;
  std::vector<int> bounds;
};
constexpr int kStride = 80;

float NumberAt(int rank, int row, int col) {
  return static_cast<float>(10000 * rank + 100 * row + col);
}

// Gathers several times from a matrix in which every number identifies its rank. The last
// gatherings are recorded. Returns an error if numbers are wrong.
absl::Status Gather(DeviceRank& rank, const Gathering& gathering) {
  constexpr int kTimes = 4;
  Backend& backend = *rank.backend;
  std::vector<float> own(gathering.rows * kStride);
  for (int r = 0; r < gathering.rows; ++r) {
    for (int c = 0; c < kStride; ++c) own[r * kStride + c] = NumberAt(rank.group->rank(), r, c);
  }
  const auto bytes = [](std::vector<float>& x) {
    return absl::Span<std::byte>(reinterpret_cast<std::byte*>(x.data()), x.size() * sizeof(float));
  };
  const auto recordings = backend.MakeGraphCache();
  const Buffer buffer = *backend.Allocate(bytes(own).size());
  const MatrixView whole{buffer.data(), DType::kF32, gathering.rows, kStride, kStride};
  for (int time = 0; time < kTimes; ++time) {
    backend.Upload(bytes(own), buffer.data());
    const int64_t key = 1;
    recordings->Run({&key, 1}, [&] {
      rank.group->GatherColumns(whole, [&](int r) {
        return RankShare{gathering.bounds[r], gathering.bounds[r + 1]};
      });
    });
    std::vector<float> got(own.size());
    backend.Download(buffer.data(), bytes(got));
    const absl::Status status = backend.Synchronize();
    if (!status.ok()) return status;
    std::vector<float> want = own;
    for (int r = 0; r < gathering.rows; ++r) {
      for (int of = 0; of < rank.group->world(); ++of) {
        for (int c = gathering.bounds[of]; c < gathering.bounds[of + 1]; ++c) {
          want[r * kStride + c] = NumberAt(of, r, c);
        }
      }
    }
    if (got != want) return absl::InternalError(absl::StrCat("other numbers at time ", time));
  }
  return absl::OkStatus();
}

TEST(DeviceRanks, GatherColumnsOfEveryRank) {
  for (const Gathering& gathering :
       {Gathering{1, {0, 48, 80}}, Gathering{3, {0, 40, 80}}, Gathering{5, {8, 24, 24, 40}},
        Gathering{2, {0, 0, 16, 64, 80}}, Gathering{1, {7, 7, 7}}, Gathering{4, {0, 80}}}) {
    const int world = static_cast<int>(gathering.bounds.size()) - 1;
    const auto memory = *SharedMemory::Create(world);
    OtherRanks others(memory, [&](DeviceRank& rank) { return Gather(rank, gathering); });
    {
      DeviceRank rank(memory, 0);
      const absl::Status status = Gather(rank, gathering);
      EXPECT_TRUE(status.ok()) << status.message();
    }
    EXPECT_TRUE(others.Wait());
  }
  EXPECT_EQ(simt::CountsOfNcclStandIn().joined, 0);
  EXPECT_GT(simt::CountsOfNcclStandIn().repeated, 0);
}

// A group of one, with a matrix to gather.
class AloneInAGroup : public testing::Test {
 protected:
  CudaBackend& backend() { return dynamic_cast<CudaBackend&>(*rank_.backend); }
  void Gather(int rows) {
    if (buffer_.size_bytes() == 0) buffer_ = *backend().Allocate(64 * kStride * sizeof(float));
    rank_.group->GatherColumns({buffer_.data(), DType::kF32, rows, kStride, kStride}, [](int) {
      return RankShare{0, kStride};
    });
  }
  DeviceRank rank_{*SharedMemory::Create(1), 0};
  Buffer buffer_;
};

// A rank cannot drop its recordings alone.
TEST_F(AloneInAGroup, KeepsRecordingsWhenScratchMemoryGrows) {
  CudaGraphCache recordings(&backend());
  int num_asked = 0;
  const auto gather = [&](int rows) {
    const int64_t key = rows;
    recordings.Run({&key, 1}, [&] {
      ++num_asked;
      Gather(rows);
    });
  };
  for (int i = 0; i < 3; ++i) gather(2);
  for (int i = 0; i < 3; ++i) gather(64);
  for (int i = 0; i < 3; ++i) gather(2);
  EXPECT_EQ(num_asked, 4);
  EXPECT_EQ(recordings.num_recordings(), 2);
  EXPECT_TRUE(backend().Synchronize().ok());
}

TEST_F(AloneInAGroup, ReportsCallsThatCannotBeRecorded) {
  CudaGraphCache recordings(&backend());
  std::vector<std::byte> host(4);
  const int64_t key = 1;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(backend().Synchronize().ok());
    recordings.Run({&key, 1}, [&] {
      Gather(1);
      backend().Download(buffer_.data(), absl::MakeSpan(host));
    });
  }
  EXPECT_THAT(std::string(backend().Synchronize().message()),
              HasSubstr("a copy from the device while recording"));
}

TEST_F(AloneInAGroup, ReportsAFailedGathering) {
  {
    const Named named(NCCL_STAND_IN, {.gather_result = 1});
    Gather(2);
    EXPECT_EQ(backend().Synchronize().message(), "NCCL: ncclAllGather: unhandled error");
  }
  Gather(2);
  EXPECT_TRUE(backend().Synchronize().ok());
}

TEST_F(AloneInAGroup, EndsTheGroupWhenItsDeviceFails) {
  const Named named(NCCL_STAND_IN, {.async_result = 2});
  while (rank_.host->status().ok()) std::this_thread::yield();
  EXPECT_EQ(rank_.host->status().message(), "NCCL: a gathering: unhandled system error");
  while (simt::CountsOfNcclStandIn().joined > 0) std::this_thread::yield();
  Gather(2);
  EXPECT_EQ(backend().Synchronize().message(), "NCCL: a gathering: unhandled system error");
}

// Waiting for a rank that has ended stops when the group ends.
TEST(DeviceRanks, StopWaitingWhenTheGroupEnds) {
  const auto memory = *SharedMemory::Create(2);
  OtherRanks others(memory, [](DeviceRank&) -> absl::Status { _exit(3); });
  DeviceRank rank(memory, 0);
  std::thread watcher([&] {
    EXPECT_FALSE(others.Wait());
    rank.host->Fail(absl::UnavailableError("rank 1 ended with status 3"));
  });
  const Buffer buffer = *rank.backend->Allocate(kStride * sizeof(float));
  rank.group->GatherColumns({buffer.data(), DType::kF32, 1, kStride, kStride}, [](int r) {
    return RankShare{r * kStride / 2, (r + 1) * kStride / 2};
  });
  watcher.join();
  EXPECT_EQ(rank.backend->Synchronize().message(), "rank 1 ended with status 3");
}

// The stand-in reports errors that NCCL's rules forbid.
TEST(DeviceRanks, RecordingOnSomeRanksOnlyIsSeen) {
  const auto memory = *SharedMemory::Create(2);
  const auto gather = [](DeviceRank& rank, bool records) -> absl::Status {
    auto& backend = dynamic_cast<CudaBackend&>(*rank.backend);
    const Buffer buffer = *backend.Allocate(2 * sizeof(float));
    const auto enqueue = [&] {
      rank.group->GatherColumns({buffer.data(), DType::kF32, 1, 2, 2}, [](int r) {
        return RankShare{r, r + 1};
      });
    };
    enqueue();
    absl::StatusOr<Recording> recording = nullptr;
    if (records) {
      recording = backend.Record(enqueue);
      backend.Repeat(*recording);
    } else {
      enqueue();
    }
    const absl::Status status = backend.Synchronize();
    Forget(*recording);
    if (!absl::StrContains(status.message(), "a gathering, and others do not") &&
        !absl::StrContains(status.message(), "unhandled error")) {
      return absl::InternalError(absl::StrCat("found ", status.ToString()));
    }
    return absl::OkStatus();
  };
  OtherRanks others(memory, [&](DeviceRank& rank) { return gather(rank, false); });
  {
    DeviceRank rank(memory, 0);
    const absl::Status status = gather(rank, true);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_TRUE(others.Wait());
}

}  // namespace
}  // namespace tandem::cuda
