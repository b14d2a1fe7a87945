// Constrained output equals that of plain constrained decoding with every drafter, draft length and
// batch.
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "text/constraint/grammar_engine.h"

namespace tandem {
namespace {

using Kind = OutputConstraint::Kind;
using testing::HasSubstr;

constexpr char kSchema[] =
    R"({"type": "object",
        "properties": {"hero": {"type": "string", "maxLength": 20},
                       "age": {"type": "integer", "minimum": 1, "maximum": 99},
                       "friends": {"type": "array", "items": {"enum": ["a wolf", "a king"]},
                                   "minItems": 1, "maxItems": 3}},
        "required": ["hero", "age", "friends"]})";

class ConstrainedEngine : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  }
  static EngineOptions Options() {
    return CpuOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m"));
  }
  static Request Story(Kind kind, const std::string& text, uint64_t seed) {
    Request request{.prompt = "Once upon a time there was", .max_tokens = 200, .seed = seed};
    request.constraint = OutputConstraint{.kind = kind, .text = text};
    if (seed % 2 == 0) request.sampling.temperature = 0.0f;
    return request;
  }
  // Returns requests with constraints of several kinds. All end before their maximum length.
  static std::vector<Request> Stories() {
    std::vector<Request> requests;
    for (uint64_t seed = 0; seed < 4; ++seed) {
      requests.push_back(Story(Kind::kJsonSchema, kSchema, seed));
      requests.push_back(Story(Kind::kRegex, "The (old|young) (king|queen) [a-z ]{3,30}[.]", seed));
    }
    requests.push_back(Story(Kind::kRegex, "(yes|no|perhaps) it is", 9));
    requests.back().sampling.frequency_penalty = 0.5f;
    requests.back().sampling.top_p = 0.9f;
    return requests;
  }
};

TEST_F(ConstrainedEngine, WritesTheTextOfPlainDecoding) {
  EngineOptions options = Options();
  options.draft_tokens = 0;
  const std::vector<Completion> plain = GenerateAll(MakeEngine(options).get(), Stories());
  for (const Completion& completion : plain) {
    EXPECT_EQ(completion.finish_reason, FinishReason::kStop) << completion.text;
  }
  for (size_t i = 0; i < 8; i += 2) {
    const auto value = SortedJson::parse(plain[i].text, nullptr, false);
    ASSERT_TRUE(value.is_object()) << plain[i].text;
    EXPECT_EQ(value.size(), 3u);
    EXPECT_TRUE(std::regex_match(plain[i + 1].text,
                                 std::regex("The (old|young) (king|queen) [a-z ]{3,30}[.]")))
        << plain[i + 1].text;
  }
  struct Way {
    DrafterKind drafter;
    int k;
    int max_batch;
  };
  for (const Way& way : {Way{DrafterKind::kModel, 4, 8}, Way{DrafterKind::kNgram, 3, 1},
                         Way{DrafterKind::kModelAndNgram, kAutoDraftTokens, 3},
                         Way{DrafterKind::kModelAndNgram, 16, 8}}) {
    options.drafter = way.drafter;
    options.draft_tokens = way.k;
    options.max_batch = way.max_batch;
    // Less memory than all need at once, so that some are preempted.
    options.kv_memory_bytes = KvBytesFor(options.target, options.draft, 700);
    const std::vector<Completion> found = GenerateAll(MakeEngine(options).get(), Stories());
    for (size_t i = 0; i < plain.size(); ++i) {
      ExpectSameOutput(found[i], plain[i]);
      ExpectConsistent(found[i]);
    }
  }
}

// Rules that preserve only the law give other output, which must satisfy the constraints too.
TEST_F(ConstrainedEngine, SatisfiesConstraintsUnderEveryRule) {
  EngineOptions options = Options();
  options.draft_tokens = 4;
  for (const AcceptanceRule rule : {AcceptanceRule::kBlock, AcceptanceRule::kToken}) {
    options.verifier = rule;
    const std::vector<Completion> found = GenerateAll(MakeEngine(options).get(), Stories());
    for (size_t i = 0; i < 8; i += 2) {
      EXPECT_TRUE(SortedJson::parse(found[i].text, nullptr, false).is_object()) << found[i].text;
    }
  }
}

// Tokens that a grammar forces do not need a pass each.
TEST_F(ConstrainedEngine, DraftsForcedTokens) {
  EngineOptions options = Options();
  options.draft.clear();
  options.drafter = DrafterKind::kNgram;
  options.draft_tokens = 16;
  const std::string words = " an old king who had three sons and a daughter";
  const Completion done =
      Generate(MakeEngine(options).get(), Story(Kind::kRegex, words + "[.!]", 2));
  EXPECT_THAT(done.text, HasSubstr(words));
  EXPECT_LE(done.stats.rounds, 5);
  EXPECT_GT(done.stats.accepted, 5);
}

TEST_F(ConstrainedEngine, RefusesInvalidConstraints) {
  const std::unique_ptr<Engine> engine = MakeEngine(Options());
  Request request = Story(Kind::kRegex, "a*", 1);
  request.ignore_eos = true;
  EXPECT_THAT(engine->Submit(request).status().message(), HasSubstr("ignore_eos"));
  EXPECT_THAT(engine->Submit(Story(Kind::kRegex, "(", 1)).status().message(),
              HasSubstr("constraint: "));
}

// If the constraint allows only an ending token, min_tokens does not forbid it.
TEST_F(ConstrainedEngine, MinTokensYieldsToTheConstraint) {
  Request request = Story(Kind::kRegex, "yes", 1);
  request.sampling.min_tokens = 50;
  const Completion done = Generate(MakeEngine(Options()).get(), request);
  EXPECT_EQ(done.text, "yes");
  EXPECT_EQ(done.finish_reason, FinishReason::kStop);
}

// Row 118 of the bug catalogue: a request with drafts whose regular expression soon becomes too
// expensive, next to other requests. How far it gets depends on the machine; the outputs of the
// other requests do not.
TEST_F(ConstrainedEngine, AConstraintThatTakesTooLongEndsOnlyItsRequest) {
  EngineOptions options = Options();
  options.draft_tokens = 2;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  const Request victim{.prompt = "The king", .max_tokens = 40, .seed = 3, .ignore_eos = true};
  const Completion alone = Generate(engine.get(), victim);
  Request attack{.prompt = "A", .max_tokens = 900, .seed = 1};
  attack.sampling.min_tokens = 900;
  attack.constraint = OutputConstraint{.kind = Kind::kRegex, .text = "((a{1,100}){1,100}){1,100}"};
  const absl::StatusOr<GenerationId> attacker = engine->Submit(attack);
  ASSERT_TRUE(attacker.ok()) << attacker.status();
  absl::StatusOr<Completion> ended = absl::DeadlineExceededError("");
  while (absl::IsDeadlineExceeded(ended.status())) {
    ExpectSameOutput(Generate(engine.get(), victim), alone);
    ended = engine->Wait(*attacker, absl::ZeroDuration());
  }
  if (!ended.ok()) {
    EXPECT_EQ(ended.status().code(), absl::StatusCode::kInvalidArgument) << ended.status();
    EXPECT_THAT(ended.status().message(), HasSubstr("constraint: cannot be followed"));
  }
  ExpectSameOutput(Generate(engine.get(), victim), alone);
  EXPECT_TRUE(engine->CheckIntegrity().ok());
}

// ---- Predictions, which need no grammar ----

TEST(PredictedOutput, IsDraftedAndDoesNotChangeTheText) {
  EngineOptions options = CpuOptionsFor(ShippedModelPath("storyteller-7m"), "");
  options.drafter = DrafterKind::kNone;
  options.draft_tokens = 8;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  Request request{.prompt = "Once upon a time there was an old king who",
                  .max_tokens = 64,
                  .sampling = kGreedy};
  const Completion plain = Generate(engine.get(), request);
  EXPECT_EQ(plain.stats.rounds, 64);
  // The same text with one character changed in the middle.
  request.prediction = plain.text;
  request.prediction.replace(plain.text.size() / 2, 1, "?");
  const Completion predicted = Generate(engine.get(), request);
  ExpectSameOutput(predicted, plain);
  EXPECT_LT(predicted.stats.rounds, 32);
  const RoundStats::SourceCounts& counts = predicted.stats.Of(DraftSource::kPredicted);
  EXPECT_GT(counts.accepted, 32);
  EXPECT_GT(counts.proposed, counts.accepted);
  EXPECT_EQ(counts.proposed, predicted.stats.proposed);
  request.prediction = "Nothing of this kind is ever said by a teller of stories.";
  ExpectSameOutput(Generate(engine.get(), request), plain);
}

}  // namespace
}  // namespace tandem
