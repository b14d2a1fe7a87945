#include "tools/checkpoints/random_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/format.h"
#include "base/json/json_text.h"
#include "base/output_folder.h"
#include "base/philox.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/thread_pool.h"
#include "kernels/blocks.h"
#include "kernels/quantize.h"
#include "model/checkpoint/model_families.h"
#include "model/checkpoint/model_tensors.h"
#include "model/checkpoint/safetensors.h"
#include "tandem/json_value.h"
#include "text/pre_tokenizer.h"
#include "tools/table.h"

namespace tandem {
namespace {

using OrderedJson = JsonValue;

constexpr char kEndOfText[] = "<|endoftext|>";
// Differs from every stream of base/philox.h: their lowest bytes are small.
constexpr uint32_t kWeightsStream = 0xF0;
constexpr int kElementsPerBlock = 8;  // 16 bits each
// Elements that a thread fills between two writes: 1 MiB of bf16, which stays in the cache.
constexpr int64_t kElementsPerThread = 1 << 19;

struct NamedShape {
  const char* name;
  RandomModelShape shape;
};

constexpr NamedShape kNamedShapes[] = {
    {"tiny", {"llama", 64, 2, 4, 2, 16, 176, 320, 512, true, DType::kBF16}},
    {"100m", {"llama", 768, 12, 12, 4, 64, 2048, 32768, 2048, true, DType::kBF16}},
    // Llama 3.2 with smaller vocabularies, so that the sizes match the names.
    {"1b", {"llama", 2048, 16, 32, 8, 64, 8192, 32768, 8192, true, DType::kBF16}},
    {"3b", {"llama", 3072, 28, 24, 8, 128, 8192, 65536, 8192, true, DType::kBF16}},
    // Llama 3.1.
    {"8b", {"llama", 4096, 32, 32, 8, 128, 14336, 128256, 8192, false, DType::kBF16}},
    // Published models, except that the contexts are shorter.
    {"llama-8b", {"llama", 4096, 32, 32, 8, 128, 14336, 128256, 8192, false, DType::kBF16}},
    {"llama-70b", {"llama", 8192, 80, 64, 8, 128, 28672, 128256, 8192, false, DType::kBF16}},
    {"llama-1b", {"llama", 2048, 16, 32, 8, 64, 8192, 128256, 8192, true, DType::kBF16}},
    {"qwen3-8b", {"qwen3", 4096, 36, 32, 8, 128, 12288, 151936, 8192, false, DType::kBF16}},
    {"qwen3-0.6b", {"qwen3", 1024, 28, 16, 8, 128, 3072, 151936, 8192, true, DType::kBF16}},
    {"qwen3-30b-a3b",
     {"qwen3_moe", 2048, 48, 32, 4, 128, 6144, 151936, 8192, false, DType::kBF16, 128, 8, 768}},
};

const RandomModelShape* FindShape(absl::string_view name) {
  for (const NamedShape& named : kNamedShapes) {
    if (name == named.name) return &named.shape;
  }
  return nullptr;
}

absl::Status Wrong(absl::string_view key, absl::string_view found, absl::string_view allowed) {
  return NotAllowed(absl::StrCat("--shape: ", key), absl::StrCat("\"", found, "\""), allowed);
}

std::string ShapeNames() {
  std::string names;
  for (const NamedShape& named : kNamedShapes) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", named.name);
  }
  return names;
}

struct IntKey {
  const char* name;
  int RandomModelShape::*field;
  int least;
  int most;
};
constexpr IntKey kIntKeys[] = {
    {"hidden", &RandomModelShape::hidden, 1, 1 << 16},
    {"layers", &RandomModelShape::layers, 1, 1 << 10},
    {"heads", &RandomModelShape::heads, 1, 1 << 10},
    {"kv_heads", &RandomModelShape::kv_heads, 1, 1 << 10},
    {"head_dim", &RandomModelShape::head_dim, 2, 1 << 10},
    {"ffn", &RandomModelShape::ffn, 1, 1 << 18},
    {"vocab", &RandomModelShape::vocab, kMinRandomVocab, 1 << 20},
    {"context", &RandomModelShape::context, 1, 1 << 24},
    {"experts", &RandomModelShape::experts, 1, 1 << 10},
    {"experts_per_token", &RandomModelShape::experts_per_row, 1, 1 << 10},
    {"expert_ffn", &RandomModelShape::expert_ffn, 1, 1 << 18},
    {"window", &RandomModelShape::window, 1, 1 << 24},
};

absl::Status SetKey(absl::string_view key, absl::string_view value, RandomModelShape* shape) {
  for (const IntKey& known : kIntKeys) {
    if (key != known.name) continue;
    int number = 0;
    if (!absl::SimpleAtoi(value, &number) || number < known.least || number > known.most) {
      return Wrong(key, value, absl::StrCat(known.least, " to ", known.most));
    }
    shape->*known.field = number;
    return absl::OkStatus();
  }
  if (key == "tied") {
    if (value != "0" && value != "1") return Wrong(key, value, "0, 1");
    shape->tied = value == "1";
    return absl::OkStatus();
  }
  if (key == "dtype") {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      if (value != NameOf(dtype)) continue;
      shape->dtype = dtype;
      return absl::OkStatus();
    }
    return Wrong(key, value, "bfloat16, float16, float32");
  }
  if (key == "family") {
    for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe"}) {
      if (value != family) continue;
      shape->family = family;
      return absl::OkStatus();
    }
    return Wrong(key, value, "llama, mistral, qwen2, qwen3, qwen3_moe");
  }
  return Wrong("key", key,
               "base, hidden, layers, heads, kv_heads, head_dim, ffn, vocab, context, dtype, tied, "
               "family, experts, experts_per_token, expert_ffn, window");
}

std::string TokenizerConfigJson(const RandomModelShape& shape) {
  return OrderedJson({{"tokenizer_class", "PreTrainedTokenizerFast"},
                      {"model_max_length", shape.context},
                      {"bos_token", nullptr},
                      {"eos_token", kEndOfText},
                      {"add_bos_token", false},
                      {"add_eos_token", false},
                      {"clean_up_tokenization_spaces", false}})
             .dump(1) +
         "\n";
}

std::string GenerationConfigJson() {
  return OrderedJson({{"eos_token_id", kEndOfTextId}}).dump(1) + "\n";
}

std::string HeaderOf(absl::Span<const TensorSpec> tensors, DType dtype) {
  std::vector<TensorHeader> headers;
  for (const TensorSpec& tensor : tensors) {
    headers.push_back({.name = tensor.name,
                       .dtype = SafetensorsName(dtype),
                       .shape = tensor.shape,
                       .bytes = tensor.num_elements() * static_cast<int64_t>(SizeOf(dtype))});
  }
  return SafetensorsHeader(headers);
}

struct Distribution {
  float centre = 0.0f;
  float radius = 0.0f;
};

Distribution DistributionOf(const TensorSpec& tensor) {
  switch (tensor.role) {
    case TensorRole::kNorm:
      return {1.0f, 0.1f};
    case TensorRole::kBias:
      return {0.0f, 0.1f};
    case TensorRole::kEmbedding:
    case TensorRole::kMatrix:
    case TensorRole::kRouter:
    case TensorRole::kExpert:
      break;
  }
  // The variance of the uniform distribution on [-r, r] is r^2 / 3.
  return {0.0f, std::sqrt(3.0f / static_cast<float>(tensor.shape.back()))};
}

absl::Status WriteWeights(const RandomModelShape& shape, uint64_t seed, OutputFile* file,
                          absl::FunctionRef<void(int64_t)> on_bytes) {
  const std::vector<TensorSpec> tensors = TensorsOf(shape.Config());
  RETURN_IF_ERROR(file->Write(HeaderOf(tensors, shape.dtype)));
  ThreadPool pool(NumUsableCores());
  const int64_t element_bytes = static_cast<int64_t>(SizeOf(shape.dtype));
  const int64_t most = kElementsPerThread * pool.num_threads();
  std::vector<std::byte> buffer(most * element_bytes);
  for (uint32_t index = 0; index < tensors.size(); ++index) {
    const int64_t num_elements = tensors[index].num_elements();
    for (int64_t first = 0; first < num_elements; first += most) {
      const int64_t count = std::min(most, num_elements - first);
      const auto out = absl::MakeSpan(buffer).first(count * element_bytes);
      FillTensor(tensors[index], seed, index, first, shape.dtype, &pool, out);
      RETURN_IF_ERROR(file->Write({reinterpret_cast<const char*>(out.data()), out.size()}));
      on_bytes(static_cast<int64_t>(out.size()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RandomModelShape> RandomModelShape::Parse(absl::string_view text) {
  if (const RandomModelShape* named = FindShape(text); named != nullptr) return *named;
  if (!absl::StrContains(text, '=')) {
    return NotAllowed("--shape", absl::StrCat("\"", text, "\""),
                      absl::StrCat(ShapeNames(), ", or key=value,..."));
  }
  RandomModelShape shape = *FindShape("tiny");
  std::vector<std::pair<absl::string_view, absl::string_view>> pairs;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    if (!absl::StrContains(item, '=')) return Wrong("item", item, "key=value");
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(item, absl::MaxSplits('=', 1));
    for (const auto& [key, value] : pairs) {
      if (key == pair.first) return Wrong(key, item, "one value");
    }
    pairs.push_back(pair);
    if (pair.first != "base") continue;
    const RandomModelShape* base = FindShape(pair.second);
    if (base == nullptr) return Wrong("base", pair.second, ShapeNames());
    shape = *base;
  }
  for (const auto& [key, value] : pairs) {
    if (key != "base") RETURN_IF_ERROR(SetKey(key, value, &shape));
  }
  if (shape.heads % shape.kv_heads != 0) {
    return Wrong("kv_heads", absl::StrCat(shape.kv_heads),
                 absl::StrCat("a divisor of the ", shape.heads, " heads"));
  }
  if (shape.head_dim % 2 != 0) {
    return Wrong("head_dim", absl::StrCat(shape.head_dim), "an even number");
  }
  const bool has_experts = shape.family == "qwen3_moe";
  if (has_experts != (shape.experts > 0) || has_experts != (shape.experts_per_row > 0) ||
      has_experts != (shape.expert_ffn > 0)) {
    return Wrong(
        "family", shape.family,
        "qwen3_moe with experts, experts_per_token and expert_ffn, or another family without them");
  }
  if (shape.experts_per_row > shape.experts) {
    return Wrong("experts_per_token", absl::StrCat(shape.experts_per_row),
                 absl::StrCat("at most the ", shape.experts, " experts"));
  }
  if (shape.window > 0 && shape.family != "mistral") {
    return Wrong("window", absl::StrCat(shape.window), "only with family=mistral");
  }
  return shape;
}

std::string RandomModelShape::ConfigJson() const {
  const char* const architecture = FamilyOfType(family)->architecture;
  OrderedJson config = {{"architectures", OrderedJson::array({architecture})},
                        {"model_type", std::string(family)},
                        {"vocab_size", vocab},
                        {"hidden_size", hidden},
                        {"intermediate_size", ffn},
                        {"num_hidden_layers", layers},
                        {"num_attention_heads", heads},
                        {"num_key_value_heads", kv_heads},
                        {"head_dim", head_dim},
                        {"hidden_act", "silu"},
                        {"max_position_embeddings", context},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", 500000.0},
                        {"tie_word_embeddings", tied},
                        {"torch_dtype", NameOf(dtype)},
                        {"bos_token_id", nullptr},
                        {"eos_token_id", kEndOfTextId}};
  if (family == "mistral") {
    config["sliding_window"] = window > 0 ? OrderedJson(window) : OrderedJson(nullptr);
  }
  if (experts > 0) {
    config.update({{"num_experts", experts},
                   {"num_experts_per_tok", experts_per_row},
                   {"moe_intermediate_size", expert_ffn},
                   {"norm_topk_prob", true}});
  }
  if (family == "qwen2" || family == "qwen3") config["use_sliding_window"] = false;
  return config.dump(1) + "\n";
}

ModelConfig RandomModelShape::Config() const {
  absl::StatusOr<ModelConfig> config =
      ParseModelConfig(ConfigJson(), "config.json", std::nullopt, "");
  TANDEM_CHECK(config.ok());
  return *std::move(config);
}

int64_t RandomModelShape::num_parameters() const {
  int64_t count = 0;
  for (const TensorSpec& tensor : TensorsOf(Config())) count += tensor.num_elements();
  return count;
}

int64_t RandomModelShape::weight_bytes() const {
  return num_parameters() * static_cast<int64_t>(SizeOf(dtype));
}

std::string DescribeNamedShapes() {
  Table table({"name", "hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "vocab",
               "context", "tied", "parameters", "size"});
  for (const auto& [name, s] : kNamedShapes) {
    table.AddRow({name, absl::StrCat(s.hidden), absl::StrCat(s.layers), absl::StrCat(s.heads),
                  absl::StrCat(s.kv_heads), absl::StrCat(s.head_dim), absl::StrCat(s.ffn),
                  absl::StrCat(s.vocab), absl::StrCat(s.context), s.tied ? "1" : "0",
                  Format("%.1f M", static_cast<double>(s.num_parameters()) * 1e-6),
                  Format("%.1f MB", static_cast<double>(s.weight_bytes()) * 1e-6)});
  }
  return table.ToText();
}

std::string ByteTokenizerJson() {
  OrderedJson vocab = OrderedJson::object();
  for (int byte = 0; byte < kEndOfTextId; ++byte) {
    vocab[ToByteAlphabet(std::string(1, static_cast<char>(byte)))] = byte;
  }
  const OrderedJson byte_level = {{"type", "ByteLevel"},
                                  {"add_prefix_space", false},
                                  {"trim_offsets", true},
                                  {"use_regex", false}};
  const OrderedJson end_of_text = {
      {"id", kEndOfTextId}, {"content", kEndOfText}, {"single_word", false}, {"lstrip", false},
      {"rstrip", false},    {"normalized", false},   {"special", true}};
  const OrderedJson model = {{"type", "BPE"},
                             {"dropout", nullptr},
                             {"unk_token", nullptr},
                             {"continuing_subword_prefix", nullptr},
                             {"end_of_word_suffix", nullptr},
                             {"fuse_unk", false},
                             {"byte_fallback", false},
                             {"ignore_merges", false},
                             {"vocab", vocab},
                             {"merges", OrderedJson::array()}};
  const OrderedJson tokenizer = {{"version", "1.0"},
                                 {"truncation", nullptr},
                                 {"padding", nullptr},
                                 {"added_tokens", OrderedJson::array({end_of_text})},
                                 {"normalizer", nullptr},
                                 {"pre_tokenizer", byte_level},
                                 {"post_processor", nullptr},
                                 {"decoder", byte_level},
                                 {"model", model}};
  return tokenizer.dump(1) + "\n";
}

void FillRandom(uint64_t seed, uint32_t tensor, int64_t first, float centre, float radius,
                DType dtype, absl::Span<std::byte> out) {
  TANDEM_CHECK(first % kElementsPerBlock == 0);
  const size_t element_bytes = SizeOf(dtype);
  const int64_t count = static_cast<int64_t>(out.size() / element_bytes);
  const float step = radius / 32768.0f;
  for (int64_t begin = 0; begin < count; begin += kElementsPerBlock) {
    const uint64_t block = static_cast<uint64_t>(first + begin) / kElementsPerBlock;
    const auto words = Philox4x32(
        {static_cast<uint32_t>(block), kWeightsStream, tensor, static_cast<uint32_t>(block >> 32)},
        seed);
    float values[kElementsPerBlock];
    for (int i = 0; i < kElementsPerBlock; ++i) {
      const uint32_t bits = words[i / 2] >> (16 * (i % 2)) & 0xFFFF;
      values[i] = centre + (static_cast<float>(bits) - 32767.5f) * step;
    }
    const auto size = static_cast<int>(std::min<int64_t>(kElementsPerBlock, count - begin));
    NarrowRow(values, size, dtype, out.data() + begin * element_bytes);
  }
}

void FillTensor(const TensorSpec& tensor, uint64_t seed, uint32_t index, int64_t first, DType dtype,
                ThreadPool* pool, absl::Span<std::byte> out) {
  const Distribution distribution = DistributionOf(tensor);
  const auto element_bytes = static_cast<int64_t>(SizeOf(dtype));
  const int64_t count = static_cast<int64_t>(out.size()) / element_bytes;
  pool->Run([&](int thread) {
    for (int64_t begin = thread * kElementsPerThread; begin < count;
         begin += pool->num_threads() * kElementsPerThread) {
      const int64_t share = std::min(kElementsPerThread, count - begin);
      FillRandom(seed, index, first + begin, distribution.centre, distribution.radius, dtype,
                 out.subspan(begin * element_bytes, share * element_bytes));
    }
  });
}

absl::Status WriteRandomModel(const RandomModelShape& shape, uint64_t seed,
                              const std::string& folder,
                              absl::FunctionRef<void(int64_t)> on_bytes) {
  ASSIGN_OR_RETURN(OutputFolder output, OutputFolder::Create(folder));
  RETURN_IF_ERROR(output.CheckFreeSpace(shape.weight_bytes()));
  const std::pair<const char*, std::string> texts[] = {
      {"config.json", shape.ConfigJson()},
      {"generation_config.json", GenerationConfigJson()},
      {"tokenizer.json", ByteTokenizerJson()},
      {"tokenizer_config.json", TokenizerConfigJson(shape)}};
  for (const auto& [name, text] : texts) {
    ASSIGN_OR_RETURN(OutputFile file, output.NewFile(name));
    RETURN_IF_ERROR(file.Write(text));
    RETURN_IF_ERROR(file.Close());
  }
  ASSIGN_OR_RETURN(OutputFile file, output.NewFile("model.safetensors"));
  RETURN_IF_ERROR(WriteWeights(shape, seed, &file, on_bytes));
  RETURN_IF_ERROR(file.Close());
  output.Keep();
  return absl::OkStatus();
}

namespace {

// A tensor that all layers and all experts share.
struct SharedTensor {
  TensorSpec spec;
  std::vector<std::byte> bytes;
  ConstMatrixView matrix;
};

class RandomWeights final : public Weights {
 public:
  RandomWeights(const RandomModelShape& shape, uint64_t seed, std::optional<DType> quantized) {
    ThreadPool pool(NumUsableCores());
    for (TensorSpec& spec : TensorsOf(shape.Config())) {
      std::string kind = spec.name;
      std::erase_if(kind, [](char c) { return absl::ascii_isdigit(c); });
      const auto index = static_cast<uint32_t>(shared_.size());
      const auto [it, is_new] = shared_.try_emplace(kind);
      tensors_[spec.name] = &it->second;
      if (is_new) Make(std::move(spec), seed, index, shape.dtype, quantized, &pool, &it->second);
    }
  }

  bool Has(std::string_view name) const override { return tensors_.find(name) != tensors_.end(); }
  absl::StatusOr<ConstMatrixView> Get(std::string_view name,
                                      absl::Span<const int64_t> shape) const override {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return absl::NotFoundError(absl::StrCat(Where(name), ": missing"));
    if (const std::vector<int64_t>& own = it->second->spec.shape; shape != own) {
      return absl::InvalidArgumentError(
          absl::StrCat(Where(name), ": found ", ShapeText(own), ", wanted ", ShapeText(shape)));
    }
    return it->second->matrix;
  }
  absl::StatusOr<ConstMatrixView> Describe(std::string_view name,
                                           absl::Span<const int64_t> shape) const override {
    return Get(name, shape);
  }
  absl::StatusOr<std::vector<int64_t>> GetIntegers(std::string_view name,
                                                   int64_t /*size*/) const override {
    return absl::NotFoundError(absl::StrCat(Where(name), ": missing"));
  }
  void Forget(std::string_view /*name*/) const override {}
  std::vector<std::string> files() const override { return {}; }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }
  int64_t num_elements(std::string_view name) const override {
    return tensors_.find(name)->second->spec.num_elements();
  }
  std::string Where(std::string_view name) const override {
    return absl::StrCat("random weights: ", View(name));
  }

 private:
  static void Make(TensorSpec spec, uint64_t seed, uint32_t index, DType dtype,
                   std::optional<DType> quantized, ThreadPool* pool, SharedTensor* to) {
    const bool is_vector = spec.shape.size() == 1;
    const int rows = is_vector ? 1 : static_cast<int>(spec.shape.front());
    const int cols = static_cast<int>(spec.shape.back());
    to->bytes.resize(spec.num_elements() * SizeOf(dtype));
    FillTensor(spec, seed, index, 0, dtype, pool, absl::MakeSpan(to->bytes));
    to->matrix = {to->bytes.data(), dtype, rows, cols, cols};
    if (quantized.has_value() && !is_vector && spec.role != TensorRole::kRouter &&
        cols % kBlockGroup == 0) {
      const bool is_head = spec.role == TensorRole::kEmbedding || spec.name == "lm_head.weight";
      const DType format = is_head ? DType::kQ8_0 : *quantized;
      to->bytes = QuantizeMatrix(to->matrix, format, pool);
      to->matrix = {to->bytes.data(), format, rows, cols, cols};
    }
    to->spec = std::move(spec);
  }

  std::map<std::string, SharedTensor> shared_;
  std::map<std::string, const SharedTensor*, std::less<>> tensors_;
};

}  // namespace

std::shared_ptr<const Weights> MakeRandomWeights(const RandomModelShape& shape, uint64_t seed,
                                                 std::optional<DType> quantized) {
  return std::make_shared<RandomWeights>(shape, seed, quantized);
}

}  // namespace tandem
