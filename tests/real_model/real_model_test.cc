// The real pair, SmolLM2 and its shipped draft, if the model was fetched: its answers make sense,
// and are the same with speculation.
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/generic_tools.h"
#include "tandem/json_value.h"
#include "tandem/model_places.h"
#include "tests/run_program.h"

namespace tandem {
namespace {

using Json = SortedJson;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kQuestion[] = "What is the capital of France, and what is it known for?";

class RealModel : public testing::Test {
 protected:
  void SetUp() override {
    const std::optional<PairPaths> pair = RealPair();
    if (!pair.has_value()) {
      GTEST_SKIP() << "the real pair is missing: run `tandem fetch smollm2`, and provide "
                      "models/smollm2-draft";
    }
    pair_ = *pair;
  }
  // Returns the greedy answer to a question. `more` are further options.
  static Json Answer(const std::string& question, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"generate",     "--chat", "--prompt",      question, "--json",
                                      "--max-tokens", "128",    "--temperature", "0"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramRun run = RunProgram(words);
    EXPECT_EQ(run.exit_status, 0) << run.err;
    return Json::parse(run.out, nullptr, /*allow_exceptions=*/false);
  }

  PairPaths pair_;
};

TEST_F(RealModel, IsTheDefaultAndAnswersTheSameWithItsDraft) {
  const Json alone = Answer(kQuestion, {"-k", "0"});
  EXPECT_THAT(alone["text"].get<std::string>(), HasSubstr("Paris"));
  EXPECT_EQ(alone["finish_reason"], "stop");
  for (const char* drafter : {"model", "ngram", "model+ngram"}) {
    const Json drafted = Answer(kQuestion, {"-k", "4", "--drafter", drafter});
    EXPECT_EQ(drafted["token_ids"], alone["token_ids"]) << drafter;
    EXPECT_EQ(drafted["text"], alone["text"]) << drafter;
    EXPECT_GT(drafted["speculation"]["proposed"], 0) << drafter;
  }
}

TEST_F(RealModel, DraftTokensAreAccepted) {
  const Json answer =
      Answer("Explain in a few sentences how rain forms.", {"-k", "1", "--drafter", "model"});
  // According to its card, half of single draft tokens are accepted. With the wrong vocabulary
  // almost none would be.
  EXPECT_GT(answer["speculation"]["acceptance_rate"], 0.2);
}

// The processes do not share any state, so the draft's head is the same in both.
TEST_F(RealModel, SelectsItsDraftByName) {
  const std::vector<std::string> named = {"--target", "smollm2", "-k", "1"};
  EXPECT_EQ(Answer("Explain how rain forms.", named)["speculation"]["drafter"], "eagle3+ngram");
  const Json answer =
      Answer("Explain how rain forms.",
             {"--target", "smollm2", "-k", "1", "--drafter", "model", "--packed-weights", "none"});
  EXPECT_GT(answer["speculation"]["accepted"], 0);
  const Json both =
      Answer("Explain how rain forms.", {"--target", "smollm2", "--draft", "smollm2-draft", "-k",
                                         "1", "--drafter", "model", "--packed-weights", "none"});
  EXPECT_EQ(both["token_ids"], answer["token_ids"]);
  EXPECT_EQ(both["speculation"]["proposed"], answer["speculation"]["proposed"]);
}

// The model's published template writes messages of any role, and does not mention tools.
TEST_F(RealModel, ReceivesToolsThatItsTemplateDoesNotMention) {
  const auto chat = ChatTemplate::Load(pair_.target);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_FALSE(chat->HasPlaceForTools());
  ChatInput input = ChatInputOf({{"user", "Is it raining?"}}, absl::UnixEpoch());
  input.tools = JsonValue::parse(R"([{"type": "function", "function": {"name": "weather"}}])");
  const auto parts = RenderChat(*chat, input);
  ASSERT_TRUE(parts.ok()) << parts.status();
  std::string prompt;
  for (const MarkedText& part : *parts) prompt += part.text;
  EXPECT_THAT(prompt, AllOf(testing::StartsWith("<|im_start|>system\n# Tools\n"),
                            HasSubstr("\"name\": \"weather\""),
                            testing::EndsWith("</tool_call><|im_end|>\n<|im_start|>user\n"
                                              "Is it raining?<|im_end|>\n"
                                              "<|im_start|>assistant\n")));
}

TEST_F(RealModel, RemembersInAConversation) {
  const ProgramRun run = RunProgram({"chat", "--temperature", "0", "--max-tokens", "48"},
                                    "Name a fruit that is yellow.\nName another one.\n/stats\n");
  EXPECT_EQ(run.exit_status, 0) << run.err;
  // The second prompt starts with the first one and its answer, so most of it was read from the
  // cache.
  EXPECT_THAT(run.err,
              AllOf(HasSubstr(pair_.target), HasSubstr(pair_.draft), Not(HasSubstr("(0 cached)"))));
}

TEST_F(RealModel, IsInspectedByItsName) {
  const ProgramRun run = RunProgram({"inspect", "smollm2", "--json", "--threads", "1"});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  const Json json = Json::parse(run.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(json["architecture"]["vocab_size"], 49152);
  EXPECT_EQ(json["tokenizer_size"], 49152);
  EXPECT_EQ(json["known_draft"], "smollm2-draft");
  EXPECT_EQ(json["chat_template"], (Json{{"tools", false}, {"reasoning", nullptr}}));
  EXPECT_EQ(json["eos_token_ids"], Json({2, 0, 4}));  // the same as in llama.cpp
}

}  // namespace
}  // namespace tandem
