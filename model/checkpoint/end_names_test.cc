#include "model/checkpoint/end_names.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

using Vocabulary = std::map<std::string, TokenId, std::less<>>;

std::vector<TokenId> EndsOf(const Vocabulary& vocabulary, std::vector<TokenId> ends = {},
                            absl::string_view stated = "") {
  const auto id_of = [&](std::string_view name) {
    const auto it = vocabulary.find(name);
    return it == vocabulary.end() ? -1 : it->second;
  };
  AddEndsByName(
      id_of, [&](const FillEnd& part) { return part.gguf_key == std::string(stated); }, &ends);
  return ends;
}

// Expected: the end tokens that llama.cpp finds in these vocabularies.
TEST(EndTokens, MatchTheReference) {
  const Vocabulary qwen = {{"a", 1},
                           {"</s>", 128247},
                           {"<|endoftext|>", 151643},
                           {"<|im_start|>", 151644},
                           {"<|im_end|>", 151645},
                           {"<|fim_prefix|>", 151659},
                           {"<|fim_middle|>", 151660},
                           {"<|fim_suffix|>", 151661},
                           {"<|fim_pad|>", 151662},
                           {"<|repo_name|>", 151663},
                           {"<|file_sep|>", 151664}};
  EXPECT_THAT(EndsOf(qwen, {151645}),
              UnorderedElementsAre(128247, 151643, 151645, 151662, 151663, 151664));
  const Vocabulary smollm = {{"<|endoftext|>", 0}, {"<|im_start|>", 1}, {"<|im_end|>", 2},
                             {"<repo_name>", 3},   {"<reponame>", 4},   {"<file_sep>", 5}};
  EXPECT_THAT(EndsOf(smollm, {2}), UnorderedElementsAre(0, 2, 4));
}

TEST(EndTokens, StatedIdsComeFirstAndReplaceTheirNames) {
  const Vocabulary vocabulary = {{"<eos>", 3}, {"<|im_end|>", 4}, {"<PAD>", 5}, {"[PAD]", 6}};
  EXPECT_THAT(EndsOf(vocabulary, {9, 3}), ElementsAre(9, 3, 4, 5));
  EXPECT_THAT(EndsOf(vocabulary, {9, 3}, "tokenizer.ggml.fim_pad_token_id"), ElementsAre(9, 3, 4));
  EXPECT_THAT(EndsOf({}, {7}), ElementsAre(7));
}

TEST(EndTokens, OmitTokensThatEndOnlyAPartOfAnAnswer) {
  EXPECT_THAT(EndsOf({{"<|return|>", 1}, {"<|call|>", 2}, {"<|end|>", 3}}),
              UnorderedElementsAre(1, 2));
  EXPECT_THAT(EndsOf({{"<|calls|>", 1}, {"<|flush|>", 2}, {"<|end|>", 3}}),
              UnorderedElementsAre(1, 2));
  EXPECT_THAT(EndsOf({{"<|call|>", 2}, {"<|end|>", 3}}), UnorderedElementsAre(2, 3));
  EXPECT_THAT(EndsOf({{"<|tool_response>", 1}, {"</s>", 2}, {"<eos>", 3}}),
              UnorderedElementsAre(1, 3));
}

}  // namespace
}  // namespace tandem
