#include "engine/prompt_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/instant.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "engine/pool_identity.h"
#include "kvcache/store/sqlite_store.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

// How long to block when every session waits.
constexpr absl::Duration kLongestAwait = absl::Milliseconds(1);
// The assumed speed of a worker that has only fetched prompts so far.
constexpr double kGuessedTokensPerSecond = 1000.0;

absl::StatusOr<PoolInfo> PoolOf(absl::Span<const PoolModel> models, const PagedKvCache& cache,
                                const Backend& backend) {
  PoolInfo pool;
  ASSIGN_OR_RETURN(pool.id, PoolIdOf(models, cache.layout(), backend.arithmetic()));
  const KvLayout& layout = cache.layout();
  const PoolModel& target = models.front();
  pool.description =
      absl::StrCat(target.path, models.size() > 1 ? absl::StrCat(" with ", models[1].path) : "",
                   ", ", NameOf(target.model->dtype()), ", cache of ", NameOf(layout.dtype),
                   ", pages of ", layout.page_size, " tokens, ", backend.arithmetic());
  return pool;
}

// Opens the store of the options. Returns null if there is none, or with a warning if it cannot be
// opened.
std::shared_ptr<PageStore> StoreOf(const EngineOptions& options) {
  if (options.kv_store.empty()) return nullptr;
  if (const std::string old = OldStoreIn(options.kv_store); !old.empty()) {
    Log(LogLevel::kWarning,
        absl::StrCat("kv_store: ", old,
                     " is of an earlier version and is not used; `tandem kv-store ",
                     options.kv_store, " --remove-old` removes it"));
  }
  auto store = OpenSqliteStore({.folder = options.kv_store, .max_bytes = options.kv_store_bytes});
  if (store.ok()) return *std::move(store);
  Log(LogLevel::kWarning,
      absl::StrCat("kv_store: ", store.status().message(), "; pages are not kept"));
  return nullptr;
}

// Loads the speed that earlier processes have measured.
void RecallSpeed(PageStore* store, PoolInfo* pool) {
  const auto pools = store->Pools();
  if (!pools.ok()) return;
  for (const PoolInfo& known : *pools) {
    if (known.id == pool->id) pool->tokens_per_second = known.tokens_per_second;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<PromptStore>> PromptStore::Open(std::shared_ptr<PageStore> store,
                                                               const EngineOptions& options,
                                                               Runtime* runtime) {
  if (store == nullptr) store = StoreOf(options);
  if (store == nullptr && options.kv_transfer.empty()) return nullptr;
  const Backend& backend = *runtime->backend;
  std::vector<PoolModel> models = {{runtime->target.get(), options.target}};
  if (runtime->has_head()) models.push_back({runtime->draft.get(), options.draft});
  ASSIGN_OR_RETURN(PoolInfo target, PoolOf(models, *runtime->target_cache, backend));
  std::vector<PoolId> pools = {target.id};
  std::optional<PoolInfo> draft;
  if (runtime->draft_cache != nullptr) {
    const std::string& path = IsSelfDraft(options.draft) ? options.target : options.draft;
    const PoolModel model = {runtime->draft.get(), path};
    ASSIGN_OR_RETURN(draft, PoolOf({&model, 1}, *runtime->draft_cache, backend));
    pools.push_back(draft->id);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<PromptTransfer> transfer,
                   PromptTransfer::Open(options, std::move(pools)));
  std::unique_ptr<StoreWorker> worker;
  if (store != nullptr) {
    RecallSpeed(store.get(), &target);
    worker = std::make_unique<StoreWorker>(std::move(store), StoreWorker::Options());
  }
  return std::unique_ptr<PromptStore>(new PromptStore(
      std::move(worker), std::move(transfer), runtime, std::move(target), std::move(draft)));
}

PromptStore::PromptStore(std::unique_ptr<StoreWorker> worker,
                         std::unique_ptr<PromptTransfer> transfer, Runtime* runtime,
                         PoolInfo target, std::optional<PoolInfo> draft)
    : runtime_(*runtime),
      speed_(target.tokens_per_second),
      worker_(std::move(worker)),
      transfer_(std::move(transfer)),
      target_(runtime->target_cache.get(), std::move(target), worker_.get()) {
  if (draft.has_value()) {
    draft_.emplace(runtime->draft_cache.get(), *std::move(draft), worker_.get());
  }
}

absl::StatusOr<std::shared_ptr<SessionTransfer>> PromptStore::BeginTransfer(
    const PromptStore* store, const Request& request) {
  if (!request.kv_transfer_params.is_active()) return nullptr;
  if (store != nullptr && store->transfer_ != nullptr) return store->transfer_->Begin(request);
  return FieldError("kv_transfer_params",
                    "asks for a transfer, but this engine was created without kv_transfer");
}

void PromptStore::Begin(absl::Span<const TokenId> prompt, Session* session) {
  session->fetch.pages = nullptr;
  std::vector<StoredRun> runs;
  runs.push_back(target_.Missing(prompt, session->target_kv.variant(), session->salt));
  if (session->draft_state != nullptr && draft_.has_value()) {
    const auto text = runtime_.drafter->TextOf(session->draft_state.get(), prompt);
    if (text.has_value()) runs.push_back(draft_->Missing(text->tokens, text->variant, text->salt));
  }
  if (std::all_of(runs.begin(), runs.end(), [](const StoredRun& run) { return run.empty(); })) {
    return PromptTransfer::EndFetching(*session);
  }
  session->fetch.begun = Instant::Now();
  session->fetch.first_token = session->target_kv.length();
  session->fetch.num_seen = 0;
  // Sessions that lack the same first page lack the same text, at least up to its end.
  fetches_.erase(std::remove_if(fetches_.begin(), fetches_.end(),
                                [](const auto& fetch) { return fetch.expired(); }),
                 fetches_.end());
  for (const std::weak_ptr<PromptFetch>& known : fetches_) {
    std::shared_ptr<PromptFetch> fetch = known.lock();
    const StoredRun& run = fetch->fetch().runs().front();
    if (run.empty() || runs.front().empty() || run.pages[0].key != runs.front().pages[0].key) {
      continue;
    }
    session->fetch.pages = std::move(fetch);
    return PromptTransfer::EndFetching(*session);
  }
  const bool is_transfer = PromptTransfer::Fetches(*session);
  if (!is_transfer && worker_ == nullptr) return;
  if (is_transfer && speed_.tokens_per_second() <= 0.0) {
    const double lenders = PromptTransfer::LenderSpeed(*session);
    speed_ = ReadingSpeed(lenders > 0.0 ? lenders : kGuessedTokensPerSecond);
  }
  session->fetch.pages = std::make_shared<PromptFetch>(
      is_transfer ? transfer_->Read(std::move(runs), *session) : worker_->Read(std::move(runs)),
      is_transfer);
  fetches_.push_back(session->fetch.pages);
}

std::vector<Session*> PromptStore::Take(absl::Span<Session* const> running,
                                        absl::FunctionRef<void(Session*)> adopt) {
  std::vector<Session*> reading;
  for (Session* session : running) {
    if (Advance(session)) adopt(session);
    if (!Waits(session)) reading.push_back(session);
  }
  if (reading.empty() && !running.empty())
    running.front()->fetch.pages->fetch().Await(kLongestAwait);
  return reading;
}

bool PromptStore::StopWaiting(absl::Span<const std::unique_ptr<Session>> sessions) {
  bool waited = false;
  for (const auto& session : sessions) {
    waited = std::exchange(session->fetch.pages, nullptr) != nullptr || waited;
  }
  return waited;
}

// Publishes the pages that have arrived for the session. Returns whether there are any that it has
// not seen.
bool PromptStore::Advance(Session* session) {
  if (session->fetch.pages == nullptr) return false;
  Insert(session->fetch.pages.get());
  // Another session may have inserted them.
  const int num_seen = std::exchange(session->fetch.num_seen, session->fetch.pages->num_inserted());
  return session->fetch.num_seen > num_seen;
}

void PromptStore::Insert(PromptFetch* fetch) {
  std::vector<Fetch::Arrival> arrivals = fetch->fetch().Take();
  int num_inserted = 0;
  for (size_t at = 0; at < arrivals.size();) {
    size_t end = at;
    std::vector<absl::Span<const std::byte>> pages;
    for (; end < arrivals.size() && arrivals[end].run == arrivals[at].run; ++end) {
      pages.push_back(arrivals[end].bytes);
    }
    const int run = arrivals[at].run;
    StoredCache& cache = run == 0 ? target_ : *draft_;
    num_inserted += cache.Insert(fetch->fetch().runs()[run], arrivals[at].page, pages);
    at = end;
  }
  fetch->fetch().Recycle(std::move(arrivals));
  fetch->CountInserted(num_inserted);
  (fetch->is_transfer() ? num_transfer_pages_ : num_store_pages_) += num_inserted;
}

// Whether the session must wait. Drops its fetch when it stops waiting.
bool PromptStore::Waits(Session* session) const {
  if (session->fetch.pages == nullptr) return false;
  const Fetch& fetch = session->fetch.pages->fetch();
  const bool is_over = fetch.is_over() || session->finished;
  // A session does not wait if only the draft's pages are missing; they are inserted whenever they
  // arrive.
  if (!is_over && fetch.runs().front().empty()) return false;
  const bool waits =
      !is_over &&
      ShouldKeepWaiting(Instant::Now() - session->fetch.begun,
                        session->target_kv.length() - session->fetch.first_token,
                        session->length() - session->fetch.first_token, speed_.tokens_per_second(),
                        session->fetch.pages->is_transfer() ? kMaxTransferDelay : kMaxStoreDelay);
  if (!waits) session->fetch.pages = nullptr;
  return waits;
}

void PromptStore::Observe(absl::Span<const RoundStep> steps, absl::Duration time) {
  int num_tokens = 0;
  for (const RoundStep& step : steps) {
    if (step.num_fed > kMaxDecodeTokens) num_tokens += step.num_fed;
  }
  speed_.Observe(num_tokens, time);
  if (num_tokens == 0 || worker_ == nullptr) return;
  worker_->SetSpeed(target_.number(), speed_.tokens_per_second());
}

void PromptStore::Offer(Session* session) {
  if (transfer_ == nullptr || session->fetch.transfer == nullptr) return;
  transfer_->Offer(&target_, draft_.has_value() ? &*draft_ : nullptr, runtime_.drafter.get(),
                   speed_.tokens_per_second(), session);
}

void PromptStore::CountHits(EngineLoad* load) const {
  load->store.pages_hit = num_store_pages_;
  load->transfer.pages_hit = num_transfer_pages_;
}

void PromptStore::Refresh(EngineLoad* load) const {
  if (worker_ != nullptr) {
    const StoreStats stats = worker_->stats();
    load->store = {.pages_written = stats.pages_written,
                   .bytes_written = stats.bytes_written,
                   .pages_read = stats.pages_read,
                   .bytes_read = stats.bytes_read,
                   .pages_hit = load->store.pages_hit,
                   .pages_evicted = stats.pages_evicted,
                   .pages_dropped = worker_->num_dropped(),
                   .pages_damaged = stats.pages_damaged};
  }
  if (transfer_ != nullptr) {
    TransferCounts counts = transfer_->counts();
    counts.pages_hit = load->transfer.pages_hit;
    load->transfer = counts;
  }
}

}  // namespace tandem
