#include "draft/make_drafter.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fake_model.h"

namespace tandem {
namespace {

using testing::HasSubstr;

TEST(MakeDrafter, KnowsItsNames) {
  FakeCache cache(/*page_size=*/3, /*num_pages=*/4);
  FakeModel model(cache.get(), {});
  const DrafterParts with_model{.model = &model, .cache = cache.get(), .target_vocab_size = 7};
  const auto name_of = [](const char* name, const DrafterParts& parts) {
    const auto drafter = MakeDrafter(name, parts);
    return !drafter.ok() ? "error" : *drafter == nullptr ? "null" : std::string((*drafter)->name());
  };
  for (const char* name : {"model", "ngram", "model+ngram"}) {
    EXPECT_EQ(name_of(name, with_model), name);
  }
  EXPECT_EQ(name_of("", with_model), "model");
  EXPECT_EQ(name_of("", {}), "ngram");
  EXPECT_EQ(name_of("ngram", {}), "ngram");
  EXPECT_EQ(name_of("none", with_model), "null");
  EXPECT_EQ(name_of("none", {}), "null");
  for (const auto& status :
       {MakeDrafter("model", {}).status(), MakeDrafter("model+ngram", {}).status(),
        MakeDrafter("oracle", with_model).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("drafter: "));
  }
}

}  // namespace
}  // namespace tandem
