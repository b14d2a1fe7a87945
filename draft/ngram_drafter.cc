#include "draft/ngram_drafter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/split_mix.h"
#include "draft/tenants.h"

namespace tandem {
namespace {

// Hashes the runs that end with text[end - 1], shortest first.
class RunHashes {
 public:
  RunHashes(absl::Span<const TokenId> text, int end) : text_(text), end_(end) {}
  int longest() const { return std::min(end_, NgramIndex::kLongestKey); }
  // Returns the hash of the next run, which is one token longer than the last.
  uint64_t Next() {
    const auto token = static_cast<uint32_t>(text_[end_ - ++length_]);
    return hash_ = SplitMix64(hash_ + token);
  }

 private:
  absl::Span<const TokenId> text_;
  int end_;
  int length_ = 0;
  uint64_t hash_ = 0;
};

// Returns how many tokens before place `a` equal those before place `b` < a.
int CommonLength(absl::Span<const TokenId> text, int a, int b) {
  const int most = std::min(b, NgramIndex::kLongestMatch);
  int length = 0;
  while (length < most && text[a - 1 - length] == text[b - 1 - length]) ++length;
  return length;
}

// The shortest run for which the continuation counts as remembered text (kMemory). Shorter runs
// only reflect the language (kSuccessors).
constexpr int kShortestRemembered = 3;
// The longest draft from memory. Each token costs a lookup, and few tokens beyond this are kept.
constexpr int kMaxRemembered = 8;

struct NgramDraftState final : DraftState {
  NgramIndex index;
  std::shared_ptr<const Tenant> tenant;  // or null

  const TextMemory* memory() const { return tenant == nullptr ? nullptr : tenant->memory.get(); }
  // The longest match in the tenant's texts.
  DraftTextMatch FindInTexts(absl::Span<const TokenId> context) const {
    if (tenant == nullptr || tenant->texts == nullptr) return {};
    return tandem::FindInTexts(*tenant->texts, context);
  }
};

NgramIndex::Match FindMatch(NgramDraftState* state, absl::Span<const TokenId> context) {
  state->index.Extend(context);
  return state->index.Find(context);
}

// The remembered continuation of a text. Each further token is looked up after the ones before it,
// as long as the known runs are long enough for the source of the first token.
class Remembered {
 public:
  Remembered(const TextMemory* memory, absl::Span<const TokenId> context, int most) {
    if (memory == nullptr) return;
    const absl::Span<const TokenId> end =
        context.last(std::min<size_t>(context.size(), TextMemory::kLongestRun));
    std::vector<TokenId> text(end.begin(), end.end());
    first_ = memory->Find(text);
    const int least = first_.run < kShortestRemembered ? 1 : kShortestRemembered;
    TextMemory::Next next = first_;
    while (next.run >= least && num_tokens_ < std::min(most, kMaxRemembered)) {
      tokens_[num_tokens_++] = next.token;
      text.push_back(next.token);
      next = memory->Find(text);
    }
  }

  DraftSource source() const {
    return first_.run < kShortestRemembered ? DraftSource::kSuccessors : DraftSource::kMemory;
  }
  // In [0, kNumEvidence): depends on the length of the run, and on whether the first token is the
  // usual one after it.
  int evidence() const {
    const int by_run = first_.run >= 8 ? 2 : first_.run == 5 || first_.run == 2 ? 1 : 0;
    return 2 * by_run + (first_.is_usual ? 1 : 0);
  }
  absl::Span<const TokenId> tokens() const {
    return absl::MakeConstSpan(tokens_).first(num_tokens_);
  }

 private:
  TextMemory::Next first_;
  std::array<TokenId, kMaxRemembered> tokens_{};
  int num_tokens_ = 0;
};

void ProposeCertain(TokenId token, Proposal* proposal) {
  Distribution* certain = proposal->NextDistribution();
  certain->only = token;
  certain->probs.clear();
  proposal->tokens.push_back(token);
}

}  // namespace

void NgramIndex::Extend(absl::Span<const TokenId> text) {
  for (; length_ < static_cast<int>(text.size()); ++length_) {
    // The token at length_ follows the runs that end before it.
    RunHashes hashes(text, length_);
    for (int n = 1; n <= hashes.longest(); ++n) {
      Places& places = places_[hashes.Next()];
      places.before = places.latest;
      places.latest = length_;
    }
  }
}

void NgramIndex::Clear() {
  places_.clear();
  length_ = 0;
}

NgramIndex::Match NgramIndex::Find(absl::Span<const TokenId> text) const {
  const int end = static_cast<int>(text.size());
  Match best;
  RunHashes hashes(text, end);
  for (int n = 1; n <= hashes.longest(); ++n) {
    const auto it = places_.find(hashes.Next());
    if (it == places_.end()) break;  // if a run is unknown, so are longer ones
    const Places& places = it->second;
    const int length = CommonLength(text, end, places.latest);
    if (length < n) continue;  // a hash collision
    best = {.length = length,
            .next = places.latest,
            .is_repeated = places.before >= 0 && text[places.before] == text[places.latest]};
  }
  return best;
}

std::unique_ptr<DraftState> NgramDrafter::NewStateOf(DrafterKind /*kind*/,
                                                     absl::Span<const TokenId> /*prompt*/,
                                                     std::shared_ptr<const Tenant> tenant) {
  auto state = std::make_unique<NgramDraftState>();
  state->tenant = std::move(tenant);
  return state;
}

int NgramDrafter::EvidenceOf(const NgramIndex::Match& match) {
  const int by_length = match.length >= 6 ? 3 : match.length >= 3 ? 2 : match.length == 2 ? 1 : 0;
  return 2 * by_length + (match.is_repeated ? 1 : 0);
}

int NgramDrafter::TextEvidenceOf(const DraftText::Match& match) {
  const int by_length = match.length >= 16 ? 3 : match.length >= 8 ? 2 : match.length >= 6 ? 1 : 0;
  return 2 * by_length + (match.is_repeated ? 1 : 0);
}

std::vector<DraftOption> NgramDrafter::Options(DraftState* state,
                                               absl::Span<const TokenId> context) {
  auto* own = static_cast<NgramDraftState*>(state);
  std::vector<DraftOption> options;
  const NgramIndex::Match match = FindMatch(own, context);
  if (match.length > 0) {
    options.push_back({.source = DraftSource::kLookup,
                       .evidence = EvidenceOf(match),
                       .max_tokens = kMaxDraftTokens});
  }
  const Remembered remembered(own->memory(), context, kMaxRemembered);
  if (!remembered.tokens().empty()) {
    options.push_back({.source = remembered.source(),
                       .evidence = remembered.evidence(),
                       .max_tokens = static_cast<int>(remembered.tokens().size())});
  }
  if (const DraftTextMatch found = own->FindInTexts(context); found.text != nullptr) {
    const size_t count = found.text->From(found.match.next).size();
    if (count > 0) {
      options.push_back({.source = DraftSource::kText,
                         .evidence = TextEvidenceOf(found.match),
                         .max_tokens = static_cast<int>(std::min<size_t>(count, kMaxDraftTokens))});
    }
  }
  return options;
}

absl::Status NgramDrafter::Propose(absl::Span<const DraftRequest> requests,
                                   absl::Span<Proposal* const> proposals) {
  for (size_t i = 0; i < requests.size(); ++i) {
    // Skip partial prompts: the index may hold more of the prompt than `context` shows.
    if (requests[i].granted == 0) continue;
    const absl::Span<const TokenId> context = requests[i].context;
    auto* state = static_cast<NgramDraftState*>(requests[i].state);
    const DraftSource source = requests[i].source;
    if (source == DraftSource::kMemory || source == DraftSource::kSuccessors) {
      const Remembered remembered(state->memory(), context, requests[i].granted);
      for (const TokenId token : remembered.tokens()) ProposeCertain(token, proposals[i]);
      continue;
    }
    if (source == DraftSource::kText) {
      const DraftTextMatch found = state->FindInTexts(context);
      if (found.text == nullptr) continue;
      const absl::Span<const TokenId> next = found.text->From(found.match.next);
      for (const TokenId token : next.subspan(0, requests[i].granted)) {
        ProposeCertain(token, proposals[i]);
      }
      continue;
    }
    const NgramIndex::Match match = FindMatch(state, context);
    if (match.length == 0) continue;
    const std::vector<TokenId>& tokens = proposals[i]->tokens;
    for (size_t place = match.next; static_cast<int>(tokens.size()) < requests[i].granted;
         ++place) {
      // After the end of the text, continue from the proposal: a repetitive text keeps repeating.
      const TokenId token =
          place < context.size() ? context[place] : tokens[place - context.size()];
      ProposeCertain(token, proposals[i]);
    }
  }
  return absl::OkStatus();
}

void NgramDrafter::Rollback(DraftState* state, int length) {
  NgramIndex& index = static_cast<NgramDraftState*>(state)->index;
  if (length < index.length()) index.Clear();
}

}  // namespace tandem
