// What TransformerLoader makes of a checkpoint, and the passes of a Transformer read.
#ifndef TANDEM_MODEL_TRANSFORMER_WEIGHTS_H_
#define TANDEM_MODEL_TRANSFORMER_WEIGHTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/matrix.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/weights.h"
#include "model/packed_file.h"
#include "tandem/types.h"

namespace tandem {

// A rank has its RankParts of every product's outputs.
struct TransformerWeights {
  struct Layer {
    Buffer attention_norm;  // f32 [hidden], or empty
    // [(heads + 2 kv_heads) * head_dim, hidden] in total; one weight for each run of outputs with
    // one dtype.
    std::vector<PackedWeight> qkv;
    Buffer query_norm;             // f32 [head_dim], [heads * head_dim], or empty
    Buffer key_norm;               // the same for keys
    PackedWeight attention_out;    // [hidden, heads * head_dim]
    Buffer attention_output_norm;  // f32 [hidden], or empty
    Buffer mlp_norm;               // f32 [hidden], or empty
    PackedWeight gate_up;          // [2 * intermediate, hidden], or empty
    PackedWeight down;             // [hidden, intermediate], or empty
    PackedWeight router;           // [experts, hidden], in place of gate_up and down
    ExpertWeights experts;
    Buffer mlp_output_norm;  // f32 [hidden], or empty
  };
  // The parts of a draft head before its layer.
  struct StateParts {
    Buffer states_norm;     // f32 [read_state_size()], for the target's states, or empty
    Buffer state_norm;      // f32 [hidden]
    Buffer embedding_norm;  // f32 [hidden], or empty: the layer's attention_norm is used
    PackedWeight fc;        // [hidden, fc_inputs()]
  };
  // The tables of the rotary angles of one LayerRotation; empty if no layer uses it.
  struct Rotation {
    Buffer inverse_frequencies;  // f32 [KvSequence::variant, head_dim / 2]
    Buffer magnitudes;           // f32 [head_dim / 2]
    bool is_used() const { return magnitudes.size_bytes() > 0; }
  };
  struct Unpacked {
    const PackedWeight* weight;
    std::vector<std::string> tensors;  // its sources
  };

  TransformerWeights() = default;
  TransformerWeights(const TransformerWeights&) = delete;  // `unpacked` points into it

  // Drops the files' pages of weights that have been packed.
  void ForgetPacked();

  std::shared_ptr<const Weights> source;  // the mapped files; the embedding is read in place
  PackedFile packed;                      // mapped, if weights are read from it
  bool is_unread = false;                 // whether no pass has read `packed` yet
  // Weights that were packed for the cache, and the thread that writes them; or null.
  std::unique_ptr<PackedFileWriter> packed_writer;
  int64_t num_parameters = 0;
  size_t bytes_packed_at_load = 0;
  std::vector<std::byte> quantized_embedding;  // if the embedding differs from the files'
  Buffer embedding_storage;
  ConstMatrixView embedding;       // [vocab, hidden]
  ConstMatrixView host_embedding;  // the same, in the host's memory
  std::array<Rotation, kNumLayerRotations> rotations;
  std::vector<Layer> layers;
  StateParts state_parts;
  Buffer final_norm;  // f32 [hidden]
  int num_head_tokens = 0;
  PackedWeight head;                 // [this rank's share of num_head_tokens, hidden]
  std::vector<TokenId> head_ids;     // LanguageModel::head_ids
  std::optional<DType> head_format;  // the format for SetHead
  int64_t head_row_bytes = 0;
  std::deque<Unpacked> unpacked;  // in the order of use in a pass
};

// Copies these rows of a matrix in the host's memory to `*gathered`, contiguously, and returns a
// view of them.
ConstMatrixView GatheredRows(const ConstMatrixView& matrix, absl::Span<const TokenId> rows,
                             std::vector<std::byte>* gathered);

}  // namespace tandem

#endif  // TANDEM_MODEL_TRANSFORMER_WEIGHTS_H_
