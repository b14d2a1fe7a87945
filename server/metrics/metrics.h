#ifndef TANDEM_SERVER_METRICS_METRICS_H_
#define TANDEM_SERVER_METRICS_METRICS_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "tandem/engine.h"

namespace tandem {

// The naming schemes of metrics.
enum class MetricsNames { kTandem, kVllm, kBoth };
// Parses "tandem", "vllm" or "both". Returns INVALID_ARGUMENT, naming the option, for other names.
absl::StatusOr<MetricsNames> ParseMetricsNames(std::string_view name);

struct MetricsOptions {
  MetricsNames names = MetricsNames::kTandem;
  std::string model_name{};  // for vLLM's labels
  bool prefix_cache = true;
};

// The metrics for Prometheus: latencies observed here, and counts and gauges read from the engine
// when the text is made. docs/server/metrics.md has the names and definitions. Thread-safe.
class Metrics {
 public:
  explicit Metrics(const Engine* engine,  // must outlive the metrics
                   MetricsOptions options = MetricsOptions());
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
  void CountAnswer(const std::string& path, int status);

  // Returns the metrics in Prometheus' text format.
  std::string Text() const;

 private:
  struct Families;
  const Engine* engine_;
  const MetricsOptions options_;
  std::unique_ptr<Families> families_;
};

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
