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
#include "server/api/pair_set.h"
#include "server/http_message.h"
#include "server/metrics/metrics.h"
#include "tandem/engine.h"

namespace tandem {

// The parts of the server that generations use.
struct GenerationHost {
  PairLease pair;
  // The bytes that may wait for a client that does not read, per request. Beyond them the request
  // is cancelled.
  size_t max_unread_bytes = 1 << 20;
};

// Carries one request's sequences from the engine to a client. The engine's callbacks put pieces
// into a bounded queue, without waiting and without losing any. The connection's thread takes them
// out when it can write.
//
// Thread-safe, except that Take() and Cancel() must not run concurrently.
class ServedRequest : public std::enable_shared_from_this<ServedRequest> {
 public:
  // Submits all sequences or none. Returns the errors of Admission::Enter and those of the engine,
  // which name the request's fields.
  static absl::StatusOr<std::shared_ptr<ServedRequest>> Start(const GenerationHost& host,
                                                              ApiRequest request, AnswerStamp stamp,
                                                              Instant requested);

  // Calls `on_news` inside an engine callback, once per Take(), when there is something to take. If
  // there already is, calls it now, on this thread. Null stops the calls. An exception from
  // `on_news` loses that call, so a listener that must not miss anything also polls.
  void Listen(std::function<void()> on_news);

  struct Update {
    std::optional<HttpResponse> response;  // of the stream, in wire format
    std::string events;                    // of the stream, in their wire form
    bool is_over = false;
  };
  // Returns what has arrived since the last call, possibly nothing.
  Update Take();
  // Tells that the head and comments of the stream were sent before any update, so that a failure
  // from now on is an event. Call on the connection's thread, like Take.
  void OnHeadSent() { head_is_sent_ = true; }

  // Ends all sequences at their next round, because the client is gone.
  void Cancel();
  // Makes `why` the request's answer, unless all sequences have ended. Take() cancels those that
  // still run.
  void Fail(const absl::Status& why);

  bool is_stream() const { return request_.stream; }
  // Returns the headers of this answer in addition to those of every answer.
  std::vector<std::pair<std::string, std::string>> headers() const;
  // For the log, after the end.
  struct Summary {
    int64_t prompt_tokens = 0;
    int64_t completion_tokens = 0;
    std::string finish_reason;
  };
  Summary summary() const;

 private:
  // The state of one sequence. Only its callbacks use it until they have ended.
  struct Sequence {
    GenerationId id = 0;
    Admission::Place place;
    SequenceLatency latency;
    Completion completion{};  // if it succeeded
  };
  struct Event {
    int choice = 0;
    OwnedPiece piece{};
    std::optional<FinishReason>
        finish_reason{};  // of an event that ends the choice; such an event has no piece
  };

  ServedRequest(const GenerationHost& host, ApiRequest request, AnswerStamp stamp);
  absl::Status Submit();
  bool OnPiece(int choice, const Piece& piece);
  // Joins the piece with progress of the prompt that waits, so that a slow reader gets the latest.
  void Enqueue(int choice, const Piece& piece) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnDone(int choice, absl::StatusOr<Completion> result);
  void TakeEnd(int choice, absl::StatusOr<Completion> result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Notify() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CancelOthers();
  HttpResponse FullResponse();
  std::string EventsOf(const std::vector<Event>& events, absl::Span<const Completion> completions);
  // Moves the completions out of all sequences, none of which may still run.
  std::vector<Completion> TakeCompletions();

  const GenerationHost host_;
  const ApiRequest request_;
  // Used only by the connection's thread, like the members after it.
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
