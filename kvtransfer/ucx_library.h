// UCX (openucx.org) as a shared library that is loaded when pages are first to travel. Loading it
// takes signals, patches the C library and measures the clock, which a program that transfers
// nothing is spared; and the program starts where UCX is not installed.
#ifndef TANDEM_KVTRANSFER_UCX_LIBRARY_H_
#define TANDEM_KVTRANSFER_UCX_LIBRARY_H_

#include <ucp/api/ucp.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

#include "absl/status/statusor.h"

namespace tandem {

// Each member is UCX's function of the same name.
struct UcxLibrary {
  // Loads it once. UNAVAILABLE, naming `kv_transfer` and the file, if that fails.
  static absl::StatusOr<const UcxLibrary*> Load();

  decltype(&::ucp_am_recv_data_nbx) ucp_am_recv_data_nbx;
  decltype(&::ucp_am_send_nbx) ucp_am_send_nbx;
  decltype(&::ucp_cleanup) ucp_cleanup;
  decltype(&::ucp_config_modify) ucp_config_modify;
  decltype(&::ucp_config_read) ucp_config_read;
  decltype(&::ucp_config_release) ucp_config_release;
  decltype(&::ucp_ep_close_nbx) ucp_ep_close_nbx;
  decltype(&::ucp_ep_create) ucp_ep_create;
  decltype(&::ucp_init_version) ucp_init_version;
  decltype(&::ucp_request_check_status) ucp_request_check_status;
  decltype(&::ucp_request_free) ucp_request_free;
  decltype(&::ucp_worker_arm) ucp_worker_arm;
  decltype(&::ucp_worker_create) ucp_worker_create;
  decltype(&::ucp_worker_destroy) ucp_worker_destroy;
  decltype(&::ucp_worker_get_address) ucp_worker_get_address;
  decltype(&::ucp_worker_get_efd) ucp_worker_get_efd;
  decltype(&::ucp_worker_progress) ucp_worker_progress;
  decltype(&::ucp_worker_release_address) ucp_worker_release_address;
  decltype(&::ucp_worker_set_am_recv_handler) ucp_worker_set_am_recv_handler;
  decltype(&::ucs_debug_disable_signal) ucs_debug_disable_signal;
  decltype(&::ucs_log_push_handler) ucs_log_push_handler;
  decltype(&::ucs_status_string) ucs_status_string;
};

}  // namespace tandem

#endif  // TANDEM_KVTRANSFER_UCX_LIBRARY_H_
