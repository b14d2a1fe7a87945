#include "engine/engine.h"

#include <algorithm>
#include <deque>
#include <random>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "engine/judged_engine.h"
#include "engine/model_pair.h"
#include "engine/round.h"
#include "engine/scheduler.h"
#include "engine/session.h"
#include "spdlog/spdlog.h"

namespace tandem {
namespace {

// The rule of a name; for "auto" as docs/verification.md chooses.
absl::StatusOr<AcceptanceRule> ParseVerifier(absl::string_view name, const Request& request,
                                             int draft_tokens, bool draft_is_drawn) {
  if (name == "exact_match") return AcceptanceRule::kExactMatch;
  if (name == "block") return AcceptanceRule::kBlock;
  if (name == "token") return AcceptanceRule::kToken;
  if (name != "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat("verifier: \"", name, "\" is not one of auto, exact_match, block, token"));
  }
  if (request.seed.has_value() || request.sampling.is_greedy() || !draft_is_drawn) {
    return AcceptanceRule::kExactMatch;
  }
  return draft_tokens == 1 ? AcceptanceRule::kToken : AcceptanceRule::kBlock;
}

uint64_t FreshSeed() {
  std::random_device entropy;
  return uint64_t{entropy()} << 32 | entropy();
}

absl::Status CheckDraftTokens(int draft_tokens) {
  if (draft_tokens == kAutoDraftTokens || (0 <= draft_tokens && draft_tokens <= kMaxDraftTokens)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("draft_tokens: ", draft_tokens, " is not auto or from 0 to ", kMaxDraftTokens));
}

absl::Status CheckTopLogprobs(absl::string_view name, int num_top) {
  constexpr int kMost = 100;
  if (-1 <= num_top && num_top <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", num_top, " is not from 0 to ", kMost));
}

absl::Status CheckAtLeast(absl::string_view name, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", value, " is not ", least, " or more"));
}

ModelInfo InfoOf(const std::string& path, const Transformer& model, const PagedKvCache& cache) {
  return {.path = path,
          .family = model.config().family,
          .dtype = NameOf(model.dtype()),
          .parameters = model.num_parameters(),
          .bytes_read_per_pass = static_cast<int64_t>(model.bytes_read_per_pass()),
          .kv_bytes_per_token =
              static_cast<int64_t>(cache.layout().page_bytes() / cache.layout().page_size),
          .vocab_size = model.vocab_size(),
          .context_length = model.context_length(),
          .num_pages = cache.num_pages(),
          .page_size = cache.layout().page_size};
}

int PagesInUse(const PagedKvCache& cache) {
  return cache.num_pages() - cache.num_available_pages();
}

class EngineImpl final : public Engine {
 public:
  EngineImpl(EngineOptions options, ModelPair pair, JudgeFunction judge)
      : options_(std::move(options)),
        pair_(std::move(pair)),
        verifier_(pair_.target.get(), std::move(judge)),
        thread_([this] { Work(); }) {}

  ~EngineImpl() override {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
  }

  absl::StatusOr<GenerationId> Submit(Request request, OnPiece on_piece, OnDone on_done) override {
    ASSIGN_OR_RETURN(std::unique_ptr<Session> session, NewSession(std::move(request)));
    session->on_piece = std::move(on_piece);
    session->on_done = std::move(on_done);
    absl::MutexLock lock(&mutex_);
    const GenerationId id = next_id_++;
    session->id = id;
    Outcome outcome;
    outcome.is_waited_for = session->on_done != nullptr;
    results_.emplace(id, std::move(outcome));
    submitted_.push_back(std::move(session));
    return id;
  }

  absl::StatusOr<Completion> Wait(GenerationId id) override {
    absl::MutexLock lock(&mutex_);
    const auto it = results_.find(id);
    if (it == results_.end() || it->second.is_waited_for) {
      return absl::NotFoundError(absl::StrCat("no generation ", id));
    }
    it->second.is_waited_for = true;
    const auto is_done = [this, id] {
      mutex_.AssertReaderHeld();
      return results_.at(id).is_done;
    };
    mutex_.Await(absl::Condition(&is_done));
    absl::StatusOr<Completion> result = std::move(results_.at(id).completion);
    results_.erase(id);
    return result;
  }

  void Cancel(GenerationId id) override {
    absl::MutexLock lock(&mutex_);
    if (results_.contains(id)) cancelled_.push_back(id);
  }

  absl::Status CheckIntegrity() override {
    absl::MutexLock lock(&mutex_);
    integrity_.reset();
    const auto is_known = [this] {
      mutex_.AssertReaderHeld();
      return integrity_.has_value();
    };
    mutex_.Await(absl::Condition(&is_known));
    return *integrity_;
  }

  RoundStats stats() const override {
    absl::MutexLock lock(&mutex_);
    return stats_;
  }
  EngineLoad load() const override {
    absl::MutexLock lock(&mutex_);
    EngineLoad load = load_;
    load.num_waiting += static_cast<int>(submitted_.size());
    return load;
  }
  const Tokenizer& tokenizer() const override { return *pair_.tokenizer; }
  ModelInfo target_info() const override {
    return InfoOf(options_.target, *pair_.target, *pair_.target_cache);
  }
  std::optional<ModelInfo> draft_info() const override {
    if (pair_.draft == nullptr) return std::nullopt;
    ModelInfo info = InfoOf(options_.draft, *pair_.draft, *pair_.draft_cache);
    if (pair_.vocabulary != nullptr) {
      info.mapped_tokens = static_cast<int>(pair_.vocabulary->pairs().size());
    }
    return info;
  }
  std::string drafter_name() const override {
    return pair_.drafter == nullptr ? "none" : std::string(pair_.drafter->name());
  }
  std::string device_description() const override {
    return std::string(pair_.backend->description());
  }

 private:
  struct Outcome {
    bool is_done = false;
    bool is_waited_for = false;
    absl::StatusOr<Completion> completion = absl::UnknownError("");
  };

  absl::Status CheckToken(absl::string_view field, TokenId id) const;
  absl::StatusOr<std::vector<TokenId>> PromptOf(const Request& request) const;
  absl::StatusOr<std::unique_ptr<Session>> NewSession(Request request) const;

  void Work();
  bool TakeNewWork();
  absl::Status CheckBooks() const;
  void Step();
  RoundPlan Plan(absl::Span<Session* const> running);
  void Admit();
  void LookForDrafts(Session* session);
  void Preempt(Session* session);
  RoundReport RoundOf(const Session& session) const;
  void Deliver(Session* session);
  void Retire();
  void ReportLoad();

  const EngineOptions options_;
  ModelPair pair_;

  mutable absl::Mutex mutex_;
  GenerationId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Session>> submitted_ ABSL_GUARDED_BY(mutex_);
  std::vector<GenerationId> cancelled_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<GenerationId, Outcome> results_ ABSL_GUARDED_BY(mutex_);
  RoundStats stats_ ABSL_GUARDED_BY(mutex_);
  EngineLoad load_ ABSL_GUARDED_BY(mutex_);
  // As last asked for; without a value it is wanted.
  std::optional<absl::Status> integrity_ ABSL_GUARDED_BY(mutex_) = absl::OkStatus();

  // The engine thread's own.
  Verifier verifier_;
  SpeculationPolicy policy_;
  int64_t num_prompt_tokens_ = 0;
  int64_t num_preemptions_ = 0;
  std::deque<std::unique_ptr<Session>> sessions_;  // oldest first
  std::thread thread_;                             // last: it uses all of the above
};

absl::Status EngineImpl::CheckToken(absl::string_view field, TokenId id) const {
  const int vocab_size = pair_.target->vocab_size();
  if (0 <= id && id < vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": token ", id, " is not in the vocabulary of ", vocab_size));
}

absl::StatusOr<std::vector<TokenId>> EngineImpl::PromptOf(const Request& request) const {
  if (!request.prompt.empty() && !request.prompt_ids.empty()) {
    return absl::InvalidArgumentError("prompt: both text and ids are given");
  }
  std::vector<TokenId> ids = request.prompt_ids;
  if (!request.prompt.empty()) {
    ASSIGN_OR_RETURN(ids, pair_.tokenizer->Encode(request.prompt, SpecialTokens::kParse));
    ids = pair_.tokenizer->WithTemplate(std::move(ids));
  }
  if (ids.empty()) return absl::InvalidArgumentError("prompt: is empty");
  for (const TokenId id : ids) RETURN_IF_ERROR(CheckToken("prompt_ids", id));
  const int context = pair_.target->context_length();
  if (static_cast<int64_t>(ids.size()) >= context) {
    return absl::InvalidArgumentError(absl::StrCat("prompt: has ", ids.size(),
                                                   " tokens, and the target's context of ", context,
                                                   " must hold one more"));
  }
  return ids;
}

absl::StatusOr<std::unique_ptr<Session>> EngineImpl::NewSession(Request request) const {
  auto session = std::make_unique<Session>();
  Session& s = *session;
  s.submit_time = absl::Now();
  RETURN_IF_ERROR(request.sampling.Validate(pair_.target->vocab_size()));
  RETURN_IF_ERROR(CheckAtLeast("max_tokens", request.max_tokens, 1));
  if (request.sampling.min_tokens > request.max_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("min_tokens: ", request.sampling.min_tokens,
                                                   " is not from 0 to max_tokens, which is ",
                                                   request.max_tokens));
  }
  const int draft_tokens = request.draft_tokens.value_or(options_.draft_tokens);
  RETURN_IF_ERROR(CheckDraftTokens(draft_tokens));
  RETURN_IF_ERROR(CheckTopLogprobs("logprobs", request.logprobs.num_top));
  RETURN_IF_ERROR(CheckTopLogprobs("prompt_logprobs", request.prompt_logprobs.num_top));
  const bool draft_is_drawn = pair_.drafter != nullptr && pair_.drafter->is_drawn();
  ASSIGN_OR_RETURN(s.rule, ParseVerifier(request.verifier.value_or(options_.verifier), request,
                                         draft_tokens, draft_is_drawn));
  for (const std::string& stop : request.stop) {
    if (stop.empty()) return absl::InvalidArgumentError("stop: a stop string is empty");
  }
  ASSIGN_OR_RETURN(s.tokens, PromptOf(request));
  s.prompt_length = s.length();
  // Tokens beyond the context are never asked for.
  s.max_length = static_cast<int>(std::min<int64_t>(int64_t{s.prompt_length} + request.max_tokens,
                                                    pair_.target->context_length()));
  const int64_t page_size = options_.page_size;
  const int64_t pages = (s.max_length + page_size - 1) / page_size;
  if (pages > pair_.target_cache->num_pages()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_tokens: ", s.prompt_length, " prompt tokens and ", s.max_length - s.prompt_length,
        " more need ", pages, " pages, and kv_memory holds ", pair_.target_cache->num_pages()));
  }
  s.sampling = std::move(request.sampling);
  if (TokenCounts* used = s.counts_if_used()) used->AddPrompt(s.tokens);
  s.random = RandomSource(request.seed.has_value() ? *request.seed : FreshSeed())
                 .ForSequence(request.sequence);
  for (const TokenId stop : request.stop_tokens) RETURN_IF_ERROR(CheckToken("stop_tokens", stop));
  s.stop_tokens.insert(request.stop_tokens.begin(), request.stop_tokens.end());
  if (!request.ignore_eos) {
    const std::vector<TokenId>& eos = pair_.target->config().eos_token_ids;
    s.stop_tokens.insert(eos.begin(), eos.end());
  }
  s.sampling.ending_tokens.assign(s.stop_tokens.begin(), s.stop_tokens.end());
  s.logprobs = request.logprobs;
  s.prompt_logprobs = request.prompt_logprobs;
  s.draft_tokens = draft_tokens;
  s.learns_sharpness = !request.seed.has_value() && s.rule != AcceptanceRule::kExactMatch;
  s.text = std::make_unique<OutputText>(pair_.tokenizer.get(), s.tokens, std::move(request.stop),
                                        s.sampling.min_tokens);
  s.completion.prompt_tokens = s.prompt_length;
  s.completion.verifier = std::string(NameOf(s.rule));
  s.completion.draft_tokens = pair_.drafter == nullptr ? 0 : draft_tokens;
  if (s.prompt_logprobs.num_top >= 0) s.completion.prompt_logprobs.emplace_back(std::nullopt);
  return session;
}

void EngineImpl::Work() {
  while (TakeNewWork()) {
    Step();
    Retire();
    ReportLoad();
  }
  Retire();
}

// Waits for something to do. False when the engine stops; then every generation has ended.
bool EngineImpl::TakeNewWork() {
  absl::MutexLock lock(&mutex_);
  const auto has_work = [this] {
    mutex_.AssertReaderHeld();
    return stopping_ || !submitted_.empty() || !sessions_.empty() || !integrity_.has_value();
  };
  mutex_.Await(absl::Condition(&has_work));
  if (!integrity_.has_value()) integrity_ = CheckBooks();
  for (std::unique_ptr<Session>& session : submitted_) sessions_.push_back(std::move(session));
  submitted_.clear();
  for (const auto& session : sessions_) {
    const bool is_cancelled =
        std::find(cancelled_.begin(), cancelled_.end(), session->id) != cancelled_.end();
    if (stopping_ || is_cancelled) session->Finish("cancelled");
  }
  cancelled_.clear();
  return !stopping_;
}

absl::Status EngineImpl::CheckBooks() const {
  if (!sessions_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("generations: ", sessions_.size(), " have not ended"));
  }
  RETURN_IF_ERROR(pair_.target_cache->CheckIntegrity({}));
  return pair_.draft_cache == nullptr ? absl::OkStatus() : pair_.draft_cache->CheckIntegrity({});
}

// The next round's plan; those preempted for it have given their pages back.
RoundPlan EngineImpl::Plan(absl::Span<Session* const> running) {
  for (;;) {
    RoundPlan plan = PlanRound(running,
                               {.max_batch = options_.max_batch,
                                .chunk_tokens = options_.chunk_tokens,
                                .free_pages = pair_.target_cache->num_available_pages()},
                               &policy_);
    if (plan.preempted.empty()) return plan;
    for (Session* session : plan.preempted) Preempt(session);
  }
}

void EngineImpl::Step() {
  Admit();
  std::vector<Session*> running;
  for (const auto& session : sessions_) {
    if (!session->finished) running.push_back(session.get());
  }
  if (running.empty()) return;
  for (Session* session : running) LookForDrafts(session);
  RoundPlan plan = Plan(running);
  if (plan.steps.empty()) {
    // A published page stays while a sequence uses one that follows it, even if it has its own.
    pair_.target_cache->ClearPrefixes();
    plan = Plan(running);
  }
  if (plan.steps.empty()) {
    return running.front()->Fail(absl::ResourceExhaustedError(
        absl::StrCat("kv_memory: ", pair_.target_cache->num_pages(), " pages are too few for ",
                     running.front()->length(), " tokens")));
  }
  const absl::Status status = RunRound(pair_.drafter.get(), &verifier_, plan.steps, &policy_);
  for (const RoundStep& step : plan.steps) {
    Session* session = step.session;
    if (!status.ok()) {
      session->Fail(status);
      continue;
    }
    // A prompt that has just been read can serve others from now on.
    if (options_.prefix_cache && (session->finished || session->num_output() > 0)) {
      const int full_pages = session->target_kv.length() / options_.page_size;
      if (full_pages > session->published_pages) {
        pair_.target_cache->Publish(session->tokens, session->target_kv);
        if (session->draft_state != nullptr) {
          pair_.drafter->Publish(session->draft_state.get(), session->tokens);
        }
        session->published_pages = full_pages;
      }
    }
    Deliver(session);
  }
}

// Gives the sequences that may run next their caches: what earlier sequences published, if
// anything.
void EngineImpl::Admit() {
  int num_running = 0;
  for (const auto& session : sessions_) {
    if (session->finished) continue;
    if (++num_running > options_.max_batch) break;
    if (session->is_admitted) continue;
    session->is_admitted = true;
    // Log-probabilities of the prompt need its rows computed.
    const bool may_reuse = options_.prefix_cache && session->prompt_logprobs.num_top < 0;
    const absl::Span<const TokenId> known =
        may_reuse ? absl::MakeConstSpan(session->tokens) : absl::Span<const TokenId>();
    session->target_kv = pair_.target_cache->NewSequenceWithPrefix(known);
    if (session->num_output() == 0) session->completion.cached_tokens = session->target_kv.length();
    num_prompt_tokens_ += session->prompt_length;
    if (pair_.drafter != nullptr) session->draft_state = pair_.drafter->NewState(known);
  }
}

// What the session could draft next, once its prompt is read.
void EngineImpl::LookForDrafts(Session* session) {
  session->draft_options.clear();
  if (session->draft_state == nullptr || session->draft_tokens == 0) return;
  if (session->num_pending() > std::max(options_.chunk_tokens, kMostWithoutChunk)) return;
  session->draft_options = pair_.drafter->Options(session->draft_state.get(), session->tokens);
}

void EngineImpl::Preempt(Session* session) {
  spdlog::debug("preempt generation={} tokens={}", session->id, session->length());
  ++session->completion.num_preemptions;
  ++num_preemptions_;
  session->target_kv.Truncate(0);
  if (session->draft_state != nullptr) pair_.drafter->Evict(session->draft_state.get());
  session->published_pages = 0;
  // Of a prompt not read to its end, all rows are computed and reported again.
  auto& reported = session->completion.prompt_logprobs;
  if (session->NeedsPromptLogprobs()) reported.resize(std::min<size_t>(reported.size(), 1));
}

RoundReport EngineImpl::RoundOf(const Session& session) const {
  const RoundStats& stats = session.completion.stats;
  return {.proposed = static_cast<int>(stats.proposed - session.delivered_proposed),
          .accepted = static_cast<int>(stats.accepted - session.delivered_accepted),
          .target_cached_tokens = session.target_kv.length(),
          .draft_cached_tokens =
              session.draft_state == nullptr ? 0 : pair_.drafter->NumCached(*session.draft_state)};
}

void EngineImpl::Deliver(Session* session) {
  Session& s = *session;
  Completion& c = s.completion;
  if (c.token_ids.size() > s.delivered_tokens && s.delivered_tokens == 0) {
    c.timings.time_to_first_token = absl::Now() - s.submit_time;
    c.first_round_tokens = static_cast<int>(c.token_ids.size());
  }
  const std::string& text = s.text->text();
  if (c.token_ids.size() == s.delivered_tokens && text.size() == s.delivered_text) return;
  const Piece piece{.text = std::string_view(text).substr(s.delivered_text),
                    .token_ids = absl::MakeConstSpan(c.token_ids).subspan(s.delivered_tokens),
                    .provenance = std::string_view(c.provenance).substr(s.delivered_tokens),
                    .logprobs = c.logprobs.empty()
                                    ? absl::Span<const TokenLogprobs>()
                                    : absl::MakeConstSpan(c.logprobs).subspan(s.delivered_tokens),
                    .round = RoundOf(s)};
  s.delivered_text = text.size();
  s.delivered_tokens = c.token_ids.size();
  s.delivered_proposed = c.stats.proposed;
  s.delivered_accepted = c.stats.accepted;
  if (s.on_piece && !s.on_piece(piece)) s.Finish("cancelled");
}

// Hands over what has ended.
void EngineImpl::Retire() {
  std::deque<std::unique_ptr<Session>> going_on;
  for (std::unique_ptr<Session>& session : sessions_) {
    if (!session->finished) {
      going_on.push_back(std::move(session));
      continue;
    }
    Completion& c = session->completion;
    c.text = session->text->text();
    c.timings.end_to_end = absl::Now() - session->submit_time;
    c.timings.prefill = c.stats.prefill_time;
    c.timings.draft = c.stats.draft_time;
    c.timings.verify = c.stats.verify_time;
    const RoundStats stats = c.stats;
    absl::StatusOr<Completion> result = std::move(c);
    if (!session->status.ok()) result = session->status;
    Engine::OnDone on_done = std::move(session->on_done);
    {
      absl::MutexLock lock(&mutex_);
      stats_ += stats;
      if (on_done != nullptr) {
        results_.erase(session->id);
      } else {
        Outcome& outcome = results_.at(session->id);
        outcome.is_done = true;
        outcome.completion = std::move(result);
      }
    }
    session.reset();  // its pages are free before anybody hears of its end
    if (on_done != nullptr) on_done(std::move(result));
  }
  sessions_ = std::move(going_on);
}

// Shows the others how things stand.
void EngineImpl::ReportLoad() {
  EngineLoad load;
  RoundStats in_progress;
  for (const auto& session : sessions_) {
    ++(session->is_admitted ? load.num_running : load.num_waiting);
    in_progress += session->completion.stats;
  }
  load.target_pages_in_use = PagesInUse(*pair_.target_cache);
  if (pair_.draft_cache != nullptr) load.draft_pages_in_use = PagesInUse(*pair_.draft_cache);
  load.prompt_tokens = num_prompt_tokens_;
  const PagedKvCache::PrefixStats& prefixes = pair_.target_cache->prefix_stats();
  load.prefix_queries = prefixes.queried_tokens;
  load.prefix_hits = prefixes.hit_tokens;
  load.preemptions = num_preemptions_;
  absl::MutexLock lock(&mutex_);
  load.stats = stats_;
  load.stats += in_progress;
  load_ = load;
}

}  // namespace

absl::Status EngineOptions::Validate() const {
  if (target.empty()) return absl::InvalidArgumentError("target: no model folder is given");
  RETURN_IF_ERROR(CheckDraftTokens(draft_tokens));
  RETURN_IF_ERROR(ParseVerifier(verifier, Request(), draft_tokens, true).status());
  RETURN_IF_ERROR(CheckAtLeast("threads", threads, 0));
  RETURN_IF_ERROR(ParseKvDType(kv_cache).status());
  RETURN_IF_ERROR(CheckAtLeast("kv_memory", kv_memory_bytes, 0));
  RETURN_IF_ERROR(CheckAtLeast("page_size", page_size, 1));
  RETURN_IF_ERROR(CheckAtLeast("max_batch", max_batch, 1));
  return CheckAtLeast("chunk_tokens", chunk_tokens, 1);
}

absl::Duration Timings::TimePerOutputToken(int num_tokens, int first_tokens) const {
  if (num_tokens <= first_tokens) return absl::ZeroDuration();
  return (end_to_end - time_to_first_token) / (num_tokens - first_tokens);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  return CreateEngineWithJudge(options, Judge);
}

absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithJudge(const EngineOptions& options,
                                                              JudgeFunction judge) {
  ASSIGN_OR_RETURN(ModelPair pair, ModelPair::Load(options));
  return std::make_unique<EngineImpl>(options, std::move(pair), std::move(judge));
}

absl::StatusOr<Completion> Engine::Generate(Request request, OnPiece on_piece) {
  ASSIGN_OR_RETURN(const GenerationId id, Submit(std::move(request), std::move(on_piece)));
  return Wait(id);
}

}  // namespace tandem
