// Parses bytes as a GGUF file, mostly one that is nearly right. A file must be refused with its
// name, or:
// - every tensor's bytes lie in the file, do not overlap, and are as many as its shape says;
// - every value can be asked for;
// - the file gives a configuration and named weights, with each expert at its share of the stack,
//   or an error that names the file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/blocks.h"
#include "model/checkpoint/gguf.h"
#include "model/checkpoint/gguf_config.h"
#include "model/checkpoint/gguf_weights.h"
#include "tests/fuzzing.h"
#include "tests/gguf_builder.h"

namespace tandem {
namespace {

// A model with all keys of a configuration, and with values and tensors of many kinds.
GgufBuilder Sample() {
  GgufBuilder file = GgufModel("llama", {});
  file.Set("llama.rope.scaling.type", GgufString("linear"));
  file.Set("llama.rope.scaling.factor", GgufFloat32(2));
  file.Set("tokenizer.ggml.add_bos_token", GgufBool(true));
  file.Set("tokenizer.ggml.tokens", GgufStrings({"<s>", "a", "", "b"}));
  file.Set("tokenizer.ggml.scores", GgufArray(6, 2, GgufNumber(-1.0f) + GgufNumber(0.5f)));
  file.Set("tokenizer.ggml.token_type", GgufArray(5, 2, GgufNumber(3) + GgufNumber(1)));
  file.Set("tokenizer.ggml.eos_token_id", GgufUint32(3));
  file.AddFloats("rope_freqs.weight", {8}, {1, 2, 3, 4, 5, 6, 7, 8});
  file.AddFloats("token_embd.weight", {32, 4}, std::vector<float>(128, 1.0f));
  file.tensors.push_back({"blk.0.attn_q.weight", {32, 32}, 8, std::string(32 * 34, 'q')});
  file.tensors.push_back({"blk.0.ffn_up.weight", {256, 1}, 12, std::string(144, 'u')});
  return file;
}

// Three experts, stacked except for one projection.
GgufBuilder SampleOfExperts() {
  GgufBuilder file = Sample();
  file.tensors.pop_back();
  file.Set("llama.expert_count", GgufUint32(3));
  file.Set("llama.expert_used_count", GgufUint32(2));
  file.Set("llama.expert_group_count", GgufUint32(1));
  file.AddFloats("blk.0.ffn_gate_inp.weight", {32, 3}, std::vector<float>(96, 2.0f));
  file.AddFloats("blk.0.ffn_gate_exps.weight", {4, 2, 3}, std::vector<float>(24, 3.0f));
  file.tensors.push_back({"blk.0.ffn_down_exps.weight", {32, 1, 3}, 8, std::string(3 * 34, 'd')});
  file.AddFloats("blk.0.ffn_up.2.weight", {4, 2}, std::vector<float>(8, 4.0f));
  return file;
}

template <typename Value>
void CheckValue(const absl::StatusOr<Value>& value) {
  if (!value.ok()) CheckRefusal(value.status());
}

void CheckTensors(absl::Span<const std::byte> bytes, const GgufFile& file) {
  std::vector<std::pair<const std::byte*, const std::byte*>> places;
  for (const GgufTensor& tensor : file.tensors()) {
    size_t size =
        tensor.is_int64 ? 8 * tensor.shape.back() : RowBytes(tensor.dtype, tensor.shape.back());
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) size *= tensor.shape[i];
    TANDEM_CHECK(size == tensor.bytes.size() && size > 0);
    places.emplace_back(tensor.bytes.data(), tensor.bytes.data() + size);
  }
  std::sort(places.begin(), places.end());
  const std::byte* end = bytes.data();
  for (const auto& [begin, its_end] : places) {
    TANDEM_CHECK(begin >= end);
    end = its_end;
  }
  TANDEM_CHECK(end <= bytes.data() + bytes.size());
}

// Checks that a stack holds its experts one after the other.
void CheckStack(const GgufTensor& tensor, const Weights& weights) {
  const absl::string_view place = absl::StrContains(tensor.name, "_gate_")   ? "gate_proj"
                                  : absl::StrContains(tensor.name, "_down_") ? "down_proj"
                                                                             : "up_proj";
  const size_t size = tensor.bytes.size() / tensor.shape[0];
  for (int64_t expert = 0; expert < tensor.shape[0]; ++expert) {
    const std::string name =
        absl::StrCat("model.layers.", tensor.name.substr(4, tensor.name.find('.', 4) - 4),
                     ".mlp.experts.", expert, ".", place, ".weight");
    const auto matrix = weights.Get(name, {tensor.shape[1], tensor.shape[2]});
    TANDEM_CHECK(matrix.ok() && matrix->data == tensor.bytes.data() + expert * size);
    TANDEM_CHECK(weights.num_elements(name) == tensor.shape[1] * tensor.shape[2]);
  }
}

void CheckWeights(absl::Span<const std::byte> bytes) {
  const auto weights = WeightsOf(*GgufFile::Parse(bytes, "fuzz"));
  if (!weights.ok()) return CheckRefusal(weights.status());
  for (const std::string& name : (*weights)->names()) {
    TANDEM_CHECK((*weights)->Has(name) && (*weights)->num_elements(name) > 0);
    TANDEM_CHECK(absl::StartsWith((*weights)->Where(name), "fuzz: tensor "));
  }
  const auto file = *GgufFile::Parse(bytes, "fuzz");
  for (const GgufTensor& tensor : file->tensors()) {
    if (absl::EndsWith(tensor.name, "_exps.weight")) CheckStack(tensor, **weights);
  }
}

void FuzzOne(absl::Span<const std::byte> bytes) {
  const auto parsed = GgufFile::Parse(bytes, "fuzz");
  if (!parsed.ok()) return CheckRefusal(parsed.status());
  const GgufFile& file = **parsed;
  CheckTensors(bytes, file);
  for (const std::string& key : file.keys()) {
    TANDEM_CHECK(file.Has(key));
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    CheckValue(file.GetString(key));
    CheckValue(file.GetInteger(key, -kMax, kMax));
    CheckValue(file.GetNumber(key));
    CheckValue(file.GetBool(key));
    CheckValue(file.GetStrings(key));
    CheckValue(file.GetFloats(key));
    CheckValue(file.GetIntegers(key));
  }
  CheckWeights(bytes);
  const auto config = ReadGgufConfig(file);
  if (!config.ok()) return CheckRefusal(config.status());
  TANDEM_CHECK(config->num_experts == 0 ||
               (config->experts_per_row > 0 && config->expert_size > 0));
  TANDEM_CHECK(config->experts_per_row <= config->num_experts);
  TANDEM_CHECK(config->num_layers > 0 && config->num_heads % config->num_kv_heads == 0);
  TANDEM_CHECK(static_cast<int>(config->rope.InverseFrequencies(config->head_dim).size()) ==
               config->head_dim / 2);
}

// Returns a number at an edge of the allowed ranges.
uint64_t Edge(std::mt19937* random) {
  constexpr uint64_t kEdges[] = {
      0,          1,          2,          3,           4,        9,        31,
      32,         33,         64,         255,         1u << 16, 1u << 31, ~uint32_t{0},
      1ull << 32, 1ull << 61, 1ull << 63, ~uint64_t{0}};
  return kEdges[(*random)() % std::size(kEdges)];
}

// Spoils one key or tensor of the file.
void Spoil(GgufBuilder* file, std::mt19937* random) {
  const auto below = [&](size_t end) { return (*random)() % end; };
  auto& [key, value] = file->keys[below(file->keys.size())];
  GgufBuilder::Tensor& tensor = file->tensors[below(file->tensors.size())];
  switch (below(10)) {
    case 0:
      value = GgufUint32(static_cast<uint32_t>(Edge(random)));
      break;
    case 1:
      value = GgufValue(static_cast<uint32_t>(below(14)), GgufNumber(Edge(random)));
      break;
    case 2:
      value = GgufArray(static_cast<uint32_t>(below(14)), Edge(random), GgufNumber(Edge(random)));
      break;
    case 3:
      key = file->keys[below(file->keys.size())].first;
      break;
    case 4:
      value[below(value.size())] = '\xff';
      break;
    case 5:
      tensor.sizes.push_back(Edge(random));
      std::swap(tensor.sizes[below(tensor.sizes.size())], tensor.sizes.back());
      tensor.sizes.pop_back();
      break;
    case 6:
      tensor.sizes.resize(below(6), 1);
      break;
    case 7:
      tensor.type = static_cast<uint32_t>(below(42));
      break;
    case 8:
      tensor.offset_change = static_cast<int64_t>(Edge(random));
      break;
    default:
      tensor.name = file->tensors[below(file->tensors.size())].name;
  }
}

void CheckSample() {
  for (const GgufBuilder& builder : {Sample(), SampleOfExperts()}) {
    const std::string sample = builder.Bytes();
    auto file = GgufFile::Parse({reinterpret_cast<const std::byte*>(sample.data()), sample.size()},
                                "sample");
    TANDEM_CHECK(file.ok());
    TANDEM_CHECK(ReadGgufConfig(**file).ok());
    TANDEM_CHECK(WeightsOf(*std::move(file)).ok());
  }
}

}  // namespace
}  // namespace tandem

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  std::mt19937 random(seed);
  if (random() % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  tandem::GgufBuilder file = random() % 2 == 0 ? tandem::Sample() : tandem::SampleOfExperts();
  for (size_t times = random() % 3; times > 0; --times) tandem::Spoil(&file, &random);
  std::string bytes = file.Bytes();
  if (random() % 8 == 0) bytes.resize(random() % bytes.size());
  if (bytes.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool checked = (tandem::CheckSample(), true);
  TANDEM_CHECK(checked);
  tandem::FuzzOne({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
