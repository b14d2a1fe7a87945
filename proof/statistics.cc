#include "proof/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace tandem {
namespace {

constexpr double kPrecision = 1e-14;
constexpr int kMostTerms = 100000;

// x^a e^-x / Gamma(a), in logarithms: both factors overflow where the product does not.
double Kernel(double a, double x) { return std::exp(a * std::log(x) - x - std::lgamma(a)); }

double LowerGammaSeries(double a, double x) {
  double term = 1.0 / a;
  double sum = term;
  for (int n = 1; n < kMostTerms && term > sum * kPrecision; ++n) {
    term *= x / (a + n);
    sum += term;
  }
  return Kernel(a, x) * sum;
}

// The continued fraction 1 / (x+1-a- 1(1-a) / (x+3-a- 2(2-a) / ...)), by Lentz' method.
double UpperGammaFraction(double a, double x) {
  constexpr double kTiny = 1e-300;
  double b = x + 1.0 - a;
  double c = 1.0 / kTiny;
  double d = 1.0 / b;
  double value = d;
  for (int n = 1; n < kMostTerms; ++n) {
    const double numerator = -n * (n - a);
    b += 2.0;
    d = numerator * d + b;
    d = 1.0 / (std::abs(d) < kTiny ? kTiny : d);
    c = b + numerator / c;
    if (std::abs(c) < kTiny) c = kTiny;
    value *= c * d;
    if (std::abs(c * d - 1.0) < kPrecision) break;
  }
  return Kernel(a, x) * value;
}

// The point where a decreasing function meets `value`, between `low` and whatever is needed.
template <typename Function>
double Solve(Function decreasing, double value, double low) {
  double high = 2.0 * low + 1.0;
  while (decreasing(high) > value) high *= 2.0;
  for (int i = 0; i < 200 && high - low > 1e-12 * high; ++i) {
    const double middle = (low + high) / 2;
    (decreasing(middle) > value ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

double UpperGamma(double a, double x) {
  TANDEM_CHECK(a > 0.0 && x >= 0.0);
  if (x == 0.0) return 1.0;
  if (std::isinf(x)) return 0.0;
  return x < a + 1.0 ? 1.0 - LowerGammaSeries(a, x) : UpperGammaFraction(a, x);
}

double ChiSquareTail(double statistic, int degrees) {
  if (degrees < 1) return 1.0;
  return UpperGamma(0.5 * degrees, 0.5 * std::max(statistic, 0.0));
}

// A Poisson mixture of central ones, summed outwards from its heaviest term.
double ChiSquareTail(double statistic, int degrees, double noncentrality) {
  if (degrees < 1) return 1.0;
  const double mean = noncentrality / 2;
  if (mean <= 0.0) return ChiSquareTail(statistic, degrees);
  const auto weight = [&](int n) {
    return std::exp(n * std::log(mean) - mean - std::lgamma(n + 1.0));
  };
  const int middle = static_cast<int>(mean);
  double sum = 0.0;
  for (int n = middle; n >= 0 && weight(n) > kPrecision; --n) {
    sum += weight(n) * ChiSquareTail(statistic, degrees + 2 * n);
  }
  for (int n = middle + 1; weight(n) > kPrecision; ++n) {
    sum += weight(n) * ChiSquareTail(statistic, degrees + 2 * n);
  }
  return std::min(sum, 1.0);
}

double ChiSquareOfTail(double tail, int degrees) {
  TANDEM_CHECK(0.0 < tail && tail < 1.0 && degrees > 0);
  return Solve([&](double x) { return ChiSquareTail(x, degrees); }, tail, 0.0);
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
      Solve([&](double lambda) { return 1.0 - ChiSquareTail(critical, degrees, lambda); },
            1.0 - power, 0.0);
  return std::min(1.0, std::sqrt(noncentrality / (4.0 * static_cast<double>(runs))));
}

}  // namespace tandem
