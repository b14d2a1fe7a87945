#include "kernels/cpu/cpu_backend.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/built_backends.h"
#include "kernels/cpu/isa/cpu_isa.h"
#include "kernels/cpu/packing.h"
#include "kernels/kernel_testing.h"

namespace tandem {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CpuIsas, StartWithTheDefaultAndEndWithPortable) {
  const std::vector<std::string> isas = CpuIsas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.back(), "portable");
  auto backend = MakeCpuBackend({});
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->name(), "cpu");
  EXPECT_THAT(std::string((*backend)->description()), HasSubstr(isas.front()));
}

TEST(CpuIsas, ThoseThatTheBuildLeavesOutAreNotSupported) {
  constexpr CpuKernels kAbsent = {};
  const std::vector<IsaKernels> all = {
      {&kAbsent, true}, {&kPortableKernels, true}, {&kPortableKernels, false}};
  EXPECT_THAT(SupportedCpuKernels(all), ElementsAre(&kPortableKernels));
}

TEST(CpuIsas, EveryRunnableOneIsBuilt) {
  const std::vector<std::string> built = BuiltCpuIsas();
  for (const std::string& isa : CpuIsas()) EXPECT_THAT(built, Contains(isa));
  EXPECT_THAT(BuiltBackends(), StartsWith(built.front() + ", "));
}

TEST(MakeCpuBackend, RejectsAnUnknownInstructionSetAndListsTheAllowedOnes) {
  const absl::Status status = MakeCpuBackend({.isa = "sse9"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("sse9"));
  for (const std::string& isa : CpuIsas()) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(isa));
  }
}

TEST(MakeCpuBackend, UsesAtMostTheInstructionSetOfTheEnvironment) {
  const std::vector<std::string> all = CpuIsas();
  setenv(kMaxCpuIsa, "portable", 1);
  EXPECT_EQ(CpuIsas(), std::vector<std::string>{"portable"});
  const auto backend = MakeCpuBackend({.num_threads = 1});
  setenv(kMaxCpuIsa, "neon", 1);
  const auto none = MakeCpuBackend({.num_threads = 1});
  unsetenv(kMaxCpuIsa);
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_THAT(std::string((*backend)->description()), testing::HasSubstr("portable"));
  EXPECT_THAT(std::string(none.status().message()),
              testing::HasSubstr("TANDEM_MAX_CPU_ISA: found neon, allowed: " + all.front()));
  EXPECT_EQ(CpuIsas(), all);
}

TEST(MakeCpuBackend, RejectsBf16ProductsWithoutTheInstruction) {
  const absl::Status status =
      MakeCpuBackend({.compute = CpuCompute::kBF16, .isa = "portable"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no bf16 dot product"));
}

TEST(MakeCpuBackend, RejectsANegativeNumberOfThreads) {
  EXPECT_EQ(MakeCpuBackend({.num_threads = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(MakeCpuBackend, ChoosesBf16ProductsWhereTheCpuHasThem) {
  for (const std::string& isa : CpuIsas()) {
    const auto description = [&](CpuCompute compute) {
      return std::string((*MakeCpuBackend({.compute = compute, .isa = isa}))->description());
    };
    if (HasBf16Products(isa)) {
      EXPECT_THAT(description(CpuCompute::kAuto), HasSubstr("bf16 products"));
    }
    EXPECT_EQ(description(CpuCompute::kF32).find("bf16 products"), std::string::npos);
  }
}

TEST(CpuBackend, ReportsThatMemoryIsExhausted) {
  auto backend = MakeCpuBackend({.num_threads = 1});
  for (const size_t bytes : {size_t{1} << 60, SIZE_MAX}) {
    const absl::Status status = (*backend)->Allocate(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(bytes)));
  }
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * 4096;
}

TEST(CpuBackend, AllocatesLargeMemoryWithoutTouchingIt) {
  auto backend = MakeCpuBackend({.num_threads = 1});
  const int64_t before = ResidentBytes();
  auto buffer = (*backend)->Allocate(size_t{1} << 30);
  ASSERT_TRUE(buffer.ok());
  EXPECT_LT(ResidentBytes() - before, 64 << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % (2 << 20), 0u);
  static_cast<char*>(buffer->data())[(size_t{1} << 30) - 1] = 1;
}

TEST(CpuBackend, MemoryOfEverySizeIsAlignedAndWritable) {
  auto backend = MakeCpuBackend({.num_threads = 1});
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{4097}, (size_t{2} << 20) - 1,
                             size_t{2} << 20, (size_t{2} << 20) + 1}) {
    auto buffer = (*backend)->Allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->size_bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    std::memset(buffer->data(), 1, bytes);
  }
}

TEST(CpuBackend, UploadsCopiesAndDownloads) {
  auto backend = MakeCpuBackend({.num_threads = 1});
  auto first = (*backend)->Allocate(100), second = (*backend)->Allocate(100);
  std::vector<std::byte> sent(100, std::byte{7}), received(100);
  (*backend)->Upload(sent, first->data());
  (*backend)->Copy(first->data(), second->data(), 100);
  (*backend)->Download(second->data(), absl::MakeSpan(received));
  EXPECT_EQ(sent, received);
  EXPECT_TRUE((*backend)->Synchronize().ok());
}

TEST(CpuBackend, ImportReturnsTheHostView) {
  auto backend = MakeCpuBackend({.num_threads = 1});
  const TestWeight weight(TestMatrix(3, 5), DType::kF16);
  Buffer storage;
  auto view = (*backend)->Import(weight.view(), &storage);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->data, weight.view().data);
  EXPECT_EQ(storage.data(), nullptr);
}

// Spells out the layout that the kernels of every instruction set read.
TEST(PanelLayout, StoresStepsOf64OutputsInInputOrder) {
  for (const CpuKernels* kernels : RunnableCpuKernels()) {
    for (const int inputs : {1, 2, 31, 32, 33, 70}) {
      TestMatrix values(100, inputs);
      for (int r = 0; r < 100; ++r) {
        for (int c = 0; c < inputs; ++c)
          values.at(r, c) = static_cast<float>((r * 7 + c) % 128 + 1);
      }
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const TestWeight weight(values, dtype);
        const std::vector<WeightPart> parts = {{weight.view(), nullptr}};
        const PanelLayout layout(parts, PartOrder::kConcatenated, dtype);
        ASSERT_EQ(layout.num_panels(), 2);
        const int per_step = dtype == DType::kF32 ? 1 : 2;
        ASSERT_EQ(PanelShapeOf(dtype, inputs).num_steps, (inputs + per_step - 1) / per_step);
        for (int panel = 0; panel < 2; ++panel) {
          std::vector<std::byte> packed(layout.panel_bytes(), std::byte{0xFF});
          layout.PackPanel(panel, *kernels, packed.data());
          for (int k = 0; k < PanelShapeOf(dtype, inputs).num_steps * per_step; ++k) {
            for (int lane = 0; lane < 64; ++lane) {
              const int row = panel * 64 + lane;
              const float expected = row < 100 && k < inputs ? values.at(row, k) : 0.0f;
              const std::byte* at = packed.data() + k / per_step * 256 + lane * 4;
              float value = 0.0f;
              if (dtype == DType::kF32) {
                std::memcpy(&value, at, 4);
              } else {
                uint16_t bits = 0;
                std::memcpy(&bits, at + k % 2 * 2, 2);
                value = Bf16ToFloat(bits);
              }
              ASSERT_EQ(value, expected)
                  << kernels->name << " " << NameOf(dtype) << " output " << row << " input " << k;
            }
          }
        }
      }
    }
  }
}

TEST(MakeBackend, AcceptsOnlyKnownDevices) {
  EXPECT_TRUE(MakeBackend("cpu", {}).ok());
  EXPECT_TRUE(MakeBackend("auto", {}).ok());
  EXPECT_EQ(MakeBackend("tpu", {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeBackend("cuda:-1", {}).status().code(), absl::StatusCode::kInvalidArgument);
  if (!BuiltWithCuda()) {
    EXPECT_EQ(MakeBackend("cuda:0", {}).status().code(), absl::StatusCode::kUnavailable);
  }
}

}  // namespace
}  // namespace tandem
