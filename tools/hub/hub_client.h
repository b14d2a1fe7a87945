// A client of the API of Hugging Face's hub (https://huggingface.co/docs/hub/api), or of a mirror.
#ifndef TANDEM_TOOLS_HUB_HUB_CLIENT_H_
#define TANDEM_TOOLS_HUB_HUB_CLIENT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/http/http_transfer.h"
#include "engine/hub_files.h"

namespace tandem {

struct HubOptions {
  std::string endpoint{};                        // a URL without a slash at its end
  std::string token{};                           // of an account; empty for none
  absl::Duration first_wait = absl::Seconds(1);  // before a second attempt; doubles with each
  int64_t max_single_bytes = 64 << 20;           // larger files come in four parts at a time

  // $HF_ENDPOINT, and $HF_TOKEN or the token that `hf auth login` has stored.
  static HubOptions FromEnvironment();
};

// Whether $HF_HUB_OFFLINE forbids to use the network.
bool IsHubOffline();

struct HubListing {
  std::string commit{};
  std::vector<HubFile> files{};  // with their hashes
};

// One attempt of a request. UNAVAILABLE: another may succeed.
struct HubReply {
  absl::Status status{};
  HttpAnswer answer{};
  bool has_progressed = false;  // some bytes came, so the count of attempts begins again
};

// Errors are one sentence for users. Ctrl-C (tools/interrupt_flag.h) gives Interrupted().
// Thread-safe.
class HubClient {
 public:
  explicit HubClient(HubOptions options) : options_(std::move(options)) {}

  const HubOptions& options() const { return options_; }
  // "huggingface.co"
  std::string Host() const;

  // NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE; FAILED_PRECONDITION if the hub cannot be reached;
  // INVALID_ARGUMENT if its answer is not a list of files.
  absl::StatusOr<HubListing> List(const HubName& name) const;

  // The path of a file at the endpoint.
  static std::string PathOf(const HubName& name, const std::string& commit,
                            const std::string& file);
  // Sends a GET once. `request` has a path in place of a URL, and perhaps headers and functions.
  HubReply Get(const HubName& name, OutgoingRequest request, HttpTransfer* transfer) const;

  // Calls `attempt` until its status is not UNAVAILABLE, or the fifth time in a row without
  // progress. Waits longer each time, or as long as the hub asks for, at most a minute.
  absl::Status WithRetries(absl::FunctionRef<HubReply()> attempt) const;

 private:
  absl::Status ErrorOf(const HubName& name, const HttpAnswer& answer) const;

  const HubOptions options_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_HUB_HUB_CLIENT_H_
