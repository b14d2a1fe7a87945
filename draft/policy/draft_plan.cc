#include "draft/policy/draft_plan.h"

#include <algorithm>
#include <array>

namespace tandem {
namespace {

// The shortest plan within this share of the best rate is chosen: rates are flat near the optimum,
// and the largest of several noisy estimates is usually too large.
constexpr double kNearlyBest = 0.99;

// One candidate's chosen option and its survival curve.
struct Prospect {
  int option = -1;
  bool is_model = false;
  std::array<double, kMaxDraftTokens> survival{};
  int length = 0;  // of the curve
};

// The cost of decoding in this round without auto drafts, and the extra cost of draft rows. Rows
// that are not the candidates' are paid for anyway, so the base cost leaves them out: otherwise a
// token would be worth more the longer the round takes. Nor may these rows make draft rows cheaper.
// Passes that read prompts are not measured, so large passes seldom are (eight streams of the
// shipped pair, served: 24 rows took a quarter longer than the curve predicted, and drafts next to
// prompts promised a gain of 1.2 and more).
class RoundCost {
 public:
  RoundCost(const RoundCosts& costs, int num_rows, int other_rows, int num_sequences)
      : costs_(costs),
        num_rows_(num_rows),
        other_rows_(other_rows),
        step_(costs.Step(num_sequences)),
        base_(costs.Pass(num_rows)),
        whole_(costs.Pass(num_rows + other_rows)) {}
  double base() const { return base_; }
  double step() const { return step_; }
  double MoreRows(int count) const {
    const double alone = costs_.Pass(num_rows_ + count) - base_;
    return std::max(alone, costs_.Pass(num_rows_ + other_rows_ + count) - whole_);
  }

 private:
  const RoundCosts& costs_;
  int num_rows_;
  int other_rows_;
  double step_;
  double base_;
  double whole_;
};

int LengthLimit(const DraftCandidate& candidate, const DraftOption& option) {
  const int limit = std::min({candidate.room, option.max_tokens, kMaxDraftTokens});
  if (!candidate.is_auto()) return std::min(limit, candidate.draft_tokens);
  if (option.source != DraftSource::kModel) return limit;
  return std::min(limit,
                  IsUntested(candidate, option) ? NumTrialTokens(option) : kLongestModelDraft);
}

// Returns the cost of reading per round: reading is done once and serves all later rounds, which
// emit about two tokens each. The first step reads one token anyway, and tokens that are rows of
// the pass that drafts cost nothing here.
double ReadingCost(const RoundCosts& costs, const DraftCandidate& candidate,
                   const DraftOption& option) {
  const int num_rows = option.in_one_pass ? RoundCosts::RowsToRead(option.num_unread) : 0;
  return costs.Reading(std::max(option.num_unread - 1 - num_rows, 0)) *
         (IsUntested(candidate, option) ? 2.0 : 1.0) /
         std::max(1, NumExpected(candidate.num_wanted, candidate.num_written) / 2);
}

// Returns the best rate, in tokens per time, of an option in one sequence's share of the round.
double BestRate(const RoundCosts& costs, const RoundCost& cost, int num_sequences,
                const DraftCandidate& candidate, const Prospect& prospect) {
  const DraftOption& option = candidate.options[prospect.option];
  const double share = cost.base() / num_sequences;
  const auto drafting = [&](int k) {
    if (!prospect.is_model) return 0.0;
    return costs.Drafting(option.in_one_pass, num_sequences, k) / num_sequences;
  };
  const double reading = prospect.is_model ? ReadingCost(costs, candidate, option) : 0.0;
  double best = 1.0 / share;
  double expected = 1.0;
  for (int k = 1; k <= prospect.length; ++k) {
    expected += prospect.survival[k - 1];
    const double rate = expected / (share + reading + drafting(k) + cost.MoreRows(k));
    if (candidate.is_auto() ? rate > best : k == prospect.length) best = rate;
  }
  return best;
}

Prospect ChooseOption(const RoundCosts& costs, const RoundCost& cost, int num_sequences,
                      const DraftCandidate& candidate) {
  Prospect best;
  double best_rate = -1.0;
  for (int i = 0; i < static_cast<int>(candidate.options.size()); ++i) {
    const DraftOption& option = candidate.options[i];
    Prospect prospect{.option = i,
                      .is_model = option.source == DraftSource::kModel,
                      .survival = {},
                      .length = LengthLimit(candidate, option)};
    if (prospect.length <= 0) continue;
    candidate.own->Survival(option, candidate.wider,
                            absl::MakeSpan(prospect.survival).first(prospect.length));
    if (candidate.options.size() == 1) return prospect;
    const double rate = BestRate(costs, cost, num_sequences, candidate, prospect);
    if (rate > best_rate) {
      best_rate = rate;
      best = prospect;
    }
  }
  return best;
}

// Returns the depth beyond which no draft step can pay, because all tokens of the next step
// together gain at most `min_gain`: without them the round is at least a step shorter, and the rate
// higher. Deeper tokens gain even less. Steps up to `fixed_steps` are taken anyway.
int MaxUsefulDepth(absl::Span<const DraftCandidate> candidates,
                   absl::Span<const Prospect> prospects, int fixed_steps, double min_gain) {
  for (int d = 0; d < kLongestModelDraft; ++d) {
    double gain = 0.0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (!candidates[i].is_auto() || !prospects[i].is_model) continue;
      if (d < prospects[i].length) gain += prospects[i].survival[d];
    }
    if (gain == 0.0 || (d >= fixed_steps && gain <= min_gain)) return d;
  }
  return kLongestModelDraft;
}

// A possible draft token: its candidate, its depth, and its chance of being kept.
struct Slot {
  double survival;
  int candidate;
  int depth;  // from 1
  // The number of passes of the draft model that it needs: its depth, or 1 if one pass drafts; 0
  // for a lookup.
  int level;
};

// Returns the slots of all auto candidates, the most likely first. A slot never comes before the
// shallower slots of its draft.
std::vector<Slot> SortedSlots(absl::Span<const DraftCandidate> candidates,
                              absl::Span<const Prospect> prospects, int max_depth,
                              bool in_one_pass) {
  std::vector<Slot> slots;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].is_auto()) continue;
    const int length =
        prospects[i].is_model ? std::min(prospects[i].length, max_depth) : prospects[i].length;
    for (int d = 0; d < length; ++d) {
      slots.push_back({.survival = prospects[i].survival[d],
                       .candidate = static_cast<int>(i),
                       .depth = d + 1,
                       .level = !prospects[i].is_model ? 0
                                : in_one_pass          ? 1
                                                       : d + 1});
    }
  }
  std::stable_sort(slots.begin(), slots.end(),
                   [](const Slot& a, const Slot& b) { return a.survival > b.survival; });
  return slots;
}

}  // namespace

bool IsUntested(const DraftCandidate& candidate, const DraftOption& option) {
  constexpr double kEnoughTests = 8.0;
  return (candidate.wider == nullptr ? candidate.own : candidate.wider)->NumTested(option) <
         kEnoughTests;
}

DraftPlan PlanDrafts(const RoundCosts& costs, absl::Span<const DraftCandidate> candidates,
                     int other_rows) {
  DraftPlan plan;
  plan.choices.resize(candidates.size());
  const int num_sequences = static_cast<int>(candidates.size());
  if (num_sequences == 0) return plan;

  std::vector<Prospect> prospects;
  const RoundCost first_cost(costs, num_sequences, other_rows, num_sequences);
  int num_model = 0;
  int num_rows = num_sequences;
  bool in_one_pass = false;
  int fixed_steps = 0;  // draft steps of candidates with a fixed length
  int fixed_rows = 0;   // their rows of the pass that drafts, if one pass does
  double emitted = num_sequences;
  double reading = 0.0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    prospects.push_back(ChooseOption(costs, first_cost, num_sequences, candidates[i]));
    const Prospect& prospect = prospects.back();
    if (prospect.option < 0) continue;
    if (prospect.is_model) {
      ++num_model;
      in_one_pass = in_one_pass || candidates[i].options[prospect.option].in_one_pass;
    }
    if (candidates[i].is_auto()) {
      if (prospect.is_model) {
        reading += ReadingCost(costs, candidates[i], candidates[i].options[prospect.option]);
      }
      continue;
    }
    plan.choices[i] = {.option = prospect.option, .num_tokens = prospect.length};
    num_rows += prospect.length;
    if (prospect.is_model) {
      fixed_steps = std::max(fixed_steps, prospect.length);
      fixed_rows += prospect.length;
    }
    for (int d = 0; d < prospect.length; ++d) emitted += prospect.survival[d];
  }

  const RoundCost cost(costs, num_rows, other_rows, std::max(num_model, 1));
  // Where one pass drafts, its rows cost, not steps.
  const double step = in_one_pass ? 0.0 : cost.step();
  if (!in_one_pass) fixed_rows = 0;
  const double plain_time = cost.base() + fixed_steps * step + costs.OnePass(fixed_rows);
  const double plain_rate = emitted / plain_time;
  const int max_depth =
      MaxUsefulDepth(candidates, prospects, fixed_steps, /*min_gain=*/plain_rate * step);
  const std::vector<Slot> slots = SortedSlots(candidates, prospects, max_depth, in_one_pass);
  std::vector<double> rows_time(slots.size() + 1);
  for (size_t i = 0; i <= slots.size(); ++i) rows_time[i] = cost.MoreRows(static_cast<int>(i));
  int max_level = 0;
  for (const Slot& slot : slots) max_level = std::max(max_level, slot.level);
  double best_rate = plain_rate;
  int best_level = 0;
  int best_count = 0;
  // Visits every level and count with its rate. A level is visited only if a slot reaches it.
  const auto for_each = [&](auto visit) {
    for (int level = 0; level <= max_level; ++level) {
      double time = plain_time + (level > 0 ? reading : 0.0);
      if (!in_one_pass) time += std::max(0, level - fixed_steps) * step;
      double kept = 0.0;
      int count = 0;
      int draft_rows = fixed_rows;
      bool is_reached = level == 0;
      for (const Slot& slot : slots) {
        if (slot.level > level) continue;
        kept += slot.survival;
        ++count;
        is_reached = is_reached || slot.level == level;
        if (in_one_pass && slot.level > 0) ++draft_rows;
        if (!is_reached) continue;
        double drafting = 0.0;
        if (draft_rows > fixed_rows) {
          // Each token that is kept is one more row of the next draft, which pays for it here.
          const double row = costs.OnePass(draft_rows + 1) - costs.OnePass(draft_rows);
          drafting = costs.OnePass(draft_rows) - costs.OnePass(fixed_rows) + row * kept;
        }
        visit(level, count, (emitted + kept) / (time + drafting + rows_time[count]));
      }
    }
  };
  for_each(
      [&](int /*level*/, int /*count*/, double rate) { best_rate = std::max(best_rate, rate); });
  if (best_rate > plain_rate) {
    best_count = static_cast<int>(slots.size()) + 1;
    const double enough = std::max(plain_rate, kNearlyBest * best_rate);
    for_each([&](int level, int count, double rate) {
      if (rate < enough || count >= best_count) return;
      best_level = level;
      best_count = count;
    });
  }
  plan.worth_a_row =
      best_rate * (best_count > 0 ? rows_time[best_count] / best_count : cost.MoreRows(1));
  plan.worth_a_step = best_rate * step / std::max(num_model, 1);
  for (const Slot& slot : slots) {
    if (best_count == 0) break;
    if (slot.level > best_level) continue;
    plan.choices[slot.candidate] = {.option = prospects[slot.candidate].option,
                                    .num_tokens = slot.depth};
    --best_count;
  }
  // Name an option even where no draft pays, so that the policy can try it.
  for (size_t i = 0; i < candidates.size(); ++i) plan.choices[i].option = prospects[i].option;
  plan.gain = best_rate / plain_rate;
  return plan;
}

}  // namespace tandem
