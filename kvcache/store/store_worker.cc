#include "kvcache/store/store_worker.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/guard.h"
#include "base/instant.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

// Maximum size of the pages written in one transaction.
constexpr size_t kBatchBytes = size_t{16} << 20;
constexpr int kLowestPriority = 19;
// Decoding publishes pages one by one, and a transaction costs as much as tens of pages. So pages
// are gathered for this time, or until a batch is full.
constexpr absl::Duration kGathering = absl::Seconds(1);
constexpr size_t kMaxTouches = 1024;  // in the queue

}  // namespace

StoreWorker::StoreWorker(std::shared_ptr<PageStore> store, const Options& options)
    : store_(std::move(store)),
      options_(options),
      reader_([this] { ReadQueued(); }),
      writer_([this] { WriteQueued(); }) {}

StoreWorker::~StoreWorker() {
  {
    absl::MutexLock lock(&mutex_);
    is_stopping_ = true;
    for (const auto& fetch : fetches_) fetch->Cancel();
  }
  reader_.join();
  writer_.join();
  Flush();
  NoteSpeeds();
}

int StoreWorker::AddPool(PoolInfo pool) {
  absl::MutexLock lock(&mutex_);
  pools_.push_back(std::move(pool));
  return static_cast<int>(pools_.size()) - 1;
}

void StoreWorker::SetSpeed(int pool, double tokens_per_second) {
  absl::MutexLock lock(&mutex_);
  pools_[pool].tokens_per_second = tokens_per_second;
}

void StoreWorker::Write(int pool, const PageKey& parent, const PageKey& key, int depth,
                        absl::Span<const TokenId> tokens, size_t page_bytes,
                        absl::FunctionRef<void(absl::Span<std::byte>)> fill) {
  Queued page{.pool = pool,
              .parent = parent,
              .key = key,
              .depth = depth,
              .tokens = {tokens.begin(), tokens.end()},
              .bytes = spares_.Take(page_bytes)};
  fill(absl::MakeSpan(page.bytes));
  absl::MutexLock lock(&mutex_);
  queued_bytes_ += page_bytes;
  queue_.push_back(std::move(page));
  while (queued_bytes_ > options_.max_queued_bytes) {
    queued_bytes_ -= queue_.front().bytes.size();
    queue_.pop_front();
    ++num_dropped_;
  }
}

void StoreWorker::Touch(std::vector<PageKey> run) {
  absl::MutexLock lock(&mutex_);
  if (touches_.size() < kMaxTouches) touches_.push_back(std::move(run));
}

std::shared_ptr<Fetch> StoreWorker::Read(std::vector<StoredRun> runs) {
  auto fetch = std::make_shared<Fetch>(std::move(runs), options_.max_fetched_bytes);
  absl::MutexLock lock(&mutex_);
  fetches_.push_back(fetch);
  return fetch;
}

int64_t StoreWorker::num_dropped() const {
  absl::MutexLock lock(&mutex_);
  return num_dropped_;
}

void StoreWorker::AwaitWritten() {
  const auto is_idle = [this] {
    mutex_.AssertReaderHeld();
    return queue_.empty() && touches_.empty() && !is_writing_;
  };
  absl::MutexLock lock(&mutex_);
  ++num_awaiting_;
  mutex_.Await(absl::Condition(&is_idle));
  --num_awaiting_;
}

// ---- The reader's thread ----

void StoreWorker::ReadQueued() {
  const auto has_work = [this] {
    mutex_.AssertReaderHeld();
    return is_stopping_ || !fetches_.empty();
  };
  for (;;) {
    std::shared_ptr<Fetch> fetch;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&has_work));
      if (fetches_.empty()) return;
      fetch = fetches_.front();
    }
    Attempt("reading stored pages", [&] { fetch->ReadFrom(store_.get()); });
    fetch->Finish();
    absl::MutexLock lock(&mutex_);
    fetches_.pop_front();
  }
}

// ---- The writer's thread ----

void StoreWorker::WriteQueued() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kLowestPriority);
  const auto has_work = [this] {
    mutex_.AssertReaderHeld();
    return is_stopping_ || !queue_.empty() || !touches_.empty();
  };
  const auto is_worth_a_transaction = [this] {
    mutex_.AssertReaderHeld();
    return is_stopping_ || num_awaiting_ > 0 || queued_bytes_ >= kBatchBytes;
  };
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&has_work));
      mutex_.AwaitWithTimeout(absl::Condition(&is_worth_a_transaction), kGathering);
      if (is_stopping_) return;
      is_writing_ = true;
    }
    // An exception loses the pages of one transaction.
    bool has_more = true;
    while (!is_stopping() && has_more) {
      Attempt("writing stored pages", [&] { has_more = WriteNext(); });
    }
    absl::MutexLock lock(&mutex_);
    is_writing_ = false;
  }
}

// Runs on the destructor's thread, at its priority.
void StoreWorker::Flush() {
  const Instant stop = Instant::Now() + options_.max_flush;
  while (Instant::Now() < stop && WriteNext()) {
  }
  absl::MutexLock lock(&mutex_);
  num_dropped_ += static_cast<int64_t>(queue_.size());
}

// Touches the oldest queued run, or else writes the oldest queued pages. Returns false if both
// queues are empty.
bool StoreWorker::WriteNext() {
  std::vector<Queued> batch;
  std::vector<PageKey> touched;
  PoolInfo pool;
  {
    absl::MutexLock lock(&mutex_);
    if (!touches_.empty()) {
      touched = std::move(touches_.front());
      touches_.pop_front();
    } else if (!queue_.empty()) {
      batch = TakeBatch();
      pool = pools_[batch.front().pool];
    } else {
      return false;
    }
  }
  if (batch.empty()) {
    std::vector<PageRef> run;
    for (const PageKey& key : touched) {
      run.push_back({.key = key, .depth = static_cast<int>(run.size()), .tokens = {}});
    }
    store_->Touch(run);
    return true;
  }
  WriteBatch(pool, batch);
  for (Queued& page : batch) spares_.Give(std::move(page.bytes));
  return true;
}

// Takes the oldest pages, as long as they belong to one pool.
std::vector<StoreWorker::Queued> StoreWorker::TakeBatch() {
  std::vector<Queued> batch;
  size_t num_bytes = 0;
  while (!queue_.empty() && num_bytes < kBatchBytes &&
         (batch.empty() || queue_.front().pool == batch.front().pool)) {
    num_bytes += queue_.front().bytes.size();
    batch.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  queued_bytes_ -= num_bytes;
  return batch;
}

void StoreWorker::WriteBatch(const PoolInfo& pool, const std::vector<Queued>& batch) {
  std::vector<PageToWrite> pages;
  for (const Queued& page : batch) {
    pages.push_back({.page = {.key = page.key, .depth = page.depth, .tokens = page.tokens},
                     .parent = page.parent,
                     .bytes = page.bytes});
  }
  const absl::Status status = store_->Write(pool, pages);
  if (!status.ok() && !has_failed_) {
    Log(LogLevel::kWarning, absl::StrCat(status.message(), "; pages are not kept"));
  }
  has_failed_ = !status.ok();
  if (status.ok()) return;
  absl::MutexLock lock(&mutex_);
  num_dropped_ += static_cast<int64_t>(batch.size());
}

// Records the speeds that were measured after the last pages were written.
void StoreWorker::NoteSpeeds() {
  std::vector<PoolInfo> pools;
  {
    absl::MutexLock lock(&mutex_);
    pools = pools_;
  }
  const absl::StatusOr<std::vector<PoolInfo>> stored = store_->Pools();
  if (!stored.ok()) return;
  for (const PoolInfo& known : *stored) {
    for (const PoolInfo& pool : pools) {
      if (pool.id != known.id || pool.tokens_per_second <= 0) continue;
      store_->Write(pool, {}).IgnoreError();
    }
  }
}

}  // namespace tandem
