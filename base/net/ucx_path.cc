// A BlockPath of active messages of UCX (openucx.org), which uses rendezvous for large blocks.
#include <dlfcn.h>
#include <poll.h>
#include <ucp/api/ucp.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/hash_map.h"
#include "base/instant.h"
#include "base/log.h"
#include "base/net/block_path.h"
#include "base/net/secret.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

constexpr unsigned kBlockId = 0;
constexpr unsigned kGreetingId = 1;
// Polls of a worker, 1 ms apart, before it is destroyed: UCX 1.13.1 aborts the process if a reply
// to a connecting peer is still unsent then.
constexpr int kLastPolls = 10;
// It also aborts if an endpoint or a worker is destroyed while it connects. So a dropped endpoint
// waits until it has connected or failed. The end of a path waits this long; after that it leaves
// the worker in memory.
constexpr absl::Duration kMaxConnecting = absl::Seconds(1);

// What precedes a block, in the byte order of both machines, which is little-endian.
struct PathHeader {
  uint64_t token = 0;
  BlockHeader block;
};

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
    status_->Update(
        absl::UnavailableError(absl::StrCat("UCX cannot be loaded: ", why == nullptr ? "" : why)));
  }

  void* const handle_;  // never closed
  absl::Status* const status_;
};

// UCX as a shared library that is loaded when the first path opens. Loading it takes over signals,
// patches the C library and calibrates a clock; programs without paths avoid that. They also start
// if UCX is not installed.
struct UcxLibrary {
  // Loads it once.
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
  TANDEM_UCX_FUNCTION(ucp, ucp_ep_flush_nbx);
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

class UcxPath final : public BlockPath {
 public:
  explicit UcxPath(BlockPathEvents* events) : events_(*events) {}
  ~UcxPath() override;

  absl::Status Start(const std::string& transports);

  const std::string& address() const override { return address_; }
  uint64_t Expect(LinkId link) override;
  void Reach(LinkId link, absl::string_view address, uint64_t token) override;
  void SendBlock(LinkId link, const BlockHeader& header, absl::Span<const std::byte> bytes,
                 std::shared_ptr<const void> owner) override;
  void Drop(LinkId link) override;
  bool Progress() override;
  int descriptor() const override { return descriptor_; }
  bool Arm() override { return ucx_->ucp_worker_arm(worker_) == UCS_OK; }

 private:
  // A link. UCX refers to it while it has an endpoint.
  struct Peer {
    UcxPath* owner = nullptr;
    LinkId link = 0;
    uint64_t own_token = 0;
    uint64_t token = 0;  // the peer's
    ucp_ep_h endpoint = nullptr;
    ucs_status_ptr_t connecting = nullptr;  // until the peer has our greeting
    bool is_heard = false;                  // its greeting has come
    bool is_reached = false;
    bool has_failed = false;
    ucs_status_ptr_t closing = nullptr;
  };
  // A block that UCX reads until it reports the block as sent.
  struct Sending {
    UcxPath* owner = nullptr;
    LinkId link = 0;
    PathHeader header;
    absl::Span<const std::byte> bytes;
    std::shared_ptr<const void> bytes_owner;
  };
  // A buffer that UCX writes until it reports the block as received.
  struct Receiving {
    UcxPath* owner = nullptr;
    LinkId link = 0;
    BlockHeader header;
    BlockBuffer buffer;
  };

  // Callbacks for UCX. They must not throw.
  static void TakeFailure(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t TakeGreeting(void* self, const void* header, size_t header_size, void* data,
                                   size_t size, const ucp_am_recv_param_t* param);
  static ucs_status_t TakeBlock(void* self, const void* header, size_t header_size, void* data,
                                size_t size, const ucp_am_recv_param_t* param);
  static void TakeSent(void* request, ucs_status_t status, void* sending);
  static void TakeReceived(void* request, ucs_status_t status, size_t size, void* receiving);

  ucs_status_t SetHandler(unsigned id, ucp_am_recv_callback_t handler);
  Peer* FindExpected(uint64_t token);
  void Greet(Peer* peer);
  absl::Status Error(absl::string_view what, ucs_status_t status) const;
  ucs_status_t ReceiveBlock(const void* header, size_t header_size, void* data, size_t size,
                            const ucp_am_recv_param_t& param);
  void Sent(const Sending& sending, ucs_status_t status);
  void Received(const Receiving& receiving, ucs_status_t status);
  void Fail(Peer* peer, ucs_status_t status);
  void FailLink(LinkId link, ucs_status_t status);
  bool IsSettled(Peer* peer);
  void CheckReached();
  void SweepDropped();

  BlockPathEvents& events_;
  const UcxLibrary* ucx_ = nullptr;  // null until Start
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::string address_;
  HashMap<LinkId, std::unique_ptr<Peer>> peers_;
  HashMap<uint64_t, Peer*> tokens_;             // keyed by own_token
  std::vector<std::unique_ptr<Peer>> dropped_;  // their endpoints are not closed yet
  // Events that are delivered after ucp_worker_progress has returned.
  std::deque<std::function<void()>> happened_;
};

// ---- Beginning and end ----

absl::Status UcxPath::Error(absl::string_view what, ucs_status_t status) const {
  return absl::UnavailableError(absl::StrCat(what, ": ", ucx_->ucs_status_string(status)));
}

absl::Status UcxPath::Start(const std::string& transports) {
  ASSIGN_OR_RETURN(ucx_, UcxLibrary::Load());
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucx_->ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return Error("UCX cannot read its configuration", status);
  status = ucx_->ucp_config_modify(config, "TLS", transports.c_str());
  // UCX 1.13.1 frees a message whose pieces are still read from our memory if the peer ends, and
  // aborts. Small blocks are therefore copied; large ones travel by rendezvous, without copies.
  if (status == UCS_OK) status = ucx_->ucp_config_modify(config, "ZCOPY_THRESH", "inf");
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (status == UCS_OK) {
    status = ucx_->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  }
  ucx_->ucp_config_release(config);
  const std::string no_device = absl::StrCat("UCX finds no device for ", transports);
  if (status != UCS_OK) return Error(no_device, status);
  ucp_worker_params_t worker_params = {};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  status = ucx_->ucp_worker_create(context_, &worker_params, &worker_);
  if (status != UCS_OK) return Error(no_device, status);
  status = ucx_->ucp_worker_get_efd(worker_, &descriptor_);
  if (status != UCS_OK) return Error("UCX has no descriptor to wait on", status);
  status = SetHandler(kGreetingId, &TakeGreeting);
  if (status == UCS_OK) status = SetHandler(kBlockId, &TakeBlock);
  if (status != UCS_OK) return Error("UCX refuses a handler", status);
  ucp_address_t* own = nullptr;
  size_t own_size = 0;
  status = ucx_->ucp_worker_get_address(worker_, &own, &own_size);
  if (status != UCS_OK) return Error("UCX has no address", status);
  address_.assign(reinterpret_cast<const char*>(own), own_size);
  ucx_->ucp_worker_release_address(worker_, own);
  if (own_size <= FrameChannel::kMaxPathBytes) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("UCX has an address of ", own_size,
                                             " bytes, more than ", FrameChannel::kMaxPathBytes,
                                             "; UCX_NET_DEVICES can name fewer devices"));
}

ucs_status_t UcxPath::SetHandler(unsigned id, ucp_am_recv_callback_t handler) {
  ucp_am_handler_param_t param = {};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                     UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = id;
  param.flags = UCP_AM_FLAG_WHOLE_MSG;
  param.cb = handler;
  param.arg = this;
  return ucx_->ucp_worker_set_am_recv_handler(worker_, &param);
}

UcxPath::~UcxPath() {
  while (!peers_.empty()) Drop(peers_.begin()->first);
  const Instant start = Instant::Now();
  while (!dropped_.empty() && Instant::Now() - start < kMaxConnecting) {
    ucx_->ucp_worker_progress(worker_);
    SweepDropped();
  }
  if (!dropped_.empty()) return;
  for (int i = 0; worker_ != nullptr && i < kLastPolls; ++i) {
    ucx_->ucp_worker_progress(worker_);
    poll(nullptr, 0, 1);
  }
  happened_.clear();
  if (worker_ != nullptr) ucx_->ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucx_->ucp_cleanup(context_);
}

// ---- Peers ----

uint64_t UcxPath::Expect(LinkId link) {
  auto peer = std::make_unique<Peer>();
  peer->owner = this;
  peer->link = link;
  static_cast<void>(absl::SimpleHexAtoi(NewRandomName().substr(0, 16), &peer->own_token));
  const uint64_t token = peer->own_token;
  tokens_[token] = peer.get();
  peers_[link] = std::move(peer);
  return token;
}

UcxPath::Peer* UcxPath::FindExpected(uint64_t token) {
  const auto place = tokens_.find(token);
  return place == tokens_.end() ? nullptr : place->second;
}

void UcxPath::Reach(LinkId link, absl::string_view address, uint64_t token) {
  const auto place = peers_.find(link);
  if (place == peers_.end() || place->second->endpoint != nullptr) return;
  Peer* const peer = place->second.get();
  peer->token = token;
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = &TakeFailure, .arg = peer};
  const ucs_status_t status = ucx_->ucp_ep_create(worker_, &params, &peer->endpoint);
  if (status == UCS_OK) return Greet(peer);
  peer->endpoint = nullptr;
  Fail(peer, status);
}

// Sends the peer's token. A greeting travels when its sender's endpoint has connected, so an
// endpoint can be closed once both greetings have come.
void UcxPath::Greet(Peer* peer) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_REPLY;
  void* request = ucx_->ucp_am_send_nbx(peer->endpoint, kGreetingId, &peer->token,
                                        sizeof(peer->token), nullptr, 0, &param);
  if (UCS_PTR_IS_ERR(request)) return Fail(peer, UCS_PTR_STATUS(request));
  if (request != nullptr) ucx_->ucp_request_free(request);  // once it is complete
  param = {};
  request = ucx_->ucp_ep_flush_nbx(peer->endpoint, &param);
  if (UCS_PTR_IS_ERR(request)) return Fail(peer, UCS_PTR_STATUS(request));
  peer->connecting = request;
}

ucs_status_t UcxPath::TakeGreeting(void* self, const void* header, size_t header_size, void*,
                                   size_t, const ucp_am_recv_param_t*) {
  uint64_t token = 0;
  if (header_size != sizeof(token)) return UCS_OK;
  std::memcpy(&token, header, sizeof(token));
  Peer* const peer = static_cast<UcxPath*>(self)->FindExpected(token);
  if (peer != nullptr) peer->is_heard = true;
  return UCS_OK;
}

// Whether an endpoint has connected or failed.
bool UcxPath::IsSettled(Peer* peer) {
  if (peer->has_failed) return true;
  if (peer->connecting != nullptr) {
    const ucs_status_t status = ucx_->ucp_request_check_status(peer->connecting);
    if (status == UCS_INPROGRESS) return false;
    ucx_->ucp_request_free(std::exchange(peer->connecting, nullptr));
    if (status != UCS_OK) Fail(peer, status);
  }
  return peer->has_failed || peer->is_heard;
}

void UcxPath::CheckReached() {
  for (const auto& [link, peer] : peers_) {
    if (peer->endpoint == nullptr || peer->is_reached || !IsSettled(peer.get())) continue;
    if (peer->has_failed) continue;
    peer->is_reached = true;
    happened_.push_back([this, link = link] {
      if (peers_.contains(link)) events_.OnPathReached(link);
    });
  }
}

void UcxPath::Drop(LinkId link) {
  const auto place = peers_.find(link);
  if (place == peers_.end()) return;
  std::unique_ptr<Peer> peer = std::move(place->second);
  peers_.erase(place);
  if (peer->endpoint == nullptr) {
    tokens_.erase(peer->own_token);
  } else {
    dropped_.push_back(std::move(peer));
  }
}

// Closes the endpoints of links that were dropped.
void UcxPath::SweepDropped() {
  std::erase_if(dropped_, [this](const std::unique_ptr<Peer>& peer) {
    if (peer->closing == nullptr) {
      if (!IsSettled(peer.get())) return false;
      ucp_request_param_t param = {};
      param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      param.flags = UCP_EP_CLOSE_FLAG_FORCE;
      void* const request = ucx_->ucp_ep_close_nbx(peer->endpoint, &param);
      if (peer->connecting != nullptr) ucx_->ucp_request_free(peer->connecting);
      if (UCS_PTR_IS_PTR(request)) peer->closing = request;
    }
    if (peer->closing != nullptr) {
      if (ucx_->ucp_request_check_status(peer->closing) == UCS_INPROGRESS) return false;
      ucx_->ucp_request_free(peer->closing);
    }
    tokens_.erase(peer->own_token);
    return true;
  });
}

void UcxPath::TakeFailure(void* peer, ucp_ep_h, ucs_status_t status) {
  auto* const failed = static_cast<Peer*>(peer);
  failed->owner->Fail(failed, status);
}

void UcxPath::Fail(Peer* peer, ucs_status_t status) {
  if (std::exchange(peer->has_failed, true)) return;
  happened_.push_back([this, link = peer->link, status] {
    if (!peers_.contains(link)) return;
    events_.OnPathFailed(
        link, absl::UnavailableError(absl::StrCat("UCX: ", ucx_->ucs_status_string(status))));
  });
}

void UcxPath::FailLink(LinkId link, ucs_status_t status) {
  const auto place = peers_.find(link);
  if (place != peers_.end()) Fail(place->second.get(), status);
}

// ---- Blocks ----

void UcxPath::SendBlock(LinkId link, const BlockHeader& header, absl::Span<const std::byte> bytes,
                        std::shared_ptr<const void> owner) {
  const auto place = peers_.find(link);
  if (place == peers_.end() || place->second->has_failed) return;
  auto sending = std::make_unique<Sending>();
  sending->owner = this;
  sending->link = link;
  sending->header = {.token = place->second->token, .block = header};
  sending->bytes = bytes;
  sending->bytes_owner = std::move(owner);
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &TakeSent;
  param.user_data = sending.get();
  void* const request =
      ucx_->ucp_am_send_nbx(place->second->endpoint, kBlockId, &sending->header, sizeof(PathHeader),
                            bytes.data(), bytes.size(), &param);
  if (UCS_PTR_IS_PTR(request)) {
    static_cast<void>(sending.release());  // TakeSent deletes it
  } else {
    Sent(*sending, UCS_PTR_RAW_STATUS(request));
  }
}

void UcxPath::TakeSent(void* request, ucs_status_t status, void* sending) {
  const std::unique_ptr<Sending> sent(static_cast<Sending*>(sending));
  sent->owner->ucx_->ucp_request_free(request);
  sent->owner->Sent(*sent, status);
}

void UcxPath::Sent(const Sending& sending, ucs_status_t status) {
  if (status != UCS_OK) return FailLink(sending.link, status);
  happened_.push_back([this, link = sending.link, size = sending.bytes.size()] {
    if (peers_.contains(link)) events_.OnPathBlockSent(link, size);
  });
}

ucs_status_t UcxPath::TakeBlock(void* self, const void* header, size_t header_size, void* data,
                                size_t size, const ucp_am_recv_param_t* param) {
  return static_cast<UcxPath*>(self)->ReceiveBlock(header, header_size, data, size, *param);
}

ucs_status_t UcxPath::ReceiveBlock(const void* header, size_t header_size, void* data, size_t size,
                                   const ucp_am_recv_param_t& param) {
  PathHeader path_header;
  if (header_size != sizeof(path_header)) return UCS_OK;
  std::memcpy(&path_header, header, header_size);
  const Peer* const peer = FindExpected(path_header.token);
  if (peer == nullptr || !peers_.contains(peer->link)) return UCS_OK;
  auto receiving = std::make_unique<Receiving>();
  receiving->owner = this;
  receiving->link = peer->link;
  receiving->header = path_header.block;
  receiving->buffer = events_.OnPathBlock(receiving->link, receiving->header, size);
  if (receiving->buffer == nullptr) return UCS_OK;
  receiving->buffer->resize(size);
  if ((param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
    if (size > 0) std::memcpy(receiving->buffer->data(), data, size);
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

void UcxPath::TakeReceived(void* request, ucs_status_t status, size_t, void* receiving) {
  const std::unique_ptr<Receiving> received(static_cast<Receiving*>(receiving));
  received->owner->ucx_->ucp_request_free(request);
  received->owner->Received(*received, status);
}

void UcxPath::Received(const Receiving& receiving, ucs_status_t status) {
  if (status != UCS_OK) return FailLink(receiving.link, status);
  happened_.push_back([this, link = receiving.link, header = receiving.header] {
    if (peers_.contains(link)) events_.OnPathBlockReceived(link, header);
  });
}

bool UcxPath::Progress() {
  bool is_any = ucx_->ucp_worker_progress(worker_) != 0;
  CheckReached();
  SweepDropped();
  while (!happened_.empty()) {
    is_any = true;
    const std::function<void()> next = std::move(happened_.front());
    happened_.pop_front();
    next();
  }
  return is_any;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlockPath>> BlockPath::Open(const std::string& transports,
                                                           BlockPathEvents* events) {
  auto path = std::make_unique<UcxPath>(events);
  RETURN_IF_ERROR(path->Start(transports));
  return path;
}

}  // namespace tandem
