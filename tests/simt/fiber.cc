#include "tests/simt/fiber.h"

#include <ucontext.h>

#include "base/check.h"

namespace tandem::simt {
namespace {

constexpr size_t kStackBytes = 128 * 1024;

Fiber* running = nullptr;
// The stack that resumes fibers, found at the first switch into a fiber.
const void* host_stack = nullptr;
size_t host_stack_size = 0;

}  // namespace

Fiber::Fiber() : stack_(new std::byte[kStackBytes]) {}

bool Fiber::Resume(const std::function<void()>& body) {
  TANDEM_CHECK(running == nullptr);
  if (!begun_ || returned_) {
    body_ = &body;
    returned_ = false;
  }
  running = this;
  SwitchIn();
  running = nullptr;
  return returned_;
}

void Fiber::SwitchIn() {
  NoteLeaving(&notes_outside_, stack_.get(), kStackBytes);
  if (_setjmp(outside_) == 0) {
    if (begun_) _longjmp(inside_, 1);
    begun_ = true;
    static ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack_.get();
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = nullptr;
    makecontext(&context, &Fiber::Main, 0);
    setcontext(&context);
  }
  NoteArrival(notes_outside_, nullptr, nullptr);
}

void Fiber::SwitchOut() {
  NoteLeaving(&notes_inside_, host_stack, host_stack_size);
  if (_setjmp(inside_) == 0) _longjmp(outside_, 1);
  NoteArrival(notes_inside_, &host_stack, &host_stack_size);
}

void Fiber::Yield() {
  TANDEM_CHECK(running != nullptr);
  running->SwitchOut();
}

void Fiber::Main() {
  NoteArrival(nullptr, &host_stack, &host_stack_size);
  for (;;) {
    (*running->body_)();
    running->returned_ = true;
    running->SwitchOut();
  }
}

}  // namespace tandem::simt
