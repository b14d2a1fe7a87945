#ifndef TANDEM_SERVER_API_SERVICE_H_
#define TANDEM_SERVER_API_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/instant.h"
#include "base/json/request_fields.h"
#include "server/api/admission.h"
#include "server/api/api_error.h"
#include "server/api/pair_set.h"
#include "server/api/served_request.h"
#include "server/api/site_rules.h"
#include "server/http_message.h"
#include "server/metrics/metrics.h"
#include "tandem/engine.h"

namespace tandem {

struct ServiceOptions {
  std::string model_name{};  // in the API, of a single pair
  // Several pairs. Options below that a PairSource or LoadedPair has as well are then not used.
  std::vector<PairSource> pairs{};
  int64_t pair_memory_bytes = 0;  // of this machine, for all of them together
  std::function<void(const absl::Status& why)> on_all_pairs_lost{};
  std::string version{};  // of the program
  std::string api_key{};  // empty: no key is required
  // Unknown fields of a request are errors; otherwise they are ignored.
  bool strict_requests = false;
  bool splits_reasoning = true;      // separate reasoning from answers if the model marks it
  SamplingParams sampling{};         // defaults of requests
  std::string system_fingerprint{};  // in answers
  // Which hosts and origins are accepted. The service sets `has_key`.
  SiteOptions sites{};
  int max_sequences = 72;  // running and waiting together
  int64_t max_body_bytes = 4 << 20;
  MetricsNames metrics_names = MetricsNames::kTandem;
  bool prefix_cache = true;  // for metrics only
  size_t max_unread_bytes = 1 << 20;
  int64_t max_answer_bytes = kDefaultMaxAnswerBytes;  // of all sequences of a request together
};

// The HTTP API without its sockets: what each path does. Thread-safe.
class Service {
 public:
  // A service of one pair, whose engine must outlive the service. Every generation must end before
  // the service is destroyed.
  Service(Engine* engine, ServiceOptions options);
  // A service of options.pairs.
  explicit Service(ServiceOptions options);

  // Returns the route for the head's method and path; null if there is none.
  static const Route* RouteOf(const HttpRequest& head);
  // Returns the answer to a request if its head alone decides it: a wrong host or origin, an
  // unknown path or method, a missing key, a body that is too large, a stopping server, or OPTIONS.
  // `body_size` is the announced size. REQUIRES: head.route is RouteOf(head), here and below.
  std::optional<HttpResponse> AnswerToHead(const HttpRequest& head,
                                           std::optional<uint64_t> body_size);
  // Returns the pair that the request is for, null if it is for none, or the error. Otherwise
  // returns nothing, and calls `waiter` on another thread once the pair is there (PairSet); before
  // it returns, it calls `on_stream` if the answer will be a stream.
  // REQUIRES, here and below: AnswerToHead returned nothing.
  std::optional<absl::StatusOr<PairLease>> PairOf(const HttpRequest& request,
                                                  PairSet::Waiter waiter,
                                                  absl::FunctionRef<void()> on_stream);
  // Answers the request, or starts a generation that will.
  using Reply = std::variant<HttpResponse, std::shared_ptr<ServedRequest>>;
  Reply Handle(const HttpRequest& request, absl::StatusOr<PairLease> pair);
  // The same, for a pair that is always loaded.
  Reply Handle(const HttpRequest& request);

  // Returns the id of a request in headers and log: the client's id if it is at most 128 visible
  // characters, else one that the server makes.
  std::string RequestIdOf(std::string_view given);
  // Returns the headers that every answer to this request has.
  std::vector<std::pair<std::string, std::string>> Headers(const HttpRequest& head) const;
  // Returns how errors of this request are written.
  static ErrorForm ErrorFormOf(const HttpRequest& head);
  // Returns whether the request is a cheap health or metrics probe.
  static bool IsProbe(const HttpRequest& head);
  // Returns whether Handle may block, for example until a thread has compiled a constraint.
  // REQUIRES: head.route is not null.
  bool MayBlock(const HttpRequest& head) const;

  // Counts an answer for the metrics, under its route's path.
  void CountAnswer(const HttpRequest& request, int status);
  // Returns INVALID_ARGUMENT with HTTP status 413.
  absl::Status BodyTooLarge() const;

  const ServiceOptions& options() const { return options_; }
  PairSet& pairs() { return pairs_; }
  // Bytes of large bodies that are being handled or answered.
  ByteBudget& large_bodies() { return large_bodies_; }

 private:
  static absl::Span<const Route> Routes();
  HttpResponse AnswerWithoutRoute(const HttpRequest& head) const;
  absl::Status CheckKey(const HttpRequest& request) const;
  // REQUIRES: head.route is not null.
  absl::Status CheckHead(const HttpRequest& head, std::optional<uint64_t> body_size);
  static std::string AllowedMethods(const HttpRequest& head);
  HttpResponse Options(const HttpRequest& head) const;

  Reply Page(const HttpRequest& request, const PairLease& pair);
  Reply Docs(const HttpRequest& request, const PairLease& pair);
  Reply PagePart(const HttpRequest& request, const PairLease& pair);
  Reply OpenApi(const HttpRequest& request, const PairLease& pair);
  Reply Health(const HttpRequest& request, const PairLease& pair);
  Reply Ready(const HttpRequest& request, const PairLease& pair);
  Reply MetricsText(const HttpRequest& request, const PairLease& pair);
  Reply Version(const HttpRequest& request, const PairLease& pair);
  Reply Models(const HttpRequest& request, const PairLease& pair);
  Reply DescribeModel(const HttpRequest& request, const PairLease& pair);
  Reply TokenizerInfo(const HttpRequest& request, const PairLease& pair);
  Reply Tokenize(const HttpRequest& request, const PairLease& pair);
  Reply Detokenize(const HttpRequest& request, const PairLease& pair);
  Reply Render(const HttpRequest& request, const PairLease& pair);
  Reply CountTokens(const HttpRequest& http, const PairLease& pair);
  Reply Generate(const HttpRequest& http, const PairLease& pair);
  Reply AddDraftText(const HttpRequest& request, const PairLease& pair);
  Reply DraftTexts(const HttpRequest& request, const PairLease& pair);
  Reply RemoveDraftText(const HttpRequest& request, const PairLease& pair);
  Reply TextAnswer(absl::StatusOr<std::string> answer, const IgnoredFields& ignored);
  void LogIgnored(const IgnoredFields& fields);

  const ServiceOptions options_;
  const SiteRules sites_;
  ByteBudget large_bodies_;
  AnswerCounts answers_;
  const absl::Time started_;
  std::atomic<uint64_t> num_requests_{0};  // for answer ids
  std::atomic<uint64_t> num_named_{0};     // for request ids
  IgnoredFieldsLog ignored_log_;
  PairSet pairs_;
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_SERVICE_H_
