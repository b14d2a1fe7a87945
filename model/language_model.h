#ifndef TANDEM_MODEL_LANGUAGE_MODEL_H_
#define TANDEM_MODEL_LANGUAGE_MODEL_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "tandem/types.h"

namespace tandem {

// Which logits are copied to the host. A model whose rows are in the host's memory may ignore
// it.
enum class LogitsToHost {
  kWhole,
  // Nothing is wanted but their ArgMax (model/sampling.h): greedy decoding. Others with the same
  // one may come.
  kOnlyArgMax,
  kNothing,  // they are read where they are: LanguageModel::device_rows
};

// Rows of logits where a device computed them, which they can be sampled from.
struct DeviceRows {
  Backend* backend = nullptr;
  Sampler* sampler = nullptr;  // null where there are none
  MatrixView logits;           // of the last pass, valid until the next, and to be written to
};

// Tokens to append to one sequence in a forward pass.
struct ForwardRequest {
  absl::Span<const TokenId> tokens;  // appended at kv->length(); not empty
  KvSequence* kv = nullptr;
  int num_logits = 1;  // rows wanted, for the last `num_logits` tokens; 0 while prefilling
  LogitsToHost to_host = LogitsToHost::kWhole;  // half a megabyte for a row of 128 Ki tokens
  // The slot whose draw is the only token, in place of what `tokens` says: what the device's
  // sampler drew since its last Prepare, and the host need not know. Negative for none. An
  // invalid id reads an unspecified embedding.
  int drawn_by = -1;
  // For a draft head (LanguageModel::read_state_size): a state for each token, rows next to each
  // other in the backend's memory, which the pass copies. The token at position p reads the state
  // that the target left at p - 1, or, where the pass `reads_own_states`, that of this model.
  ConstMatrixView states{};
  bool reads_own_states = false;  // the same for all requests of a pass
};

// Something that reads tokens and says what comes next: a Transformer, or a fake in tests.
// Thread-compatible.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;
  // Tokens that it reads: ids below this.
  virtual int vocab_size() const = 0;
  // Tokens that its rows of logits are over, fewer where the head was cut.
  virtual int head_tokens() const { return vocab_size(); }
  // Which these are, ascending, [head_tokens()]; empty where they are the first ids.
  virtual absl::Span<const TokenId> head_ids() const { return {}; }
  // The longest sequence this model can read, in tokens.
  virtual int context_length() const = 0;

  // What the cache of a sequence that may reach `greatest_length` tokens holds of a text, where
  // that depends on it: KvSequence::variant of what this model reads.
  virtual int cache_variant(int /*greatest_length*/) const { return 0; }

  // Weights that the first passes to read them have yet to bring into place, and take longer for
  // it.
  virtual int num_unpacked() const { return 0; }

  // Runs every request in one batched pass, appending to each kv. Returns the requested logits, f32
  // in host memory, [sum of num_logits, head_tokens()], in request order; valid until the next
  // call. Row independence: a row's bits do not depend on the other rows of the pass. On error no
  // kv has changed. Where rows are wanted and nothing of them comes to the host, a device may still
  // compute when this returns, and its failure shows when it is waited for next.
  virtual absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) = 0;

  virtual DeviceRows device_rows() { return {}; }

  // The floats that each row of a pass leaves for a draft head; 0 for none.
  virtual int state_size() const { return 0; }
  // [rows of the last pass, state_size()], in request order and next to each other, the backend's;
  // valid until the next pass.
  virtual ConstMatrixView states() const { return {}; }
  // The floats that a draft head reads of its target for each token; 0 for other models.
  virtual int read_state_size() const { return 0; }
};

}  // namespace tandem

#endif  // TANDEM_MODEL_LANGUAGE_MODEL_H_
