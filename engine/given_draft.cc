#include "engine/given_draft.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/utf8.h"

namespace tandem {
namespace {

// How many of these tokens the constraint allows, one after the other.
size_t NumAllowed(absl::Span<const TokenId> tokens, TokenHistory* history) {
  DraftWalk walk(history);
  size_t num_allowed = 0;
  for (; num_allowed < tokens.size(); ++num_allowed) {
    walk.Add(tokens[num_allowed]);
    if (!history->is_followed()) break;
  }
  return num_allowed;
}

// A text that is cut may end in other tokens than the whole: then fewer of them are accepted.
std::vector<TokenId> ForcedTokens(const Tokenizer& tokenizer, TokenHistory* history) {
  std::string text = history->Forced();
  text.resize(std::min(text.size(), kMaxForcedBytes));
  text.resize(std::min(text.size(), FindInvalidUtf8(text)));
  // A single byte saves nothing, and may be a part of many tokens.
  if (text.size() < 2) return {};
  absl::StatusOr<std::vector<TokenId>> tokens = tokenizer.Encode(text, SpecialTokens::kPlain);
  if (!tokens.ok()) return {};
  const size_t most = std::min<size_t>(tokens->size(), kMaxDraftTokens);
  tokens->resize(NumAllowed(absl::MakeSpan(*tokens).first(most), history));
  return *std::move(tokens);
}

absl::Span<const TokenId> PredictedTokens(Session* session) {
  const absl::Span<const TokenId> tokens = session->tokens;
  return session->prediction.Behind(tokens.subspan(session->prompt_length));
}

}  // namespace

void LookForGivenDrafts(const Tokenizer& tokenizer, Session* session) {
  Session& s = *session;
  const auto add = [&s](DraftSource source, size_t count) {
    const int most = static_cast<int>(std::min<size_t>(count, kMaxDraftTokens));
    if (most > 0) s.draft_options.push_back({.source = source, .max_tokens = most});
  };
  s.forced.clear();
  // Whoever decodes without a drafter wants to decode plainly.
  if (s.sampling.constraint != nullptr && s.drafter != DrafterKind::kNone) {
    s.forced = ForcedTokens(tokenizer, &s.history);
  }
  add(DraftSource::kForced, s.forced.size());
  add(DraftSource::kPredicted, PredictedTokens(&s).size());
}

void ProposeGiven(DraftSource source, int max_tokens, Session* session) {
  const absl::Span<const TokenId> given = source == DraftSource::kForced
                                              ? absl::MakeConstSpan(session->forced)
                                              : PredictedTokens(session);
  const size_t count = std::min<size_t>(given.size(), max_tokens);
  for (size_t i = 0; i < count; ++i) {
    *session->proposal.NextDistribution() = {.only = given[i]};
    session->proposal.tokens.push_back(given[i]);
  }
  KeepToConstraint(session);
}

void KeepToConstraint(Session* session) {
  if (session->sampling.constraint == nullptr) return;
  Proposal& proposal = session->proposal;
  const auto drawn = absl::MakeConstSpan(proposal.drawn_from).first(proposal.tokens.size());
  const bool is_certain =
      std::all_of(drawn.begin(), drawn.end(), [](const Distribution& d) { return d.only >= 0; });
  if (is_certain) proposal.tokens.resize(NumAllowed(proposal.tokens, &session->history));
}

}  // namespace tandem
