#ifndef TANDEM_SERVER_SERVICE_H_
#define TANDEM_SERVER_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/engine.h"
#include "server/admission.h"
#include "server/api_request.h"
#include "server/generation.h"
#include "server/http_message.h"
#include "server/metrics.h"

namespace tandem {

struct ServiceOptions {
  std::string model_name{};  // as clients call it
  std::string api_key{};     // empty: none is asked for
  int max_sequences = 72;    // running and waiting together
  int64_t max_body_bytes = 4 << 20;
  size_t max_unread_bytes = 1 << 20;
};

// The endpoint without its sockets: what each path does. Thread-safe.
class Service {
 public:
  // `engine` must outlive it, and every generation must have ended before it does.
  Service(Engine* engine, ServiceOptions options);

  // An answer, or a generation that will bring it.
  using Reply = std::variant<HttpResponse, std::shared_ptr<Generation>>;
  Reply Handle(const HttpRequest& request, absl::Time now);

  // The answer to a request of which no more than the head is known, if that is enough: no such
  // path or method, no key, stopping. `body_size` is the announced one.
  std::optional<HttpResponse> RefusalOf(const HttpRequest& head, std::optional<uint64_t> body_size);

  // Counts an answer for the metrics, under its route's path.
  void CountAnswer(const HttpRequest& request, int status);
  // INVALID_ARGUMENT as 413.
  absl::Status BodyTooLarge() const;

  const ServiceOptions& options() const { return options_; }
  Admission& admission() { return admission_; }
  Metrics& metrics() { return metrics_; }

 private:
  struct Route;
  static absl::Span<const Route> Routes();
  static absl::StatusOr<const Route*> FindRoute(const HttpRequest& request);
  absl::Status CheckKey(const HttpRequest& request) const;

  Reply Page(const HttpRequest& request, absl::Time now);
  Reply PagePart(const HttpRequest& request, absl::Time now);
  Reply OpenApi(const HttpRequest& request, absl::Time now);
  Reply Health(const HttpRequest& request, absl::Time now);
  Reply Ready(const HttpRequest& request, absl::Time now);
  Reply MetricsText(const HttpRequest& request, absl::Time now);
  Reply Models(const HttpRequest& request, absl::Time now);
  Reply Tokenize(const HttpRequest& request, absl::Time now);
  Reply Detokenize(const HttpRequest& request, absl::Time now);
  Reply Completions(const HttpRequest& request, absl::Time now);
  Reply ChatCompletions(const HttpRequest& request, absl::Time now);
  Reply Generate(absl::StatusOr<ApiRequest> request, std::string_view id_prefix, absl::Time now);

  Engine* engine_;
  const ServiceOptions options_;
  Admission admission_;
  Metrics metrics_;
  ServedModel model_;
  const absl::Time started_;
  std::atomic<uint64_t> num_requests_{0};  // makes ids
};

}  // namespace tandem

#endif  // TANDEM_SERVER_SERVICE_H_
