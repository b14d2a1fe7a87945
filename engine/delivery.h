#ifndef TANDEM_ENGINE_DELIVERY_H_
#define TANDEM_ENGINE_DELIVERY_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tandem/completion.h"
#include "tandem/engine_options.h"
#include "tandem/owned_piece.h"

namespace tandem {

class Delivery;

// Carries one generation's committed output to its callbacks. Pieces that arrive while a callback
// runs are joined and wait for it, so the waiting data is never larger than the completion.
// Thread-safe, but only one thread may call Put and Close.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  using OnPiece = absl::AnyInvocable<bool(const Piece&)>;
  using OnResult = absl::AnyInvocable<void(absl::StatusOr<Completion>)>;

  // Queues a piece. Returns false if the callback has ended the generation; nothing more is then
  // delivered.
  bool Put(const Piece& piece);
  // Queues the result, after the last piece. If a callback ended the generation, the result is cut
  // after the last piece delivered; if a callback threw, the result is its error.
  void Close(absl::StatusOr<Completion> result);

 private:
  friend class Delivery;
  Channel(Delivery* delivery, OnPiece on_piece, OnResult on_result);

  void HandOver(const Piece& piece);
  void HandOver(absl::StatusOr<Completion> result);
  // Delivers until nothing is waiting.
  void Drain();

  Delivery* const delivery_;
  // The channel's place in the queue while it is not there, so that queueing allocates nothing.
  std::list<std::shared_ptr<Channel>> place_ = std::list<std::shared_ptr<Channel>>(1);

  // Used only by the delivering thread.
  OnPiece on_piece_;
  OnResult on_result_;
  absl::Status failure_;      // exception of a callback
  size_t handed_tokens_ = 0;  // tokens delivered to on_piece
  size_t handed_text_ = 0;    // bytes of text delivered to on_piece

  absl::Mutex mutex_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;    // a callback has ended the generation
  bool is_queued_ ABSL_GUARDED_BY(mutex_) = false;  // in the delivery's queue, or being delivered
  std::optional<OwnedPiece> piece_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::StatusOr<Completion>> result_ ABSL_GUARDED_BY(mutex_);
};

// How much of a completion has been put into its channel.
struct DeliveryCursor {
  size_t text = 0;       // bytes
  size_t tokens = 0;     // of the output
  size_t rejected = 0;   // drafts
  int64_t proposed = 0;  // draft tokens verified up to that point
  int64_t accepted = 0;
  int prompt = -1;  // tokens of the prompt that were reported as read
};

// Calls the callbacks of all generations, in order for each generation, on the threads that
// EngineOptions::callback_thread selects. It has as many threads as callbacks that run at the same
// time, so that slow callbacks do not delay others; beyond kMaxThreads callbacks wait. Thread-safe.
class Delivery {
 public:
  static constexpr int kMaxThreads = 64;

  explicit Delivery(CallbackThread thread);
  // Delivers everything first. REQUIRES: every channel is closed.
  ~Delivery();
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // `on_piece` may be null. `on_result` is called once.
  std::shared_ptr<Channel> Open(Channel::OnPiece on_piece, Channel::OnResult on_result);

  // Whether the caller runs on one of its threads, so in a callback.
  bool IsOwnThread() const;

 private:
  friend class Channel;
  bool is_inline() const { return thread_ == CallbackThread::kEngine; }
  void Queue(std::shared_ptr<Channel> channel);
  void AddThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work();

  const CallbackThread thread_;
  mutable absl::Mutex mutex_;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int num_idle_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<std::shared_ptr<Channel>> ready_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_DELIVERY_H_
