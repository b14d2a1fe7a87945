// The choice of variants at load, with a clock and launches that the tests control.
#include "kernels/cuda/tuner.h"

#include <functional>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/log_testing.h"
#include "gmock/gmock.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_testing.h"
#include "kernels/product_testing.h"
#include "tests/folder_testing.h"

namespace tandem::cuda {
namespace {

constexpr Error kMemoryError = 2;  // the toolkit's number

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;

constexpr int kTunedOutputs = 20, kTunedInputs = 40;

class Tuning : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped()) Reopen();
  }
  // Opens the device again. A launch takes fake_seconds_.
  void Reopen() {
    backend_.reset();
    ASSERT_TRUE(Open(0));
    num_launches_ = 0;
    tuner().Replace({.seconds = [this] { return now_; },
                     .launch =
                         [this](const TileProductTask& task, Stream stream) {
                           ++num_launches_;
                           last_variant_ = task.variant;
                           now_ += fake_seconds_(task);
                           const Error error = multiplies_ ? Launch(task, stream) : kNoError;
                           if (spoils_(task)) Spoil(task);
                           return error;
                         },
                     .launch_rows =
                         [this](const DistributionsTask& task, Stream stream) {
                           ++num_launches_;
                           now_ += fake_row_seconds_[task.variant];
                           return Launch(task, stream);
                         },
                     .min_weight_bytes = 0,
                     .min_row = 100});
  }
  CudaBackend& device() { return static_cast<CudaBackend&>(backend()); }
  Tuner& tuner() { return device().tuner(); }

  // Changes a bit of the last output.
  void Spoil(const TileProductTask& task) {
    float* const last = static_cast<float*>(task.out.data) +
                        int64_t{task.out.rows - 1} * task.out.stride + task.out.cols - 1;
    uint32_t bits = 0;
    backend().Download(last, absl::MakeSpan(reinterpret_cast<std::byte*>(&bits), sizeof(bits)));
    bits ^= 1;
    backend().Upload(absl::MakeSpan(reinterpret_cast<std::byte*>(&bits), sizeof(bits)), last);
  }

  PackedWeight Packed(DType dtype = DType::kBF16, int inputs = kTunedInputs) {
    std::mt19937 random(5);
    return PackOne(backend(), TestWeight(TestMatrix::Random(kTunedOutputs, inputs, random), dtype));
  }
  TestMatrix Product(const PackedWeight& weight, int rows) {
    std::mt19937 random(rows);
    return Multiply(backend(), TestMatrix::Random(rows, weight.inputs, random), weight);
  }
  // Returns the variant of a product of `rows` rows.
  int VariantOf(const PackedWeight& weight, int rows) {
    Product(weight, rows);
    return last_variant_;
  }
  absl::Status OpenText(const std::string& text) {
    return tuner().Open(folder_.Write("choices.json", text));
  }
  std::string File() const { return folder_.Path("choices.json"); }
  std::string TextOfFile() const { return folder_.Read("choices.json"); }

  // By default the last variant of every class is the fastest.
  std::function<double(const TileProductTask&)> fake_seconds_ = [](const TileProductTask& task) {
    return 1.0 / (1 + task.variant);
  };
  std::function<bool(const TileProductTask&)> spoils_ = [](const TileProductTask&) {
    return false;
  };
  std::vector<double> fake_row_seconds_ = {2.0, 1.0, 1.5};
  bool multiplies_ = true;
  TestFolder folder_;
  double now_ = 0.0;
  int num_launches_ = 0;
  int last_variant_ = -1;
};

TEST_F(Tuning, KeepsTheFastestVariantOfEachClassOfRows) {
  fake_seconds_ = [](const TileProductTask& task) {
    const std::map<int, int> fastest = {{8, 3}, {16, 1}, {32, 0}, {64, 2}};
    return task.variant == fastest.at(task.out.rows) ? 1.0 : 1.5;
  };
  ASSERT_TRUE(tuner().Open("load").ok());
  const PackedWeight weight = Packed();
  EXPECT_THAT(tuner().Report(),
              ElementsAre("product=32x64 weights=bfloat16 few_rows_variants=3,1,0,2"));
  const int num_launches = num_launches_;
  const PackedWeight same_shape = Packed();
  EXPECT_EQ(num_launches_, num_launches);

  fake_seconds_ = [](const TileProductTask&) { return 0.0; };
  EXPECT_EQ(VariantOf(weight, 1), 3);
  EXPECT_EQ(VariantOf(same_shape, 8), 3);
  EXPECT_EQ(VariantOf(weight, 9), 1);
  EXPECT_EQ(VariantOf(weight, 17), 0);
  EXPECT_EQ(VariantOf(weight, 33), 2);
}

TEST_F(Tuning, RecordingsUseTheChoice) {
  ASSERT_TRUE(tuner().Open("load").ok());
  const PackedWeight weight = Packed();
  std::mt19937 random(1);
  UploadedMatrix x(backend(), TestMatrix::Random(5, kTunedInputs, random));
  UploadedMatrix out(backend(), Unwritten(5, kTunedOutputs));
  backend().MatMul(x.view(), weight, out.view());
  const TestMatrix want = out.Get();
  last_variant_ = -1;
  const auto recording = device().Record([&] { backend().MatMul(x.view(), weight, out.view()); });
  ASSERT_TRUE(recording.ok()) << recording.status().message();
  EXPECT_EQ(last_variant_, NumVariants(DType::kBF16, 5) - 1);
  device().Repeat(*recording);
  EXPECT_TRUE(out.Get().SameBits(want));
  Forget(*recording);
}

TEST_F(Tuning, RefusesAVariantWithOtherBits) {
  const int last = NumVariants(DType::kBF16, 8) - 1;
  spoils_ = [&](const TileProductTask& task) { return task.out.rows == 8 && task.variant == last; };
  LogCapture log;
  ASSERT_TRUE(tuner().Open("load").ok());
  const PackedWeight weight = Packed();
  EXPECT_THAT(log.text(),
              HasSubstr(absl::StrCat("warning device=cuda:0 product=32x64 weights=bfloat16 rows=8 "
                                     "refused_variant=",
                                     last, " reason=\"bits differ\"")));
  EXPECT_EQ(VariantOf(weight, 8), last - 1);
  EXPECT_EQ(VariantOf(weight, 16), NumVariants(DType::kBF16, 16) - 1);
}

TEST_F(Tuning, WeightsOfBlocksHaveTheirOwnChoice) {
  ASSERT_TRUE(tuner().Open("load").ok());
  const PackedWeight weight = Packed(DType::kQ4K, 256);
  EXPECT_THAT(tuner().Report(),
              ElementsAre("product=32x256 weights=q4_k few_rows_variants=1,1,0,0"));
  EXPECT_EQ(VariantOf(weight, 3), 1);
}

// With the real clock any variant may win. Products have the same bits as before. Small weights and
// rows have no choice.
TEST_F(Tuning, MeasuresWithoutHelp) {
  const TestMatrix want = Product(Packed(), 5);
  backend_.reset();
  ASSERT_TRUE(Open(0));
  ASSERT_TRUE(tuner().Open("load").ok());
  EXPECT_TRUE(Product(Packed(), 5).SameBits(want));
  EXPECT_EQ(tuner().VariantOfRows(300), 0);
  EXPECT_THAT(tuner().Report(), IsEmpty());
  Tuner::Hooks hooks = tuner().hooks();
  hooks.min_weight_bytes = 0;
  hooks.min_row = 0;
  tuner().Replace(hooks);
  EXPECT_TRUE(Product(Packed(), 5).SameBits(want));
  tuner().VariantOfRows(300);
  EXPECT_EQ(tuner().Report().size(), 2u);
  EXPECT_THAT(backend().product_report(), IsSupersetOf(tuner().Report()));
}

TEST_F(Tuning, IsOffUnlessItIsOpened) {
  for (const char* how : {"", "off"}) {
    if (*how != '\0') {
      ASSERT_TRUE(tuner().Open(how).ok());
    }
    const PackedWeight weight = Packed();
    EXPECT_EQ(num_launches_, 0);
    EXPECT_EQ(VariantOf(weight, 5), 0);
    EXPECT_THAT(tuner().Report(), IsEmpty());
    num_launches_ = 0;
  }
}

TEST_F(Tuning, AFailureLeavesVariantZero) {
  tuner().Replace({.seconds = [] { return 0.0; },
                   .launch =
                       [this](const TileProductTask& task, Stream) {
                         last_variant_ = task.variant;
                         return kMemoryError;
                       },
                   .launch_rows = [](const DistributionsTask&, Stream) { return kMemoryError; },
                   .min_weight_bytes = 0,
                   .min_row = 100});
  LogCapture log;
  ASSERT_TRUE(tuner().Open("load").ok());
  Packed();
  EXPECT_THAT(log.text(), HasSubstr("few_rows_variants=0,0,0,0 reason=\"multiplying: "));
}

TEST_F(Tuning, DistributionsHaveAChoiceForEachSize) {
  ASSERT_TRUE(tuner().Open("load").ok());
  EXPECT_EQ(tuner().VariantOfRows(99), 0);
  EXPECT_EQ(num_launches_, 0);
  EXPECT_EQ(tuner().VariantOfRows(300), 1);
  const int num_launches = num_launches_;
  EXPECT_GT(num_launches, 0);
  EXPECT_EQ(tuner().VariantOfRows(300), 1);
  EXPECT_EQ(num_launches_, num_launches);
  fake_row_seconds_ = {1.0, 1.0, 0.5};
  EXPECT_EQ(tuner().VariantOfRows(1100), 2);
  EXPECT_THAT(tuner().Report(),
              ElementsAre("distribution=300 variant=1", "distribution=1100 variant=2"));
}

// Only rows that are cut need a choice.
TEST_F(Tuning, ASamplerChoosesWhenItFirstCutsARow) {
  ASSERT_TRUE(tuner().Open("load").ok());
  const Buffer logits = Upload(std::vector<float>(200, 1.0f));
  RowTask row{.logits = static_cast<const float*>(logits.data()),
              .probs = static_cast<float*>(logits.data()),
              .size = 200,
              .inverse_temperature = 1.0f};
  RowState state;
  ASSERT_TRUE(backend().sampler()->Sample({&row, 1}, {}, {&state, 1}, {}).ok());
  EXPECT_THAT(tuner().Report(), IsEmpty());
  row.top_k = 3;
  ASSERT_TRUE(backend().sampler()->Sample({&row, 1}, {}, {&state, 1}, {}).ok());
  EXPECT_THAT(tuner().Report(), ElementsAre("distribution=200 variant=1"));
}

// ---- Files ----

class TuningFile : public Tuning {
 protected:
  TuningFile() { multiplies_ = false; }  // sums do not matter
};

TEST_F(TuningFile, AFileKeepsTheChoices) {
  ASSERT_TRUE(tuner().Open(File()).ok());
  Packed();
  Packed(DType::kQ8_0, 64);
  tuner().VariantOfRows(300);
  const std::vector<std::string> want = tuner().Report();
  EXPECT_EQ(want.size(), 3u);
  Reopen();
  ASSERT_TRUE(tuner().Open(File()).ok());
  Packed();
  EXPECT_EQ(tuner().VariantOfRows(300), 1);
  EXPECT_EQ(num_launches_, 0);
  EXPECT_EQ(tuner().Report(), want);
  EXPECT_EQ(VariantOf(Packed(), 1), NumVariants(DType::kBF16, 1) - 1);
  Packed(DType::kBF16, 200);  // a shape that the file does not have
  Reopen();
  ASSERT_TRUE(tuner().Open(File()).ok());
  EXPECT_EQ(tuner().Report().size(), 4u);
}

TEST_F(TuningFile, MeasuresAgainOnAnotherDevice) {
  ASSERT_TRUE(tuner().Open(File()).ok());
  Packed();
  const std::string text = TextOfFile();
  EXPECT_THAT(text, AllOf(HasSubstr(" SMs, driver "), HasSubstr(", variants ")));
  for (const auto& [from, to] :
       {std::pair{"sm_", "sm_1"}, {"driver ", "driver 1"}, {"variants ", "variants 1"}}) {
    Reopen();
    LogCapture log;
    ASSERT_TRUE(OpenText(absl::StrReplaceAll(text, {{from, to}})).ok());
    EXPECT_THAT(log.text(), AllOf(HasSubstr("info device=cuda:0 cuda_tune="),
                                  HasSubstr("measures_again=true reason=\"it was written for ")));
    Packed();
    EXPECT_GT(num_launches_, 0);
    EXPECT_EQ(TextOfFile(), text);
  }
}

TEST_F(TuningFile, ABrokenFileIsAnErrorThatNamesTheField) {
  ASSERT_TRUE(tuner().Open(File()).ok());
  Packed();
  tuner().VariantOfRows(300);
  const std::string text = TextOfFile();
  const auto expect = [&](const std::string& from, const std::string& to, const char* error) {
    const std::string broken = absl::StrReplaceAll(text, {{from, to}});
    ASSERT_NE(broken, text) << from;
    const absl::Status status = OpenText(broken);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << from;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(File()), HasSubstr(error)));
  };
  expect("}", "", "choices.json");
  expect("measured_on", "measured", "measured_on");
  expect("\"products\"", "\"product\"", "products");
  expect("bfloat16", "bfloat17",
         "products[0].weights: \"bfloat17\" is not a type of packed weights");
  expect("\"tiles\": 2", "\"tiles\": 0", "products[0].tiles");
  expect("\"steps\": 2", "\"steps\": \"2\"", "products[0].steps");
  expect("\"variants\"", "\"variant\"", "products[0].variants");
  expect("\"variants\": [", "\"variants\": [0,", "products[0].variants");
  expect("    4,", "    5,", "products[0].variants[0]");
  expect("\"entries\": 300", "\"entries\": 0", "distributions[0].entries");
  expect("\"variant\": 1", "\"variant\": 3", "distributions[0].variant");
}

TEST_F(TuningFile, AFileThatCannotBeWrittenIsLoggedOnce) {
  LogCapture log;
  ASSERT_TRUE(tuner().Open(folder_.Path("missing/choices.json")).ok());
  Packed();
  Packed(DType::kBF16, 200);
  const std::string text = log.text();
  const size_t first = text.find("is_written=false");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(text.find("is_written=false", first + 1), std::string::npos);
  EXPECT_EQ(tuner().Report().size(), 2u);
}

}  // namespace
}  // namespace tandem::cuda
