#ifndef TANDEM_MODEL_RANK_PARTS_H_
#define TANDEM_MODEL_RANK_PARTS_H_

#include "kernels/matrix.h"
#include "model/checkpoint/model_config.h"
#include "model/ranks/rank_group.h"

namespace tandem {

// A rank's share of each kind of output of a model.
struct RankParts {
  RankShare kv_heads, heads;
  RankShare hidden, mlp, head_rows;  // products' outputs
  RankShare experts;
};

RankParts RankPartsOf(const ModelConfig& config, int num_head_tokens, int rank, int world);
// The parts of this process's rank; everything if `group` is null.
RankParts OwnPartsOf(const ModelConfig& config, int num_head_tokens, const RankGroup* group);

inline MatrixView ColumnsOf(MatrixView x, RankShare columns) {
  x.data = static_cast<float*>(x.data) + columns.begin;
  x.cols = columns.size();
  return x;
}

}  // namespace tandem

#endif  // TANDEM_MODEL_RANK_PARTS_H_
