#include "draft/ngram_drafter.h"

#include <algorithm>

namespace tandem {
namespace {

struct NgramDraftState final : DraftState {
  NgramIndex index;
};

NgramIndex::Match FindMatch(DraftState* state, absl::Span<const TokenId> context) {
  NgramIndex& index = static_cast<NgramDraftState*>(state)->index;
  index.Extend(context);
  return index.Find(context);
}

}  // namespace

std::unique_ptr<DraftState> NgramDrafter::NewState(absl::Span<const TokenId> /*prompt*/) {
  return std::make_unique<NgramDraftState>();
}

int NgramDrafter::EvidenceOf(const NgramIndex::Match& match) {
  const int by_length = match.length >= 6 ? 3 : match.length >= 3 ? 2 : match.length == 2 ? 1 : 0;
  return 2 * by_length + (match.is_repeated ? 1 : 0);
}

std::vector<DraftOption> NgramDrafter::Options(DraftState* state,
                                               absl::Span<const TokenId> context) {
  const NgramIndex::Match match = FindMatch(state, context);
  if (match.length == 0) return {};
  return {{.source = DraftSource::kLookup,
           .evidence = EvidenceOf(match),
           .max_tokens = kMaxDraftTokens,
           .num_unread = 0}};
}

absl::Status NgramDrafter::Propose(absl::Span<const DraftRequest> requests,
                                   absl::Span<Proposal* const> proposals) {
  for (size_t i = 0; i < requests.size(); ++i) {
    // A part of a prompt, of which more may be known already, is not to be looked up.
    if (requests[i].granted == 0) continue;
    const absl::Span<const TokenId> context = requests[i].context;
    const NgramIndex::Match match = FindMatch(requests[i].state, context);
    if (match.length == 0) continue;
    std::vector<TokenId>& tokens = proposals[i]->tokens;
    for (size_t place = match.next; static_cast<int>(tokens.size()) < requests[i].granted;
         ++place) {
      // Behind the end of the text it goes on as proposed: a text that repeats itself does so on.
      const TokenId token =
          place < context.size() ? context[place] : tokens[place - context.size()];
      Distribution* certain = proposals[i]->NextDistribution();
      certain->only = token;
      certain->probs.clear();
      tokens.push_back(token);
    }
  }
  return absl::OkStatus();
}

void NgramDrafter::Rollback(DraftState* state, int length) {
  NgramIndex& index = static_cast<NgramDraftState*>(state)->index;
  if (length < index.length()) index.Clear();
}

}  // namespace tandem
