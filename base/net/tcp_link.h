#ifndef TANDEM_BASE_NET_TCP_LINK_H_
#define TANDEM_BASE_NET_TCP_LINK_H_

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/guard.h"
#include "base/hash_map.h"
#include "base/instant.h"
#include "base/net/asio.h"
#include "base/net/block_path.h"
#include "base/net/frame_channel.h"
#include "base/net/link.h"
#include "base/net/sealed_stream.h"
#include "base/net/secret.h"
#include "base/net/socket_stream.h"
#include "base/net/tls_handshake.h"

namespace tandem {

// The implementation of Link.
class TcpLink final : public Link, private BlockPathEvents {
 public:
  TcpLink(const LinkOptions& options, LinkEvents* events)
      : options_(options),
        events_(*events),
        tick_(std::min(options.timeout / 8, absl::Milliseconds(200))),
        work_(io_.get_executor()) {}
  ~TcpLink() override;

  absl::Status Start();
  absl::Status Listen();

  Address address() const override { return address_; }
  LinkId Connect(const Address& address, absl::string_view scope) override;
  void Admit(LinkId link) override;
  void SendMessage(LinkId link, absl::string_view bytes) override;
  void SendBlock(LinkId link, const BlockHeader& header, absl::Span<const std::byte> bytes,
                 std::shared_ptr<const void> owner) override;
  void Close(LinkId link, const absl::Status& why) override;
  bool is_closing() const override;
  bool Progress() override;
  void Wait(absl::Duration at_most) override;
  void Wake() override {
    Attempt("waking a link", [this] { net::post(io_, [] {}); });
  }

 private:
  using tcp = net::ip::tcp;
  static constexpr int kMaxOpen = 256;
  enum class State { kConnects, kSilent, kShakes, kGreets, kOpen, kEnds };
  struct Connection final : FrameEvents {
    Connection(TcpLink* owner, LinkId link, tcp::socket taken)
        : owner(*owner), link(link), socket(std::move(taken)) {}
    ~Connection() override {
      if (owner.path_ != nullptr) owner.path_->Drop(link);
    }

    void OnMessage(absl::Span<const std::byte> bytes) override {
      owner.events_.OnMessage(link, bytes);
    }
    BlockBuffer OnBlock(const BlockHeader& header, size_t size) override {
      return owner.events_.OnBlock(link, header, size);
    }
    void OnBlockReceived(const BlockHeader& header) override {
      owner.events_.OnBlockReceived(link, header);
    }
    void OnBlockSent(size_t size) override { owner.events_.OnBlockSent(link, size); }
    void OnPath(uint64_t token, absl::string_view address) override {
      if (owner.has_path_) owner.path_->Reach(link, address, token);
    }

    bool is_new() const { return state < State::kGreets; }

    TcpLink& owner;
    const LinkId link;
    tcp::socket socket;
    SocketStream wire{&socket};
    std::unique_ptr<TlsHandshake> tls;     // until it is complete
    std::unique_ptr<SealedStream> sealed;  // from then on
    std::unique_ptr<FrameChannel> frames;
    std::string peer;
    std::string site;  // its address, or its network; empty if this side connects
    PresharedKey key;  // if this side connects
    State state = State::kConnects;
    Instant since = Instant::Now();  // of this state
    Instant heard;                   // the peer, when last looked at
    int num_silent_ticks = 0;
    Instant next_beat;
    bool is_ready = false;      // in ready_
    bool is_unwatched = false;  // in unwatched_
    bool waits_to_read = false;
    bool waits_to_write = false;
    bool has_shut_down = false;
    absl::Status failure;  // of a call of the user
    bool uses_path = false;
    absl::Status path_failure;
    Instant path_failed;  // when
  };
  using ConnectionPtr = std::shared_ptr<Connection>;

  ConnectionPtr Find(LinkId link) const;
  ConnectionPtr Add(tcp::socket socket, const Address& peer);
  void Enter(Connection* connection, State state);
  void SetReady(Connection* connection);
  void Watch(Connection* connection, bool to_write);
  void AwaitStrangers();
  void AcceptAll();
  void MakeWay(const std::string& site);
  void Serve(Connection* connection);
  absl::Status ServeSilent(Connection* connection);
  absl::Status Shake(Connection* connection);
  absl::Status Exchange(Connection* connection);
  void ServeEnd(Connection* connection);
  void Fail(Connection* connection, const absl::Status& why);
  void OnPathReached(LinkId link) override;
  void OnPathFailed(LinkId link, const absl::Status& why) override;
  BlockBuffer OnPathBlock(LinkId link, const BlockHeader& header, size_t size) override;
  void OnPathBlockReceived(LinkId link, const BlockHeader& header) override;
  void OnPathBlockSent(LinkId link, size_t size) override;
  bool is_open(LinkId link) const;
  absl::Status CheckPath(const Connection& connection, Instant now);
  void Tick(Instant now);
  absl::Status CheckLimits(Connection* connection, Instant now);

  const LinkOptions options_;
  LinkEvents& events_;
  const absl::Duration tick_;
  std::unique_ptr<TlsSettings> tls_;
  net::io_context io_{1};
  net::executor_work_guard<net::io_context::executor_type> work_;
  tcp::acceptor acceptor_{io_};
  Address address_;
  int spare_descriptor_ = -1;  // closed for a moment to refuse a connection when no other is left
  bool is_accepting_ = false;
  int max_open_ = kMaxOpen;
  int hellos_left_ = 0;    // in this tick
  int refusals_left_ = 0;  // that are reported in this tick
  LinkId last_link_ = 0;
  std::unique_ptr<BlockPath> path_;  // null without a fabric
  bool has_path_ = false;            // and it has not failed
  bool has_warned_ = false;          // of a peer that the path does not reach
  bool waits_for_path_ = false;
  net::posix::stream_descriptor path_descriptor_{io_};
  HashMap<LinkId, ConnectionPtr> connections_;
  std::deque<LinkId> ready_;
  std::vector<LinkId> unwatched_;  // connections that Progress asks for bytes
  Instant next_tick_ = Instant::InfinitePast();
};

}  // namespace tandem

#endif  // TANDEM_BASE_NET_TCP_LINK_H_
