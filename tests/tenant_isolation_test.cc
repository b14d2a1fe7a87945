// Requests of one tenant must not affect those of another.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/instant.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/engine.h"

namespace tandem {
namespace {

std::vector<Request> RequestsOf(const GoldenPair& pair, const std::string& salt,
                                float temperature) {
  std::vector<Request> requests;
  for (const std::vector<TokenId>& prompt : PromptsFrom(pair.prompt_ids, 4)) {
    Request request{.prompt_ids = prompt, .max_tokens = 40, .seed = 7, .ignore_eos = true};
    request.sampling.temperature = temperature;
    request.cache_salt = salt;
    requests.push_back(std::move(request));
  }
  return requests;
}

struct World {
  DrafterKind drafter;
  std::string before;  // the salt of the requests that run first; "-" for no such requests
  std::string salt;
  float temperature = 0.0f;
};

// The clock stands still, so that a round's choices depend on the texts alone.
std::vector<Completion> CompletionsIn(const GoldenPair& pair, const World& world) {
  const FakeClock clock;
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  options.drafter = world.drafter;
  options.draft_tokens = 4;
  options.page_size = 2;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  std::vector<Request> first;
  if (world.before != "-") first = RequestsOf(pair, world.before, world.temperature);
  for (const Request& request : first) Generate(engine.get(), request);
  std::vector<Completion> completions;
  for (const Request& request : RequestsOf(pair, world.salt, world.temperature)) {
    completions.push_back(Generate(engine.get(), request));
  }
  EXPECT_GT(engine->load().draft_memory_bytes, 0);
  EXPECT_TRUE(engine->CheckIntegrity().ok());
  return completions;
}

int64_t Sum(const std::vector<Completion>& completions,
            const std::function<int64_t(const Completion&)>& of) {
  int64_t sum = 0;
  for (const Completion& completion : completions) sum += of(completion);
  return sum;
}

// Rows 178 and 179 of the bug catalogue.
TEST(TenantIsolation, TextsOfOneTenantDoNotAffectAnother) {
  const GoldenPair pair("perturbed");
  for (const DrafterKind drafter :
       {DrafterKind::kNgram, DrafterKind::kModel, DrafterKind::kModelAndNgram}) {
    for (const float temperature : {0.0f, 0.7f}) {
      const auto alone = CompletionsIn(
          pair, {.drafter = drafter, .before = "-", .salt = "b", .temperature = temperature});
      for (const std::string before : {"a", ""}) {
        const auto after = CompletionsIn(
            pair, {.drafter = drafter, .before = before, .salt = "b", .temperature = temperature});
        for (size_t i = 0; i < alone.size(); ++i) {
          ExpectSameOutput(after[i], alone[i]);
          ExpectSameCounts(after[i].stats, alone[i].stats);
          EXPECT_EQ(after[i].provenance, alone[i].provenance);
          EXPECT_EQ(after[i].cached_tokens, alone[i].cached_tokens);
        }
      }
    }
  }
}

// The other half: the same requests of the same tenant do use its earlier state, with and without a
// salt, and give the same text.
TEST(TenantIsolation, TextsOfATenantHelpItsOwnRequests) {
  const GoldenPair pair("perturbed");
  for (const std::string salt : {"", "b"}) {
    const auto alone =
        CompletionsIn(pair, {.drafter = DrafterKind::kNgram, .before = "-", .salt = salt});
    const auto after =
        CompletionsIn(pair, {.drafter = DrafterKind::kNgram, .before = salt, .salt = salt});
    for (size_t i = 0; i < alone.size(); ++i) ExpectSameOutput(after[i], alone[i]);
    const auto rounds = [](const Completion& c) { return c.stats.rounds; };
    const auto cached = [](const Completion& c) { return int64_t{c.cached_tokens}; };
    EXPECT_LT(Sum(after, rounds), Sum(alone, rounds));
    EXPECT_GT(Sum(after, cached), Sum(alone, cached));
  }
}

TEST(TenantIsolation, WithoutMemoryNothingIsRemembered) {
  const GoldenPair pair("perturbed");
  const FakeClock clock;
  EngineOptions options = CpuOptionsFor(pair.target, "");
  options.draft_tokens = 4;
  options.draft_memory_bytes = 0;
  options.prefix_cache = false;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  const Request request = RequestsOf(pair, "", 0.0f).back();
  const Completion first = Generate(engine.get(), request);
  ExpectSameCounts(Generate(engine.get(), request).stats, first.stats);
  EXPECT_EQ(engine->load().draft_memory_bytes, 0);
}

TEST(TenantIsolation, RefusesImpossibleValuesByName) {
  const GoldenPair pair("perturbed");
  EngineOptions options = CpuOptionsFor(pair.target, "");
  options.draft_memory_bytes = -1;
  EXPECT_THAT(std::string(options.Validate().message()), testing::HasSubstr("draft_memory"));
  options.draft_memory_bytes = 0;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  Request request = RequestsOf(pair, std::string(1024, 's'), 0.0f).front();
  EXPECT_TRUE(engine->Generate(request).ok());
  request.cache_salt += "s";
  EXPECT_THAT(std::string(engine->Generate(request).status().message()),
              testing::HasSubstr("cache_salt: must be at most 1024 bytes, got 1025"));
}

}  // namespace
}  // namespace tandem
