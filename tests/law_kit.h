// For tests of laws: small worlds whose laws are enumerated completely, and statistics of seeded
// trials.
#ifndef TANDEM_TESTS_LAW_KIT_H_
#define TANDEM_TESTS_LAW_KIT_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "proof/statistics.h"
#include "tandem/types.h"

namespace tandem {

using Tokens = std::vector<TokenId>;
using Row = std::vector<double>;       // [vocab], probabilities
using Law = std::map<Tokens, double>;  // of the emitted tokens
using RowOf = std::function<Row(const Tokens& context)>;

inline Tokens With(Tokens context, TokenId token) {
  context.push_back(token);
  return context;
}
inline Tokens Prefix(const Tokens& tokens, size_t length) {
  return {tokens.begin(), tokens.begin() + std::min(length, tokens.size())};
}

// ---- Rows that f32 holds exactly ----

// Multiples of 1 / denominator; each entry is left out with probability `zeros`.
inline Row RandomRow(std::mt19937_64& random, int vocab, int denominator, double zeros) {
  std::vector<int> kept;
  while (kept.empty()) {
    for (int v = 0; v < vocab; ++v) {
      if (std::uniform_real_distribution<double>()(random) >= zeros) kept.push_back(v);
    }
  }
  Row row(vocab, 0.0);
  for (const int v : kept) row[v] = 1.0;
  for (int i = static_cast<int>(kept.size()); i < denominator; ++i) {
    row[kept[random() % kept.size()]] += 1.0;
  }
  for (double& p : row) p /= denominator;
  return row;
}

// Returns a row of powers of two from 1/16 up, and zeros: entries that divide exactly.
inline Row RandomPowersOfTwo(std::mt19937_64& random, int vocab) {
  Row row(vocab, 0.0);
  row[random() % vocab] = 1.0;
  for (int splits = static_cast<int>(random() % (6 * vocab)); splits > 0; --splits) {
    const int from = static_cast<int>(random() % vocab);
    const int to = static_cast<int>(random() % vocab);
    if (row[from] < 0.125 || row[to] != 0.0) continue;
    row[from] /= 2;
    row[to] = row[from];
  }
  return row;
}

// Returns a model in which every context has its own row, so that a row of the wrong position
// shows.
inline RowOf RandomTable(uint64_t seed, std::function<Row(std::mt19937_64&)> make_row) {
  auto random = std::make_shared<std::mt19937_64>(seed);
  auto rows = std::make_shared<std::map<Tokens, Row>>();
  return [=](const Tokens& context) {
    auto it = rows->find(context);
    if (it == rows->end()) it = rows->emplace(context, make_row(*random)).first;
    return it->second;
  };
}

// Returns the rows of a draft in one pass: every row ignores the tokens drafted before it.
inline RowOf Marginals(RowOf rows) {
  return
      [rows = std::move(rows)](const Tokens& drafted) { return rows(Tokens(drafted.size(), 0)); };
}

// ---- Exact laws ----

// Returns `open` with each text extended to `length` tokens by `model`.
inline Law Completed(Law open, const RowOf& model, size_t length) {
  Law done;
  while (!open.empty()) {
    const auto [tokens, weight] = *open.begin();
    open.erase(open.begin());
    if (tokens.size() >= length) {
      done[Prefix(tokens, length)] += weight;
      continue;
    }
    const Row row = model(tokens);
    for (size_t v = 0; v < row.size(); ++v) {
      if (row[v] > 0.0) open[With(tokens, static_cast<TokenId>(v))] += weight * row[v];
    }
  }
  return done;
}

// The law of the first `length` tokens of plain decoding.
inline Law PlainLaw(const RowOf& model, size_t length) {
  return Completed({{{}, 1.0}}, model, length);
}

inline double TotalVariation(const Law& a, const Law& b) {
  double sum = 0.0;
  for (const auto& [tokens, weight] : a) {
    const auto it = b.find(tokens);
    sum += std::abs(weight - (it == b.end() ? 0.0 : it->second));
  }
  for (const auto& [tokens, weight] : b) {
    if (!a.contains(tokens)) sum += weight;
  }
  return sum / 2;
}

// ---- Statistics of counts ----

// Cells with a lower expected count are merged.
inline constexpr double kMinExpected = 8.0;

// Returns the score of Pearson's chi-square test that counts follow a law. Infinite if a text was
// counted that the law forbids.
inline double FitScore(const std::map<Tokens, int64_t>& counts, const Law& law) {
  double total = 0.0;
  for (const auto& [tokens, count] : counts) {
    const auto it = law.find(tokens);
    if (it == law.end() || it->second <= 0.0) return INFINITY;
    total += static_cast<double>(count);
  }
  double statistic = 0.0;
  int cells = 0;
  double rest_expected = 0.0;
  double rest_count = 0.0;
  const auto add = [&](double count, double expected) {
    statistic += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (const auto& [tokens, weight] : law) {
    const auto it = counts.find(tokens);
    const double count = it == counts.end() ? 0.0 : static_cast<double>(it->second);
    if (weight * total >= kMinExpected) {
      add(count, weight * total);
    } else {
      rest_expected += weight * total;
      rest_count += count;
    }
  }
  if (rest_expected >= kMinExpected) add(rest_count, rest_expected);
  return StandardScore(statistic, cells - 1);
}

// Returns the score of the chi-square test of homogeneity: whether two samples of equal size follow
// the same law.
inline double HomogeneityScore(const std::map<Tokens, std::array<int64_t, 2>>& counts) {
  double statistic = 0.0;
  int cells = 0;
  std::array<double, 2> rest{};
  const auto add = [&](double a, double b) {
    statistic += (a - b) * (a - b) / (a + b);
    ++cells;
  };
  for (const auto& [tokens, pair] : counts) {
    const auto a = static_cast<double>(pair[0]);
    const auto b = static_cast<double>(pair[1]);
    if (a + b >= 2 * kMinExpected) {
      add(a, b);
    } else {
      rest[0] += a;
      rest[1] += b;
    }
  }
  if (rest[0] + rest[1] >= 2 * kMinExpected) add(rest[0], rest[1]);
  return StandardScore(statistic, cells - 1);
}

}  // namespace tandem

#endif  // TANDEM_TESTS_LAW_KIT_H_
