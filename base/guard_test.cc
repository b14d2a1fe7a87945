#include "base/guard.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(Guarded, ReturnsTheBodysResult) {
  EXPECT_EQ(Guarded("reading", [] { return absl::OkStatus(); }), absl::OkStatus());
  EXPECT_EQ(Guarded("reading", [] { return absl::NotFoundError("x"); }), absl::NotFoundError("x"));
}

TEST(Guarded, TurnsAnExceptionIntoAStatus) {
  EXPECT_EQ(Guarded("reading",
                    []() -> absl::Status {
                      std::vector<int>().at(3);
                      return absl::OkStatus();
                    })
                .code(),
            absl::StatusCode::kInternal);
  const absl::Status status = Guarded("reading", [] {
    std::string text;
    text.reserve(text.max_size() + 1);
    return text.empty() ? absl::OkStatus() : absl::NotFoundError("");
  });
  EXPECT_EQ(status, absl::InternalError("out of memory"));
}

}  // namespace
}  // namespace tandem
