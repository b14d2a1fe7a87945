#ifndef TANDEM_SERVER_METRICS_METRICS_H_
#define TANDEM_SERVER_METRICS_METRICS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/instant.h"
#include "prometheus/metric_family.h"
#include "tandem/engine.h"

namespace tandem {

// The naming schemes of metrics.
enum class MetricsNames { kTandem, kVllm, kBoth };
// Parses "tandem", "vllm" or "both". Returns INVALID_ARGUMENT, naming the option, for other names.
absl::StatusOr<MetricsNames> ParseMetricsNames(std::string_view name);

// The latencies and ends of one pair's sequences. Thread-safe.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  // Negative and infinite latencies are not counted.
  void ObserveFirstToken(absl::Duration since_request);
  // Observes `count` tokens, each `each` after the one before.
  void ObserveTokens(absl::Duration each, int count);
  void ObserveEnd(absl::Duration since_request);
  // Observes the spans of a sequence that has ended.
  void ObserveTimings(const Timings& timings);
  // Counts a sequence that has ended, by NameOf(FinishReason).
  void CountEnd(const std::string& reason);

  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

// The server's answers by path and status. Thread-safe.
class AnswerCounts {
 public:
  AnswerCounts();
  ~AnswerCounts();
  void Count(const std::string& path, int status);
  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

// The loads of a pair that is not always loaded.
struct PairCounts {
  bool is_loaded = false;
  int64_t waiting = 0;        // requests that wait for the load
  int64_t planned_bytes = 0;  // 0 unless it is loaded
  int64_t loads = 0;
  int64_t failures = 0;
  int64_t unloads = 0;
  double load_seconds = 0;
};

// One pair's part of the metrics.
struct PairMetrics {
  std::string name;
  const Metrics* metrics = nullptr;
  const Engine* engine = nullptr;  // null if it is not loaded
  bool prefix_cache = true;
  PairCounts counts{};
};

struct MetricsTextOptions {
  MetricsNames names = MetricsNames::kTandem;
  // Whether every metric of a pair has the label `pair`, and there are PairCounts.
  bool has_several = false;
};

// Returns all metrics in Prometheus' text format: those that were observed, and counts and gauges
// read from the engines. docs/server/metrics.md has the names and definitions.
std::string MetricsText(absl::Span<const PairMetrics> pairs, const AnswerCounts& answers,
                        const MetricsTextOptions& options);

// The latencies of one sequence. Tokens that arrive together share the time since the previous ones
// evenly, so the mean latency is the decode time divided by the decoded tokens, however many a
// round yields. Thread-compatible.
class SequenceLatency {
 public:
  SequenceLatency(Metrics* metrics, Instant requested) : metrics_(metrics), requested_(requested) {}
  void OnTokens(Instant now, int count);  // count may be 0
  void OnEnd(Instant now);

 private:
  Metrics* metrics_;
  Instant requested_;
  Instant latest_ = Instant::InfinitePast();  // when the last tokens arrived
};

}  // namespace tandem

#endif  // TANDEM_SERVER_METRICS_METRICS_H_
