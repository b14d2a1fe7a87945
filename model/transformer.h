#ifndef TANDEM_MODEL_TRANSFORMER_H_
#define TANDEM_MODEL_TRANSFORMER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kvcache/kv_layout.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/weights.h"
#include "model/host_logits.h"
#include "model/language_model.h"
#include "model/pass_message.h"
#include "model/rank_parts.h"
#include "model/ranks/rank_group.h"
#include "model/transformer_weights.h"

namespace tandem {

// The layout of the cache of a model with this configuration.
KvLayout KvLayoutOf(const ModelConfig& config, int page_size, KvDType dtype);

// A decoder-only transformer on a backend, with the architecture that ModelConfig describes.
class Transformer final : public LanguageModel {
 public:
  enum class Quantize { kFloats, kAll };
  struct LoadOptions {
    // The format to which weight matrices of floats are quantised (kernels/quantize.h). Embedding
    // and head become Q8_0, because their errors reach the logits directly. Matrices in block
    // formats are an error, except with kAll: then those in larger formats are quantised again,
    // apart from embedding and head.
    std::optional<DType> quantized{};
    Quantize which = Quantize::kFloats;
    // Whether the matrices of a quantised checkpoint are converted to floats, because products with
    // blocks round activations. They always are if `quantized` is set.
    bool has_exact_activations = false;
    // The folder in which packed weights are cached (packed_file.h), if the backend's memory is the
    // host's; empty: no cache. Models with files smaller than `min_packed_bytes` are packed by
    // their first pass instead.
    std::string packed_folder{};
    int64_t min_packed_bytes = int64_t{64} << 20;
    int64_t max_packed_bytes = 0;  // limit of the packed files in the folder; 0: none
    std::vector<std::string> allowed_config_keys{};  // ReadModelConfig's
    // Keeps only this many first rows of the head, so that a draft computes fewer logits; 0 keeps
    // all. More than the vocabulary is an error.
    int head_tokens = 0;
    // A vocabulary of at least this many tokens gets no head at load: SetHead makes it before the
    // first pass, and head_tokens() is 0 until then. It is not a part of the packed weights. 0:
    // always load the head.
    // REQUIRES: 0 unless the backend's memory is the host's.
    int sets_head_from = 0;
    // Limits the model's context; 0: no limit. More than the model's own context is an error that
    // names `context`.
    int context = 0;
    // The ranks that compute this model together, or null. Each loads its own part, computes its
    // own outputs of every product, and reads the other outputs from the group's memory. The model
    // uses kNumSlots slots of that memory from `first_slot` on. The group must outlive the model.
    // REQUIRES: the same options on every rank, except for those of the machine.
    RankGroup* group = nullptr;
    int first_slot = 0;
    // The target of a draft head (ModelConfig::state_input); null for other models. The head reads
    // the target's states, and its embedding and head unless it has its own. The target must be on
    // the same backend and outlive the model.
    // REQUIRES: no group.
    const Transformer* target = nullptr;
    // The layer of the cache that is the model's first one. For a draft head, whose layer is in the
    // target's pages, the target's number of layers.
    int first_layer = 0;
    // Called while weights are packed for their cache, with the number of parameters packed so far
    // and in total: at least once, and at the end with all.
    std::function<void(int64_t packed, int64_t total)> on_packing{};

    // Whether the head is not loaded, because of `sets_head_from`.
    bool SetsHead(const ModelConfig& config) const;
    // Describes in words how loading changes the weights of a checkpoint.
    std::string FormOf(const Weights& weights, const ModelConfig& config) const;
  };
  // Loads a Hugging Face folder or a GGUF model. `backend` must outlive the model. Errors name the
  // file and the key or tensor: NOT_FOUND, INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<Transformer>> Load(const std::string& folder,
                                                           Backend* backend,
                                                           const LoadOptions& options);
  static absl::StatusOr<std::unique_ptr<Transformer>> Load(const std::string& folder,
                                                           Backend* backend) {
    return Load(folder, backend, {});
  }
  // Loads a model from `weights`, which need not be files. Errors begin with `name`.
  static absl::StatusOr<std::unique_ptr<Transformer>> Load(const std::string& name,
                                                           const ModelConfig& config,
                                                           std::shared_ptr<const Weights> weights,
                                                           Backend* backend);

  const ModelConfig& config() const { return config_; }
  int vocab_size() const override { return config_.vocab_size; }
  int head_tokens() const override { return weights_->num_head_tokens; }
  absl::Span<const TokenId> head_ids() const override { return weights_->head_ids; }
  // Replaces the head by these rows of the whole one, with the same bits; by all rows if `ids` is
  // empty. Do not call it between a pass and the last use of its logits. RESOURCE_EXHAUSTED if
  // memory runs out; on error the head is unchanged.
  // REQUIRES: the head was left out at load (sets_head_from); ids ascend and are below
  // vocab_size().
  absl::Status SetHead(std::vector<TokenId> ids);
  // The size of a packed row of the head, in bytes.
  int64_t head_row_bytes() const { return weights_->head_row_bytes; }
  int context_length() const override { return config_.context_length; }
  int cache_variant(int greatest_length) const override {
    return config_.rope.type == RopeConfig::Type::kLongRope &&
           greatest_length > config_.rope.original_context;
  }
  int num_unpacked() const override {
    return static_cast<int>(weights_->unpacked.size()) + weights_->is_unread;
  }
  // The layout of this rank's heads, of which there may be none.
  KvLayout kv_layout(int page_size, KvDType dtype = KvDType::kF32) const;
  // The bytes of weights that a pass over one row reads, without the embedding's row.
  size_t bytes_read_per_pass() const;
  // The bytes of memory that the first pass will allocate for packed weights.
  size_t bytes_to_pack() const;
  // The bytes of the backend's memory for weights that were packed at load.
  size_t bytes_packed_at_load() const { return weights_->bytes_packed_at_load; }
  int64_t num_parameters() const { return weights_->num_parameters; }
  // The files of the weights, and LoadOptions::FormOf for them.
  std::vector<std::string> weight_files() const { return weights_->source->files(); }
  const std::string& weights_form() const { return weights_form_; }
  // The dtype of the first layer's weight matrices.
  DType dtype() const { return weights_->layers.front().qkv.front().dtype; }

  // Waits until the file of packed weights that this load began to write is complete, and writes
  // the rest with normal priority. Without this call the model's end stops the writing and removes
  // the file. Returns the failure to write it; OK if there is nothing to write.
  absl::Status AwaitPackedFile() {
    PackedFileWriter* const writer = weights_->packed_writer.get();
    return writer == nullptr ? absl::OkStatus() : writer->Await();
  }

  // REQUIRES: all sequences of a pass belong to one PagedKvCache on this model's backend, with
  // kv_layout().
  absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) override;
  DeviceRows device_rows() override { return {backend_, sampler_, logits_}; }
  // Enqueues the last pass again, over the same positions and pages. Does not upload, allocate or
  // wait, so that a device can record it.
  // REQUIRES: a previous pass, whose cache still exists and has the same contents in those pages;
  // no group.
  void RepeatPass();

  // Whether passes of a shape that came before are replayed by the device. Their numbers are padded
  // to classes then (PassClassOf).
  bool records_passes() const { return graph_cache_->replays(); }
  // Runs passes of this size whose rows are all padding, so that the first real pass of its classes
  // is replayed. Writes nothing to the cache. Does nothing unless records_passes().
  //   reads_own_states: ForwardRequest's, for a draft head
  absl::Status RecordPass(const PassSize& size, bool reads_own_states, PagedKvCache* cache);

  // Makes later passes keep the inputs of these layers as the states of each row, concatenated. The
  // number of layers stands for the last state, after the final norm.
  // REQUIRES: layers in [0, num_layers]; no group; not a draft head, whose states are its rows
  // before the final norm.
  void KeepStates(std::vector<int> layers);
  int state_size() const override {
    return is_draft_head() ? config_.hidden_size
                           : static_cast<int>(kept_layers_.size()) * config_.hidden_size;
  }
  ConstMatrixView states() const override { return states_; }
  bool is_draft_head() const { return config_.is_draft_head(); }
  int read_state_size() const override { return config_.read_state_size(); }

  // ---- What a draft head shares with this model, its target ----
  ConstMatrixView embedding() const { return weights_->embedding; }  // [vocab, hidden]
  ConstMatrixView host_embedding() const { return weights_->host_embedding; }
  // The matrix of the whole head in the host's memory, valid until ForgetHeadMatrix.
  absl::StatusOr<ConstMatrixView> HeadMatrix() const;
  void ForgetHeadMatrix() const;

  // The buffers of a pass that a group shares, each in its own slot of the group's memory.
  enum class SharedBuffer {
    kHidden,
    kAttended,
    kMlp,
    kOutput,
    kLogits,
    kQueriesAndKeys,
    kExpertOutputs,
  };
  // The number of slots of a group's memory that a model may use.
  static constexpr int kNumSlots = static_cast<int>(SharedBuffer::kExpertOutputs) + 1;
  // For rank 0 of a group: later passes use this cache, and the other ranks repeat its page copies.
  void Lead(PagedKvCache* cache) { cache->AddObserver(&page_copies_); }
  // For the other ranks of a group: runs this rank's part of a pass that rank 0 announced. `cache`:
  // this rank's, or null if it has no heads. Returns the group's error.
  absl::Status Follow(const PassMessage& pass, PagedKvCache* cache);

 private:
  using Layer = TransformerWeights::Layer;
  // Activations and tables of a pass. Buffers never shrink.
  struct Workspace {
    // ---- In the group's memory, if there is a group: every rank writes its own columns ----
    Buffer hidden, attended, mlp, output;  // f32 [rows, ...]
    Buffer queries_and_keys;               // f32 [rows, ...]: all heads, if normalised
    Buffer expert_outputs;                 // f32 [rows * experts_per_row, hidden], in a group
    Buffer logits;                         // f32 [logit_rows, head_tokens()]
    // ---- In the backend's memory ----
    Buffer normed, normed_output, qkv;     // f32 [rows, ...]
    Buffer normed_heads;                   // queries_and_keys, normalised
    Buffer router_logits, expert_weights;  // f32 [rows, ...]
    Buffer expert_ids;                     // int32 [rows, experts_per_row]
    Buffer wanted;                         // f32 [logit_rows, hidden]
    Buffer largest;                        // int32 [logit_rows]
    Buffer states;                         // f32 [rows, state_size()]; unused by a draft head
    // For a draft head: the states that it reads, and the concatenated input of its first product.
    Buffer read_states;                             // f32 [rows, ...]
    Buffer joined;                                  // f32 [rows, 2 * hidden]
    Buffer tables;                                  // int32, laid out by PassTables
    std::array<Buffer, kNumLayerRotations> angles;  // f32 [rows, head_dim], of rotations in use
  };
  // Records copies of pages since the last pass.
  struct PageCopies final : PagedKvCache::Observer {
    void OnPublish(PageId, PageId, absl::Span<const TokenId>, const CacheSalt&) override {}
    void OnCopy(PageId from, PageId to) override { copies.push_back({from, to}); }
    std::vector<PageCopy> copies;
  };

  Transformer(Backend* backend, const ModelConfig& config, const LoadOptions& options,
              std::unique_ptr<TransformerWeights> weights);
  // Allocates the backend's memory, or the group's for a shared buffer.
  absl::Status Grow(Buffer* buffer, size_t bytes,
                    std::optional<SharedBuffer> shared = std::nullopt);
  absl::Status Reserve(int rows, int logit_rows, size_t table_bytes);
  absl::Status Run(absl::Span<const ForwardRequest> requests, int rows, int logit_rows);
  PassTables EmptyTables(const PassSize& size, const PagedKvCache* cache);
  absl::Status RunOnAllRanks(const PassTables& at, const PagedKvCache* cache, bool has_drawn,
                             bool finds_argmax);
  absl::Status RunPass(const PassTables& at, const PagedKvCache* cache, bool has_drawn,
                       bool finds_argmax);
  std::vector<int32_t> PlanRows(const PassTables& at, const PagedKvCache* cache) const;
  absl::Status EndGroupIfFailed(absl::Status status);
  void Enqueue(const PassTables& at, const PagedKvCache* cache);
  MatrixView CopyLogitsToHost(absl::Span<const ForwardRequest> requests, ConstMatrixView logits);
  void KeepState(int layer, int rows, const int32_t* all_rows);
  absl::Status ReserveReadStates(int rows);
  absl::Status TakeStates(absl::Span<const ForwardRequest> requests, int rows);
  void EnterHead(const int32_t* ids, int rows, const int32_t* all_rows);
  void RunLayer(int index, const RaggedRows& rows, const PagedKvView& kv);
  NormedRows Normed(const Buffer& norm, ConstMatrixView x, MatrixView normed);
  void Attention(int index, const NormedRows& input, const RaggedRows& rows, const PagedKvView& kv);
  NextProduct NextOfResidual(int layer, bool in_feed_forward = false) const;
  NextProduct OnlyProduct(const PackedWeight& weight) const;
  void AddOutput(ConstMatrixView x, const PackedWeight& weight, const Buffer& norm,
                 const NextProduct& next);
  void AddOutput(MatrixView output, const Buffer& norm);
  void NormAllHeads(const Layer& layer, int rows, MatrixView qkv);
  void MixExperts(ConstMatrixView x, const ExpertChoices& choices, const Layer& layer,
                  MatrixView output);
  void FeedForward(int index, const NormedRows& input);
  void RunExperts(int index, const NormedRows& input);
  MatrixView View(const Buffer& buffer, int rows, int cols) const;
  RankParts PartsOf(int rank) const;
  // Exchanges columns of `whole`, so that every rank has all of them.
  //   columns: in units of `unit`
  void Gather(MatrixView whole, RankShare RankParts::*columns, int unit = 1);

  Backend* backend_;
  Sampler* sampler_;  // the backend's, or null
  ModelConfig config_;
  RankGroup* group_;  // or null
  int first_slot_;
  int first_layer_;
  std::unique_ptr<TransformerWeights> weights_;
  RankParts parts_;  // of this rank; everything without a group
  PageCopies page_copies_;
  std::string weights_form_;
  Workspace workspace_;
  std::unique_ptr<GraphCache> graph_cache_;
  std::vector<int32_t> host_tables_;
  PassTables last_pass_{0, 0, 0, 0};
  const PagedKvCache* last_cache_ = nullptr;
  std::vector<int> kept_layers_;   // the layers of KeepStates
  bool reads_own_states_ = false;  // in the current pass
  MatrixView states_;              // of the last pass
  MatrixView logits_;              // of the last pass
  HostLogits host_logits_;         // unused if the backend's memory is the host's
};

}  // namespace tandem

#endif  // TANDEM_MODEL_TRANSFORMER_H_
