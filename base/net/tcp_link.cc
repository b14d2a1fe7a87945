#include "base/net/tcp_link.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/hash_map.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

using boost::system::error_code;
namespace ip = net::ip;

// Limits on what strangers can take. A waiting handshake has 42 KB.
constexpr int kMaxNew = 64;
constexpr int kMaxNewOfSite = 8;
constexpr int kShakesPerTurn = 4;
constexpr int kAcceptsPerTurn = 64;
constexpr int kHellosPerSecond = 200;
constexpr int kRefusalsPerTick = 2;  // that are reported, so that strangers do not fill the log
constexpr size_t kMaxHelloBytes = 2048;
constexpr absl::Duration kMaxBetweenBeats = absl::Seconds(1);
constexpr absl::Duration kLinger = absl::Seconds(1);

// Returns the scope in a key's identity (base/net/secret.h).
absl::string_view ScopeOf(absl::string_view identity) {
  identity = identity.substr(0, identity.rfind(' '));
  return identity.substr(identity.rfind(' ') + 1);
}

absl::Status CannotReach(const error_code& error) {
  return absl::UnavailableError(absl::StrCat("it cannot be reached: ", error.message()));
}

// The refusal that a worker of wire version 1 understands: a length, and MessagePack's [2, text].
std::string RefusalOfVersion1() {
  const std::string text = "it speaks TLS 1.3 (Tandem's wire version 2)";
  const std::string message =
      absl::StrCat("\x92\x02\xd9", std::string(1, static_cast<char>(text.size())), text);
  return absl::StrCat(std::string(1, static_cast<char>(message.size())), std::string(3, '\0'),
                      message);
}
bool IsVersion1(absl::Span<const std::byte> head) {
  return head[1] <= std::byte{64} && head[2] == std::byte{0} && head[3] == std::byte{0} &&
         head[4] == std::byte{0x97};  // an array of a Hello's 7 parts
}

}  // namespace

// ---- Beginning and end ----

absl::Status TcpLink::Start() {
  auto tls = TlsSettings::Create([this](absl::string_view identity) -> std::optional<PresharedKey> {
    const absl::string_view scope = ScopeOf(identity);
    if (!options_.accepts || !options_.accepts(scope)) return std::nullopt;
    for (const std::string& secret : options_.secrets) {
      PresharedKey key = DerivePresharedKey(secret, options_.service, scope);
      if (key.identity == identity) return key;
    }
    return std::nullopt;
  });
  ASSIGN_OR_RETURN(tls_, Named(options_.address_field, std::move(tls)));
  if (options_.fabric == "ucx") {
    ASSIGN_OR_RETURN(
        path_, Named(options_.fabric_field, BlockPath::Open(options_.fabric_transports, this)));
    path_descriptor_.assign(path_->descriptor());
    has_path_ = true;
  }
  return options_.address.has_value() ? Named(options_.address_field, Listen()) : absl::OkStatus();
}

absl::Status TcpLink::Listen() {
  rlimit files = {};
  // At most a quarter of the process's descriptors are for links.
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 4 * (kMaxNew + kMaxOpen)) {
    max_open_ = static_cast<int>(files.rlim_cur / 4) - kMaxNew;
  }
  if (max_open_ < 1) {
    return absl::UnavailableError(absl::StrCat("needs a limit of more than ", 4 * kMaxNew,
                                               " open files (ulimit -n), found ", files.rlim_cur));
  }
  const tcp::endpoint at = *options_.address;
  error_code error;
  acceptor_.open(at.protocol(), error);
  if (!error) fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
  // Lets a restarted server use the same port again.
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(at, error);
  if (!error) acceptor_.listen(net::socket_base::max_listen_connections, error);
  if (!error) acceptor_.non_blocking(true, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", ToString(*options_.address), ": ", error.message()));
  }
  address_ = acceptor_.local_endpoint(error);
  spare_descriptor_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
  AwaitStrangers();
  return absl::OkStatus();
}

TcpLink::~TcpLink() {
  for (const auto& [link, connection] : connections_) {
    if (connection->frames == nullptr) continue;
    connection->frames->Flush().IgnoreError();
    connection->sealed->End();
  }
  connections_.clear();
  if (path_ != nullptr) path_descriptor_.release();
  if (spare_descriptor_ >= 0) close(spare_descriptor_);
}

// ---- Connections ----

TcpLink::ConnectionPtr TcpLink::Find(LinkId link) const {
  const auto place = connections_.find(link);
  return place == connections_.end() ? nullptr : place->second;
}

TcpLink::ConnectionPtr TcpLink::Add(tcp::socket socket, const Address& peer) {
  const LinkId link = ++last_link_;
  auto connection = std::make_shared<Connection>(this, link, std::move(socket));
  connection->peer = ToString(peer);
  const int file = connection->socket.native_handle();
  const int on = 1;
  const unsigned lost_after_ms = 10'000;
  fcntl(file, F_SETFD, FD_CLOEXEC);
  fcntl(file, F_SETFL, fcntl(file, F_GETFL) | O_NONBLOCK);
  setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(file, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(file, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost_after_ms, sizeof(lost_after_ms));
  connections_[link] = connection;
  return connection;
}

void TcpLink::Enter(Connection* connection, State state) {
  connection->state = state;
  connection->since = Instant::Now();
}

void TcpLink::SetReady(Connection* connection) {
  if (!std::exchange(connection->is_ready, true)) ready_.push_back(connection->link);
}

void TcpLink::Watch(Connection* connection, bool to_write) {
  bool& waits = to_write ? connection->waits_to_write : connection->waits_to_read;
  if (std::exchange(waits, true)) return;
  connection->socket.async_wait(to_write ? tcp::socket::wait_write : tcp::socket::wait_read,
                                [this, link = connection->link, to_write](const error_code& error) {
                                  const ConnectionPtr found = Find(link);
                                  if (found == nullptr || error == net::error::operation_aborted)
                                    return;
                                  (to_write ? found->waits_to_write : found->waits_to_read) = false;
                                  SetReady(found.get());
                                });
}

LinkId TcpLink::Connect(const Address& address, absl::string_view scope) {
  tcp::socket socket(io_);
  error_code error;
  socket.open(address.protocol(), error);
  const ConnectionPtr connection = Add(std::move(socket), address);
  connection->key = DerivePresharedKey(options_.secrets.front(), options_.service, scope);
  if (error) {
    connection->failure = CannotReach(error);
    SetReady(connection.get());
    return connection->link;
  }
  connection->socket.async_connect(
      address, [this, link = connection->link](const error_code& result) {
        const ConnectionPtr found = Find(link);
        if (found == nullptr || found->state != State::kConnects) return;
        if (result) {
          found->failure = CannotReach(result);
        } else {
          found->tls = std::make_unique<TlsHandshake>(*tls_, &found->wire, found->key);
          Enter(found.get(), State::kShakes);
        }
        SetReady(found.get());
      });
  return connection->link;
}

void TcpLink::Admit(LinkId link) {
  const ConnectionPtr connection = Find(link);
  if (connection == nullptr || connection->state != State::kGreets) return;
  connection->frames->Admit();
  Enter(connection.get(), State::kOpen);
  if (!has_path_) return;
  connection->failure.Update(connection->frames->SendPath(path_->Expect(link), path_->address()));
  SetReady(connection.get());
}

void TcpLink::SendMessage(LinkId link, absl::string_view bytes) {
  const ConnectionPtr connection = Find(link);
  if (connection == nullptr || connection->frames == nullptr) return;
  connection->failure.Update(connection->frames->SendMessage(bytes));
  SetReady(connection.get());
}

void TcpLink::SendBlock(LinkId link, const BlockHeader& header, absl::Span<const std::byte> bytes,
                        std::shared_ptr<const void> owner) {
  const ConnectionPtr connection = Find(link);
  if (connection == nullptr || connection->frames == nullptr) return;
  if (connection->uses_path && has_path_) {
    return path_->SendBlock(link, header, bytes, std::move(owner));
  }
  connection->frames->SendBlock(header, bytes, std::move(owner));
  SetReady(connection.get());
}

void TcpLink::Close(LinkId link, const absl::Status& why) {
  const ConnectionPtr connection = Find(link);
  if (connection == nullptr) return;
  if (connection->is_new()) {
    connections_.erase(link);
    return;
  }
  connection->frames->SendEnd(why).IgnoreError();
  connection->frames->Stop();
  Enter(connection.get(), State::kEnds);
  SetReady(connection.get());
}

bool TcpLink::is_closing() const {
  return std::any_of(connections_.begin(), connections_.end(),
                     [](const auto& entry) { return entry.second->state == State::kEnds; });
}

// ---- Strangers ----

void TcpLink::AwaitStrangers() {
  if (std::exchange(is_accepting_, true)) return;
  acceptor_.async_wait(tcp::acceptor::wait_read, [this](const error_code& error) {
    is_accepting_ = false;
    if (!error) AcceptAll();
  });
}

void TcpLink::AcceptAll() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    Address from;
    socklen_t from_size = from.capacity();
    const int file =
        accept4(acceptor_.native_handle(), from.data(), &from_size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (file < 0 && (errno == EMFILE || errno == ENFILE)) {
      // Refuses one connection, and accepts again at the next tick.
      close(spare_descriptor_);
      const int refused = accept(acceptor_.native_handle(), nullptr, nullptr);
      if (refused >= 0) close(refused);
      spare_descriptor_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
      return;
    }
    if (file < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (file < 0) return AwaitStrangers();
    from.resize(from_size);
    std::string site = from.address().to_string();
    if (from.address().is_v6())
      site = ip::network_v6(from.address().to_v6(), 64).canonical().to_string();
    tcp::socket socket(io_);
    error_code error;
    socket.assign(from.protocol(), file, error);
    if (error) {
      close(file);
      continue;
    }
    MakeWay(site);
    const ConnectionPtr connection = Add(std::move(socket), from);
    connection->site = site;
    connection->state = State::kSilent;
    Watch(connection.get(), /*to_write=*/false);
  }
  AwaitStrangers();
}

// Closes the oldest new connection of the most crowded site, if there are too many.
void TcpLink::MakeWay(const std::string& site) {
  HashMap<std::string, int> crowds;
  int num_new = 0;
  for (const auto& [link, connection] : connections_) {
    if (connection->site.empty() || !connection->is_new()) continue;
    ++crowds[connection->site];
    ++num_new;
  }
  std::string crowded = site;
  if (crowds[site] < kMaxNewOfSite) {
    if (num_new < kMaxNew) return;
    crowded = std::max_element(crowds.begin(), crowds.end(), [](const auto& a, const auto& b) {
                return a.second < b.second;
              })->first;
  }
  LinkId oldest = last_link_ + 1;
  for (const auto& [link, connection] : connections_) {
    if (connection->is_new() && connection->site == crowded) oldest = std::min(oldest, link);
  }
  connections_.erase(oldest);
}

// ---- Progress ----

// Waits for bytes that look like the first record of a handshake: other bytes of strangers cost
// no more than a descriptor.
absl::Status TcpLink::ServeSilent(Connection* connection) {
  const Moved::State state = connection->wire.ReadHead();
  if (state == Moved::kWaits) {
    Watch(connection, /*to_write=*/false);
    return absl::OkStatus();
  }
  if (state != Moved::kSome) return absl::CancelledError("it has closed the connection");
  if (hellos_left_ == 0) return absl::OkStatus();  // until the next tick
  --hellos_left_;
  const absl::Span<const std::byte> head = connection->wire.head();
  const size_t size = std::to_integer<size_t>(head[3]) << 8 | std::to_integer<size_t>(head[4]);
  const bool is_hello =
      head[0] == std::byte{22} && head[1] == std::byte{3} && size <= kMaxHelloBytes;
  if (!is_hello) {
    if (IsVersion1(head)) {
      const std::string refusal = RefusalOfVersion1();
      connection->wire.Write({reinterpret_cast<const std::byte*>(refusal.data()), refusal.size()});
      return absl::PermissionDeniedError("it is an older version, without TLS");
    }
    return absl::InvalidArgumentError("it does not speak TLS 1.3");
  }
  connection->tls = std::make_unique<TlsHandshake>(*tls_, &connection->wire);
  Enter(connection, State::kShakes);
  return Shake(connection);
}

absl::Status TcpLink::Shake(Connection* connection) {
  const Moved::State state = connection->tls->Continue();
  if (state == Moved::kWaits) {
    Watch(connection, connection->tls->wants_to_write());
    return absl::OkStatus();
  }
  if (state != Moved::kSome) return connection->tls->failure();
  const auto num_open = std::count_if(
      connections_.begin(), connections_.end(),
      [](const auto& entry) { return !entry.second->site.empty() && !entry.second->is_new(); });
  const std::string identity = connection->tls->identity();
  connection->sealed = std::make_unique<SealedStream>(&connection->wire, connection->tls->keys());
  connection->tls = nullptr;
  connection->frames =
      std::make_unique<FrameChannel>(connection->sealed.get(), connection, options_.timeout);
  Enter(connection, State::kGreets);
  if (!connection->site.empty() && num_open >= max_open_) {
    Close(connection->link, absl::ResourceExhaustedError("it has too many connections"));
    return absl::OkStatus();
  }
  events_.OnOpened(connection->link, connection->peer, ScopeOf(identity));
  SetReady(connection);
  return absl::OkStatus();
}

absl::Status TcpLink::Exchange(Connection* connection) {
  RETURN_IF_ERROR(connection->frames->Receive());
  if (connection->state == State::kEnds) return absl::OkStatus();
  RETURN_IF_ERROR(connection->failure);
  RETURN_IF_ERROR(connection->frames->Flush());
  if (connection->frames->can_go_on()) {
    SetReady(connection);
    return absl::OkStatus();
  }
  if (!connection->waits_to_read && !std::exchange(connection->is_unwatched, true)) {
    unwatched_.push_back(connection->link);
  }
  if (connection->frames->has_unsent()) Watch(connection, /*to_write=*/true);
  return absl::OkStatus();
}

// Sends what is left, then reads until the peer closes: closing earlier could lose the last frame.
void TcpLink::ServeEnd(Connection* connection) {
  const bool has_failed = !connection->frames->Flush().ok();
  if (!has_failed && connection->frames->has_unsent()) {
    connection->frames->can_go_on() ? SetReady(connection) : Watch(connection, /*to_write=*/true);
  } else if (!std::exchange(connection->has_shut_down, true)) {
    connection->sealed->End();
    error_code ignored;
    connection->socket.shutdown(tcp::socket::shutdown_send, ignored);
  }
  std::array<std::byte, 16384> unread;
  Moved moved = connection->wire.Read(absl::MakeSpan(unread));
  if (has_failed || moved.state == Moved::kEnded || moved.state == Moved::kFailed) {
    connections_.erase(connection->link);
  } else if (moved.state == Moved::kSome) {
    SetReady(connection);
  } else {
    Watch(connection, /*to_write=*/false);
  }
}

void TcpLink::Fail(Connection* connection, const absl::Status& why) {
  const LinkId link = connection->link;
  const bool was_opened = connection->site.empty() || !connection->is_new();
  const bool is_peers = connection->frames != nullptr && connection->frames->has_ended();
  connections_.erase(link);
  if (was_opened) {
    events_.OnClosed(link, why, is_peers);
  } else if (!absl::IsCancelled(why) && refusals_left_ > 0) {
    --refusals_left_;
    events_.OnRefused(connection->peer, why);
  }
}

void TcpLink::Serve(Connection* connection) {
  absl::Status status = connection->failure;
  if (connection->state == State::kEnds) return ServeEnd(connection);
  if (status.ok() && connection->state == State::kSilent) {
    status = ServeSilent(connection);
  } else if (status.ok() && connection->state == State::kShakes) {
    status = Shake(connection);
  } else if (status.ok() && connection->state >= State::kGreets) {
    status = Exchange(connection);
  }
  if (!status.ok()) Fail(connection, status);
}

// ---- The path of blocks ----

bool TcpLink::is_open(LinkId link) const {
  const ConnectionPtr connection = Find(link);
  return connection != nullptr && connection->state == State::kOpen;
}

void TcpLink::OnPathReached(LinkId link) { Find(link)->uses_path = true; }

void TcpLink::OnPathFailed(LinkId link, const absl::Status& why) {
  const ConnectionPtr connection = Find(link);
  if (connection->uses_path) {
    connection->path_failure = why;
    connection->path_failed = Instant::Now();
  } else if (!std::exchange(has_warned_, true)) {
    Log(LogLevel::kWarning, absl::StrCat("fabric=", options_.fabric, " peer=", connection->peer,
                                         " not reached, TCP carries its blocks: ", why.message()));
  }
}

BlockBuffer TcpLink::OnPathBlock(LinkId link, const BlockHeader& header, size_t size) {
  return is_open(link) ? events_.OnBlock(link, header, size) : nullptr;
}

void TcpLink::OnPathBlockReceived(LinkId link, const BlockHeader& header) {
  if (is_open(link)) events_.OnBlockReceived(link, header);
}

void TcpLink::OnPathBlockSent(LinkId link, size_t size) {
  if (is_open(link)) events_.OnBlockSent(link, size);
}

// A peer that has ended breaks its path as well, which says nothing of other peers. So the path is
// to blame only if the connection lives longer.
absl::Status TcpLink::CheckPath(const Connection& connection, Instant now) {
  if (connection.path_failure.ok() || now - connection.path_failed < kLinger) {
    return absl::OkStatus();
  }
  if (std::exchange(has_path_, false)) {
    Log(LogLevel::kWarning, absl::StrCat("fabric=", options_.fabric, " peer=", connection.peer,
                                         " failed, TCP carries blocks from now on: ",
                                         connection.path_failure.message()));
  }
  return connection.path_failure;
}

bool TcpLink::Progress() {
  const Instant now = Instant::Now();
  if (next_tick_ <= now || now + 2 * tick_ < next_tick_) {
    next_tick_ = now + tick_;
    Tick(now);
  }
  // A Wake counts, so that the caller does not wait after it.
  bool is_any = io_.poll() > 0;
  is_any = (path_ != nullptr && path_->Progress()) || is_any;
  std::deque<LinkId> ready;
  ready.swap(ready_);
  is_any = is_any || !ready.empty();
  int num_shakes = 0;
  for (const LinkId link : ready) {
    const ConnectionPtr connection = Find(link);
    if (connection == nullptr) continue;
    connection->is_ready = false;
    const bool is_shake = connection->is_new() && connection->state != State::kConnects;
    if (is_shake && ++num_shakes > kShakesPerTurn) {
      SetReady(connection.get());
    } else {
      Serve(connection.get());
    }
  }
  // Asking a socket costs less than watching it, as long as there is an answer.
  std::vector<LinkId> unwatched;
  unwatched.swap(unwatched_);
  for (const LinkId link : unwatched) {
    const ConnectionPtr connection = Find(link);
    if (connection == nullptr) continue;
    connection->is_unwatched = false;
    Serve(connection.get());
    is_any = is_any || connection->frames->has_received();
  }
  return is_any;
}

absl::Status TcpLink::CheckLimits(Connection* connection, Instant now) {
  const absl::Duration age = now - connection->since;
  const auto late = [&](absl::string_view what) {
    return absl::UnavailableError(
        absl::StrCat(what, " for ", absl::FormatDuration(options_.timeout)));
  };
  if (connection->state == State::kOpen) {
    const Instant heard = connection->frames->heard();
    // Silence is measured in ticks as well as by the clock, so that a process that was stopped does
    // not give up its peers.
    if (std::exchange(connection->heard, heard) != heard) connection->num_silent_ticks = 0;
    const bool is_silent = ++connection->num_silent_ticks * tick_ >= options_.timeout &&
                           now - heard >= options_.timeout;
    if (is_silent) return late("it has been silent");
    RETURN_IF_ERROR(connection->frames->CheckDeadlines(now));
    RETURN_IF_ERROR(CheckPath(*connection, now));
    if (now < connection->next_beat) return absl::OkStatus();
    connection->next_beat = now + std::min(options_.timeout / 8, kMaxBetweenBeats);
    SetReady(connection);
    return connection->frames->SendBeat();
  }
  if (age <= options_.timeout) return absl::OkStatus();
  if (connection->state == State::kConnects) return late("it could not be reached");
  return late(connection->is_new() ? "it did not complete the handshake" : "it sent no greeting");
}

void TcpLink::Tick(Instant now) {
  refusals_left_ = kRefusalsPerTick;
  hellos_left_ =
      std::max<int>(1, static_cast<int>(kHellosPerSecond * absl::ToDoubleSeconds(tick_)));
  std::vector<ConnectionPtr> all;
  for (const auto& [link, connection] : connections_) all.push_back(connection);
  for (const ConnectionPtr& connection : all) {
    if (connection->state == State::kEnds) {
      if (now - connection->since > kLinger) connections_.erase(connection->link);
      continue;
    }
    if (connection->state == State::kSilent) SetReady(connection.get());
    const absl::Status status = CheckLimits(connection.get(), now);
    if (!status.ok()) Fail(connection.get(), status);
  }
  if (acceptor_.is_open()) AwaitStrangers();
}

void TcpLink::Wait(absl::Duration at_most) {
  if (!ready_.empty()) return;
  for (const LinkId link : unwatched_) {
    const ConnectionPtr connection = Find(link);
    if (connection == nullptr) continue;
    connection->is_unwatched = false;
    Watch(connection.get(), /*to_write=*/false);
  }
  unwatched_.clear();
  if (path_ != nullptr) {
    if (!path_->Arm()) return;
    if (!std::exchange(waits_for_path_, true)) {
      path_descriptor_.async_wait(net::posix::stream_descriptor::wait_read,
                                  [this](const error_code&) { waits_for_path_ = false; });
    }
  }
  const bool has_deadlines = !connections_.empty() || !is_accepting_;
  if (has_deadlines) at_most = std::min(at_most, tick_);
  if (at_most == absl::InfiniteDuration()) {
    io_.run_one();
  } else {
    io_.run_one_for(absl::ToChronoMicroseconds(at_most));
  }
}

absl::StatusOr<std::unique_ptr<Link>> Link::Open(const LinkOptions& options, LinkEvents* events) {
  auto link = std::make_unique<TcpLink>(options, events);
  RETURN_IF_ERROR(link->Start());
  return link;
}

}  // namespace tandem
