// A device that is lost to its process: the backend, the engine and the server.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/runtime.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "server/server_testing.h"
#include "tandem/engine.h"
#include "tests/golden_file.h"
#include "tests/simt/runtime_calls.h"
#include "tools/program.h"

namespace tandem {
namespace {

using simt::RuntimeCalls;
using testing::AllOf;
using testing::ExitedWithCode;
using testing::HasSubstr;

constexpr char kLost[] = "an illegal memory access was encountered; this process cannot use";

class LostDevice : public testing::Test {
 protected:
  void TearDown() override { RuntimeCalls::Get().fault = 0; }
};

void ExpectLost(const absl::Status& status, const std::string& doing) {
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("cuda:0: ", doing, kLost)));
}

TEST_F(LostDevice, FailsEveryLaterCallWithoutReachingTheDevice) {
  RuntimeCalls& calls = RuntimeCalls::Get();
  const std::unique_ptr<Backend> backend = *MakeCudaBackend(0);
  Buffer buffer = *backend->Allocate(64);
  Buffer other = *backend->Allocate(64);
  const std::vector<std::byte> bytes(64);
  calls.fault = cudaErrorIllegalAddress;
  backend->Upload(bytes, buffer.data());
  const auto graphs = backend->MakeGraphCache();
  calls.fault = 0;
  const int64_t num_calls = calls.total();
  const absl::Status status = backend->Synchronize();
  ExpectLost(status, "copying to the device: ");
  EXPECT_EQ(backend->Synchronize(), status);
  EXPECT_EQ(backend->Allocate(64).status(), status);
  EXPECT_EQ(backend->health(), status);
  backend->Copy(buffer.data(), other.data(), 64);
  backend->ScaleAndCap(1.0f, 0.0f, {buffer.data(), DType::kF32, 1, 16, 16});
  const int64_t key = 1;
  bool was_asked = false;
  graphs->Run({&key, 1}, [&] { was_asked = true; });
  EXPECT_FALSE(was_asked);
  EXPECT_EQ(backend->Synchronize(), status);
  buffer = Buffer();
  EXPECT_EQ(calls.total(), num_calls);
}

TEST_F(LostDevice, IsNotLostByOtherErrors) {
  const std::unique_ptr<Backend> backend = *MakeCudaBackend(0);
  const Buffer buffer = *backend->Allocate(64);
  const std::vector<std::byte> bytes(64);
  RuntimeCalls::Get().fault = cudaErrorInvalidDevice;
  backend->Upload(bytes, buffer.data());
  RuntimeCalls::Get().fault = 0;
  EXPECT_EQ(backend->Synchronize(),
            absl::InternalError("cuda:0: copying to the device: invalid device ordinal"));
  EXPECT_TRUE(backend->Synchronize().ok());
  EXPECT_TRUE(backend->health().ok());
}

TEST_F(LostDevice, ErrorsThatStayAreKnown) {
  for (const int error : {46, 100, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719,
                          721, 810, 911, 999}) {
    EXPECT_TRUE(cuda::IsSticky(error)) << error;
  }
  // Success, an invalid value, no memory, an invalid configuration, and a capture that failed.
  for (const int error : {0, 1, 2, 9, 101, 900, 901}) EXPECT_FALSE(cuda::IsSticky(error)) << error;
}

Request LongRequest() {
  return {.prompt_ids = {5, 6, 7},
          .max_tokens = 40,
          .sampling = {.temperature = 0.0f},
          .ignore_eos = true};
}

TEST_F(LostDevice, FailsTheEngineForGood) {
  RuntimeCalls& calls = RuntimeCalls::Get();
  int num_failures = 0;
  absl::Status told;
  EngineOptions options;
  options.target = GoldenModelPath("mistral-full");
  options.draft = GoldenModelPath("mistral-noisy");
  options.device = "cuda:0";
  options.max_batch = 1;
  options.on_device_failure = [&](const absl::Status& why) {
    ++num_failures;
    told = why;
  };
  auto engine = Engine::Create(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_TRUE((*engine)->health().ok());
  const auto running = (*engine)->Submit(LongRequest(), [&](const Piece&) {
    calls.fault = cudaErrorIllegalAddress;
    return true;
  });
  const auto waiting = (*engine)->Submit(LongRequest());
  const absl::Status failed = (*engine)->Wait(*running).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(failed.message()), AllOf(HasSubstr("cuda:0: "), HasSubstr(kLost)));
  EXPECT_EQ((*engine)->Wait(*waiting).status(), failed);
  calls.fault = 0;
  const int64_t num_calls = calls.total();
  EXPECT_EQ((*engine)->Generate(LongRequest()).status(), failed);
  EXPECT_EQ((*engine)->health(), failed);
  EXPECT_TRUE((*engine)->CheckIntegrity().ok());
  *engine = nullptr;
  EXPECT_EQ(calls.total(), num_calls);
  EXPECT_EQ(num_failures, 1);
  EXPECT_EQ(told, failed);
}

int FreePort() {
  net::io_context io;
  return net::ip::tcp::acceptor(io, {net::ip::make_address("127.0.0.1"), 0})
      .local_endpoint()
      .port();
}

bool Listens(int port) {
  net::io_context io;
  net::ip::tcp::socket socket(io);
  beast::error_code error;
  socket.connect({net::ip::make_address("127.0.0.1"), static_cast<unsigned short>(port)}, error);
  return !error;
}

// Runs `tandem serve`. A client loses the device while one request streams and one waits, and
// prints the answers.
[[noreturn]] void ServeUntilTheDeviceIsLost() {
  const int port = FreePort();
  std::thread client([port] {
    while (!Listens(port)) absl::SleepFor(absl::Milliseconds(5));
    constexpr char kBody[] = R"({"prompt": [5, 6, 7], "max_tokens": 40, "ignore_eos": true)";
    Client stream(port, "/v1/completions", absl::StrCat(kBody, R"(, "stream": true})"));
    stream.ReadUntil("data: ");
    Client whole(port, "/v1/completions", absl::StrCat(kBody, "}"));
    RuntimeCalls::Get().fault = cudaErrorIllegalAddress;
    const Answer answer = whole.Read();
    std::fprintf(stderr, "answer: %d %s\n", answer.status, answer.error("code").c_str());
    std::fprintf(stderr, "stream: %s\n", stream.ReadUntil("0\r\n\r\n").c_str());
  });
  Program program(80, "");
  const auto text =
      program.Parse({"serve", "--target", GoldenModelPath("mistral-full"), "--drafter", "none",
                     "--device", "cuda:0", "--max-batch", "1", "--port", absl::StrCat(port)});
  TANDEM_CHECK(text.ok() && program.command().check().ok());
  const absl::Status status = program.command().run();
  client.join();
  std::fprintf(stderr, "end: %s\n", status.ToString().c_str());
  std::_Exit(status.ok() ? 0 : 1);
}

TEST(LostDeviceDeathTest, EndsTheServer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ServeUntilTheDeviceIsLost(), ExitedWithCode(1),
              AllOf(HasSubstr("answer: 503 device_failed"), HasSubstr("stream: "),
                    HasSubstr(absl::StrCat("{\"error\":{\"message\":\"cuda:0: ")),
                    HasSubstr("end: DATA_LOSS: cuda:0: "), HasSubstr(kLost)));
}

}  // namespace
}  // namespace tandem
