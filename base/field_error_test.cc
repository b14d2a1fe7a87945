#include "tandem/field_error.h"

#include "absl/strings/cord.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(FieldError, NamesItsFieldForPeopleAndPrograms) {
  const absl::Status status = FieldError("max_tokens", "must be at least 1, got 0");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "max_tokens: must be at least 1, got 0");
  EXPECT_EQ(FieldOf(status), "max_tokens");
}

TEST(FieldError, FieldIsNotParsedFromTheMessage) {
  EXPECT_EQ(FieldOf(absl::InvalidArgumentError("max_tokens: must be at least 1, got 0")), "");
  EXPECT_EQ(FieldOf(absl::OkStatus()), "");
}

TEST(FieldError, WithFieldRenamesTheField) {
  absl::Status status = FieldError("prompt_ids", "token 7 is not in the vocabulary");
  status.SetPayload("other", absl::Cord("kept"));
  const absl::Status renamed = WithField(status, "prompt");
  EXPECT_EQ(renamed.message(), "prompt: token 7 is not in the vocabulary");
  EXPECT_EQ(FieldOf(renamed), "prompt");
  EXPECT_EQ(renamed.GetPayload("other"), absl::Cord("kept"));
  EXPECT_EQ(WithField(absl::InternalError("page 3"), "prompt"), absl::InternalError("page 3"));
}

}  // namespace
}  // namespace tandem
