#include "kvtransfer/ucx_library.h"

#include <dlfcn.h>

#include <array>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/guard.h"
#include "base/log.h"

namespace tandem {
namespace {

// What UCX would print goes to the log, at its lowest level: what matters of it is an error of a
// call as well.
ucs_log_func_rc_t LogLine(const char*, unsigned, const char*, ucs_log_level_t level,
                          const ucs_log_component_config_t*, const char* format, va_list values) {
  if (level <= UCS_LOG_LEVEL_WARN) {
    std::array<char, 512> line;
    std::vsnprintf(line.data(), line.size(), format, values);
    Log(LogLevel::kDebug, absl::StrCat("kv transfer: ucx: ", line.data()));
  }
  return UCS_LOG_FUNC_RC_STOP;
}

// One of the libraries; remembers the first failure.
class LoadedFile {
 public:
  LoadedFile(const char* name, absl::Status* status)
      : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)), status_(status) {
    if (handle_ == nullptr) Fail();
  }
  template <typename Pointer>
  void Find(const char* name, Pointer* pointer) {
    if (handle_ == nullptr) return;
    *pointer = reinterpret_cast<Pointer>(dlsym(handle_, name));
    if (*pointer == nullptr) Fail();
  }

 private:
  void Fail() {
    const char* why = dlerror();
    status_->Update(absl::UnavailableError(
        absl::StrCat("kv_transfer: UCX cannot be loaded: ", why == nullptr ? "" : why)));
  }

  void* const handle_;  // for as long as the process lives
  absl::Status* const status_;
};

absl::Status LoadInto(UcxLibrary* ucx) {
  // Else it patches mmap, madvise and their like, to remember memory that it has registered, and
  // the end of every thread goes through it. It reads this while it is loaded.
  setenv("UCX_MEM_EVENTS", "n", /*overwrite=*/0);
  absl::Status status;
  LoadedFile ucp("libucp.so.0", &status);
  ucp.Find("ucp_am_recv_data_nbx", &ucx->ucp_am_recv_data_nbx);
  ucp.Find("ucp_am_send_nbx", &ucx->ucp_am_send_nbx);
  ucp.Find("ucp_cleanup", &ucx->ucp_cleanup);
  ucp.Find("ucp_config_modify", &ucx->ucp_config_modify);
  ucp.Find("ucp_config_read", &ucx->ucp_config_read);
  ucp.Find("ucp_config_release", &ucx->ucp_config_release);
  ucp.Find("ucp_ep_close_nbx", &ucx->ucp_ep_close_nbx);
  ucp.Find("ucp_ep_create", &ucx->ucp_ep_create);
  ucp.Find("ucp_init_version", &ucx->ucp_init_version);
  ucp.Find("ucp_request_check_status", &ucx->ucp_request_check_status);
  ucp.Find("ucp_request_free", &ucx->ucp_request_free);
  ucp.Find("ucp_worker_arm", &ucx->ucp_worker_arm);
  ucp.Find("ucp_worker_create", &ucx->ucp_worker_create);
  ucp.Find("ucp_worker_destroy", &ucx->ucp_worker_destroy);
  ucp.Find("ucp_worker_get_address", &ucx->ucp_worker_get_address);
  ucp.Find("ucp_worker_get_efd", &ucx->ucp_worker_get_efd);
  ucp.Find("ucp_worker_progress", &ucx->ucp_worker_progress);
  ucp.Find("ucp_worker_release_address", &ucx->ucp_worker_release_address);
  ucp.Find("ucp_worker_set_am_recv_handler", &ucx->ucp_worker_set_am_recv_handler);
  LoadedFile ucs("libucs.so.0", &status);
  ucs.Find("ucs_debug_disable_signal", &ucx->ucs_debug_disable_signal);
  ucs.Find("ucs_log_push_handler", &ucx->ucs_log_push_handler);
  ucs.Find("ucs_status_string", &ucx->ucs_status_string);
  if (!status.ok()) return status;
  ucx->ucs_log_push_handler(&LogLine);
  // Loading it installs handlers of signals, which print and take the place of ours.
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucx->ucs_debug_disable_signal(signal);
  return absl::OkStatus();
}

struct Loaded {
  UcxLibrary library = {};
  absl::Status status = LoadInto(&library);
};

}  // namespace

absl::StatusOr<const UcxLibrary*> UcxLibrary::Load() {
  static const Loaded loaded;
  if (!loaded.status.ok()) return loaded.status;
  return &loaded.library;
}

}  // namespace tandem
