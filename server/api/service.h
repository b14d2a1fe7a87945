#ifndef TANDEM_SERVER_API_SERVICE_H_
#define TANDEM_SERVER_API_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/instant.h"
#include "json/request_fields.h"
#include "server/api/admission.h"
#include "server/api/served_request.h"
#include "server/api/site_rules.h"
#include "server/http_message.h"
#include "server/metrics/metrics.h"
#include "tandem/engine.h"

namespace tandem {

struct ServiceOptions {
  std::string model_name{};  // as clients call it
  std::string version{};     // the program's
  std::string api_key{};     // empty: none is asked for
  // What a request has beyond the fields that are known is an error, in place of ignored.
  bool strict_requests = false;
  bool splits_reasoning = true;      // out of answers of models that mark it
  SamplingParams sampling{};         // of requests that say nothing
  std::string system_fingerprint{};  // of answers
  // Who may ask beside. Whether there is a key is set by the service.
  SiteOptions sites{};
  int max_sequences = 72;  // running and waiting together
  int64_t max_body_bytes = 4 << 20;
  MetricsNames metrics_names = MetricsNames::kTandem;
  bool prefix_cache = true;  // for the metrics
  size_t max_unread_bytes = 1 << 20;
  int64_t max_answer_bytes = kDefaultMaxAnswerBytes;  // of one request's sequences together
};

// The endpoint without its sockets: what each path does. Thread-safe.
class Service {
 public:
  // `engine` must outlive it, and every generation must have ended before it does.
  Service(Engine* engine, ServiceOptions options);

  // The route that a request's head asks for; null if there is none.
  static const Route* RouteOf(const HttpRequest& head);
  // The answer to the head of a request, if its body makes no difference: a wrong name or
  // page, no such path or method, no key, too long, stopping; and OPTIONS. `body_size` is the
  // announced one.   REQUIRES: head.route is RouteOf(head), here and below.
  std::optional<HttpResponse> AnswerToHead(const HttpRequest& head,
                                           std::optional<uint64_t> body_size);
  // An answer, or a generation that will bring it.   REQUIRES: AnswerToHead had none.
  using Reply = std::variant<HttpResponse, std::shared_ptr<ServedRequest>>;
  Reply Handle(const HttpRequest& request);

  // What a request is called in headers and log: what its client says, if that is of at most 128
  // visible characters, else a name of the server's.
  std::string RequestIdOf(std::string_view given);
  // What every answer to this request has beside its own headers.
  std::vector<std::pair<std::string, std::string>> Headers(const HttpRequest& head) const;
  // Whether it asks how the server is, which costs nothing to say.
  static bool IsProbe(const HttpRequest& head);
  // Whether Handle may wait for others, as for a thread that compiles a constraint.
  // REQUIRES: head.route is not null.
  static bool MayWait(const HttpRequest& head);

  // Counts an answer for the metrics, under its route's path.
  void CountAnswer(const HttpRequest& request, int status);
  // INVALID_ARGUMENT as 413.
  absl::Status BodyTooLarge() const;

  const ServiceOptions& options() const { return options_; }
  Admission& admission() { return admission_; }
  // Bytes of large bodies that are worked on or whose answers are being sent.
  ByteBudget& large_bodies() { return large_bodies_; }
  Metrics& metrics() { return metrics_; }

 private:
  static absl::Span<const Route> Routes();
  HttpResponse AnswerWithoutRoute(const HttpRequest& head) const;
  absl::Status CheckKey(const HttpRequest& request) const;
  static std::string AllowedMethods(const HttpRequest& head);
  HttpResponse Options(const HttpRequest& head) const;

  Reply Page(const HttpRequest& request);
  Reply PagePart(const HttpRequest& request);
  Reply OpenApi(const HttpRequest& request);
  Reply Health(const HttpRequest& request);
  Reply Ready(const HttpRequest& request);
  Reply MetricsText(const HttpRequest& request);
  Reply Version(const HttpRequest& request);
  Reply Models(const HttpRequest& request);
  Reply TokenizerInfo(const HttpRequest& request);
  Reply Tokenize(const HttpRequest& request);
  Reply Detokenize(const HttpRequest& request);
  Reply Render(const HttpRequest& request);
  Reply Generate(const HttpRequest& http);
  Reply TextAnswer(absl::StatusOr<std::string> answer, const IgnoredFields& ignored);
  void LogIgnored(const IgnoredFields& fields);

  Engine* engine_;
  const ServiceOptions options_;
  const SiteRules sites_;
  Admission admission_;
  ByteBudget large_bodies_;
  Metrics metrics_;
  ServedModel model_;
  const absl::Time started_;
  std::atomic<uint64_t> num_requests_{0};  // makes ids
  std::atomic<uint64_t> num_named_{0};     // likewise
  IgnoredFieldsLog ignored_log_;
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_SERVICE_H_
