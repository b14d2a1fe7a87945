// Coroutines with their own stacks, with which one host thread runs a block's threads.
#ifndef TANDEM_TESTS_SIMT_FIBER_H_
#define TANDEM_TESTS_SIMT_FIBER_H_

#include <csetjmp>
#include <cstddef>
#include <functional>
#include <memory>

namespace tandem::simt {

// Runs a body whenever it is resumed, until the body yields or returns. Switching only saves
// registers, which takes about 20 ns; ucontext's system calls take a microsecond. Not thread-safe:
// one host thread resumes fibers, never from within a fiber.
class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Continues the current body, or starts `body` if the last one has returned. Returns true if the
  // body returned.
  bool Resume(const std::function<void()>& body);
  // Returns control to Resume. Call it from within the running fiber's body.
  static void Yield();
  // Drops a body that will not be continued. Its locals are not destroyed.
  void Abandon() { begun_ = false; }

 private:
  static void Main();
  void SwitchIn();
  void SwitchOut();

  std::unique_ptr<std::byte[]> stack_;
  const std::function<void()>* body_ = nullptr;
  bool begun_ = false;            // Main runs on its stack
  bool returned_ = true;          // the last body has returned
  std::jmp_buf inside_;           // where to continue
  std::jmp_buf outside_;          // where Resume waits
  void* notes_inside_ = nullptr;  // the sanitizer's data for each side
  void* notes_outside_ = nullptr;
};

// Tell the address sanitizer about a switch, before leaving a stack and after arriving on one.
// No-ops in builds without it (fiber_notes*.cc).
void NoteLeaving(void** notes, const void* stack, size_t size);
void NoteArrival(void* notes, const void** left_stack, size_t* left_size);

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_FIBER_H_
