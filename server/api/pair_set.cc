#include "server/api/pair_set.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/format.h"
#include "base/guard.h"
#include "base/json/json_text.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "server/api/api_error.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

// For how long requests get the error of a failed load before it is tried again.
constexpr absl::Duration kRetryAfter = absl::Seconds(10);
constexpr absl::Duration kPause = absl::Milliseconds(100);  // when memory is short

// The facts about a loaded model in /v1/models, without its name.
JsonValue DescribeModel(const ServedModel& model, const ModelInfo& target) {
  return {{"max_model_len", model.MaxLength()},
          {"page_size", target.page_size},
          {"drafter", model.drafter},
          {"drafters", model.drafters},
          {"parallel_draft", model.parallel_draft},
          {"chat_template", model.chat_template.ok()
                                ? JsonValue(std::string(model.chat_template->name()))
                                : JsonValue(nullptr)},
          {"has_chat_template", model.HasChatTemplate()},
          {"has_reasoning", model.reasoning.has_value()}};
}

// Logs an error if a page of an engine without requests is not free, whatever the clients did.
void CheckPages(Engine* engine) {
  const absl::Status pages = engine->health().ok() ? engine->CheckIntegrity() : absl::OkStatus();
  if (!pages.ok()) Log(LogLevel::kError, StdView(pages.message()));
}

}  // namespace

struct PairSet::Entry {
  PairSource source;
  std::unique_ptr<Metrics> metrics;
  // Guarded by the set's mutex, like all below.
  State state = State::kUnloaded;
  absl::Status error;    // for clients, of kFailed and kLost
  absl::Status failure;  // of the loaded pair, while it still has to be unloaded
  Instant failed_at;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<ServedPair> pair;  // of kLoaded and kUnloading, and perhaps of kLost
  PairMemory memory{};               // of the last load
  int num_leases = 0;
  Instant last_used;
  std::vector<Waiting> waiting{};               // for the load
  std::vector<Waiting> waiting_for_end{};       // for the unload
  JsonValue description = JsonValue::object();  // of the model, since the first load
  bool is_awaited_at_start = false;
  PairCounts counts{};
};

std::string_view PairSet::NameOf(State state) {
  constexpr std::string_view kNames[] = {"unloaded",  "waiting", "loading", "loaded",
                                         "unloading", "failed",  "lost"};
  return kNames[static_cast<int>(state)];
}

PairSet::PairSet(Engine* engine, PairSetOptions options)
    : options_(std::move(options)), has_several_(false), started_(absl::Now()) {
  auto entry = std::make_unique<Entry>();
  entry->source.name = options_.name;
  entry->source.max_sequences = options_.max_sequences;
  entry->source.prefix_cache = options_.prefix_cache;
  entry->metrics = std::make_unique<Metrics>();
  entry->state = State::kLoaded;
  entry->pair = Serve(*entry, engine, options_.sampling, options_.system_fingerprint);
  entry->description = DescribeModel(entry->pair->model, engine->target_info());
  entries_.push_back(std::move(entry));
}

PairSet::PairSet(PairSetOptions options)
    : options_(std::move(options)), has_several_(true), started_(absl::Now()) {
  const absl::MutexLock lock(&mutex_);
  for (const PairSource& source : options_.sources) {
    auto entry = std::make_unique<Entry>();
    entry->source = source;
    entry->metrics = std::make_unique<Metrics>();
    entry->is_awaited_at_start = source.is_preloaded;
    if (source.is_preloaded) Enqueue(entry.get());
    entries_.push_back(std::move(entry));
  }
  worker_.emplace([this] {
    while (!Attempt("models", [this] { Work(); })) absl::SleepFor(kPause);
  });
}

PairSet::~PairSet() {
  Stop();
  {
    const absl::MutexLock lock(&mutex_);
    const auto is_unused = [this] {
      mutex_.AssertReaderHeld();
      return num_leases_ == 0;
    };
    mutex_.Await(absl::Condition(&is_unused));
  }
  for (const auto& entry : entries_) {
    if (entry->engine != nullptr) CheckPages(entry->engine.get());
  }
}

std::unique_ptr<ServedPair> PairSet::Serve(const Entry& entry, Engine* engine,
                                           const SamplingParams& sampling,
                                           const std::string& fingerprint) const {
  auto pair = std::make_unique<ServedPair>(engine, entry.metrics.get(), entry.source.max_sequences);
  pair->model = ServedModel::Of(*engine, entry.source.name, pair->admission.max_per_request(),
                                options_.max_answer_bytes);
  pair->model.sampling = sampling;
  pair->model.fingerprint = fingerprint;
  pair->model.is_strict = options_.is_strict;
  pair->model.splits_reasoning = options_.splits_reasoning;
  return pair;
}

// ---- Names ----

std::string PairSet::Names() const {
  return absl::StrJoin(entries_, ", ", [](std::string* out, const std::unique_ptr<Entry>& entry) {
    *out += entry->source.name;
  });
}

absl::StatusOr<PairSet::Entry*> PairSet::Find(const std::string& name) const {
  if (name.empty() && !has_several_) return entries_.front().get();
  for (const auto& entry : entries_) {
    if (entry->source.name == name) return entry.get();
  }
  if (name.empty()) return FieldError("model", absl::StrCat("is required, allowed: ", Names()));
  return NoSuchModel(name, Names());
}

// ---- Leases ----

void PairSet::Count(Entry* entry) {
  ++entry->num_leases;
  ++num_leases_;
}

// Without the mutex: if memory is short, the lease is returned.
PairLease PairSet::CountedLease(Entry* entry, bool is_use) {
  return {entry->pair.get(), [=, this](ServedPair* /*pair*/) { Return(entry, is_use); }};
}

void PairSet::Return(Entry* entry, bool is_use) {
  const absl::MutexLock lock(&mutex_);
  if (is_use) entry->last_used = Instant::Now();  // the idle time begins with the request's end
  --num_leases_;
  if (--entry->num_leases == 0) has_changed_ = true;
}

std::optional<absl::StatusOr<PairLease>> PairSet::Acquire(const std::string& name, Use use,
                                                          Waiter waiter) {
  const absl::StatusOr<Entry*> found = Find(name);
  if (!found.ok()) return found.status();
  Entry* const entry = *found;
  {
    const absl::MutexLock lock(&mutex_);
    if (has_several_ && !end_.ok()) return end_;  // a single pair's Admission refuses sequences
    entry->last_used = Instant::Now();
    if (entry->state != State::kLoaded) {
      if (waiter == nullptr) return std::nullopt;
      return Queue(entry, use, std::move(waiter));
    }
    if (use == Use::kLoad) return PairLease();
    Count(entry);
  }
  return CountedLease(entry);
}

std::optional<absl::StatusOr<PairLease>> PairSet::Queue(Entry* entry, Use use, Waiter waiter) {
  if (entry->state == State::kLost) return entry->error;
  const bool failed_now =
      entry->state == State::kFailed && Instant::Now() - entry->failed_at < kRetryAfter;
  if (failed_now && use == Use::kRequest) return entry->error;
  if (entry->waiting.size() >= static_cast<size_t>(entry->source.max_sequences)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the queue is full: ", entry->waiting.size(), " requests wait until ",
                     Quoted(entry->source.name), " is loaded; try again later"));
  }
  Enqueue(entry);
  entry->waiting.push_back({use, std::move(waiter)});
  return std::nullopt;
}

std::optional<absl::StatusOr<PairLease>> PairSet::Unload(const std::string& name, Waiter waiter) {
  const absl::StatusOr<Entry*> found = Find(name);
  if (!found.ok()) return found.status();
  Entry* const entry = *found;
  const absl::MutexLock lock(&mutex_);
  if (!has_several()) {
    return WithCode(absl::FailedPreconditionError(
                        "the pair of this server is always loaded; serve --models has several"),
                    "always_loaded", 409);
  }
  if (!end_.ok()) return end_;
  if (entry->state == State::kWaiting || entry->state == State::kLoading) {
    return WithCode(absl::FailedPreconditionError(absl::StrCat(
                        Quoted(entry->source.name), " is being loaded; unload it afterwards")),
                    "is_loading", 409);
  }
  if (entry->state == State::kLoaded) BeginUnloading(entry, "request");
  if (entry->state != State::kUnloading) return PairLease();
  entry->waiting_for_end.push_back({Use::kLoad, std::move(waiter)});
  return std::nullopt;
}

// ---- The thread ----

void PairSet::Enqueue(Entry* entry) {
  has_changed_ = true;
  const bool is_queued = std::find(queue_.begin(), queue_.end(), entry) != queue_.end();
  if (!is_queued && entry->state != State::kLoading) queue_.push_back(entry);
  if (entry->state == State::kUnloaded || entry->state == State::kFailed) {
    entry->state = State::kWaiting;
  }
}

template <typename DoWork>
void PairSet::Unlocked(DoWork work) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  mutex_.Unlock();
  const absl::Cleanup lock = [this] { mutex_.Lock(); };
  work();
}

void PairSet::Work() {
  const absl::MutexLock lock(&mutex_);
  for (const auto& entry : entries_) GoOn(entry.get());  // after an exception
  while (!is_stopping_) {
    has_changed_ = false;
    const Instant next_idle = BeginUnloadingIdle();
    if (UnloadOne() || LoadFirst()) continue;
    const auto is_due = [this] {
      mutex_.AssertReaderHeld();
      return has_changed_ || is_stopping_;
    };
    mutex_.AwaitWithTimeout(absl::Condition(&is_due), next_idle - Instant::Now());
  }
}

// Continues the work that an exception interrupted.
void PairSet::GoOn(Entry* entry) {
  if (entry->state == State::kLoading) {
    Fail(entry, absl::ResourceExhaustedError("loading was interrupted: memory is short"));
  }
  if (entry->state == State::kWaiting || !entry->waiting.empty()) Enqueue(entry);
  if (entry->state == State::kUnloading) return;
  Tell(std::exchange(entry->waiting_for_end, {}), PairLease());
}

Instant PairSet::IdleEnd(const Entry& entry) {
  const bool is_idle =
      entry.state == State::kLoaded && entry.num_leases == 0 && !entry.source.is_pinned;
  return is_idle ? entry.last_used + entry.source.idle_timeout : Instant::InfiniteFuture();
}

Instant PairSet::BeginUnloadingIdle() {
  Instant next = Instant::InfiniteFuture();
  for (const auto& entry : entries_) {
    const Instant end = IdleEnd(*entry);
    if (end <= Instant::Now()) {
      BeginUnloading(entry.get(), "idle");
    } else {
      next = std::min(next, end);
    }
  }
  return next;
}

void PairSet::BeginUnloading(Entry* entry, std::string_view why) {
  entry->state = State::kUnloading;
  has_changed_ = true;
  Attempt("log", [&] {
    Log(LogLevel::kInfo, absl::StrCat("unloading model=", entry->source.name, " why=", View(why),
                                      " requests=", entry->num_leases));
  });
}

bool PairSet::UnloadOne() {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry->state == State::kUnloading && entry->num_leases == 0;
  });
  if (found == entries_.end()) return false;
  Entry* const entry = found->get();
  std::unique_ptr<Engine> engine = std::move(entry->engine);
  std::unique_ptr<ServedPair> pair = std::move(entry->pair);
  Unlocked([&] {
    Attempt("unloading", [&] {
      if (engine == nullptr) return;  // after an exception below
      engine->AwaitPackedWeights();
      CheckPages(engine.get());
    });
    pair.reset();
    engine.reset();
  });
  ++entry->counts.unloads;
  entry->state = State::kUnloaded;
  if (!entry->failure.ok()) Fail(entry, std::exchange(entry->failure, absl::OkStatus()));
  GoOn(entry);
  return true;
}

std::optional<absl::Status> PairSet::MakeRoom(const PairMemory& memory) {
  int64_t room = memory.free_bytes;
  if (memory.device == "cpu") room = std::min(room, options_.host_bytes);
  const int64_t all = room;
  int64_t pinned = 0;
  int64_t to_come = 0;  // of pairs that are being unloaded
  std::vector<Entry*> others;
  int64_t held = 0;
  for (const auto& other : entries_) {
    if (other->pair == nullptr || other->memory.device != memory.device) continue;
    held += other->memory.bytes;
    if (other->state == State::kUnloading) to_come += other->memory.bytes;
    if (other->state != State::kLoaded) continue;
    other->source.is_pinned ? void(pinned += other->memory.bytes) : others.push_back(other.get());
  }
  // The budget of this machine counts pairs whose files the system may drop from memory.
  if (memory.device == "cpu") room = std::min(room, options_.host_bytes - held);
  if (memory.bytes <= room) return absl::OkStatus();
  std::sort(others.begin(), others.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->num_leases > 0, a->last_used) < std::pair(b->num_leases > 0, b->last_used);
  });
  int64_t reached = room + to_come;
  size_t num_unloaded = 0;
  for (; num_unloaded < others.size() && reached < memory.bytes; ++num_unloaded) {
    reached += others[num_unloaded]->memory.bytes;
  }
  if (reached < memory.bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "it needs ", DecimalSize(memory.bytes), " on ", memory.device, " (", memory.parts,
        "), but at most ", DecimalSize(std::max<int64_t>(reached, 0)), " can be made free: ",
        DecimalSize(all), " are there for models, and pinned ones hold ", DecimalSize(pinned)));
  }
  for (size_t i = 0; i < num_unloaded; ++i) BeginUnloading(others[i], "memory");
  return std::nullopt;
}

bool PairSet::LoadFirst() {
  if (queue_.empty()) return false;
  Entry* const entry = queue_.front();
  if (entry->state == State::kUnloading) return false;
  absl::StatusOr<PairMemory> memory;
  absl::Status status;
  Unlocked([&] {
    status = Guarded("planning", [&] {
      memory = entry->source.plan();
      return memory.status();
    });
  });
  if (status.ok()) {
    const std::optional<absl::Status> room = MakeRoom(*memory);
    if (!room.has_value()) return has_changed_;  // pairs must be unloaded first
    status = *room;
  }
  queue_.pop_front();
  LoadedPair loaded;
  std::unique_ptr<ServedPair> pair;
  if (status.ok()) {
    entry->state = State::kLoading;
    entry->memory = *memory;
    Unlocked([&] { status = Load(entry, &loaded, &pair); });
  }
  if (!status.ok()) {
    ++entry->counts.failures;
    Fail(entry, status);
    return true;
  }
  ++entry->counts.loads;
  entry->engine = std::move(loaded.engine);
  entry->pair = std::move(pair);
  entry->last_used = Instant::Now();
  entry->is_awaited_at_start = false;
  if (entry->state == State::kLost) {  // meanwhile
    Fail(entry, std::exchange(entry->failure, absl::OkStatus()));
    return true;
  }
  entry->state = State::kLoaded;
  if (!entry->failure.ok()) {  // its ranks ended meanwhile
    BeginUnloading(entry, "failure");
    return true;
  }
  std::vector<Waiting> waiting = std::exchange(entry->waiting, {});
  for (const Waiting& one : waiting) {
    if (one.use == Use::kRequest) Count(entry);
  }
  Unlocked([&] {
    for (Waiting& one : waiting) {
      absl::StatusOr<PairLease> lease = PairLease();
      if (one.use == Use::kRequest) {
        const absl::Status status = Caught("lease", [&] { lease = CountedLease(entry); });
        if (!status.ok()) lease = status;
      }
      one.waiter(std::move(lease));
    }
    waiting.clear();  // as in Tell
  });
  return true;
}

absl::Status PairSet::Load(Entry* entry, LoadedPair* loaded, std::unique_ptr<ServedPair>* pair) {
  const std::string& name = entry->source.name;
  Log(LogLevel::kInfo, absl::StrCat("loading model=", name, " bytes=", entry->memory.bytes,
                                    " device=", entry->memory.device));
  const Instant begin = Instant::Now();
  return Guarded("loading", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(
        *loaded,
        entry->source.load(
            {.lose_device = [this, entry](const absl::Status& why) { LoseDevice(entry, why); },
             .lose_ranks = [this, entry](const absl::Status& why) { LoseRanks(entry, why); }}));
    *pair = Serve(*entry, loaded->engine.get(), loaded->sampling, loaded->system_fingerprint);
    const double seconds = absl::ToDoubleSeconds(Instant::Now() - begin);
    Log(LogLevel::kInfo, absl::StrCat("loaded model=", name, Format(" seconds=%.2f", seconds),
                                      " drafter=", (*pair)->model.drafter, " device=\"",
                                      loaded->engine->device_description(), "\""));
    const absl::MutexLock lock(&mutex_);
    entry->description = DescribeModel((*pair)->model, loaded->engine->target_info());
    entry->counts.load_seconds += seconds;
    return absl::OkStatus();
  });
}

void PairSet::Fail(Entry* entry, const absl::Status& why) {
  const bool is_lost = entry->state == State::kLost;
  entry->state = is_lost ? State::kLost : State::kFailed;
  entry->error = Guarded("model", [&] {
    Log(LogLevel::kError,
        absl::StrCat("failed model=", entry->source.name, " why=\"", why.message(), "\""));
    return WithCode(absl::UnavailableError(
                        absl::StrCat("model ", Quoted(entry->source.name),
                                     is_lost ? " was lost: " : " cannot be used: ", why.message())),
                    is_lost ? "model_lost" : "model_failed", 503);
  });
  entry->failed_at = Instant::Now();
  entry->is_awaited_at_start = false;
  Tell(std::exchange(entry->waiting, {}), entry->error);
}

void PairSet::Tell(std::vector<Waiting> waiting, const absl::StatusOr<PairLease>& what) {
  Unlocked([&] {
    for (Waiting& one : waiting) one.waiter(what);
    waiting.clear();  // may hold the last reference to a lease, whose return locks the mutex
  });
}

// ---- Failures ----

void PairSet::LoseRanks(Entry* entry, const absl::Status& why) {
  const absl::MutexLock lock(&mutex_);
  entry->failure.Update(why);
  if (entry->state == State::kLoaded) BeginUnloading(entry, "failure");
}

void PairSet::LoseDevice(Entry* entry, const absl::Status& why) {
  bool all_lost = true;
  {
    const absl::MutexLock lock(&mutex_);
    for (const auto& other : entries_) {
      const bool is_held = other->state == State::kLoaded || other->state == State::kLoading;
      if (is_held && other->memory.device == entry->memory.device) {
        const bool is_loaded = other->state == State::kLoaded;
        other->error = other->failure = why;
        other->state = State::kLost;
        if (is_loaded) Fail(other.get(), std::exchange(other->failure, absl::OkStatus()));
      }
      all_lost = all_lost && other->state == State::kLost;
    }
  }
  if (all_lost && options_.on_all_lost) options_.on_all_lost(why);
}

absl::Status PairSet::health() const {
  if (!has_several()) return entries_.front()->pair->engine->health();
  const absl::MutexLock lock(&mutex_);
  for (const auto& entry : entries_) {
    if (entry->state != State::kLost) return absl::OkStatus();
  }
  return entries_.front()->error;
}

bool PairSet::is_ready() const {
  const absl::MutexLock lock(&mutex_);
  return std::none_of(entries_.begin(), entries_.end(),
                      [](const auto& entry) { return entry->is_awaited_at_start; });
}

// ---- The end ----

void PairSet::Close(const absl::Status& why) {
  const absl::MutexLock lock(&mutex_);
  end_.Update(why);
  for (const auto& entry : entries_) {
    if (entry->pair != nullptr) entry->pair->admission.Close(end_);
    Tell(std::exchange(entry->waiting, {}), end_);
  }
}

bool PairSet::is_closed() const {
  const absl::MutexLock lock(&mutex_);
  return !end_.ok();
}

void PairSet::Stop() {
  Close(ServerIsStopping());
  {
    const absl::MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  if (worker_.has_value() && worker_->joinable()) worker_->join();
  const absl::MutexLock lock(&mutex_);
  for (const auto& entry : entries_) {
    Tell(std::exchange(entry->waiting_for_end, {}), ServerIsStopping());
  }
}

int PairSet::num_inside() const {
  const absl::MutexLock lock(&mutex_);
  int count = 0;
  for (const auto& entry : entries_) {
    if (entry->pair != nullptr) count += entry->pair->admission.num_inside();
  }
  return count;
}

bool PairSet::AwaitEmpty(absl::Duration timeout) const {
  return std::all_of(entries_.begin(), entries_.end(), [&](const auto& entry) {
    return entry->pair == nullptr || entry->pair->admission.AwaitEmpty(timeout);
  });
}

// ---- Descriptions ----

JsonValue PairSet::DescribeLocked(const Entry& entry) const {
  JsonValue json = {{"id", entry.source.name},
                    {"object", "model"},
                    {"created", absl::ToUnixSeconds(started_)},
                    {"owned_by", "tandem"}};
  json.update(entry.description);
  json["status"] = {{"value", NameOf(entry.state)}};
  if (entry.state == State::kFailed || entry.state == State::kLost) {
    json["status"]["error"] = std::string(entry.error.message());
  }
  return json;
}

absl::StatusOr<JsonValue> PairSet::Describe(const std::string& name) const {
  ASSIGN_OR_RETURN(const Entry* const entry, Find(name));
  const absl::MutexLock lock(&mutex_);
  return DescribeLocked(*entry);
}

JsonValue PairSet::DescribeAll() const {
  const absl::MutexLock lock(&mutex_);
  JsonValue all = JsonValue::array();
  for (const auto& entry : entries_) all.push_back(DescribeLocked(*entry));
  return all;
}

std::string PairSet::MetricsText(const AnswerCounts& answers) {
  std::vector<PairMetrics> pairs;
  std::vector<PairLease> leases;
  pairs.reserve(entries_.size());
  leases.reserve(entries_.size());
  for (const auto& entry : entries_) {
    PairMetrics& pair = pairs.emplace_back();
    pair.name = entry->source.name;
    pair.metrics = entry->metrics.get();
    pair.prefix_cache = entry->source.prefix_cache;
    {
      const absl::MutexLock lock(&mutex_);
      pair.counts = entry->counts;
      pair.counts.waiting = static_cast<int64_t>(entry->waiting.size());
      pair.counts.is_loaded = entry->state == State::kLoaded;
      if (entry->pair != nullptr) pair.counts.planned_bytes = entry->memory.bytes;
      if (!pair.counts.is_loaded) continue;
      Count(entry.get());
    }
    leases.push_back(CountedLease(entry.get(), /*is_use=*/false));
    pair.engine = leases.back()->engine;
  }
  return tandem::MetricsText(pairs, answers,
                             {.names = options_.metrics_names, .has_several = has_several()});
}

}  // namespace tandem
