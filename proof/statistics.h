// Tests whether counts follow a law, and with what confidence. For the proof that speculation
// preserves laws (proof/) and for tests of laws.
#ifndef TANDEM_PROOF_STATISTICS_H_
#define TANDEM_PROOF_STATISTICS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tandem {

// Returns P(X >= statistic) for X chi-square with `degrees` of freedom. 1 for 0 degrees.
double ChiSquareTail(double statistic, int degrees);
// Returns the statistic with this tail. REQUIRES: 0 < tail < 1, degrees > 0.
double ChiSquareOfTail(double tail, int degrees);

// Returns by how many standard deviations a chi-square statistic is off (Wilson and Hilferty 1931:
// its cube root is close to normal). 0 for 0 degrees.
double StandardScore(double statistic, int degrees);

// The outcome of a test of fit.
struct Fit {
  double statistic = 0.0;  // infinite if a cell with probability 0 has counts
  int degrees = 0;
  double p_value = 1.0;  // probability of a statistic at least this large under the law
};

// The G-test of `counts` against the law with these cells: G = 2 sum O log(O / E), divided by
// Williams' correction 1 + (sum 1/p - 1) / (6 N degrees). Cells with an expected count below
// `min_expected` are merged, and merged with the smallest other cell if that is still too few.
// REQUIRES: as many counts as probabilities, none negative; the probabilities sum to 1.
Fit GTest(absl::Span<const int64_t> counts, absl::Span<const double> probabilities,
          double min_expected = 10.0);

// The G-test of whether two samples, counted in the same cells, have one law. Cells are merged by
// the count that the smaller sample is expected to have of their pooled counts.
// REQUIRES: as many counts of each, none negative.
Fit GTestTwo(absl::Span<const int64_t> a, absl::Span<const int64_t> b, double min_expected = 10.0);

// Returns Holm's step-down adjustment for several tests: rejecting those with an adjusted value
// below alpha gives any false rejection with probability at most alpha, however the tests depend on
// each other.
std::vector<double> HolmAdjusted(absl::Span<const double> p_values);

// Returns the smallest total variation between the cells' law and another law that a test of `runs`
// draws at level `alpha` rejects with probability `power`, whatever the other law: N sum (p' - p)^2
// / p, the noncentrality, is at least 4 N TV^2 (Cauchy and Schwarz). At most 1.
double SeenVariation(int64_t runs, int degrees, double alpha, double power);

// P(X >= count) for X binomial.
double BinomialTail(int64_t count, int64_t total, double probability);
// The largest probability that `count` of `total` are compatible with: the upper end of Clopper and
// Pearson's interval of 95 %.
double LargestShare(int64_t count, int64_t total);
// Fisher's exact test, one-sided: the probability of at least `count` of `total` if the chance is
// the same as of the other sample.
double FisherTail(int64_t count, int64_t total, int64_t other_count, int64_t other_total);

}  // namespace tandem

#endif  // TANDEM_PROOF_STATISTICS_H_
