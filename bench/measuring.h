// What benchmarks have in common: a clock that never goes back, and numbers that may be missing.
#ifndef TANDEM_BENCH_MEASURING_H_
#define TANDEM_BENCH_MEASURING_H_

#include <chrono>
#include <optional>

#include "nlohmann/json.hpp"

namespace tandem {

using BenchClock = std::chrono::steady_clock;

inline double SecondsSince(BenchClock::time_point start) {
  return std::chrono::duration<double>(BenchClock::now() - start).count();
}

inline nlohmann::ordered_json NumberOrNull(std::optional<double> number) {
  return number.has_value() ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(nullptr);
}

}  // namespace tandem

#endif  // TANDEM_BENCH_MEASURING_H_
