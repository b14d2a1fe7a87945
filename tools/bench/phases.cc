#include "tools/bench/phases.h"

#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/philox.h"
#include "base/status_macros.h"
#include "model/checkpoint/model_config.h"
#include "tools/bench/bench_commands.h"
#include "tools/bench/operation.h"

namespace tandem {
namespace {

using OrderedJson = JsonValue;

// `field`: the JSON field for a point's number of tokens.
std::vector<OrderedJson> RowsOf(const char* field, bool per_token,
                                const std::vector<PhasePoint>& points) {
  std::vector<OrderedJson> rows;
  for (const PhasePoint& point : points) {
    if (point.series.empty()) continue;
    const LimitedTime time = point.series.Result();
    rows.push_back(
        With({{field, point.tokens}},
             With(LimitedJson(point.demand, time),
                  {{"intensity", point.demand.flops / point.demand.bytes},  // operations per byte
                   {"tokens_per_second", 1e3 * (per_token ? 1 : point.tokens) / time.ms}})));
  }
  return rows;
}

}  // namespace

std::vector<OrderedJson> PhaseCurves::PrefillRows() const {
  return RowsOf("prompt_tokens", /*per_token=*/false, prefill);
}

std::vector<OrderedJson> PhaseCurves::DecodeRows() const {
  return RowsOf("position", /*per_token=*/true, decode);
}

Request RandomRequest(int prompt_length, int max_tokens, int vocab_size, uint64_t seed) {
  const RandomSource random(seed);
  Request request;
  for (uint32_t i = 0; i < static_cast<uint32_t>(prompt_length); ++i) {
    const uint32_t bits = random.Block({.stream = RandomStream::kTarget, .position = i}, 0)[0];
    request.prompt_ids.push_back(static_cast<TokenId>(bits % static_cast<uint32_t>(vocab_size)));
  }
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0.0f;
  request.ignore_eos = true;
  request.draft_tokens = 0;
  return request;
}

absl::StatusOr<PassCounter> PassCounterOf(const EngineOptions& options, const ModelInfo& target) {
  ASSIGN_OR_RETURN(const ModelConfig config,
                   ReadModelConfig(options.target, options.allow_unknown_config));
  const auto dtype =
      absl::c_find_if(kWeightDTypes, [&](DType each) { return target.dtype == NameOf(each); });
  if (dtype == std::end(kWeightDTypes)) {
    return absl::InternalError(absl::StrCat("dtype: ", target.dtype));
  }
  return PassCounter(config, target.bytes_read_per_pass, target.kv_bytes_per_token, *dtype,
                     UsesBf16Products(options.compute));
}

absl::Status MeasurePhases(const PhaseOptions& options, const PassCounter& counter, Engine* engine,
                           MachineLimits* limits, Measuring* measuring, PhaseCurves* curves) {
  for (const int length : options.prompt_lengths) {
    const int middle = length + options.max_tokens / 2;
    curves->prefill.push_back({length, counter.OfPrompt(length, options.chunk_tokens)});
    curves->decode.push_back({middle, counter.Of({.rows = 1, .context = middle, .logit_rows = 1})});
  }
  measuring->Expect(static_cast<int64_t>(options.prompt_lengths.size()) * options.repeat);
  const int vocab_size = engine->target_info().vocab_size;
  // The first pass packs the weights.
  RETURN_IF_ERROR(engine->Generate(RandomRequest(1, 1, vocab_size, 1)).status());
  for (int i = 0; i < options.repeat; ++i) {
    for (size_t j = 0; j < options.prompt_lengths.size(); ++j) {
      RETURN_IF_ERROR(measuring->BeginNext(
          absl::StrCat("measuring a prompt of ", options.prompt_lengths[j], " tokens")));
      ASSIGN_OR_RETURN(
          const Completion completion,
          engine->Generate(RandomRequest(options.prompt_lengths[j], options.max_tokens + 1,
                                         vocab_size, 100 * i + j)));
      const Timings& timings = completion.timings;
      const absl::Duration per_token = timings.TimePerOutputToken(
          static_cast<int>(completion.token_ids.size()), completion.first_round_tokens);
      PhasePoint& prefill = curves->prefill[j];
      PhasePoint& decode = curves->decode[j];
      limits->AddTime(prefill.demand, absl::ToDoubleSeconds(timings.time_to_first_token),
                      &prefill.series);
      limits->AddTime(decode.demand, absl::ToDoubleSeconds(per_token), &decode.series);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
