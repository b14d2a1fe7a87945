#ifndef TANDEM_SERVER_API_SERVED_REQUEST_H_
#define TANDEM_SERVER_API_SERVED_REQUEST_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/instant.h"
#include "server/api/admission.h"
#include "server/api/answer_writer.h"
#include "server/api/api_request.h"
#include "server/http_message.h"
#include "server/metrics/metrics.h"
#include "tandem/engine.h"

namespace tandem {

// What generations need of the server; all of it outlives them all (Admission::AwaitEmpty).
struct GenerationHost {
  Engine* engine = nullptr;
  const ServedModel* model = nullptr;
  Metrics* metrics = nullptr;
  Admission* admission = nullptr;
  // What may wait for a client that does not read, per request; beyond it the request is cancelled.
  size_t max_unread_bytes = 1 << 20;
};

// One request's sequences on their way from the engine to a client. The engine's callbacks put in
// what comes, never wait, and lose nothing; the connection's thread takes it out when it can
// write. In between lies a queue with a bound.
//
// Thread-safe, but that Take() and Cancel() must not run at the same time.
class ServedRequest : public std::enable_shared_from_this<ServedRequest> {
 public:
  // Submits all sequences or none. Errors: Admission::Enter's, and the engine's, which name the
  // request's fields.
  static absl::StatusOr<std::shared_ptr<ServedRequest>> Start(const GenerationHost& host,
                                                              ApiRequest request, AnswerStamp stamp,
                                                              Instant requested);

  // Calls `on_news` within an engine's callback, once per Take(), when there is something to take;
  // at once, on this thread, if there is already. Null stops that. What it throws is lost: who must
  // not miss anything looks now and then, too.
  void Listen(std::function<void()> on_news);

  struct News {
    std::optional<HttpResponse> response;  // the whole answer, instead of a stream
    std::string events;                    // of the stream, in their wire form
    bool is_over = false;
  };
  // Nothing if there is none.
  News Take();
  // Heads and comments of the stream were sent before any news: what fails from now on is an event.
  // On the connection's thread, as Take.
  void OnHeadSent() { head_is_sent_ = true; }

  // The client is gone, or no longer wanted: ends all sequences at their next round.
  void Cancel();

  bool is_stream() const { return request_.stream; }
  // The headers that the answer has in addition to every answer's.
  std::vector<std::pair<std::string, std::string>> headers() const;
  // For the log, once it is over.
  struct Summary {
    int64_t prompt_tokens = 0;
    int64_t completion_tokens = 0;
    std::string finish_reason;
  };
  Summary summary() const;

 private:
  // What one sequence has come to; its callbacks alone use it until none runs.
  struct Sequence {
    GenerationId id = 0;
    Admission::Place place;
    SequenceLatency latency;
    Completion completion{};  // if it went well
  };
  struct Event {
    int choice = 0;
    OwnedPiece piece{};
    std::optional<FinishReason> finish_reason{};  // of what ends the choice, and has no piece
  };

  ServedRequest(const GenerationHost& host, ApiRequest request, AnswerStamp stamp);
  absl::Status Submit();
  bool OnPiece(int choice, const Piece& piece);
  void OnDone(int choice, absl::StatusOr<Completion> result);
  void TakeEnd(int choice, absl::StatusOr<Completion> result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Notify() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CancelOthers();
  HttpResponse Whole();
  std::string EventsOf(const std::vector<Event>& events, absl::Span<const Completion> completions);
  // Of all sequences, none of which runs any more; they keep nothing.
  std::vector<Completion> TakeCompletions();

  const GenerationHost host_;
  const ApiRequest request_;
  // The connection's alone, as what follows it.
  const std::unique_ptr<AnswerWriter> writer_;
  bool has_begun_ = false;  // events were taken
  bool head_is_sent_ = false;

  mutable absl::Mutex mutex_;
  std::vector<Sequence> sequences_;
  int num_running_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Event> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // why the request as a whole has failed
  Summary summary_ ABSL_GUARDED_BY(mutex_);
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_notified_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> on_news_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_SERVED_REQUEST_H_
