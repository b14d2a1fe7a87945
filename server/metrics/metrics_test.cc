#include "server/metrics/metrics.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// An engine whose load the test sets.
class LoadedEngine : public ManualEngine {
 public:
  EngineLoad load() const override { return value; }
  ModelInfo target_info() const override {
    ModelInfo info = ManualEngine::target_info();
    info.kv_cache = "bf16";
    return info;
  }
  std::optional<ModelInfo> draft_info() const override { return draft; }
  EngineLoad value;
  std::optional<ModelInfo> draft{};
};

std::string Line(const std::string& text, const std::string& name) {
  const size_t begin = text.find("\n" + name + " ");
  if (begin == std::string::npos) return "";
  return text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
}

TEST(Metrics, ReportTheEnginesCounts) {
  LoadedEngine engine;
  engine.value.stats.Add(DraftSource::kModel, /*num_proposed=*/3, /*num_accepted=*/2,
                         /*num_emitted=*/3);
  engine.value.stats.Add(DraftSource::kModel, 3, 0, 1);
  engine.value.stats.Add(DraftSource::kModel, 0, 0, 1);
  engine.value.num_running = 2;
  engine.value.num_waiting = 5;
  engine.value.target_pages_in_use = 250;  // of 1000
  engine.value.prompt_tokens = 90;
  engine.value.prefix_queries = 80;
  engine.value.prefix_hits = 48;
  engine.value.draft_prefix_hits = 32;
  engine.value.preemptions = 1;
  engine.value.draft_memory_bytes = 4096;
  engine.value.draft_memory_tenants = 3;
  const std::string text = TextOf(Metrics(), &engine);
  for (const char* line :
       {"tandem_spec_decode_num_drafts_total 2", "tandem_spec_decode_num_draft_tokens_total 6",
        "tandem_spec_decode_num_accepted_tokens_total 2",
        "tandem_spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 1",
        "tandem_spec_decode_num_accepted_tokens_per_pos_total{position=\"2\"} 0",
        "tandem_spec_decode_source_proposed_tokens_total{source=\"model\"} 6",
        "tandem_spec_decode_source_accepted_tokens_total{source=\"model\"} 2",
        "tandem_spec_decode_source_proposed_tokens_total{source=\"lookup\"} 0",
        "tandem_num_requests_running 2", "tandem_num_requests_waiting 5",
        "tandem_kv_cache_usage_ratio{model=\"target\"} 0.25", "tandem_prompt_tokens_total 90",
        "tandem_prefix_cache_queries_total 80", "tandem_prefix_cache_hits_total 48",
        "tandem_draft_prefix_cache_hits_total 32", "tandem_num_preemptions_total 1",
        "tandem_draft_memory_bytes 4096", "tandem_draft_memory_tenants 3",
        "tandem_generation_tokens_total 5"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + line + "\n"));
  }
  EXPECT_THAT(text, Not(HasSubstr("position=\"3\"")));
}

TEST(Metrics, ReportTheDraftsHead) {
  LoadedEngine engine;
  EXPECT_THAT(TextOf(Metrics(), &engine), Not(HasSubstr("draft_head")));
  engine.draft = ModelInfo();
  engine.draft->head_tokens = 8192;
  EXPECT_THAT(TextOf(Metrics(), &engine), HasSubstr("\ntandem_draft_head_tokens 8192\n"));
  EXPECT_THAT(TextOf(Metrics(), &engine), Not(HasSubstr("coverage")));
  engine.draft->head_coverage = 0.75;
  EXPECT_THAT(TextOf(Metrics(), &engine), HasSubstr("\ntandem_draft_head_coverage_ratio 0.75\n"));
}

// Routers and dashboards made for vLLM read these.
TEST(Metrics, UseVllmsNamesIfAsked) {
  LoadedEngine engine;
  engine.value.stats.Add(DraftSource::kModel, /*num_proposed=*/3, /*num_accepted=*/2,
                         /*num_emitted=*/3);
  engine.value.num_running = 2;
  engine.value.target_pages_in_use = 250;  // of 1000
  Metrics both;
  both.ObserveFirstToken(absl::Seconds(2));
  both.CountEnd("stop");
  const std::string text = TextOf(both, &engine, MetricsNames::kBoth);
  for (const char* line :
       {"vllm:num_requests_running{engine=\"0\",model_name=\"story\"} 2",
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"story\"} 0.25",
        "vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",model_name=\"story\","
        "position=\"1\"} 1",
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"story\"} 1",
        "vllm:request_success_total{engine=\"0\",model_name=\"story\",finished_reason=\"stop\"} 1",
        "vllm:cache_config_info{engine=\"0\",model_name=\"story\",block_size=\"16\","
        "num_gpu_blocks=\"1000\",cache_dtype=\"bf16\",enable_prefix_caching=\"True\"} 1",
        "tandem_num_requests_running 2", "tandem_requests_finished_total{reason=\"stop\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + line + "\n"));
  }
  EXPECT_THAT(TextOf(Metrics(), &engine), Not(HasSubstr("vllm")));
  EXPECT_THAT(TextOf(both, &engine, MetricsNames::kVllm), Not(HasSubstr("tandem")));
  EXPECT_FALSE(ParseMetricsNames("other").ok());
}

// Four tokens in two rounds of 30 ms after the first round take 15 ms each, not 30.
TEST(Metrics, TokensOfARoundShareItsTime) {
  Metrics metrics;
  const Instant start = Instant::Now();
  SequenceLatency latency(&metrics, start);
  latency.OnTokens(start + absl::Milliseconds(100), 3);
  latency.OnTokens(start + absl::Milliseconds(130), 2);
  latency.OnTokens(start + absl::Milliseconds(140), 0);
  latency.OnTokens(start + absl::Milliseconds(160), 2);
  latency.OnEnd(start + absl::Milliseconds(170));
  const std::string text = TextOf(metrics);
  EXPECT_EQ(Line(text, "tandem_time_to_first_token_seconds_count"),
            "tandem_time_to_first_token_seconds_count 1");
  EXPECT_EQ(Line(text, "tandem_time_to_first_token_seconds_sum"),
            "tandem_time_to_first_token_seconds_sum 0.1");
  EXPECT_EQ(Line(text, "tandem_inter_token_latency_seconds_count"),
            "tandem_inter_token_latency_seconds_count 4");
  EXPECT_EQ(Line(text, "tandem_inter_token_latency_seconds_sum"),
            "tandem_inter_token_latency_seconds_sum 0.06");
  EXPECT_THAT(text, HasSubstr("tandem_inter_token_latency_seconds_bucket{le=\"0.025\"} 4"));
  EXPECT_EQ(Line(text, "tandem_e2e_request_latency_seconds_sum"),
            "tandem_e2e_request_latency_seconds_sum 0.17");
}

// Row 154 of the bug catalogue.
TEST(Metrics, SpansOfASequenceAddUp) {
  Metrics metrics;
  Timings timings;
  timings.end_to_end = absl::Seconds(40);
  timings.queue = absl::Seconds(4);
  timings.prompt = absl::Seconds(10);
  timings.draft = absl::Seconds(5);
  timings.verify = absl::Seconds(20);
  metrics.ObserveTimings(timings);
  const std::string text = TextOf(metrics, nullptr, MetricsNames::kBoth);
  for (const char* line :
       {"tandem_request_queue_time_seconds_sum 4", "tandem_request_prompt_time_seconds_sum 10",
        "tandem_request_decode_time_seconds_sum 26",
        "tandem_request_decode_part_seconds_total{part=\"draft\"} 5",
        "tandem_request_decode_part_seconds_total{part=\"verify\"} 20",
        "tandem_request_decode_part_seconds_total{part=\"other\"} 1",
        "vllm:request_queue_time_seconds_sum{engine=\"0\",model_name=\"story\"} 4",
        "vllm:request_prefill_time_seconds_sum{engine=\"0\",model_name=\"story\"} 10",
        "vllm:request_decode_time_seconds_sum{engine=\"0\",model_name=\"story\"} 26"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + line + "\n"));
  }
}

TEST(Metrics, InvalidLatenciesAreNotCounted) {
  Metrics metrics;
  for (const absl::Duration none :
       {-absl::Milliseconds(1), absl::InfiniteDuration(), -absl::InfiniteDuration()}) {
    metrics.ObserveFirstToken(none);
    metrics.ObserveTokens(none, 3);
    metrics.ObserveEnd(none);
  }
  metrics.ObserveEnd(absl::ZeroDuration());
  const std::string text = TextOf(metrics);
  for (const auto& [name, count] : {std::make_pair("tandem_time_to_first_token_seconds", 0),
                                    std::make_pair("tandem_inter_token_latency_seconds", 0),
                                    std::make_pair("tandem_e2e_request_latency_seconds", 1)}) {
    EXPECT_EQ(Line(text, absl::StrCat(name, "_count")), absl::StrCat(name, "_count ", count));
    EXPECT_EQ(Line(text, absl::StrCat(name, "_sum")), absl::StrCat(name, "_sum 0"));
  }
}

// Each name is written once; a pair that is not loaded has no counts of its engine.
TEST(Metrics, NameEachOfSeveralPairs) {
  LoadedEngine engine;
  engine.value.num_running = 2;
  Metrics a, b;
  a.CountEnd("stop");
  b.CountEnd("length");
  const PairMetrics pairs[] = {
      {.name = "a", .metrics = &a, .engine = &engine, .counts = {.is_loaded = true, .loads = 3}},
      {.name = "b", .metrics = &b, .counts = {.waiting = 4, .failures = 1}}};
  AnswerCounts answers;
  answers.Count("/health", 200);
  const std::string text =
      MetricsText(pairs, answers, {.names = MetricsNames::kBoth, .has_several = true});
  for (const char* line :
       {"tandem_num_requests_running{pair=\"a\"} 2", "tandem_pair_loads_total{pair=\"a\"} 3",
        "tandem_requests_finished_total{pair=\"a\",reason=\"stop\"} 1",
        "tandem_requests_finished_total{pair=\"b\",reason=\"length\"} 1",
        "tandem_pair_loaded{pair=\"a\"} 1", "tandem_pair_loaded{pair=\"b\"} 0",
        "tandem_pair_requests_waiting{pair=\"b\"} 4",
        "tandem_pair_load_failures_total{pair=\"b\"} 1",
        "tandem_http_responses_total{path=\"/health\",status=\"200\"} 1",
        "vllm:num_requests_running{engine=\"0\",model_name=\"a\"} 2",
        "vllm:request_success_total{engine=\"0\",model_name=\"b\",finished_reason=\"length\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + line + "\n"));
  }
  EXPECT_THAT(text, Not(HasSubstr("tandem_num_requests_running{pair=\"b\"}")));
  const std::string kind = "\n# TYPE tandem_requests_finished_total ";
  EXPECT_EQ(text.find(kind), text.rfind(kind));
}

}  // namespace
}  // namespace tandem
