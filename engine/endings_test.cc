// How generations end, at any position in a draft: stop tokens, stop strings, lengths and contexts.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "engine/engine_testing.h"
#include "gtest/gtest.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"

namespace tandem {
namespace {

// Returns how many tokens come out and why they end: at the first `stop` in `ids`, or at the cap.
std::pair<int, FinishReason> EndOf(const std::vector<TokenId>& ids, TokenId stop, int cap) {
  const int found = static_cast<int>(std::find(ids.begin(), ids.end(), stop) - ids.begin());
  return found < cap ? std::pair(found + 1, FinishReason::kStop)
                     : std::pair(cap, FinishReason::kLength);
}

TEST(Engine, StopTokensAndLengthsCutTheSameAtEveryDraftLength) {
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
  for (int offset = 0; offset < 14; ++offset) {
    for (int cap = 1; cap <= 14; ++cap) {
      for (const int k : {0, 3, 8}) {
        SCOPED_TRACE(absl::StrCat("stop at ", offset, " cap ", cap, " k ", k));
        const TokenId stop = pair.output_ids[offset];
        const auto [size, reason] = EndOf(pair.output_ids, stop, cap);
        const Completion got = Generate(engine.get(), {.prompt_ids = pair.prompt_ids,
                                                       .max_tokens = cap,
                                                       .sampling = kGreedy,
                                                       .stop_tokens = {stop},
                                                       .ignore_eos = true,
                                                       .draft_tokens = k,
                                                       .logprobs = {.num_top = 0}});
        std::vector<TokenId> want(pair.output_ids.begin(), pair.output_ids.begin() + size);
        EXPECT_EQ(got.token_ids, want);
        EXPECT_EQ(got.finish_reason, reason);
        EXPECT_EQ(got.logprobs.size(), got.token_ids.size());
        if (reason == FinishReason::kStop)
          want.pop_back();  // the stop token's own text is not shown
        EXPECT_EQ(got.text, engine->tokenizer().Decode(want, /*skip_special=*/true));
        ExpectConsistent(got);
      }
    }
  }
}

TEST(Engine, TheModelsOwnEndTokensStopUnlessIgnored) {
  const GoldenPair pair("perturbed");
  const ModelCopy target(pair.target);
  const TokenId end = pair.output_ids[5];
  target.WriteJson("generation_config.json", {{"eos_token_id", {end, 2}}});
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(target.path(), pair.draft));
  Request request{
      .prompt_ids = pair.prompt_ids, .max_tokens = 20, .sampling = kGreedy, .draft_tokens = 4};
  const Completion stopped = Generate(engine.get(), request);
  EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped.token_ids.size(), static_cast<size_t>(EndOf(pair.output_ids, end, 20).first));
  request.ignore_eos = true;
  EXPECT_EQ(Generate(engine.get(), request).token_ids.size(), 20u);
}

TEST(Engine, EndTokensKnownByNameStopUnlessIgnored) {
  const ModelCopy target(GoldenModelPath("qwen2-bias"));
  target.WriteJson("generation_config.json", {{"eos_token_id", 1}});
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(target.path(), ""));
  for (const char* const name : {"<|endoftext|>", "<|im_end|>"}) {
    Request request{.prompt_ids = {5, 6}, .max_tokens = 8, .sampling = kGreedy};
    request.sampling.logit_bias = {{engine->tokenizer().IdOf(name), 100.0f}};
    const Completion stopped = Generate(engine.get(), request);
    EXPECT_EQ(stopped.finish_reason, FinishReason::kStop) << name;
    EXPECT_EQ(stopped.token_ids.size(), 1u) << name;
    EXPECT_EQ(stopped.text, "") << name;
    request.ignore_eos = true;
    EXPECT_EQ(Generate(engine.get(), request).token_ids.size(), 8u) << name;
  }
}

// ---- min_tokens ----

// The definition of min_tokens, as two generations without it: the first tokens with the stop token
// forbidden, then the tokens after them.
std::vector<TokenId> EndingNoEarlier(Engine* engine, Request request, int min_tokens) {
  Request first = request;
  first.draft_tokens = request.draft_tokens = 0;
  first.max_tokens = min_tokens;
  first.sampling.logit_bias = {{request.stop_tokens[0], -100.0f}};
  std::vector<TokenId> ids;
  if (min_tokens > 0) ids = Generate(engine, first).token_ids;
  EXPECT_EQ(static_cast<int>(ids.size()), min_tokens);
  if (min_tokens == request.max_tokens) return ids;
  request.prompt_ids.insert(request.prompt_ids.end(), ids.begin(), ids.end());
  request.max_tokens -= min_tokens;
  for (const TokenId id : Generate(engine, request).token_ids) ids.push_back(id);
  return ids;
}

// The model chooses a stop token at every offset, before and after min_tokens.
TEST(Engine, StopTokensWaitForMinTokens) {
  constexpr int kMaxTokens = 12;
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
  int num_deferred = 0;
  for (const float temperature : {0.0f, 1.0f}) {
    Request request{.prompt_ids = pair.prompt_ids,
                    .max_tokens = kMaxTokens,
                    .sampling = {.temperature = temperature},
                    .seed = 3,
                    .ignore_eos = true,
                    .draft_tokens = 0,
                    .logprobs = {.num_top = 2}};
    const std::vector<TokenId> unstopped = Generate(engine.get(), request).token_ids;
    for (int offset = 0; offset < kMaxTokens; ++offset) {
      request.stop_tokens = {unstopped[offset]};
      for (int min_tokens = 0; min_tokens <= kMaxTokens; ++min_tokens) {
        request.sampling.min_tokens = min_tokens;
        request.draft_tokens = 0;
        const Completion plain = Generate(engine.get(), request);
        Request without = request;
        without.sampling.min_tokens = 0;
        EXPECT_EQ(plain.token_ids, EndingNoEarlier(engine.get(), without, min_tokens));
        num_deferred += min_tokens > offset;
        for (const int k : {1, 3, 8}) {
          for (const AcceptanceRule verifier : kAllRules) {
            if (temperature > 0.0f && verifier != AcceptanceRule::kExactMatch) continue;
            SCOPED_TRACE(absl::StrCat("T ", temperature, " stop at ", offset, " min ", min_tokens,
                                      " k ", k, " ", View(NameOf(verifier))));
            request.draft_tokens = k;
            request.verifier = verifier;
            const Completion got = Generate(engine.get(), request);
            ExpectSameOutput(got, plain);
            ExpectConsistent(got);
          }
        }
      }
    }
  }
  EXPECT_GT(num_deferred, 100);
}

TEST(Engine, TheModelsOwnEndTokensWaitForMinTokensUnlessIgnored) {
  const GoldenPair pair("perturbed");
  const ModelCopy target(pair.target);
  const TokenId end = pair.output_ids[2];
  target.WriteJson("generation_config.json", {{"eos_token_id", {end}}});
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(target.path(), pair.draft));
  Request request{.prompt_ids = pair.prompt_ids,
                  .max_tokens = 20,
                  .sampling = {.temperature = 0.0f, .min_tokens = 9},
                  .draft_tokens = 4};
  const Completion late = Generate(engine.get(), request);
  EXPECT_GE(late.token_ids.size(), 9u);
  EXPECT_EQ(std::count(late.token_ids.begin(), late.token_ids.begin() + 9, end), 0);
  request.ignore_eos = true;  // end tokens are then ordinary tokens
  const Completion ignored = Generate(engine.get(), request);
  EXPECT_EQ(ignored.token_ids,
            std::vector<TokenId>(pair.output_ids.begin(), pair.output_ids.begin() + 20));
}

// The draft applies min_tokens in each slot too, so its tokens are accepted as often as without it.
TEST(Engine, ADraftThatIsTheTargetIsAcceptedAroundMinTokens) {
  const GoldenPair pair("itself");
  const std::unique_ptr<Engine> engine = MakeEngine(DraftModelOptionsFor(pair.target, pair.draft));
  for (const AcceptanceRule verifier : kAllRules) {
    const Completion got =
        Generate(engine.get(), {.prompt_ids = pair.prompt_ids,
                                .max_tokens = 30,
                                .sampling = {.temperature = 1.0f, .min_tokens = 30},
                                .seed = 5,
                                .stop_tokens = {pair.output_ids[0], pair.output_ids[3]},
                                .draft_tokens = 4,
                                .verifier = verifier});
    EXPECT_EQ(got.finish_reason, FinishReason::kLength);
    EXPECT_EQ(got.stats.accepted, got.stats.proposed) << NameOf(verifier);
    // A stop token that comes as soon as it is allowed: the draft proposes it there and not
    // earlier.
    for (int min_tokens = 0; min_tokens < 12; ++min_tokens) {
      const Completion stopped = Generate(
          engine.get(), {.prompt_ids = pair.prompt_ids,
                         .max_tokens = 30,
                         .sampling = {.logit_bias = {{7, 100.0f}}, .min_tokens = min_tokens},
                         .seed = 6,
                         .stop_tokens = {7},
                         .draft_tokens = 4,
                         .verifier = verifier});
      EXPECT_EQ(static_cast<int>(stopped.token_ids.size()), min_tokens + 1);
      EXPECT_EQ(stopped.provenance, std::string("aaaabaaaabaaaab").substr(0, min_tokens + 1));
    }
  }
}

TEST(Engine, FailsIfMinTokensForbidsEveryToken) {
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
  for (const float temperature : {0.0f, 1.0f}) {
    Request request{.prompt_ids = pair.prompt_ids,
                    .max_tokens = 4,
                    .sampling = {.temperature = temperature, .min_tokens = 1}};
    for (TokenId id = 0; id < engine->target_info().vocab_size; ++id) {
      request.stop_tokens.push_back(id);
    }
    const auto got = engine->Generate(request);
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(got.status().message()).find("min_tokens"), std::string::npos)
        << got.status();
    request.stop_tokens.pop_back();  // one token is left
    const Completion one = Generate(engine.get(), request);
    EXPECT_EQ(one.token_ids[0], engine->target_info().vocab_size - 1);
  }
}

// ---- Stop strings ----

// Returns the offsets at which characters of a UTF-8 text start, and its size.
std::vector<size_t> CharacterStarts(const std::string& text) {
  std::vector<size_t> starts;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xc0) != 0x80) starts.push_back(i);
  }
  starts.push_back(text.size());
  return starts;
}

// Uses every three consecutive characters of the text as a stop string, with every cap.
void ExpectStopStringsCut(Engine* engine, const Request& base, size_t last_offset,
                          const std::vector<int>& caps) {
  const Completion all = Generate(engine, base);
  const std::vector<size_t> starts = CharacterStarts(all.text);
  ASSERT_GT(starts.size(), 6u);
  for (size_t offset = 0; offset + 3 < std::min(starts.size(), last_offset); ++offset) {
    const std::string stop = all.text.substr(starts[offset], starts[offset + 3] - starts[offset]);
    for (const int cap : caps) {
      Request request = base;
      request.stop = {stop};
      request.max_tokens = cap;
      request.draft_tokens = 0;
      const Completion plain = Generate(engine, request);
      if (plain.finish_reason == FinishReason::kStop) {
        EXPECT_EQ(plain.text, all.text.substr(0, all.text.find(stop)));
      } else {
        EXPECT_EQ(plain.text.find(stop), std::string::npos);
      }
      EXPECT_TRUE(
          std::equal(plain.token_ids.begin(), plain.token_ids.end(), all.token_ids.begin()));
      for (const int k : {3, 8}) {
        SCOPED_TRACE(absl::StrCat("stop at ", offset, " cap ", cap, " k ", k));
        request.draft_tokens = k;
        std::string streamed;
        const auto got = engine->Generate(request, [&](const Piece& piece) {
          streamed += piece.text;
          return true;
        });
        ASSERT_TRUE(got.ok()) << got.status();
        ExpectSameOutput(*got, plain);
        ExpectConsistent(*got);
        EXPECT_EQ(streamed, got->text);
      }
    }
  }
}

TEST(Engine, StopStringsCutTheSameAtEveryDraftLength) {
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
  ExpectStopStringsCut(engine.get(),
                       {.prompt_ids = pair.prompt_ids,
                        .max_tokens = 12,
                        .sampling = kGreedy,
                        .ignore_eos = true,
                        .logprobs = {.num_top = 0}},
                       100, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
}

TEST(Engine, StopStringsWaitForMinTokens) {
  const std::unique_ptr<Engine> engine = MakeEngine(
      CpuOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m")));
  Request request{.prompt = "Once upon a time",
                  .max_tokens = 12,
                  .sampling = kGreedy,
                  .stop = {"e"},
                  .draft_tokens = 0};
  size_t longest = 0;
  for (const int min_tokens : {0, 1, 2, 4, 7, 10, 12}) {
    request.sampling.min_tokens = min_tokens;
    request.draft_tokens = 0;
    const Completion plain = Generate(engine.get(), request);
    EXPECT_TRUE(plain.finish_reason == FinishReason::kLength ||
                static_cast<int>(plain.token_ids.size()) > min_tokens);
    longest = std::max(longest, plain.text.size());
    for (const int k : {1, 4, 8}) {
      request.draft_tokens = k;
      ExpectSameOutput(Generate(engine.get(), request), plain);
    }
  }
  request.stop.clear();
  request.sampling.min_tokens = 0;
  EXPECT_EQ(longest, Generate(engine.get(), request).text.size());  // with 12 the text is not cut
}

TEST(Engine, StopStringsCutTheShippedPairsText) {
  const std::unique_ptr<Engine> engine = MakeEngine(
      CpuOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m")));
  ExpectStopStringsCut(
      engine.get(), {.prompt = "Once upon a time", .max_tokens = 8, .sampling = kGreedy}, 30, {8});
}

TEST(Engine, ARejectedStopTokenDoesNotEndTheGeneration) {
  const GoldenPair pair("shallow");
  // Tokens that the draft proposes where the target chooses another, and that the target never
  // writes.
  std::vector<TokenId> stop;
  for (size_t i = 0; i < pair.output_ids.size(); ++i) {
    const TokenId drafted = pair.draft_ids_on_path[i];
    if (std::find(pair.output_ids.begin(), pair.output_ids.end(), drafted) ==
        pair.output_ids.end()) {
      stop.push_back(drafted);
    }
  }
  ASSERT_GT(stop.size(), 10u);
  const std::unique_ptr<Engine> engine = MakeEngine(DraftModelOptionsFor(pair.target, pair.draft));
  for (const AcceptanceRule verifier : kAllRules) {
    for (const SortedJson& run : pair.runs) {
      const Completion got = Generate(engine.get(), {.prompt_ids = pair.prompt_ids,
                                                     .max_tokens = 64,
                                                     .sampling = kGreedy,
                                                     .stop_tokens = stop,
                                                     .ignore_eos = true,
                                                     .draft_tokens = run["k"].get<int>(),
                                                     .verifier = verifier});
      EXPECT_EQ(got.token_ids, pair.output_ids);
      EXPECT_EQ(got.finish_reason, FinishReason::kLength);
      EXPECT_EQ(got.stats.proposed, run["proposed"]);  // it does not end the draft either
    }
  }
}

TEST(Engine, TheContextEndsAGeneration) {
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
  const int context = engine->target_info().context_length;
  EXPECT_EQ(context, 256);
  for (const int prompt_length : {context - 1, context - 2, context - 20}) {
    Request request{.prompt_ids = std::vector<TokenId>(prompt_length, 17),
                    .max_tokens = 100,
                    .sampling = kGreedy,
                    .ignore_eos = true,
                    .draft_tokens = 0};
    const Completion plain = Generate(engine.get(), request);
    EXPECT_EQ(plain.finish_reason, FinishReason::kLength);
    EXPECT_EQ(static_cast<int>(plain.token_ids.size()), context - prompt_length);
    for (int k = 1; k <= 8; ++k) {
      request.draft_tokens = k;
      ExpectSameOutput(Generate(engine.get(), request), plain);
    }
  }
}

TEST(Engine, DecodingContinuesBeyondTheDraftsContext) {
  const GoldenPair pair("perturbed");
  constexpr int kDraftContext = 40;
  const ModelCopy draft(pair.draft);
  draft.SetConfig("max_position_embeddings", kDraftContext);
  EngineOptions options = DraftModelOptionsFor(pair.target, draft.path());
  options.draft_window = 0;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  EXPECT_EQ(engine->draft_info()->context_length, kDraftContext);
  const int prompt_length = static_cast<int>(pair.prompt_ids.size());
  for (const int k : {1, 2, 3, 4, 5, 6, 7, 8, kAutoDraftTokens}) {
    SCOPED_TRACE(absl::StrCat("k ", k));
    const Completion got = Generate(engine.get(), {.prompt_ids = pair.prompt_ids,
                                                   .max_tokens = 64,
                                                   .sampling = kGreedy,
                                                   .ignore_eos = true,
                                                   .draft_tokens = k});
    EXPECT_EQ(got.token_ids, pair.output_ids);
    EXPECT_EQ(got.stats.draft_failures, 0);
    ExpectConsistent(got);
    if (k == kAutoDraftTokens) continue;
    // The last token that it can propose is the one just after its context.
    const size_t beyond = kDraftContext + 1 - prompt_length;
    EXPECT_EQ(got.provenance.substr(beyond + 1).find_first_not_of('p'), std::string::npos)
        << got.provenance;
    EXPECT_NE(got.provenance.substr(0, beyond).find('a'), std::string::npos);
  }
  // A prompt that is too long for the draft's context.
  const std::vector<TokenId> prompt(kDraftContext + 20, 33);
  Request request{.prompt_ids = prompt, .max_tokens = 10, .sampling = kGreedy, .draft_tokens = 4};
  const Completion got = Generate(engine.get(), request);
  request.draft_tokens = 0;
  ExpectSameOutput(got, Generate(engine.get(), request));
  EXPECT_EQ(got.stats.proposed, 0);
}

}  // namespace
}  // namespace tandem
