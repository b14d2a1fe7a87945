#include "tools/other_names.h"

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

using Words = std::vector<std::string>;

class OtherNames : public testing::Test {
 protected:
  OtherNames() {
    app_.fallthrough();
    app_.add_option("--log-level", text_);
    CLI::App* generate = app_.add_subcommand("generate");
    for (const char* name : {"-m,--target", "-p,--prompt", "--prompt-file", "--draft", "--threads",
                             "--system", "--temperature", "--draft-tokens", "--seed"}) {
      generate->add_option(name, text_);
    }
    generate->add_flag("--json");
    app_.add_subcommand("tokenize")->add_option("-m,--tokenizer", text_);
    app_.add_subcommand("perplexity")->add_option("--file", text_);
  }

  absl::StatusOr<Words> WordsOf(const Words& words) const {
    ASSIGN_OR_RETURN(const TypedWords typed, tandem::WordsOf(&app_, words));
    return WordsIn(typed.entries);
  }
  void ExpectWords(const Words& words, const Words& expected) const {
    const auto found = WordsOf(words);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_THAT(*found, ElementsAreArray(expected));
  }

 protected:
  CLI::App app_{"", "tandem"};
  std::string text_;
};

TEST_F(OtherNames, BecomeTheOptionsOfTheCommand) {
  ExpectWords({"generate", "--model", "a", "-md", "b", "-t", "4", "-f", "c", "-sys", "d"},
              {"generate", "--target", "a", "--draft", "b", "--threads", "4", "--prompt-file", "c",
               "--system", "d"});
  ExpectWords({"generate", "-hf", "a/b", "-hfd", "c/d"},
              {"generate", "--target", "a/b", "--draft", "c/d"});
  ExpectWords({"generate", "--temp=0", "--draft-max", "3", "-s", "1"},
              {"generate", "--temperature=0", "--draft-tokens", "3", "--seed", "1"});
  ExpectWords({"tokenize", "--model", "a"}, {"tokenize", "--tokenizer", "a"});
  ExpectWords({"perplexity", "-f", "a"}, {"perplexity", "--file", "a"});
  ExpectWords({"perplexity", "--file", "a"}, {"perplexity", "--file", "a"});
  ExpectWords({"--log-level", "off", "generate", "-help"},
              {"--log-level", "off", "generate", "--help"});
}

TEST_F(OtherNames, StayInValues) {
  ExpectWords({"generate", "-p", "-md", "--json", "-t", "-hf"},
              {"generate", "-p", "-md", "--json", "--threads", "-hf"});
  ExpectWords({"--log-level", "generate", "generate", "-t", "1"},
              {"--log-level", "generate", "generate", "--threads", "1"});
  ExpectWords({"generate", "--", "-t", "-hf"}, {"generate", "--", "-t", "-hf"});
}

TEST_F(OtherNames, ComeWithTheValuesOfTheOptions) {
  const TypedWords typed =
      *tandem::WordsOf(&app_, {"--log-level", "off", "generate", "--temp=0", "-md", "a",
                               "--seed=", "1", "-ma", "--json", "-t"});
  EXPECT_EQ(typed.command->get_name(), "generate");
  EXPECT_EQ(typed.num_before, 2u);
  std::vector<std::string> found;
  for (const OptionWords& entry : typed.entries) {
    found.push_back(absl::StrCat(entry.option == nullptr ? "" : entry.option->get_name(), "|",
                                 absl::StrJoin(entry.words, " ")));
  }
  EXPECT_THAT(found, ElementsAreArray({"--log-level|--log-level off", "|generate",
                                       "--temperature|--temperature=0", "--draft|--draft a",
                                       "--seed|--seed= 1", "--target|-ma", "--json|--json",
                                       "--threads|--threads"}));
  EXPECT_EQ(tandem::WordsOf(&app_, {"--log-level", "off"})->command, &app_);
}

TEST_F(OtherNames, WithoutAnOptionGetAdvice) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"generate", "-ngl", "99"}, "-ngl: no such option of `tandem generate`: --device cuda:0"},
      {{"generate", "--n-gpu-layers=99"}, "--n-gpu-layers: no such option of `tandem generate`: "},
      {{"-hf", "owner/model"}, "-hf: no such option of `tandem`; see"},
      {{"generate", "-hff", "a.gguf"}, "-hff: no such option of `tandem generate`: name the file"},
      {{"generate", "-cnv"}, "`tandem chat` holds a conversation"},
      // The parser would take these for -h and -m.
      {{"generate", "-hx"}, "-hx: no such option of `tandem generate`; see"},
      {{"tokenize", "-md", "a"}, "-md: no such option of `tandem tokenize`; see"}};
  for (const auto& [words, message] : cases) {
    const absl::Status status = WordsOf(words).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace tandem
