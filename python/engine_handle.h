// An engine as Python holds it: closed at any time, dropped by anybody.
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

// Thread-safe. Every method is called with the GIL held, and releases it while the engine works. In
// a forked child, which has none of the engine's threads, each raises, but Close does nothing.
class EngineHandle {
 public:
  explicit EngineHandle(const EngineOptions& options);
  // Closes. In a callback the engine ends on a thread of its own.
  ~EngineHandle();
  EngineHandle(const EngineHandle&) = delete;
  EngineHandle& operator=(const EngineHandle&) = delete;

  // Waits for the generation, and for signals meanwhile: what Python's handler raises cancels it.
  // `on_piece` is None, or a callable that ends the generation by returning False; what it raises
  // is raised here.
  Completion Generate(Request request, nanobind::object on_piece);
  // Returns at once. Then `on_piece(piece)`, unless it is None, for each piece, and once
  // `on_done(completion or None, exception or None)`, on threads of the engine's.
  GenerationId Submit(Request request, nanobind::object on_piece, nanobind::object on_done);
  void Cancel(GenerationId id);
  // Cancels what runs, and returns when its callbacks have run. Again: does nothing. An error in a
  // callback.
  void Close();
  // Raises in another process than the one that made the engine. Takes no lock, as a thread that
  // the child lacks may have held it at the fork.
  void CheckProcess() const;

  // What `ask(engine)` returns, without the GIL.
  template <typename Ask>
  auto With(const Ask& ask) {
    Use use(this);
    nanobind::gil_scoped_release released;
    return ask(*use.engine());
  }

 private:
  // Keeps the engine while it lives; raises if it is closed, or not of this process.
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
  int num_uses_ = 0;               // calls that use engine_
  std::set<GenerationId> waited_;  // for in Generate
  std::unique_ptr<Engine> engine_;
};

}  // namespace tandem::python

#endif  // TANDEM_PYTHON_ENGINE_HANDLE_H_
