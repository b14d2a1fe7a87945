// The parts of Transformer for the tables of a pass, and for passes that are recorded before they
// are needed.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/status_macros.h"
#include "model/transformer.h"

namespace tandem {

// Makes host_tables_ those of a pass of this size whose rows are all padding: they belong to no
// sequence and read any token.
PassTables Transformer::EmptyTables(const PassSize& size, const PagedKvCache* cache) {
  const PassTables at = size.Tables(graph_cache_->replays(), cache->layout().page_size);
  host_tables_.assign(at.size, 0);
  int32_t* const host = host_tables_.data();
  std::fill_n(host + at.sources, at.rows, -1);
  std::iota(host + at.row_indices, host + at.row_indices + at.rows, 0);
  return at;
}

// Returns this rank's plan of the rows in host_tables_.
std::vector<int32_t> Transformer::PlanRows(const PassTables& at, const PagedKvCache* cache) const {
  AttentionSizes sizes{.num_heads = parts_.heads.size(),
                       .num_kv_heads = parts_.kv_heads.size(),
                       .head_dim = config_.head_dim};
  if (cache != nullptr) sizes.dtype = cache->LayerView(first_layer_).dtype;
  return backend_->PlanRows({host_tables_.data() + at.starts, static_cast<size_t>(at.batch) + 1},
                            at.rows, sizes);
}

absl::Status Transformer::RecordPass(const PassSize& size, bool reads_own_states,
                                     PagedKvCache* cache) {
  TANDEM_CHECK(size.batch > 0 && size.rows >= size.batch && size.logit_rows <= size.rows);
  if (!records_passes()) return absl::OkStatus();
  const PassTables at = EmptyTables(size, cache);
  if (is_draft_head()) RETURN_IF_ERROR(ReserveReadStates(at.rows));
  reads_own_states_ = reads_own_states;
  // The first run allocates what the recording uses.
  for (int run = 0; run < 2; ++run) {
    RETURN_IF_ERROR(RunOnAllRanks(at, cache, /*has_drawn=*/false, /*finds_argmax=*/false));
  }
  return EndGroupIfFailed(backend_->Synchronize());
}

}  // namespace tandem
