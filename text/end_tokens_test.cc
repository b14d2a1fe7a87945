#include "text/end_tokens.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using testing::ElementsAre;

TEST(EndTokens, FindsNamesInTheTokenizerOfAFolder) {
  const SortedJson json = {
      {"model",
       {{"type", "BPE"}, {"vocab", {{"a", 0}, {"</s>", 1}}}, {"merges", SortedJson::array()}}},
      {"added_tokens", {{{"id", 2}, {"content", "<|im_end|>"}, {"special", true}}}}};
  const auto tokenizer = Tokenizer::Parse(json.dump(), "", "tokenizer.json").value();
  ModelConfig config;
  config.eos_token_ids = {1};
  EXPECT_THAT(EndTokensOf(config, *tokenizer), ElementsAre(1, 2));
  config.has_ends_by_name = true;
  EXPECT_THAT(EndTokensOf(config, *tokenizer), ElementsAre(1));
}

}  // namespace
}  // namespace tandem
