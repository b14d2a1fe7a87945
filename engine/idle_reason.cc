#include "engine/idle_reason.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/format.h"
#include "base/string_view.h"
#include "draft/make_drafter.h"
#include "tandem/draft_source.h"

namespace tandem {
namespace {

constexpr int kMinRounds = 8;

std::string CostsText(bool has_model, const RoundCosts& costs) {
  std::string row = Format("a row costs %.2f of a plain pass", costs.Pass(2) - 1.0);
  if (!has_model) return row;
  return Format("a step costs %.2f of a plain pass%s, a row %.2f", costs.Step(1),
                costs.knows_step() ? "" : " by its size", costs.Pass(2) - 1.0);
}

}  // namespace

std::string IdleReasonOf(const Session& session, const RoundCosts& costs) {
  const RoundStats& stats = session.completion.stats;
  const bool has_model = HasModel(session.drafter);
  const bool chooses =
      session.draft_tokens == kAutoDraftTokens && session.drafter != DrafterKind::kNone;
  if (!chooses || stats.rounds < kMinRounds || 2 * stats.proposed_at[0] >= stats.rounds) return "";
  std::vector<std::string> tried;
  for (int i = 0; i < kNumDraftSources; ++i) {
    const auto source = static_cast<DraftSource>(i);
    const RoundStats::SourceCounts& counts = stats.Of(source);
    if (counts.proposed == 0) continue;
    tried.push_back(absl::StrCat(counts.accepted, " of ", counts.proposed, " tokens of ",
                                 View(NameOf(source)), " kept"));
  }
  if (has_model && stats.Of(DraftSource::kModel).proposed == 0) {
    tried.push_back("the model not tried");
  }
  if (stats.draft_failures > 0) tried.push_back(absl::StrCat(stats.draft_failures, " failed"));
  if (tried.empty()) tried.push_back("no earlier text to draft from");
  return absl::StrCat("draft idle in ", stats.rounds - stats.proposed_at[0], " of ", stats.rounds,
                      " rounds: ", CostsText(has_model, costs), "; ", absl::StrJoin(tried, ", "),
                      "; -k 4 (draft_tokens) forces it");
}

}  // namespace tandem
