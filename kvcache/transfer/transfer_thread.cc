#include "kvcache/transfer/transfer_thread.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/guard.h"
#include "base/hash_map.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

// How often deadlines are checked while there is any activity.
constexpr absl::Duration kTick = absl::Milliseconds(200);
constexpr absl::Duration kMaxWait = absl::Seconds(1);   // a wake may find no memory
constexpr absl::Duration kMaxIdle = absl::Seconds(60);  // of a connection without leases and pages
constexpr int kMaxAttempts = 16;                        // to connect, at a time
// After this many attempts to connect to one address, one a second.
constexpr int kFreeAttempts = 4;
constexpr int kMaxLinksOfEngine = 2;

bool IsShared(const PoolId& pool, const Hello& hello) {
  return std::find(hello.pools.begin(), hello.pools.end(), pool) != hello.pools.end();
}

}  // namespace

// ---- Beginning and end ----

TransferThread::TransferThread(Options options)
    : options_(std::move(options)), offered_(options_.offered) {}

TransferThread::~TransferThread() { Stop(); }

absl::Status TransferThread::Start() {
  thread_ = std::thread([this] {
    const absl::Status status = Guarded("kv_transfer", [this] { return Open(); });
    {
      absl::MutexLock lock(&mutex_);
      is_running_ = status.ok();
      started_ = status;
    }
    if (status.ok()) Attempt("kv transfer", [this] { Run(); });
    link_ = nullptr;
  });
  absl::Status status = [&] {
    const auto has_started = [this] { return started_.has_value(); };
    absl::MutexLock lock(&mutex_, absl::Condition(&has_started));
    return *started_;
  }();
  if (status.ok()) {
    offered_.set_on_change([link = link_.get()] { link->Wake(); });
  } else {
    thread_.join();
  }
  return status;
}

void TransferThread::Stop() {
  offered_.set_on_change(nullptr);
  {
    absl::MutexLock lock(&mutex_);
    if (!is_running_ || is_stopping_) return;
    is_stopping_ = true;
    link_->Wake();
  }
  thread_.join();
}

absl::Status TransferThread::Open() {
  ASSIGN_OR_RETURN(
      link_,
      Link::Open({.service = "pages",
                  .secrets = options_.secrets,
                  .address = options_.address,
                  .accepts = [this](absl::string_view scope) { return scope == engine_id(); },
                  .timeout = options_.timeout,
                  .fabric = options_.fabric,
                  .address_field = "kv_transfer",
                  .fabric_field = "kv_transfer_fabric"},
                 this));
  if (options_.fabric != "tcp") {
    Log(LogLevel::kInfo, absl::StrCat("kv transfer: fabric=", options_.fabric,
                                      ": any process that reaches this fabric controls this one"));
  }
  port_ = link_->address().port();
  return absl::OkStatus();
}

TransferCounts TransferThread::stats() const {
  const OfferedPages::Stats offered = offered_.stats();
  absl::MutexLock lock(&mutex_);
  TransferCounts counts = stats_;
  counts.pages_dropped = offered.pages_dropped;
  counts.leases = offered.leases;
  counts.leased_bytes = offered.bytes;
  counts.leases_expired = offered.leases_expired;
  counts.leases_evicted = offered.leases_evicted;
  return counts;
}

void TransferThread::Count(absl::FunctionRef<void(TransferCounts&)> count) {
  absl::MutexLock lock(&mutex_);
  count(stats_);
}

// ---- Commands ----

bool TransferThread::Post(std::function<void()> command) {
  absl::MutexLock lock(&mutex_);
  if (!is_running_) return false;
  commands_.push_back(std::move(command));
  link_->Wake();
  return true;
}

bool TransferThread::RunCommands() {
  std::deque<std::function<void()>> commands;
  {
    absl::MutexLock lock(&mutex_);
    commands.swap(commands_);
  }
  for (const auto& command : commands) Attempt("kv transfer", command);
  return !commands.empty();
}

void TransferThread::Begin(std::shared_ptr<BorrowedLease> lease) {
  Post([this, lease = std::move(lease)] { Connect(lease); });
}

std::shared_ptr<PageRequest> TransferThread::AskFor(const std::shared_ptr<BorrowedLease>& lease,
                                                    const PoolId& pool,
                                                    absl::Span<const PageRef> run,
                                                    size_t page_bytes) {
  AskPages ask{.number = ++last_ask_,
               .lease = lease->remote.lease,
               .request_id = lease->request_id,
               .pool = pool};
  for (const PageRef& page : run) ask.keys.push_back(page.key);
  auto asked = std::make_shared<PageRequest>(ask.number, run.size(), page_bytes, spares_);
  const bool is_posted = Post([this, lease, asked, ask = std::move(ask)] {
    Peer* const peer = Find(lease->peer);
    const auto send = [&] {
      peer->asked[ask.number] = asked;
      Send(peer, ask);
    };
    if (peer == nullptr || !Attempt("kv transfer", send)) asked->Fail();
  });
  if (!is_posted) asked->Fail();
  return asked;
}

void TransferThread::Cancel(std::shared_ptr<BorrowedLease> lease,
                            std::shared_ptr<PageRequest> asked) {
  Post([this, lease = std::move(lease), asked = std::move(asked)] {
    Peer* const peer = Find(lease->peer);
    if (peer == nullptr || peer->asked.erase(asked->number()) == 0) return;
    Send(peer, tandem::Cancel{asked->number()});
  });
}

void TransferThread::End(std::shared_ptr<BorrowedLease> lease, bool has_taken) {
  Post([this, lease = std::move(lease), has_taken] {
    Peer* const peer = Find(lease->peer);
    if (peer == nullptr) return;
    std::erase(peer->leases, lease);
    if (has_taken) Send(peer, Release{lease->remote.lease});
  });
}

void TransferThread::Connect(const std::shared_ptr<BorrowedLease>& lease) {
  const std::string name = ToString(lease->address);
  const std::string key = absl::StrCat(name, " ", lease->remote.engine_id);
  const auto place = connected_.find(key);
  Peer* peer = place == connected_.end() ? nullptr : Find(place->second);
  if (peer == nullptr) {
    if (!MayConnect(name)) {
      return Log(LogLevel::kWarning,
                 absl::StrCat("kv transfer: request_id=", lease->request_id, " peer=", name,
                              " failed: too many attempts to connect"));
    }
    peer = AddPeer(link_->Connect(lease->address, lease->remote.engine_id), name);
    peer->engine_id = lease->remote.engine_id;
    peer->key = key;
    connected_[key] = peer->link;
  }
  lease->peer = peer->link;
  peer->leases.push_back(lease);
  peer->next_beat = Instant::Now();
  Send(peer, AskPages{.lease = lease->remote.lease,
                      .request_id = lease->request_id,
                      .pool = options_.hello.pools.front()});
}

// Limits the attempts to connect, which requests cause.
bool TransferThread::MayConnect(const std::string& address) {
  const auto num_attempts = std::count_if(peers_.begin(), peers_.end(), [](const auto& entry) {
    return !entry.second->key.empty() && !entry.second->hello.has_value();
  });
  if (num_attempts >= kMaxAttempts) return false;
  const Instant now = Instant::Now();
  std::erase_if(next_attempt_, [&](const auto& entry) { return entry.second <= now; });
  const auto next = next_attempt_.try_emplace(address, now).first;
  if (next->second - now >= absl::Seconds(kFreeAttempts)) return false;
  next->second = next->second + absl::Seconds(1);
  return true;
}

// ---- The loop ----

void TransferThread::Run() {
  RunUntilStopped();
  {
    absl::MutexLock lock(&mutex_);
    is_running_ = false;
  }
  RunCommands();
  while (!peers_.empty()) {
    Drop(peers_.begin()->first, absl::UnavailableError("it is shutting down"), /*is_closed=*/false);
  }
}

void TransferThread::RunUntilStopped() {
  Instant next_tick = Instant::Now();
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      if (is_stopping_) return;
    }
    const bool is_complete = Attempt("kv transfer", [&] {
      bool is_busy = RunCommands();
      is_busy = link_->Progress() || is_busy;
      for (const auto& [link, peer] : peers_) peer->sender.Pump();
      const Instant now = Instant::Now();
      if (now >= next_tick || next_tick >= now + 2 * kTick) {
        next_tick = now + kTick;
        Tick(now);
      }
      const bool has_deadlines = !peers_.empty() || offered_.stats().leases > 0;
      if (!is_busy) link_->Wait(has_deadlines ? kTick : kMaxWait);
    });
    if (!is_complete) absl::SleepFor(kTick);
  }
}

void TransferThread::Tick(Instant now) {
  std::vector<LinkId> idle;
  for (const auto& [link, peer] : peers_) {
    if (!peer->leases.empty() || !peer->asked.empty() || peer->sender.is_busy()) peer->used = now;
    if (peer->hello.has_value() && now >= peer->next_beat) Beat(peer.get());
    if (now - peer->used > kMaxIdle) idle.push_back(link);
  }
  for (const LinkId link : idle) {
    Drop(link, absl::CancelledError("it is not used"), /*is_closed=*/false);
  }
}

void TransferThread::Beat(Peer* peer) {
  peer->next_beat = Instant::InfiniteFuture();
  if (peer->leases.empty()) return;
  peer->next_beat = Instant::Now() + absl::Milliseconds(peer->hello->lease_ms) / 3;
  for (const auto& lease : peer->leases) Send(peer, Heartbeat{lease->remote.lease});
}

// ---- Peers ----

TransferThread::Peer* TransferThread::Find(LinkId link) {
  const auto place = peers_.find(link);
  return place == peers_.end() ? nullptr : place->second.get();
}

TransferThread::Peer* TransferThread::AddPeer(LinkId link, std::string name) {
  auto& peer = peers_[link];
  peer = std::make_unique<Peer>(link, std::move(name), &offered_, link_.get());
  peer->used = Instant::Now();
  return peer.get();
}

void TransferThread::Send(Peer* peer, const WireMessage& message) {
  if (peer->hello.has_value()) {
    link_->SendMessage(peer->link, Encode(message));
  } else {
    peer->waiting.push_back(message);
  }
}

void TransferThread::CountRefusal(const std::string& peer, absl::string_view reason) {
  Count([](TransferCounts& stats) { ++stats.peers_refused; });
  Log(LogLevel::kWarning, absl::StrCat("kv transfer: peer=", peer, " refused: ", reason));
}

// Fails all requests to the peer and gives up its leases.
void TransferThread::Drop(LinkId link, const absl::Status& why, bool is_closed) {
  const auto place = peers_.find(link);
  if (place == peers_.end()) return;
  const std::unique_ptr<Peer> peer = std::move(place->second);
  peers_.erase(place);
  if (!is_closed) link_->Close(link, why);
  if (const auto known = connected_.find(peer->key);
      known != connected_.end() && known->second == link) {
    connected_.erase(known);
  }
  for (const auto& [number, asked] : peer->asked) asked->Fail();
  if (peer->leases.empty()) {
    Log(LogLevel::kInfo,
        absl::StrCat("kv transfer: peer=", peer->name, " closed: ", why.message()));
  }
  for (const auto& lease : peer->leases) {
    lease->peer = 0;
    Log(LogLevel::kWarning, absl::StrCat("kv transfer: request_id=", lease->request_id,
                                         " peer=", peer->name, " failed: ", why.message()));
  }
}

void TransferThread::OnOpened(LinkId link, const std::string& name, absl::string_view) {
  Peer* peer = Find(link);
  if (peer == nullptr) peer = AddPeer(link, name);
  Hello hello = options_.hello;
  hello.peer_engine_id = peer->engine_id;
  link_->SendMessage(link, Encode(hello));
}

void TransferThread::OnRefused(const std::string& peer, const absl::Status& why) {
  CountRefusal(peer, why.message());
}

void TransferThread::OnClosed(LinkId link, const absl::Status& why, bool is_peers) {
  const Peer* const peer = Find(link);
  if (peer == nullptr) return;
  absl::Status reason = why;
  if (is_peers) {
    reason = absl::Status(why.code(), absl::StrCat("it says: ", absl::CHexEscape(why.message())));
  }
  if (absl::IsPermissionDenied(why)) CountRefusal(peer->name, reason.message());
  Drop(link, reason, /*is_closed=*/true);
}

void TransferThread::OnMessage(LinkId link, absl::Span<const std::byte> bytes) {
  Peer* const peer = Find(link);
  if (peer == nullptr) return;
  absl::StatusOr<WireMessage> message = Decode(bytes);
  absl::Status status = message.status();
  if (status.ok() && peer->hello.has_value()) {
    status = Take(peer, *message);
  } else if (status.ok()) {
    const auto* const hello = std::get_if<Hello>(&*message);
    status = hello != nullptr ? Greet(peer, *hello)
                              : absl::InvalidArgumentError("it sent a message out of turn");
    if (absl::IsPermissionDenied(status)) CountRefusal(peer->name, status.message());
  }
  if (!status.ok()) Drop(link, status, /*is_closed=*/false);
}

// Takes the greeting of a peer, or says why it is refused.
absl::Status TransferThread::Greet(Peer* peer, const Hello& hello) {
  const auto refuse = [](const auto&... why) {
    return absl::PermissionDeniedError(absl::StrCat(why...));
  };
  const Hello& own = options_.hello;
  if (hello.version != own.version) {
    return refuse("wire versions ", hello.version, " and ", own.version, " do not fit");
  }
  const bool is_meant =
      peer->key.empty() ? hello.peer_engine_id == own.engine_id && hello.engine_id != own.engine_id
                        : hello.engine_id == peer->engine_id;
  if (!is_meant) {
    return refuse("the engine ", absl::CHexEscape(hello.engine_id), " is not meant here");
  }
  if (std::none_of(hello.pools.begin(), hello.pools.end(),
                   [&](const PoolId& pool) { return IsShared(pool, own); })) {
    if (hello.build != own.build) {
      return refuse("it is another build of Tandem, whose pages may have other bits");
    }
    return refuse(
        "pages are of other models, options or instruction sets: no pool is common to both");
  }
  const auto num_links = std::count_if(peers_.begin(), peers_.end(), [&](const auto& entry) {
    return entry.second->key.empty() && entry.second->hello.has_value() &&
           entry.second->hello->engine_id == hello.engine_id;
  });
  if (peer->key.empty() && num_links >= kMaxLinksOfEngine) {
    return absl::ResourceExhaustedError("the engine has too many connections");
  }
  peer->hello = hello;
  link_->Admit(peer->link);
  Log(LogLevel::kInfo, absl::StrCat("kv transfer: peer=", peer->name, " engine_id=",
                                    absl::CHexEscape(hello.engine_id), " connected"));
  for (const WireMessage& waiting : peer->waiting) Send(peer, waiting);
  peer->waiting.clear();
  peer->next_beat = Instant::Now();
  return absl::OkStatus();
}

absl::Status TransferThread::Take(Peer* peer, const WireMessage& message) {
  if (const auto* ask = std::get_if<AskPages>(&message)) {
    Log(LogLevel::kDebug,
        absl::StrCat("kv transfer: request_id=", absl::CHexEscape(ask->request_id),
                     " peer=", peer->name, " asks for ", ask->keys.size(),
                     " pages of lease=", absl::CHexEscape(ask->lease)));
    const bool is_common = IsShared(ask->pool, options_.hello) && IsShared(ask->pool, *peer->hello);
    if (is_common) return peer->sender.Take(*ask);
    peer->sender.Refuse(*ask, "the pool is not common to both");
  } else if (const auto* cancel = std::get_if<tandem::Cancel>(&message)) {
    peer->sender.Take(*cancel);
  } else if (const auto* heartbeat = std::get_if<Heartbeat>(&message)) {
    offered_.Extend(heartbeat->lease, peer->link);
  } else if (const auto* release = std::get_if<Release>(&message)) {
    offered_.ReleaseTaken(release->lease, peer->link);
  } else if (const auto* finish = std::get_if<Finish>(&message)) {
    const auto place = peer->asked.find(finish->number);
    if (place == peer->asked.end()) return absl::OkStatus();
    PageRequest& asked = *place->second;
    const size_t num_sent = std::min(static_cast<size_t>(finish->num_sent), asked.num_pages());
    Count([&](TransferCounts& stats) {
      stats.pages_missing += static_cast<int64_t>(asked.num_pages() - num_sent);
    });
    asked.Finish(num_sent);
    ForgetIfComplete(peer, place);
  } else {
    return absl::InvalidArgumentError("it sent a message out of turn");
  }
  return absl::OkStatus();
}

void TransferThread::ForgetIfComplete(
    Peer* peer, HashMap<uint64_t, std::shared_ptr<PageRequest>>::iterator asked) {
  if (asked->second->IsComplete()) peer->asked.erase(asked);
}

// ---- Pages ----

BlockBuffer TransferThread::OnBlock(LinkId link, const BlockHeader& header, size_t size) {
  Peer* const peer = Find(link);
  const auto asked = peer->asked.find(header.tag);
  if (asked == peer->asked.end()) return nullptr;
  BlockBuffer buffer = asked->second->BufferOf(header, size);
  if (buffer == nullptr) ForgetIfComplete(peer, asked);
  return buffer;
}

void TransferThread::OnBlockReceived(LinkId link, const BlockHeader& header) {
  Peer* const peer = Find(link);
  const auto asked = peer->asked.find(header.tag);
  if (asked == peer->asked.end()) return;
  asked->second->Fill(header);
  ForgetIfComplete(peer, asked);
}

void TransferThread::OnBlockSent(LinkId link, size_t size) {
  Count([&](TransferCounts& stats) {
    ++stats.pages_sent;
    stats.bytes_sent += static_cast<int64_t>(size);
  });
  if (Peer* const peer = Find(link)) peer->sender.OnSent(size);
}

}  // namespace tandem
