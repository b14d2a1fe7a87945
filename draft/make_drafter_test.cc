#include "draft/make_drafter.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/field_error.h"
#include "tests/fake_model.h"
#include "tests/status_testing.h"

namespace tandem {
namespace {

using testing::HasSubstr;

TEST(MakeDrafter, MakesEveryKind) {
  FakeCache cache(/*page_size=*/3, /*num_pages=*/4);
  FakeModel model(cache.get(), {});
  const DrafterParts with_model{.model = &model, .cache = cache.get(), .target_vocab_size = 7};
  const auto name_of = [](DrafterKind kind, const DrafterParts& parts) {
    const auto drafter = MakeDrafter(kind, parts);
    return !drafter.ok() ? "error" : *drafter == nullptr ? "null" : std::string((*drafter)->name());
  };
  for (const DrafterKind kind :
       {DrafterKind::kModel, DrafterKind::kNgram, DrafterKind::kModelAndNgram}) {
    EXPECT_EQ(name_of(kind, with_model), NameOf(kind));
  }
  EXPECT_EQ(name_of(DrafterKind::kAuto, with_model), "model+ngram");
  EXPECT_EQ(name_of(DrafterKind::kAuto, {}), "ngram");
  EXPECT_EQ(name_of(DrafterKind::kNgram, {}), "ngram");
  EXPECT_EQ(name_of(DrafterKind::kNone, with_model), "null");
  EXPECT_EQ(name_of(DrafterKind::kNone, {}), "null");
  for (const auto& status : {MakeDrafter(DrafterKind::kModel, {}).status(),
                             MakeDrafter(DrafterKind::kModelAndNgram, {}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("drafter: "));
    EXPECT_EQ(FieldOf(status), "drafter");
  }
}

TEST(MakeDrafter, MakesADrafterThatCanBeAnyKind) {
  FakeCache cache(/*page_size=*/3, /*num_pages=*/4);
  FakeModel model(cache.get(), {});
  const DrafterParts with_model{.model = &model, .cache = cache.get(), .target_vocab_size = 7};
  for (const DrafterKind usual : {DrafterKind::kAuto, DrafterKind::kNone, DrafterKind::kModel,
                                  DrafterKind::kNgram, DrafterKind::kModelAndNgram}) {
    ASSERT_OK_AND_ASSIGN(const auto every, MakeEveryDrafter(usual, with_model));
    EXPECT_EQ(every->name(), "model+ngram");
    const auto without = MakeEveryDrafter(usual, {});
    const bool needs_model = usual == DrafterKind::kModel || usual == DrafterKind::kModelAndNgram;
    ASSERT_EQ(without.ok(), !needs_model);
    if (!needs_model) {
      EXPECT_EQ((*without)->name(), "ngram");
    } else {
      EXPECT_EQ(FieldOf(without.status()), "drafter");
    }
  }
}

TEST(DrafterKind, ParsesItsName) {
  for (const char* name :
       {"auto", "none", "model", "ngram", "model+ngram", "eagle3", "eagle3+ngram"}) {
    ASSERT_OK_AND_ASSIGN(const auto kind, ParseDrafterKind(name));
    EXPECT_EQ(NameOf(kind), name);
  }
  const absl::Status status = ParseDrafterKind("oracle").status();
  EXPECT_EQ(FieldOf(status), "drafter");
  EXPECT_EQ(status.message(),
            "drafter: \"oracle\" is not one of auto, model, ngram, model+ngram, eagle3, "
            "eagle3+ngram, none");
}

}  // namespace
}  // namespace tandem
