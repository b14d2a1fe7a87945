#include "engine/next_piece.h"

#include <string_view>

#include "base/instant.h"

namespace tandem {
namespace {

RoundReport RoundOf(const Session& session, const Drafter* drafter) {
  const RoundStats& stats = session.completion.stats;
  return {.proposed = static_cast<int>(stats.proposed - session.delivered_proposed),
          .accepted = static_cast<int>(stats.accepted - session.delivered_accepted),
          .target_cached_tokens = session.target_kv.length(),
          .draft_cached_tokens =
              session.draft_state == nullptr ? 0 : drafter->NumCached(*session.draft_state)};
}

}  // namespace

std::optional<Piece> NextPiece(Session* session, const Drafter* drafter) {
  Session& s = *session;
  Completion& c = s.completion;
  if (c.token_ids.size() > s.delivered_tokens && s.delivered_tokens == 0) {
    s.times.OnFirstToken(Instant::Now());
    c.first_round_tokens = static_cast<int>(c.token_ids.size());
  }
  const std::string& text = s.text->text();
  if (c.token_ids.size() == s.delivered_tokens && text.size() == s.delivered_text) {
    return std::nullopt;
  }
  const Piece piece{.text = std::string_view(text).substr(s.delivered_text),
                    .token_ids = absl::MakeConstSpan(c.token_ids).subspan(s.delivered_tokens),
                    .provenance = std::string_view(c.provenance).substr(s.delivered_tokens),
                    .logprobs = c.logprobs.empty()
                                    ? absl::Span<const TokenLogprobs>()
                                    : absl::MakeConstSpan(c.logprobs).subspan(s.delivered_tokens),
                    .round = RoundOf(s, drafter)};
  s.delivered_text = text.size();
  s.delivered_tokens = c.token_ids.size();
  s.delivered_proposed = c.stats.proposed;
  s.delivered_accepted = c.stats.accepted;
  return piece;
}

}  // namespace tandem
