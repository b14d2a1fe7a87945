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
#include "tandem/drafter_kind.h"
#include "tandem/sampling_params.h"

namespace tandem {

struct Tenant;

// What a drafter remembers about one session between rounds: a draft model's KvSequence, an n-gram
// index, or nothing.
class DraftState {
 public:
  virtual ~DraftState() = default;
};

// Whose noise a sampled drafter draws with.
enum class DraftNoise {
  kOwn,      // its own stream: what rejection sampling needs
  kTargets,  // the noise the target will choose with: what exact matching needs to match often
};

// Where a draft comes from: what one more of its tokens costs.
enum class DraftSource {
  kModel,   // a pass of a draft model
  kLookup,  // the sequence's own text: next to nothing
  // Known before any drafter is asked, for nothing:
  kForced,     // what the sequence's constraint leaves no choice but
  kPredicted,  // what its request predicted
  // Next to nothing, too:
  kMemory,      // how earlier texts went on
  kSuccessors,  // what mostly follows the last one or two tokens
};
inline constexpr int kNumDraftSources = 6;

// One way to continue a sequence, known from its committed tokens alone.
struct DraftOption {
  DraftSource source = DraftSource::kModel;
  // What speaks for it, in [0, kNumEvidence): acceptance is learnt for each apart.
  int evidence = 0;
  int max_tokens = 0;     // that it could propose
  int num_unread = 0;     // committed tokens to be read first
  bool can_stop = false;  // before all that is granted (DraftRequest::stop)
};
inline constexpr int kNumEvidence = 8;

struct DraftRequest {
  // Every committed token, prompt included. While a prompt is read in chunks: its part so far.
  absl::Span<const TokenId> context;
  int num_committed = 0;  // all of them, if `context` is a part of the prompt
  int num_skipped = 0;    // committed tokens that a window left out of `context`
  // The most tokens to propose; with 0 the drafter may read along and proposes nothing.
  int granted = 0;
  DraftSource source = DraftSource::kModel;  // of the option chosen
  const SamplingParams* sampling = nullptr;
  TokenHistory* history = nullptr;  // of `context`; left as found. Null if `sampling` needs none.
  RandomSource random{0};
  DraftNoise noise = DraftNoise::kOwn;
  DraftStop stop = {};
  const DraftTemperature* draft_temperature =
      nullptr;                  // how sharply to draw; null for as `sampling` says
  DraftState* state = nullptr;  // from this drafter's NewState()
  // The target's cache of the sequence, for a drafter that shares its pages.
  const KvSequence* target_kv = nullptr;
};

// Suggests how sequences go on. A bad draft costs only speed, never correctness: verification makes
// the output the target's, whatever is proposed.
//
// To add a drafter, implement this and add a line to draft/make_drafter.cc. Thread-compatible.
class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const = 0;
  // Whether its tokens are drawn at all; else each is proposed with certainty.
  virtual bool is_drawn() const { return true; }
  // For a sequence that begins with `prompt`, of which part may be known from earlier sequences.
  // Only `kind` is to draft for it, where this is several drafters. It may know what `tenant`, or
  // null, has left of other sequences, and shares nothing with those of other tenants.
  // REQUIRES: `kind` is part of this, where this is several drafters.
  virtual std::unique_ptr<DraftState> NewStateOf(DrafterKind kind, absl::Span<const TokenId> prompt,
                                                 std::shared_ptr<const Tenant> tenant) = 0;
  // The same with all that this is, for no tenant.
  std::unique_ptr<DraftState> NewState(absl::Span<const TokenId> prompt) {
    return NewStateOf(DrafterKind::kModelAndNgram, prompt, nullptr);
  }

  // The ways in which the sequence of `state` could be continued after `context`, its committed
  // tokens; none if there is nothing to propose.
  virtual std::vector<DraftOption> Options(DraftState* state,
                                           absl::Span<const TokenId> context) = 0;

  // Fills proposals[i] (cleared by the caller) with at most requests[i].granted tokens; none is
  // a valid proposal. How many may depend on the context, on rows and on load, never on a token
  // drawn this round at or after the place it stops before (docs/verification.md). On error every
  // proposal is to be thrown away; decoding goes on without.
  virtual absl::Status Propose(absl::Span<const DraftRequest> requests,
                               absl::Span<Proposal* const> proposals) = 0;

  // Forgets whatever `state` holds from position `length` on: the round kept the tokens before it.
  // Cannot fail.
  virtual void Rollback(DraftState* state, int length) = 0;

  // Tokens that a draft model's cache holds for `state`, in its own; 0 where there is no model.
  virtual int NumCached(const DraftState& /*state*/) const { return 0; }

  // LanguageModel::num_unpacked of its models.
  virtual int num_unpacked() const { return 0; }

  // ---- Of a drafter whose cache is a layer of the target's pages (HeadDrafter) ----
  // Whether this is one. Then every sequence has a state, also one that does not draft, so that
  // every published page holds the layer.
  virtual bool shares_target_cache() const { return false; }
  // One sequence's rows of a pass of the target, whose states() they are.
  struct TargetRows {
    DraftState* state = nullptr;
    absl::Span<const TokenId> tokens{};  // committed, those of the pass that were kept included
    const KvSequence* kv = nullptr;      // the target's, rolled back to the tokens that were kept
    int first_position = 0;              // of the pass's first row
    int first_row = 0;                   // of the model's states()
  };
  // Takes the states of the tokens that were kept, and fills the layer of pages that have become
  // full. Called after each round, before pages are published. An error costs drafts: a state that
  // has missed something proposes nothing until it is evicted, and HoldsFullPages says so.
  virtual absl::Status ReadStates(absl::Span<const TargetRows> /*rows*/) {
    return absl::OkStatus();
  }
  // Whether all full pages of `kv`, the target's, hold the layer: others are not to be published.
  virtual bool HoldsFullPages(const DraftState& /*state*/, const KvSequence& /*kv*/) const {
    return true;
  }

  // Offers what `state` holds of `tokens`, all committed, to later sequences.
  virtual void Publish(DraftState* /*state*/, absl::Span<const TokenId> /*tokens*/) {}
  // Takes what others have published of `tokens` since, if that is more than `state` holds. The
  // target's cache of the sequence, `target_kv`, has taken what there was for it.
  virtual void AdoptLongerPrefix(DraftState* /*state*/, absl::Span<const TokenId> /*tokens*/,
                                 const KvSequence& /*target_kv*/) {}
  // A text as a draft model's cache holds it, in that model's own tokens. Valid until the state
  // changes.
  struct CachedText {
    absl::Span<const TokenId> tokens;
    int variant = 0;  // KvSequence::variant
    CacheSalt salt;   // KvSequence::salt
  };
  // What `tokens` are there; nothing where there is no model.
  virtual std::optional<CachedText> TextOf(DraftState* /*state*/,
                                           absl::Span<const TokenId> /*tokens*/) {
    return std::nullopt;
  }
  // Gives back what `state` occupies; it will be computed again when it is next asked.
  virtual void Evict(DraftState* state) { Rollback(state, 0); }
  // INTERNAL, naming the page, unless what all states occupy adds up.
  virtual absl::Status CheckIntegrity() const { return absl::OkStatus(); }
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_DRAFTER_H_
