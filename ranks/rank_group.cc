#include "ranks/rank_group.h"

namespace tandem {

void RankGroup::GatherColumns(MatrixView whole, absl::FunctionRef<RankShare(int rank)> columns) {
  AllGather([&](int rank, UsePiece use) {
    const RankShare share = columns(rank);
    if (share.size() == 0) return;
    for (int64_t r = 0; r < whole.rows; ++r) {
      use(static_cast<float*>(whole.data) + r * whole.stride + share.begin,
          sizeof(float) * share.size());
    }
  });
}

}  // namespace tandem
