#include "chat/jinja/memory_meter.h"

namespace tandem::jinja {
namespace {

thread_local MemoryMeter* of_thread = nullptr;

}  // namespace

MemoryMeter::MemoryMeter() : outer_(of_thread) { of_thread = this; }
MemoryMeter::~MemoryMeter() { of_thread = outer_; }

MemoryMeter* MemoryMeter::OfThread() { return of_thread; }

}  // namespace tandem::jinja
