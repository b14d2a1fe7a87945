#include "tandem/engine.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/guard.h"
#include "base/hash_map.h"
#include "base/instant.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "engine/choice_round.h"
#include "engine/clients.h"
#include "engine/delivery.h"
#include "engine/engine_parts.h"
#include "engine/idle_reason.h"
#include "engine/learned_speculation.h"
#include "engine/new_session.h"
#include "engine/round.h"
#include "engine/runtime.h"
#include "engine/scheduler.h"
#include "engine/session.h"
#include "engine/session_prefixes.h"
#include "kvcache/kv_sequence.h"

namespace tandem {
namespace {

int PagesInUse(const PagedKvCache& cache) {
  return cache.num_pages() - cache.num_available_pages();
}

// Minimum time between saves of what speculation has learned. It is saved when the engine is idle,
// and when it ends.
constexpr absl::Duration kTimeBetweenKeeping = absl::Minutes(1);

class EngineImpl final : public Engine {
 public:
  EngineImpl(EngineParts parts, JudgeFunction judge)
      : parts_(std::move(parts)),
        verifier_(runtime_.target.get(), std::move(judge)),
        learned_(parts_.learned_file, runtime_.head.get()),
        tenants_(options_.draft_memory_bytes, parts_.texts),
        prefixes_(&options_, &runtime_),
        delivery_(std::make_unique<Delivery>(options_.callback_thread)),
        thread_([this] { Work(); }) {}

  ~EngineImpl() override {
    TANDEM_CHECK(!delivery_->IsOwnThread() && thread_.get_id() != std::this_thread::get_id());
    {
      absl::MutexLock lock(&mutex_);
      is_stopping_ = true;
    }
    thread_.join();
    delivery_.reset();  // callbacks may still call the engine, which refuses everything
    const auto is_left = [this] {
      mutex_.AssertReaderHeld();
      return num_callers_ == 0;
    };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&is_left));
  }

  absl::StatusOr<GenerationId> Submit(Request request, OnPiece on_piece, OnDone on_done) override {
    GenerationId id = 0;
    const absl::Status status = Guarded("request", [&] {
      return Queue(std::move(request), std::move(on_piece), std::move(on_done), &id);
    });
    if (!status.ok()) return status;
    return id;
  }

  absl::StatusOr<Completion> Wait(GenerationId id, absl::Duration timeout) override {
    absl::MutexLock lock(&mutex_);
    const auto it = results_.find(id);
    if (it == results_.end() || it->second.is_waited_for) {
      return absl::NotFoundError(
          absl::StrCat("generation ", id, " is unknown, or is being or was waited for"));
    }
    it->second.is_waited_for = true;
    const auto is_done = [this, id] {
      mutex_.AssertReaderHeld();
      return results_.find(id)->second.is_done;
    };
    ++num_callers_;
    const bool in_time = mutex_.AwaitWithTimeout(absl::Condition(&is_done), timeout);
    --num_callers_;
    Outcome& outcome = results_.find(id)->second;
    if (!in_time) {
      outcome.is_waited_for = false;
      return absl::DeadlineExceededError(absl::StrCat("generation ", id, " has not ended yet"));
    }
    absl::StatusOr<Completion> result = std::move(outcome.result);
    results_.erase(id);
    return result;
  }

  void Cancel(GenerationId id) override {
    absl::MutexLock lock(&mutex_);
    const auto it = results_.find(id);
    if (it != results_.end()) it->second.is_cancelled = true;
  }

  absl::Status health() const override {
    absl::MutexLock lock(&mutex_);
    return health_;
  }
  RoundStats stats() const override {
    absl::MutexLock lock(&mutex_);
    return stats_;
  }
  EngineLoad load() const override {
    absl::MutexLock lock(&mutex_);
    EngineLoad load = load_;
    load.num_waiting += static_cast<int>(submitted_.size());
    if (store_ != nullptr) store_->Refresh(&load);
    load.draft_text_bytes = parts_.texts->bytes_in_use();
    if (parts_.events != nullptr) {  // counted by another thread
      const KvEventStats stats = parts_.events->stats();
      load.kv_events = {.batches_published = stats.published, .batches_lost = stats.lost};
    }
    return load;
  }
  absl::Status CheckIntegrity() override {
    absl::MutexLock lock(&mutex_);
    const int64_t check = ++checks_asked_;
    const auto is_done = [this, check] {
      mutex_.AssertReaderHeld();
      return is_stopping_ || checks_done_ >= check;
    };
    ++num_callers_;
    mutex_.Await(absl::Condition(&is_done));
    --num_callers_;
    return checks_done_ >= check ? integrity_ : Ended();
  }
  void AwaitPackedWeights() override { runtime_.AwaitPackedFiles(); }
  const Tokenizer& tokenizer() const override { return *runtime_.tokenizer; }
  ModelInfo target_info() const override { return runtime_.TargetInfo(options_.target); }
  std::optional<ModelInfo> draft_info() const override {
    return runtime_.DraftInfo(options_.draft);
  }
  DrafterKind drafter() const override { return runtime_.drafter_kind; }
  std::vector<DrafterKind> drafters() const override { return runtime_.Drafters(); }
  std::string device_description() const override { return runtime_.DeviceDescription(); }

 private:
  // The state of a generation that has not ended, or whose end was not reported yet.
  struct Outcome {
    bool is_cancelled = false;
    bool is_waited_for = false;  // by Wait or by a callback
    bool is_done = false;        // `result` is set
    absl::StatusOr<Completion> result = absl::UnknownError("");
  };

  static absl::Status Ended() { return absl::CancelledError("the engine is being destroyed"); }
  absl::Status Queue(Request request, OnPiece on_piece, OnDone on_done, GenerationId* id);
  std::shared_ptr<Channel> OpenChannel(GenerationId id, OnPiece on_piece, OnDone on_done);
  void SetResult(GenerationId id, absl::StatusOr<Completion> result);

  void Work();
  bool TakeNewWork();
  void AnswerChecks();
  void Step();
  void DecodeAll(RoundPlan* plan);
  void ChooseAll(absl::Span<const ChoiceStep> steps);
  void FailRunning(const absl::Status& why);
  void ObserveDevice();
  std::vector<Session*> Admit();
  void Begin(Session* session, KvSequence found);
  RoundPlan Plan(std::vector<Session*>* running);
  std::vector<Session*> TakeStored(std::vector<Session*> running);
  bool ReplanAfterPrefixHits(absl::Span<const RoundStep> steps);
  void FindDrafts(Session* session);
  void Preempt(Session* session);
  void Deliver(Session* session);
  void Retire();
  void Retire(Session* session);
  void ReportLoad();

  const EngineParts parts_;
  const EngineOptions& options_ = parts_.options;
  Runtime& runtime_ = *parts_.runtime;
  PromptStore* const store_ = parts_.store.get();  // or null

  mutable absl::Mutex mutex_;
  GenerationId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int num_callers_ ABSL_GUARDED_BY(mutex_) = 0;  // callers blocked in Wait or CheckIntegrity
  std::vector<std::unique_ptr<Session>> submitted_ ABSL_GUARDED_BY(mutex_);
  HashMap<GenerationId, Outcome> results_ ABSL_GUARDED_BY(mutex_);
  RoundStats stats_ ABSL_GUARDED_BY(mutex_);
  EngineLoad load_ ABSL_GUARDED_BY(mutex_);
  int64_t checks_asked_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t checks_done_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status integrity_ ABSL_GUARDED_BY(mutex_);
  absl::Status health_ ABSL_GUARDED_BY(mutex_);

  // Used only by the engine's thread.
  Verifier verifier_;
  LearnedSpeculation learned_;
  SpeculationPolicy policy_;
  Tenants tenants_;
  Clients clients_;
  SessionPrefixes prefixes_;
  int64_t num_preemptions_ = 0;
  std::vector<std::unique_ptr<Session>> sessions_;  // oldest first

  std::unique_ptr<Delivery> delivery_;
  std::thread thread_;  // last: it uses all of the above
};

// ---- On the caller's thread ----

absl::Status EngineImpl::Queue(Request request, OnPiece on_piece, OnDone on_done,
                               GenerationId* id) {
  ASSIGN_OR_RETURN(auto transfer, PromptStore::BeginTransfer(store_, request));
  ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                   NewSession(std::move(request), options_, runtime_));
  session->fetch.transfer = std::move(transfer);
  absl::MutexLock lock(&mutex_);
  if (is_stopping_) return Ended();
  RETURN_IF_ERROR(health_);
  if (static_cast<int64_t>(results_.size()) >= options_.max_generations) {
    return absl::ResourceExhaustedError(
        absl::StrCat("max_generations: ", options_.max_generations,
                     " generations have not ended or were not waited for; try again later"));
  }
  *id = next_id_++;
  session->id = *id;
  Outcome outcome;
  outcome.is_waited_for = on_done != nullptr;
  session->channel = OpenChannel(*id, std::move(on_piece), std::move(on_done));
  results_.emplace(*id, std::move(outcome));
  submitted_.push_back(std::move(session));
  return absl::OkStatus();
}

// Returns null without callbacks.
std::shared_ptr<Channel> EngineImpl::OpenChannel(GenerationId id, OnPiece on_piece,
                                                 OnDone on_done) {
  if (on_done != nullptr) {
    return delivery_->Open(std::move(on_piece), [this, id, on_done = std::move(on_done)](
                                                    absl::StatusOr<Completion> result) mutable {
      {
        absl::MutexLock lock(&mutex_);
        results_.erase(id);  // before the callback, which may submit the next
      }
      on_done(std::move(result));
    });
  }
  if (on_piece == nullptr) return nullptr;
  return delivery_->Open(std::move(on_piece), [this, id](absl::StatusOr<Completion> result) {
    SetResult(id, std::move(result));
  });
}

void EngineImpl::SetResult(GenerationId id, absl::StatusOr<Completion> result) {
  absl::MutexLock lock(&mutex_);
  Outcome& outcome = results_.find(id)->second;
  outcome.result = std::move(result);
  outcome.is_done = true;
}

// ---- On the engine's thread ----

void EngineImpl::Work() {
  learned_.Recall(&policy_);
  runtime_.SetUp(&policy_);
  for (bool goes_on = true; goes_on;) {
    const absl::Status status = Caught("round", [&] {
      goes_on = TakeNewWork();
      Retire();  // before planning, so that cancelled sessions hold no pages in the round
      if (!goes_on) return;
      ReportLoad();
      if (sessions_.empty()) learned_.Keep(&policy_, kTimeBetweenKeeping);
      AnswerChecks();
      Step();
    });
    if (!status.ok()) FailRunning(status);
    ObserveDevice();
    if (parts_.events != nullptr) Attempt("kv events", [this] { parts_.events->Flush(); });
  }
  learned_.Keep(&policy_, absl::ZeroDuration());
}

// Waits for work. Returns false when the engine stops; every generation is then finished.
bool EngineImpl::TakeNewWork() {
  absl::MutexLock lock(&mutex_);
  const auto has_work = [this] {
    mutex_.AssertReaderHeld();
    return is_stopping_ || !submitted_.empty() || !sessions_.empty() ||
           checks_done_ < checks_asked_;
  };
  mutex_.Await(absl::Condition(&has_work));
  // All that may throw comes before the first move.
  for (const auto& session : submitted_) session->client = clients_.Get(session->client_name);
  sessions_.reserve(sessions_.size() + submitted_.size());
  std::move(submitted_.begin(), submitted_.end(), std::back_inserter(sessions_));
  submitted_.clear();
  for (const auto& session : sessions_) {
    if (session->finished) continue;
    if (!health_.ok()) {
      session->Fail(health_);
    } else if (is_stopping_ || results_.find(session->id)->second.is_cancelled) {
      session->Finish(FinishReason::kCancelled);
    } else if (Instant::Now() >= session->deadline) {
      session->Finish(FinishReason::kDeadline);
    }
  }
  return !is_stopping_;
}

void EngineImpl::AnswerChecks() {
  int64_t asked = 0;
  {
    absl::MutexLock lock(&mutex_);
    asked = checks_asked_;
    if (asked == checks_done_) return;
  }
  std::vector<const KvSequence*> sequences;
  for (const auto& session : sessions_) sequences.push_back(&session->target_kv);
  absl::Status status = runtime_.target_cache->CheckIntegrity(sequences);
  if (runtime_.drafter != nullptr) status.Update(runtime_.drafter->CheckIntegrity());
  absl::MutexLock lock(&mutex_);
  integrity_ = std::move(status);
  checks_done_ = asked;
}

void EngineImpl::Step() {
  tenants_.RefreshTexts();
  TakeTurns(options_.max_batch, &sessions_);
  std::vector<Session*> running = TakeStored(Admit());
  const auto any_ended = [&] {
    return absl::c_any_of(running, [](const Session* session) { return session->finished; });
  };
  if (running.empty() || any_ended()) return;
  clients_.PayDebts(ShareConstraintTime(running));
  for (Session* session : running) FindDrafts(session);
  RoundPlan plan = Plan(&running);
  if (plan.is_empty()) {  // the others wait for pages of those that sit out
    for (Session* session : running) session->sits_out = false;
    plan = Plan(&running);
  }
  if (plan.is_empty() && PromptStore::StopWaiting(sessions_)) return;
  // A prefix hit frees rows for other sessions, which may then hit the cache themselves. So plan
  // until nothing changes.
  while (ReplanAfterPrefixHits(plan.steps)) plan = Plan(&running);
  if (any_ended()) return;         // all their tokens were found
  TANDEM_CHECK(!plan.is_empty());  // Submit refuses requests that cannot fit alone
  if (!plan.steps.empty()) DecodeAll(&plan);
  if (!plan.choices.empty()) ChooseAll(plan.choices);
}

// Runs the round of all sessions but those that choose.
void EngineImpl::DecodeAll(RoundPlan* planned) {
  RoundPlan& plan = *planned;
  AddDrafts(&policy_, &plan);
  const Instant start = Instant::Now();
  const absl::Status status =
      RunRound(runtime_.drafter.get(), &verifier_, plan.steps, &policy_, [&] {
        for (const RoundStep& step : plan.steps) {
          if (options_.prefix_cache) prefixes_.Publish(step.session);
          if (store_ != nullptr) store_->Offer(step.session);
          Deliver(step.session);
          step.session->EndIfScored();
        }
      });
  if (store_ != nullptr) store_->Observe(plan.steps, Instant::Now() - start);
  for (const RoundStep& step : plan.steps) {
    if (!status.ok()) step.session->Fail(status);
  }
  if (runtime_.head != nullptr) runtime_.head->Learn(plan.steps, policy_);
}

void EngineImpl::ChooseAll(absl::Span<const ChoiceStep> steps) {
  const absl::Status status = RunChoiceRound(runtime_.target.get(), steps, runtime_.chunk_tokens);
  for (const ChoiceStep& step : steps) {
    if (!status.ok()) step.session->Fail(status);
    Deliver(step.session);
  }
}

// Called after an unexpected exception. Which caches are half written is not known, so every
// running session fails.
void EngineImpl::FailRunning(const absl::Status& why) {
  Log(LogLevel::kError, StdView(why.message()));
  bool has_failed_any = false;
  for (const auto& session : sessions_) {
    if (!session->is_running || session->finished) continue;
    session->Fail(why);
    has_failed_any = true;
  }
  if (!has_failed_any && !sessions_.empty()) sessions_.front()->Fail(why);
}

// Once the device is lost, all sessions fail, those of later requests too.
void EngineImpl::ObserveDevice() {
  const absl::Status health = runtime_.backend->health();
  if (health.ok()) return;
  {
    absl::MutexLock lock(&mutex_);
    if (!health_.ok()) return;
    health_ = health;
  }
  if (options_.on_device_failure) {
    Attempt("device failure", [&] { options_.on_device_failure(health); });
  }
}

// Returns the sessions that run in the next round.
std::vector<Session*> EngineImpl::Admit() {
  std::vector<Session*> active;
  for (const auto& session : sessions_) {
    if (!session->finished) active.push_back(session.get());
  }
  const auto find_prefix = [this](const Session& session) { return prefixes_.Find(session); };
  const auto begin = [this](Session* session, KvSequence found) {
    Begin(session, std::move(found));
  };
  return tandem::Admit(active, options_.max_batch, *runtime_.target_cache, find_prefix, begin);
}

void EngineImpl::Begin(Session* session, KvSequence found) {
  session->times.OnPlace(Instant::Now());
  session->TakePlace();
  if (session->tenant == nullptr) session->tenant = tenants_.Get(session->salt);
  if (session->draft_state == nullptr && NeedsState(runtime_.drafter.get(), session->drafter)) {
    session->draft_state = runtime_.drafter->NewStateOf(session->drafter, {}, session->tenant);
  }
  prefixes_.Begin(session, std::move(found));
  if (store_ != nullptr && !session->finished) store_->Begin(prefixes_.Reusable(*session), session);
  Deliver(session);  // the progress of its prompt
}

// Publishes the pages that have arrived from the store. Returns the sessions that do not wait for
// more pages.
std::vector<Session*> EngineImpl::TakeStored(std::vector<Session*> running) {
  if (store_ == nullptr) return running;
  return store_->Take(running, [this](Session* session) {
    const bool is_transfer = session->fetch.pages->is_transfer();
    const int num_reused = prefixes_.Take(session, prefixes_.Find(*session));
    Completion& c = session->completion;
    if (c.num_preemptions == 0) (is_transfer ? c.transfer_tokens : c.store_tokens) += num_reused;
  });
}

// Plans the next round. Sessions that it preempts have released their pages and are removed from
// `running`.
RoundPlan EngineImpl::Plan(std::vector<Session*>* running) {
  for (;;) {
    RoundPlan plan = PlanRound(*running, runtime_.chunk_tokens,
                               runtime_.target_cache->num_available_pages(), options_.prefix_cache);
    if (!plan.preempts_youngest) return plan;
    Preempt(running->back());
    running->pop_back();
  }
}

// Gives sessions that are still reading any longer prefix that others have published meanwhile.
// Returns true if there was one.
bool EngineImpl::ReplanAfterPrefixHits(absl::Span<const RoundStep> steps) {
  bool found = false;
  for (const RoundStep& step : steps) {
    Session& s = *step.session;
    if (s.num_pending() <= kMaxDecodeTokens) continue;
    KvSequence longer = prefixes_.Find(s);
    if (longer.length() <= s.target_kv.length()) continue;
    prefixes_.Take(&s, std::move(longer));
    FindDrafts(&s);
    found = true;
  }
  return found;
}

// Finds the session's draft options for the next round, if the rest of its prompt fits into a
// chunk. On an exception there are none.
void EngineImpl::FindDrafts(Session* session) {
  session->draft_options.clear();
  if (session->draft_tokens == 0 || session->sits_out || !session->history.may_draft()) return;
  if (session->num_pending() > std::max(runtime_.chunk_tokens, kMaxDecodeTokens)) return;
  const absl::Status status = Caught("draft", [&] {
    if (session->draft_state != nullptr) {
      session->draft_options =
          runtime_.drafter->Options(session->draft_state.get(), session->tokens);
    }
    FindGivenDrafts(*runtime_.tokenizer, session);
  });
  if (!status.ok()) session->draft_options.clear();
}

void EngineImpl::Preempt(Session* session) {
  Log(LogLevel::kDebug,
      absl::StrCat("preempt generation=", session->id, " tokens=", session->length()));
  ++session->completion.num_preemptions;
  ++num_preemptions_;
  session->is_running = false;
  session->target_kv = KvSequence();
  session->published_pages = 0;
  session->fetch.pages = nullptr;
  if (session->draft_state != nullptr) runtime_.drafter->Evict(session->draft_state.get());
  // If the prompt was not read to its end, all its rows are computed and reported again.
  auto& reported = session->completion.prompt_logprobs;
  if (session->NeedsPromptLogprobs()) reported.resize(std::min<size_t>(reported.size(), 1));
}

void EngineImpl::Deliver(Session* session) {
  const std::optional<Piece> piece = session->TakePiece(runtime_.drafter.get());
  if (!piece.has_value() || session->channel == nullptr) return;
  if (!session->channel->Put(*piece)) session->Finish(FinishReason::kCancelled);
}

// Delivers finished generations and removes them.
// Nothing here throws, so that each end is reported once.
void EngineImpl::Retire() {
  for (const auto& session : sessions_) {
    if (session->finished) Retire(session.get());
  }
  std::erase_if(sessions_, [](const auto& session) { return session->finished; });
}

void EngineImpl::Retire(Session* session) {
  Session& s = *session;
  const absl::Status status = Caught("request", [&] {
    if (s.status.ok()) Deliver(&s);  // the text that was held back
    s.completion.text = s.text->text();
    s.completion.idle_reason = IdleReasonOf(s, policy_.costs());
  });
  if (s.status.ok()) s.status = status;
  Completion& c = s.completion;
  c.timings = s.times.Until(Instant::Now());
  {
    absl::MutexLock lock(&mutex_);
    stats_ += c.stats;
  }
  s.client->constraint_debt += s.constraint_debt + s.history.constraint_work() - s.constraint_work;
  // Release its pages before its end is reported.
  s.target_kv = KvSequence();
  s.draft_state = nullptr;
  absl::StatusOr<Completion> result = std::move(c);
  if (!s.status.ok()) result = std::move(s.status);
  if (s.channel == nullptr) return SetResult(s.id, std::move(result));
  s.channel->Close(std::move(result));
}

// Updates the snapshot that load() returns.
void EngineImpl::ReportLoad() {
  EngineLoad load;
  for (const auto& session : sessions_) {
    ++(session->is_running ? load.num_running : load.num_waiting);
    load.stats += session->completion.stats;  // in progress
  }
  load.target_pages_in_use = PagesInUse(*runtime_.target_cache);
  if (runtime_.draft_cache != nullptr) load.draft_pages_in_use = PagesInUse(*runtime_.draft_cache);
  prefixes_.Count(&load);
  load.preemptions = num_preemptions_;
  if (store_ != nullptr) store_->CountHits(&load);
  load.draft_memory_bytes = tenants_.bytes_in_use();
  load.draft_memory_tenants = tenants_.num_tenants();
  absl::MutexLock lock(&mutex_);
  load.stats += stats_;
  load_ = load;
}

}  // namespace

std::unique_ptr<Engine> StartEngine(EngineParts parts, JudgeFunction judge) {
  return std::make_unique<EngineImpl>(std::move(parts), std::move(judge));
}

}  // namespace tandem
