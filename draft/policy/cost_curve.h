#ifndef TANDEM_DRAFT_POLICY_COST_CURVE_H_
#define TANDEM_DRAFT_POLICY_COST_CURVE_H_

#include <array>

#include "draft/policy/state_archive.h"

namespace tandem {

// What a pass costs by the size of its batch, learned from passes as they happen, in any unit. True
// costs never fall as the size grows; where measured ones do, their weighted mean counts.
class CostCurve {
 public:
  // `slope`: by how much one more row is believed to raise the cost where nothing was measured.
  explicit CostCurve(double slope) : slope_(slope) { Fit(); }

  // A pass of `size` >= 1 that cost `cost` > 0. The first two count for the lesser, later ones move
  // the estimate towards the mean, and in the end by the share `weight`.
  void Add(int size, double cost, double weight);
  // A pass of `size` right after one of `last` took exp(surprise) times what both were believed to:
  // moves them apart, by the share `min_weight` in the end. Of what was seldom compared more is
  // believed, and it moves more. Both were measured.
  void Compare(int last, int size, double surprise, double min_weight);
  // The cost of `size` >= 1: as measured, between measured sizes on a straight line, beyond them
  // along `slope` or their own, whichever is steeper.
  double At(int size) const;
  int num_samples(int size) const { return knots_[NearestKnot(size)].num_samples; }
  int num_comparisons(int size) const { return knots_[NearestKnot(size)].num_comparisons; }
  bool is_measured(int size) const { return num_samples(size) > 0; }
  void Serialize(StateArchive* archive);

 private:
  static constexpr int kNumKnots = 32;
  struct Knot {
    double measured = 0.0;
    int num_samples = 0;
    int num_comparisons = 0;
    double fitted = 0.0;
  };
  static int SizeAt(int knot);
  static int FirstKnotFrom(int size);  // the last one if all are smaller
  static int NearestKnot(int size);
  void Fit();
  void FitMeasured();

  double slope_;
  std::array<Knot, kNumKnots> knots_{};
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_COST_CURVE_H_
