#include "engine/round.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/types/span.h"
#include "base/guard.h"
#include "base/instant.h"
#include "base/machine_load.h"
#include "base/status_macros.h"
#include "base/utf8.h"

namespace tandem {
namespace {

// Returns how many of these tokens, from the first on, the constraint allows.
size_t NumAllowed(absl::Span<const TokenId> tokens, TokenHistory* history) {
  DraftWalk walk(history);
  size_t num_allowed = 0;
  for (; num_allowed < tokens.size(); ++num_allowed) {
    walk.Add(tokens[num_allowed]);
    if (!history->is_followed()) break;
  }
  return num_allowed;
}

// A truncated text may end in other tokens than the whole text; fewer of them are then accepted.
std::vector<TokenId> ForcedTokens(const Tokenizer& tokenizer, TokenHistory* history) {
  if (std::vector<TokenId> tokens = history->ForcedTokens(); !tokens.empty()) return tokens;
  std::string text = history->Forced();
  text.resize(std::min(text.size(), kMaxForcedBytes));
  text.resize(std::min(text.size(), FindInvalidUtf8(text)));
  // A single byte saves nothing and may be part of many tokens.
  if (text.size() < 2) return {};
  absl::StatusOr<std::vector<TokenId>> tokens = tokenizer.Encode(text, SpecialTokens::kPlain);
  if (!tokens.ok()) return {};
  const size_t most = std::min<size_t>(tokens->size(), kMaxDraftTokens);
  tokens->resize(NumAllowed(absl::MakeSpan(*tokens).first(most), history));
  return *std::move(tokens);
}

absl::Span<const TokenId> PredictedTokens(Session* session) {
  const absl::Span<const TokenId> tokens = session->tokens;
  return session->prediction.ContinuationOf(tokens.subspan(session->prompt_length));
}

// Proposes up to `max_tokens` of the session's given drafts of `source`.
void ProposeGiven(DraftSource source, int max_tokens, Session* session) {
  const absl::Span<const TokenId> given = source == DraftSource::kForced
                                              ? absl::MakeConstSpan(session->forced)
                                              : PredictedTokens(session);
  const size_t count = std::min<size_t>(given.size(), max_tokens);
  for (size_t i = 0; i < count; ++i) {
    *session->proposal.NextDistribution() = {.only = given[i]};
    session->proposal.tokens.push_back(given[i]);
  }
  KeepToConstraint(session);
}

// A round in which the draft model reads more tokens than this leaves other contents in the CPU's
// caches. Reading fewer tokens does not show what reading costs, because a pass takes a minimum
// time.
constexpr int kMinReadingTokens = 16;

// On success or failure, both caches end up holding only committed tokens.
void RollBack(Drafter* drafter, absl::Span<const RoundStep> steps) {
  for (const RoundStep& step : steps) {
    Session& s = *step.session;
    s.target_kv.Truncate(std::min(s.target_kv.length(), s.num_cacheable()));
    if (s.draft_state != nullptr) drafter->Rollback(s.draft_state.get(), s.num_cacheable());
  }
}

// The work that drafting took in a round.
struct DraftWork {
  int num_rows = 0;             // proposed tokens
  int num_steps = 0;            // of the draft model
  int num_draft_sequences = 0;  // in the first of these steps
  int num_unread = 0;           // RoundCosts::Round::num_unread
  int num_draft_rows = 0;       // RoundCosts::Round::num_draft_rows
  int num_prompt_tokens = 0;    // tokens of unfinished prompts that its cache gained
};

bool IsGiven(DraftSource source) {
  return source == DraftSource::kForced || source == DraftSource::kPredicted;
}

DraftTemperature* DraftTemperatureOf(const Session& session, SpeculationPolicy* policy) {
  return session.learns_draft_temperature
             ? &SpeculationOf(session, policy).DraftTemperatureAt(session.sampling.temperature)
             : nullptr;
}

// Calls `propose`, which makes or cuts the session's proposal. Drops the proposal on an exception.
void OrDrop(Session* session, absl::FunctionRef<void()> propose) {
  if (Caught("draft", propose).ok()) return;
  session->proposal.Clear();
  ++session->completion.stats.draft_failures;
}

// Returns false if the drafter fails. An exception may leave its caches half written, so they are
// evicted.
bool Propose(Drafter* drafter, absl::Span<const DraftRequest> requests,
             absl::Span<Proposal* const> proposals) {
  bool has_thrown = true;
  const absl::Status status = Guarded("draft", [&] {
    absl::Status proposed = drafter->Propose(requests, proposals);
    has_thrown = false;
    return proposed;
  });
  if (has_thrown) {
    for (const DraftRequest& request : requests) drafter->Evict(request.state);
  }
  return status.ok();
}

// Tokens in the draft's caches for requests that only read a prompt.
int NumCachedOfReaders(const Drafter& drafter, absl::Span<const DraftRequest> requests) {
  int num_cached = 0;
  for (const DraftRequest& request : requests) {
    if (request.granted == 0) num_cached += drafter.NumCached(*request.state);
  }
  return num_cached;
}

// Makes the proposals of the round. For sessions that still read their prompt, the drafter reads
// the prompt, too, while `policy` finds that useful. A failed draft is dropped, and decoding
// continues without it.
DraftWork Draft(Drafter* drafter, absl::Span<const RoundStep> steps, SpeculationPolicy* policy) {
  DraftWork work;
  std::vector<DraftRequest> requests;
  std::vector<Proposal*> proposals;
  for (const RoundStep& step : steps) {
    Session& s = *step.session;
    s.proposal.Clear();
    if (step.granted > 0 && IsGiven(step.option.source)) {
      OrDrop(&s, [&] { ProposeGiven(step.option.source, step.granted, &s); });
      work.num_rows += static_cast<int>(s.proposal.tokens.size());
      continue;
    }
    if (s.draft_state == nullptr) continue;
    if (step.granted == 0 && drafter->shares_target_cache()) continue;  // ReadStates reads it
    const bool is_fixed = s.draft_tokens > 0;
    const bool may_read = s.drafter != DrafterKind::kNgram;  // which has no cache to fill
    // If another worker will fetch the prompt's pages, both models read it to its end.
    const bool is_lent = s.fetch.transfer != nullptr && s.draft_tokens != 0;
    const bool reads_along =
        may_read &&
        (is_lent || (!step.completes() &&
                     (is_fixed || policy->ReadsPrompt(SpeculationOf(s, policy), s.num_pending(),
                                                      s.max_length - s.length()))));
    if (!reads_along && step.granted == 0) continue;
    requests.push_back(
        {.context = absl::MakeSpan(s.tokens).first(s.target_kv.length() + step.num_fed),
         .num_committed = static_cast<int>(s.tokens.size()),
         .granted = step.granted,
         .source = step.option.source,
         .sampling = &s.SamplingOf(step.granted),
         .history = s.history_if_used(),
         .random = s.random,
         .noise = s.rule == AcceptanceRule::kExactMatch ? DraftNoise::kTargets : DraftNoise::kOwn,
         .stop = step.stop,
         .draft_temperature = DraftTemperatureOf(s, policy),
         .state = s.draft_state.get(),
         .target_kv = &s.target_kv});
    proposals.push_back(&s.proposal);
  }
  if (requests.empty()) return work;
  const int num_cached_before = NumCachedOfReaders(*drafter, requests);
  const bool failed = !Propose(drafter, requests, proposals);
  work.num_prompt_tokens = NumCachedOfReaders(*drafter, requests) - num_cached_before;
  for (const RoundStep& step : steps) {
    Session& s = *step.session;
    if (step.granted > 0 && IsGiven(step.option.source)) continue;
    if (failed) s.proposal.Clear();
    if (failed && step.granted > 0) ++s.completion.stats.draft_failures;
    OrDrop(&s, [&] { KeepToConstraint(&s); });
    const int num_drafted = static_cast<int>(s.proposal.tokens.size());
    work.num_rows += num_drafted;
    const int num_steps = step.option.in_one_pass ? s.proposal.num_steps
                                                  : std::max(s.proposal.num_steps, num_drafted);
    if (num_steps == 0 || step.option.source != DraftSource::kModel) continue;
    work.num_steps = std::max(work.num_steps, num_steps);
    ++work.num_draft_sequences;
    const int num_unread = step.option.num_unread;
    const int num_rows = step.option.in_one_pass ? RoundCosts::RowsToRead(num_unread) : 0;
    if (step.option.in_one_pass) work.num_draft_rows += num_rows + s.proposal.num_slots;
    work.num_unread += std::max(num_unread - 1 - num_rows, 0);
  }
  return work;
}

// Returns a function that learns from the target's rows for a session's draft; null if nothing is
// to be learned.
std::function<void(absl::Span<const Distribution>)> LearnerOf(const RoundStep& step,
                                                              SpeculationPolicy* policy) {
  const Proposal& proposal = step.session->proposal;
  DraftTemperature* draft_temperature = DraftTemperatureOf(*step.session, policy);
  if (draft_temperature == nullptr || step.option.source != DraftSource::kModel) return nullptr;
  const int depth = draft_temperature->NextDepth(static_cast<int>(proposal.tokens.size()));
  if (depth < 0) return nullptr;
  return [draft_temperature, depth, &proposal](absl::Span<const Distribution> rows) {
    if (depth >= static_cast<int>(rows.size())) return;  // not judged: it is after a rejection
    draft_temperature->Observe(depth, rows[depth], proposal.drawn_from[depth]);
  };
}

VerifyRequest MakeVerifyRequest(const RoundStep& step, SpeculationPolicy* policy) {
  Session& s = *step.session;
  return {.context = s.tokens,
          .num_fed = step.num_fed,
          .proposal = &s.proposal,
          .sampling = &s.SamplingOf(static_cast<int>(s.proposal.tokens.size()) + 1),
          .history = s.history_if_used(),
          .random = s.random,
          .rule = s.rule,
          .kv = &s.target_kv,
          .on_rows = LearnerOf(step, policy),
          .wants_rejected = s.memory() != nullptr,
          .logprobs = s.logprobs,
          .prompt_logprobs = s.NeedsPromptLogprobs() ? s.prompt_logprobs : LogprobOptions(),
          .prompt_length = s.prompt_length};
}

// A draft that ended early counts as if its next token had been rejected, so that estimates never
// promise more than drafts of that length achieve.
void LearnAcceptance(const RoundStep& step, int proposed, int accepted, SpeculationPolicy* policy) {
  Session& s = *step.session;
  const std::vector<float>& confidences = s.proposal.confidences;
  const bool has_stopped =  // and was not cut by a constraint before that
      s.proposal.has_stopped && static_cast<int>(confidences.size()) == proposed;
  const int num_tested = proposed + (has_stopped ? 1 : 0);
  if (num_tested == 0) return;
  s.acceptance.Observe(step.option, num_tested, accepted);
  TenantSpeculation& tenant = SpeculationOf(s, policy);
  tenant.ObserveAcceptance(s.sampling.temperature, step.option, num_tested, accepted);
  ConfidenceCurve& curve = tenant.ConfidenceAt(s.sampling.temperature);
  for (int i = 0; i <= accepted && i < std::min<int>(proposed, confidences.size()); ++i) {
    curve.Observe(confidences[i], i < accepted, /*is_mask=*/step.option.in_one_pass && i > 0);
  }
}

// Rejected tokens are not part of the text, but the rows after them show what follows such tokens.
void LearnFromRejected(absl::Span<const TokenId> drafted, int num_accepted,
                       absl::Span<const TokenId> likeliest, TextMemory* memory) {
  for (size_t i = 0; i < likeliest.size(); ++i) {
    if (likeliest[i] < 0) continue;
    memory->LearnSuccessor(drafted.first(num_accepted + i + 1), likeliest[i]);
  }
}

// Appends the tokens that the verdict kept in a round of `num_sequences`, up to the first that ends
// the generation. An error fails the session only where plain decoding would, which is after these
// tokens. Returns the number of tokens appended.
int Commit(VerifyResult result, const RoundStep& step, int num_sequences,
           SpeculationPolicy* policy) {
  Session& s = *step.session;
  for (TokenLogprobs& logprobs : result.prompt_logprobs) {
    s.completion.prompt_logprobs.emplace_back(std::move(logprobs));
  }
  if (!result.judged) {
    if (!result.status.ok()) s.Fail(std::move(result.status));
    return 0;
  }
  const std::vector<TokenId>& drafted = s.proposal.tokens;
  const int proposed = static_cast<int>(drafted.size());
  const int accepted = result.verdict.num_accepted;
  const Provenance last = proposed == 0          ? Provenance::kPlain
                          : accepted == proposed ? Provenance::kBonus
                                                 : Provenance::kCorrection;
  const int num_committable = accepted + (result.status.ok() ? 1 : 0);
  int emitted = 0;
  for (bool more = true; more && emitted < num_committable; ++emitted) {
    more = emitted < accepted ? s.Append(drafted[emitted], Provenance::kAccepted)
                              : s.Append(result.verdict.next, last);
  }
  if (last == Provenance::kCorrection && emitted > accepted) {
    s.rejected.emplace_back(drafted.begin() + accepted, drafted.end());
  }
  if (TextMemory* memory = s.memory(); memory != nullptr) {
    memory->Learn(s.tokens, emitted);
    LearnFromRejected(drafted, accepted, result.likeliest_after_rejected, memory);
  }
  if (!result.logprobs.empty()) {
    for (int i = 0; i < emitted; ++i) {
      s.completion.logprobs.push_back(std::move(result.logprobs[i]));
    }
  }
  if (!result.status.ok() && !s.finished) s.Fail(std::move(result.status));
  const int kept = std::min(accepted, emitted);
  s.completion.stats.Add(step.option.source, proposed, kept, emitted);
  s.completion.rounds_by_length.Add(proposed, kept);
  LearnAcceptance(step, proposed, accepted, policy);
  if (proposed > 0 && step.option.source != DraftSource::kModel) {
    s.lost += policy->costs().LossOf(num_sequences, proposed, /*drafting=*/0.0, accepted);
  }
  return emitted;
}

// The work and the times of a round.
struct RoundRecord {
  DraftWork drafts;
  int num_fed = 0;  // committed tokens that the target read
  int num_emitted = 0;
  bool only_decodes = true;  // no chunk of a prompt was read
  bool has_packed = false;   // weights were packed, which happens only once
  bool is_disturbed = false;
  Instant start, drafted, verified, end;
  absl::Duration states_time;  // time in which the drafter read the pass's states

  absl::Duration draft_time() const { return drafted - start + states_time; }
  absl::Duration verify_time() const { return verified - drafted; }
};

absl::Status Verify(Verifier* verifier, absl::Span<const RoundStep> steps,
                    SpeculationPolicy* policy, std::vector<VerifyResult>* results) {
  const auto work = [steps] {
    absl::Duration sum;
    for (const RoundStep& step : steps) sum += step.session->history.constraint_work();
    return sum;
  };
  // A session's own draft does not count, so that what is judged does not depend on drawn tokens.
  const auto is_spent = [&work, before = work()] { return work() - before > kMaxConstraintTime; };
  std::vector<VerifyRequest> requests;
  for (const RoundStep& step : steps) {
    requests.push_back(MakeVerifyRequest(step, policy));
    if (step.session->sampling.constraint != nullptr) requests.back().is_put_off = is_spent;
  }
  results->resize(steps.size());
  return verifier->Verify(requests, absl::MakeSpan(*results));
}

void CommitAll(std::vector<VerifyResult> results, absl::Span<const RoundStep> steps,
               SpeculationPolicy* policy, RoundRecord* record) {
  for (size_t i = 0; i < steps.size(); ++i) {
    Session& s = *steps[i].session;
    RoundStats& stats = s.completion.stats;
    stats.draft_time += record->draft_time();
    (s.times.has_read_prompt() ? stats.verify_time : stats.prefill_time) += record->verify_time();
    s.times.OnRound(record->draft_time(), record->verify_time(), record->verified,
                    /*completes=*/results[i].judged);
    record->only_decodes = record->only_decodes && steps[i].num_fed <= kMaxDecodeTokens;
    record->num_fed += steps[i].num_fed;
    // An exception from the session's constraint fails only this session.
    absl::Status status = Caught("committing tokens", [&] {
      record->num_emitted +=
          Commit(std::move(results[i]), steps[i], static_cast<int>(steps.size()), policy);
    });
    if (!status.ok()) s.Fail(std::move(status));
  }
}

// Adds the extra time of a probe over a plain round to the stats of each session that probed.
void CountProbe(const RoundRecord& record, absl::Span<const RoundStep> steps,
                const RoundCosts& costs) {
  const absl::Duration plain = costs.Pass(record.num_fed) * costs.PlainPass();
  const absl::Duration beyond =
      record.draft_time() + std::max(record.verify_time() - plain, absl::ZeroDuration());
  for (const RoundStep& step : steps) {
    if (step.granted == 0 || step.session->draft_tokens != kAutoDraftTokens) continue;
    ++step.session->completion.stats.probes;
    step.session->completion.stats.probe_time += beyond;
  }
}

// The engine's thread computes, or spins while it waits for the other threads, for at least this
// share of a round that no other process disturbs.
constexpr double kMinBusy = 0.9;

// Teaches the policy what rounds like this one cost. A round that packed weights does not count,
// because later rounds will not take that long, nor does one that other processes disturbed.
void Learn(const RoundRecord& record, absl::Span<const RoundStep> steps,
           SpeculationPolicy* policy) {
  const DraftWork& drafts = record.drafts;
  RoundCosts& costs = policy->costs();
  if (policy->is_probing()) CountProbe(record, steps, costs);
  const bool counts = !record.has_packed && !record.is_disturbed;
  if (counts && record.only_decodes && policy->measures()) {
    costs.Observe({.is_plain = drafts.num_rows == 0,
                   .num_rows = record.num_fed + drafts.num_rows,
                   .num_steps = drafts.num_steps,
                   .num_draft_sequences = drafts.num_draft_sequences,
                   .num_unread = drafts.num_unread,
                   .num_draft_rows = drafts.num_draft_rows,
                   .draft_time = record.draft_time(),
                   .verify_time = record.end - record.drafted - record.states_time});
  } else if (counts && drafts.num_rows == 0 && drafts.num_prompt_tokens > kMinReadingTokens) {
    costs.ObserveReading(drafts.num_prompt_tokens, record.draft_time());
  } else if (counts && drafts.num_rows == 0 && !record.only_decodes) {
    costs.ObservePrompt(record.num_fed, record.verify_time());
  }
  for (const RoundStep& step : steps) SpeculationOf(*step.session, policy).EndRound();
  policy->EndRound({.has_read_much = record.has_packed || !record.only_decodes ||
                                     drafts.num_unread > kMinReadingTokens,
                    .is_disturbed = record.is_disturbed,
                    .num_tokens = record.num_emitted,
                    .start = record.start,
                    .end = record.end});
}

// Returns each session's rows in the next pass, without first_row and tokens.
std::vector<Drafter::TargetRows> RowsBefore(absl::Span<const RoundStep> steps) {
  std::vector<Drafter::TargetRows> rows;
  for (const RoundStep& step : steps) {
    Session& s = *step.session;
    rows.push_back(
        {.state = s.draft_state.get(), .kv = &s.target_kv, .first_position = s.target_kv.length()});
  }
  return rows;
}

// Call right after the pass, while each cache still holds all tokens that the pass read.
void SetFirstRows(absl::Span<Drafter::TargetRows> rows) {
  int row = 0;
  for (Drafter::TargetRows& of : rows) {
    of.first_row = row;
    row += of.kv->length() - of.first_position;
  }
}

// Lets the drafter read the states that the pass computed for the tokens that were kept. Returns
// the time that this took.
absl::Duration ReadStates(Drafter* drafter, absl::Span<const RoundStep> steps,
                          absl::Span<Drafter::TargetRows> rows) {
  const Instant begin = Instant::Now();
  for (size_t i = 0; i < steps.size(); ++i) rows[i].tokens = steps[i].session->tokens;
  const absl::Status status = Guarded("draft states", [&] { return drafter->ReadStates(rows); });
  const absl::Duration time = Instant::Now() - begin;
  for (const RoundStep& step : steps) {
    RoundStats& stats = step.session->completion.stats;
    if (!status.ok()) ++stats.draft_failures;
    stats.draft_time += time;
    step.session->times.OnStatesRead(time);
  }
  return time;
}

int NumUnpacked(const Drafter* drafter, const Verifier& verifier) {
  return verifier.target()->num_unpacked() + (drafter == nullptr ? 0 : drafter->num_unpacked());
}

}  // namespace

void KeepToConstraint(Session* session) {
  if (session->sampling.constraint == nullptr) return;
  Proposal& proposal = session->proposal;
  const auto drawn = absl::MakeConstSpan(proposal.drawn_from).first(proposal.tokens.size());
  const bool is_certain =
      std::all_of(drawn.begin(), drawn.end(), [](const Distribution& d) { return d.only >= 0; });
  if (is_certain) proposal.tokens.resize(NumAllowed(proposal.tokens, &session->history));
}

void FindGivenDrafts(const Tokenizer& tokenizer, Session* session) {
  Session& s = *session;
  const auto add = [&s](DraftSource source, size_t count) {
    const int most = static_cast<int>(std::min<size_t>(count, kMaxDraftTokens));
    if (most > 0) s.draft_options.push_back({.source = source, .max_tokens = most});
  };
  s.forced.clear();
  // A request without a drafter uses plain decoding.
  if (s.sampling.constraint != nullptr && s.drafter != DrafterKind::kNone) {
    s.forced = ForcedTokens(tokenizer, &s.history);
  }
  add(DraftSource::kForced, s.forced.size());
  add(DraftSource::kPredicted, PredictedTokens(&s).size());
}

absl::Status RunRound(Drafter* drafter, Verifier* verifier, absl::Span<const RoundStep> steps,
                      SpeculationPolicy* policy, absl::FunctionRef<void()> deliver) {
  absl::Cleanup roll_back = [&] { RollBack(drafter, steps); };
  const int num_unpacked = NumUnpacked(drafter, *verifier);
  RoundRecord record;
  record.start = Instant::Now();
  const absl::Duration processor_time =
      policy->watches_processor() ? ThreadProcessorTime() : absl::ZeroDuration();
  std::vector<Drafter::TargetRows> rows;  // used only if the drafter reads the target's states
  if (drafter != nullptr && drafter->shares_target_cache()) rows = RowsBefore(steps);
  record.drafts = Draft(drafter, steps, policy);
  record.drafted = Instant::Now();
  std::vector<VerifyResult> results;
  RETURN_IF_ERROR(Guarded("round", [&] { return Verify(verifier, steps, policy, &results); }));
  record.verified = Instant::Now();
  SetFirstRows(absl::MakeSpan(rows));
  CommitAll(std::move(results), steps, policy, &record);
  std::move(roll_back).Invoke();
  if (!rows.empty()) record.states_time = ReadStates(drafter, steps, absl::MakeSpan(rows));
  deliver();
  record.end = Instant::Now();
  record.has_packed = NumUnpacked(drafter, *verifier) != num_unpacked;
  record.is_disturbed = policy->watches_processor() && ThreadProcessorTime() - processor_time <
                                                           kMinBusy * (record.end - record.start);
  Learn(record, steps, policy);
  return absl::OkStatus();
}

bool NeedsState(const Drafter* drafter, DrafterKind kind) {
  return kind != DrafterKind::kNone || (drafter != nullptr && drafter->shares_target_cache());
}

}  // namespace tandem
