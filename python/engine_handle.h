// The engine handle that Python holds. It may be closed at any time, and dropped on any thread.
#ifndef TANDEM_PYTHON_ENGINE_HANDLE_H_
#define TANDEM_PYTHON_ENGINE_HANDLE_H_

#include <nanobind/nanobind.h>
#include <tandem/engine.h>
#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>

namespace tandem::python {

// Thread-safe. Every method is called with the GIL held, and releases it while the engine works. A
// forked child does not have the engine's threads: there every method raises, except Close, which
// does nothing.
class EngineHandle {
 public:
  explicit EngineHandle(const EngineOptions& options);
  // Closes the engine. Within a callback, the engine ends on a separate thread.
  ~EngineHandle();
  EngineHandle(const EngineHandle&) = delete;
  EngineHandle& operator=(const EngineHandle&) = delete;

  // Waits for the generation. Handles signals while it waits: if Python's handler raises, the
  // generation is cancelled. `on_piece` is None, or a callable that ends the generation by
  // returning False. If it raises, the exception is raised here.
  Completion Generate(Request request, nanobind::object on_piece);
  // Returns at once. Afterwards calls `on_piece(piece)`, unless it is None, for each piece, and
  // once `on_done(completion or None, exception or None)`, on threads of the engine.
  GenerationId Submit(Request request, nanobind::object on_piece, nanobind::object on_done);
  void Cancel(GenerationId id);
  // Cancels running generations, and returns when their callbacks have returned. A second call does
  // nothing. Raises if called within a callback.
  void Close();
  // Raises in a process other than the one that made the engine. Takes no lock, because a thread
  // that the child does not have may have held it during the fork.
  void CheckProcess() const;

  // Returns `ask(engine)`, called without the GIL.
  template <typename Ask>
  auto With(const Ask& ask) {
    Use use(this);
    nanobind::gil_scoped_release released;
    return ask(*use.engine());
  }

 private:
  // Keeps the engine open while it exists. Raises if the engine is closed or belongs to another
  // process.
  class Use {
   public:
    explicit Use(EngineHandle* handle);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    Engine* engine() const { return handle_->engine_.get(); }

   private:
    EngineHandle* handle_;
  };

  const pid_t process_ = getpid();
  std::mutex mutex_;
  std::condition_variable unused_;
  bool is_closed_ = false;         // guarded by mutex_, like what follows
  int num_uses_ = 0;               // calls that are using engine_
  std::set<GenerationId> waited_;  // generations that Generate waits for
  std::unique_ptr<Engine> engine_;
};

}  // namespace tandem::python

#endif  // TANDEM_PYTHON_ENGINE_HANDLE_H_
