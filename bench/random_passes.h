// A model with random weights that is nothing but its passes: no file, no tokens. Its layers have
// memory of their own but one layer's numbers, so that making it takes the host a layer's time.
#ifndef TANDEM_BENCH_RANDOM_PASSES_H_
#define TANDEM_BENCH_RANDOM_PASSES_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "tools/checkpoints/random_model.h"

namespace tandem {

// The weights of a layer, in the order in which a pass reads them.
enum LayerPart { kQkv, kAttentionOut, kGateUp, kDown, kNumLayerParts };
inline constexpr std::string_view kLayerPartNames[] = {"qkv", "attention_out", "gate_up", "down"};

class RandomPasses {
 public:
  // For passes of up to `max_rows` rows in all. `backend` must outlive it. RESOURCE_EXHAUSTED if
  // there is not enough memory.
  static absl::StatusOr<std::unique_ptr<RandomPasses>> Create(const RandomModelShape& shape,
                                                              std::optional<DType> quantized,
                                                              KvDType kv_dtype, int max_rows,
                                                              Backend* backend);

  // `batch` sequences with `context` tokens each, and room for `rows` more. Replaces the last ones.
  absl::Status SetSequences(int batch, int context, int rows);

  // These enqueue, and read nothing from the host.
  void Product(LayerPart part, int layer, int rows);
  void Head(int rows);
  void Attention(int layer);
  // All layers and the head, for each row's logits, over SetSequences' rows.
  void Pass();

  int num_layers() const { return shape_.layers; }
  const PackedWeight& weight(LayerPart part, int layer = 0) const { return layers_[layer][part]; }
  const PackedWeight& head() const { return head_; }
  // What a pass reads of weights, and how many numbers these are.
  double bytes_per_pass() const;
  double weights_per_pass() const;
  // Of keys and values, by attention in one layer.
  double attention_bytes() const;
  // Of the last pass: [rows of all sequences, vocab] on the backend, numbers before there is one.
  const float* logits() const { return static_cast<const float*>(logits_.data()); }
  // The same, downloaded.
  std::vector<float> Logits();

 private:
  template <typename Count>
  double SumOfWeights(Count count) const;
  using Layer = std::array<PackedWeight, kNumLayerParts>;
  RandomPasses(const RandomModelShape& shape, std::optional<DType> quantized, KvDType kv_dtype,
               Backend* backend)
      : shape_(shape), quantized_(quantized), kv_dtype_(kv_dtype), backend_(*backend) {}
  absl::Status MakeWeights();
  absl::Status MakeActivations(int max_rows);
  int qkv_size() const { return (shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim; }
  PagedKvView ViewOf(int layer) const;
  RaggedRows ragged() const;
  MatrixView Rows(const Buffer& buffer, int rows, int cols) const;
  NormedRows Normed(int rows) const;  // of what layers add to

  const RandomModelShape shape_;
  const std::optional<DType> quantized_;
  const KvDType kv_dtype_;
  Backend& backend_;
  std::vector<Layer> layers_;
  PackedWeight head_;
  Buffer norm_, frequencies_;
  Buffer first_hidden_, hidden_, normed_, qkv_, attended_, mlp_, angles_, logits_;
  std::unique_ptr<PagedKvCache> cache_;
  std::vector<KvSequence> sequences_;
  Buffer starts_, lengths_, page_tables_;
  Buffer tables_;  // int32 [batch]: all have the first of frequencies
  int batch_ = 0;
  int rows_ = 0;  // of each sequence
  int context_ = 0;
  int max_pages_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_BENCH_RANDOM_PASSES_H_
