#include "model/ranks/rank_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "base/guard.h"
#include "base/json/json_text.h"
#include "base/log.h"
#include "base/net/secret.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "tandem/parameter.h"

namespace tandem {
namespace {

using Json = SortedJson;

constexpr absl::Duration kMaxTick = absl::Milliseconds(200);
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
  thread_ = std::thread([this] { Attempt("tensor_parallel", [this] { Run(); }); });
  const auto is_decided = [this] { return has_begun_ || !failure_.ok(); };
  absl::MutexLock lock(&mutex_, absl::Condition(&is_decided));
  return failure_;
}

absl::Status RankLink::Open() {
  LinkOptions wire{.service = "ranks", .timeout = options_.silence, .address_field = "rendezvous"};
  ASSIGN_OR_RETURN(wire.secrets, ParseSecrets(options_.secret, "rendezvous_secret"));
  if (rank() == 0) {
    wire.address = address_;
    wire.accepts = [world = options_.world](absl::string_view scope) {
      int rank = 0;
      return absl::SimpleAtoi(scope, &rank) && 0 < rank && rank < world;
    };
  }
  ASSIGN_OR_RETURN(link_, Link::Open(wire, this));
  rendezvous_ = ToString(rank() == 0 ? link_->address() : address_);
  if (rank() != 0) return absl::OkStatus();
  group_ = NewRandomName();
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
  Payload payload = MakeBuffer(std::move(bytes));
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
      if (arrival != arrivals_.end() && arrival->second.is_complete) {
        Payload payload = std::move(arrival->second.buffer);
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
  std::erase_if(arrivals_, [&](const auto& entry) {
    if (StepOf(entry.first) >= step) return false;
    waiting_bytes_ -= entry.second.size;
    return true;
  });
}

BlockBuffer RankLink::MakeBuffer(std::vector<std::byte> bytes) {
  return {new std::vector<std::byte>(std::move(bytes)),
          [spares = spares_](std::vector<std::byte>* used) {
            spares->Give(std::move(*used));
            delete used;
          }};
}

// ---- The link's thread ----

void RankLink::Run() {
  const absl::Status opened = Guarded("rendezvous", [this] { return Open(); });
  if (!opened.ok()) return Fail(opened);
  {
    absl::MutexLock lock(&mutex_);
    is_running_ = true;
  }
  int num_idle = 0;
  while (!HasEnded()) {
    bool is_busy = false;
    const absl::Status status = Caught("tensor_parallel", [&] { is_busy = RunOnce(); });
    if (!status.ok()) Fail(status);
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

// Ends when the neighbours have been told why.
bool RankLink::HasEnded() {
  absl::MutexLock lock(&mutex_);
  return is_stopping_ && has_told_ && !link_->is_closing();
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
    if (peer.rank < 0 || peer.rank == rank) continue;
    const auto from = static_cast<uint64_t>(RankOf(index));
    link_->SendBlock(link, {.tag = StepOf(index), .index = from}, *payload, payload);
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
  for (const auto& [link, peer] : peers_) link_->Close(link, why);
  peers_.clear();
  const bool is_news = begins_ && !is_stopping && !absl::IsCancelled(why);
  if (is_news && options_.on_failure) options_.on_failure(why);
}

void RankLink::Tick(Instant now) {
  if (has_failed() || begins_) return;
  if (now >= next_connect_) Connect();
  if (now - started_ < options_.patience) return;
  Fail(absl::UnavailableError(absl::StrCat(
      "rendezvous: ",
      rank() == 0 ? MissingRanks() : absl::StrCat("the group did not start (", last_reason_, ")"),
      " at ", rendezvous_, " within ", absl::FormatDuration(options_.patience))));
}

std::string RankLink::MissingRanks() const {
  std::vector<int> missing;
  for (int r = 1; r < options_.world; ++r) {
    const bool has_joined = std::any_of(peers_.begin(), peers_.end(),
                                        [&](const auto& entry) { return entry.second.rank == r; });
    if (!has_joined) missing.push_back(r);
  }
  return absl::StrCat("rank ", absl::StrJoin(missing, ", "), " did not join");
}

// ---- Neighbours ----

void RankLink::Send(LinkId link, const Json& words) {
  link_->SendMessage(link, words.dump(-1, ' ', true, Json::error_handler_t::replace));
}

void RankLink::Connect() {
  next_connect_ = Instant::InfiniteFuture();
  peers_[link_->Connect(address_, absl::StrCat(rank()))] = {.name = rendezvous_};
}

// Rank 0 has not started yet, or has ended.
void RankLink::TryAgain(absl::string_view reason) {
  next_connect_ = Instant::Now() + kBetweenTries;
  if (last_reason_ == reason) return;
  last_reason_ = std::string(reason);
  LogRanks(LogLevel::kInfo, absl::StrCat("rank=", rank(), " waits for rank 0 at ", rendezvous_,
                                         " reason=\"", reason, "\""));
}

void RankLink::OnOpened(LinkId link, const std::string& name, absl::string_view scope) {
  if (rank() != 0) {
    return Send(link, {{"join", rank()}, {"world", options_.world}, {"program", options_.version}});
  }
  Peer& peer = peers_[link] = {.name = name};
  TANDEM_CHECK(absl::SimpleAtoi(scope, &peer.claimed));  // by LinkOptions::accepts
}

void RankLink::OnRefused(const std::string& peer, const absl::Status& why) {
  LogRanks(LogLevel::kWarning, absl::StrCat("peer=", peer, " refused: ", why.message()));
}

void RankLink::OnClosed(LinkId link, const absl::Status& why, bool is_peers) {
  const auto place = peers_.find(link);
  if (place == peers_.end()) return;
  if (!is_peers) return Drop(link, why);
  const std::string reason = Printable(std::string(why.message()));
  if (place->second.rank < 0) {
    return Drop(link, absl::Status(why.code(), absl::StrCat("it refuses this rank: ", reason)));
  }
  // Only rank 0 ends a group whose work is done.
  const bool is_wrong = rank() == 0 && absl::IsCancelled(why);
  Fail(absl::Status(is_wrong ? absl::StatusCode::kUnavailable : why.code(), reason));
  peers_.erase(link);
}

// A connection is over, on either side.
void RankLink::Drop(LinkId link, const absl::Status& why) {
  const Peer peer = peers_.extract(link).mapped();
  if (peer.rank < 0) {
    if (rank() == 0 || has_failed()) return;
    if (absl::IsUnavailable(why)) return TryAgain(why.message());
    return Fail(absl::Status(
        why.code(), absl::StrCat("rendezvous: rank 0 at ", rendezvous_, ": ", why.message())));
  }
  if (rank() == 0 && !begins_) {
    return LogRanks(LogLevel::kWarning,
                    absl::StrCat("rank=", peer.rank, " peer=", peer.name,
                                 " left before the group began: ", why.message()));
  }
  Fail(absl::UnavailableError(absl::StrCat("tensor_parallel: lost rank ", peer.rank, " at ",
                                           peer.name, ": ", why.message())));
}

void RankLink::OnMessage(LinkId link, absl::Span<const std::byte> bytes) {
  const auto place = peers_.find(link);
  if (place == peers_.end()) return;
  // The JSON library throws if a member has another type.
  const absl::Status status = Guarded("it sent a malformed message", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const Json words, ParseJson(View(bytes), "it sent a malformed message"));
    return TakeWords(link, &place->second, words);
  });
  if (!status.ok()) Reject(link, status);
}

absl::Status RankLink::TakeWords(LinkId link, Peer* peer, const Json& words) {
  if (rank() == 0 && peer->rank < 0) return Admit(link, peer, words);
  if (rank() != 0 && peer->rank < 0 && words.contains("welcome")) {
    group_ = words.at("welcome").get<std::string>().substr(0, kMaxReasonSize);
    peer->rank = 0;
    link_->Admit(link);
    last_reason_ = "it waits for other ranks";
    LogRanks(LogLevel::kInfo,
             absl::StrCat("rank=", rank(), " world=", options_.world, " rendezvous=", rendezvous_,
                          " group=", Printable(group_), " joined"));
    return absl::OkStatus();
  }
  if (rank() == 0 || peer->rank < 0 || begins_ || !words.contains("begin")) {
    return absl::PermissionDeniedError("it sent a message out of turn");
  }
  Begin();
  return absl::OkStatus();
}

// The refusals are sent to the rank that wants to join.
absl::Status RankLink::Admit(LinkId link, Peer* peer, const Json& join) {
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
  if (wanted != peer->claimed) {
    return refuse("its rank is ", wanted, ", that of its key ", peer->claimed);
  }
  for (const auto& [other_link, other] : peers_) {
    if (other.rank == wanted)
      return refuse("rank ", wanted, " has already joined from ", other.name);
  }
  if (has_failed()) return refuse("the group has ended");
  peer->rank = wanted;
  link_->Admit(link);
  Send(link, {{"welcome", group_}});
  LogRanks(LogLevel::kInfo, absl::StrCat("rank=", wanted, " peer=", peer->name, " joined"));
  const auto num_joined = std::count_if(peers_.begin(), peers_.end(),
                                        [](const auto& entry) { return entry.second.rank > 0; });
  if (num_joined == options_.world - 1) Begin();
  return absl::OkStatus();
}

void RankLink::Begin() {
  begins_ = true;
  if (rank() == 0) {
    for (const auto& [link, peer] : peers_) {
      if (peer.rank >= 0) Send(link, {{"begin", true}});
    }
  }
  absl::MutexLock lock(&mutex_);
  has_begun_ = true;
}

void RankLink::Reject(LinkId link, const absl::Status& why) {
  if (rank() == 0 && peers_[link].rank < 0) OnRefused(peers_[link].name, why);
  link_->Close(link, why);
  Drop(link, why);
}

// ---- Payloads ----

bool RankLink::IsExpected(uint64_t index, size_t size) const {
  const uint64_t step = StepOf(index);
  const int from = RankOf(index);
  return from < options_.world && from != rank() && step >= step_ &&
         step <= step_ + kMaxStepsAhead && !arrivals_.contains(index) && size > 0 &&
         size <= kMaxWaitingBytes - waiting_bytes_;
}

BlockBuffer RankLink::OnBlock(LinkId link, const BlockHeader& header, size_t size) {
  const auto peer = peers_.find(link);
  if (peer == peers_.end() || has_failed()) return nullptr;
  const bool is_numbered = header.tag < uint64_t{1} << (64 - kRankBits) &&
                           header.index < static_cast<uint64_t>(options_.world);
  // Rank 0 forwards the payloads of the others.
  const bool is_its_own = rank() != 0 || static_cast<int>(header.index) == peer->second.rank;
  if (is_numbered && is_its_own) {
    const uint64_t index = IndexOf(header.tag, static_cast<int>(header.index));
    absl::MutexLock lock(&mutex_);
    if (IsExpected(index, size)) {
      BlockBuffer buffer = MakeBuffer(spares_->Take(std::min(size, size_t{FrameChannel::kGrowth})));
      arrivals_[index] = {.size = size, .buffer = buffer, .is_complete = false};
      waiting_bytes_ += size;
      return buffer;
    }
  }
  Fail(absl::InternalError(absl::StrCat("tensor_parallel: rank ", header.index, " sent ", size,
                                        " bytes for step ", header.tag,
                                        ", which were not expected")));
  return nullptr;
}

void RankLink::OnBlockReceived(LinkId, const BlockHeader& header) {
  const int from = static_cast<int>(header.index);
  const uint64_t index = IndexOf(header.tag, from);
  Payload payload;
  {
    absl::MutexLock lock(&mutex_);
    const auto arrival = arrivals_.find(index);
    if (arrival == arrivals_.end()) return;
    arrival->second.is_complete = true;
    payload = arrival->second.buffer;
    news_.fetch_add(1, std::memory_order_release);
  }
  if (rank() == 0) SendToAllBut(from, index, payload);
}

}  // namespace tandem
