#include "checkpoint/draft_vocabulary.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "checkpoint/model_families.h"
#include "json/json_text.h"

namespace tandem {
namespace {

// The stored row of each token of the target, or -1.
absl::StatusOr<std::vector<int64_t>> RowsOfTokens(const Weights& weights,
                                                  const ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids,
                   weights.GetIntegers(kDraftIds, config.draft_vocab_size));
  std::vector<int64_t> row_of(config.vocab_size, -1);
  for (size_t row = 0; row < ids.size(); ++row) {
    const int64_t id = ids[row];
    const bool is_id = 0 <= id && id < config.vocab_size;
    if (!is_id || row_of[id] >= 0) {
      return NotAllowed(weights.Where(kDraftIds),
                        absl::StrCat("token ", id, " of the target for row ", row,
                                     is_id ? absl::StrCat(", as for row ", row_of[id]) : ""),
                        absl::StrCat("from 0 to ", config.vocab_size - 1, ", each once"));
    }
    row_of[id] = static_cast<int64_t>(row);
  }
  return row_of;
}

absl::Status CheckMask(const Weights& weights, const std::vector<int64_t>& row_of) {
  if (!weights.Has(kIsDrafted)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int64_t> is_drafted,
                   weights.GetIntegers(kIsDrafted, static_cast<int64_t>(row_of.size())));
  for (size_t id = 0; id < row_of.size(); ++id) {
    const int64_t wanted = row_of[id] >= 0 ? 1 : 0;
    if (is_drafted[id] == wanted) continue;
    return NotAllowed(weights.Where(kIsDrafted), absl::StrCat(is_drafted[id], " for token ", id),
                      absl::StrCat(wanted, ", as ", kDraftIds, " says"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DraftVocabulary> ReadDraftVocabulary(const Weights& weights,
                                                    const ModelConfig& config) {
  DraftVocabulary vocabulary;
  if (!weights.Has(kDraftIds) && config.draft_vocab_size == config.vocab_size) return vocabulary;
  ASSIGN_OR_RETURN(const std::vector<int64_t> row_of, RowsOfTokens(weights, config));
  RETURN_IF_ERROR(CheckMask(weights, row_of));
  for (TokenId id = 0; id < config.vocab_size; ++id) {
    if (row_of[id] < 0) continue;
    vocabulary.ids.push_back(id);
    vocabulary.rows.push_back(static_cast<TokenId>(row_of[id]));
  }
  if (!absl::c_is_sorted(vocabulary.rows)) return vocabulary;
  vocabulary.rows.clear();
  if (config.draft_vocab_size == config.vocab_size) vocabulary.ids.clear();
  return vocabulary;
}

}  // namespace tandem
