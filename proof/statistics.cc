#include "proof/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "boost/math/distributions/binomial.hpp"
#include "boost/math/distributions/chi_squared.hpp"
#include "boost/math/distributions/hypergeometric.hpp"
#include "boost/math/distributions/non_central_chi_squared.hpp"

namespace tandem {
namespace {

namespace policies = boost::math::policies;
// Boost returns NaN or infinity where a function has no result, and throws nothing.
using Quietly = policies::policy<policies::domain_error<policies::ignore_error>,
                                 policies::pole_error<policies::ignore_error>,
                                 policies::overflow_error<policies::ignore_error>,
                                 policies::evaluation_error<policies::ignore_error>,
                                 policies::rounding_error<policies::ignore_error>>;
using ChiSquare = boost::math::chi_squared_distribution<double, Quietly>;
using NoncentralChiSquare = boost::math::non_central_chi_squared_distribution<double, Quietly>;

double SumOf(absl::Span<const int64_t> counts) {
  return static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
}

// The counts of one or two samples, which are expected in proportion to the weights.
struct Cell {
  double a = 0.0;
  double b = 0.0;
  double weight = 0.0;

  void Merge(const Cell& other) {
    a += other.a;
    b += other.b;
    weight += other.weight;
  }
};

// Merges cells whose weight is below `least`, and these with the smallest other cell if they are
// still too few. `total` is the sum of all weights.
Fit FitOf(absl::Span<const Cell> all, double least, double total, double total_a, double total_b) {
  std::vector<Cell> cells;
  Cell rest;
  for (const Cell& cell : all) {
    if (cell.weight >= least) {
      cells.push_back(cell);
    } else {
      rest.Merge(cell);
    }
  }
  const auto smallest = std::min_element(
      cells.begin(), cells.end(), [](const Cell& x, const Cell& y) { return x.weight < y.weight; });
  if (rest.weight >= least) {
    cells.push_back(rest);
  } else if (smallest != cells.end()) {
    smallest->Merge(rest);
  }
  if (cells.size() < 2) return {};
  double half_g = 0.0;
  double sum_of_inverses = 0.0;
  for (const Cell& cell : cells) {
    const double share = cell.weight / total;
    if (cell.a > 0.0) half_g += cell.a * std::log(cell.a / (total_a * share));
    if (cell.b > 0.0) half_g += cell.b * std::log(cell.b / (total_b * share));
    sum_of_inverses += 1.0 / share;
  }
  const int degrees = static_cast<int>(cells.size()) - 1;
  const double runs = total_b > 0.0 ? 1.0 / total_a + 1.0 / total_b - 1.0 / total : 1.0 / total_a;
  const double correction = 1.0 + (sum_of_inverses - 1.0) * runs / (6.0 * degrees);
  const double statistic = std::max(0.0, 2.0 * half_g / correction);
  return {.statistic = statistic, .degrees = degrees, .p_value = ChiSquareTail(statistic, degrees)};
}

}  // namespace

double ChiSquareTail(double statistic, int degrees) {
  return degrees < 1 ? 1.0 : cdf(complement(ChiSquare(degrees), std::max(statistic, 0.0)));
}

double ChiSquareOfTail(double tail, int degrees) {
  TANDEM_CHECK(0.0 < tail && tail < 1.0 && degrees > 0);
  return quantile(complement(ChiSquare(degrees), tail));
}

double StandardScore(double statistic, int degrees) {
  if (degrees < 1) return 0.0;
  const double spread = 2.0 / (9.0 * degrees);
  return (std::cbrt(statistic / degrees) - (1.0 - spread)) / std::sqrt(spread);
}

Fit GTest(absl::Span<const int64_t> counts, absl::Span<const double> probabilities,
          double min_expected) {
  TANDEM_CHECK(counts.size() == probabilities.size());
  const double total = SumOf(counts);
  if (total == 0.0) return {};
  std::vector<Cell> cells;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (probabilities[i] <= 0.0 && counts[i] > 0) {
      return {.statistic = std::numeric_limits<double>::infinity(),
              .degrees = static_cast<int>(counts.size()) - 1,
              .p_value = 0.0};
    }
    cells.push_back({.a = static_cast<double>(counts[i]), .weight = probabilities[i] * total});
  }
  return FitOf(cells, min_expected, total, total, 0.0);
}

Fit GTestTwo(absl::Span<const int64_t> a, absl::Span<const int64_t> b, double min_expected) {
  TANDEM_CHECK(a.size() == b.size());
  const double total_a = SumOf(a);
  const double total_b = SumOf(b);
  if (total_a == 0.0 || total_b == 0.0) return {};
  const double total = total_a + total_b;
  std::vector<Cell> cells;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto in_a = static_cast<double>(a[i]);
    const auto in_b = static_cast<double>(b[i]);
    cells.push_back({.a = in_a, .b = in_b, .weight = in_a + in_b});
  }
  const double least = min_expected * total / std::min(total_a, total_b);  // of pooled counts
  return FitOf(cells, least, total, total_a, total_b);
}

std::vector<double> HolmAdjusted(absl::Span<const double> p_values) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return p_values[a] != p_values[b] ? p_values[a] < p_values[b] : a < b;
  });
  std::vector<double> adjusted(p_values.size());
  double largest = 0.0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const double scaled = p_values[order[rank]] * static_cast<double>(order.size() - rank);
    largest = std::max(largest, std::min(1.0, scaled));
    adjusted[order[rank]] = largest;
  }
  return adjusted;
}

double SeenVariation(int64_t runs, int degrees, double alpha, double power) {
  if (runs < 1 || degrees < 1) return 1.0;
  const double critical = ChiSquareOfTail(alpha, degrees);
  const double noncentrality =
      NoncentralChiSquare::find_non_centrality(degrees, critical, 1.0 - power);
  return std::min(1.0, std::sqrt(noncentrality / (4.0 * static_cast<double>(runs))));
}

double BinomialTail(int64_t count, int64_t total, double probability) {
  if (count <= 0) return 1.0;
  const boost::math::binomial_distribution<double, Quietly> law(static_cast<double>(total),
                                                                probability);
  return cdf(complement(law, static_cast<double>(count - 1)));
}

double LargestShare(int64_t count, int64_t total) {
  using Binomial = boost::math::binomial_distribution<double, Quietly>;
  if (count >= total) return 1.0;
  return Binomial::find_upper_bound_on_p(static_cast<double>(total), static_cast<double>(count),
                                         0.025);
}

double FisherTail(int64_t count, int64_t total, int64_t other_count, int64_t other_total) {
  const auto both = static_cast<uint64_t>(count + other_count);
  const auto all = static_cast<uint64_t>(total + other_total);
  const boost::math::hypergeometric_distribution<double, Quietly> law(
      both, static_cast<uint64_t>(total), all);
  const int64_t least = std::max<int64_t>(0, static_cast<int64_t>(both) - other_total);
  return count <= least ? 1.0 : cdf(complement(law, static_cast<uint64_t>(count - 1)));
}

}  // namespace tandem
