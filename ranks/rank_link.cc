#include "ranks/rank_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "json/json_text.h"
#include "kvtransfer/message_socket.h"
#include "tandem/parameter.h"

namespace tandem {
namespace {

using nlohmann::json;

// Increase when the messages between ranks, or the form of payloads, change.
constexpr int64_t kRankWireVersion = 1;
constexpr absl::string_view kRanksId = "ranks";  // in place of an engine's id
constexpr absl::Duration kMaxTick = absl::Milliseconds(200);
constexpr absl::Duration kMaxDrain = absl::Seconds(3);
constexpr absl::Duration kBetweenTries = absl::Milliseconds(200);
constexpr size_t kMaxReasonSize = 1024;
// Number of polls of an idle link before its thread sleeps. Waking up takes some 50 us, and the
// next piece of a pass usually arrives sooner.
constexpr int kLinkSpins = 50;
// Number of polls of the computing thread before it sleeps.
constexpr int kAwaitSpins = 20000;

constexpr int kRankBits = 8;
static_assert(kMaxRanks <= 1 << kRankBits);
uint64_t IndexOf(uint64_t step, int rank) {
  return step << kRankBits | static_cast<uint64_t>(rank);
}
uint64_t StepOf(uint64_t index) { return index >> kRankBits; }
int RankOf(uint64_t index) { return static_cast<int>(index & ((1 << kRankBits) - 1)); }

// Used in place of a step.
constexpr uint64_t kGreeting = (uint64_t{1} << (64 - kRankBits)) - 1;

uint64_t NewToken() {
  const Nonce nonce = NewNonce();
  uint64_t token = 0;
  std::memcpy(&token, nonce.data(), sizeof(token));
  return token;
}

absl::Status RendezvousError(const absl::Status& status) {
  absl::string_view what = status.message();
  absl::ConsumePrefix(&what, "kv_transfer: ");
  return absl::Status(status.code(), absl::StrCat("rendezvous: ", what));
}

// Returns this machine's address for packets to `remote`, with any free port.
absl::StatusOr<Address> OwnAddressTowards(const Address& remote) {
  const int file = socket(remote.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (file < 0 || connect(file, remote.get(), remote.size) != 0) {
    const int error = errno;
    if (file >= 0) close(file);
    return absl::UnavailableError(
        absl::StrCat("no way to ", ToString(remote), ": ", std::strerror(error)));
  }
  const Address own = LocalAddress(file);
  close(file);
  return ParseAddress(HostOf(own), 0, Names::kRefused, "kv_transfer");
}

// Makes text of a peer printable, for logs and errors.
std::string Printable(const std::string& text) {
  return absl::StrReplaceAll(absl::CHexEscape(text), {{"\\'", "'"}, {"\\\"", "\""}});
}

void LogRanks(LogLevel level, absl::string_view line) {
  Log(level, absl::StrCat("tensor_parallel: ", line));
}

}  // namespace

// ---- Beginning and end ----

RankLink::RankLink(const LinkedRankOptions& options, const Address& address)
    : options_(options),
      address_(address),
      tick_(std::min(options.silence / 8, kMaxTick)),
      token_(NewToken()),
      self_{.hello = {.version = kRankWireVersion,
                      .engine_id = std::string(kRanksId),
                      .pools = {PoolId()}},
            .secret = options.secret},
      next_connect_(options.rank == 0 ? Instant::InfiniteFuture() : started_) {}

RankLink::~RankLink() {
  {
    absl::MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  const std::string reason = absl::StrCat("tensor_parallel: rank ", rank(), " has ended");
  // The end of rank 0 is the normal end of a group.
  Fail(rank() == 0 ? absl::CancelledError(reason) : absl::UnavailableError(reason));
  if (thread_.joinable()) thread_.join();
}

absl::Status RankLink::Start() {
  thread_ = std::thread([this] { Run(); });
  const auto is_decided = [this] { return has_begun_ || !failure_.ok(); };
  absl::MutexLock lock(&mutex_, absl::Condition(&is_decided));
  return failure_;
}

absl::Status RankLink::Open() {
  Address listens = address_;
  if (rank() != 0) {
    ASSIGN_OR_RETURN(listens, OwnAddressTowards(address_));
  }
  ASSIGN_OR_RETURN(link_, PageLink::Open(listens, this));
  self_.hello.page_address = link_->page_address();
  rendezvous_ = ToString(address_);
  if (rank() != 0) return absl::OkStatus();
  group_ = NewEngineId();
  ASSIGN_OR_RETURN(const Address bound,
                   ParseAddress(HostOf(address_), link_->port(), Names::kRefused, "kv_transfer"));
  rendezvous_ = ToString(bound);
  LogRanks(LogLevel::kInfo, absl::StrCat("rendezvous=", rendezvous_, " group=", group_,
                                         " world=", options_.world, " waits for the other ranks"));
  if (options_.on_listening) options_.on_listening(rendezvous_);
  return absl::OkStatus();
}

absl::Status RankLink::status() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

void RankLink::Fail(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  if (!failure_.ok()) return;
  failure_ = why;
  has_failed_.store(true, std::memory_order_release);
  news_.fetch_add(1, std::memory_order_release);
  if (is_running_) link_->Wake();
}

// ---- The thread that computes ----

void RankLink::Give(uint64_t step, std::vector<std::byte> bytes) {
  Payload payload = MakePayload(std::move(bytes));
  absl::MutexLock lock(&mutex_);
  given_.emplace_back(IndexOf(step, rank()), std::move(payload));
  if (is_running_) link_->Wake();
}

RankLink::Payload RankLink::Await(uint64_t step, int rank) {
  for (;;) {
    const uint64_t seen = news_.load(std::memory_order_acquire);
    {
      absl::MutexLock lock(&mutex_);
      if (!failure_.ok()) return nullptr;
      const auto arrival = arrivals_.find(IndexOf(step, rank));
      if (arrival != arrivals_.end() && arrival->second.payload != nullptr) {
        Payload payload = std::move(arrival->second.payload);
        waiting_bytes_ -= arrival->second.size;
        arrivals_.erase(arrival);
        return payload;
      }
    }
    const auto is_news = [&] { return news_.load(std::memory_order_acquire) != seen; };
    for (int i = 0; i < kAwaitSpins && !is_news(); ++i) {
      if (i % 256 == 255) std::this_thread::yield();
    }
    absl::MutexLock lock(&mutex_, absl::Condition(&is_news));
  }
}

void RankLink::EnterStep(uint64_t step) {
  absl::MutexLock lock(&mutex_);
  step_ = step;
  absl::erase_if(arrivals_, [&](const auto& entry) {
    if (StepOf(entry.first) >= step) return false;
    waiting_bytes_ -= entry.second.size;
    return true;
  });
}

RankLink::Payload RankLink::MakePayload(std::vector<std::byte> bytes) {
  auto* const page = new OfferedPage{.pool = {}, .bytes = std::move(bytes), .checksum = 0};
  return Payload(page, [spares = spares_](OfferedPage* used) {
    spares->Give(std::move(used->bytes));
    delete used;
  });
}

// ---- The link's thread ----

void RankLink::Run() {
  const absl::Status opened = Open();
  if (!opened.ok()) return Fail(RendezvousError(opened));
  {
    absl::MutexLock lock(&mutex_);
    is_running_ = true;
  }
  int num_idle = 0;
  while (!HasEnded()) {
    const bool is_busy = RunOnce();
    num_idle = is_busy ? 0 : num_idle + 1;
    if (num_idle > kLinkSpins) {
      link_->Wait(tick_);
    } else if (!is_busy) {
      std::this_thread::yield();
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    is_running_ = false;
  }
  link_ = nullptr;
}

bool RankLink::RunOnce() {
  if (!begins_ && options_.world == 1) Begin();
  bool is_busy = SendGiven();
  is_busy = link_->Progress() || is_busy;
  if (has_failed() && !std::exchange(has_told_, true)) TellFailure();
  const Instant now = Instant::Now();
  if (next_tick_ <= now || now + 2 * tick_ < next_tick_) {
    next_tick_ = now + tick_;
    Tick(now);
  }
  return is_busy;
}

// After telling its neighbours why it ends, waits until they close their connections. If it closed
// a connection while they still send, its own last message would be lost.
bool RankLink::HasEnded() {
  {
    absl::MutexLock lock(&mutex_);
    if (!is_stopping_) return false;
  }
  if (!has_told_) return false;
  const Instant now = Instant::Now();
  if (!drained_by_.has_value()) drained_by_ = now + std::min(options_.silence, kMaxDrain);
  return now >= *drained_by_ || std::none_of(peers_.begin(), peers_.end(), [](const auto& entry) {
           return entry.second->rank >= 0;
         });
}

bool RankLink::SendGiven() {
  std::vector<std::pair<uint64_t, Payload>> given;
  {
    absl::MutexLock lock(&mutex_);
    given.swap(given_);
  }
  for (const auto& [index, payload] : given) SendToAllBut(rank(), index, payload);
  return !given.empty();
}

void RankLink::SendToAllBut(int rank, uint64_t index, const Payload& payload) {
  for (const auto& [link, peer] : peers_) {
    if (peer->rank < 0 || peer->rank == rank) continue;
    link_->SendPage(link, peer->token, index, payload);
  }
}

void RankLink::TellFailure() {
  absl::Status why;
  bool is_stopping = false;
  {
    absl::MutexLock lock(&mutex_);
    why = failure_;
    is_stopping = is_stopping_;
  }
  for (const auto& [link, peer] : peers_) {
    if (peer->rank < 0) continue;
    Say(*peer, {{"end", why.raw_code()},
                {"reason", std::string(why.message().substr(0, kMaxReasonSize))}});
  }
  const bool is_news = begins_ && !is_stopping && !absl::IsCancelled(why);
  if (is_news && options_.on_failure) options_.on_failure(why);
}

void RankLink::Tick(Instant now) {
  std::vector<LinkId> silent;
  for (const auto& [link, peer] : peers_) {
    ++peer->looks;
    if (peer->looks * tick_ >= options_.silence && now - peer->heard >= options_.silence) {
      silent.push_back(link);
    } else if (peer->rank >= 0) {
      Say(*peer, {{"beat", true}});
    }
  }
  for (const LinkId link : silent) {
    Lose(link, absl::StrCat("it has been silent for ", absl::FormatDuration(options_.silence)));
  }
  if (has_failed() || begins_) return;
  if (now >= next_connect_) Connect();
  if (now - started_ < options_.patience) return;
  Fail(absl::UnavailableError(absl::StrCat(
      "rendezvous: ",
      rank() == 0 ? MissingRanks() : absl::StrCat("the group did not start (", last_reason_, ")"),
      " at ", rendezvous_, " within ", absl::FormatDuration(options_.patience))));
}

std::string RankLink::MissingRanks() const {
  std::vector<int> missing, mute;
  for (int r = 1; r < options_.world; ++r) {
    const auto peer = std::find_if(peers_.begin(), peers_.end(),
                                   [&](const auto& entry) { return entry.second->rank == r; });
    if (peer == peers_.end()) {
      missing.push_back(r);
    } else if (!peer->second->has_greeted || !peer->second->is_greeted) {
      mute.push_back(r);
    }
  }
  return missing.empty() ? absl::StrCat("pages of UCX did not reach rank ",
                                        absl::StrJoin(mute, ", "), " or rank 0")
                         : absl::StrCat("rank ", absl::StrJoin(missing, ", "), " did not join");
}

// ---- Neighbours ----

RankLink::Peer* RankLink::AddPeer(LinkId link, std::string name, absl::string_view engine_id) {
  auto& peer = peers_[link];
  peer = std::make_unique<Peer>(link, std::move(name), Handshake(self_, engine_id));
  return peer.get();
}

RankLink::Peer* RankLink::Find(LinkId link) {
  const auto place = peers_.find(link);
  return place == peers_.end() ? nullptr : place->second.get();
}

void RankLink::Say(const Peer& peer, const json& words) {
  link_->SendMessage(peer.link, words.dump(-1, ' ', true, json::error_handler_t::replace));
}

void RankLink::Connect() {
  next_connect_ = Instant::InfiniteFuture();
  const Peer* const peer = AddPeer(link_->Connect(address_), rendezvous_, kRanksId);
  link_->SendMessage(peer->link, Encode(peer->handshake.hello()));
}

// Rank 0 has not started yet, or has ended.
void RankLink::TryAgain(const std::string& reason) {
  next_connect_ = Instant::Now() + kBetweenTries;
  if (std::exchange(last_reason_, reason) == reason) return;
  LogRanks(LogLevel::kInfo, absl::StrCat("rank=", rank(), " waits for rank 0 at ", rendezvous_,
                                         " reason=\"", reason, "\""));
}

void RankLink::OnAccepted(LinkId link, const std::string& peer) {
  if (rank() != 0) return link_->Close(link);
  AddPeer(link, peer, /*engine_id=*/"");
}

void RankLink::OnClosed(LinkId link, const std::string& reason) { Lose(link, reason); }

void RankLink::Lose(LinkId link, const std::string& reason) {
  const auto place = peers_.find(link);
  if (place == peers_.end()) return;
  const std::unique_ptr<Peer> peer = std::move(place->second);
  peers_.erase(place);
  link_->Close(link);
  if (peer->rank < 0) {
    if (rank() != 0 && !has_failed()) TryAgain(reason);
    return;
  }
  if (rank() == 0 && !begins_) {
    return LogRanks(LogLevel::kWarning, absl::StrCat("rank=", peer->rank, " peer=", peer->name,
                                                     " left before the group began: ", reason));
  }
  Fail(absl::UnavailableError(
      absl::StrCat("tensor_parallel: lost rank ", peer->rank, " at ", peer->name, ": ", reason)));
}

void RankLink::OnMessage(LinkId link, absl::Span<const std::byte> bytes) {
  Peer* const peer = Find(link);
  if (peer == nullptr || peer->is_refused) return;
  peer->heard = Instant::Now();
  peer->looks = 0;
  // The JSON library throws if a member has another type.
  const absl::Status status =
      Guarded("it sent a malformed message", [&] { return TakeMessage(peer, bytes); });
  if (!status.ok()) Reject(peer, status);
}

// `peer` is valid only during this call.
absl::Status RankLink::TakeMessage(Peer* peer, absl::Span<const std::byte> bytes) {
  if (bytes.empty() || bytes[0] != std::byte{'{'} || !peer->handshake.is_done()) {
    return Shake(peer, bytes);
  }
  ASSIGN_OR_RETURN(const json words, ParseJson(View(bytes), "it sent a malformed message"));
  return TakeWords(peer, words);
}

absl::Status RankLink::Shake(Peer* peer, absl::Span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const WireMessage message, Decode(bytes));
  if (const auto* refusal = std::get_if<Refusal>(&message)) {
    return absl::PermissionDeniedError(
        absl::StrCat("it refuses this rank: ", Printable(refusal->reason)));
  }
  ASSIGN_OR_RETURN(const std::optional<WireMessage> answer, peer->handshake.Take(message));
  if (answer.has_value()) link_->SendMessage(peer->link, Encode(*answer));
  if (!peer->handshake.is_done()) return absl::OkStatus();
  link_->SetPageAddress(peer->link, peer->handshake.peer().page_address);
  if (rank() == 0) return absl::OkStatus();
  Say(*peer, {{"join", rank()},
              {"world", options_.world},
              {"program", options_.version},
              {"token", token_}});
  return absl::OkStatus();
}

absl::Status RankLink::TakeWords(Peer* peer, const json& words) {
  if (rank() == 0 && peer->rank < 0) return Admit(peer, words);
  if (rank() != 0 && peer->rank < 0 && words.contains("welcome")) {
    peer->token = words.at("token");
    group_ = words.at("welcome").get<std::string>().substr(0, kMaxReasonSize);
    peer->rank = 0;
    last_reason_ = "it waits for other ranks";
    LogRanks(LogLevel::kInfo,
             absl::StrCat("rank=", rank(), " world=", options_.world, " rendezvous=", rendezvous_,
                          " group=", Printable(group_), " joined"));
    Greet(*peer);
    if (is_greeted_by_zero_) TakeGreeting(0);
    return absl::OkStatus();
  }
  if (peer->rank < 0) return absl::PermissionDeniedError("it sent a message out of turn");
  if (words.contains("begin") && rank() != 0) {
    Begin();
  } else if (words.contains("greeted")) {
    peer->is_greeted = true;
    BeginIfComplete();
  } else if (words.contains("end")) {
    const int code = words.at("end");
    const std::string reason = words.at("reason");
    if (code == 0) return absl::InvalidArgumentError("it ended without a reason");
    Fail(absl::Status(static_cast<absl::StatusCode>(code), reason.substr(0, kMaxReasonSize)));
    Lose(peer->link, reason);
  }
  return absl::OkStatus();
}

// The refusals are sent to the rank that wants to join.
absl::Status RankLink::Admit(Peer* peer, const json& join) {
  const int wanted = join.at("join");
  const int world = join.at("world");
  const std::string program = join.at("program");
  const auto refuse = [](const auto&... reason) {
    return absl::PermissionDeniedError(absl::StrCat(reason...));
  };
  if (program != options_.version) {
    return refuse("its program's version is ", Printable(program), ", rank 0's is ",
                  options_.version);
  }
  if (world != options_.world) {
    return refuse("its world has ", world, " ranks, rank 0's has ", options_.world);
  }
  if (wanted < 1 || wanted >= world) return refuse("its rank is ", wanted, " of ", world);
  for (const auto& [link, other] : peers_) {
    if (other->rank == wanted)
      return refuse("rank ", wanted, " has already joined from ", other->name);
  }
  if (has_failed()) return refuse("the group has ended");
  peer->token = join.at("token");
  peer->rank = wanted;
  Say(*peer, {{"welcome", group_}, {"token", token_}});
  LogRanks(LogLevel::kInfo, absl::StrCat("rank=", wanted, " peer=", peer->name, " joined"));
  Greet(*peer);
  return absl::OkStatus();
}

void RankLink::Greet(const Peer& peer) {
  link_->SendPage(peer.link, peer.token, IndexOf(kGreeting, rank()), MakePayload({std::byte{}}));
}

void RankLink::TakeGreeting(int rank) {
  if (rank == 0) is_greeted_by_zero_ = true;  // perhaps before its welcome
  for (const auto& [link, peer] : peers_) {
    if (peer->rank != rank || std::exchange(peer->has_greeted, true)) continue;
    Say(*peer, {{"greeted", true}});
    return BeginIfComplete();
  }
}

void RankLink::BeginIfComplete() {
  if (rank() != 0 || begins_) return;
  const auto num_ready = std::count_if(peers_.begin(), peers_.end(), [](const auto& entry) {
    return entry.second->has_greeted && entry.second->is_greeted;
  });
  if (num_ready == options_.world - 1) Begin();
}

void RankLink::Begin() {
  begins_ = true;
  if (rank() == 0) {
    for (const auto& [link, peer] : peers_) {
      if (peer->rank >= 0) Say(*peer, {{"begin", true}});
    }
  }
  absl::MutexLock lock(&mutex_);
  has_begun_ = true;
}

void RankLink::Reject(Peer* peer, const absl::Status& why) {
  const std::string reason(why.message());
  if (peer->rank >= 0) return Lose(peer->link, reason);
  if (rank() == 0) {
    LogRanks(LogLevel::kWarning, absl::StrCat("peer=", peer->name, " refused: ", reason));
    peer->is_refused = true;
    // The peer closes the connection when it has read the reason; otherwise Tick does.
    return link_->SendMessage(peer->link, Encode(Refusal{reason}));
  }
  Fail(absl::Status(why.code(), absl::StrCat("rendezvous: rank 0 at ", rendezvous_, ": ", reason)));
  Lose(peer->link, reason);
}

// ---- Payloads ----

bool RankLink::IsExpected(uint64_t index, size_t size) const {
  const uint64_t step = StepOf(index);
  const int from = RankOf(index);
  return from < options_.world && from != rank() && step >= step_ &&
         step <= step_ + kMaxStepsAhead && !arrivals_.contains(index) && size > 0 &&
         size <= kMaxWaitingBytes - waiting_bytes_;
}

PageBuffer RankLink::OnPage(const PageHeader& header, size_t size) {
  if (header.ask != token_ || has_failed()) return nullptr;
  PageBuffer buffer;
  if (StepOf(header.index) == kGreeting) {
    if (size == 1) buffer = std::make_shared<std::vector<std::byte>>(size);
    return buffer;
  }
  {
    absl::MutexLock lock(&mutex_);
    if (IsExpected(header.index, size)) {
      buffer = std::make_shared<std::vector<std::byte>>(spares_->Take(size));
      arrivals_[header.index] = {.size = size, .filling = buffer, .payload = nullptr};
      waiting_bytes_ += size;
      return buffer;
    }
  }
  Fail(absl::InternalError(absl::StrCat("tensor_parallel: rank ", RankOf(header.index), " sent ",
                                        size, " bytes for step ", StepOf(header.index),
                                        ", which were not expected")));
  return nullptr;
}

void RankLink::OnPageReceived(const PageHeader& header) {
  if (header.ask != token_) return;
  if (StepOf(header.index) == kGreeting) return TakeGreeting(RankOf(header.index));
  Payload payload;
  {
    absl::MutexLock lock(&mutex_);
    const auto arrival = arrivals_.find(header.index);
    if (arrival == arrivals_.end() || arrival->second.filling == nullptr) return;
    payload = MakePayload(std::move(*std::exchange(arrival->second.filling, nullptr)));
    arrival->second.payload = payload;
    news_.fetch_add(1, std::memory_order_release);
  }
  if (rank() == 0) SendToAllBut(RankOf(header.index), header.index, payload);
}

}  // namespace tandem
