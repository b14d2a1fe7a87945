#include <nanobind/stl/array.h>
#include <tandem/completion.h>
#include <tandem/owned_piece.h>

#include "python/bindings.h"

namespace tandem::python {
namespace {

namespace nb = nanobind;

template <typename Class>
auto Seconds(absl::Duration Class::*member) {
  return [member](const Class& self) { return absl::ToDoubleSeconds(self.*member); };
}
template <typename Class>
auto Seconds(absl::Duration (Class::*span)() const) {
  return [span](const Class& self) { return absl::ToDoubleSeconds((self.*span)()); };
}

template <typename Class>
auto Counts(std::array<int64_t, kMaxDraftTokens> Class::*member) {
  return [member](const Class& self) { return ArrayOf<int64_t>(self.*member); };
}

// Returns dictionaries of "source", "proposed" and "accepted", for the sources that were used.
nb::list BySource(const RoundStats& stats) {
  nb::list sources;
  for (int i = 0; i < kNumDraftSources; ++i) {
    const auto source = static_cast<DraftSource>(i);
    const RoundStats::SourceCounts& counts = stats.Of(source);
    if (counts.proposed == 0) continue;
    nb::dict one;
    one["source"] = NameOf(source);
    one["proposed"] = counts.proposed;
    one["accepted"] = counts.accepted;
    sources.append(one);
  }
  return sources;
}

void BindStats(nb::module_& module) {
  auto counts = nb::class_<RoundStats::SourceCounts>(module, "SourceCounts");
  AddReadOnly<&RoundStats::SourceCounts::proposed, &RoundStats::SourceCounts::accepted>(counts);
  auto stats =
      nb::class_<RoundStats>(module, "RoundStats", "Counts over rounds. Times are in seconds.");
  stats.def_ro("proposed", &RoundStats::proposed, "Draft tokens that the target verified.")
      .def_ro("accepted", &RoundStats::accepted, "The draft tokens that were kept.")
      .def_ro("emitted", &RoundStats::emitted, "Output tokens.")
      .def_prop_ro("proposed_at", Counts(&RoundStats::proposed_at), nb::rv_policy::move,
                   "By position in the draft.")
      .def_prop_ro("accepted_at", Counts(&RoundStats::accepted_at), nb::rv_policy::move,
                   "By position in the draft.")
      .def_prop_ro(
          "by_source", &BySource,
          "The sources of draft tokens, each with \"source\", \"proposed\" and \"accepted\".")
      .def_prop_ro("probe_time", Seconds(&RoundStats::probe_time))
      .def_prop_ro("prefill_time", Seconds(&RoundStats::prefill_time),
                   "Passes up to the one that completes the prompt.")
      .def_prop_ro("draft_time", Seconds(&RoundStats::draft_time), "Drafts of all rounds.")
      .def_prop_ro("verify_time", Seconds(&RoundStats::verify_time),
                   "Passes after the one that completes the prompt.")
      .def_prop_ro("acceptance_rate", &RoundStats::AcceptanceRate, "accepted / proposed, or 0.")
      .def_prop_ro("tokens_per_round", &RoundStats::TokensPerRound, "emitted / rounds, or 0.");
  AddReadOnly<&RoundStats::rounds, &RoundStats::proposed, &RoundStats::accepted,
              &RoundStats::emitted, &RoundStats::proposed_at, &RoundStats::accepted_at,
              &RoundStats::by_source, &RoundStats::draft_failures, &RoundStats::probes,
              &RoundStats::probe_time, &RoundStats::prefill_time, &RoundStats::draft_time,
              &RoundStats::verify_time>(stats);
  AddRepr(stats, {"rounds", "proposed", "accepted", "emitted", "acceptance_rate",
                  "tokens_per_round", "by_source", "prefill_time", "draft_time", "verify_time"});
  auto timings = nb::class_<Timings>(
      module, "Timings",
      "Times of one generation, in seconds: end_to_end = queue + prompt + decode, and\n"
      "decode = draft + verify + other.");
  timings.def_prop_ro("time_to_first_token", Seconds(&Timings::time_to_first_token))
      .def_prop_ro("end_to_end", Seconds(&Timings::end_to_end))
      .def_prop_ro("queue", Seconds(&Timings::queue), "Before admission.")
      .def_prop_ro("prompt", Seconds(&Timings::prompt),
                   "From admission to the end of the pass that completes the prompt.")
      .def_prop_ro("decode", Seconds(&Timings::decode), "From there to the end of the generation.")
      .def_prop_ro("draft", Seconds(&Timings::draft), "Part of `decode`: drafts.")
      .def_prop_ro("verify", Seconds(&Timings::verify), "Part of `decode`: passes of the target.")
      .def_prop_ro("other", Seconds(&Timings::other), "Part of `decode`: everything else.")
      .def_prop_ro("prefill", Seconds(&Timings::prompt), "The old name of `prompt`.");
  AddPickle<&Timings::time_to_first_token, &Timings::end_to_end, &Timings::queue, &Timings::prompt,
            &Timings::draft, &Timings::verify, &Timings::all_prompts>(timings);
  AddRepr(timings, {"time_to_first_token", "end_to_end", "queue", "prompt", "decode", "draft",
                    "verify", "other"});
  auto report =
      nb::class_<RoundReport>(module, "RoundReport", "A round's effect on a generation's caches.");
  AddReadOnly<&RoundReport::proposed, &RoundReport::accepted, &RoundReport::target_cached_tokens,
              &RoundReport::draft_cached_tokens>(report);
  AddRepr(report, {"proposed", "accepted", "target_cached_tokens", "draft_cached_tokens"});
  auto progress = nb::class_<PromptProgress>(module, "PromptProgress",
                                             "How much of its prompt a generation has read.");
  progress.def_ro("total", &PromptProgress::total, "Tokens of the prompt.")
      .def_ro("cached", &PromptProgress::cached, "Tokens that were found in a cache.")
      .def_ro("processed", &PromptProgress::processed,
              "Tokens read so far, with the cached ones. Falls only after a preemption.")
      .def_prop_ro("time", Seconds(&PromptProgress::time), "Seconds since the submission.");
  AddPickle<&PromptProgress::total, &PromptProgress::cached, &PromptProgress::processed,
            &PromptProgress::time>(progress);
  AddRepr(progress, {"total", "cached", "processed", "time"});
}

}  // namespace

void BindCompletions(nb::module_& module) {
  BindStats(module);
  auto logprobs =
      nb::class_<TokenLogprobs>(module, "TokenLogprobs", "Natural log-probabilities of one token.");
  logprobs.def_ro("top", &TokenLogprobs::top, "(id, log-probability), the most likely first.");
  AddReadOnly<&TokenLogprobs::id, &TokenLogprobs::logprob, &TokenLogprobs::top>(logprobs);
  AddRepr(logprobs, {"id", "logprob", "top"});
  auto choice = nb::class_<ChoiceLogprob>(
      module, "ChoiceLogprob", "The probability of one of the texts that an output may be.");
  choice.def_ro("logprob", &ChoiceLogprob::logprob, "Natural logarithm, from raw rows.")
      .def_ro("normalized_logprob", &ChoiceLogprob::normalized_logprob,
              "The same, divided by the sum over all texts.");
  AddReadOnly<&ChoiceLogprob::text, &ChoiceLogprob::logprob, &ChoiceLogprob::normalized_logprob>(
      choice);
  AddRepr(choice, {"text", "logprob", "normalized_logprob"});
  auto piece = nb::class_<OwnedPiece>(
      module, "Piece", "The output that one or several rounds added to a generation.");
  piece
      .def_prop_ro(
          "token_ids", [](const OwnedPiece& self) { return ArrayOf<TokenId>(self.token_ids); },
          nb::rv_policy::move)
      .def_ro("provenance", &OwnedPiece::provenance, "A letter per token, as in Completion.")
      .def_ro("logprobs", &OwnedPiece::logprobs, "Per token, if requested.")
      .def_ro("choice_logprobs", &OwnedPiece::choice_logprobs, "As in Completion.")
      .def_ro(
          "rejected", &OwnedPiece::rejected,
          "Per correction, the rest of the refused draft: token ids, of which the first is the\n"
          "one that the correction replaces.")
      .def_ro("prompt_progress", &OwnedPiece::prompt_progress,
              "If requested and new; until the prompt is read, pieces have nothing else.");
  AddReadOnly<&OwnedPiece::text, &OwnedPiece::token_ids, &OwnedPiece::provenance,
              &OwnedPiece::logprobs, &OwnedPiece::choice_logprobs, &OwnedPiece::rejected,
              &OwnedPiece::round, &OwnedPiece::prompt_progress>(piece);
  AddRepr(piece, {"text", "token_ids", "provenance"});
  auto completion = nb::class_<Completion>(module, "Completion", "The result of a generation.");
  completion
      .def_prop_ro(
          "token_ids", [](const Completion& self) { return ArrayOf<TokenId>(self.token_ids); },
          nb::rv_policy::move)
      .def_prop_ro(
          "finish_reason", [](const Completion& self) { return NameOf(self.finish_reason); },
          "\"stop\", \"length\", \"cancelled\" or \"deadline\".")
      .def_ro(
          "provenance", &Completion::provenance,
          "A letter per token: p from a pass without a draft, a an accepted draft token, c the\n"
          "target's own token after a rejection, b the target's own token after a fully accepted "
          "draft.")
      .def_ro("logprobs", &Completion::logprobs, "Per token, if requested.")
      .def_ro("choice_logprobs", &Completion::choice_logprobs,
              "With choice_law \"conditional\": of all choices, in their order.")
      .def_ro("prompt_logprobs", &Completion::prompt_logprobs,
              "Per prompt token, if requested; None for the first.")
      .def_ro("store_tokens", &Completion::store_tokens,
              "The part of cached_tokens that was read from kv_store.")
      .def_ro("transfer_tokens", &Completion::transfer_tokens,
              "The part of cached_tokens that was fetched from another worker.")
      .def_ro("kv_transfer_params", &Completion::kv_transfer_params,
              "The parameters of the decode request, after a request with do_remote_decode.")
      .def_ro("idle_reason", &Completion::idle_reason,
              "Why fewer tokens were drafted than could be, or an empty text.")
      .def_prop_ro("memory_tokens", &Completion::memory_tokens,
                   "The part of cached_tokens that was in memory.")
      .def_prop_ro("verifier", [](const Completion& self) { return NameOf(self.verifier); })
      .def_prop_ro("prompt_tokens_per_second", &Completion::PromptTokensPerSecond,
                   "Computed prompt tokens divided by timings.prompt.")
      .def_prop_ro("decode_tokens_per_second", &Completion::DecodeTokensPerSecond,
                   "Tokens after those of the first round, divided by timings.decode.")
      .def_prop_ro("tokens_per_second", &Completion::TokensPerSecond,
                   "All tokens divided by the time since admission.");
  AddReadOnly<&Completion::text, &Completion::token_ids, &Completion::finish_reason,
              &Completion::provenance, &Completion::logprobs, &Completion::prompt_logprobs,
              &Completion::choice_logprobs, &Completion::prompt_tokens, &Completion::cached_tokens,
              &Completion::store_tokens, &Completion::transfer_tokens,
              &Completion::kv_transfer_params, &Completion::first_round_tokens,
              &Completion::num_preemptions, &Completion::verifier, &Completion::draft_tokens,
              &Completion::stats, &Completion::idle_reason, &Completion::timings>(completion);
  AddRepr(completion, {"text", "finish_reason", "prompt_tokens", "provenance", "stats", "timings"});
}

}  // namespace tandem::python
