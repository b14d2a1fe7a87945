#include "server/metrics/metrics.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/named_values.h"
#include "engine/report_json.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace tandem {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr NamedValues<MetricsNames, 3> kMetricsNames = {{{MetricsNames::kTandem, "tandem"},
                                                         {MetricsNames::kVllm, "vllm"},
                                                         {MetricsNames::kBoth, "both"}}};

// In seconds: from a small model on a CPU, 0.1 ms per token, to a large one with a long prompt.
const prometheus::Histogram::BucketBoundaries& TokenBuckets() {
  static const auto* const buckets = new prometheus::Histogram::BucketBoundaries{
      0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5};
  return *buckets;
}
const prometheus::Histogram::BucketBoundaries& RequestBuckets() {
  static const auto* const buckets = new prometheus::Histogram::BucketBoundaries{
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
  return *buckets;
}

using Labels = std::vector<ClientMetric::Label>;

MetricFamily NewFamily(const char* name, const char* help, MetricType type) {
  return {name, help, type, {}};
}

void AddValue(double value, Labels labels, MetricFamily* family) {
  ClientMetric metric;
  metric.label = std::move(labels);
  (family->type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  family->metric.push_back(std::move(metric));
}

MetricFamily Single(const char* name, const char* help, MetricType type, double value) {
  MetricFamily family = NewFamily(name, help, type);
  AddValue(value, {}, &family);
  return family;
}

MetricFamily Counter(const char* name, const char* help, int64_t value) {
  return Single(name, help, MetricType::Counter, static_cast<double>(value));
}
MetricFamily Gauge(const char* name, const char* help, int64_t value) {
  return Single(name, help, MetricType::Gauge, static_cast<double>(value));
}

void Append(std::vector<MetricFamily> more, std::vector<MetricFamily>* families) {
  for (MetricFamily& family : more) families->push_back(std::move(family));
}

double Ratio(int part, int whole) { return whole == 0 ? 0.0 : static_cast<double>(part) / whole; }

MetricFamily CacheUsage(const Engine& engine, const EngineLoad& load) {
  MetricFamily usage =
      NewFamily("tandem_kv_cache_usage_ratio", "Share of the cache's pages that sequences use",
                MetricType::Gauge);
  AddValue(Ratio(load.target_pages_in_use, engine.target_info().num_pages), {{"model", "target"}},
           &usage);
  if (const auto draft = engine.draft_info(); draft.has_value()) {
    AddValue(Ratio(load.draft_pages_in_use, draft->num_pages), {{"model", "draft"}}, &usage);
  }
  return usage;
}

// Returns the layout of the target's cache, as labels of a constant.
MetricFamily CacheConfig(const Engine& engine, bool prefix_cache) {
  const ModelInfo target = engine.target_info();
  MetricFamily family = NewFamily("tandem_cache_config_info",
                                  "Layout of the target's cache, as labels", MetricType::Gauge);
  AddValue(1,
           {{"block_size", absl::StrCat(target.page_size)},
            {"num_gpu_blocks", absl::StrCat(target.num_pages)},
            {"cache_dtype", target.kv_cache},
            {"enable_prefix_caching", prefix_cache ? "True" : "False"}},
           &family);
  return family;
}

// Metrics of the draft model's head; empty without a draft model.
std::vector<MetricFamily> DraftHeadMetrics(const Engine& engine) {
  std::vector<MetricFamily> families;
  const std::optional<ModelInfo> draft = engine.draft_info();
  if (!draft.has_value()) return families;
  families.push_back(
      Gauge("tandem_draft_head_tokens", "Tokens that the draft can propose", draft->head_tokens));
  if (draft->head_coverage.has_value()) {
    families.push_back(Single("tandem_draft_head_coverage_ratio",
                              "Share of output tokens that the draft's head can propose",
                              MetricType::Gauge, *draft->head_coverage));
  }
  return families;
}

MetricFamily AcceptedPerPosition(const RoundStats& stats) {
  MetricFamily family =
      NewFamily("tandem_spec_decode_num_accepted_tokens_per_pos_total",
                "Accepted draft tokens by position in the draft, from 0", MetricType::Counter);
  for (int i = 0; i < NumDraftPlaces(stats); ++i) {
    AddValue(static_cast<double>(stats.accepted_at[i]), {{"position", absl::StrCat(i)}}, &family);
  }
  return family;
}

// Returns the counters of one count of draft tokens, by source.
MetricFamily BySource(const char* name, const char* help, const RoundStats& stats,
                      int64_t RoundStats::SourceCounts::*count) {
  MetricFamily family = NewFamily(name, help, MetricType::Counter);
  for (int i = 0; i < kNumDraftSources; ++i) {
    const auto source = static_cast<DraftSource>(i);
    AddValue(static_cast<double>(stats.Of(source).*count),
             {{"source", std::string(NameOf(source))}}, &family);
  }
  return family;
}

void Observe(absl::Duration latency, prometheus::Histogram* histogram) {
  if (latency < absl::ZeroDuration() || latency == absl::InfiniteDuration()) return;
  histogram->Observe(absl::ToDoubleSeconds(latency));
}

std::vector<MetricFamily> TransferMetrics(const TransferCounts& counts) {
  return {
      Counter("tandem_kv_transfer_pages_sent_total", "Pages sent to other workers",
              counts.pages_sent),
      Counter("tandem_kv_transfer_bytes_sent_total", "Bytes of pages sent to other workers",
              counts.bytes_sent),
      Counter("tandem_kv_transfer_pages_received_total", "Pages fetched from other workers",
              counts.pages_received),
      Counter("tandem_kv_transfer_bytes_received_total",
              "Bytes of pages fetched from other workers", counts.bytes_received),
      Counter("tandem_kv_transfer_pages_hit_total", "Fetched pages that a prompt reused",
              counts.pages_hit),
      Counter("tandem_kv_transfer_pages_missing_total",
              "Requested pages that the other worker did not have any more", counts.pages_missing),
      Counter("tandem_kv_transfer_pages_damaged_total",
              "Pages that arrived damaged, and were computed again", counts.pages_damaged),
      Counter("tandem_kv_transfer_pages_dropped_total",
              "Pages not kept for other workers, because memory was short", counts.pages_dropped),
      Counter("tandem_kv_transfers_total", "Attempts to fetch a prompt", counts.transfers),
      Counter("tandem_kv_transfers_failed_total", "Attempts to fetch a prompt that failed",
              counts.transfers_failed),
      Counter("tandem_kv_transfer_peers_refused_total",
              "Connections refused for another secret, model, build or version",
              counts.peers_refused),
      Counter("tandem_kv_transfer_leases_expired_total", "Prompts that were not fetched in time",
              counts.leases_expired),
      Counter("tandem_kv_transfer_leases_evicted_total", "Prompts evicted to keep later ones",
              counts.leases_evicted),
      Gauge("tandem_kv_transfer_leases", "Prompts kept for other workers", counts.leases),
      Gauge("tandem_kv_transfer_leased_bytes", "Memory of the prompts kept for other workers",
            counts.leased_bytes),
      Single("tandem_kv_transfer_receiving_seconds_total", "Time spent fetching prompts",
             MetricType::Counter, counts.receiving_seconds)};
}

// Returns all metrics that the engine counts itself.
std::vector<MetricFamily> OfEngine(const Engine& engine) {
  const EngineLoad load = engine.load();
  // A round with a draft is one that verified the draft's first token.
  std::vector<MetricFamily> families = {
      Counter("tandem_spec_decode_num_drafts_total", "Rounds that verified a draft",
              load.stats.proposed_at[0]),
      Counter("tandem_spec_decode_num_draft_tokens_total", "Draft tokens verified",
              load.stats.proposed),
      Counter("tandem_spec_decode_num_accepted_tokens_total", "Draft tokens accepted",
              load.stats.accepted),
      AcceptedPerPosition(load.stats),
      BySource("tandem_spec_decode_source_proposed_tokens_total",
               "Draft tokens verified, by their source", load.stats,
               &RoundStats::SourceCounts::proposed),
      BySource("tandem_spec_decode_source_accepted_tokens_total",
               "Draft tokens accepted, by their source", load.stats,
               &RoundStats::SourceCounts::accepted),
      Gauge("tandem_num_requests_running", "Running sequences", load.num_running),
      Gauge("tandem_num_requests_waiting", "Sequences that wait to be admitted", load.num_waiting),
      CacheUsage(engine, load),
      Counter("tandem_prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache",
              load.prefix_queries),
      Counter("tandem_prefix_cache_hits_total", "Prompt tokens found in the prefix cache",
              load.prefix_hits),
      Counter("tandem_draft_prefix_cache_hits_total",
              "Tokens found in the draft model's own prefix cache", load.draft_prefix_hits),
      Counter("tandem_kv_store_pages_written_total", "Pages of both caches written to the store",
              load.store.pages_written),
      Counter("tandem_kv_store_bytes_written_total", "Bytes of pages written to the store",
              load.store.bytes_written),
      Counter("tandem_kv_store_pages_read_total", "Pages read from the store",
              load.store.pages_read),
      Counter("tandem_kv_store_bytes_read_total", "Bytes of pages read from the store",
              load.store.bytes_read),
      Counter("tandem_kv_store_pages_hit_total", "Read pages that a prompt reused",
              load.store.pages_hit),
      Counter("tandem_kv_store_pages_evicted_total", "Pages evicted from the store",
              load.store.pages_evicted),
      Counter("tandem_kv_store_pages_dropped_total",
              "Pages not written: too many waited, or the store failed", load.store.pages_dropped),
      Counter("tandem_kv_store_pages_damaged_total",
              "Pages that were damaged in the store, and were computed again",
              load.store.pages_damaged),
      Counter("tandem_kv_event_batches_published_total", "Batches of cache events published",
              load.kv_events.batches_published),
      Counter("tandem_kv_event_batches_lost_total",
              "Batches of cache events lost: too many waited, or memory was short",
              load.kv_events.batches_lost),
      Counter("tandem_num_preemptions_total", "Times that a sequence was preempted",
              load.preemptions),
      Gauge("tandem_draft_memory_bytes", "Memory used to draft from earlier texts",
            load.draft_memory_bytes),
      Gauge("tandem_draft_text_bytes", "Memory used by texts that were given to draft from",
            load.draft_text_bytes),
      Gauge("tandem_draft_memory_tenants", "Tenants whose earlier texts are drafted from",
            load.draft_memory_tenants),
      Counter("tandem_prompt_tokens_total", "Prompt tokens of started sequences",
              load.prompt_tokens),
      Counter("tandem_generation_tokens_total", "Tokens generated", load.stats.emitted)};
  Append(TransferMetrics(load.transfer), &families);
  Append(DraftHeadMetrics(engine), &families);
  return families;
}

constexpr std::pair<std::string_view, std::string_view> kVllmNames[] = {
    {"tandem_spec_decode_num_drafts_total", "vllm:spec_decode_num_drafts_total"},
    {"tandem_spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total"},
    {"tandem_spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"},
    {"tandem_spec_decode_num_accepted_tokens_per_pos_total",
     "vllm:spec_decode_num_accepted_tokens_per_pos_total"},
    {"tandem_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
    {"tandem_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"},
    {"tandem_e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"},
    {"tandem_request_queue_time_seconds", "vllm:request_queue_time_seconds"},
    {"tandem_request_prompt_time_seconds", "vllm:request_prefill_time_seconds"},
    {"tandem_request_decode_time_seconds", "vllm:request_decode_time_seconds"},
    {"tandem_num_requests_running", "vllm:num_requests_running"},
    {"tandem_num_requests_waiting", "vllm:num_requests_waiting"},
    {"tandem_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"},
    {"tandem_prefix_cache_queries_total", "vllm:prefix_cache_queries_total"},
    {"tandem_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"},
    {"tandem_num_preemptions_total", "vllm:num_preemptions_total"},
    {"tandem_prompt_tokens_total", "vllm:prompt_tokens_total"},
    {"tandem_generation_tokens_total", "vllm:generation_tokens_total"},
    {"tandem_requests_finished_total", "vllm:request_success_total"},
    {"tandem_cache_config_info", "vllm:cache_config_info"}};

// Renames labels to vLLM's. Drops the draft's cache, which vLLM has no metric for.
void TakeVllmLabels(const std::string& model_name, MetricFamily* family) {
  std::erase_if(family->metric, [](const ClientMetric& metric) {
    return absl::c_linear_search(metric.label, ClientMetric::Label{"model", "draft"});
  });
  for (ClientMetric& metric : family->metric) {
    Labels labels = {{"engine", "0"}, {"model_name", model_name}};
    for (ClientMetric::Label& label : metric.label) {
      if (label.name == "model") continue;
      if (label.name == "reason") label.name = "finished_reason";
      labels.push_back(std::move(label));
    }
    metric.label = std::move(labels);
  }
}

// Returns those of `families` that vLLM also has, with its names and its labels `engine` and
// `model_name`, which routers, autoscalers and dashboards know.
std::vector<MetricFamily> UnderVllmNames(const std::vector<MetricFamily>& families,
                                         const std::string& model_name) {
  std::vector<MetricFamily> renamed;
  for (const MetricFamily& family : families) {
    const auto* found =
        absl::c_find_if(kVllmNames, [&](const auto& pair) { return pair.first == family.name; });
    if (found == std::end(kVllmNames)) continue;
    renamed.push_back(family);
    renamed.back().name = std::string(found->second);
    TakeVllmLabels(model_name, &renamed.back());
  }
  return renamed;
}

std::vector<MetricFamily> LoadMetrics(const PairCounts& counts) {
  return {
      Gauge("tandem_pair_loaded", "Whether the pair is loaded", counts.is_loaded ? 1 : 0),
      Gauge("tandem_pair_requests_waiting", "Requests that wait until the pair is loaded",
            counts.waiting),
      Gauge("tandem_pair_planned_bytes", "Memory that was planned for the loaded pair",
            counts.planned_bytes),
      Counter("tandem_pair_loads_total", "Loads of the pair", counts.loads),
      Counter("tandem_pair_load_failures_total", "Loads of the pair that failed", counts.failures),
      Counter("tandem_pair_unloads_total", "Times that the pair was unloaded", counts.unloads),
      Single("tandem_pair_load_seconds_total", "Time spent loading the pair", MetricType::Counter,
             counts.load_seconds)};
}

void AddPairLabel(const std::string& name, MetricFamily* family) {
  for (ClientMetric& metric : family->metric) {
    metric.label.insert(metric.label.begin(), ClientMetric::Label{"pair", name});
  }
}

// Appends the metrics of families that are already there to these: the text names each once.
void Merge(std::vector<MetricFamily> more, std::vector<MetricFamily>* families) {
  for (MetricFamily& family : more) {
    const auto found = absl::c_find_if(
        *families, [&](const MetricFamily& other) { return other.name == family.name; });
    if (found == families->end()) {
      families->push_back(std::move(family));
      continue;
    }
    for (ClientMetric& metric : family.metric) found->metric.push_back(std::move(metric));
  }
}

}  // namespace

absl::StatusOr<MetricsNames> ParseMetricsNames(std::string_view name) {
  return ValueOf(kMetricsNames, "--metrics-names", name);
}

struct Metrics::Families {
  prometheus::Registry registry;
  prometheus::Histogram* Latency(const char* name, const char* help,
                                 const prometheus::Histogram::BucketBoundaries& buckets) {
    return &prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
  }
  prometheus::Histogram* first_token =
      Latency("tandem_time_to_first_token_seconds",
              "From the request to the first token of a sequence", RequestBuckets());
  prometheus::Histogram* inter_token =
      Latency("tandem_inter_token_latency_seconds",
              "Between tokens; the tokens of a round share its time evenly", TokenBuckets());
  prometheus::Histogram* end_to_end =
      Latency("tandem_e2e_request_latency_seconds", "From the request to the end of a sequence",
              RequestBuckets());
  prometheus::Histogram* queue =
      Latency("tandem_request_queue_time_seconds",
              "From a sequence's submission to its first admission", RequestBuckets());
  prometheus::Histogram* prompt =
      Latency("tandem_request_prompt_time_seconds",
              "From the first admission to the end of the pass that completes the prompt",
              RequestBuckets());
  prometheus::Histogram* decode = Latency(
      "tandem_request_decode_time_seconds",
      "From the end of the prompt's last pass to the end of the sequence", RequestBuckets());
  prometheus::Family<prometheus::Counter>* Counts(const char* name, const char* help) {
    return &prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  prometheus::Family<prometheus::Counter>* decode_parts = Counts(
      "tandem_request_decode_part_seconds_total", "Decode time of sequences by kind of work");
  prometheus::Counter* draft = &decode_parts->Add({{"part", "draft"}});
  prometheus::Counter* verify = &decode_parts->Add({{"part", "verify"}});
  prometheus::Counter* other = &decode_parts->Add({{"part", "other"}});
  prometheus::Family<prometheus::Counter>* ends =
      Counts("tandem_requests_finished_total", "Sequences by what ended them");
};

Metrics::Metrics() : families_(std::make_unique<Families>()) {}
Metrics::~Metrics() = default;

void Metrics::ObserveFirstToken(absl::Duration since_request) {
  Observe(since_request, families_->first_token);
}
void Metrics::ObserveTokens(absl::Duration each, int count) {
  for (int i = 0; i < count; ++i) Observe(each, families_->inter_token);
}
void Metrics::ObserveEnd(absl::Duration since_request) {
  Observe(since_request, families_->end_to_end);
}
void Metrics::ObserveTimings(const Timings& timings) {
  Observe(timings.queue, families_->queue);
  Observe(timings.prompt, families_->prompt);
  Observe(timings.decode(), families_->decode);
  families_->draft->Increment(absl::ToDoubleSeconds(timings.draft));
  families_->verify->Increment(absl::ToDoubleSeconds(timings.verify));
  families_->other->Increment(absl::ToDoubleSeconds(timings.other()));
}
void Metrics::CountEnd(const std::string& reason) {
  families_->ends->Add({{"reason", reason}}).Increment();
}

std::vector<MetricFamily> Metrics::Collect() const { return families_->registry.Collect(); }

struct AnswerCounts::Families {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>* answers = &prometheus::BuildCounter()
                                                          .Name("tandem_http_responses_total")
                                                          .Help("Answers by path and status")
                                                          .Register(registry);
};

AnswerCounts::AnswerCounts() : families_(std::make_unique<Families>()) {}
AnswerCounts::~AnswerCounts() = default;

void AnswerCounts::Count(const std::string& path, int status) {
  families_->answers->Add({{"path", path}, {"status", absl::StrCat(status)}}).Increment();
}
std::vector<MetricFamily> AnswerCounts::Collect() const { return families_->registry.Collect(); }

std::string MetricsText(absl::Span<const PairMetrics> pairs, const AnswerCounts& answers,
                        const MetricsTextOptions& options) {
  std::vector<MetricFamily> families;
  std::vector<MetricFamily> vllms;
  for (const PairMetrics& pair : pairs) {
    std::vector<MetricFamily> own;
    if (pair.engine != nullptr) {
      own = OfEngine(*pair.engine);
      own.push_back(CacheConfig(*pair.engine, pair.prefix_cache));
    }
    Append(pair.metrics->Collect(), &own);
    if (options.names != MetricsNames::kTandem) Merge(UnderVllmNames(own, pair.name), &vllms);
    if (options.has_several) {
      Append(LoadMetrics(pair.counts), &own);
      for (MetricFamily& family : own) AddPairLabel(pair.name, &family);
    }
    Merge(std::move(own), &families);
  }
  Append(answers.Collect(), &families);
  if (options.names == MetricsNames::kVllm) families.clear();
  Append(std::move(vllms), &families);
  return prometheus::TextSerializer().Serialize(families);
}

void SequenceLatency::OnTokens(Instant now, int count) {
  if (count == 0) return;
  const bool is_first = latest_ == Instant::InfinitePast();
  if (is_first) {
    metrics_->ObserveFirstToken(now - requested_);
  } else {
    metrics_->ObserveTokens((now - latest_) / count, count);
  }
  latest_ = now;
}

void SequenceLatency::OnEnd(Instant now) { metrics_->ObserveEnd(now - requested_); }

}  // namespace tandem
