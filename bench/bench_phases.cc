#include "bench/bench_phases.h"

#include <cstdint>
#include <utility>

#include "absl/time/time.h"
#include "base/philox.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

std::vector<TokenId> RandomPrompt(int length, int vocab_size, uint64_t seed) {
  const RandomSource random(seed);
  std::vector<TokenId> ids;
  for (uint32_t i = 0; i < static_cast<uint32_t>(length); ++i) {
    const uint32_t bits = random.Block({.stream = RandomStream::kTarget, .position = i}, 0)[0];
    ids.push_back(static_cast<TokenId>(bits % static_cast<uint32_t>(vocab_size)));
  }
  return ids;
}

struct Curve {
  PhasePoint point;
  MachineLimits::Series series = {};
};

std::vector<PhasePoint> PointsOf(std::vector<Curve> curves) {
  std::vector<PhasePoint> points;
  for (Curve& curve : curves) {
    curve.point.time = curve.series.Result();
    points.push_back(curve.point);
  }
  return points;
}

}  // namespace

absl::StatusOr<PhaseBenchmark> RunPhaseBenchmark(const PhaseBenchmarkOptions& options,
                                                 const PassCounter& counter, Engine* engine,
                                                 MachineLimits* limits,
                                                 absl::FunctionRef<void()> on_generation) {
  std::vector<Curve> prefill;
  std::vector<Curve> decode;
  for (const int length : options.prompt_lengths) {
    const int middle = length + options.tokens_per_position / 2;
    prefill.push_back(
        {{.tokens = length, .demand = counter.OfPrompt(length, options.chunk_tokens), .time = {}}});
    decode.push_back({{.tokens = middle,
                       .demand = counter.Of({.rows = 1, .context = middle, .logit_rows = 1}),
                       .time = {}}});
  }
  const int vocab_size = engine->target_info().vocab_size;
  // The first pass packs the weights.
  Request first{.prompt_ids = RandomPrompt(1, vocab_size, 1), .max_tokens = 1};
  first.draft_tokens = 0;
  RETURN_IF_ERROR(engine->Generate(std::move(first)).status());
  for (int i = 0; i < options.repeat; ++i) {
    for (size_t j = 0; j < options.prompt_lengths.size(); ++j) {
      Request request;
      request.prompt_ids = RandomPrompt(options.prompt_lengths[j], vocab_size, 100 * i + j);
      request.max_tokens = options.tokens_per_position + 1;
      request.sampling.temperature = 0.0f;
      request.ignore_eos = true;
      request.draft_tokens = 0;
      ASSIGN_OR_RETURN(const Completion completion, engine->Generate(std::move(request)));
      const Timings& timings = completion.timings;
      limits->AddTime(prefill[j].point.demand, absl::ToDoubleSeconds(timings.time_to_first_token),
                      &prefill[j].series);
      limits->AddTime(
          decode[j].point.demand,
          absl::ToDoubleSeconds(timings.TimePerOutputToken(
              static_cast<int>(completion.token_ids.size()), completion.first_round_tokens)),
          &decode[j].series);
      on_generation();
    }
  }
  return PhaseBenchmark{.prefill = PointsOf(std::move(prefill)),
                        .decode = PointsOf(std::move(decode))};
}

}  // namespace tandem
