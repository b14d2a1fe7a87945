#include "server/api/admission.h"

#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using Places = std::vector<Admission::Place>;

// Tries every request on every server of up to 20 places.
TEST(Admission, RequestsUseAtMostHalfOfTheFreePlaces) {
  for (int capacity = 1; capacity <= 20; ++capacity) {
    for (int inside = 0; inside <= capacity; ++inside) {
      for (int count = 1; count <= capacity + 1; ++count) {
        Admission admission(capacity);
        Places others;
        for (int i = 0; i < inside; ++i) {
          absl::StatusOr<Places> one = admission.Enter(1);
          ASSERT_TRUE(one.ok()) << "a single sequence is admitted while a place is free";
          others.push_back(std::move((*one)[0]));
        }
        const absl::StatusOr<Places> places = admission.Enter(count);
        const int left = capacity - inside - count;
        EXPECT_EQ(places.ok(), left >= count - 1 && left >= 0)
            << capacity << " " << inside << " " << count;
        EXPECT_EQ(admission.num_inside(), inside + (places.ok() ? count : 0));
        if (!places.ok()) {
          EXPECT_EQ(places.status().code(), absl::StatusCode::kResourceExhausted);
        }
        if (inside == 0) {
          EXPECT_EQ(places.ok(), count <= admission.max_per_request());
        }
      }
    }
  }
}

TEST(Admission, MovedPlacesAreReleasedOnce) {
  Admission admission(8);
  {
    Places places = *admission.Enter(4);
    Admission::Place moved = std::move(places[0]);
    EXPECT_EQ(admission.num_inside(), 4);
    moved = std::move(places[1]);
    EXPECT_EQ(admission.num_inside(), 3);
    moved = Admission::Place();
    EXPECT_EQ(admission.num_inside(), 2);
    moved = std::move(places[2]);
    places.clear();
    EXPECT_EQ(admission.num_inside(), 1);
  }
  EXPECT_EQ(admission.num_inside(), 0);
}

TEST(ByteBudget, MovedSharesAreReleasedOnce) {
  ByteBudget budget(10);
  {
    ByteBudget::Share share = *budget.Take(6);
    EXPECT_EQ(budget.Take(5).status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(budget.num_held(), 6);
    ByteBudget::Share other = *budget.Take(4);
    share = std::move(other);
    EXPECT_EQ(budget.Take(11).status().code(), absl::StatusCode::kResourceExhausted);
    share = {};
  }
  EXPECT_EQ(budget.num_held(), 0);
  EXPECT_TRUE(budget.Take(10).ok());
}

TEST(Admission, ClosedAdmissionRefusesRequests) {
  Admission admission(8);
  Places places = *admission.Enter(1);
  admission.Close(absl::DataLossError("the device is lost"));
  admission.Close(absl::UnavailableError("the server is stopping"));
  EXPECT_EQ(admission.Enter(1).status(), absl::DataLossError("the device is lost"));
  EXPECT_FALSE(admission.AwaitEmpty(absl::ZeroDuration()));
  places.clear();
  EXPECT_TRUE(admission.AwaitEmpty(absl::ZeroDuration()));
}

}  // namespace
}  // namespace tandem
