#include "tests/head_folder.h"

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/split_mix.h"
#include "engine/engine_testing.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/transformer.h"
#include "tandem/json_value.h"
#include "tests/safetensors_builder.h"

namespace tandem {
namespace {

constexpr int kTrainingPages = 64;
constexpr float kSharpness = 12.0f;  // the largest logit of the learned rows

void WriteTo(const std::string& path, const std::string& contents) {
  std::ofstream file(path, std::ios::binary);
  file << contents;
  TANDEM_CHECK(file.good());
}

// Returns the vector divided by its length.
std::vector<float> Unit(std::vector<float> x) {
  float sum = 0.0f;
  for (const float value : x) sum += value * value;
  for (float& value : x) value /= std::sqrt(sum) + 1e-6f;
  return x;
}

// The tensors of a head, and the file that contains them.
class HeadTensors {
 public:
  HeadTensors(const ModelConfig& target, HeadFolder::Form form, std::vector<TokenId> tokens)
      : target_(target), form_(form), tokens_(std::move(tokens)), random_(form.seed) {
    const int hidden = target.hidden_size;
    const std::string layer = form.is_one_layer ? "layers.0." : "midlayer.";
    const int inputs = form.is_one_layer ? hidden : 2 * hidden;
    const int heads = target.num_heads * target.head_dim;
    const int kv_heads = target.num_kv_heads * target.head_dim;
    AddNoise("fc.weight", hidden, (form.is_one_layer ? 2 : num_states()) * hidden);
    AddNoise(layer + "self_attn.q_proj.weight", heads, inputs);
    AddNoise(layer + "self_attn.k_proj.weight", kv_heads, inputs);
    AddNoise(layer + "self_attn.v_proj.weight", kv_heads, inputs);
    AddNoise(layer + "self_attn.o_proj.weight", hidden, heads);
    AddNoise(layer + "mlp.gate_proj.weight", kMlp, hidden);
    AddNoise(layer + "mlp.up_proj.weight", kMlp, hidden);
    AddNoise(layer + "mlp.down_proj.weight", hidden, kMlp);
    AddOnes(layer + "input_layernorm.weight");
    AddOnes(layer + "post_attention_layernorm.weight");
    AddOnes("norm.weight");
    AddOnes(form.is_one_layer ? "hidden_norm.weight" : layer + "hidden_norm.weight");
    if (form.is_one_layer) AddOnes("embed_norm.weight");
    std::vector<int64_t> offsets;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      offsets.push_back(tokens_[i] - static_cast<int64_t>(i));
    }
    file_.Add("d2t", "I64", {static_cast<int64_t>(offsets.size())}, offsets);
    AddNoise("lm_head.weight", static_cast<int>(tokens_.size()), hidden);
  }

  // Sets the rows of lm_head, in the order of the tokens.
  void SetHead(const std::vector<std::vector<float>>& rows) {
    std::vector<float> values;
    for (const auto& row : rows) values.insert(values.end(), row.begin(), row.end());
    file_.AddFloats("lm_head.weight", "BF16",
                    {static_cast<int64_t>(rows.size()), target_.hidden_size}, values);
  }

  void Write(const std::string& folder) const {
    SortedJson config = {
        {"architectures", {form_.is_one_layer ? "TandemOneLayerHead" : "LlamaForCausalLMEagle3"}},
        {"model_type", "llama"},
        {"vocab_size", target_.vocab_size},
        {"draft_vocab_size", tokens_.size()},
        {"hidden_size", target_.hidden_size},
        {"intermediate_size", kMlp},
        {"num_hidden_layers", 1},
        {"num_attention_heads", target_.num_heads},
        {"num_key_value_heads", target_.num_kv_heads},
        {"head_dim", target_.head_dim},
        {"hidden_act", "silu"},
        {"max_position_embeddings", target_.context_length},
        {"rms_norm_eps", 1e-5},
        {"rope_theta", 10000.0}};
    if (!form_.is_one_layer) config["eagle_aux_hidden_state_layer_ids"] = {0, 1, 2};
    WriteTo(folder + "/config.json", config.dump());
    WriteTo(folder + "/model.safetensors", file_.Bytes());
  }

  std::vector<int> target_layers() const {
    return form_.is_one_layer ? std::vector{target_.num_layers} : std::vector{0, 1, 2};
  }

 private:
  static constexpr int kMlp = 96;

  int num_states() const { return static_cast<int>(target_layers().size()); }
  // Adds a matrix of noise whose outputs have about the length of their input.
  void AddNoise(const std::string& name, int rows, int cols) {
    std::vector<float> values(static_cast<size_t>(rows) * cols);
    for (float& value : values) {
      random_ = SplitMix64(random_);
      const float uniform = static_cast<float>(random_ >> 40) * 0x1p-24f - 0.5f;
      value = uniform * std::sqrt(12.0f / static_cast<float>(cols));
    }
    file_.AddFloats(name, "BF16", {rows, cols}, values);
  }
  void AddOnes(const std::string& name) {
    file_.AddFloats(name, "BF16", {target_.hidden_size},
                    std::vector<float>(target_.hidden_size, 1.0f));
  }

  const ModelConfig& target_;
  HeadFolder::Form form_;
  std::vector<TokenId> tokens_;
  uint64_t random_;
  SafetensorsBuilder file_;
};

// For each token of the texts, sums the rows that precede it, minus the mean of all rows.
class RowSums {
 public:
  explicit RowSums(int hidden) : mean_(hidden, 0.0f) {}

  // `row` is one of the head's states before its norm, and `next` the token after it.
  void Add(const float* row, TokenId next) {
    rows_.emplace_back(next, Unit({row, row + mean_.size()}));
    for (size_t i = 0; i < mean_.size(); ++i) mean_[i] += rows_.back().second[i];
  }

  std::map<TokenId, std::vector<float>> Sums() const {
    std::map<TokenId, std::vector<float>> sums;
    for (const auto& [next, row] : rows_) {
      std::vector<float>& sum = sums.try_emplace(next, mean_.size(), 0.0f).first->second;
      for (size_t i = 0; i < row.size(); ++i) {
        sum[i] += row[i] - mean_[i] / static_cast<float>(rows_.size());
      }
    }
    return sums;
  }

 private:
  std::vector<std::pair<TokenId, std::vector<float>>> rows_;
  std::vector<float> mean_;
};

// Runs the target and the head over each text and sums the head's states.
RowSums Read(const std::string& target_path, const std::string& head_path,
             const std::vector<int>& layers, const std::vector<std::vector<TokenId>>& texts) {
  const std::unique_ptr<Backend> backend =
      *MakeCpuBackend({.num_threads = 1, .compute = CpuCompute::kF32});
  const std::unique_ptr<Transformer> target = *Transformer::Load(target_path, backend.get());
  target->KeepStates(layers);
  const auto head =
      Transformer::Load(head_path, backend.get(),
                        {.target = target.get(), .first_layer = target->config().num_layers});
  TANDEM_CHECK(head.ok());
  KvLayout layout = target->kv_layout(/*page_size=*/16);
  ++layout.num_layers;
  const auto cache = *PagedKvCache::Create(backend.get(), layout, kTrainingPages);
  RowSums sums(target->config().hidden_size);
  for (const std::vector<TokenId>& text : texts) {
    KvSequence kv = cache->NewSequence();
    const ForwardRequest pass{.tokens = text, .kv = &kv, .num_logits = 0};
    TANDEM_CHECK(target->Forward({&pass, 1}).ok());
    // Row i belongs to token i + 1 and should predict token i + 2.
    KvSequence rows = kv.Overlay(1);
    const int count = static_cast<int>(text.size()) - 2;
    ConstMatrixView states = target->states();
    states.rows = count;
    const ForwardRequest reading{.tokens = absl::MakeConstSpan(text).subspan(1, count),
                                 .kv = &rows,
                                 .num_logits = 0,
                                 .states = states};
    TANDEM_CHECK((*head)->Forward({&reading, 1}).ok());
    const ConstMatrixView own = (*head)->states();
    for (int i = 0; i < count; ++i) {
      sums.Add(static_cast<const float*>(own.data) + i * own.stride, text[i + 2]);
    }
  }
  return sums;
}

}  // namespace

std::vector<std::vector<TokenId>> TextsOf(const std::string& target,
                                          const std::vector<std::string>& prompts, int tokens) {
  EngineOptions options = CpuOptionsFor(target, "");
  options.drafter = DrafterKind::kNone;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  std::vector<std::vector<TokenId>> texts;
  for (const std::string& prompt : prompts) {
    Request request{.prompt = prompt, .max_tokens = tokens, .sampling = kGreedy};
    request.ignore_eos = true;
    const Completion got = Generate(engine.get(), request);
    std::vector<TokenId>& text =
        texts.emplace_back(*engine->tokenizer().Encode(prompt, SpecialTokens::kPlain));
    text.insert(text.end(), got.token_ids.begin(), got.token_ids.end());
  }
  return texts;
}

HeadFolder::HeadFolder(const std::string& target, const std::vector<std::vector<TokenId>>& texts,
                       Form form) {
  std::set<TokenId> tokens;
  for (const auto& text : texts) tokens.insert(text.begin(), text.end());
  const auto config = ReadModelConfig(target);
  TANDEM_CHECK(config.ok());
  HeadTensors head(*config, form, {tokens.begin(), tokens.end()});
  head.Write(path());
  const auto sums = Read(target, path(), head.target_layers(), texts).Sums();
  std::vector<std::vector<float>> rows;
  for (const TokenId token : tokens) {
    const auto it = sums.find(token);
    std::vector<float> row(config->hidden_size, 0.0f);
    if (it != sums.end()) row = Unit(it->second);
    for (float& value : row) value *= kSharpness / std::sqrt(static_cast<float>(row.size()));
    rows.push_back(std::move(row));
  }
  head.SetHead(rows);
  head.Write(path());
}

}  // namespace tandem
