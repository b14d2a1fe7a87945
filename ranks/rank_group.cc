#include "ranks/rank_group.h"

#include "absl/strings/str_cat.h"
#include "tandem/field_error.h"

namespace tandem {

absl::Status CheckRank(int rank, int least, int world) {
  if (least <= rank && rank < world) return absl::OkStatus();
  return FieldError("rank",
                    absl::StrCat("must be from ", least, " to ", world - 1, ", got ", rank));
}

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
