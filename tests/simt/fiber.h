// Threads of control that are switched by hand: how one host thread runs a block's threads.
#ifndef TANDEM_TESTS_SIMT_FIBER_H_
#define TANDEM_TESTS_SIMT_FIBER_H_

#include <csetjmp>
#include <cstddef>
#include <functional>
#include <memory>

namespace tandem::simt {

// Runs a body whenever it is resumed, until the body yields or returns. Switching saves registers
// only: some 20 ns, where ucontext's system calls take a microsecond. Not thread-safe: one host
// thread resumes fibers, never from within a fiber.
class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Continues the body, or begins `body` if the last one has returned. Returns true if it returned.
  bool Resume(const std::function<void()>& body);
  // Called from within the body of the fiber that runs.
  static void Yield();
  // Forgets a body that will not be continued; its locals are not destroyed.
  void Abandon() { begun_ = false; }

 private:
  static void Main();
  void SwitchIn();
  void SwitchOut();

  std::unique_ptr<std::byte[]> stack_;
  const std::function<void()>* body_ = nullptr;
  bool begun_ = false;            // its stack holds Main
  bool returned_ = true;          // its last body
  std::jmp_buf inside_;           // where to continue
  std::jmp_buf outside_;          // where Resume waits
  void* notes_inside_ = nullptr;  // what sanitizers remember of each side
  void* notes_outside_ = nullptr;
};

// What the address sanitizer is told of a switch; nothing in builds without (fiber_notes*.cc).
// Before leaving a stack for another one, and after arriving.
void NoteLeaving(void** notes, const void* stack, size_t size);
void NoteArrival(void* notes, const void** left_stack, size_t* left_size);

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_FIBER_H_
