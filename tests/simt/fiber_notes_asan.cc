#include <sanitizer/common_interface_defs.h>

#include "tests/simt/fiber.h"

namespace tandem::simt {

void NoteLeaving(void** notes, const void* stack, size_t size) {
  __sanitizer_start_switch_fiber(notes, stack, size);
}
void NoteArrival(void* notes, const void** left_stack, size_t* left_size) {
  __sanitizer_finish_switch_fiber(notes, left_stack, left_size);
}

}  // namespace tandem::simt
