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

// Whose names metrics have.
enum class MetricsNames { kTandem, kVllm, kBoth };
// "tandem", "vllm", "both". INVALID_ARGUMENT naming the option for others.
absl::StatusOr<MetricsNames> ParseMetricsNames(std::string_view name);

struct MetricsOptions {
  MetricsNames names = MetricsNames::kTandem;
  std::string model_name{};  // for vLLM's labels
  bool prefix_cache = true;
};

// What Prometheus reads: latencies observed here, and counts and gauges asked of the engine at the
// moment of reading. Names and definitions: docs/metrics.md. Thread-safe.
class Metrics {
 public:
  explicit Metrics(const Engine* engine,  // which must outlive it
                   MetricsOptions options = MetricsOptions());
  ~Metrics();

  // Latencies that are negative or not finite are not counted.
  void ObserveFirstToken(absl::Duration since_request);
  // `count` tokens, each `each` after the one before.
  void ObserveTokens(absl::Duration each, int count);
  void ObserveEnd(absl::Duration since_request);
  // The spans of a sequence that has ended.
  void ObserveTimings(const Timings& timings);
  // A sequence that came to its end, by NameOf(FinishReason).
  void CountEnd(const std::string& reason);
  void CountAnswer(const std::string& path, int status);

  // In Prometheus' text format.
  std::string Text() const;

 private:
  struct Families;
  const Engine* engine_;
  const MetricsOptions options_;
  std::unique_ptr<Families> families_;
};

// The latencies of one sequence. Tokens that come together share the time since those before them
// evenly: the mean latency is the time of decoding over the tokens decoded, however many a round
// brings. Thread-compatible.
class SequenceLatency {
 public:
  SequenceLatency(Metrics* metrics, Instant requested) : metrics_(metrics), requested_(requested) {}
  void OnTokens(Instant now, int count);  // count may be 0
  void OnEnd(Instant now);

 private:
  Metrics* metrics_;
  Instant requested_;
  Instant latest_ = Instant::InfinitePast();  // when tokens came last
};

}  // namespace tandem

#endif  // TANDEM_SERVER_METRICS_METRICS_H_
