// The backend on several devices, and on devices that it cannot use.
#include "tests/simt/devices.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "engine/runtime.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/packing_on_device.h"
#include "tests/golden_file.h"
#include "tests/simt/launches.h"

namespace tandem::cuda {
namespace {

using testing::HasSubstr;

class DevicesTest : public testing::Test {
 protected:
  void TearDown() override {
    devices() = simt::Devices();
    cudaSetDevice(0);
  }
  static simt::Devices& devices() { return simt::Devices::Get(); }
  static std::string Refusal(int device) {
    const auto made = MakeCudaBackend(device);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kUnavailable);
    return std::string(made.status().message());
  }
};

std::unique_ptr<Backend> Opened(int device) {
  auto made = MakeCudaBackend(device);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return *std::move(made);
}

TEST_F(DevicesTest, AreRefusedBelowComputeCapability8) {
  devices().all = {{7, 5}};
  EXPECT_EQ(Refusal(0),
            "cuda:0: this host has compute capability 7.5, but 8.0 or later is required");
  auto backend = MakeBackend("auto", {});
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  EXPECT_EQ((*backend)->name(), "cpu");
  devices().all = {{12, 0}};
  EXPECT_EQ(Opened(0)->name(), "cuda:0");
}

TEST_F(DevicesTest, MissingDevicesAreRefused) {
  EXPECT_EQ(Refusal(2), "cuda:2: invalid device ordinal");
  devices().all.clear();
  EXPECT_EQ(Refusal(0), "cuda:0: no CUDA-capable device is detected");
  devices().has_driver = false;
  EXPECT_EQ(Refusal(0), "cuda:0: this machine has no NVIDIA driver");
}

// The runtime fails work that is enqueued on a stream of another device than the thread's, and
// frees of another device's memory.
TEST_F(DevicesTest, CallsSelectTheirOwnDevice) {
  std::vector<std::unique_ptr<Backend>> backends;
  std::vector<Buffer> from, to;
  std::vector<Recording> recordings;
  for (int i = 0; i < 2; ++i) {
    backends.push_back(Opened(i));
    from.push_back(*backends[i]->Allocate(sizeof(float)));
    to.push_back(*backends[i]->Allocate(sizeof(float)));
  }
  const auto bytes = [](float& value) {
    return absl::Span<std::byte>(reinterpret_cast<std::byte*>(&value), sizeof(value));
  };
  const auto each = [&](const auto& call) {
    for (int i = 0; i < 2; ++i) {
      cudaSetDevice(1 - i);
      call(i);
      const absl::Status status = backends[i]->Synchronize();
      EXPECT_TRUE(status.ok()) << status.message();
    }
  };
  each([&](int i) {
    float value = 5.0f + static_cast<float>(i);
    backends[i]->Upload(bytes(value), from[i].data());
  });
  each([&](int i) {
    auto recording = dynamic_cast<CudaBackend&>(*backends[i]).Record([&] {
      cudaSetDevice(1 - i);
      backends[i]->Copy(from[i].data(), to[i].data(), sizeof(float));
      cudaSetDevice(1 - i);
    });
    ASSERT_TRUE(recording.ok()) << recording.status().message();
    recordings.push_back(*recording);
  });
  each([&](int i) { dynamic_cast<CudaBackend&>(*backends[i]).Repeat(recordings[i]); });
  each([&](int i) { EXPECT_GT(*backends[i]->free_memory_bytes(), 0); });
  each([&](int i) {
    float value = 0.0f;
    backends[i]->Download(to[i].data(), bytes(value));
    EXPECT_EQ(value, 5.0f + static_cast<float>(i));
  });
  each([&](int i) {
    Forget(recordings[i]);
    from[i] = Buffer();
    to[i] = Buffer();
  });
}

TEST_F(DevicesTest, WrongDevicesAreSeen) {
  cudaStream_t stream = nullptr;
  void* data = nullptr;
  cudaSetDevice(1);
  ASSERT_EQ(cudaMalloc(&data, 4), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&made, graph, 0), cudaSuccess);
  cudaSetDevice(0);
  float host = 0.0f;
  const auto expect = [](cudaError_t error, const char* what) {
    EXPECT_THAT(cudaGetErrorString(error), HasSubstr(std::string(what) + " of device 1 while"));
  };
  expect(cudaMemcpyAsync(data, &host, 4, cudaMemcpyHostToDevice, stream), "a copy");
  expect(cudaMemcpyAsync(&host, data, 4, cudaMemcpyDeviceToHost, stream), "a copy");
  expect(cudaMemcpyAsync(data, data, 4, cudaMemcpyDeviceToDevice, stream), "a copy");
  expect(cudaStreamSynchronize(stream), "waiting");
  expect(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "recording");
  expect(cudaStreamEndCapture(stream, &graph), "the end of recording");
  expect(cudaGraphLaunch(made, stream), "replaying");
  expect(cudaFree(data), "memory");
  expect(cudaStreamDestroy(stream), "the end of a stream");
  cudaGraphExecDestroy(made);
}

TEST_F(DevicesTest, PackingTakesTheMemoryOfOnePiece) {
  constexpr int kRows = 64, kInputs = 32, kPiece = 10 * kInputs * 2 + 1;
  const std::vector<uint16_t> numbers(kRows * kInputs, 0x3F80);
  const WeightPart part{{numbers.data(), DType::kBF16, kRows, kInputs, kInputs}};
  const auto backend = Opened(0);
  const Buffer packed = *backend->Allocate(PackedWeightBytes(kRows / kTileOutputs, kInputs));
  std::vector<size_t> allocated;
  simt::RefusesMemory() = [&](size_t bytes) {
    allocated.push_back(bytes);
    return false;
  };
  auto& cuda = dynamic_cast<CudaBackend&>(*backend);
  const auto pack = [&] {
    return PackOnDevice({&part, 1}, PartOrder::kConcatenated, &cuda, cuda.stream(), packed.data(),
                        kPiece);
  };
  EXPECT_TRUE(pack().ok());
  EXPECT_THAT(allocated, testing::ElementsAre(10 * kInputs * 2));
  simt::RefusesMemory() = [](size_t) { return true; };
  EXPECT_TRUE(absl::IsResourceExhausted(pack()));
  simt::RefusesMemory() = nullptr;
}

// The device chooses the values of options that are not given.
TEST_F(DevicesTest, ChooseCacheTypesAndChunkSizes) {
  EngineOptions options;
  options.target = GoldenModelPath("mistral-full");
  options.draft = GoldenModelPath("mistral-noisy");
  const auto loaded = [&](const char* device) {
    options.device = device;
    auto runtime = Runtime::Load(options);
    EXPECT_TRUE(runtime.ok()) << runtime.status().message();
    return *std::move(runtime);
  };
  for (const auto& [device, kv_cache, chunk] :
       {std::tuple("cpu", "f32", 256), std::tuple("cuda:0", "bf16", 1024)}) {
    const Runtime runtime = loaded(device);
    EXPECT_EQ(runtime.TargetInfo("").kv_cache, kv_cache);
    EXPECT_EQ(runtime.DraftInfo("")->kv_cache, kv_cache);
    EXPECT_EQ(runtime.chunk_tokens, chunk);
  }
  options.kv_cache = KvCacheType::kF32;
  options.draft_kv_cache = KvCacheType::kAuto;
  options.chunk_tokens = 7;
  const Runtime runtime = loaded("cuda:0");
  EXPECT_EQ(runtime.TargetInfo("").kv_cache, "f32");
  EXPECT_EQ(runtime.DraftInfo("")->kv_cache, "bf16");
  EXPECT_EQ(runtime.chunk_tokens, 7);
}

}  // namespace
}  // namespace tandem::cuda
