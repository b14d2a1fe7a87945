#include "server/api/api_error.h"

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "model/sampling.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

TEST(ApiError, ReportsTheFieldOfTheStatus) {
  const SortedJson named = ErrorJson(FieldError("top_k", "-1 is not 0 or more"))["error"];
  EXPECT_EQ(named["param"], "top_k");
  EXPECT_EQ(named["message"], "top_k: -1 is not 0 or more");
  // Words before a colon are not a field.
  EXPECT_TRUE(ErrorJson(absl::InvalidArgumentError("cuda: is lost"))["error"]["param"].is_null());
}

TEST(ApiError, NotFoundKeepsFieldCodeAndStatus) {
  const absl::Status status = WithCode(FieldError("model", "is not here"), "model_not_found", 404);
  EXPECT_EQ(ErrorResponse(status).status, 404);
  EXPECT_EQ(ErrorJson(status)["error"]["code"], "model_not_found");
  EXPECT_EQ(ErrorJson(status)["error"]["param"], "model");
}

TEST(ApiError, NanLogitsAreAServerError) {
  EXPECT_EQ(ErrorResponse(StatusOf(RowState::kNoDistribution)).status, 500);
  EXPECT_EQ(ErrorResponse(StatusOf(RowState::kOverflows)).status, 400);  // at its temperature
}

}  // namespace
}  // namespace tandem
