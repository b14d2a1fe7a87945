// Products that cuBLASLt computes, with its stand-in (cublas_stand_in.h) on the simulated device:
// which algorithms are accepted or refused, and that they do not change any bit.
#include "kernels/cuda/cublas_products.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/log_testing.h"
#include "gmock/gmock.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_graph_cache.h"
#include "kernels/cuda/cuda_testing.h"
#include "kernels/cuda/launch_shapes.h"
#include "kernels/product_testing.h"
#include "kvcache/paged_kv_cache.h"
#include "model/transformer.h"
#include "tests/golden_file.h"
#include "tests/simt/cublas_stand_in.h"
#include "tests/simt/devices.h"
#include "tests/simt/launches.h"
#include "tools/bench/operation_table.h"
#include "tools/checkpoints/random_model.h"
#include "tools/command.h"

namespace tandem::cuda {
namespace {

using simt::StandInAlgorithm;
using simt::StandInOptions;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// The other tests of this program must not find a library of the machine.
const int kNone = setenv("TANDEM_CUBLAS_LT", "none", 0);

constexpr StandInAlgorithm kOneBit = {.differs_in_one_bit = true};
constexpr StandInAlgorithm kSplit = {.splits_inputs = true};
constexpr int kInputs = 96;
constexpr int kOutputs = 40;  // tiles of 48

class Cublas : public CudaTest {
 protected:
  void SetUp() override {
    library_ = dlopen(CUBLAS_STAND_IN, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    Use({});
  }
  void TearDown() override {
    simt::Devices::Get() = simt::Devices();
    CudaTest::TearDown();
    backend_.reset();
    EXPECT_EQ(counts().handles, 0);
    EXPECT_EQ(counts().described, 0);
    simt::RefusesMemory() = nullptr;
    setenv("TANDEM_CUBLAS_LT", "none", 1);
  }

  // Opens a device whose library has these options.
  void Use(const StandInOptions& options, const std::string& path = CUBLAS_STAND_IN) {
    backend_.reset();
    setenv("TANDEM_CUBLAS_LT", path.c_str(), 1);
    reinterpret_cast<simt::SetStandInOptions>(dlsym(library_, "TandemSetStandIn"))(options);
    backend_ = *MakeCudaBackend(0);
    num_products_ = counts().products;
  }
  void UseNone() { Use({}, "none"); }

  simt::StandInCounts counts() {
    return reinterpret_cast<simt::GetStandInCounts>(dlsym(library_, "TandemStandInCounts"))();
  }
  // Returns the number of products since the last call.
  int NumProducts() {
    const int before = std::exchange(num_products_, counts().products);
    return num_products_ - before;
  }
  std::vector<std::string> Report() { return backend().product_report(); }

  PackedWeight Pack(int outputs = kOutputs, int inputs = kInputs, PartOrder order = {}) {
    std::mt19937 random(outputs + inputs);
    const TestWeight first(TestMatrix::Random(outputs, inputs, random), DType::kBF16);
    const TestWeight second(TestMatrix::Random(outputs, inputs, random), DType::kBF16);
    const std::vector<float> bias = RandomBias(outputs, random);
    std::vector<WeightPart> parts = {{first.view(), bias.data()}};
    if (order == PartOrder::kGateAndUp) parts.push_back({second.view()});
    PackedWeight weight = PackParts(backend(), parts, order);
    NumProducts();
    return weight;
  }
  enum class Kind { kStore, kAdd, kGated, kNormed, kNormedGated };
  TestMatrix Multiply(const PackedWeight& weight, int rows, Kind kind = Kind::kStore) {
    std::mt19937 random(rows);
    const TestMatrix x = TestMatrix::Random(rows, weight.inputs, random, 2.0f);
    const TestMatrix norm = TestMatrix::Random(1, weight.inputs, random);
    switch (kind) {
      case Kind::kStore:
        return tandem::Multiply(backend(), x, weight);
      case Kind::kAdd:
        return MultiplyAdd(backend(), x, weight, TestMatrix::Random(rows, weight.outputs, random));
      case Kind::kGated:
        return MultiplyGated(backend(), x, weight);
      case Kind::kNormed:
      case Kind::kNormedGated:
        break;
    }
    return MultiplyNormed(backend(), x, norm, weight, Activation::kGeluTanh);
  }
  static PartOrder OrderOf(Kind kind) {
    return kind == Kind::kGated || kind == Kind::kNormedGated ? PartOrder::kGateAndUp
                                                              : PartOrder::kConcatenated;
  }

  void* library_ = nullptr;
  LogCapture log_;
  int num_products_ = 0;
};

TEST_F(Cublas, ComputesManyRowsWithOurBits) {
  const std::vector<Kind> kinds = {Kind::kStore, Kind::kAdd, Kind::kGated, Kind::kNormed,
                                   Kind::kNormedGated};
  std::vector<TestMatrix> ours, theirs;
  for (const bool has_library : {false, true}) {
    Use({}, has_library ? CUBLAS_STAND_IN : "none");
    for (const Kind kind : kinds) {
      const PackedWeight weight = Pack(kOutputs, kInputs, OrderOf(kind));
      for (const int rows : {120, 300}) {
        (has_library ? theirs : ours).push_back(Multiply(weight, rows, kind));
        EXPECT_EQ(NumProducts(), has_library ? 1 : 0);
      }
    }
  }
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(theirs[i].SameBits(ours[i])) << i;
}

// The last call is not full, and inputs end within a step.
TEST_F(Cublas, AcceptsShapesThatDoNotFillATile) {
  for (const auto& [outputs, inputs] : {std::pair{33, 7}, {40, 33}, {129, 65}}) {
    Use({});
    const TestMatrix theirs = Multiply(Pack(outputs, inputs), 129, Kind::kNormed);
    EXPECT_EQ(NumProducts(), 1);
    UseNone();
    EXPECT_TRUE(theirs.SameBits(Multiply(Pack(outputs, inputs), 129, Kind::kNormed)));
  }
}

TEST_F(Cublas, SplitsMoreRowsThanItsMaximum) {
  const int rows = CublasProducts::kMaxRows + 130;
  const TestMatrix theirs = Multiply(Pack(kOutputs, 32), rows, Kind::kAdd);
  EXPECT_EQ(NumProducts(), 2);
  UseNone();
  EXPECT_TRUE(theirs.SameBits(Multiply(Pack(kOutputs, 32), rows, Kind::kAdd)));
}

TEST_F(Cublas, WritesRowsForTheNextProduct) {
  std::vector<TestMatrix> results;
  for (const char* library : {CUBLAS_STAND_IN, "none"}) {
    Use({}, library);
    const PackedWeight gate_up = Pack(96, 64, PartOrder::kGateAndUp), down = Pack(64, 96);
    std::mt19937 random(5);
    UploadedMatrix x(backend(), TestMatrix::Random(200, 64, random));
    UploadedMatrix norm(backend(), TestMatrix::Random(1, 64, random));
    UploadedMatrix gated(backend(), TestMatrix(200, 96));
    const NormedRows normed{.x = x.view(), .weight = norm.data(), .epsilon = kNormEpsilon};
    for (int layer = 0; layer < 3; ++layer) {
      backend().MatMulGated(normed, gate_up, Activation::kSilu, gated.view(), {.weight = &down});
      backend().MatMulAdd(gated.view(), down, x.view(), {.weight = &gate_up, .norm = norm.data()});
    }
    results.push_back(x.Get());
  }
  EXPECT_TRUE(results[0].SameBits(results[1]));
}

TEST_F(Cublas, LeavesFewRowsToOurProducts) {
  const PackedWeight weight = Pack();
  for (const int rows : {1, 8, 9, 32}) Multiply(weight, rows);
  EXPECT_EQ(NumProducts(), 0);
}

TEST_F(Cublas, IsReportedByShape) {
  const PackedWeight one = Pack(), other = Pack(17, 32), again = Pack();
  EXPECT_THAT(Report(),
              ElementsAre("cublas=13.1.0 copy_bytes=0 wanted_copy_bytes=20480",
                          "product=32x32 many_rows=cublas rows=128,256,384,512,640,768,896,1024 "
                          "refused_algorithms=0",
                          "product=48x96 many_rows=cublas rows=128,256,384,512,640,768,896,1024 "
                          "refused_algorithms=0"));
  EXPECT_THAT(log_.text(), HasSubstr("device=cuda:0 cublas=13.1.0 copy_bytes=0 "));
  EXPECT_THAT(log_.text(), HasSubstr("device=cuda:0 product=48x96 many_rows=cublas rows=128,256"));
  Multiply(one, 200);
  EXPECT_EQ(Report()[0], "cublas=13.1.0 copy_bytes=9216 wanted_copy_bytes=20480");
}

// Neither shapes without an accepted algorithm nor weights that multiply few rows have copies, and
// products of more rows do not allocate again.
TEST_F(Cublas, CopiesOnlyWeightsThatItMultiplies) {
  constexpr size_t kCopyBytes = 9216;
  for (const StandInAlgorithm& algorithm : {StandInAlgorithm(), kOneBit}) {
    Use({.algorithms = {algorithm}});
    const PackedWeight used = Pack(), unused = Pack();
    int num_copies = 0;
    simt::RefusesMemory() = [&](size_t bytes) {
      num_copies += bytes == kCopyBytes ? 1 : 0;
      return false;
    };
    Multiply(unused, 32);
    Multiply(used, 32);
    EXPECT_EQ(num_copies, 0);
    for (const int rows : {200, 300}) Multiply(used, rows);
    const int want = algorithm.differs_in_one_bit ? 0 : 1;
    EXPECT_EQ(num_copies, want);
    EXPECT_THAT(Report()[0], HasSubstr(absl::StrCat(" copy_bytes=", want * kCopyBytes,
                                                    " wanted_copy_bytes=", want * 2 * kCopyBytes)));
    simt::RefusesMemory() = nullptr;
  }
}

// ---- Compared on the device ----

// Random numbers are uploaded once. The results of eight numbers of rows are not downloaded.
TEST_F(Cublas, IsComparedOnTheDevice) {
  constexpr int64_t kTileOutputsOfWeight = 48, kMost = CublasProducts::kMaxRows;
  for (const bool has_library : {false, true}) {
    if (has_library) {
      Use({.algorithms = {kOneBit, {}}});
    } else {
      UseNone();
    }
    const simt::HostCopies before = simt::CopiedBytes();
    Pack();
    const simt::HostCopies after = simt::CopiedBytes();
    const int64_t plain = 2 * kOutputs * kInputs + 4 * kTileOutputsOfWeight;  // and the bias
    const int64_t random = 2 * kTileOutputsOfWeight * kInputs + 4 * kMost * kInputs;
    constexpr int64_t kComparisons = 2 * 8, kWordOfEach = 4;
    EXPECT_EQ(after.in - before.in,
              plain + (has_library ? random + kComparisons * kWordOfEach : 0));
    EXPECT_LE(after.out - before.out, has_library ? kComparisons * 8192 : 0);
    EXPECT_EQ(after.out > before.out, has_library);
  }
}

TEST_F(Cublas, CountsEveryDifference) {
  auto& cuda = dynamic_cast<CudaBackend&>(backend());
  for (const int size : {1, 31, 256, 257, 70000}) {  // the last has several words for each thread
    std::vector<uint32_t> words(size);
    std::iota(words.begin(), words.end(), 5);
    const Buffer a = Upload(words);
    for (const std::set<int>& places : {std::set<int>(), {0}, {size - 1}, {0, size / 2}}) {
      std::vector<uint32_t> other = words;
      for (const int place : places) other[place] ^= 0x80000000;
      const Buffer b = Upload(other);
      const Buffer counts = Upload(std::vector<uint32_t>(NumDifferenceCounts(size), 77));
      const CountDifferencesTask task{.a = a.data(),
                                      .b = b.data(),
                                      .num_words = size,
                                      .counts = static_cast<uint32_t*>(counts.data())};
      EXPECT_EQ(Launch(task, cuda.stream()), kNoError);
      const std::vector<uint32_t> got = Download<uint32_t>(counts);
      EXPECT_EQ(std::accumulate(got.begin(), got.end(), size_t{0}), places.size()) << size;
    }
  }
}

TEST_F(Cublas, IsShownByInspect) {
  CLI::App program;
  const Command inspect = AddInspectCommand(&program);
  const std::string path = GoldenModelPath("llama-bf16");
  program.parse(absl::StrCat("inspect --threads 1 --device cuda:0 ", path));
  testing::internal::CaptureStdout();
  const absl::Status status = inspect.run();
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(text, HasSubstr("device          cuda:0: this host, sm_"));
  EXPECT_THAT(text, HasSubstr("products        cublas=13.1.0 copy_bytes="));
  EXPECT_THAT(text, HasSubstr("many_rows=cublas rows=128,"));
}

TEST_F(Cublas, IsNotLoadedWithoutBf16Weights) {
  std::mt19937 random(1);
  PackOne(backend(), TestWeight(TestMatrix::Random(17, 32, random), DType::kQ8_0));
  EXPECT_EQ(counts().handles, 0);
  EXPECT_TRUE(Report().empty());
}

// ---- Refused at load ----

TEST_F(Cublas, IsRefusedForOneWrongBit) {
  Use({.algorithms = {kOneBit}});
  const PackedWeight weight = Pack();
  Multiply(weight, 200);
  EXPECT_EQ(NumProducts(), 0);
  EXPECT_THAT(Report(), Contains("product=48x96 many_rows=own reason=\"bits differ\""));
  EXPECT_THAT(log_.text(), HasSubstr("product=48x96 many_rows=own reason=\"bits differ\""));
  EXPECT_THAT(Report(), Contains("cublas=13.1.0 copy_bytes=0 wanted_copy_bytes=0"));
}

TEST_F(Cublas, UsesTheFirstAlgorithmWithOurBits) {
  Use({.algorithms = {kOneBit, {.state = 15}, {.status = 15}, {}}});
  const TestMatrix theirs = Multiply(Pack(), 200);
  EXPECT_EQ(NumProducts(), 1);
  EXPECT_THAT(Report().back(), HasSubstr("1024 refused_algorithms=16"));
  UseNone();
  EXPECT_TRUE(theirs.SameBits(Multiply(Pack(), 200)));
}

TEST_F(Cublas, IsRefusedWithoutAnAlgorithm) {
  Use({.algorithms = {}});
  const PackedWeight weight = Pack();
  EXPECT_THAT(Report(), Contains("product=48x96 many_rows=own reason=\"no algorithm\""));
}

// Sums over parts of the inputs have other bits, so such algorithms are not requested.
TEST_F(Cublas, IsRefusedIfInputsAreSplit) {
  Use({.algorithms = {kSplit}});
  const PackedWeight weight = Pack();
  EXPECT_THAT(Report(), Contains("product=48x96 many_rows=own reason=\"no algorithm\""));
}

TEST_F(Cublas, IsRefusedIfItsWorkspaceIsTooLarge) {
  Use({.algorithms = {{.workspace_bytes = CublasProducts::kWorkspaceBytes + 1}}});
  EXPECT_THAT((Pack(), Report()), Contains("product=48x96 many_rows=own reason=\"no algorithm\""));
  Use({.algorithms = {{.workspace_bytes = CublasProducts::kWorkspaceBytes}}});
  EXPECT_THAT((Pack(), Report().back()), HasSubstr("many_rows=cublas"));
}

TEST_F(Cublas, IsRefusedOnErrors) {
  Use({.algorithms = {{.status = 15}}});
  EXPECT_THAT((Pack(), Report().back()),
              HasSubstr("many_rows=own reason=\"cuBLASLt: CUBLAS_STATUS_NOT_SUPPORTED\""));
  Use({.heuristic_status = 15});
  EXPECT_THAT((Pack(), Report().back()),
              HasSubstr("many_rows=own reason=\"cuBLASLt: CUBLAS_STATUS_NOT_SUPPORTED\""));
}

// Numbers of rows without a plan are padded to a larger number.
TEST_F(Cublas, PadsRowsToAnAcceptedNumber) {
  Use({.min_rows = 512});
  const TestMatrix theirs = Multiply(Pack(), 200);
  EXPECT_EQ(NumProducts(), 1);
  EXPECT_THAT(Report().back(), HasSubstr("many_rows=cublas rows=512,640,768,896,1024"));
  UseNone();
  EXPECT_TRUE(theirs.SameBits(Multiply(Pack(), 200)));
}

// ---- No library ----

TEST_F(Cublas, IsNotUsedIfItIsMissing) {
  Use({}, "/nowhere/libcublasLt.so.13");
  Multiply(Pack(), 200);
  EXPECT_THAT(Report(), ElementsAre(HasSubstr("cublas=none reason=\"/nowhere/libcublasLt.so.13")));
  EXPECT_THAT(log_.text(),
              HasSubstr("device=cuda:0 cublas=none reason=\"/nowhere/libcublasLt.so.13"));
}

TEST_F(Cublas, IsNotUsedInAnotherVersion) {
  for (const size_t version : {12103, 110000, 140000}) {
    Use({.version = version});
    Multiply(Pack(), 200);
    EXPECT_EQ(Report()[0],
              absl::StrCat("cublas=none reason=\"version ", version / 10000, ".",
                           version / 100 % 100, ".", version % 100, " is neither 12 nor 13\""));
    EXPECT_EQ(NumProducts(), 0);
  }
  Use({.version = 120803});
  EXPECT_THAT((Pack(), Report()[0]), HasSubstr("cublas=12.8.3 "));
}

TEST_F(Cublas, IsNotUsedIfAnEntryIsMissing) {
  Use({}, CUBLAS_WITHOUT_ENTRIES);
  Multiply(Pack(), 200);
  EXPECT_THAT(Report(), ElementsAre("cublas=none reason=\"it has no cublasLtGetStatusName\""));
}

TEST_F(Cublas, IsNotUsedIfCreationFails) {
  Use({.create_status = 15});
  Multiply(Pack(), 200);
  EXPECT_THAT(Report(), ElementsAre("cublas=none reason=\"cublasLtCreate: "
                                    "CUBLAS_STATUS_NOT_SUPPORTED\""));
}

// ---- Memory ----

TEST_F(Cublas, FreesItsMemoryWhenAnAllocationFails) {
  const PackedWeight weight = Pack();
  const int64_t free_bytes = *backend().free_memory_bytes();
  const TestMatrix theirs = Multiply(weight, 200);
  EXPECT_EQ(NumProducts(), 1);
  // The device does not report that less is free.
  EXPECT_EQ(*backend().free_memory_bytes(), free_bytes + 9216);
  int num_refused = 0;
  simt::RefusesMemory() = [&](size_t bytes) { return bytes == 12345 && num_refused++ == 0; };
  EXPECT_TRUE(backend().Allocate(12345).ok());
  EXPECT_EQ(num_refused, 2);
  EXPECT_THAT(Report(), ElementsAre("cublas=none reason=\"memory was needed elsewhere; copies "
                                    "took 9216 bytes\""));
  EXPECT_TRUE(Multiply(weight, 200).SameBits(theirs));
  EXPECT_EQ(NumProducts(), 0);
  EXPECT_EQ(*backend().free_memory_bytes(), free_bytes);
  const PackedWeight other = Pack(17, 32);  // it stays off
  Multiply(other, 200);
  EXPECT_EQ(NumProducts(), 0);
  simt::RefusesMemory() = [](size_t bytes) { return bytes == 12345; };
  EXPECT_TRUE(absl::IsResourceExhausted(backend().Allocate(12345).status()));
}

// Either all weights have a copy or none, because with a few copies only a few products would be
// faster.
TEST_F(Cublas, IsNotUsedIfCopiesDoNotFit) {
  const PackedWeight first = Pack(), second = Pack();
  constexpr size_t kCopyBytes = 9216;
  int num_copies = 0;
  simt::RefusesMemory() = [&](size_t bytes) {
    num_copies += bytes == kCopyBytes ? 1 : 0;
    return false;
  };
  size_t& free_bytes = simt::Devices::Get().all[0].free_bytes;
  free_bytes = CublasProducts::kSpareBytes + 2 * kCopyBytes - 1;
  Multiply(first, 200);
  Multiply(second, 200);
  EXPECT_EQ(NumProducts(), 0);
  EXPECT_EQ(num_copies, 0);
  EXPECT_THAT(Report(),
              ElementsAre("cublas=none reason=\"copies would take 18432 of 268453887 free "
                          "bytes, of which 268435456 are kept\""));
  EXPECT_THAT(log_.text(), HasSubstr("cublas=none reason=\"copies would take 18432"));

  Use({});
  const PackedWeight third = Pack(), fourth = Pack();
  ++free_bytes;
  Multiply(third, 200);
  free_bytes = 0;  // whether all fit has been decided
  Multiply(fourth, 200);
  EXPECT_EQ(NumProducts(), 2);
}

TEST_F(Cublas, ReleasesCopiesIfALaterOneDoesNotFit) {
  const PackedWeight first = Pack(), second = Pack();
  Multiply(first, 200);
  EXPECT_EQ(NumProducts(), 1);
  simt::RefusesMemory() = [](size_t bytes) { return bytes == 9216; };
  Multiply(second, 200);
  Multiply(first, 200);
  EXPECT_EQ(NumProducts(), 0);
  EXPECT_THAT(Report(), ElementsAre(HasSubstr("cublas=none reason=\"memory was needed elsewhere")));
}

// Loading another model may change what fits. Copies that recordings may use are kept.
TEST_F(Cublas, MakesNoMoreCopiesThanFit) {
  const PackedWeight first = Pack();
  Multiply(first, 200);
  const PackedWeight second = Pack();
  simt::Devices::Get().all[0].free_bytes = 9216;
  NumProducts();
  Multiply(second, 200);
  EXPECT_EQ(NumProducts(), 0);
  Multiply(first, 200);
  EXPECT_EQ(NumProducts(), 1);
  EXPECT_THAT(Report()[0], HasSubstr("copy_bytes=9216 wanted_copy_bytes=18432 reason=\"copies "
                                     "would take 18432 of 18432 free bytes"));
}

TEST_F(Cublas, IsRefusedIfComparingDoesNotFit) {
  simt::RefusesMemory() = [](size_t bytes) { return bytes == CublasProducts::kWorkspaceBytes; };
  const PackedWeight weight = Pack();
  EXPECT_THAT(Report().back(), HasSubstr("many_rows=own reason=\"cuda:0: no memory for 33554432"));
  Multiply(weight, 200);
  EXPECT_EQ(NumProducts(), 0);
}

TEST_F(Cublas, FreesTheCopyOfADestroyedWeight) {
  {
    const PackedWeight weight = Pack();
    Multiply(weight, 200);
    EXPECT_EQ(Report()[0], "cublas=13.1.0 copy_bytes=9216 wanted_copy_bytes=9216");
  }
  EXPECT_EQ(Report()[0], "cublas=13.1.0 copy_bytes=0 wanted_copy_bytes=0");
}

// ---- Recorded ----

TEST_F(Cublas, IsRecordedAndReplayed) {
  auto* const cuda = dynamic_cast<CudaBackend*>(backend_.get());
  CudaGraphCache graphs(cuda);
  const PackedWeight weight = Pack(kInputs, kInputs);
  UploadedMatrix x(backend(), TestMatrix(200, kInputs, 0));
  UploadedMatrix sum(backend(), TestMatrix(200, kInputs)),
      again(backend(), TestMatrix(200, kInputs));
  int num_asked = 0;
  const auto pass = [&](float value) {
    std::vector<float> filled(200 * kInputs);
    for (size_t i = 0; i < filled.size(); ++i) filled[i] = value + static_cast<float>(i / kInputs);
    backend().Upload(
        {reinterpret_cast<const std::byte*>(filled.data()), filled.size() * sizeof(float)},
        x.view().data);
    const int64_t key = 1;
    graphs.Run({&key, 1}, [&] {
      ++num_asked;
      backend().MatMul(x.view(), weight, sum.view());
    });
    backend().MatMul(x.view(), weight, again.view());
    EXPECT_TRUE(sum.Get().SameBits(again.Get())) << value;
  };
  for (const float value : {1.0f, 2.0f, 3.0f, 4.0f}) pass(value);
  EXPECT_EQ(num_asked, 2);
  EXPECT_EQ(graphs.num_recordings(), 1);
  EXPECT_EQ(NumProducts(), 8);
  // Recordings that use freed memory are dropped.
  simt::RefusesMemory() = [](size_t bytes) { return bytes == 12345; };
  backend().Allocate(12345).IgnoreError();
  simt::RefusesMemory() = nullptr;
  pass(5.0f);
  EXPECT_EQ(num_asked, 3);
  EXPECT_EQ(NumProducts(), 0);
}

// ---- Models ----

// Prompts in one pass, with enough rows for the library, have the same logits as without it.
TEST_F(Cublas, ChangesNoBitOfAModel) {
  std::vector<std::vector<float>> logits;
  for (const bool has_library : {false, true}) {
    if (has_library) {
      Use({});
    } else {
      UseNone();
    }
    const RandomModelShape shape = *RandomModelShape::Parse("layers=2");
    const auto model =
        *Transformer::Load("random", shape.Config(), MakeRandomWeights(shape, 5), backend_.get());
    const auto cache =
        *PagedKvCache::Create(backend_.get(), model->kv_layout(16, KvDType::kBF16), 10);
    KvSequence kv = cache->NewSequence();
    const std::vector<TokenId> tokens(140, 7);
    const ForwardRequest request{.tokens = tokens, .kv = &kv, .num_logits = 140};
    NumProducts();
    const auto rows = model->Forward({&request, 1});
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    const auto* const values = static_cast<const float*>(rows->data);
    logits.emplace_back(values, values + int64_t{rows->rows} * rows->cols);
    const int num_products = NumProducts();
    EXPECT_EQ(num_products > 0, has_library) << num_products;
  }
  ASSERT_EQ(logits[0].size(), logits[1].size());
  EXPECT_EQ(std::memcmp(logits[0].data(), logits[1].data(), logits[0].size() * sizeof(float)), 0);
}

// ---- With any bits ----

TEST_F(Cublas, CanBeAReferenceWithAnyOrderOfSums) {
  const auto reference = [&]() -> absl::StatusOr<std::vector<float>> {
    const Buffer x = Upload(std::vector<uint16_t>(8 * 64, 0x3F80));
    const Buffer sums = Upload(std::vector<float>(8 * 8));
    const ConstMatrixView view(x.data(), DType::kBF16, 8, 64, 64);
    const absl::Status status =
        backend().meter()->ReferenceProduct(view, view, {sums.data(), DType::kF32, 8, 8, 8});
    if (!status.ok()) return status;
    return Download<float>(sums);
  };
  Use({.algorithms = {kSplit}});
  EXPECT_THAT(*reference(), testing::Each(64.0f));
  Use({.algorithms = {}});
  EXPECT_TRUE(absl::IsUnimplemented(reference().status()));
  UseNone();
  EXPECT_TRUE(absl::IsUnimplemented(reference().status()));
}

TEST_F(Cublas, IsTheReferenceOfTheBenchmark) {
  const OperationOptions options{
      .config = RandomModelShape::Parse("layers=1,hidden=32,ffn=32,vocab=257")->Config(),
      .dtypes = {DType::kBF16},
      .rows = {3},
      .working_set_bytes = 1,
      .run = {.repeat = 1, .sample_seconds = 0.0}};
  OperationTable table(options, backend_.get(), nullptr);
  const simt::StandInCounts before = counts();
  ASSERT_TRUE(table.AddProducts("product", "--quantize").ok());
  int num_products = 0;
  const absl::Status status = table.Run([&](const OperationResult& result) {
    ++num_products;
    EXPECT_GT(result.operation.reference_ms, 0.0);
  });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(num_products, 5);
  EXPECT_GT(counts().products, before.products);
  EXPECT_EQ(counts().alike, before.alike);
}

}  // namespace
}  // namespace tandem::cuda
