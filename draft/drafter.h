#ifndef TANDEM_DRAFT_DRAFTER_H_
#define TANDEM_DRAFT_DRAFTER_H_

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/philox.h"
#include "draft/policy/confidence_curve.h"
#include "draft/policy/draft_temperature.h"
#include "draft/proposal.h"
#include "kvcache/kv_sequence.h"
#include "tandem/draft_source.h"
#include "tandem/drafter_kind.h"
#include "tandem/sampling_params.h"
#include "tandem/types.h"

namespace tandem {

struct Tenant;

// A drafter's state for one sequence, kept between rounds: a draft model's KvSequence, an n-gram
// index, or nothing.
class DraftState {
 public:
  virtual ~DraftState() = default;
};

// The noise that a sampled drafter draws with.
enum class DraftNoise {
  kOwn,      // its own stream, as rejection sampling requires
  kTargets,  // the noise that the target will use, so that exact matching often matches
};

// One way to continue a sequence. Depends on its committed tokens alone.
struct DraftOption {
  DraftSource source = DraftSource::kModel;
  // The evidence class, in [0, kNumEvidence). Acceptance is learned separately for each class.
  int evidence = 0;
  int max_tokens = 0;     // maximum number of tokens to propose
  int num_unread = 0;     // committed tokens that the drafter must read first
  bool can_stop = false;  // whether it may end before all granted tokens (DraftRequest::stop)
  // Whether the draft model computes all of a draft's rows in one pass rather than one per step.
  bool in_one_pass = false;
};
inline constexpr int kNumEvidence = 8;

struct DraftRequest {
  // All committed tokens, prompt included. While a prompt is read in chunks: the part read so far.
  absl::Span<const TokenId> context;
  int num_committed = 0;  // number of all committed tokens, if `context` is a part of the prompt
  int num_skipped = 0;    // committed tokens that a window left out of `context`
  // The maximum number of tokens to propose. With 0 the drafter may read `context`, but proposes
  // nothing.
  int granted = 0;
  DraftSource source = DraftSource::kModel;  // of the chosen option
  const SamplingParams* sampling = nullptr;
  // The history of `context`, unchanged on return. Null if `sampling` does not need it.
  TokenHistory* history = nullptr;
  RandomSource random{0};
  DraftNoise noise = DraftNoise::kOwn;
  DraftStop stop = {};
  // How sharply to draw; null: at the temperature of `sampling`.
  const DraftTemperature* draft_temperature = nullptr;
  DraftState* state = nullptr;  // from this drafter's NewState()
  // The target's KV sequence, for a drafter that shares its pages.
  const KvSequence* target_kv = nullptr;
};

// Proposes continuations of sequences. A bad draft costs only speed, never correctness: after
// verification the output is the target's, whatever was proposed.
//
// To add a drafter, implement this and add a line to draft/make_drafter.cc. Thread-compatible.
class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const = 0;
  // Whether its tokens are drawn. If not, each is proposed with certainty.
  virtual bool is_drawn() const { return true; }
  // The mask token with which its model drafts in one pass (DraftOption::in_one_pass), or
  // kNoMaskToken.
  virtual TokenId mask_token() const { return kNoMaskToken; }
  // Makes the state of a sequence that begins with `prompt`; a prefix of it may already be cached.
  // A combined drafter uses only the drafters that `kind` names. The sequence may use data of
  // earlier sequences of `tenant` (null: no tenant), and shares nothing with other tenants.
  // REQUIRES: a combined drafter contains `kind`.
  virtual std::unique_ptr<DraftState> NewStateOf(DrafterKind kind, absl::Span<const TokenId> prompt,
                                                 std::shared_ptr<const Tenant> tenant) = 0;
  // The same with every drafter that it combines, and without a tenant.
  std::unique_ptr<DraftState> NewState(absl::Span<const TokenId> prompt) {
    return NewStateOf(DrafterKind::kModelAndNgram, prompt, nullptr);
  }

  // Returns the options for continuing the sequence of `state` after `context`, its committed
  // tokens. Empty if there is nothing to propose.
  virtual std::vector<DraftOption> Options(DraftState* state,
                                           absl::Span<const TokenId> context) = 0;

  // Fills proposals[i] (cleared by the caller) with at most requests[i].granted tokens. An empty
  // proposal is valid. The length may depend on the context, on rows and on load, but never on a
  // token drawn in this round at or after the position where the draft ends (docs/verification.md).
  // On error the caller must discard every proposal; decoding continues without drafts.
  virtual absl::Status Propose(absl::Span<const DraftRequest> requests,
                               absl::Span<Proposal* const> proposals) = 0;

  // Forgets everything that `state` holds from position `length` on: the round kept only the tokens
  // before it. Cannot fail.
  virtual void Rollback(DraftState* state, int length) = 0;

  // Returns how many tokens, in the draft model's own vocabulary, its cache holds for `state`. 0
  // without a model.
  virtual int NumCached(const DraftState& /*state*/) const { return 0; }

  // The sum of LanguageModel::num_unpacked over its models.
  virtual int num_unpacked() const { return 0; }

  // ---- For a drafter whose cache is a layer of the target's pages (HeadDrafter) ----
  // Whether it is such a drafter. Then every sequence has a state, even one that does not draft, so
  // that every published page holds the layer.
  virtual bool shares_target_cache() const { return false; }
  // The rows of one sequence in the target's latest pass, whose states are in states().
  struct TargetRows {
    DraftState* state = nullptr;
    absl::Span<const TokenId> tokens{};  // committed tokens, including those kept in this pass
    const KvSequence* kv = nullptr;      // the target's, rolled back to the kept tokens
    int first_position = 0;              // position of the sequence's first row in the pass
    int first_row = 0;                   // index of that row in states()
  };
  // Reads the states of the kept tokens, and fills in the layer of pages that have become full.
  // Called after each round, before pages are published. An error costs only drafts: a state that
  // missed rows proposes nothing until it is evicted, and HoldsFullPages returns false for it.
  virtual absl::Status ReadStates(absl::Span<const TargetRows> /*rows*/) {
    return absl::OkStatus();
  }
  // Whether all full pages of `kv` (the target's) hold the layer. If not, they must not be
  // published.
  virtual bool HoldsFullPages(const DraftState& /*state*/, const KvSequence& /*kv*/) const {
    return true;
  }

  // Publishes the cache of `state` for `tokens`, all of them committed, to later sequences.
  virtual void Publish(DraftState* /*state*/, absl::Span<const TokenId> /*tokens*/) {}
  // Adopts a published prefix of `tokens` if it is longer than the one that `state` holds. Call
  // after the target's KV sequence, `target_kv`, has adopted its own.
  virtual void AdoptLongerPrefix(DraftState* /*state*/, absl::Span<const TokenId> /*tokens*/,
                                 const KvSequence& /*target_kv*/) {}
  // A text in the tokens of the draft model, as the keys of its cache. Valid until the state
  // changes.
  struct CachedText {
    absl::Span<const TokenId> tokens;
    int variant = 0;  // KvSequence::variant
    CacheSalt salt;   // KvSequence::salt
  };
  // Converts `tokens` for the draft model's cache. Nullopt without a model.
  virtual std::optional<CachedText> TextOf(DraftState* /*state*/,
                                           absl::Span<const TokenId> /*tokens*/) {
    return std::nullopt;
  }
  // Gives back the pages of `state`. The next draft computes them again.
  virtual void Evict(DraftState* state) { Rollback(state, 0); }
  // Checks that the pages of all states add up. INTERNAL with the name of the page otherwise.
  virtual absl::Status CheckIntegrity() const { return absl::OkStatus(); }
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_DRAFTER_H_
