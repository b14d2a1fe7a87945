#include "tools/bench/bench_speculation.h"

#include <iterator>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/instant.h"
#include "base/status_macros.h"
#include "tandem/round_stats.h"

namespace tandem {
namespace {

// Returns total / parts in ms; 0 if `parts` is not positive.
double MeanMs(absl::Duration total, int64_t parts) {
  return parts <= 0 ? 0.0 : absl::ToDoubleMilliseconds(total) / static_cast<double>(parts);
}

// A plain and a speculative pass, and one pass each that measures their first rounds.
constexpr int kPassesOfPair = 4;

// Interval at which to call the callback while a group runs.
constexpr absl::Duration kBetweenChecks = absl::Milliseconds(50);

// One pass over all prompts, `batch` at a time.
struct Pass {
  absl::Duration time = absl::ZeroDuration();
  int64_t num_sequences = 0;
  int64_t num_tokens = 0;
  // Sums over the sequences.
  RoundStats stats;
  absl::Duration end_to_end;
  absl::Duration decode_time;  // after the first round
  int64_t decode_tokens = 0;   // after the first round
  std::vector<std::vector<TokenId>> outputs;

  double tokens_per_second() const {
    return static_cast<double>(num_tokens) / absl::ToDoubleSeconds(time);
  }
  // Time per token after the first round.
  double step_ms() const { return MeanMs(decode_time, decode_tokens); }
  // Time per round outside of draft and target.
  double other_ms() const {
    return MeanMs(end_to_end - stats.prefill_time - stats.draft_time - stats.verify_time,
                  stats.rounds);
  }
};

Spread SpreadOver(const std::vector<Pass>& passes, double (Pass::*value)() const) {
  std::vector<double> values;
  for (const Pass& pass : passes) values.push_back((pass.*value)());
  return SpreadOf(std::move(values));
}

// Whether extra plain passes at batch 1 are needed, because no pair has batch 1.
bool NeedsPlainPasses(const SpeculationBenchmarkOptions& options) {
  return !absl::c_linear_search(options.batches, 1);
}

// Every group is full: the last one repeats the first prompts if necessary.
int GroupsOf(const SpeculationBenchmarkOptions& options, int batch) {
  return (static_cast<int>(options.prompts.size()) + batch - 1) / batch;
}

class Benchmark {
 public:
  Benchmark(const SpeculationBenchmarkOptions& options, Engine* engine,
            const SpeculationCallbacks& callbacks, SpeculationBenchmark* result)
      : options_(options), engine_(*engine), callbacks_(callbacks), result_(*result) {}

  absl::Status Run() {
    std::vector<Pass> plain;  // at batch 1
    absl::Status status = Run(&plain);
    if (!plain.empty()) {
      result_.plain = {.tokens_per_second = SpreadOver(plain, &Pass::tokens_per_second),
                       .step_ms = SpreadOver(plain, &Pass::step_ms).median};
    }
    return status;
  }

 private:
  // Adds the plain passes at batch 1 to *plain.
  absl::Status Run(std::vector<Pass>* plain) {
    // The first pass of the target, and of the draft, is always slow: it packs the weights.
    RETURN_IF_ERROR(RunPlainPass().status());
    if (!options_.draft_tokens.empty()) {
      Pass one_draft;
      RETURN_IF_ERROR(RunGroup(0, 1, 1, /*max_tokens=*/2, &one_draft));
    }
    for (const int batch : options_.batches) {
      std::vector<Pairs> all_pairs(options_.draft_tokens.size());
      const absl::Status status = RunPairs(batch, &all_pairs);
      for (size_t j = 0; j < all_pairs.size() && !all_pairs[j].plain.empty(); ++j) {
        Pairs& pairs = all_pairs[j];
        result_.runs.push_back(Summary(pairs, options_.draft_tokens[j], batch));
        callbacks_.on_run(result_.runs.back());
        if (batch == 1) {
          std::move(pairs.plain.begin(), pairs.plain.end(), std::back_inserter(*plain));
        }
      }
      RETURN_IF_ERROR(status);
    }
    for (int i = 0; NeedsPlainPasses(options_) && i < options_.repeat; ++i) {
      ASSIGN_OR_RETURN(Pass pass, RunPlainPass());
      plain->push_back(std::move(pass));
    }
    return absl::OkStatus();
  }

  // Passes with the same index belong together.
  struct Pairs {
    std::vector<Pass> plain;
    std::vector<Pass> speculative;
    // Passes that measure the first round of every sequence, so that it can be subtracted: one
    // plain token for the target's part of the round, one draft token for the draft's.
    std::vector<Pass> one_token;
    std::vector<Pass> one_draft;

    void Begin() {
      for (auto* passes : {&plain, &speculative, &one_token, &one_draft}) passes->emplace_back();
    }
    // Forgets the passes of the last Begin.
    void Abandon() {
      for (auto* passes : {&plain, &speculative, &one_token, &one_draft}) passes->pop_back();
    }
  };

  // Runs the pairs of this batch for every draft length. Passes alternate group by group, so that
  // the compared groups run within the same fraction of a second: a machine's speed changes. An
  // error leaves the complete pairs.
  absl::Status RunPairs(int batch, std::vector<Pairs>* pairs) {
    for (int i = 0; i < options_.repeat; ++i) {
      for (Pairs& each : *pairs) each.Begin();
      if (absl::Status status = RunPairsOnce(batch, i, pairs); !status.ok()) {
        for (Pairs& each : *pairs) each.Abandon();
        return status;
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunPairsOnce(int batch, int turn, std::vector<Pairs>* pairs) {
    const int num_lengths = static_cast<int>(pairs->size());
    for (int group = 0; group < GroupsOf(options_, batch); ++group) {
      const bool backwards = (turn + group) % 2 == 1;
      for (int j = 0; j < num_lengths; ++j) {
        const int length = backwards ? num_lengths - 1 - j : j;
        RETURN_IF_ERROR(RunPair(options_.draft_tokens[length], batch, group,
                                /*speculates_first=*/backwards, &(*pairs)[length]));
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunPair(int draft_tokens, int batch, int group, bool speculates_first,
                       Pairs* pairs) {
    for (const bool speculates : {speculates_first, !speculates_first}) {
      RETURN_IF_ERROR(RunGroup(group, batch, speculates ? draft_tokens : 0, options_.max_tokens,
                               speculates ? &pairs->speculative.back() : &pairs->plain.back()));
    }
    RETURN_IF_ERROR(RunGroup(group, batch, 0, /*max_tokens=*/1, &pairs->one_token.back()));
    return RunGroup(group, batch, 1, /*max_tokens=*/2, &pairs->one_draft.back());
  }

  SpeculationRun Summary(const Pairs& pairs, int draft_tokens, int batch) const {
    SpeculationRun run;
    run.draft_tokens = draft_tokens;
    run.batch = batch;
    run.num_pairs = static_cast<int>(pairs.plain.size());
    RoundStats stats;
    bool is_identical = true;
    std::vector<double> ratios;
    std::vector<double> decode_ratios;
    std::vector<double> draft_steps;
    std::vector<double> verifications;
    for (size_t i = 0; i < pairs.plain.size(); ++i) {
      const Pass& pass = pairs.speculative[i];
      const RoundStats& first = pairs.one_token[i].stats;
      const RoundStats& first_draft = pairs.one_draft[i].stats;
      stats += pass.stats;
      ratios.push_back(pass.tokens_per_second() / pairs.plain[i].tokens_per_second());
      decode_ratios.push_back(pairs.plain[i].step_ms() / pass.step_ms());
      draft_steps.push_back(MeanMs(pass.stats.draft_time - first_draft.draft_time,
                                   pass.stats.proposed - first_draft.proposed));
      verifications.push_back(
          MeanMs(pass.stats.verify_time - first.verify_time, pass.stats.rounds - first.rounds));
      is_identical = is_identical && pairs.plain[i].outputs == pass.outputs;
    }
    if (!options_.synthetic_acceptance.has_value()) run.identical = is_identical;
    run.plain_tokens_per_second = SpreadOver(pairs.plain, &Pass::tokens_per_second);
    run.tokens_per_second = SpreadOver(pairs.speculative, &Pass::tokens_per_second);
    run.ratio = SpreadOf(std::move(ratios));
    run.decode_ratio = SpreadOf(std::move(decode_ratios));
    run.acceptance_rate = stats.AcceptanceRate();
    run.tokens_per_round = stats.TokensPerRound();
    run.drafted_per_round = static_cast<double>(stats.proposed) / static_cast<double>(stats.rounds);
    run.plain_step_ms = SpreadOver(pairs.plain, &Pass::step_ms).median;
    run.draft_step_ms = stats.proposed == 0 ? 0.0 : SpreadOf(std::move(draft_steps)).median;
    run.verify_ms = SpreadOf(std::move(verifications)).median;
    run.other_ms = SpreadOver(pairs.speculative, &Pass::other_ms).median;
    if (options_.synthetic_acceptance.has_value() && draft_tokens > 0) {
      run.expected_ratio = ExpectedTokensPerRound(*options_.synthetic_acceptance, draft_tokens) /
                           (1.0 + draft_tokens * run.cost_ratio());
    }
    return run;
  }

  // Decodes every group plainly at batch 1.
  absl::StatusOr<Pass> RunPlainPass() {
    Pass pass;
    for (int group = 0; group < GroupsOf(options_, 1); ++group) {
      RETURN_IF_ERROR(RunGroup(group, 1, 0, options_.max_tokens, &pass));
    }
    return pass;
  }

  absl::Status RunGroup(int group, int batch, int draft_tokens, int max_tokens, Pass* pass) {
    RETURN_IF_ERROR(callbacks_.before_group(draft_tokens, batch));
    const Instant start = Instant::Now();
    absl::Status status;
    std::vector<GenerationId> ids;
    for (int i = group * batch; status.ok() && i < (group + 1) * batch; ++i) {
      absl::StatusOr<GenerationId> id =
          engine_.Submit(RequestFor(i, draft_tokens, max_tokens), nullptr);
      if (id.ok()) ids.push_back(*id);
      status = id.status();
    }
    for (const GenerationId id : ids) {
      if (!status.ok()) engine_.Cancel(id);
      absl::StatusOr<Completion> completion = engine_.Wait(id, kBetweenChecks);
      while (absl::IsDeadlineExceeded(completion.status())) {
        if (status.ok()) status = callbacks_.check();
        if (!status.ok()) engine_.Cancel(id);
        completion = engine_.Wait(id, kBetweenChecks);
      }
      status.Update(completion.status());
      if (status.ok()) Count(*std::move(completion), pass);
    }
    pass->time += Instant::Now() - start;
    return status;
  }

  Request RequestFor(int sequence, int draft_tokens, int max_tokens) {
    const Prompt& prompt = options_.prompts[sequence % options_.prompts.size()];
    Request request;
    request.prompt = prompt.text;
    request.prompt_ids = prompt.ids;
    request.max_tokens = max_tokens;
    request.sampling.temperature = options_.temperature;
    request.ignore_eos = options_.ignore_eos;
    request.stop_tokens = options_.stop_tokens;
    request.draft_tokens = draft_tokens;
    if (options_.synthetic_acceptance.has_value()) request.seed = next_seed_++;
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
  const SpeculationCallbacks& callbacks_;
  SpeculationBenchmark& result_;
  uint64_t next_seed_ = 1;
};

}  // namespace

int64_t NumGroups(const SpeculationBenchmarkOptions& options) {
  const auto num_lengths = static_cast<int64_t>(options.draft_tokens.size());
  int64_t per_turn = NeedsPlainPasses(options) ? GroupsOf(options, 1) : 0;
  for (const int batch : options.batches) {
    per_turn += kPassesOfPair * num_lengths * GroupsOf(options, batch);
  }
  const int warm_up = GroupsOf(options, 1) + (num_lengths > 0 ? 1 : 0);
  return warm_up + options.repeat * per_turn;
}

absl::Status RunSpeculationBenchmark(const SpeculationBenchmarkOptions& options, Engine* engine,
                                     const SpeculationCallbacks& callbacks,
                                     SpeculationBenchmark* result) {
  return Benchmark(options, engine, callbacks, result).Run();
}

JudgeFunction SyntheticJudge(double acceptance, int vocab_size) {
  TANDEM_CHECK(0.0 <= acceptance && acceptance <= 1.0);
  return [acceptance, vocab_size](AcceptanceRule, int num_tokens,
                                  Slots& slots) -> absl::StatusOr<Verdict> {
    for (int slot = 0;; ++slot) {
      RETURN_IF_ERROR(slots.Reach(slot));
      if (slot == num_tokens) return Verdict{.num_accepted = slot, .next = slots.DrawTarget(slot)};
      const TokenId token = slots.Token(slot);
      const bool is_kept =
          0 <= token && token < vocab_size && slots.AcceptUniform(slot) < acceptance;
      if (!is_kept) {
        return Verdict{.num_accepted = slot, .next = slots.DrawResidual(slot, 1.0)};
      }
    }
  };
}

double ExpectedTokensPerRound(double acceptance, int draft_tokens) {
  double tokens = 1.0;
  double chance = 1.0;
  for (int i = 0; i < draft_tokens; ++i) tokens += chance *= acceptance;
  return tokens;
}

}  // namespace tandem
