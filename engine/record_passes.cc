#include "engine/record_passes.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/instant.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

// Tokens drafted per round where the policy chooses them.
constexpr int kUsualDraftTokens = 7;
// Limits the rows of the largest round: a row of logits takes half a megabyte.
constexpr int kMostRows = 256;
// The length of a sequence, rounded to a power of two, that most rounds do not exceed.
constexpr int kUsualTokens = 1024;

int DraftTokensOf(const EngineOptions& options, const Runtime& runtime) {
  if (runtime.drafter == nullptr) return 0;
  return options.draft_tokens == kAutoDraftTokens ? kUsualDraftTokens : options.draft_tokens;
}

}  // namespace

std::vector<RecordedPass> CommonPasses(const EngineOptions& options, const Runtime& runtime) {
  std::vector<RecordedPass> passes;
  std::set<std::tuple<bool, int, int, int, int, bool>> seen;
  const int context = runtime.target->context_length();
  const auto pages_of = [&](int tokens) {
    return std::min((std::min(tokens, context) + options.page_size - 1) / options.page_size,
                    runtime.target_cache->num_pages());
  };
  const auto add = [&](bool of_draft, int batch, int rows, int logit_rows, int tokens,
                       bool reads_own_states = false) {
    const PassSize size{
        .batch = batch, .rows = rows, .logit_rows = logit_rows, .pages = pages_of(tokens)};
    const PassTables at = size.Tables(/*pads=*/true, options.page_size);
    const bool is_new =
        seen.insert({of_draft, at.batch, at.rows, at.logit_rows, at.max_pages, reads_own_states})
            .second;
    if (!is_new || passes.size() == kMaxRecordedPasses) return;
    passes.push_back({of_draft, size, reads_own_states});
  };
  const int drafted = DraftTokensOf(options, runtime);
  const int verified = 1 + drafted;
  const int chunk = std::min(runtime.chunk_tokens, context);
  const int most = std::clamp(kMostRows / verified, 1, options.max_batch);
  const bool has_draft = runtime.draft != nullptr, has_head = runtime.has_head();
  const bool in_one_pass = runtime.mask_token != kNoMaskToken && drafted > 0;
  add(false, 1, chunk, 0, chunk);
  add(false, most, most * verified, most * verified, context);
  if (has_draft) {
    add(true, 1, chunk, 0, chunk);
    if (in_one_pass) {
      add(true, most, most * 2 * drafted, most * drafted, context);
    } else {
      add(true, most, most * (has_head ? verified : 2), most, context);
    }
  }
  // A draft model first reads the last token, or the last two if all drafted ones were accepted.
  // One that drafts in one pass reads all accepted ones, and masks. A head reads all accepted ones
  // with the target's states, and then its own.
  const auto add_drafts = [&](int batch) {
    if (!has_draft) return;
    if (in_one_pass) {
      const int step = batch == 1 ? 1 : drafted;
      for (int accepted = 0; accepted <= drafted; accepted += step) {
        add(true, batch, batch * (drafted + accepted), batch * drafted, kUsualTokens);
      }
      return;
    }
    add(true, batch, batch, batch, kUsualTokens, has_head);
    add(true, batch, batch * 2, batch, kUsualTokens);
  };
  for (int rows = 1; rows <= verified; ++rows) add(false, 1, rows, rows, kUsualTokens);
  add_drafts(1);
  for (int batch = 2; batch <= PassClassOf(most); batch *= 2) {
    add(false, batch, batch * verified, batch * verified, kUsualTokens);
    add_drafts(batch);
    add(false, batch, batch, batch, kUsualTokens);
  }
  return passes;
}

absl::Status RecordPasses(const EngineOptions& options, Runtime* runtime) {
  if (!runtime->target->records_passes()) return absl::OkStatus();
  const Instant start = Instant::Now();
  for (const RecordedPass& pass : CommonPasses(options, *runtime)) {
    if (Instant::Now() - start > kMaxRecordingTime) break;
    Transformer* const model = pass.of_draft ? runtime->draft.get() : runtime->target.get();
    PagedKvCache* const cache = pass.of_draft && !runtime->has_head() ? runtime->draft_cache.get()
                                                                      : runtime->target_cache.get();
    RETURN_IF_ERROR(model->RecordPass(pass.size, pass.reads_own_states, cache));
  }
  return absl::OkStatus();
}

}  // namespace tandem
