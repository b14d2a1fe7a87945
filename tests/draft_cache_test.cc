// The draft's KV cache, which can have its own type.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_testing.h"
#include "engine/runtime.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr const char* kTypes[] = {"f32", "bf16", "int8"};

// Pages are shared, copied and freed, and either of the two caches is rounded.
TEST(DraftCache, ChangesNoOutputWithAnyType) {
  const GoldenPair pair("perturbed");
  std::vector<Request> requests = PlainRequests(PromptsFrom(pair.prompt_ids, 6), 16);
  for (const std::string target : kTypes) {
    EngineOptions plain_options = CpuOptionsFor(pair.target, "");
    plain_options.kv_cache = target;
    plain_options.max_batch = 1;
    plain_options.prefix_cache = false;
    for (Request& request : requests) request.draft_tokens = 0;
    const auto plain = GenerateAll(MakeEngine(plain_options).get(), requests);
    for (Request& request : requests) request.draft_tokens = 3;
    for (const std::string draft : kTypes) {
      SCOPED_TRACE(absl::StrCat("target ", target, " draft ", draft));
      EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
      options.kv_cache = target;
      options.draft_kv_cache = draft;
      options.max_batch = 3;
      options.page_size = 4;
      options.kv_memory_bytes = 24 * KvBytesFor(pair.target, pair.draft, 4);
      const auto engine = MakeEngine(options);
      EXPECT_EQ(engine->target_info().kv_cache, target);
      EXPECT_EQ(engine->draft_info()->kv_cache, draft);
      int64_t accepted = 0;
      for (int run = 0; run < 2; ++run) {
        const auto got = GenerateAll(engine.get(), requests);
        for (size_t i = 0; i < got.size(); ++i) {
          ExpectSameOutput(got[i], plain[i]);
          accepted += got[i].stats.accepted;
        }
      }
      EXPECT_GT(accepted, 0);
    }
  }
}

// Both caches hold the same number of tokens, so a smaller type in one leaves more memory for both.
TEST(DraftCache, MemoryIsSplitByTheBytesOfATokenInBothCaches) {
  const GoldenPair pair("perturbed");
  EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
  options.kv_memory_bytes = 1 << 20;
  int pages_before = 0;
  for (const std::string draft : {"", "bf16", "int8"}) {
    options.draft_kv_cache = draft;
    const auto runtime = Runtime::Load(options);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    const PagedKvCache& target_cache = *runtime->target_cache;
    const PagedKvCache& draft_cache = *runtime->draft_cache;
    EXPECT_EQ(target_cache.layout().dtype, KvDType::kF32);
    EXPECT_EQ(std::string(NameOf(draft_cache.layout().dtype)), draft.empty() ? "f32" : draft);
    EXPECT_EQ(target_cache.num_pages(), draft_cache.num_pages());
    const auto page_bytes = static_cast<int64_t>(target_cache.layout().page_bytes() +
                                                 draft_cache.layout().page_bytes());
    EXPECT_EQ(target_cache.num_pages(), options.kv_memory_bytes / page_bytes);
    EXPECT_GT(target_cache.num_pages(), pages_before) << draft;
    pages_before = target_cache.num_pages();
  }
}

TEST(DraftCache, HasTheTargetsTypeByDefault) {
  EngineOptions options{.target = "t", .kv_cache = "bf16"};
  EXPECT_EQ(options.kv_cache_of_draft(), "bf16");
  options.draft_kv_cache = "f32";
  EXPECT_EQ(options.kv_cache_of_draft(), "f32");
  EXPECT_TRUE(options.Validate().ok());
  options.draft_kv_cache = "int4";
  EXPECT_THAT(std::string(options.Validate().message()),
              HasSubstr("draft_kv_cache: \"int4\" is not one of auto, f32, bf16, int8"));
}

}  // namespace
}  // namespace tandem
