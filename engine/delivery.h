#ifndef TANDEM_ENGINE_DELIVERY_H_
#define TANDEM_ENGINE_DELIVERY_H_

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tandem/engine.h"
#include "tandem/owned_piece.h"

namespace tandem {

class Delivery;

// What one generation has committed, on its way to its callbacks. Pieces that come while a callback
// runs wait for it and are joined: no more can wait than the completion itself holds. Thread-safe,
// but one thread puts things in.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  using OnResult = absl::AnyInvocable<void(absl::StatusOr<Completion>)>;

  // False if the callback has ended the generation; then nothing more is handed over.
  bool Put(const Piece& piece);
  // After the last piece. What a callback ended is cut behind its last piece; what it failed,
  // fails.
  void Close(absl::StatusOr<Completion> result);

 private:
  friend class Delivery;
  Channel(Delivery* delivery, Engine::OnPiece on_piece, OnResult on_result);

  void HandOver(const Piece& piece);
  void HandOver(absl::StatusOr<Completion> result);
  // Hands over what waits, until nothing does.
  void Drain();

  Delivery* const delivery_;

  // Of the thread that hands over.
  Engine::OnPiece on_piece_;
  OnResult on_result_;
  absl::Status failure_;      // of a callback
  size_t handed_tokens_ = 0;  // over to on_piece
  size_t handed_text_ = 0;    // bytes, likewise

  absl::Mutex mutex_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;    // the callback has ended it
  bool is_queued_ ABSL_GUARDED_BY(mutex_) = false;  // with the delivery, or with a thread of its
  std::optional<OwnedPiece> piece_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::StatusOr<Completion>> result_ ABSL_GUARDED_BY(mutex_);
};

// Calls the callbacks of all generations, each generation's in order, on the threads that
// EngineOptions::callback_thread says. Of threads of its own there are as many as callbacks run at
// the same time, so that one that takes its time is in nobody's way; from kMaxThreads on they wait
// for each other. Thread-safe.
class Delivery {
 public:
  static constexpr int kMaxThreads = 64;

  explicit Delivery(CallbackThread thread);
  // Hands over everything first. REQUIRES: every channel is closed.
  ~Delivery();
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // `on_piece` may be null. `on_result` is called once.
  std::shared_ptr<Channel> Open(Engine::OnPiece on_piece, Channel::OnResult on_result);

  // Whether the caller is a callback.
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
  std::vector<std::shared_ptr<Channel>> ready_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_DELIVERY_H_
