#include "proof/remote/remote_proof.h"

#include <ostream>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proof/remote/stand_in_engine_testing.h"

namespace tandem {
namespace {

using Fault = StandInFault;

RemoteProofOptions Options(int seed, int runs) {
  RemoteProofOptions options;
  for (int i = 0; i < 16; ++i) {
    const int x = seed * 97 + i;
    options.prompts.push_back({.ids = {x * 7 % 48, x * 13 % 48, x * 29 % 48}});
  }
  options.runs = runs;
  options.concurrency = 1;
  options.seed = static_cast<uint64_t>(seed);
  return options;
}

RemoteProof ProofOf(Fault fault, int seed, int runs, double noise = 0.0,
                    std::vector<std::string> checks = {}) {
  StandInEngine plain({.noise = noise, .seed = static_cast<uint64_t>(seed) + 1000000});
  StandInEngine speculative({.speculates = true,
                             .fault = fault,
                             .noise = noise,
                             .seed = static_cast<uint64_t>(seed) + 2000000});
  RemoteProofOptions options = Options(seed, runs);
  options.checks = std::move(checks);
  return ProveRemotely(&plain, &speculative, options).value();
}

std::string FaultsOf(const RemoteProof& proof) {
  std::string faults;
  for (const RemoteCheck& check : proof.checks) {
    if (check.outcome == CheckOutcome::kFault) absl::StrAppend(&faults, check.name, "; ");
  }
  return faults;
}

std::string TextOf(const RemoteProof& proof) {
  std::string text;
  for (const RemoteCheck& check : proof.checks) {
    absl::StrAppend(&text, check.name, ": ", NameOf(check.outcome), ": ", check.text, "\n");
  }
  return text;
}

TEST(ProveRemotely, FindsNoDifferenceInASoundEngine) {
  for (int seed = 1; seed <= 3; ++seed) {
    const RemoteProof proof = ProofOf(Fault::kNone, seed, 512);
    EXPECT_EQ(proof.verdict, RemoteVerdict::kNoDifference) << TextOf(proof);
    EXPECT_GT(proof.laws.size(), 60u);
    EXPECT_LT(*proof.law_bound, 0.4);
    EXPECT_EQ(proof.num_laws, 9);
    for (const char* test :
         {"exact", "places"}) {  // plain decoding passes them, so none is dropped
      EXPECT_TRUE(absl::c_any_of(proof.laws, [&](const auto& law) { return law.test == test; }));
    }
    EXPECT_THAT(TextOf(proof), testing::Not(testing::HasSubstr("dropped")));
    EXPECT_THAT(TextOf(proof), testing::HasSubstr("teeth: note: 10 planted faults were seen\n"));
    EXPECT_GT(proof.proposed, proof.accepted);
    EXPECT_THAT(proof.reason, testing::HasSubstr("law TV < "));
  }
}

// Rows that change from pass to pass, as with other arithmetic.
TEST(ProveRemotely, DoesNotCallArithmeticAFault) {
  for (const double noise : {2e-4, 5e-3}) {
    const RemoteProof proof = ProofOf(Fault::kNone, 4, 256, noise);
    EXPECT_EQ(FaultsOf(proof), "") << TextOf(proof);
    EXPECT_GE(proof.near_tie, 4.0 * noise);
  }
}

// Rows that change this much hide a second best token. Faults are planted only for checks that were
// made.
TEST(ProveRemotely, IsIncompleteIfItMissesPlantedFaults) {
  const RemoteProof proof = ProofOf(Fault::kNone, 5, 8, 0.5, {"greedy", "teeth"});
  EXPECT_EQ(proof.verdict, RemoteVerdict::kIncomplete) << TextOf(proof);
  EXPECT_THAT(proof.reason, testing::HasSubstr("planted fault was missed"));
  EXPECT_THAT(TextOf(proof),
              testing::AllOf(testing::HasSubstr("teeth: 1 token in 100 is wrong: MISSED"),
                             testing::Not(testing::HasSubstr("stops are missed: MISSED")),
                             testing::HasSubstr("their checks cannot be made: stops are missed")));
}

struct Caught {
  Fault fault;
  const char* checks;  // that are run, parted by commas
  int runs;            // prompts of each check, or answers of each law and side
  const char* by;      // part of the name of a check that sees the fault
};
void PrintTo(const Caught& caught, std::ostream* out) {
  *out << static_cast<int>(caught.fault) << " by " << caught.by;
}
class ProofFault : public testing::TestWithParam<Caught> {};

TEST_P(ProofFault, IsCaught) {
  const Caught& want = GetParam();
  const RemoteProof proof =
      ProofOf(want.fault, 77, want.runs, 0.0, absl::StrSplit(want.checks, ','));
  EXPECT_EQ(proof.verdict, RemoteVerdict::kBroken) << TextOf(proof);
  EXPECT_THAT(FaultsOf(proof), testing::HasSubstr(want.by)) << TextOf(proof);
  EXPECT_THAT(proof.reason, testing::HasSubstr(want.by));
  if (want.fault == Fault::kCutsForms) return;  // only counts differ
  ASSERT_FALSE(proof.differences.empty());
  const RemoteDifference& shown = proof.differences[0];
  EXPECT_NE(shown.plain, shown.speculative) << shown.check;
}

constexpr char kAnswers[] = "greedy,surface,logprobs,seeds";
INSTANTIATE_TEST_SUITE_P(
    OfAnswers, ProofFault,
    testing::Values(Caught{Fault::kSwapsAnswers, kAnswers, 16, "greedy: concurrent"},
                    Caught{Fault::kRepeatsToken, kAnswers, 16, "greedy: alone"},
                    Caught{Fault::kGreedySometimesSecond, kAnswers, 16, "greedy: "},
                    Caught{Fault::kIgnoresSeedSometimes, kAnswers, 8, "seeds: "},
                    Caught{Fault::kKeysNoiseByRound, kAnswers, 8, "seeds: as plain"},
                    Caught{Fault::kDraftsAreCertain, kAnswers, 3, "log-probabilities"},
                    Caught{Fault::kLogprobsLate, kAnswers, 3, "log-probabilities"},
                    Caught{Fault::kTopKOnDraftOnly, "surface", 4, "surface: top-k 1"},
                    Caught{Fault::kMissesStops, kAnswers, 4, "surface: stop"},
                    Caught{Fault::kTellsWrongFinish, kAnswers, 4, "surface: stop"}));
// Each prompt has 6 answers a side.
INSTANTIATE_TEST_SUITE_P(
    OfForms, ProofFault,
    testing::Values(Caught{Fault::kDropsForms, "forms", 2, "forms: "},
                    Caught{Fault::kDropsUnfinishedForms, "forms", 2, "forms: JSON schema"},
                    Caught{Fault::kCutsForms, "forms", 12, "forms: JSON schema"}));
INSTANTIATE_TEST_SUITE_P(
    OfLaws, ProofFault,
    testing::Values(Caught{Fault::kArgmaxAfterRejection, "laws", 250, "law: "},
                    Caught{Fault::kCoinDrawsTheDraft, "laws", 250, "law: "},
                    Caught{Fault::kTopKOnDraftOnly, "laws", 250, "law: T 1, top-k 8"},
                    Caught{Fault::kBiasOnFirstOnly, "laws", 250, "law: T 1, bias"},
                    Caught{Fault::kResidualIsTarget, "laws", 500, "law: "},
                    Caught{Fault::kAcceptsLikely, "laws", 2000, "law: "},
                    Caught{Fault::kPenaltiesEveryFourth, "laws", 2000, "law: T 1, frequency"},
                    Caught{Fault::kSharesStreams, "laws", 250, "law: "}));

// An engine that breaks its own forms without speculation.
TEST(ProveRemotely, DoesNotBlameSpeculationForBrokenForms) {
  StandInEngine plain({.speculates = true, .fault = Fault::kDropsForms, .seed = 1});
  StandInEngine other({.speculates = true, .fault = Fault::kDropsForms, .seed = 2});
  RemoteProofOptions options = Options(1, 16);
  options.checks = {"forms"};
  const RemoteProof proof = ProveRemotely(&plain, &other, options).value();
  EXPECT_EQ(FaultsOf(proof), "");
  EXPECT_THAT(TextOf(proof), testing::HasSubstr("forms: regex: note"));
  EXPECT_THAT(TextOf(proof), testing::HasSubstr("does not keep to the form"));
}

TEST(ProveRemotely, LeavesOutFormsThatAreRefused) {
  StandInEngine plain({.seed = 1});
  StandInEngine other({.speculates = true, .seed = 2, .takes_forms = false});
  RemoteProofOptions options = Options(1, 64);
  options.checks = {"forms", "laws"};
  const RemoteProof proof = ProveRemotely(&plain, &other, options).value();
  EXPECT_EQ(proof.verdict, RemoteVerdict::kNoDifference) << TextOf(proof);
  for (const char* name : {"forms: JSON schema", "forms: enum", "forms: regex", "forms: tool call",
                           "law: T 1, a schema"}) {
    EXPECT_THAT(TextOf(proof), testing::HasSubstr(absl::StrCat(name, ": not tested")));
  }
}

TEST(ProveRemotely, IsIncompleteWithoutDrafts) {
  StandInEngine plain({.seed = 1}), other({.seed = 2});
  RemoteProofOptions options = Options(1, 4);
  options.checks = {"greedy"};
  const RemoteProof proof = ProveRemotely(&plain, &other, options).value();
  EXPECT_EQ(proof.verdict, RemoteVerdict::kIncomplete);
  EXPECT_THAT(proof.reason, testing::HasSubstr("not known whether"));
}

}  // namespace
}  // namespace tandem
