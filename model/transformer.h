#ifndef TANDEM_MODEL_TRANSFORMER_H_
#define TANDEM_MODEL_TRANSFORMER_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/model_config.h"
#include "checkpoint/weights.h"
#include "kernels/backend.h"
#include "kvcache/kv_layout.h"
#include "model/host_logits.h"
#include "model/language_model.h"
#include "model/packed_file.h"
#include "model/pass_message.h"
#include "ranks/rank_group.h"

namespace tandem {

// A decoder-only transformer on a backend, of the parts that ModelConfig names.
class Transformer final : public LanguageModel {
 public:
  enum class Quantize { kFloats, kAll };
  struct LoadOptions {
    // To what the weight matrices of floats are quantised (kernels/quantize.h), embedding and head
    // to Q8_0, because their errors reach the logits directly. Matrices that are in blocks are an
    // error then, unless kAll: those in larger ones are quantised again, but for embedding and
    // head.
    std::optional<DType> quantized{};
    Quantize which = Quantize::kFloats;
    // Whether a quantised checkpoint's matrices become floats, because products with blocks round
    // activations. They do anyway where they are to be quantised to something else.
    bool has_exact_activations = false;
    // Where packed weights are cached (packed_file.h) if the backend's memory is the host's; empty
    // for nowhere. Models whose files are smaller than this are packed by their first pass instead.
    std::string packed_folder{};
    int64_t min_packed_bytes = int64_t{64} << 20;
    std::vector<std::string> allowed_config_keys{};  // ReadModelConfig's
    // The rows of the head that are kept, the first ones; 0 for all. A draft's: what it does not
    // propose is not computed. More than there are is an error.
    int head_tokens = 0;
    // A vocabulary of at least this many tokens gets no head at load: SetHead makes it before the
    // first pass, and head_tokens() is 0 until then. It is not a part of the packed weights. 0 for
    // a head at load in any case. REQUIRES: 0 unless the backend's memory is the host's.
    int sets_head_from = 0;
    // Limits the model's context; 0 does not. More than the model has is an error that names
    // `context`.
    int context = 0;
    // The ranks that compute this model together, or null. Each loads its own part, computes its
    // own outputs of every product, and takes the others' from the group's memory, of which this
    // model has kNumSlots from `first_slot` on. Must outlive the model. REQUIRES: the same options,
    // but for those of the machine, on every rank.
    RankGroup* group = nullptr;
    int first_slot = 0;
    // A draft head (ModelConfig::state_input), and no other model, has a target: it reads its
    // states, and its embedding and head unless it has its own. On the same backend; must outlive
    // the model. REQUIRES: no group.
    const Transformer* target = nullptr;
    // The layer of the cache that is the model's first: of a draft head, whose layer lies in the
    // target's pages, the target's number of layers.
    int first_layer = 0;
    // Called while packed weights are written to their cache, with how many of the model's
    // parameters have been: at least once, last with all.
    std::function<void(int64_t packed, int64_t total)> on_packing{};

    // Whether the head is left out.
    bool SetsHead(const ModelConfig& config) const;
    // How the weights of a checkpoint are changed by loading it, in words.
    std::string FormOf(const Weights& weights) const;
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
  // A model whose weights need not be files, as `config` describes them. Errors begin with `name`.
  static absl::StatusOr<std::unique_ptr<Transformer>> Load(const std::string& name,
                                                           const ModelConfig& config,
                                                           std::shared_ptr<const Weights> weights,
                                                           Backend* backend);

  const ModelConfig& config() const { return config_; }
  int vocab_size() const override { return config_.vocab_size; }
  int head_tokens() const override { return num_head_tokens_; }
  absl::Span<const TokenId> head_ids() const override { return head_ids_; }
  // Makes the head of these rows of the whole one, with the same bits; of all rows if there are no
  // ids. Not between a pass and the last use of its logits. The head is as it was on an error:
  // RESOURCE_EXHAUSTED if memory is short.
  // REQUIRES: LoadOptions::sets_head_from has left it out; ids ascend, below vocab_size().
  absl::Status SetHead(std::vector<TokenId> ids);
  // Bytes of one of its rows as it is packed.
  int64_t head_row_bytes() const { return head_row_bytes_; }
  int context_length() const override { return config_.context_length; }
  int cache_variant(int greatest_length) const override {
    return config_.rope.type == RopeConfig::Type::kLongRope &&
           greatest_length > config_.rope.original_context;
  }
  int num_unpacked() const override { return static_cast<int>(unpacked_.size()) + is_unread_; }
  // Its heads are this rank's, of which there may be none.
  KvLayout kv_layout(int page_size, KvDType dtype = KvDType::kF32) const;
  // Bytes of weights that a pass over one row reads, without the embedding's row.
  size_t bytes_read_per_pass() const;
  // Memory that the first pass will take for packed weights.
  size_t bytes_to_pack() const;
  // The backend's memory that loading took for weights that it packed.
  size_t bytes_packed_at_load() const { return bytes_packed_at_load_; }
  int64_t num_parameters() const { return num_parameters_; }
  // The files that hold the weights, and how these were changed at load, as options said.
  std::vector<std::string> weight_files() const { return weights_->files(); }
  const std::string& weights_form() const { return weights_form_; }
  // The dtype of the weight matrices; of the first layer's, should they differ.
  DType dtype() const { return layers_.front().qkv.front().dtype; }

  // All sequences of one pass belong to one PagedKvCache on this model's backend, of kv_layout().
  absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) override;
  DeviceRows device_rows() override { return {backend_, sampler_, logits_}; }
  // Enqueues the last pass once more, over the same positions and pages. Nothing is uploaded,
  // allocated or waited for, so that a device can record it.
  // REQUIRES: a pass, whose cache is still there and holds nothing else in those pages; no group.
  void RepeatPass();

  // From here on each row of a pass leaves the inputs of these layers, one after the other. The
  // number of layers stands for the last state after the final norm.
  // REQUIRES: layers in [0, num_layers]; no group; not a draft head, whose rows leave what they are
  // before the final norm.
  void LeaveStates(std::vector<int> layers);
  int state_size() const override {
    return is_draft_head() ? config_.hidden_size
                           : static_cast<int>(left_layers_.size()) * config_.hidden_size;
  }
  ConstMatrixView states() const override { return states_; }
  bool is_draft_head() const { return config_.state_input != StateInput::kNone; }
  int read_state_size() const override { return config_.read_state_size(); }

  // Slots of a group's memory that a model may use.
  static constexpr int kNumSlots = 8;
  // Rank 0 of a group: from here on passes are over this cache, whose copies of pages the other
  // ranks make, too.
  void Lead(PagedKvCache* cache) { cache->AddObserver(&page_copies_); }
  // Another rank of the group: its part of a pass that rank 0 announced, over this rank's cache;
  // null where it has no heads. The error is the group's.
  absl::Status Follow(const PassMessage& pass, PagedKvCache* cache);

 private:
  struct Layer {
    Buffer attention_norm;  // f32 [hidden], or nothing
    // [(heads + 2 kv_heads) * head_dim, hidden], outputs that follow each other and have one dtype
    // as a weight of their own.
    std::vector<PackedWeight> qkv;
    Buffer query_norm;             // f32 [head_dim], [heads * head_dim], or nothing
    Buffer key_norm;               // the same for keys
    PackedWeight attention_out;    // [hidden, heads * head_dim]
    Buffer attention_output_norm;  // f32 [hidden], or nothing
    Buffer mlp_norm;               // f32 [hidden], or nothing
    PackedWeight gate_up;          // [2 * intermediate, hidden], or nothing
    PackedWeight down;             // [hidden, intermediate], or nothing
    PackedWeight router;           // [experts, hidden], in place of these two
    ExpertWeights experts;
    Buffer mlp_output_norm;  // f32 [hidden], or nothing
  };
  // The parts of a draft head before its layer.
  struct StateParts {
    Buffer states_norm;     // f32 [read_state_size()], of the target's states, or nothing
    Buffer state_norm;      // f32 [hidden]
    Buffer embedding_norm;  // f32 [hidden], or nothing: the layer's attention_norm
    PackedWeight fc;        // [hidden, fc_inputs()]
  };
  // The angles that heads are rotated by in the layers of one LayerRotation; nothing if there are
  // none.
  struct Rotation {
    Buffer inverse_frequencies;  // f32 [KvSequence::variant, head_dim / 2]
    Buffer magnitudes;           // f32 [head_dim / 2]
    Buffer angles;               // of the pass: f32 [rows, head_dim]
    bool is_used() const { return magnitudes.size_bytes() > 0; }
  };
  // Activations and the pass's tables; they only ever grow.
  struct Workspace {
    int rows = 0;
    int logit_rows = 0;
    // ---- In the memory of the group, if there is one: every rank writes its own columns ----
    Buffer hidden, attended, mlp, output;  // f32 [rows, ...]
    Buffer queries_and_keys;               // f32 [rows, ...]: of all heads, if all are normalised
    Buffer expert_outputs;                 // f32 [rows * experts_per_row, hidden], in a group
    Buffer logits;                         // f32 [logit_rows, head_tokens()]
    // ---- In the backend's ----
    Buffer normed, normed_output, qkv;     // f32 [rows, ...]
    Buffer normed_heads;                   // of queries_and_keys
    Buffer router_logits, expert_weights;  // f32 [rows, ...]
    Buffer expert_ids;                     // int32 [rows, experts_per_row]
    Buffer wanted;                         // f32 [logit_rows, hidden]
    Buffer largest;                        // int32 [logit_rows]
    Buffer states;                         // f32 [rows, state_size()], unless a draft head's
    // A draft head's: the states that it reads, and the two halves of a product's rows.
    Buffer read_states;  // f32 [rows, ...]
    Buffer joined;       // f32 [rows, 2 * hidden]
    Buffer tables;       // int32: see PassTables
  };
  // A rank's share of each kind of output.
  struct Parts {
    RankShare kv_heads, heads;
    RankShare hidden, mlp, head_rows;  // outputs of products
    RankShare experts;
  };
  struct Unpacked {
    const PackedWeight* weight;
    std::vector<std::string> tensors;  // that it is made of
  };
  // The files that a model is loaded from.
  struct Files {
    std::string path;
    ModelConfig config;
    std::shared_ptr<const Weights> weights;
  };
  // Copies of pages since the last pass.
  struct PageCopies final : PagedKvCache::Observer {
    void OnPublish(PageId, PageId, absl::Span<const TokenId>, const CacheSalt&) override {}
    void OnCopy(PageId from, PageId to) override { copies.push_back({from, to}); }
    std::vector<PassMessage::PageCopy> copies;
  };
  friend class TransformerLoader;

  Transformer(Backend* backend, const Files& files, const LoadOptions& options);
  static absl::StatusOr<std::unique_ptr<Transformer>> LoadFrom(const Files& files, Backend* backend,
                                                               const LoadOptions& options,
                                                               PackedFile* packed);
  static absl::StatusOr<std::unique_ptr<Transformer>> LoadPacked(const Files& files,
                                                                 Backend* backend,
                                                                 const LoadOptions& options);
  void ForgetPacked();
  static constexpr int kOwnMemory = -1;  // in place of a slot of the group's
  absl::Status Grow(Buffer* buffer, size_t bytes, int slot = kOwnMemory);
  absl::Status Reserve(int rows, int logit_rows, size_t table_bytes);
  absl::Status Run(absl::Span<const ForwardRequest> requests, int rows, int logit_rows);
  absl::Status RunPass(const PassTables& at, const PagedKvCache* cache, bool has_drawn,
                       bool finds_largest);
  absl::Status EndGroupIfFailed(absl::Status status);
  void Enqueue(const PassTables& at, const PagedKvCache* cache, bool finds_largest);
  MatrixView BringLogits(absl::Span<const ForwardRequest> requests, ConstMatrixView logits);
  void LeaveState(int layer, int rows, const int32_t* all_rows);
  absl::Status TakeStates(absl::Span<const ForwardRequest> requests, int rows);
  void EnterHead(const int32_t* ids, int rows, const int32_t* all_rows);
  // The matrix of the whole head as the host may read it, until ForgetHeadMatrix.
  absl::StatusOr<ConstMatrixView> HeadMatrix() const;
  void ForgetHeadMatrix() const;
  void RunLayer(int index, const RaggedRows& rows, const PagedKvView& kv);
  NormedRows Normed(const Buffer& norm, ConstMatrixView x, MatrixView normed);
  void Attention(int index, const NormedRows& input, const RaggedRows& rows, const PagedKvView& kv);
  void AddOutput(ConstMatrixView x, const PackedWeight& weight, const Buffer& norm);
  void AddOutput(MatrixView output, const Buffer& norm);
  void NormAllHeads(const Layer& layer, int rows, MatrixView qkv);
  void MixExperts(ConstMatrixView x, const ExpertChoices& choices, const Layer& layer,
                  MatrixView output);
  void FeedForward(int index, const NormedRows& input);
  void RunExperts(int index, const NormedRows& input);
  MatrixView View(const Buffer& buffer, int rows, int cols) const;
  Parts PartsOf(int rank) const;
  // Brings every rank's columns of `whole` to all.
  //   columns: in units of `unit`
  void Gather(MatrixView whole, RankShare Parts::*columns, int unit = 1);

  Backend* backend_;
  Sampler* sampler_;  // the backend's, or null
  ModelConfig config_;
  RankGroup* group_;  // or null
  int first_slot_;
  int num_head_tokens_ = 0;
  const Transformer* target_;  // of a draft head, or null
  int first_layer_;
  Parts parts_;  // of this rank: everything without a group
  PageCopies page_copies_;
  std::string weights_form_;
  std::shared_ptr<const Weights> weights_;  // the mapped files; the embedding is read in place
  PackedFile packed_;                       // mapped, too, if weights are read from it
  bool is_unread_ = false;                  // and no pass has read it yet
  int64_t num_parameters_ = 0;
  size_t bytes_packed_at_load_ = 0;
  std::vector<std::byte> quantized_embedding_;  // where the files' is not what is wanted
  Buffer embedding_storage_;
  ConstMatrixView embedding_;       // [vocab, hidden]
  ConstMatrixView host_embedding_;  // the same, in the host's memory
  std::array<Rotation, kNumLayerRotations> rotations_;
  std::vector<Layer> layers_;
  StateParts state_parts_;
  Buffer final_norm_;  // f32 [hidden]
  PackedWeight head_;  // [this rank's of head_tokens(), hidden]
  std::vector<TokenId> head_ids_;
  std::optional<DType> head_format_;  // that SetHead quantises to
  int64_t head_row_bytes_ = 0;
  std::deque<Unpacked> unpacked_;  // in the order in which a pass reads them
  Workspace workspace_;
  std::unique_ptr<GraphCache> graph_cache_;
  std::vector<int32_t> host_tables_;
  PassTables last_pass_{0, 0, 0, 0};
  const PagedKvCache* last_cache_ = nullptr;
  std::vector<int> left_layers_;   // whose inputs are left
  bool reads_own_states_ = false;  // in this pass
  MatrixView states_;              // of the last pass
  MatrixView logits_;              // of the last pass
  HostLogits host_logits_;         // unused where the backend's memory is the host's
};

}  // namespace tandem

#endif  // TANDEM_MODEL_TRANSFORMER_H_
