#include "server/metrics/metrics_names.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace tandem {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;

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

ClientMetric::Label VllmLabel(std::string name, std::string value) {
  ClientMetric::Label label;
  label.name = std::move(name);
  label.value = std::move(value);
  return label;
}

// Without the draft's cache, which vLLM has no place for.
void TakeVllmLabels(const std::string& model_name, MetricFamily* family) {
  const auto is_of_draft = [](const ClientMetric& metric) {
    return std::any_of(metric.label.begin(), metric.label.end(), [](const auto& label) {
      return label.name == "model" && label.value == "draft";
    });
  };
  std::vector<ClientMetric>& metrics = family->metric;
  metrics.erase(std::remove_if(metrics.begin(), metrics.end(), is_of_draft), metrics.end());
  for (ClientMetric& metric : metrics) {
    std::vector<ClientMetric::Label> labels = {VllmLabel("engine", "0"),
                                               VllmLabel("model_name", model_name)};
    for (ClientMetric::Label& label : metric.label) {
      if (label.name == "model") continue;
      if (label.name == "reason") label.name = "finished_reason";
      labels.push_back(std::move(label));
    }
    metric.label = std::move(labels);
  }
}

}  // namespace

std::vector<MetricFamily> UnderVllmNames(const std::vector<MetricFamily>& families,
                                         const std::string& model_name) {
  std::vector<MetricFamily> renamed;
  for (const MetricFamily& family : families) {
    const auto* found = std::find_if(std::begin(kVllmNames), std::end(kVllmNames),
                                     [&](const auto& pair) { return pair.first == family.name; });
    if (found == std::end(kVllmNames)) continue;
    renamed.push_back(family);
    renamed.back().name = std::string(found->second);
    TakeVllmLabels(model_name, &renamed.back());
  }
  return renamed;
}

}  // namespace tandem
