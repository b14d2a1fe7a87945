#include "python/engine_handle.h"

#include <tandem/owned_piece.h>

#include <exception>
#include <thread>
#include <utility>

#include "base/guard.h"
#include "python/bindings.h"

namespace tandem::python {
namespace {

namespace nb = nanobind;

// Whether this thread is in one of our callbacks.
thread_local bool in_callback = false;

class InCallback {
 public:
  InCallback() : before_(std::exchange(in_callback, true)) {}
  ~InCallback() { in_callback = before_; }
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;

 private:
  bool before_;
};

// Python objects that may be released on any thread.
struct Shared {
  nb::object on_piece = nb::none();
  nb::object on_done = nb::none();
  nb::object raised = nb::none();  // the exception of on_piece

  ~Shared() {
    if (!nb::is_alive()) {  // the interpreter has ended, and its objects with it
      (void)on_piece.release();
      (void)on_done.release();
      (void)raised.release();
      return;
    }
    nb::gil_scoped_acquire gil;
    const InCallback here;  // releasing them may destroy the engine
    on_piece.reset();
    on_done.reset();
    raised.reset();
  }
};

// Returns the raised exception with its traceback. Python 3.11 and older create the object late:
// until then nanobind's value() may be only its argument.
nb::object RaisedBy(nb::python_error& error) {
  error.restore();
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace != nullptr) PyException_SetTraceback(value, trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return nb::steal(value);
}

Engine::OnPiece PieceCallback(std::shared_ptr<Shared> shared) {
  if (shared->on_piece.is_none()) return nullptr;
  return [shared = std::move(shared)](const Piece& piece) {
    if (!nb::is_alive()) return false;
    nb::gil_scoped_acquire gil;
    const InCallback here;
    try {
      const nb::object answer = shared->on_piece(OwnedPiece::Of(piece));
      return answer.ptr() != Py_False;
    } catch (nb::python_error& error) {
      shared->raised = RaisedBy(error);
    }
    return false;
  };
}

Engine::OnDone DoneCallback(std::shared_ptr<Shared> shared) {
  return [shared = std::move(shared)](absl::StatusOr<Completion> completion) {
    if (!nb::is_alive()) return;
    nb::gil_scoped_acquire gil;
    const InCallback here;
    try {
      if (!shared->raised.is_none()) {
        shared->on_done(nb::none(), shared->raised);
      } else if (completion.ok()) {
        shared->on_done(*std::move(completion), nb::none());
      } else {
        shared->on_done(nb::none(), ExceptionFor(completion.status()));
      }
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("on_done of a generation");
    }
  };
}

std::unique_ptr<Engine> CreateWithoutGil(const EngineOptions& options) {
  absl::StatusOr<std::unique_ptr<Engine>> engine;
  {
    nb::gil_scoped_release released;
    engine = Engine::Create(options);
  }
  return ValueOrRaise(std::move(engine));
}

}  // namespace

EngineHandle::Use::Use(EngineHandle* handle) : handle_(handle) {
  handle->CheckProcess();
  bool is_closed = false;
  {
    const std::lock_guard lock(handle->mutex_);
    is_closed = handle->is_closed_;
    if (!is_closed) ++handle->num_uses_;
  }
  // Call Python without the lock, because Python may run another thread that needs it.
  if (is_closed) RaiseUnlessOk(absl::CancelledError("the engine is closed"));
}

EngineHandle::Use::~Use() {
  const std::lock_guard lock(handle_->mutex_);
  if (--handle_->num_uses_ == 0) handle_->unused_.notify_all();
}

EngineHandle::EngineHandle(const EngineOptions& options) : engine_(CreateWithoutGil(options)) {}

EngineHandle::~EngineHandle() {
  if (engine_ == nullptr) return;
  if (in_callback) {
    // Without a thread, the engine is never destroyed.
    Engine* const engine = engine_.release();
    Attempt("closing an engine", [engine] { std::thread([engine] { delete engine; }).detach(); });
    return;
  }
  nb::gil_scoped_release released;
  engine_.reset();
}

Completion EngineHandle::Generate(Request request, nb::object on_piece) {
  auto shared = std::make_shared<Shared>();
  shared->on_piece = std::move(on_piece);
  Use use(this);
  Engine* engine = use.engine();
  absl::StatusOr<GenerationId> id;
  {
    nb::gil_scoped_release released;
    id = engine->Submit(std::move(request), PieceCallback(shared));
    const std::lock_guard lock(mutex_);
    if (id.ok()) waited_.insert(*id);
    if (id.ok() && is_closed_) engine->Cancel(*id);
  }
  RaiseUnlessOk(id.status());
  absl::StatusOr<Completion> completion;
  bool interrupted = false;
  for (;;) {
    {
      nb::gil_scoped_release released;
      completion =
          engine->Wait(*id, interrupted ? absl::InfiniteDuration() : absl::Milliseconds(100));
    }
    if (!absl::IsDeadlineExceeded(completion.status())) break;
    if (PyErr_CheckSignals() == 0) continue;
    interrupted = true;
    engine->Cancel(*id);
  }
  {
    const std::lock_guard lock(mutex_);
    waited_.erase(*id);
  }
  if (interrupted) nb::raise_python_error();
  if (!shared->raised.is_none()) Raise(shared->raised);
  return ValueOrRaise(std::move(completion));
}

GenerationId EngineHandle::Submit(Request request, nb::object on_piece, nb::object on_done) {
  auto shared = std::make_shared<Shared>();
  shared->on_piece = std::move(on_piece);
  shared->on_done = std::move(on_done);
  return ValueOrRaise(With([&](Engine& engine) {
    return engine.Submit(std::move(request), PieceCallback(shared), DoneCallback(shared));
  }));
}

void EngineHandle::Cancel(GenerationId id) {
  With([id](Engine& engine) { engine.Cancel(id); });
}

void EngineHandle::CheckProcess() const {
  if (getpid() == process_) return;
  RaiseUnlessOk(absl::FailedPreconditionError(
      "the engine was made in another process, whose threads this fork lacks; make an engine after "
      "the fork"));
}

void EngineHandle::Close() {
  if (getpid() != process_) return;
  if (in_callback) {
    RaiseUnlessOk(absl::FailedPreconditionError("an engine cannot be closed in its callback"));
  }
  nb::gil_scoped_release released;
  std::unique_ptr<Engine> engine;
  {
    std::unique_lock lock(mutex_);
    is_closed_ = true;
    for (const GenerationId id : waited_) engine_->Cancel(id);
    unused_.wait(lock, [this] { return num_uses_ == 0; });
    engine = std::move(engine_);
  }
}

}  // namespace tandem::python
