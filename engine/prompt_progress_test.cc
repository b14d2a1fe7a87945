// Pieces that tell how much of a prompt has been read.
#include <string>
#include <vector>

#include "engine/delivery.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

// An engine that reads prompts in chunks of 4 tokens and delivers every piece on its own.
EngineOptions SmallChunks(const GoldenPair& pair) {
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  options.page_size = 4;
  options.chunk_tokens = 4;
  options.callback_thread = CallbackThread::kEngine;
  return options;
}

std::vector<OwnedPiece> PiecesOf(Engine* engine, const Request& request) {
  std::vector<OwnedPiece> pieces;
  const auto completion = engine->Generate(request, [&](const Piece& piece) {
    pieces.push_back(OwnedPiece::Of(piece));
    return true;
  });
  EXPECT_TRUE(completion.ok()) << completion.status();
  return pieces;
}

// Expects progress of a prompt of this length that grows up to the piece with the first token, and
// no further progress. Returns the tokens read.
std::vector<int> ExpectGrowing(const std::vector<OwnedPiece>& pieces, int total, int cached) {
  std::vector<int> read;
  absl::Duration time;
  bool is_read = false;
  for (const OwnedPiece& piece : pieces) {
    EXPECT_EQ(piece.prompt_progress.has_value(), !is_read);
    if (!piece.prompt_progress.has_value()) continue;
    const PromptProgress& progress = *piece.prompt_progress;
    EXPECT_EQ(progress.total, total);
    EXPECT_EQ(progress.cached, cached);
    EXPECT_GE(progress.time, time);
    time = progress.time;
    EXPECT_GT(progress.processed, read.empty() ? -1 : read.back());
    read.push_back(progress.processed);
    is_read = progress.processed == total;
    EXPECT_EQ(piece.is_progress(), !is_read);
  }
  EXPECT_TRUE(is_read);
  return read;
}

TEST(PromptProgress, CountsTheTokensReadAfterEachPass) {
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(SmallChunks(pair));
  std::vector<TokenId> prompt = pair.prompt_ids;
  prompt.insert(prompt.end(), pair.output_ids.begin(), pair.output_ids.begin() + 15);
  const int total = static_cast<int>(prompt.size());
  Request request{.prompt_ids = prompt, .max_tokens = 8, .sampling = kGreedy, .draft_tokens = 2};
  request.prompt_progress = true;
  const std::vector<int> first = ExpectGrowing(PiecesOf(engine.get(), request), total, 0);
  EXPECT_EQ(first.front(), 0);
  EXPECT_EQ(first.size(), static_cast<size_t>(1 + (total + 3) / 4));
  // The second time all full pages are cached.
  const int cached = (total - 1) / 4 * 4;
  const std::vector<int> second = ExpectGrowing(PiecesOf(engine.get(), request), total, cached);
  EXPECT_EQ(second, std::vector({cached, total}));
}

TEST(PromptProgress, IsNotReportedUnlessRequested) {
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(SmallChunks(pair));
  const Request request{
      .prompt_ids = pair.prompt_ids, .max_tokens = 8, .sampling = kGreedy, .draft_tokens = 2};
  for (const OwnedPiece& piece : PiecesOf(engine.get(), request)) {
    EXPECT_FALSE(piece.prompt_progress.has_value());
    EXPECT_FALSE(piece.token_ids.empty());
  }
}

TEST(PromptProgress, CountsAllTokensOfAPromptThatIsOnlyRead) {
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(SmallChunks(pair));
  Request request{.prompt_ids = pair.prompt_ids, .max_tokens = 0};
  request.prompt_progress = true;
  for (int time = 0; time < 2; ++time) {
    const std::vector<OwnedPiece> pieces = PiecesOf(engine.get(), request);
    ASSERT_FALSE(pieces.empty());
    EXPECT_EQ(pieces.back().prompt_progress->processed, static_cast<int>(pair.prompt_ids.size()));
  }
}

TEST(PromptProgress, MayEndItsGeneration) {
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(SmallChunks(pair));
  Request request{.prompt_ids = pair.prompt_ids, .max_tokens = 8};
  request.prompt_progress = true;
  for (const size_t most : {1, 2}) {
    std::vector<int> read;
    const auto got = engine->Generate(request, [&](const Piece& piece) {
      read.push_back(piece.prompt_progress->processed);
      return read.size() < most;
    });
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->finish_reason, FinishReason::kCancelled);
    EXPECT_EQ(read.size(), most);
    EXPECT_TRUE(got->token_ids.empty());
  }
  EXPECT_TRUE(engine->CheckIntegrity().ok());
}

// A generation that is preempted while it reads begins again. Once all is read, there is no further
// report, even if the prompt is read again.
TEST(PromptProgress, SurvivesPreemptions) {
  const GoldenPair pair("shallow");
  EngineOptions options = SmallChunks(pair);
  options.max_batch = 8;
  options.prefix_cache = false;
  options.kv_memory_bytes = KvBytesFor(pair.target, pair.draft, 64);
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  struct Seen {
    int total = 0;
    int falls = 0;
    int latest = -1;
    int reports_at_end = 0;
  };
  std::vector<Seen> seen(8);
  std::vector<GenerationId> ids;
  const auto prompts = PromptsFrom(pair.prompt_ids, 8);
  for (size_t i = 0; i < prompts.size(); ++i) {
    seen[i].total = static_cast<int>(prompts[i].size());
    Request request{
        .prompt_ids = prompts[i], .max_tokens = 45, .sampling = kGreedy, .ignore_eos = true};
    request.prompt_progress = true;
    const auto id = engine->Submit(request, [&of = seen[i]](const Piece& piece) {
      if (!piece.prompt_progress.has_value()) return true;
      of.falls += piece.prompt_progress->processed < of.latest;
      of.latest = piece.prompt_progress->processed;
      of.reports_at_end += of.latest == of.total;
      return true;
    });
    ASSERT_TRUE(id.ok()) << id.status();
    ids.push_back(*id);
  }
  int num_preemptions = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto completion = engine->Wait(ids[i]);
    ASSERT_TRUE(completion.ok()) << completion.status();
    num_preemptions += completion->num_preemptions;
    EXPECT_EQ(seen[i].latest, seen[i].total);
    EXPECT_EQ(seen[i].reports_at_end, 1);
    EXPECT_LE(seen[i].falls, completion->num_preemptions);
  }
  EXPECT_GT(num_preemptions, 0);
}

TEST(PromptProgress, JoinedPiecesHaveTheLatest) {
  const auto read = [](int processed) {
    return Piece{.text = "",
                 .token_ids = {},
                 .provenance = "",
                 .prompt_progress = PromptProgress{.total = 9, .processed = processed}};
  };
  OwnedPiece joined = OwnedPiece::Of(read(4));
  joined.Append(read(9));
  EXPECT_TRUE(joined.is_progress());
  const TokenId token = 5;
  joined.Append({.text = "a", .token_ids = {&token, 1}, .provenance = "p"});
  EXPECT_FALSE(joined.is_progress());
  EXPECT_EQ(joined.View().prompt_progress->processed, 9);
  EXPECT_EQ(joined.View().text, "a");
}

TEST(OwnedPiece, JoinsRejectedDrafts) {
  const std::vector<std::vector<TokenId>> first = {{1, 2}}, next = {{3}, {4, 5}};
  const std::vector<TokenId> tokens = {6, 7};
  OwnedPiece joined = OwnedPiece::Of({.text = "a",
                                      .token_ids = absl::MakeConstSpan(tokens).first(1),
                                      .provenance = "c",
                                      .rejected = first});
  const size_t size = joined.SizeInBytes();
  joined.Append({.text = "", .token_ids = tokens, .provenance = "cc", .rejected = next});
  EXPECT_THAT(joined.View().rejected, ::testing::ElementsAre(first[0], next[0], next[1]));
  EXPECT_GE(joined.SizeInBytes(), size + 3 * sizeof(TokenId));
}

}  // namespace
}  // namespace tandem
