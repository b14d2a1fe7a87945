// A PageLink in two parts: messages are sent over TCP, and pages as active messages of UCX
// (openucx.org). UCX chooses between TCP, copies between processes and RDMA, and uses rendezvous
// for large pages. Its own listener is not used, because it aborts the process when a stranger
// sends it bytes (tcp_sockcm_ep.c of 1.13.1).
#include <dlfcn.h>
#include <ifaddrs.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <ucp/api/ucp.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvtransfer/message_socket.h"
#include "kvtransfer/page_link.h"

namespace tandem {
namespace {

constexpr unsigned kPageId = 0;
constexpr size_t kMaxConnections = 1024;
// Polls of a worker, 1 ms apart, before it is destroyed: UCX 1.13.1 aborts the process if a reply
// to a connecting peer is still unsent then.
constexpr int kLastPolls = 10;

// Returns the network interface of a loopback address; empty if not found.
std::string InterfaceOf(const Address& address) {
  std::string name;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return name;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != address.storage.ss_family) continue;
    Address own;
    own.size = address.size;
    std::memcpy(&own.storage, one->ifa_addr, own.size);
    if (IsLoopback(own) && IsLoopback(address)) name = one->ifa_name;
  }
  freeifaddrs(all);
  return name;
}

// Redirects the output of UCX to the log, at debug level: important failures are also errors of a
// call.
ucs_log_func_rc_t LogLine(const char*, unsigned, const char*, ucs_log_level_t level,
                          const ucs_log_component_config_t*, const char* format, va_list values) {
  if (level <= UCS_LOG_LEVEL_WARN) {
    std::array<char, 512> line;
    std::vsnprintf(line.data(), line.size(), format, values);
    Log(LogLevel::kDebug, absl::StrCat("kv transfer: ucx: ", line.data()));
  }
  return UCS_LOG_FUNC_RC_STOP;
}

// A shared library of UCX. Records the first failure in `status`.
class LoadedFile {
 public:
  LoadedFile(const char* name, absl::Status* status)
      : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)), status_(status) {
    if (handle_ == nullptr) Fail();
  }
  template <typename Pointer>
  Pointer Find(const char* name) {
    void* const address = handle_ == nullptr ? nullptr : dlsym(handle_, name);
    if (handle_ != nullptr && address == nullptr) Fail();
    return reinterpret_cast<Pointer>(address);
  }

 private:
  void Fail() {
    const char* why = dlerror();
    status_->Update(absl::UnavailableError(
        absl::StrCat("kv_transfer: UCX cannot be loaded: ", why == nullptr ? "" : why)));
  }

  void* const handle_;  // never closed
  absl::Status* const status_;
};

// UCX as a shared library that is loaded when the first link opens. Loading it takes over signals,
// patches the C library and calibrates a clock; programs without transfers avoid that. They also
// start if UCX is not installed.
struct UcxLibrary {
  // Loads it once. Returns UNAVAILABLE that names `kv_transfer` and the file if that fails.
  static absl::StatusOr<const UcxLibrary*> Load();

  absl::Status status;
  LoadedFile ucp{"libucp.so.0", &status};
  LoadedFile ucs{"libucs.so.0", &status};

#define TANDEM_UCX_FUNCTION(file, name) decltype(&::name) name = file.Find<decltype(&::name)>(#name)
  TANDEM_UCX_FUNCTION(ucp, ucp_am_recv_data_nbx);
  TANDEM_UCX_FUNCTION(ucp, ucp_am_send_nbx);
  TANDEM_UCX_FUNCTION(ucp, ucp_cleanup);
  TANDEM_UCX_FUNCTION(ucp, ucp_config_modify);
  TANDEM_UCX_FUNCTION(ucp, ucp_config_read);
  TANDEM_UCX_FUNCTION(ucp, ucp_config_release);
  TANDEM_UCX_FUNCTION(ucp, ucp_ep_close_nbx);
  TANDEM_UCX_FUNCTION(ucp, ucp_ep_create);
  TANDEM_UCX_FUNCTION(ucp, ucp_init_version);
  TANDEM_UCX_FUNCTION(ucp, ucp_request_check_status);
  TANDEM_UCX_FUNCTION(ucp, ucp_request_free);
  TANDEM_UCX_FUNCTION(ucp, ucp_worker_arm);
  TANDEM_UCX_FUNCTION(ucp, ucp_worker_create);
  TANDEM_UCX_FUNCTION(ucp, ucp_worker_destroy);
  TANDEM_UCX_FUNCTION(ucp, ucp_worker_get_address);
  TANDEM_UCX_FUNCTION(ucp, ucp_worker_get_efd);
  TANDEM_UCX_FUNCTION(ucp, ucp_worker_progress);
  TANDEM_UCX_FUNCTION(ucp, ucp_worker_release_address);
  TANDEM_UCX_FUNCTION(ucp, ucp_worker_set_am_recv_handler);
  TANDEM_UCX_FUNCTION(ucs, ucs_debug_disable_signal);
  TANDEM_UCX_FUNCTION(ucs, ucs_log_push_handler);
  TANDEM_UCX_FUNCTION(ucs, ucs_status_string);
#undef TANDEM_UCX_FUNCTION
};

absl::StatusOr<const UcxLibrary*> UcxLibrary::Load() {
  static const UcxLibrary& library = []() -> const UcxLibrary& {
    // Without this setting UCX patches mmap, madvise and similar functions, to track memory that it
    // has registered, and hooks the end of every thread. It reads the setting while it is loaded.
    setenv("UCX_MEM_EVENTS", "n", /*overwrite=*/0);
    const auto* const loaded = new UcxLibrary;
    if (!loaded->status.ok()) return *loaded;
    loaded->ucs_log_push_handler(&LogLine);
    // Loading it installs signal handlers that print and replace ours.
    for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) {
      loaded->ucs_debug_disable_signal(signal);
    }
    return *loaded;
  }();
  if (!library.status.ok()) return library.status;
  return &library;
}

class UcxLink final : public PageLink {
 public:
  explicit UcxLink(LinkEvents* events) : events_(events) {}
  ~UcxLink() override;

  absl::Status Listen(const Address& address);

  int port() const override { return port_; }
  const std::string& page_address() const override { return page_address_; }
  LinkId Connect(const Address& address) override;
  void SendMessage(LinkId link, std::string bytes) override;
  void SetPageAddress(LinkId link, std::string address) override;
  void SendPage(LinkId link, uint64_t ask, uint64_t index,
                std::shared_ptr<const OfferedPage> page) override;
  void Close(LinkId link) override;
  bool Progress() override;
  void Wait(absl::Duration at_most) override;
  void Wake() override;

 private:
  struct Connection {
    UcxLink* owner = nullptr;
    LinkId link = 0;
    std::unique_ptr<MessageSocket> socket;
    std::string page_address;
    ucp_ep_h endpoint = nullptr;  // created for the first page
  };
  // A page that UCX reads until it reports the page as sent.
  struct Sending {
    UcxLink* owner = nullptr;
    LinkId link = 0;
    PageHeader header;
    std::shared_ptr<const OfferedPage> page;
  };
  // A buffer that UCX writes until it reports the page as received.
  struct Receiving {
    UcxLink* owner = nullptr;
    PageHeader header;
    PageBuffer buffer;
  };

  // Callbacks for UCX. They must not throw.
  static void TakeFailure(void* connection, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t TakePage(void* self, const void* header, size_t header_size, void* data,
                               size_t size, const ucp_am_recv_param_t* param);
  static void TakeSent(void* request, ucs_status_t status, void* sending);
  static void TakeReceived(void* request, ucs_status_t status, size_t size, void* receiving);

  absl::Status StartUcx(const Address& address);
  absl::Status UcxError(absl::string_view what, ucs_status_t status) const;
  Connection* Add(std::unique_ptr<MessageSocket> socket);
  bool EnsureEndpoint(Connection* connection);
  ucs_status_t ReceivePage(const void* header, size_t header_size, void* data, size_t size,
                           const ucp_am_recv_param_t& param);
  void Sent(const Sending& sending, ucs_status_t status);
  void Received(const Receiving& receiving, ucs_status_t status);
  void Fail(LinkId link, absl::string_view reason);
  void SweepClosing();
  int Poll(int milliseconds);
  void AcceptAll();
  void Serve(Connection* connection, int happened);

  LinkEvents* const events_;
  const UcxLibrary* ucx_ = nullptr;  // null until StartUcx
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string page_address_;
  int listener_ = -1;
  int port_ = 0;
  int worker_fd_ = -1;
  int wake_fd_ = -1;
  LinkId last_link_ = 0;
  absl::flat_hash_map<LinkId, std::unique_ptr<Connection>> connections_;
  std::vector<pollfd> polled_;  // the worker, wake_fd_, the listener, then those of polled_links_
  std::vector<LinkId> polled_links_;
  // Events that are delivered after ucp_worker_progress has returned.
  std::deque<std::function<void()>> happened_;
  // Connections whose endpoints are being closed. UCX refers to them until that is done.
  std::vector<std::pair<std::unique_ptr<Connection>, ucs_status_ptr_t>> closing_;
};

// ---- Beginning and end ----

absl::Status UcxLink::Listen(const Address& address) {
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) return absl::UnavailableError("kv_transfer: cannot create an eventfd");
  ASSIGN_OR_RETURN(listener_, ListenAt(address));
  port_ = PortOf(LocalAddress(listener_));
  return StartUcx(address);
}

absl::Status UcxLink::UcxError(absl::string_view what, ucs_status_t status) const {
  return absl::UnavailableError(
      absl::StrCat("kv_transfer: ", what, ": ", ucx_->ucs_status_string(status)));
}

absl::Status UcxLink::StartUcx(const Address& address) {
  ASSIGN_OR_RETURN(ucx_, UcxLibrary::Load());
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucx_->ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return UcxError("UCX cannot read its configuration", status);
  // UCX listens with ports of its own on every network. A loopback transfer needs only one network.
  if (IsLoopback(address)) {
    ucx_->ucp_config_modify(config, "NET_DEVICES", InterfaceOf(address).c_str());
  }
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  status = ucx_->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  ucx_->ucp_config_release(config);
  if (status != UCS_OK) return UcxError("UCX cannot start", status);
  ucp_worker_params_t worker_params = {};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  status = ucx_->ucp_worker_create(context_, &worker_params, &worker_);
  if (status != UCS_OK) return UcxError("UCX finds no network", status);
  status = ucx_->ucp_worker_get_efd(worker_, &worker_fd_);
  if (status != UCS_OK) return UcxError("UCX has no descriptor to wait on", status);
  ucp_am_handler_param_t handler = {};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kPageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &TakePage;
  handler.arg = this;
  status = ucx_->ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return UcxError("UCX refuses the page handler", status);
  ucp_address_t* own = nullptr;
  size_t own_size = 0;
  status = ucx_->ucp_worker_get_address(worker_, &own, &own_size);
  if (status != UCS_OK) return UcxError("UCX has no address", status);
  page_address_.assign(reinterpret_cast<const char*>(own), own_size);
  ucx_->ucp_worker_release_address(worker_, own);
  return absl::OkStatus();
}

UcxLink::~UcxLink() {
  if (listener_ >= 0) close(listener_);
  while (!connections_.empty()) Close(connections_.begin()->first);
  while (!closing_.empty()) {
    ucx_->ucp_worker_progress(worker_);
    SweepClosing();
  }
  for (int i = 0; worker_ != nullptr && i < kLastPolls; ++i) {
    ucx_->ucp_worker_progress(worker_);
    poll(nullptr, 0, 1);
  }
  happened_.clear();
  if (worker_ != nullptr) ucx_->ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucx_->ucp_cleanup(context_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

// ---- Connections and messages ----

UcxLink::Connection* UcxLink::Add(std::unique_ptr<MessageSocket> socket) {
  const LinkId link = ++last_link_;
  auto connection = std::make_unique<Connection>();
  connection->owner = this;
  connection->link = link;
  connection->socket = std::move(socket);
  return (connections_[link] = std::move(connection)).get();
}

LinkId UcxLink::Connect(const Address& address) {
  auto socket = std::make_unique<MessageSocket>();
  const absl::Status status = socket->Connect(address);
  const LinkId link = Add(std::move(socket))->link;
  if (!status.ok()) Fail(link, status.message());
  return link;
}

void UcxLink::SendMessage(LinkId link, std::string bytes) {
  const auto place = connections_.find(link);
  if (place == connections_.end()) return;
  const absl::Status status = place->second->socket->Send(bytes);
  if (!status.ok()) Fail(link, status.message());
}

void UcxLink::AcceptAll() {
  for (;;) {
    Address from;
    const int file = Accept(listener_, &from);
    if (file < 0) return;
    auto socket = std::make_unique<MessageSocket>(file);
    if (connections_.size() >= kMaxConnections) continue;
    events_->OnAccepted(Add(std::move(socket))->link, ToString(from));
  }
}

void UcxLink::Serve(Connection* connection, int happened) {
  const LinkId link = connection->link;
  absl::Status status;
  if ((happened & POLLOUT) != 0) status = connection->socket->Flush();
  std::vector<std::string> messages;
  if ((happened & ~POLLOUT) != 0) status.Update(connection->socket->Receive(&messages));
  for (const std::string& message : messages) {
    if (!connections_.contains(link)) return;
    events_->OnMessage(link, {reinterpret_cast<const std::byte*>(message.data()), message.size()});
  }
  if (!status.ok()) Fail(link, status.message());
}

void UcxLink::Fail(LinkId link, absl::string_view reason) {
  happened_.push_back([this, link, reason = std::string(reason)] {
    if (!connections_.contains(link)) return;
    Close(link);
    events_->OnClosed(link, reason);
  });
}

void UcxLink::Close(LinkId link) {
  const auto place = connections_.find(link);
  if (place == connections_.end()) return;
  std::unique_ptr<Connection> connection = std::move(place->second);
  connections_.erase(place);
  connection->socket = nullptr;
  if (connection->endpoint == nullptr) return;
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* const request = ucx_->ucp_ep_close_nbx(connection->endpoint, &param);
  if (UCS_PTR_IS_PTR(request)) closing_.emplace_back(std::move(connection), request);
}

void UcxLink::SweepClosing() {
  std::erase_if(closing_, [this](const auto& closing) {
    if (ucx_->ucp_request_check_status(closing.second) == UCS_INPROGRESS) return false;
    ucx_->ucp_request_free(closing.second);
    return true;
  });
}

// ---- Pages ----

void UcxLink::SetPageAddress(LinkId link, std::string address) {
  const auto place = connections_.find(link);
  if (place != connections_.end()) place->second->page_address = std::move(address);
}

// Returns false, and fails the connection, if UCX cannot create an endpoint for the peer.
bool UcxLink::EnsureEndpoint(Connection* connection) {
  if (connection->endpoint != nullptr) return true;
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(connection->page_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = &TakeFailure, .arg = connection};
  const ucs_status_t status = ucx_->ucp_ep_create(worker_, &params, &connection->endpoint);
  if (status == UCS_OK) return true;
  connection->endpoint = nullptr;
  Fail(connection->link, absl::StrCat("UCX: ", ucx_->ucs_status_string(status)));
  return false;
}

void UcxLink::TakeFailure(void* connection, ucp_ep_h, ucs_status_t status) {
  auto* const failed = static_cast<Connection*>(connection);
  failed->owner->Fail(failed->link, failed->owner->ucx_->ucs_status_string(status));
}

void UcxLink::SendPage(LinkId link, uint64_t ask, uint64_t index,
                       std::shared_ptr<const OfferedPage> page) {
  const auto place = connections_.find(link);
  if (place == connections_.end() || !EnsureEndpoint(place->second.get())) return;
  auto sending = std::make_unique<Sending>();
  sending->owner = this;
  sending->link = link;
  sending->header = {.ask = ask, .index = index, .checksum = page->checksum};
  sending->page = std::move(page);
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &TakeSent;
  param.user_data = sending.get();
  void* const request =
      ucx_->ucp_am_send_nbx(place->second->endpoint, kPageId, &sending->header, sizeof(PageHeader),
                            sending->page->bytes.data(), sending->page->bytes.size(), &param);
  if (UCS_PTR_IS_PTR(request)) {
    static_cast<void>(sending.release());  // TakeSent deletes it
  } else {
    Sent(*sending, UCS_PTR_RAW_STATUS(request));
  }
}

void UcxLink::TakeSent(void* request, ucs_status_t status, void* sending) {
  const std::unique_ptr<Sending> sent(static_cast<Sending*>(sending));
  sent->owner->ucx_->ucp_request_free(request);
  sent->owner->Sent(*sent, status);
}

void UcxLink::Sent(const Sending& sending, ucs_status_t status) {
  if (status != UCS_OK) return Fail(sending.link, ucx_->ucs_status_string(status));
  happened_.push_back([this, link = sending.link, size = sending.page->bytes.size()] {
    if (connections_.contains(link)) events_->OnPageSent(link, size);
  });
}

ucs_status_t UcxLink::TakePage(void* self, const void* header, size_t header_size, void* data,
                               size_t size, const ucp_am_recv_param_t* param) {
  return static_cast<UcxLink*>(self)->ReceivePage(header, header_size, data, size, *param);
}

ucs_status_t UcxLink::ReceivePage(const void* header, size_t header_size, void* data, size_t size,
                                  const ucp_am_recv_param_t& param) {
  if (header_size != sizeof(PageHeader)) return UCS_OK;
  auto receiving = std::make_unique<Receiving>();
  receiving->owner = this;
  std::memcpy(&receiving->header, header, header_size);
  receiving->buffer = events_->OnPage(receiving->header, size);
  if (receiving->buffer == nullptr) return UCS_OK;
  if ((param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
    std::memcpy(receiving->buffer->data(), data, size);
    Received(*receiving, UCS_OK);
    return UCS_OK;
  }
  ucp_request_param_t receive = {};
  receive.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  receive.cb.recv_am = &TakeReceived;
  receive.user_data = receiving.get();
  void* const request =
      ucx_->ucp_am_recv_data_nbx(worker_, data, receiving->buffer->data(), size, &receive);
  if (UCS_PTR_IS_PTR(request)) {
    static_cast<void>(receiving.release());  // TakeReceived deletes it
  } else {
    Received(*receiving, UCS_PTR_RAW_STATUS(request));
  }
  return UCS_INPROGRESS;
}

void UcxLink::TakeReceived(void* request, ucs_status_t status, size_t, void* receiving) {
  const std::unique_ptr<Receiving> received(static_cast<Receiving*>(receiving));
  received->owner->ucx_->ucp_request_free(request);
  received->owner->Received(*received, status);
}

// A page that did not arrive completely is ignored: the connection to its sender fails as well.
void UcxLink::Received(const Receiving& receiving, ucs_status_t status) {
  if (status != UCS_OK) return;
  happened_.push_back([this, header = receiving.header] { events_->OnPageReceived(header); });
}

// ---- The thread's loop ----

int UcxLink::Poll(int milliseconds) {
  polled_ = {{worker_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}, {listener_, POLLIN, 0}};
  polled_links_.clear();
  for (const auto& [link, connection] : connections_) {
    const short wanted = POLLIN | (connection->socket->has_unsent() ? POLLOUT : 0);
    polled_.push_back({connection->socket->file(), wanted, 0});
    polled_links_.push_back(link);
  }
  return poll(polled_.data(), polled_.size(), milliseconds);
}

bool UcxLink::Progress() {
  bool is_any = ucx_->ucp_worker_progress(worker_) != 0;
  SweepClosing();
  if (Poll(0) > 0) {
    uint64_t count = 0;
    if (polled_[1].revents != 0) is_any = read(wake_fd_, &count, sizeof(count)) > 0 || is_any;
    for (size_t i = 0; i < polled_links_.size(); ++i) {
      const int happened = polled_[3 + i].revents;
      const auto place = connections_.find(polled_links_[i]);
      if (happened == 0 || place == connections_.end()) continue;
      Serve(place->second.get(), happened);
      is_any = true;
    }
    if (polled_[2].revents != 0) AcceptAll();
  }
  while (!happened_.empty()) {
    is_any = true;
    const std::function<void()> next = std::move(happened_.front());
    happened_.pop_front();
    next();
  }
  return is_any;
}

void UcxLink::Wait(absl::Duration at_most) {
  if (ucx_->ucp_worker_arm(worker_) != UCS_OK) return;  // there are new events
  Poll(at_most == absl::InfiniteDuration()
           ? -1
           : static_cast<int>(absl::ToInt64Milliseconds(at_most)) + 1);
}

void UcxLink::Wake() {
  const uint64_t one = 1;
  while (write(wake_fd_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageLink>> PageLink::Open(const Address& address,
                                                         LinkEvents* events) {
  auto link = std::make_unique<UcxLink>(events);
  RETURN_IF_ERROR(link->Listen(address));
  return link;
}

}  // namespace tandem
