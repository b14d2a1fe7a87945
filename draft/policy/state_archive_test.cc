#include "draft/policy/state_archive.h"

#include <limits>

#include "gtest/gtest.h"

namespace tandem {
namespace {

struct State {
  double real = 0.0;
  int count = 0;
  bool flag = false;

  void Serialize(StateArchive* archive) {
    archive->Pass(-1.0, 1.0, &real);
    archive->Pass(0, 9, &count);
    archive->Pass(&flag);
  }
};

TEST(StateArchive, ReadsWhatItWrote) {
  State state = {.real = 0.1, .count = 7, .flag = true};
  StateArchive written;
  state.Serialize(&written);
  EXPECT_FALSE(written.is_reading());
  StateArchive read(written.numbers());
  EXPECT_TRUE(read.is_reading());
  State copy;
  copy.Serialize(&read);
  EXPECT_TRUE(read.is_complete());
  EXPECT_EQ(copy.real, state.real);
  EXPECT_EQ(copy.count, state.count);
  EXPECT_EQ(copy.flag, state.flag);
}

TEST(StateArchive, ClampsNumbersThatItWrites) {
  State state = {.real = -5.0, .count = 12, .flag = false};
  StateArchive written;
  state.Serialize(&written);
  EXPECT_EQ(written.numbers(), (std::vector<double>{-1.0, 9.0, 0.0}));
}

TEST(StateArchive, RejectsMissingExtraAndInvalidNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<double>& numbers : std::vector<std::vector<double>>{{},
                                                                             {0.0, 0.0},
                                                                             {0.0, 0.0, 1.0, 1.0},
                                                                             {1.5, 0.0, 1.0},
                                                                             {0.5, 10.0, 1.0},
                                                                             {nan, 0.0, 1.0},
                                                                             {0.5, -1.0, 1.0},
                                                                             {0.5, 1.0, 2.0},
                                                                             {0.5, nan, 1.0}}) {
    StateArchive read(numbers);
    State state;
    state.Serialize(&read);
    EXPECT_FALSE(read.is_complete());
  }
  StateArchive read({nan, 3.0, 1.0});
  State state;
  state.Serialize(&read);
  EXPECT_EQ(state.real, 0.0);
  EXPECT_EQ(state.count, 0);
}

}  // namespace
}  // namespace tandem
