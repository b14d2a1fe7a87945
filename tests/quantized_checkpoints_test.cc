// Models of quantised checkpoints in FP8, GPTQ, AWQ and compressed-tensors: they compute the same
// as models with the same weights as floats.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/mapped_file.h"
#include "base/source_path_testing.h"
#include "engine/engine_testing.h"
#include "engine/runtime.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/blocks.h"
#include "kvcache/paged_kv_cache.h"
#include "model/checkpoint/model_tensors.h"
#include "model/checkpoint/quantized_weights.h"
#include "model/sampling.h"
#include "model/transformer.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"
#include "tests/folder_testing.h"
#include "tests/golden_file.h"
#include "tests/model_testing.h"
#include "tests/quantized_modules.h"
#include "tests/safetensors_builder.h"
#include "tools/checkpoints/quantized_model.h"
#include "tools/checkpoints/random_model.h"

namespace tandem {
namespace {

using Json = SortedJson;

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A checkpoint in two forms: quantised, and with the weights that it encodes as floats.
class QuantizedCheckpointTest : public FolderTest {
 protected:
  // Adds a quantised module of [rows, cols] to the file and returns its weights. Returns nullopt
  // without adding it if the module must stay in floats.
  using AddModule = std::function<std::optional<std::vector<float>>(
      SafetensorsBuilder* file, const std::string& module, int rows, int cols)>;

  // Returns numbers whose weights have about the variance that keeps the size of activations.
  static RandomNumbers Sized(RandomNumbers numbers, int rows, int cols) {
    numbers.rows = rows;
    numbers.cols = cols;
    numbers.scale = 2.0f / std::sqrt(static_cast<float>(cols)) /
                    static_cast<float>(1 << numbers.bits) / (numbers.min_zero < 0 ? 1.0f : 1.5f);
    return numbers;
  }

  // Writes a random model of this shape to the folders "quantised" and "floats".
  void Make(const std::string& shape_text, const Json& section, const AddModule& add,
            int num_shards = 1) const {
    const auto shape = RandomModelShape::Parse(shape_text);
    ASSERT_TRUE(shape.ok()) << shape.status();
    ASSERT_TRUE(WriteRandomModel(*shape, 11, Path("floats"), [](int64_t) {}).ok());
    fs::copy(Path("floats"), Path("quantised"));
    SafetensorsBuilder floats;
    SafetensorsBuilder quantised;
    const auto weights = *Weights::Open(Path("floats"));
    for (const TensorSpec& tensor : TensorsOf(shape->Config())) {
      const ConstMatrixView view = *weights->Get(tensor.name, tensor.shape);
      const auto* data = static_cast<const char*>(view.data);
      SafetensorsBuilder::Tensor stored = {
          "BF16", tensor.shape, {data, data + tensor.num_elements() * 2}};
      std::optional<std::vector<float>> values;
      if (tensor.shape.size() == 2) {
        values = add(&quantised, std::string(absl::StripSuffix(tensor.name, ".weight")),
                     static_cast<int>(tensor.shape[0]), static_cast<int>(tensor.shape[1]));
      }
      if (values.has_value()) {
        floats.AddFloats(tensor.name, "F32", tensor.shape, *values);
      } else if (tensor.shape.size() == 2) {
        // Widening to f32 does not change the numbers. A gate must have the dtype of the projection
        // that it gates.
        std::vector<float> widened(tensor.num_elements());
        WidenRow(view.data, view.dtype, static_cast<int>(widened.size()), widened.data());
        floats.AddFloats(tensor.name, "F32", tensor.shape, widened);
        quantised[tensor.name] = std::move(stored);
      } else {
        quantised[tensor.name] = stored;
        floats[tensor.name] = std::move(stored);
      }
    }
    Write("floats/model.safetensors", floats.Bytes());
    Json config = Json::parse(*ReadFile(Path("floats/config.json")));
    config["quantization_config"] = section;
    Write("quantised/config.json", config.dump());
    WriteShards(quantised, num_shards);
  }
  // Makes the configuration say that the head is the embedding.
  void ClaimTie() const {
    Json config = Json::parse(*ReadFile(Path("quantised/config.json")));
    config["tie_word_embeddings"] = true;
    Write("quantised/config.json", config.dump());
  }
  void WriteShards(const SafetensorsBuilder& whole, int num_shards) const {
    if (num_shards == 1) {
      Write("quantised/model.safetensors", whole.Bytes());
      return;
    }
    fs::remove(Path("quantised/model.safetensors"));
    std::vector<SafetensorsBuilder> shards(num_shards);
    Json map = Json::object();
    int next = 0;
    for (const auto& [name, tensor] : whole.tensors()) {
      shards[next % num_shards][name] = tensor;
      map[name] = absl::StrCat("s", next++ % num_shards, ".safetensors");
    }
    for (int i = 0; i < num_shards; ++i) {
      Write(absl::StrCat("quantised/s", i, ".safetensors"), shards[i].Bytes());
    }
    Write("quantised/model.safetensors.index.json", Json{{"weight_map", map}}.dump());
  }

  std::unique_ptr<Transformer> Load(const std::string& name,
                                    const Transformer::LoadOptions& options) const {
    auto model = Transformer::Load(Path(name), backend_.get(), options);
    EXPECT_TRUE(model.ok()) << model.status();
    EXPECT_TRUE(!model.ok() || (*model)->AwaitPackedFile().ok());
    return model.ok() ? *std::move(model) : nullptr;
  }
  std::vector<float> Logits(const std::string& name,
                            const Transformer::LoadOptions& options = {}) const {
    const auto model = Load(name, options);
    if (model == nullptr) return {};
    return LogitsOf(*model, {5, 100, 17, 42, 3});
  }
  std::vector<float> LogitsOf(Transformer& model, const std::vector<TokenId>& tokens) const {
    const auto cache = *PagedKvCache::Create(backend_.get(), model.kv_layout(16), 8);
    KvSequence kv = cache->NewSequence();
    return Feed(model, &kv, tokens);
  }
  static void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    ASSERT_FALSE(a.empty());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
  }
  // Returns the norm of a - b divided by the norm of `b`.
  static double Distance(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
      norm += double{b[i]} * b[i];
    }
    return std::sqrt(difference / norm);
  }

  inline static const Transformer::LoadOptions kExact = {.has_exact_activations = true};
  const std::unique_ptr<Backend> backend_ =
      *MakeCpuBackend({.num_threads = 2, .compute = CpuCompute::kF32});
};

constexpr char kShape[] = "base=tiny,ffn=192,tied=0";

struct Scheme {
  std::string name;
  Json section;
  std::function<std::vector<float>(SafetensorsBuilder*, const std::string&, RandomNumbers,
                                   unsigned seed)>
      add;
  RandomNumbers numbers;
  bool keeps_blocks = true;
};

std::vector<Scheme> Schemes() {
  const auto gptq = [](SafetensorsBuilder* file, const std::string& module, RandomNumbers wanted,
                       unsigned seed) {
    const ModuleNumbers numbers = MakeNumbers(wanted, seed);
    AddGptq(file, module, numbers);
    return numbers.Weights();
  };
  const auto awq = [](SafetensorsBuilder* file, const std::string& module, RandomNumbers wanted,
                      unsigned seed) {
    const ModuleNumbers numbers = MakeNumbers(wanted, seed);
    AddAwq(file, module, numbers);
    return numbers.Weights();
  };
  const auto packed = [](SafetensorsBuilder* file, const std::string& module, RandomNumbers wanted,
                         unsigned seed) {
    const ModuleNumbers numbers = MakeNumbers(wanted, seed);
    AddPacked(file, module, numbers, wanted.min_zero >= 0);
    return numbers.Weights();
  };
  const auto int8 = [](SafetensorsBuilder* file, const std::string& module, RandomNumbers wanted,
                       unsigned seed) {
    const ModuleNumbers numbers = MakeNumbers(wanted, seed);
    AddInt8(file, module, numbers);
    return numbers.Weights();
  };
  const auto fp8 = [](SafetensorsBuilder* file, const std::string& module, RandomNumbers wanted,
                      unsigned seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> bytes;
    std::vector<float> scales;
    std::vector<float> weights;
    const int across = (wanted.cols + 47) / 48;
    for (int i = 0; i < (wanted.rows + 47) / 48 * across; ++i) {
      scales.push_back(Bf16ToFloat(FloatToBf16(0.002f + 0.00001f * (random() % 100))));
    }
    for (int i = 0; i < wanted.rows * wanted.cols; ++i) {
      bytes.push_back(static_cast<uint8_t>(random() % 2 * 128 + random() % 112));
      weights.push_back(E4m3ToFloat(bytes.back()) *
                        scales[i / wanted.cols / 48 * across + i % wanted.cols / 48]);
    }
    file->Add(module + ".weight", "F8_E4M3", {wanted.rows, wanted.cols}, bytes);
    file->AddFloats(module + ".weight_scale_inv", "BF16", {(wanted.rows + 47) / 48, across},
                    scales);
    return weights;
  };
  const Json grouped = {{"num_bits", 4}, {"group_size", 32}};
  Json asymmetric = grouped;
  asymmetric["symmetric"] = false;
  return {{"gptq", GptqSection(4, 32), gptq, {.group_size = 32}},
          {"gptq_act_order",
           GptqSection(4, 32, true, false),
           gptq,
           {.group_size = 32, .min_zero = 6, .max_zero = 10, .is_shuffled = true},
           false},
          {"gptq_int8", GptqSection(8, 64), gptq, {.bits = 8, .group_size = 64}},
          {"awq", AwqSection(32), awq, {.group_size = 32, .min_zero = 6, .max_zero = 10}},
          {"w4a16",
           CompressedSection("pack-quantized", grouped),
           packed,
           {.group_size = 32, .scale_dtype = "BF16"}},
          {"w4a16_asymmetric",
           CompressedSection("pack-quantized", asymmetric),
           packed,
           {.group_size = 32, .min_zero = 6, .max_zero = 10, .scale_dtype = "BF16"}},
          {"w8a8",
           CompressedSection("int-quantized", {{"num_bits", 8}, {"strategy", "channel"}}),
           int8,
           {.bits = 8, .scale_dtype = "BF16"}},
          {"fp8", Fp8Section(48, 48), fp8, {}, false}};
}

// Adds a module that the scheme quantises, and returns its weights.
std::vector<float> AddScheme(const Scheme& scheme, const RandomNumbers& numbers,
                             SafetensorsBuilder* file, const std::string& module) {
  return scheme.add(file, module, numbers, static_cast<unsigned>(std::hash<std::string>()(module)));
}

class EveryScheme : public QuantizedCheckpointTest, public ::testing::WithParamInterface<size_t> {
 protected:
  const Scheme scheme_ = Schemes()[GetParam()];
  // Quantises all modules except the embedding and the head.
  AddModule Projections() const {
    return [this](SafetensorsBuilder* file, const std::string& module, int rows,
                  int cols) -> std::optional<std::vector<float>> {
      if (!absl::EndsWith(module, "_proj")) return std::nullopt;
      return AddScheme(scheme_, Sized(scheme_.numbers, rows, cols), file, module);
    };
  }
};
INSTANTIATE_TEST_SUITE_P(All, EveryScheme, ::testing::Range<size_t>(0, 8),
                         [](const auto& info) { return Schemes()[info.param].name; });

TEST_P(EveryScheme, ComputesTheSameAsItsWeightsInFloats) {
  Make(kShape, scheme_.section, Projections());
  const std::vector<float> wanted = Logits("floats");
  ExpectSameBits(Logits("quantised", kExact), wanted);
  // Blocks round activations to 8 bits with one scale per 32. For normal numbers this is an error
  // of about 0.6 % per product, and two layers accumulate a few products.
  const std::vector<float> kept = Logits("quantised");
  const double distance = Distance(kept, wanted);
  EXPECT_LE(distance, scheme_.keeps_blocks ? 0.05 : 0.0);
  EXPECT_EQ(distance > 0, scheme_.keeps_blocks);
}

TEST_P(EveryScheme, QuantisesAgainTheSameAsFloats) {
  Make(kShape, scheme_.section, Projections());
  for (const DType dtype : {DType::kQ4K, DType::kQ8_0}) {
    const Transformer::LoadOptions options{.quantized = dtype};
    ExpectSameBits(Logits("quantised", options), Logits("floats", options));
    fs::remove_all(Path("blocks"));
    const auto written =
        WriteQuantizedModel(Path("quantised"), dtype, Path("blocks"), [](int64_t, int64_t) {});
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_FALSE(
        Json::parse(*ReadFile(Path("blocks/config.json"))).contains("quantization_config"));
    fs::remove_all(Path("others"));
    ASSERT_TRUE(
        WriteQuantizedModel(Path("floats"), dtype, Path("others"), [](int64_t, int64_t) {}).ok());
    EXPECT_EQ(*ReadFile(Path("blocks/model.gguf")), *ReadFile(Path("others/model.gguf")));
  }
}

TEST_P(EveryScheme, IsTheSameFromAFileOfPackedWeights) {
  Make(kShape, scheme_.section, Projections());
  for (const bool is_exact : {false, true}) {
    const Transformer::LoadOptions plain{.has_exact_activations = is_exact};
    const Transformer::LoadOptions packed{
        .has_exact_activations = is_exact, .packed_folder = Path("packed"), .min_packed_bytes = 0};
    const std::vector<float> wanted = Logits("quantised", plain);
    for (int start = 0; start < 2; ++start) {
      const auto model = Load("quantised", packed);
      EXPECT_EQ(model->bytes_to_pack() + model->bytes_packed_at_load(), 0);
      ExpectSameBits(LogitsOf(*model, {5, 100, 17, 42, 3}), wanted);
    }
  }
  // Each form has its own file, unless both forms are the same.
  EXPECT_EQ(std::distance(fs::directory_iterator(Path("packed")), {}),
            scheme_.keeps_blocks ? 2 : 1);
}

// Matrices are packed at load, which frees the originals. Their packed bytes are included when the
// memory for caches is computed.
TEST_P(EveryScheme, IsPackedAtLoad) {
  Make(kShape, scheme_.section, Projections());
  const auto model = Load("quantised", {});
  const auto floats = Load("floats", {});
  EXPECT_EQ(floats->num_unpacked(), 2 * 4 + 1);
  EXPECT_EQ(floats->bytes_packed_at_load(), 0);
  EXPECT_EQ(model->num_unpacked(), 1);  // the head
  EXPECT_EQ(model->bytes_packed_at_load() + model->bytes_to_pack(), model->bytes_read_per_pass());

  EngineOptions options = CpuOptionsFor(Path("quantised"), "");
  options.kv_memory_bytes = 1 << 20;
  const int64_t wanted =
      static_cast<int64_t>(Runtime::Load(options)->target->bytes_read_per_pass());
  const auto refused = Runtime::Load(options, wanted - 1).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
}

TEST_P(EveryScheme, CanLeaveModulesOutAndIncludeTheHead) {
  // Leaves out the gate of a quantised feed-forward and a key projection, quantises the head, and
  // writes several files.
  Make(
      kShape, scheme_.section,
      [this](SafetensorsBuilder* file, const std::string& module, int rows,
             int cols) -> std::optional<std::vector<float>> {
        if (absl::EndsWith(module, "embed_tokens") || absl::EndsWith(module, "0.mlp.gate_proj") ||
            absl::EndsWith(module, "1.self_attn.k_proj")) {
          return std::nullopt;
        }
        return AddScheme(scheme_, Sized(scheme_.numbers, rows, cols), file, module);
      },
      /*num_shards=*/3);
  const std::vector<float> wanted = Logits("floats");
  ExpectSameBits(Logits("quantised", kExact), wanted);
  EXPECT_LE(Distance(Logits("quantised"), wanted), 0.05);
  const Transformer::LoadOptions packed{.packed_folder = Path("packed"), .min_packed_bytes = 0};
  const std::vector<float> kept = Logits("quantised");
  ExpectSameBits(Logits("quantised", packed), kept);
  ExpectSameBits(Logits("quantised", packed), kept);
  ClaimTie();  // the files have a head, so it is used
  ExpectSameBits(Logits("quantised", kExact), wanted);
  ExpectSameBits(Logits("quantised", packed), kept);
}

TEST_P(EveryScheme, CanIncludeTheEmbedding) {
  for (const char* shape : {kShape, "base=tiny,ffn=192,tied=1"}) {
    Make(shape, scheme_.section,
         [this](SafetensorsBuilder* file, const std::string& module, int rows,
                int cols) -> std::optional<std::vector<float>> {
           return AddScheme(scheme_, Sized(scheme_.numbers, rows, cols), file, module);
         });
    const std::vector<float> wanted = Logits("floats");
    ExpectSameBits(Logits("quantised", kExact), wanted);
    EXPECT_LE(Distance(Logits("quantised"), wanted), 0.05);
    const Transformer::LoadOptions again{.quantized = DType::kQ8_0};
    ExpectSameBits(Logits("quantised", again), Logits("floats", again));
    const Transformer::LoadOptions packed{.packed_folder = Path("packed"), .min_packed_bytes = 0};
    ExpectSameBits(Logits("quantised", packed), Logits("quantised"));
    ClaimTie();
    ExpectSameBits(Logits("quantised", kExact), wanted);
    fs::remove_all(Path("floats"));
    fs::remove_all(Path("quantised"));
    fs::remove_all(Path("packed"));
  }
}

// The engine passes --compute on, and a target's own weights can draft for it.
TEST_P(EveryScheme, ServesInAnEngine) {
  Make(kShape, scheme_.section, Projections());
  const auto generate = [&](const std::string& name, CpuCompute compute, const std::string& draft) {
    EngineOptions options =
        draft.empty() ? CpuOptionsFor(Path(name), "") : DraftModelOptionsFor(Path(name), draft);
    options.compute = compute;
    options.kv_memory_bytes = 1 << 24;
    const auto engine = MakeEngine(options);
    Request request{.prompt_ids = {5, 100, 17}, .max_tokens = 24, .seed = 3, .ignore_eos = true};
    request.logprobs.num_top = 2;
    request.verifier = AcceptanceRule::kExactMatch;
    return Generate(engine.get(), request);
  };
  ExpectSameOutput(generate("quantised", CpuCompute::kF32, ""),
                   generate("floats", CpuCompute::kF32, ""));
  const Completion kept = generate("quantised", CpuCompute::kAuto, "");
  ExpectSameOutput(generate("quantised", CpuCompute::kAuto, "self:q4_0"), kept);
  bool differs = false;
  const Completion exact = generate("quantised", CpuCompute::kF32, "");
  for (size_t i = 0; i < kept.logprobs.size(); ++i) {
    differs = differs || kept.logprobs[i].logprob != exact.logprobs[i].logprob;
  }
  EXPECT_TRUE(differs || !scheme_.keeps_blocks);
}

// ---- Unknown tensors ----

TEST_F(QuantizedCheckpointTest, UnknownTensorsAreErrors) {
  const Scheme scheme = Schemes()[0];
  const auto with =
      [&](const std::function<void(SafetensorsBuilder*, const std::string&)>& change) {
        fs::remove_all(Path("floats"));
        fs::remove_all(Path("quantised"));
        Make(kShape, scheme.section,
             [&](SafetensorsBuilder* file, const std::string& module, int rows,
                 int cols) -> std::optional<std::vector<float>> {
               if (!absl::EndsWith(module, "_proj")) return std::nullopt;
               auto weights = AddScheme(scheme, Sized(scheme.numbers, rows, cols), file, module);
               if (absl::EndsWith(module, "1.mlp.up_proj")) change(file, module);
               return weights;
             });
        return Transformer::Load(Path("quantised"), backend_.get(), kExact).status();
      };
  EXPECT_TRUE(with([](SafetensorsBuilder*, const std::string&) {}).ok());
  // A bias of zeros, as AutoGPTQ writes it, is the same as no bias.
  EXPECT_TRUE(with([](SafetensorsBuilder* file, const std::string& module) {
                file->AddFloats(module + ".bias", "F16", {192}, std::vector<float>(192, 0.0f));
              }).ok());
  const absl::Status bias = with([](SafetensorsBuilder* file, const std::string& module) {
    file->AddFloats(module + ".bias", "F16", {192}, std::vector<float>(192, 0.5f));
  });
  EXPECT_THAT(
      std::string(bias.message()),
      HasSubstr("tensor \"model.layers.1.mlp.up_proj.bias\" has no place in a llama model"));
  const absl::Status stray = with([](SafetensorsBuilder* file, const std::string& module) {
    file->AddFloats(module + ".input_scale", "F32", {1}, {1});
  });
  EXPECT_THAT(std::string(stray.message()), HasSubstr("up_proj.input_scale\" has no place"));
  const absl::Status shape = with([](SafetensorsBuilder* file, const std::string& module) {
    file->Remove(module + ".qweight");
    file->Remove(module + ".qzeros");
    file->Remove(module + ".scales");
    file->Remove(module + ".g_idx");
    AddGptq(file, module, MakeNumbers({.rows = 64, .cols = 64, .group_size = 32}, 1));
  });
  EXPECT_THAT(std::string(shape.message()),
              HasSubstr("up_proj.qweight\": shape: found numbers of [64, 64], allowed: [192, 64]"));
}

// ---- Comparison with the reference ----

std::vector<std::string> QuantizedGoldenNames() {
  std::vector<std::string> names;
  const std::string root = SourcePath("../shared/golden/more_models/models");
  if (fs::exists(root)) {
    for (const auto& entry : fs::directory_iterator(root)) {
      const auto config = ReadFile(entry.path().string() + "/config.json");
      if (config.ok() && Json::parse(*config).contains("quantization_config")) {
        names.push_back(entry.path().filename());
      }
    }
    std::sort(names.begin(), names.end());
  }
  if (names.empty()) names.push_back("none");
  return names;
}

class QuantizedGolden : public ::testing::TestWithParam<std::string> {};

// From the README next to the data: the reference is within 3.6e-5 of float64, other orders of
// summation change it by as much, and the smallest mistake tried changes it by 1.9e-3.
TEST_P(QuantizedGolden, LogitsAndTokensEqualTheReference) {
  if (GetParam() == "none") GTEST_SKIP() << "the golden models are not next to this checkout";
  const std::string folder = SourcePath("../shared/golden/more_models/models/") + GetParam();
  const Golden golden = ReadGolden(folder);
  const auto backend = *MakeCpuBackend({.num_threads = 1, .compute = CpuCompute::kF32});
  const auto model = Transformer::Load(folder, backend.get(), {.has_exact_activations = true});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto cache = *PagedKvCache::Create(backend.get(), (*model)->kv_layout(16), 16);
  KvSequence kv = cache->NewSequence();
  EXPECT_LE(LargestDifference(Feed(**model, &kv, golden.input_ids), golden.logits), 2e-4f);
  kv = cache->NewSequence();
  EXPECT_EQ(ContinueGreedily(**model, &kv, {golden.input_ids.begin(), golden.input_ids.begin() + 8},
                             golden.greedy_ids.size()),
            golden.greedy_ids);
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedGolden, ::testing::ValuesIn(QuantizedGoldenNames()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tandem
