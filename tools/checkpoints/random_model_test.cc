#include "tools/checkpoints/random_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/float16.h"
#include "base/mapped_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/checkpoint/model_tensors.h"
#include "model/checkpoint/safetensors.h"
#include "model/transformer.h"
#include "tandem/tokenizer.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::UnorderedElementsAre;

class RandomModelTest : public FolderTest {
 protected:
  absl::Status Write(const std::string& shape, uint64_t seed, const std::string& name) {
    const auto parsed = RandomModelShape::Parse(shape);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return WriteRandomModel(*parsed, seed, Path(name), [](int64_t) {});
  }
  std::string Contents(const std::string& name) const { return *ReadFile(Path(name)); }
};

std::string ParseError(const std::string& text) {
  return std::string(RandomModelShape::Parse(text).status().message());
}

std::vector<float> Floats(uint64_t seed, uint32_t tensor, int64_t first, int count) {
  std::vector<float> values(count);
  FillRandom(seed, tensor, first, 0.0f, 1.0f, DType::kF32,
             absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), 4 * values.size()));
  return values;
}

// The counts of the model cards include embeddings.
TEST(RandomModelShape, ParametersAreThoseOfNamesAndModelCards) {
  constexpr struct {
    const char* name;
    double count;
    double tolerance;
  } kShapes[] = {{"100m", 0.1e9, 0.05},      {"1b", 1e9, 0.05},
                 {"3b", 3e9, 0.05},          {"8b", 8e9, 0.05},
                 {"llama-8b", 8.03e9, 1e-3}, {"llama-1b", 1.236e9, 1e-3},
                 {"qwen3-8b", 8.19e9, 1e-3}, {"qwen3-0.6b", 0.596e9, 1e-3}};
  for (const auto& [name, count, tolerance] : kShapes) {
    const auto shape = RandomModelShape::Parse(name);
    ASSERT_TRUE(shape.ok()) << name;
    EXPECT_NEAR(static_cast<double>(shape->num_parameters()) / count, 1.0, tolerance) << name;
    EXPECT_EQ(shape->weight_bytes(), 2 * shape->num_parameters());
  }
  EXPECT_LT(RandomModelShape::Parse("tiny")->num_parameters(), 1'000'000);
}

TEST(RandomModelShape, KeysChangeTheBaseWhereverItStands) {
  const auto tiny = RandomModelShape::Parse("layers=5");
  ASSERT_TRUE(tiny.ok());
  EXPECT_EQ(tiny->layers, 5);
  EXPECT_EQ(tiny->hidden, RandomModelShape::Parse("tiny")->hidden);
  const auto big = RandomModelShape::Parse("layers=4,base=1b,dtype=float32,tied=0,family=qwen3");
  ASSERT_TRUE(big.ok());
  EXPECT_EQ(big->layers, 4);
  EXPECT_EQ(big->hidden, 2048);
  EXPECT_EQ(big->dtype, DType::kF32);
  EXPECT_FALSE(big->tied);
  EXPECT_EQ(big->Config().query_key_norm, QueryKeyNorm::kEachHead);
}

TEST(RandomModelShape, ErrorsNameTheKeyAndTheAllowedValues) {
  EXPECT_THAT(ParseError("2b"), HasSubstr("\"2b\", allowed: tiny, 100m, 1b, 3b, 8b, llama-8b"));
  EXPECT_THAT(ParseError("1b,layers=2"), HasSubstr("item: found \"1b\""));
  EXPECT_THAT(ParseError("depth=2"), HasSubstr("key: found \"depth\", allowed: base, hidden"));
  EXPECT_THAT(ParseError("layers=0"), HasSubstr("layers: found \"0\", allowed: 1 to"));
  EXPECT_THAT(ParseError("layers=2x"), HasSubstr("layers: found \"2x\""));
  EXPECT_THAT(ParseError("layers=2,layers=3"), HasSubstr("layers: found"));
  EXPECT_THAT(ParseError("vocab=256"), HasSubstr("vocab: found \"256\", allowed: 257 to"));
  EXPECT_THAT(ParseError("heads=4,kv_heads=3"), HasSubstr("kv_heads: found \"3\""));
  EXPECT_THAT(ParseError("head_dim=15"), HasSubstr("head_dim: found \"15\""));
  EXPECT_THAT(ParseError("tied=yes"), HasSubstr("tied: found \"yes\", allowed: 0, 1"));
  EXPECT_THAT(ParseError("dtype=int8"), HasSubstr("dtype: found \"int8\""));
  EXPECT_THAT(ParseError("family=gpt2"), HasSubstr("family: found \"gpt2\""));
  EXPECT_THAT(ParseError("base=2b"), HasSubstr("base: found \"2b\""));
  EXPECT_THAT(ParseError(""), HasSubstr("found \"\""));
}

TEST(FillRandom, DependsOnlyOnSeedTensorAndIndex) {
  const std::vector<float> whole = Floats(7, 3, 0, 1000);
  for (const int first : {0, 8, 504}) {
    const std::vector<float> part = Floats(7, 3, first, 99);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first)) << first;
  }
  EXPECT_NE(Floats(8, 3, 0, 1000), whole);
  EXPECT_NE(Floats(7, 4, 0, 1000), whole);
}

TEST(FillRandom, IsUniformAroundTheCentre) {
  constexpr int kCount = 100'000;
  const std::vector<float> values = Floats(1, 0, 0, kCount);
  EXPECT_THAT(values, Each(AllOf(Ge(-1.0f), Le(1.0f))));
  double sum = 0.0;
  double squares = 0.0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * value;
  }
  // Five standard deviations: the variance of the values is 1/3, that of their squares 4/45.
  EXPECT_NEAR(sum / kCount, 0.0, 5 * std::sqrt(1.0 / 3 / kCount));
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / kCount));
}

TEST(FillRandom, EveryDtypeRoundsTheSameNumbers) {
  const std::vector<float> exact = Floats(5, 2, 16, 50);
  std::vector<uint16_t> rounded(exact.size());
  const auto out = absl::MakeSpan(reinterpret_cast<std::byte*>(rounded.data()), 2 * rounded.size());
  FillRandom(5, 2, 16, 0.0f, 1.0f, DType::kBF16, out);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_EQ(rounded[i], FloatToBf16(exact[i]));
  FillRandom(5, 2, 16, 0.0f, 1.0f, DType::kF16, out);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_EQ(rounded[i], FloatToF16(exact[i]));
}

TEST_F(RandomModelTest, WritesACompleteFolderWithAlignedSortedWeights) {
  ASSERT_TRUE(Write("tiny", 1, "new/model").ok());
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(Path("new/model"))) {
    names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names,
              UnorderedElementsAre("config.json", "generation_config.json", "model.safetensors",
                                   "tokenizer.json", "tokenizer_config.json"));
  const auto file = MappedFile::Open(Path("new/model/model.safetensors"));
  ASSERT_TRUE(file.ok());
  const auto entries = ParseSafetensors(file->bytes(), "weights");
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_TRUE(std::is_sorted(entries->begin(), entries->end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
  EXPECT_EQ((entries->front().bytes.data() - file->bytes().data()) % 64, 0);
  for (const SafetensorsEntry& entry : *entries) EXPECT_EQ(entry.dtype_name, "BF16");
}

TEST_F(RandomModelTest, TheSameSeedWritesTheSameBytes) {
  ASSERT_TRUE(Write("tiny", 1, "a").ok());
  ASSERT_TRUE(Write("tiny", 1, "b").ok());
  ASSERT_TRUE(Write("tiny", 2, "c").ok());
  EXPECT_EQ(Contents("a/model.safetensors"), Contents("b/model.safetensors"));
  EXPECT_NE(Contents("a/model.safetensors"), Contents("c/model.safetensors"));
}

TEST_F(RandomModelTest, EveryFamilyAndDtypeLoadsAndGivesFiniteLogits) {
  const auto backend = MakeCpuBackend({.num_threads = 1, .compute = CpuCompute::kF32, .isa = ""});
  ASSERT_TRUE(backend.ok());
  int number = 0;
  for (const char* shape :
       {"tiny", "family=mistral,dtype=float16,tied=0", "family=qwen2,dtype=float32",
        "family=qwen3,head_dim=32,vocab=257", "hidden=48,layers=30,ffn=33,kv_heads=1"}) {
    SCOPED_TRACE(shape);
    const std::string name = absl::StrCat("model", number++);
    ASSERT_TRUE(Write(shape, 3, name).ok());
    const auto model = Transformer::Load(Path(name), backend->get());
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->num_parameters(), RandomModelShape::Parse(shape)->num_parameters());
    auto cache = PagedKvCache::Create(backend->get(), (*model)->kv_layout(16), 1);
    ASSERT_TRUE(cache.ok());
    KvSequence sequence = (*cache)->NewSequence();
    const TokenId tokens[] = {0, 255, 256, 7};
    const auto logits = (*model)->Forward({{.tokens = tokens, .kv = &sequence, .num_logits = 4}});
    ASSERT_TRUE(logits.ok());
    const auto* values = static_cast<const float*>(logits->data);
    double squares = 0.0;
    for (int i = 0; i < 4 * logits->cols; ++i) squares += double{values[i]} * values[i];
    // Products keep the variance of their input, here about 1: a normalised row.
    EXPECT_THAT(squares / (4 * logits->cols), AllOf(Ge(0.3), Le(3.0)));
  }
}

TEST_F(RandomModelTest, TokenizerEncodesBytes) {
  ASSERT_TRUE(Write("tiny", 1, "model").ok());
  const auto tokenizer = Tokenizer::Load(Path("model"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 257);
  std::string text;
  std::vector<TokenId> bytes;
  for (int byte = 1; byte < 128; ++byte) text.push_back(static_cast<char>(byte));
  text += "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  const auto ids = (*tokenizer)->Encode(text, SpecialTokens::kParse);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*ids, bytes);
  EXPECT_EQ((*tokenizer)->Decode(*ids), text);
  EXPECT_THAT(*(*tokenizer)->Encode("a<|endoftext|>", SpecialTokens::kParse),
              ElementsAre('a', kEndOfTextId));
  EXPECT_THAT((*tokenizer)->WithTemplate({'a'}), ElementsAre('a'));
  EXPECT_THAT(ReadModelConfig(Path("model"))->eos_token_ids, ElementsAre(kEndOfTextId));
}

TEST_F(RandomModelTest, OverwritesNothing) {
  fs::create_directory(Path("empty"));
  EXPECT_TRUE(Write("tiny", 1, "empty").ok());

  fs::create_directory(Path("full"));
  std::ofstream(Path("full/notes.txt")) << "mine";
  const absl::Status status = Write("tiny", 1, "full");
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("full: the folder is not empty"));
  EXPECT_EQ(Contents("full/notes.txt"), "mine");
  EXPECT_EQ(std::distance(fs::directory_iterator(Path("full")), {}), 1);

  EXPECT_EQ(Write("tiny", 1, "full/notes.txt").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(Write("tiny", 1, "full/notes.txt/model").ok());
  EXPECT_EQ(Contents("full/notes.txt"), "mine");
}

TEST_F(RandomModelTest, FullDiskIsAnErrorThatLeavesNoFiles) {
  // The embedding alone has 2^20 x 2^16 elements; with all layers it takes petabytes.
  const absl::Status status = Write(
      "vocab=1048576,hidden=65536,ffn=262144,layers=1024,heads=1024,head_dim=1024", 1, "huge");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("huge: the disk has"));
  EXPECT_FALSE(fs::exists(Path("huge")));
}

}  // namespace
}  // namespace tandem
