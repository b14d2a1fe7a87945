// Fills a Transformer from the named tensors of a checkpoint.
#ifndef TANDEM_MODEL_TRANSFORMER_LOADER_H_
#define TANDEM_MODEL_TRANSFORMER_LOADER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/matrix.h"
#include "model/packed_file.h"
#include "model/transformer.h"
#include "tandem/types.h"

namespace tandem {

// These rows of a matrix in the host's memory, one after the other, in `*gathered`.
ConstMatrixView GatheredRows(const ConstMatrixView& matrix, absl::Span<const TokenId> rows,
                             std::vector<std::byte>* gathered);

// One load of a model: one call of Load, Check or Write. Thread-compatible.
class TransformerLoader {
 public:
  TransformerLoader(const std::string& path, const Transformer::LoadOptions& options,
                    Transformer* model);

  // From the weights' files, or from `packed`.
  absl::Status Load(PackedFile* packed);

  // Refuses what Load would refuse, and makes, reads and packs no matrix.
  absl::Status Check();

  // Packs every weight into a file, `num_parameters` of them. The model is left without.
  absl::Status Write(PackedFileWriter* writer, int64_t num_parameters);
  static int MostEntries(const ModelConfig& config);
  // Checks that the head of `path` fits options.target, or that another model has no target. Gives
  // a head's configuration the target's context and the layers that it reads. Errors name the key.
  static absl::Status FitToTarget(const std::string& path, const Transformer::LoadOptions& options,
                                  ModelConfig* config);

 private:
  // The format of a quantised head and embedding. No format of blocks is larger.
  static constexpr DType kHeadFormat = DType::kQ8_0;

  absl::Status Fill();

  // Whether matrices are only described.
  bool has_no_data() const { return packed_ != nullptr || only_checks_; }

  // Without data where that is not read.
  absl::StatusOr<ConstMatrixView> Matrix(const std::string& name, int64_t rows, int64_t cols);

  // RESOURCE_EXHAUSTED where packing a matrix that is made in memory would run out of it.
  absl::Status CheckMemoryFor(const std::string& name, const ConstMatrixView& matrix) const;

  // To what a matrix is quantised when `wanted` is asked for; nothing if it stays as it is.
  std::optional<DType> FormatOf(const ConstMatrixView& matrix, DType wanted) const;
  absl::StatusOr<ConstMatrixView> LoadEmbedding();

  // The embedding as the files have it.
  absl::StatusOr<ConstMatrixView> EmbeddingInPlace(const std::string& name,
                                                   const ConstMatrixView& described);
  absl::StatusOr<std::vector<float>> HostVector(const std::string& name, int64_t size);
  absl::StatusOr<Buffer> UploadFloats(const std::vector<float>& values);
  absl::StatusOr<Buffer> Vector(const std::string& name, int64_t size);

  // Adds packed weights to the file, and tells how many parameters have come so far.
  absl::Status Keep(const std::string& entry, absl::Span<const std::byte> bytes);
  bool IsAnyMade(const std::vector<std::string>& tensors) const;

  // Packs the parts, which are `tensors`, into `*weight`, which stays where it is.
  absl::Status Pack(absl::Span<const WeightPart> parts, PartOrder order,
                    std::optional<DType> wanted, std::vector<std::string> tensors,
                    PackedWeight* weight);

  // Tensors that are multiplied with the same rows.
  struct FoundParts {
    std::vector<std::string> tensors;
    std::vector<WeightPart> parts;
    std::vector<std::vector<float>> biases;

    bool HasOneDType(size_t i, size_t j) const {
      return parts[i].matrix.dtype == parts[j].matrix.dtype;
    }
  };

  // How many outputs a projection has, and which of them this rank computes.
  struct Outputs {
    int count = 0;
    RankShare own;
  };

  // This rank's outputs of the projections `names` ("q_proj", ...) under `prefix`; nothing of one
  // without any.
  absl::StatusOr<FoundParts> FindProjections(const std::string& prefix,
                                             absl::Span<const char* const> names,
                                             absl::Span<const Outputs> outputs, int inputs,
                                             bool has_bias);

  // Packs projections of one dtype as one product.
  absl::Status Projections(const std::string& prefix, absl::Span<const char* const> names,
                           absl::Span<const Outputs> outputs, int inputs, bool has_bias,
                           PackedWeight* weight, PartOrder order = PartOrder::kConcatenated);

  // Packs parts as f32, which holds every dtype, such as those of a quantised checkpoint of which
  // one was left out of quantising. REQUIRES: they are packed now, as what is widened does not
  // stay.
  absl::Status PackWidened(FoundParts* found, PartOrder order, std::optional<DType> wanted,
                           PackedWeight* weight);

  // Packs queries, keys and values: as one product, if they have one dtype.
  absl::Status AttentionProjections(const std::string& prefix, absl::Span<const Outputs> outputs,
                                    int inputs, bool has_bias, std::vector<PackedWeight>* weights);

  // Elements of a head that are not rotated have frequencies of 0 and magnitudes of 1.
  absl::Status LoadRotation(LayerRotation kind, Transformer::Rotation* rotation);
  absl::Status LoadLayer(int index, Transformer::Layer* to);
  absl::Status LoadFeedForward(const std::string& prefix, Outputs middle, Outputs hidden,
                               bool has_bias, PackedWeight* gate_up, PackedWeight* down);

  // The router is f32 whatever it is stored as, because what it says decides and it is small.
  // Experts are packed at once, because no pass reads all of them.
  absl::Status LoadExperts(const std::string& mlp, Transformer::Layer* layer);
  absl::Status LoadHead(ConstMatrixView embedding);
  // A draft head's (draft_head_loader.cc): the parts before its layer, and its head, whose rows are
  // sorted by their tokens' ids.
  absl::Status LoadStateParts();
  absl::Status LoadDraftHead();
  absl::Status PackDraftHead(ConstMatrixView matrix, absl::Span<const TokenId> rows);

  // A tensor that the architecture has no place for would have changed the result.
  absl::Status CheckAllUsed() const;

  Transformer& model_;
  const std::optional<DType> quantized_;
  const Transformer::Quantize which_;
  const int head_tokens_;  // 0 for all
  const bool sets_head_;   // the head is left out
  const std::function<void(int64_t, int64_t)> on_packing_;
  const std::string path_;
  const PackedFile* packed_ = nullptr;  // to take weights from, or none
  PackedFileWriter* writer_ = nullptr;  // to put them into, or none
  int64_t num_to_write_ = 0;            // parameters
  bool only_checks_ = false;            // the descriptions of matrices
  bool packs_now_ = false;              // and not when they are first read
  std::set<std::string> used_;
  std::set<std::string> ignored_;
};

}  // namespace tandem

#endif  // TANDEM_MODEL_TRANSFORMER_LOADER_H_
