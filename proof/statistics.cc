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
  const double total =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  if (total == 0.0) return {};
  struct Cell {
    double count = 0.0;
    double probability = 0.0;
  };
  std::vector<Cell> cells;
  Cell rest;
  for (size_t i = 0; i < counts.size(); ++i) {
    const Cell cell{.count = static_cast<double>(counts[i]), .probability = probabilities[i]};
    if (cell.probability <= 0.0 && cell.count > 0.0) {
      return {.statistic = std::numeric_limits<double>::infinity(),
              .degrees = static_cast<int>(counts.size()) - 1,
              .p_value = 0.0};
    }
    if (cell.probability * total >= min_expected) {
      cells.push_back(cell);
    } else {
      rest.count += cell.count;
      rest.probability += cell.probability;
    }
  }
  const auto smallest =
      std::min_element(cells.begin(), cells.end(),
                       [](const Cell& x, const Cell& y) { return x.probability < y.probability; });
  if (rest.probability * total >= min_expected) {
    cells.push_back(rest);
  } else if (smallest != cells.end()) {
    smallest->count += rest.count;
    smallest->probability += rest.probability;
  }
  if (cells.size() < 2) return {};
  double half_g = 0.0;
  double sum_of_inverses = 0.0;
  for (const Cell& cell : cells) {
    if (cell.count > 0.0) half_g += cell.count * std::log(cell.count / (total * cell.probability));
    sum_of_inverses += 1.0 / cell.probability;
  }
  const int degrees = static_cast<int>(cells.size()) - 1;
  const double correction = 1.0 + (sum_of_inverses - 1.0) / (6.0 * total * degrees);
  const double statistic = std::max(0.0, 2.0 * half_g / correction);
  return {.statistic = statistic, .degrees = degrees, .p_value = ChiSquareTail(statistic, degrees)};
}

Fit GTestTwo(absl::Span<const int64_t> a, absl::Span<const int64_t> b, double min_expected) {
  TANDEM_CHECK(a.size() == b.size());
  const auto total_a = static_cast<double>(std::accumulate(a.begin(), a.end(), int64_t{0}));
  const auto total_b = static_cast<double>(std::accumulate(b.begin(), b.end(), int64_t{0}));
  const double total = total_a + total_b;
  if (total_a == 0.0 || total_b == 0.0) return {};
  const double least = min_expected * total / std::min(total_a, total_b);  // of pooled counts
  struct Cell {
    double a = 0.0;
    double b = 0.0;
  };
  std::vector<Cell> cells;
  Cell rest;
  for (size_t i = 0; i < a.size(); ++i) {
    const Cell cell{.a = static_cast<double>(a[i]), .b = static_cast<double>(b[i])};
    if (cell.a + cell.b >= least) {
      cells.push_back(cell);
    } else {
      rest = {.a = rest.a + cell.a, .b = rest.b + cell.b};
    }
  }
  const auto smallest =
      std::min_element(cells.begin(), cells.end(),
                       [](const Cell& x, const Cell& y) { return x.a + x.b < y.a + y.b; });
  if (rest.a + rest.b >= least) {
    cells.push_back(rest);
  } else if (smallest != cells.end()) {
    *smallest = {.a = smallest->a + rest.a, .b = smallest->b + rest.b};
  }
  if (cells.size() < 2) return {};
  double half_g = 0.0;
  double sum_of_inverses = 0.0;
  for (const Cell& cell : cells) {
    const double share = (cell.a + cell.b) / total;
    if (cell.a > 0.0) half_g += cell.a * std::log(cell.a / (total_a * share));
    if (cell.b > 0.0) half_g += cell.b * std::log(cell.b / (total_b * share));
    sum_of_inverses += 1.0 / share;
  }
  const int degrees = static_cast<int>(cells.size()) - 1;
  const double correction = 1.0 + (sum_of_inverses - 1.0) *
                                      (1.0 / total_a + 1.0 / total_b - 1.0 / total) /
                                      (6.0 * degrees);
  const double statistic = std::max(0.0, 2.0 * half_g / correction);
  return {.statistic = statistic, .degrees = degrees, .p_value = ChiSquareTail(statistic, degrees)};
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
