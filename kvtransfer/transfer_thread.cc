#include "kvtransfer/transfer_thread.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

// How often timeouts are checked while there is any activity.
constexpr absl::Duration kTick = absl::Milliseconds(200);
constexpr absl::Duration kMaxSilence = absl::Seconds(1);  // between Coming messages

}  // namespace

// ---- Beginning and end ----

TransferThread::TransferThread(Options options)
    : options_(std::move(options)), offered_(options_.offered) {}

TransferThread::~TransferThread() { Stop(); }

absl::Status TransferThread::Start() {
  thread_ = std::thread([this] {
    const absl::Status status = Open();
    {
      absl::MutexLock lock(&mutex_);
      is_running_ = status.ok();
      started_ = status;
    }
    if (status.ok()) Run();
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
  ASSIGN_OR_RETURN(link_, PageLink::Open(options_.address, this));
  port_ = link_->port();
  options_.self.hello.page_address = link_->page_address();
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
  for (const auto& command : commands) command();
  return !commands.empty();
}

void TransferThread::Begin(std::shared_ptr<BorrowedLease> lease) {
  Post([this, lease = std::move(lease)] { Connect(lease); });
}

std::shared_ptr<PageRequest> TransferThread::AskFor(const std::shared_ptr<BorrowedLease>& lease,
                                                    const PoolId& pool,
                                                    absl::Span<const PageRef> run,
                                                    size_t page_bytes) {
  AskPages ask{.lease = lease->remote.lease, .request_id = lease->request_id, .pool = pool};
  for (const PageRef& page : run) ask.keys.push_back(page.key);
  // Random, so that a stranger cannot send a page: only the peer knows the number.
  const Nonce nonce = NewNonce();
  std::memcpy(&ask.number, nonce.data(), sizeof(ask.number));
  auto asked = std::make_shared<PageRequest>(ask.number, run.size(), page_bytes, spares_);
  const bool is_posted = Post([this, lease, asked, ask = std::move(ask)] {
    Peer* const peer = Find(lease->peer);
    if (peer == nullptr) return asked->Fail();
    Owes(peer);
    peer->asked[ask.number] = asked;
    Say(peer, ask);
  });
  if (!is_posted) asked->Fail();
  return asked;
}

void TransferThread::Cancel(std::shared_ptr<BorrowedLease> lease,
                            std::shared_ptr<PageRequest> asked) {
  Post([this, lease = std::move(lease), asked = std::move(asked)] {
    Peer* const peer = Find(lease->peer);
    if (peer == nullptr || peer->asked.erase(asked->number()) == 0) return;
    Say(peer, tandem::Cancel{asked->number()});
  });
}

void TransferThread::End(std::shared_ptr<BorrowedLease> lease) {
  Post([this, lease = std::move(lease)] {
    Peer* const peer = Find(lease->peer);
    if (peer == nullptr) return;
    std::erase(peer->leases, lease);
    Say(peer, Release{lease->remote.lease});
  });
}

void TransferThread::Connect(const std::shared_ptr<BorrowedLease>& lease) {
  const std::string name = ToString(lease->address);
  const std::string key = absl::StrCat(name, " ", lease->remote.engine_id);
  const auto place = connected_.find(key);
  Peer* peer = place == connected_.end() ? nullptr : Find(place->second);
  if (peer == nullptr) {
    peer = AddPeer(link_->Connect(lease->address), name, lease->remote.engine_id);
    peer->key = key;
    connected_[key] = peer->link;
    link_->SendMessage(peer->link, Encode(peer->handshake.hello()));
  }
  lease->peer = peer->link;
  peer->leases.push_back(lease);
  peer->next_beat = Instant::Now();
}

// ---- The loop ----

void TransferThread::Run() {
  RunUntilStopped();
  {
    absl::MutexLock lock(&mutex_);
    is_running_ = false;
  }
  RunCommands();
  while (!peers_.empty()) Lose(peers_.begin()->first, "shutting down");
}

void TransferThread::RunUntilStopped() {
  Instant next_tick = Instant::Now();
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      if (is_stopping_) return;
    }
    bool is_busy = RunCommands();
    is_busy = link_->Progress() || is_busy;
    for (const auto& [link, peer] : peers_) peer->sender.Pump();
    const Instant now = Instant::Now();
    if (now >= next_tick || next_tick >= now + 2 * kTick) {
      next_tick = now + kTick;
      Tick(now);
    }
    if (!is_busy) link_->Wait(HasActivity() ? kTick : absl::InfiniteDuration());
  }
}

bool TransferThread::HasActivity() {
  return offered_.stats().leases > 0 || std::any_of(peers_.begin(), peers_.end(), [](auto& entry) {
           const Peer& peer = *entry.second;
           return !peer.handshake.is_done() || !peer.asked.empty() || !peer.leases.empty() ||
                  peer.sender.is_busy();
         });
}

void TransferThread::Tick(Instant now) {
  std::vector<std::pair<LinkId, std::string>> lost;
  for (const auto& [link, peer] : peers_) {
    std::string reason = TimeoutReason(*peer, now);
    if (!reason.empty()) {
      lost.emplace_back(link, std::move(reason));
    } else if (peer->handshake.is_done() && now >= peer->next_beat) {
      Beat(peer.get());
    }
  }
  for (const auto& [link, reason] : lost) Lose(link, reason);
}

std::string TransferThread::TimeoutReason(const Peer& peer, Instant now) const {
  const auto after = [&](absl::string_view what) {
    return absl::StrCat(what, " for ", absl::FormatDuration(options_.timeout));
  };
  const bool owes = !peer.handshake.is_done() || !peer.asked.empty();
  if (owes && now - peer.heard > options_.timeout) return after("it sent nothing");
  if (peer.sender.stalled(now) > options_.timeout) return after("it accepted no page");
  return "";
}

void TransferThread::Beat(Peer* peer) {
  absl::Duration next = absl::InfiniteDuration();
  if (!peer->leases.empty()) {
    next = absl::Milliseconds(peer->handshake.peer().lease_ms) / 3;
    for (const auto& lease : peer->leases) Say(peer, Heartbeat{lease->remote.lease});
  }
  if (peer->sender.is_busy()) {
    next = std::min({next, kMaxSilence, options_.timeout / 3});
    Say(peer, Coming{});
  }
  peer->next_beat = Instant::Now() + next;
}

// ---- Peers ----

TransferThread::Peer* TransferThread::Find(LinkId link) {
  const auto place = peers_.find(link);
  return place == peers_.end() ? nullptr : place->second.get();
}

TransferThread::Peer* TransferThread::AddPeer(LinkId link, std::string name,
                                              const std::string& engine_id) {
  auto& peer = peers_[link];
  peer = std::make_unique<Peer>(link, std::move(name), Handshake(options_.self, engine_id),
                                &offered_, link_.get());
  return peer.get();
}

// Starts the timeout of a peer that did not owe a message or page before.
void TransferThread::Owes(Peer* peer) {
  if (peer->handshake.is_done() && peer->asked.empty()) peer->heard = Instant::Now();
}

void TransferThread::Say(Peer* peer, const WireMessage& message) {
  if (peer->handshake.is_done()) {
    link_->SendMessage(peer->link, Encode(message));
  } else {
    peer->waiting.push_back(message);
  }
}

// Fails all requests to the peer and gives up its leases.
void TransferThread::Abandon(Peer* peer, const std::string& reason) {
  if (const auto known = connected_.find(peer->key);
      known != connected_.end() && known->second == peer->link) {
    connected_.erase(known);
  }
  for (const auto& [number, asked] : peer->asked) asked->Fail();
  peer->asked.clear();
  for (const auto& lease : peer->leases) {
    lease->peer = 0;
    Log(LogLevel::kWarning, absl::StrCat("kv transfer: request_id=", lease->request_id,
                                         " peer=", peer->name, " failed: ", reason));
  }
  peer->leases.clear();
}

void TransferThread::Lose(LinkId link, const std::string& reason) {
  const auto place = peers_.find(link);
  if (place == peers_.end()) return;
  const std::unique_ptr<Peer> peer = std::move(place->second);
  peers_.erase(place);
  link_->Close(link);
  if (peer->leases.empty() && !peer->is_refused) {
    Log(LogLevel::kInfo, absl::StrCat("kv transfer: peer=", peer->name, " closed: ", reason));
  }
  Abandon(peer.get(), reason);
}

void TransferThread::ForgetIfComplete(
    Peer* peer, absl::flat_hash_map<uint64_t, std::shared_ptr<PageRequest>>::iterator asked) {
  if (asked->second->IsComplete()) peer->asked.erase(asked);
}

void TransferThread::OnAccepted(LinkId link, const std::string& peer) {
  AddPeer(link, peer, /*engine_id=*/"");
}

void TransferThread::OnClosed(LinkId link, const std::string& reason) { Lose(link, reason); }

void TransferThread::OnMessage(LinkId link, absl::Span<const std::byte> bytes) {
  Peer* const peer = Find(link);
  if (peer == nullptr || peer->is_refused) return;
  peer->heard = Instant::Now();
  const absl::StatusOr<WireMessage> message = Decode(bytes);
  if (!message.ok()) return Lose(link, std::string(message.status().message()));
  if (!peer->handshake.is_done()) return Shake(peer, *message);
  const absl::Status status = Take(peer, *message);
  if (!status.ok()) Lose(link, std::string(status.message()));
}

void TransferThread::Shake(Peer* peer, const WireMessage& message) {
  const auto answer = peer->handshake.Take(message);
  if (!answer.ok()) {
    Count([](TransferCounts& stats) { ++stats.peers_refused; });
    const std::string reason(answer.status().message());
    Log(LogLevel::kWarning, absl::StrCat("kv transfer: peer=", peer->name, " refused: ", reason));
    peer->is_refused = true;
    if (std::holds_alternative<Refusal>(message)) return Lose(peer->link, reason);
    // The peer closes the connection when it has read the reason; otherwise TimeoutReason ends it.
    link_->SendMessage(peer->link, Encode(Refusal{reason}));
    return Abandon(peer, reason);
  }
  if (answer->has_value()) link_->SendMessage(peer->link, Encode(**answer));
  if (!peer->handshake.is_done()) return;
  Log(LogLevel::kInfo,
      absl::StrCat("kv transfer: peer=", peer->name, " engine_id=",
                   absl::CHexEscape(peer->handshake.peer().engine_id), " connected"));
  link_->SetPageAddress(peer->link, peer->handshake.peer().page_address);
  for (const WireMessage& waiting : peer->waiting) Say(peer, waiting);
  peer->waiting.clear();
  peer->next_beat = Instant::Now();
}

absl::Status TransferThread::Take(Peer* peer, const WireMessage& message) {
  if (const auto* ask = std::get_if<AskPages>(&message)) {
    Log(LogLevel::kDebug,
        absl::StrCat("kv transfer: request_id=", absl::CHexEscape(ask->request_id),
                     " peer=", peer->name, " asks for ", ask->keys.size(),
                     " pages of lease=", absl::CHexEscape(ask->lease)));
    peer->next_beat = std::min(peer->next_beat, Instant::Now());
    if (peer->handshake.Shares(ask->pool)) return peer->sender.Take(*ask);
    peer->sender.Refuse(*ask, "the pool is not common to both");
  } else if (const auto* cancel = std::get_if<tandem::Cancel>(&message)) {
    peer->sender.Take(*cancel);
  } else if (const auto* heartbeat = std::get_if<Heartbeat>(&message)) {
    offered_.Extend(heartbeat->lease);
  } else if (const auto* release = std::get_if<Release>(&message)) {
    offered_.Release(release->lease);
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
  } else if (!std::holds_alternative<Coming>(message)) {
    return absl::InvalidArgumentError("it sent a message out of turn");
  }
  return absl::OkStatus();
}

// ---- Pages ----

TransferThread::Peer* TransferThread::FindAsked(uint64_t ask) {
  for (const auto& [link, peer] : peers_) {
    if (peer->asked.contains(ask)) return peer.get();
  }
  return nullptr;
}

PageBuffer TransferThread::OnPage(const PageHeader& header, size_t size) {
  Peer* const peer = FindAsked(header.ask);
  if (peer == nullptr) return nullptr;
  peer->heard = Instant::Now();
  const auto asked = peer->asked.find(header.ask);
  PageBuffer buffer = asked->second->BufferOf(header, size);
  if (buffer == nullptr) ForgetIfComplete(peer, asked);
  return buffer;
}

void TransferThread::OnPageReceived(const PageHeader& header) {
  Peer* const peer = FindAsked(header.ask);
  if (peer == nullptr) return;
  peer->heard = Instant::Now();
  const auto asked = peer->asked.find(header.ask);
  asked->second->Fill(header);
  ForgetIfComplete(peer, asked);
}

void TransferThread::OnPageSent(LinkId link, size_t size) {
  Count([&](TransferCounts& stats) {
    ++stats.pages_sent;
    stats.bytes_sent += static_cast<int64_t>(size);
  });
  if (Peer* const peer = Find(link)) peer->sender.OnSent(size);
}

}  // namespace tandem
