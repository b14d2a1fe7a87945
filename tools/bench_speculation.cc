#include "tools/bench_speculation.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "verify/round_stats.h"

namespace tandem {
namespace {

// All prompts generated from once, `batch` at a time.
struct Pass {
  absl::Duration time;
  int64_t num_sequences = 0;
  int64_t num_tokens = 0;
  // Sums over the sequences.
  RoundStats stats;
  absl::Duration end_to_end;
  absl::Duration decode_time;  // after the first round
  int64_t decode_tokens = 0;   // likewise
  std::vector<std::vector<TokenId>> outputs;

  double tokens_per_second() const {
    return static_cast<double>(num_tokens) / absl::ToDoubleSeconds(time);
  }
};

// `total` in parts, in ms; 0 of no parts.
double MeanMs(absl::Duration total, int64_t parts) {
  return parts <= 0 ? 0.0 : absl::ToDoubleMilliseconds(total) / static_cast<double>(parts);
}

class Benchmark {
 public:
  Benchmark(const SpeculationBenchmarkOptions& options, Engine* engine,
            absl::FunctionRef<void()> on_pass)
      : options_(options), engine_(*engine), on_pass_(on_pass) {}

  absl::StatusOr<SpeculationBenchmark> Run() {
    SpeculationBenchmark result;
    RETURN_IF_ERROR(MeasurePlain(&result.plain));
    for (const int batch : options_.batches) {
      // What the first round of a sequence costs, to leave it out of the means: a pass that ends
      // with it tells the target's share, and one with a single draft token the draft's.
      ASSIGN_OR_RETURN(const Pass prompts_only, RunPass(0, batch, /*max_tokens=*/1));
      ASSIGN_OR_RETURN(const Pass one_draft, RunPass(1, batch, /*max_tokens=*/2));
      for (const int draft_tokens : options_.draft_tokens) {
        ASSIGN_OR_RETURN(SpeculationRun run,
                         RunPairs(draft_tokens, batch, prompts_only, one_draft));
        result.runs.push_back(run);
      }
    }
    return result;
  }

 private:
  absl::Status MeasurePlain(PlainDecoding* plain) {
    std::vector<double> speeds;
    Pass all;
    for (int i = 0; i < options_.repeat; ++i) {
      ASSIGN_OR_RETURN(const Pass pass, RunPass(0, 1, options_.max_tokens));
      speeds.push_back(pass.tokens_per_second());
      all.decode_time += pass.decode_time;
      all.decode_tokens += pass.decode_tokens;
    }
    plain->tokens_per_second = SpreadOf(std::move(speeds));
    plain->step_ms = MeanMs(all.decode_time, all.decode_tokens);
    return absl::OkStatus();
  }

  absl::StatusOr<SpeculationRun> RunPairs(int draft_tokens, int batch, const Pass& prompts_only,
                                          const Pass& one_draft) {
    std::vector<double> plain_speeds;
    std::vector<double> speeds;
    std::vector<double> ratios;
    Pass all_plain;
    Pass all;
    SpeculationRun run;
    run.draft_tokens = draft_tokens;
    run.batch = batch;
    for (int pair = 0; pair < options_.repeat; ++pair) {
      Pass plain;
      Pass speculative;
      for (const bool speculates : {pair % 2 == 1, pair % 2 == 0}) {
        ASSIGN_OR_RETURN(Pass pass,
                         RunPass(speculates ? draft_tokens : 0, batch, options_.max_tokens));
        (speculates ? speculative : plain) = std::move(pass);
      }
      plain_speeds.push_back(plain.tokens_per_second());
      speeds.push_back(speculative.tokens_per_second());
      ratios.push_back(speeds.back() / plain_speeds.back());
      run.identical = run.identical && plain.outputs == speculative.outputs;
      Add(plain, &all_plain);
      Add(speculative, &all);
    }
    run.plain_tokens_per_second = SpreadOf(std::move(plain_speeds));
    run.tokens_per_second = SpreadOf(std::move(speeds));
    run.ratio = SpreadOf(std::move(ratios));
    run.plain_step_ms = MeanMs(all_plain.decode_time, all_plain.decode_tokens);
    SetRoundTimes(all, prompts_only, one_draft, &run);
    return run;
  }

  static void Add(const Pass& pass, Pass* sum) {
    sum->num_sequences += pass.num_sequences;
    sum->stats += pass.stats;
    sum->end_to_end += pass.end_to_end;
    sum->decode_time += pass.decode_time;
    sum->decode_tokens += pass.decode_tokens;
  }

  void SetRoundTimes(const Pass& all, const Pass& prompts_only, const Pass& one_draft,
                     SpeculationRun* run) const {
    const RoundStats& stats = all.stats;
    run->acceptance_rate = stats.AcceptanceRate();
    run->tokens_per_round = stats.TokensPerRound();
    run->drafted_per_round =
        stats.rounds == 0 ? 0.0
                          : static_cast<double>(stats.proposed) / static_cast<double>(stats.rounds);
    const int64_t rounds = stats.rounds - all.num_sequences;
    run->verify_ms =
        MeanMs(stats.verify_time - prompts_only.stats.verify_time * options_.repeat, rounds);
    if (stats.proposed > 0) {
      run->draft_step_ms = MeanMs(stats.draft_time - one_draft.stats.draft_time * options_.repeat,
                                  stats.proposed - one_draft.stats.proposed * options_.repeat);
    }
    const absl::Duration known = stats.prefill_time + stats.draft_time + stats.verify_time;
    run->other_ms = MeanMs(all.end_to_end - known, stats.rounds);
  }

  absl::StatusOr<Pass> RunPass(int draft_tokens, int batch, int max_tokens) {
    const int num_prompts = static_cast<int>(options_.prompts.size());
    // Every group is full: the first prompts come again in the last one.
    const int num_sequences = (num_prompts + batch - 1) / batch * batch;
    Pass pass;
    const absl::Time start = absl::Now();
    for (int first = 0; first < num_sequences; first += batch) {
      RETURN_IF_ERROR(RunGroup(first, batch, draft_tokens, max_tokens, &pass));
    }
    pass.time = absl::Now() - start;
    on_pass_();
    return pass;
  }

  absl::Status RunGroup(int first, int batch, int draft_tokens, int max_tokens, Pass* pass) {
    absl::Status status;
    std::vector<GenerationId> ids;
    for (int i = first; status.ok() && i < first + batch; ++i) {
      absl::StatusOr<GenerationId> id =
          engine_.Submit(RequestFor(i, draft_tokens, max_tokens), nullptr);
      if (id.ok()) ids.push_back(*id);
      status = id.status();
    }
    for (const GenerationId id : ids) {
      if (!status.ok()) engine_.Cancel(id);
      absl::StatusOr<Completion> completion = engine_.Wait(id);
      status.Update(completion.status());
      if (status.ok()) Count(*std::move(completion), pass);
    }
    return status;
  }

  Request RequestFor(int sequence, int draft_tokens, int max_tokens) const {
    const Prompt& prompt = options_.prompts[sequence % options_.prompts.size()];
    Request request;
    request.prompt = prompt.text;
    request.prompt_ids = prompt.ids;
    request.max_tokens = max_tokens;
    request.sampling.temperature = options_.temperature;
    request.ignore_eos = true;
    request.draft_tokens = draft_tokens;
    return request;
  }

  static void Count(Completion completion, Pass* pass) {
    const Timings& timings = completion.timings;
    const int64_t num_tokens = static_cast<int64_t>(completion.token_ids.size());
    ++pass->num_sequences;
    pass->num_tokens += num_tokens;
    pass->stats += completion.stats;
    pass->end_to_end += timings.end_to_end;
    pass->decode_time += timings.end_to_end - timings.time_to_first_token;
    pass->decode_tokens += num_tokens - completion.first_round_tokens;
    pass->outputs.push_back(std::move(completion.token_ids));
  }

  const SpeculationBenchmarkOptions& options_;
  Engine& engine_;
  absl::FunctionRef<void()> on_pass_;
};

}  // namespace

Spread SpreadOf(std::vector<double> values) {
  TANDEM_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

int NumPasses(const SpeculationBenchmarkOptions& options) {
  const int num_batches = static_cast<int>(options.batches.size());
  const int num_pairs =
      num_batches * static_cast<int>(options.draft_tokens.size()) * options.repeat;
  return options.repeat + 2 * num_batches + 2 * num_pairs;
}

absl::StatusOr<SpeculationBenchmark> RunSpeculationBenchmark(
    const SpeculationBenchmarkOptions& options, Engine* engine, absl::FunctionRef<void()> on_pass) {
  return Benchmark(options, engine, on_pass).Run();
}

}  // namespace tandem
