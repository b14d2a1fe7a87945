#ifndef TANDEM_DRAFT_POLICY_STATE_ARCHIVE_H_
#define TANDEM_DRAFT_POLICY_STATE_ARCHIVE_H_

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace tandem {

// A sequence of numbers that outlives the process. A class has one function,
// Serialize(StateArchive*), for both directions. It passes each number in a fixed order, and the
// archive writes the number or replaces it by the one read.
class StateArchive {
 public:
  StateArchive() = default;  // to write
  explicit StateArchive(std::vector<double> numbers)
      : is_reading_(true), numbers_(std::move(numbers)) {}

  // Writing: clamps `*number` to [least, most] and writes it. Reading: a number that is missing or
  // out of range makes the whole archive fail, and `*number` stays as it is.
  void Pass(double least, double most, double* number) {
    if (!is_reading_) return numbers_.push_back(std::clamp(*number, least, most));
    has_failed_ = has_failed_ || next_ == numbers_.size() ||
                  !(least <= numbers_[next_] && numbers_[next_] <= most);
    if (!has_failed_) *number = numbers_[next_++];
  }
  void Pass(int least, int most, int* number) {
    double value = *number;
    Pass(static_cast<double>(least), static_cast<double>(most), &value);
    *number = static_cast<int>(value);
  }
  void Pass(bool* flag) {
    int value = *flag ? 1 : 0;
    Pass(0, 1, &value);
    *flag = value != 0;
  }

  bool is_reading() const { return is_reading_; }
  // Whether all numbers read were valid and none are left.
  bool is_complete() const { return !has_failed_ && next_ == numbers_.size(); }
  const std::vector<double>& numbers() const { return numbers_; }

 private:
  bool is_reading_ = false;
  bool has_failed_ = false;
  size_t next_ = 0;
  std::vector<double> numbers_;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_STATE_ARCHIVE_H_
