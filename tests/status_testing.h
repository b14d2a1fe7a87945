// For tests: values that must not be errors.
#ifndef TANDEM_TESTS_STATUS_TESTING_H_
#define TANDEM_TESTS_STATUS_TESTING_H_

#include <gtest/gtest.h>

#include <utility>

#include "base/status_macros.h"

// Evaluates an absl::StatusOr; assigns its value to `lhs`, or fails the test and leaves it.
#define ASSERT_OK_AND_ASSIGN(lhs, ...) \
  ASSERT_OK_AND_ASSIGN_IMPL_(TANDEM_CONCAT_(status_or_, __LINE__), lhs, __VA_ARGS__)
#define ASSERT_OK_AND_ASSIGN_IMPL_(result, lhs, ...) \
  auto result = (__VA_ARGS__);                       \
  ASSERT_TRUE(result.ok()) << result.status();       \
  lhs = *std::move(result)

#endif  // TANDEM_TESTS_STATUS_TESTING_H_
