#include "model/rank_parts.h"

#include <algorithm>

namespace tandem {
namespace {

// Returns a rank's share of outputs, in units of 16, which is a multiple of every kernel's panel.
RankShare OutputShareOf(int outputs, int rank, int world) {
  constexpr int kUnit = 16;
  const RankShare units = RankShareOf((outputs + kUnit - 1) / kUnit, rank, world);
  return {std::min(units.begin * kUnit, outputs), std::min(units.end * kUnit, outputs)};
}

}  // namespace

RankParts RankPartsOf(const ModelConfig& config, int num_head_tokens, int rank, int world) {
  const RankShare kv_heads = RankShareOf(config.num_kv_heads, rank, world);
  const int queries = config.num_heads / config.num_kv_heads;
  return {.kv_heads = kv_heads,
          .heads = {kv_heads.begin * queries, kv_heads.end * queries},
          .hidden = OutputShareOf(config.hidden_size, rank, world),
          .mlp = OutputShareOf(config.intermediate_size, rank, world),
          .head_rows = OutputShareOf(num_head_tokens, rank, world),
          .experts = RankShareOf(config.num_experts, rank, world)};
}

RankParts OwnPartsOf(const ModelConfig& config, int num_head_tokens, const RankGroup* group) {
  return group == nullptr ? RankPartsOf(config, num_head_tokens, /*rank=*/0, /*world=*/1)
                          : RankPartsOf(config, num_head_tokens, group->rank(), group->world());
}

}  // namespace tandem
