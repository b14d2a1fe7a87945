#include "server/api/answer_writer.h"

#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(CacheUse, CountsEachPromptOnce) {
  ApiRequest request;
  request.n = 2;
  std::vector<Completion> completions(4);
  for (Completion& completion : completions) {
    completion.prompt_tokens = 1017;
    completion.cached_tokens = 1000;
    completion.store_tokens = 256;
    completion.transfer_tokens = 32;
  }
  completions[1].cached_tokens = 1008;  // the prompt's second sequence found the pages of the first
  const CacheUse use = CacheUse::Of(request, completions);
  EXPECT_EQ(use.Header(), "memory=1424 store=512 transfer=64 computed=34");
  EXPECT_EQ(use.Details(), JsonValue({{"cached_tokens", 2000},
                                      {"memory_tokens", 1424},
                                      {"store_tokens", 512},
                                      {"transfer_tokens", 64}}));
}

}  // namespace
}  // namespace tandem
