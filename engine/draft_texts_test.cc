// Texts that are given to draft from, in whole engines.
#include "tandem/draft_texts.h"

#include <memory>
#include <string>
#include <vector>

#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Nothing is remembered, so that tokens of the source `text` come from given texts alone.
EngineOptions TextOptions() {
  EngineOptions options =
      CpuOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m"));
  options.draft_memory_bytes = 0;
  options.all_drafters = true;
  return options;
}

Request AskForStory() {
  return {.prompt = "Once upon a time there was a",
          .max_tokens = 60,
          .sampling = kGreedy,
          .draft_tokens = 6,
          .drafter = DrafterKind::kNgram};
}

RoundStats::SourceCounts OfText(const Completion& completion) {
  return completion.stats.Of(DraftSource::kText);
}

TEST(GivenTexts, AreDraftsFromTheFirstTokensOnAndChangeNoOutput) {
  const std::unique_ptr<Engine> engine = MakeEngine(TextOptions());
  for (const float temperature : {0.0f, 0.8f}) {
    Request request = AskForStory();
    request.sampling.temperature = temperature;
    request.seed = 5;
    request.verifier = AcceptanceRule::kExactMatch;
    request.draft_tokens = 0;
    const Completion plain = Generate(engine.get(), request);
    EXPECT_EQ(OfText(plain).proposed, 0);
    const auto added =
        engine->AddDraftText({.name = "story", .texts = {request.prompt + plain.text}});
    ASSERT_TRUE(added.ok()) << added.status();
    for (const DrafterKind drafter : {DrafterKind::kNgram, DrafterKind::kModelAndNgram}) {
      for (const int k : {1, 6, kAutoDraftTokens}) {
        request.draft_tokens = k;
        request.drafter = drafter;
        const Completion got = Generate(engine.get(), request);
        ExpectSameOutput(got, plain);
        ExpectConsistent(got);
        if (drafter != DrafterKind::kNgram || k != 6) continue;
        EXPECT_GT(OfText(got).accepted, 40);  // of 60 tokens
        EXPECT_LT(got.stats.rounds, 15);
      }
    }
    // Wrong texts cost only rounds.
    ASSERT_TRUE(engine->RemoveDraftText(added->id, "").ok());
    const auto wrong = engine->AddDraftText({.texts = {"there was a there was a big there"}});
    ASSERT_TRUE(wrong.ok());
    ExpectSameOutput(Generate(engine.get(), request), plain);
    ASSERT_TRUE(engine->RemoveDraftText(wrong->id, "").ok());
  }
}

TEST(GivenTexts, ServeTheirTenantOnly) {
  const std::unique_ptr<Engine> engine = MakeEngine(TextOptions());
  Request request = AskForStory();
  request.draft_tokens = 0;
  const Completion plain = Generate(engine.get(), request);
  request.draft_tokens = 6;
  const std::string text = request.prompt + plain.text;
  const auto added = engine->AddDraftText({.texts = {text}, .cache_salt = "a"});
  ASSERT_TRUE(added.ok());
  EXPECT_THAT(engine->DraftTexts(""), IsEmpty());
  EXPECT_THAT(engine->DraftTexts("b"), IsEmpty());
  EXPECT_THAT(engine->DraftTexts("a"), SizeIs(1));
  EXPECT_EQ(engine->load().draft_text_bytes, added->bytes);
  for (const char* salt : {"", "b", "a"}) {
    request.cache_salt = salt;
    const Completion got = Generate(engine.get(), request);
    EXPECT_EQ(OfText(got).proposed > 0, request.cache_salt == "a") << salt;
    ExpectSameOutput(got, plain);
  }
  EXPECT_FALSE(engine->RemoveDraftText(added->id, "b").ok());
  EXPECT_TRUE(engine->RemoveDraftText(added->id, "a").ok());
  EXPECT_EQ(engine->load().draft_text_bytes, 0);
  EXPECT_EQ(OfText(Generate(engine.get(), request)).proposed, 0);
}

TEST(GivenTexts, MayBeFilesOfTheOptions) {
  const TestFolder folder;
  EngineOptions options = TextOptions();
  options.draft_texts = {folder.Write("a.txt", "Once upon a time there was a little cat."),
                         folder.Write("b.jsonl", "\"One day a dog\"\n{\"text\": \"Tom ran\"}\n")};
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  const std::vector<DraftTextInfo> texts = engine->DraftTexts("");
  ASSERT_THAT(texts, SizeIs(2));
  EXPECT_EQ(texts[0].name, options.draft_texts[0]);
  EXPECT_EQ(texts[1].num_texts, 2);
  EXPECT_GT(OfText(Generate(engine.get(), AskForStory())).proposed, 0);
}

TEST(GivenTexts, InFilesThatCannotBeReadAreNamed) {
  const TestFolder folder;
  const std::string wrong = folder.Write("c.jsonl", "3\n");
  for (const auto& [path, what] : std::vector<std::pair<std::string, std::string>>{
           {"/nonexistent/text", "/nonexistent/text"}, {wrong, ":1: found 3, allowed: "}}) {
    EngineOptions options = TextOptions();
    options.draft_texts = {path};
    const auto engine = Engine::Create(options);
    ASSERT_FALSE(engine.ok());
    EXPECT_THAT(std::string(engine.status().message()), HasSubstr("draft_texts: " + path));
    EXPECT_THAT(std::string(engine.status().message()), HasSubstr(what));
  }
  EngineOptions options = TextOptions();
  options.draft_text_bytes = 0;
  options.draft_texts = {folder.Write("a.txt", "Once upon a time")};
  const auto engine = Engine::Create(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("draft_texts: "));
}

}  // namespace
}  // namespace tandem
