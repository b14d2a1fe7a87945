#ifndef TANDEM_MODEL_LANGUAGE_MODEL_H_
#define TANDEM_MODEL_LANGUAGE_MODEL_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "tandem/types.h"

namespace tandem {

// Selects the logits that are copied to the host. A model with rows in the host's memory may ignore
// it.
enum class LogitsToHost {
  kWhole,
  // Only the ArgMax (model/sampling.h) is needed, for greedy decoding. The model may return any row
  // with the same ArgMax.
  kOnlyArgMax,
  kNothing,  // rows are read on the device: LanguageModel::device_rows
};

// Rows of logits on the device that computed them, which its sampler can use.
struct DeviceRows {
  Backend* backend = nullptr;
  Sampler* sampler = nullptr;  // null if rows are not on a device
  MatrixView logits;           // of the last pass, valid until the next; writable
};

// Tokens to append to one sequence in a forward pass.
struct ForwardRequest {
  absl::Span<const TokenId> tokens;  // appended at kv->length(); not empty
  KvSequence* kv = nullptr;
  int num_logits = 1;  // rows requested, for the last `num_logits` tokens; 0 while prefilling
  LogitsToHost to_host = LogitsToHost::kWhole;  // half a megabyte for a row of 128 Ki tokens
  // If not negative: the token is the one that the device's sampler drew in this slot since its
  // last Prepare, in place of the single id in `tokens`. The host need not know it. An invalid id
  // reads an unspecified embedding.
  int drawn_by = -1;
  // For a draft head (LanguageModel::read_state_size): one state per token, in contiguous rows of
  // the backend's memory, which the pass copies. The token at position p reads the target's state
  // at p - 1, or this model's own if the pass `reads_own_states`.
  ConstMatrixView states{};
  bool reads_own_states = false;  // the same for all requests of a pass
};

// A model that reads tokens and returns logits for the next ones: a Transformer, or a fake in
// tests.
// Thread-compatible.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;
  // The number of tokens that it can read: ids below this.
  virtual int vocab_size() const = 0;
  // The length of a row of logits; less than vocab_size() if the head is cut.
  virtual int head_tokens() const { return vocab_size(); }
  // The ids of a row's entries, ascending, [head_tokens()]; empty if they are the first ids.
  virtual absl::Span<const TokenId> head_ids() const { return {}; }
  // The longest sequence this model can read, in tokens.
  virtual int context_length() const = 0;

  // Returns the KvSequence::variant for a sequence of up to `greatest_length` tokens, for models
  // whose cached keys and values depend on that length.
  virtual int cache_variant(int /*greatest_length*/) const { return 0; }

  // The number of weights that later passes still have to load or pack at first use, which makes
  // those passes slower.
  virtual int num_unpacked() const { return 0; }

  // Runs all requests in one batched pass and appends to each kv. Returns the requested logits, f32
  // in host memory, [sum of num_logits, head_tokens()], in request order; valid until the next
  // call. Row independence: the bits of a row do not depend on the other rows of the pass. On error
  // no kv has changed. If logits are requested and none are copied to the host, the device may
  // still be computing at return. The next wait for it then reports its errors.
  virtual absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) = 0;

  virtual DeviceRows device_rows() { return {}; }

  // The number of floats that each row of a pass leaves for a draft head; 0 without states.
  virtual int state_size() const { return 0; }
  // The states of the last pass, [rows, state_size()], contiguous, in request order and in the
  // backend's memory; valid until the next pass.
  virtual ConstMatrixView states() const { return {}; }
  // The number of floats of the target's state that a draft head reads per token; 0 for other
  // models.
  virtual int read_state_size() const { return 0; }
};

}  // namespace tandem

#endif  // TANDEM_MODEL_LANGUAGE_MODEL_H_
