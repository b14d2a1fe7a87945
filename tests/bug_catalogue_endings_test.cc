// The bug catalogue (docs/bug_catalogue.md), section 7: streamed text and its timing.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/utf8.h"
#include "engine/engine_testing.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

// Row 71. In texts of random byte tokens, most characters are broken or split over tokens. Every
// piece is valid UTF-8 by itself, and the pieces join to the plain text however rounds cut it.
TEST(BugCatalogue, EveryPieceIsWholeCharactersRow71) {
  for (const std::string name : {"shallow", "perturbed"}) {
    const GoldenPair pair(name);
    EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
    options.callback_thread = CallbackThread::kEngine;  // one piece per round
    const std::unique_ptr<Engine> engine = MakeEngine(options);
    int num_held = 0;  // pieces with tokens but without text
    for (uint64_t seed = 0; seed < 12; ++seed) {
      std::string plain;
      for (const int k : {0, 1, 3, 8}) {
        SCOPED_TRACE(absl::StrCat(name, " seed ", seed, " k ", k));
        std::string streamed;
        const auto got = engine->Generate(
            {.prompt_ids = pair.prompt_ids,
             .max_tokens = 50,
             .sampling = {.temperature = 1.5f},
             .seed = seed,
             .ignore_eos = true,
             .draft_tokens = k},
            [&](const Piece& piece) {
              EXPECT_EQ(FindInvalidUtf8(piece.text), std::string_view::npos) << piece.text;
              num_held += piece.text.empty() && !piece.token_ids.empty();
              streamed += piece.text;
              return true;
            });
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_EQ(streamed, got->text);
        if (k == 0) plain = got->text;
        EXPECT_EQ(got->text, plain);
      }
    }
    EXPECT_GT(num_held, 10);
  }
}

// Row 73. Several tokens arrive together. The first round's tokens share the time to first token,
// and only the tokens after that round count in the time per token.
TEST(BugCatalogue, TimePerTokenCountsTokensNotPiecesRow73) {
  Timings timings;
  timings.time_to_first_token = absl::Milliseconds(100);
  timings.end_to_end = absl::Milliseconds(400);
  // 1 + 5 + 5 tokens at 100, 250 and 400 ms.
  EXPECT_EQ(timings.TimePerOutputToken(11, 1), absl::Milliseconds(30));
  // 6 + 5 + 5 tokens: ten of them in 300 ms.
  EXPECT_EQ(timings.TimePerOutputToken(16, 6), absl::Milliseconds(30));
  // All tokens arrive at once: the time between tokens is zero.
  EXPECT_EQ(timings.TimePerOutputToken(6, 6), absl::ZeroDuration());
  EXPECT_EQ(timings.TimePerOutputToken(0, 0), absl::ZeroDuration());
}

// The engine counts the tokens of its first round.
TEST(BugCatalogue, TheFirstRoundsTokensAreCountedRow73) {
  const GoldenPair pair("itself");
  const std::unique_ptr<Engine> engine = MakeEngine(DraftModelOptionsFor(pair.target, pair.draft));
  for (const int k : {0, 1, 5}) {
    const Completion got = Generate(engine.get(), {.prompt_ids = pair.prompt_ids,
                                                   .max_tokens = 30,
                                                   .sampling = kGreedy,
                                                   .ignore_eos = true,
                                                   .draft_tokens = k});
    EXPECT_EQ(got.first_round_tokens, k + 1);
    EXPECT_GT(got.timings.time_to_first_token, absl::ZeroDuration());
    EXPECT_GE(got.timings.end_to_end, got.timings.time_to_first_token);
  }
}

}  // namespace
}  // namespace tandem
