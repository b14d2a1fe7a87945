// Makes the weights of a Transformer from the named tensors of a checkpoint.
#ifndef TANDEM_MODEL_TRANSFORMER_LOADER_H_
#define TANDEM_MODEL_TRANSFORMER_LOADER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/matrix.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/weights.h"
#include "model/packed_file.h"
#include "model/rank_parts.h"
#include "model/transformer.h"
#include "model/transformer_weights.h"
#include "tandem/types.h"

namespace tandem {

// A model's files and their contents.
struct ModelFiles {
  std::string path;
  ModelConfig config;
  std::shared_ptr<const Weights> weights;
  bool is_head_settled = false;

  // SettleHead, once.
  absl::Status Settle(std::optional<bool> is_equal = std::nullopt);
};

// Performs one load of a model: make one call of Load or Check. Thread-compatible.
class TransformerLoader {
 public:
  // The arguments must outlive the loader.
  TransformerLoader(const ModelFiles& files, Backend* backend,
                    const Transformer::LoadOptions& options);

  // Loads the model from the files of its weights, which the first pass packs.
  absl::StatusOr<std::unique_ptr<TransformerWeights>> Load();
  // Loads the model from packed weights.
  absl::StatusOr<std::unique_ptr<TransformerWeights>> Load(PackedFile packed);

  // What all weights of a model are.
  struct Totals {
    int64_t num_parameters = 0;
    size_t packed_bytes = 0;  // in a packed file
  };
  // Returns the errors that Load would return for an unsupported model, without reading or packing
  // any matrix.
  absl::StatusOr<Totals> Check();

  // Loads the model, packs all weights with `writer`, and lets it write them in the background.
  absl::StatusOr<std::unique_ptr<TransformerWeights>> Load(std::unique_ptr<PackedFileWriter> writer,
                                                           Totals totals);
  static int MaxEntries(const ModelConfig& config);
  // Checks that the draft head of `path` fits options.target, or that any other model is loaded
  // without a target. Sets the target's context length and the layers to read in a head's
  // configuration. Errors name the key.
  static absl::Status FitToTarget(const std::string& path, const Transformer::LoadOptions& options,
                                  ModelConfig* config);

 private:
  // The format of a quantised head and embedding, the largest block format.
  static constexpr DType kHeadFormat = DType::kQ8_0;

  // Fills `loaded_`.
  absl::Status Fill();

  // Whether matrices have descriptions but no data.
  bool has_no_data() const { return packed_ != nullptr || only_checks_; }

  // Returns a matrix, without data if has_no_data().
  absl::StatusOr<ConstMatrixView> Matrix(const std::string& name, int64_t rows, int64_t cols);

  // RESOURCE_EXHAUSTED if there is not enough memory to build `matrix` and pack it.
  absl::Status CheckMemoryFor(const std::string& name, const ConstMatrixView& matrix) const;

  // Returns the format to which a matrix is quantised if `wanted` is requested. Nullopt if it keeps
  // its own.
  std::optional<DType> FormatOf(const ConstMatrixView& matrix, DType wanted) const;
  absl::StatusOr<ConstMatrixView> LoadEmbedding();

  // Returns the embedding as it is in the files.
  absl::StatusOr<ConstMatrixView> EmbeddingInPlace(const std::string& name,
                                                   const ConstMatrixView& described);
  absl::StatusOr<std::vector<float>> HostVector(const std::string& name, int64_t size);
  absl::StatusOr<Buffer> UploadFloats(const std::vector<float>& values);
  absl::StatusOr<Buffer> Vector(const std::string& name, int64_t size);

  void ReportPacking() const;
  bool IsAnyMade(const std::vector<std::string>& tensors) const;

  // Packs `parts`, which come from `tensors`, into `*weight`. The address of `*weight` must not
  // change.
  absl::Status Pack(absl::Span<const WeightPart> parts, PartOrder order,
                    std::optional<DType> wanted, std::vector<std::string> tensors,
                    PackedWeight* weight);

  // Tensors that the same rows are multiplied with.
  struct FoundParts {
    std::vector<std::string> tensors;
    std::vector<WeightPart> parts;
    std::vector<std::vector<float>> biases;

    bool HasOneDType(size_t i, size_t j) const {
      return parts[i].matrix.dtype == parts[j].matrix.dtype;
    }
  };

  // The number of outputs of a projection, and the share of this rank.
  struct Outputs {
    int count = 0;
    RankShare own;
  };

  // Returns this rank's outputs of the projections `names` ("q_proj", ...) under `prefix`. Leaves
  // out a projection without outputs on this rank.
  absl::StatusOr<FoundParts> FindProjections(const std::string& prefix,
                                             absl::Span<const char* const> names,
                                             absl::Span<const Outputs> outputs, int inputs,
                                             bool has_bias);

  // Packs projections of one dtype as one product.
  absl::Status Projections(const std::string& prefix, absl::Span<const char* const> names,
                           absl::Span<const Outputs> outputs, int inputs, bool has_bias,
                           PackedWeight* weight, PartOrder order = PartOrder::kConcatenated);

  // Packs parts of several dtypes as f32, for example of a quantised checkpoint with one tensor
  // left unquantised.
  // REQUIRES: they are packed at once, because the widened copies are temporary.
  absl::Status PackWidened(FoundParts* found, PartOrder order, std::optional<DType> wanted,
                           PackedWeight* weight);

  // Packs queries, keys and values; neighbours with the same dtype as one product.
  absl::Status AttentionProjections(const std::string& prefix, absl::Span<const Outputs> outputs,
                                    int inputs, bool has_bias, std::vector<PackedWeight>* weights);

  // Loads the tables of a rotation. Elements of a head that are not rotated get frequency 0 and
  // magnitude 1.
  absl::Status LoadRotation(LayerRotation kind, TransformerWeights::Rotation* rotation);
  absl::Status LoadLayer(int index, TransformerWeights::Layer* to);
  absl::Status LoadFeedForward(const std::string& prefix, Outputs middle, Outputs hidden,
                               bool has_bias, PackedWeight* gate_up, PackedWeight* down);

  // Keeps the router in f32: it is small, and its output selects the experts. Packs experts at
  // load, because no pass reads all of them.
  absl::Status LoadExperts(const std::string& mlp, TransformerWeights::Layer* layer);
  absl::Status LoadHead(ConstMatrixView embedding);
  // For draft heads (draft_head_loader.cc): load the parts before the layer, and the head, whose
  // rows are sorted by token id.
  absl::Status LoadStateParts();
  absl::Status LoadDraftHead();
  absl::Status PackDraftHead(ConstMatrixView matrix, absl::Span<const TokenId> rows);

  const ModelFiles& files_;
  Backend* const backend_;
  const Transformer::LoadOptions& options_;
  const RankParts own_;  // of this rank, without the rows of the head
  std::unique_ptr<TransformerWeights> loaded_;
  const PackedFile* packed_ = nullptr;  // the source of packed weights, or null
  PackedFileWriter* writer_ = nullptr;  // the destination of packed weights, or null
  Totals totals_;                       // of the model that is packed or checked
  bool only_checks_ = false;            // reads only the descriptions of matrices
  bool packs_now_ = false;              // packs at load, not at first use
};

}  // namespace tandem

#endif  // TANDEM_MODEL_TRANSFORMER_LOADER_H_
