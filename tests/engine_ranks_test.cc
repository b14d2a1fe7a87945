// Engines in which several processes compute each pass together.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden_file.h"
#include "tests/program_path.h"
#include "tests/store_world.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

EngineOptions OptionsFor(const GoldenPair& pair, int ranks) {
  EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
  options.page_size = 4;
  options.tensor_parallel = ranks;
  options.rank_program = ProgramPath();
  return options;
}

// Returns the processes that this one has started and that have not ended.
std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "children");
    for (pid_t child; file >> child;) children.push_back(child);
  }
  return children;
}

std::vector<Request> EveryKindOfRequest(const GoldenPair& pair) {
  std::vector<Request> requests;
  for (const AcceptanceRule rule :
       {AcceptanceRule::kExactMatch, AcceptanceRule::kToken, AcceptanceRule::kBlock}) {
    for (const float temperature : {0.0f, 0.8f}) {
      Request request = RequestFor(PromptOf(pair, 21));
      request.sampling.temperature = temperature;
      request.seed = 7;
      request.verifier = rule;
      requests.push_back(request);
    }
  }
  // A prefix hit, a prompt of one token, and a constraint.
  requests.push_back(RequestFor(PromptOf(pair, 33)));
  requests.push_back(RequestFor(PromptOf(pair, 1)));
  requests.push_back(RequestFor(PromptOf(pair, 9)));
  requests.back().ignore_eos = false;
  requests.back().constraint =
      OutputConstraint{.kind = OutputConstraint::Kind::kJsonObject, .text = {}};
  return requests;
}

void ExpectSameAnswers(Engine* got, Engine* want, const GoldenPair& pair) {
  for (const Request& request : EveryKindOfRequest(pair)) {
    const Completion one = Generate(want, request);
    const Completion other = Generate(got, request);
    ExpectSameOutput(other, one);
    ExpectSameCounts(other.stats, one.stats);
    EXPECT_EQ(other.cached_tokens, one.cached_tokens);
  }
  EXPECT_TRUE(got->CheckIntegrity().ok());
}

// Row 192 of the bug catalogue: the text, log-probabilities and acceptance of ranks equal those of
// one process.
TEST(EngineRanks, AnswerTheSameAsOneProcess) {
  for (const auto& [name, kv_cache] : {std::pair("perturbed", KvCacheType::kF32),
                                       {"perturbed", KvCacheType::kInt8},
                                       {"parallel/qwen2-parallel", KvCacheType::kF32}}) {
    const GoldenPair pair(name);
    for (const bool shares_draft : {false, true}) {
      EngineOptions options = OptionsFor(pair, 1);
      options.kv_cache = kv_cache;
      const auto reference = MakeEngine(options);
      options.tensor_parallel = 2;
      options.draft_tensor_parallel = shares_draft;
      options.chunk_tokens = 5;
      const auto engine = MakeEngine(options);
      EXPECT_THAT(Children(), SizeIs(1));
      ExpectSameAnswers(engine.get(), reference.get(), pair);
    }
  }
  EXPECT_THAT(Children(), IsEmpty());
}

TEST(EngineRanks, AnswerTheSameAsOneProcessUnderPreemption) {
  const GoldenPair pair("shallow");
  EngineOptions options = OptionsFor(pair, 1);
  options.max_batch = 4;
  options.kv_memory_bytes = KvBytesFor(pair.target, pair.draft, 60);
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    std::vector<TokenId> prompt = PromptOf(pair, 20);
    prompt[0] = i + 1;  // no prefix in common
    requests.push_back(RequestFor(prompt));
    requests.back().max_tokens = 24;
  }
  const auto reference = MakeEngine(options);
  options.tensor_parallel = 3;
  const auto engine = MakeEngine(options);
  const std::vector<Completion> want = GenerateAll(reference.get(), requests);
  const std::vector<Completion> got = GenerateAll(engine.get(), requests);
  for (size_t i = 0; i < want.size(); ++i) ExpectSameOutput(got[i], want[i]);
  int64_t preemptions = 0;
  for (const Completion& completion : got) preemptions += completion.num_preemptions;
  EXPECT_GT(preemptions, 0);
  EXPECT_TRUE(engine->CheckIntegrity().ok());
}

TEST(EngineRanks, AKilledRankFailsRequestsAndIsReported) {
  const GoldenPair pair("shallow");
  EngineOptions options = OptionsFor(pair, 2);
  absl::Notification is_told;
  absl::Status told;
  options.on_rank_failure = [&](const absl::Status& why) {
    told = why;
    is_told.Notify();
  };
  auto engine = MakeEngine(options);
  ASSERT_TRUE(engine->Generate(RequestFor(PromptOf(pair, 9))).ok());
  const std::vector<pid_t> children = Children();
  ASSERT_THAT(children, SizeIs(1));
  kill(children[0], SIGKILL);
  is_told.WaitForNotification();
  EXPECT_THAT(std::string(told.message()), HasSubstr("rank 1 was terminated by signal 9"));
  const absl::Status failed = engine->Generate(RequestFor(PromptOf(pair, 9))).status();
  EXPECT_TRUE(absl::IsUnavailable(failed)) << failed;
  EXPECT_THAT(std::string(failed.message()), HasSubstr("rank 1 was terminated by signal 9"));
  engine = nullptr;
  EXPECT_THAT(Children(), IsEmpty());
}

TEST(EngineRanks, ImpossibleOptionsAreRefused) {
  const GoldenPair pair("shallow");
  EngineOptions options = OptionsFor(pair, 2);
  options.rank_program = "/no/such/program";
  EXPECT_THAT(std::string(Engine::Create(options).status().message()),
              HasSubstr("/no/such/program for rank 1"));
  options.rank_program = "/bin/false";
  EXPECT_THAT(std::string(Engine::Create(options).status().message()),
              HasSubstr("rank 1 ended with status 1"));
  options = OptionsFor(pair, 0);
  EXPECT_THAT(std::string(Engine::Create(options).status().message()),
              HasSubstr("tensor_parallel"));
  options = OptionsFor(pair, 2);
  options.kv_store = "/tmp";
  EXPECT_THAT(std::string(Engine::Create(options).status().message()), HasSubstr("kv_store"));
  options = OptionsFor(pair, 2);
  options.target = "/no/such/model";
  EXPECT_FALSE(Engine::Create(options).ok());
  EXPECT_THAT(Children(), IsEmpty());
}

}  // namespace
}  // namespace tandem
