// How many bytes the values of a rendering hold.
#ifndef TANDEM_CHAT_JINJA_MEMORY_METER_H_
#define TANDEM_CHAT_JINJA_MEMORY_METER_H_

#include <cstddef>
#include <utility>

namespace tandem::jinja {

// Counts for the thread that makes it, until it is destroyed there. Every value that is made on the
// thread meanwhile must be destroyed, or leave the meter, before the meter is destroyed.
class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  size_t bytes() const { return bytes_; }

 private:
  friend class MemoryHold;
  static MemoryMeter* OfThread();  // null if there is none

  MemoryMeter* const outer_;
  size_t bytes_ = 0;
};

// A member of whatever counts: so many bytes, added to the meter of the thread that made it and
// taken off again by the destructor. A copy counts as much, for the thread that makes the copy.
class MemoryHold {
 public:
  explicit MemoryHold(size_t bytes = 0) : meter_(MemoryMeter::OfThread()) { Set(bytes); }
  ~MemoryHold() { Set(0); }
  MemoryHold(const MemoryHold& other) : MemoryHold(other.bytes_) {}
  MemoryHold(MemoryHold&& other) noexcept
      : meter_(other.meter_), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryHold& operator=(MemoryHold other) noexcept {
    std::swap(meter_, other.meter_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void Set(size_t bytes) {
    if (meter_ != nullptr) meter_->bytes_ += bytes - bytes_;
    bytes_ = bytes;
  }
  void Add(size_t bytes) { Set(bytes_ + bytes); }
  // For an owner that outlives the meter.
  void LeaveMeter() {
    if (meter_ != nullptr) meter_->bytes_ -= bytes_;
    meter_ = nullptr;
  }

 private:
  MemoryMeter* meter_;
  size_t bytes_ = 0;
};

}  // namespace tandem::jinja

#endif  // TANDEM_CHAT_JINJA_MEMORY_METER_H_
