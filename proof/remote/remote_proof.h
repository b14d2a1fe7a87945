// Proves or refutes that one engine's speculation changes its output, from outside: a server that
// decodes plainly is compared with one that speculates (docs/prove.md).
#ifndef TANDEM_PROOF_REMOTE_REMOTE_PROOF_H_
#define TANDEM_PROOF_REMOTE_REMOTE_PROOF_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proof/remote/remote_engine.h"

namespace tandem {

// The chance that a sound engine is called broken by all tests of laws together.
inline constexpr double kRemoteErrorRate = 1e-4;

struct RemoteProofOptions {
  std::vector<RemotePrompt> prompts{};
  absl::Duration time = absl::Minutes(10);
  int64_t runs = 0;  // of each prompt and test; 0: as many as the time allows
  int draft_tokens = 4;
  int concurrency = 8;
  uint64_t seed = 1;
  std::vector<std::string> checks{};  // names of RemoteCheckNames(); empty: all
  std::function<void(double share)> on_progress{};
};

// The names that RemoteProofOptions::checks may have, in the order of a proof.
std::vector<std::string> RemoteCheckNames();

enum class CheckOutcome {
  kEqual,      // as it must be
  kNote,       // a control, or a figure without a judgement
  kNearTies,   // differences that the plain server's own arithmetic explains
  kUnclear,    // differences that cannot be told from near ties
  kFault,      // speculation changes this part
  kNotTested,  // the text says why
  kMissed,     // a planted fault that its check did not see
};
const char* NameOf(CheckOutcome outcome);

struct RemoteCheck {
  std::string name{};
  CheckOutcome outcome = CheckOutcome::kNote;
  std::string text{};
};

// One test of a law.
struct RemoteLawTest {
  std::string setting{};
  std::string test{};
  int prompt = 0;
  int64_t runs = 0;            // answers of each side
  int64_t effective_runs = 0;  // draws with the same power against a known law
  int degrees = 0;
  double p_value = 1.0;
  double adjusted_p = 1.0;      // for all tests of laws together (Holm)
  double seen_variation = 1.0;  // a difference of this total variation is seen in 99 of 100 cases
  std::string request{};        // its body; empty if answers to several were tested together
  std::array<std::string, 2>
      evidence{};  // the most different token, on the plain side and on the other
};

// A request whose answers differ.
struct RemoteDifference {
  std::string check{};
  std::string request{};  // its body, as the speculative server got it
  std::string plain{};
  std::string speculative{};
};

enum class RemoteVerdict { kNoDifference, kArithmetic, kBroken, kIncomplete };
const char* NameOf(RemoteVerdict verdict);

struct RemoteProof {
  std::string plain{};  // RemoteEngine::Description()
  std::string speculative{};
  std::vector<RemoteCheck> checks{};
  std::vector<RemoteDifference> differences{};  // the first of them
  double near_tie = 0.0;                        // its bound, in nats
  std::optional<double> greedy_bound{};  // the share of greedy answers that may differ unseen
  std::vector<RemoteLawTest> laws{};
  std::vector<RemotePrompt> law_prompts{};  // after which laws were tested
  int num_laws = 0;                         // settings with tests
  std::optional<double> law_bound{};  // the largest RemoteLawTest::seen_variation of a setting
  int64_t answers = 0;
  int64_t proposed = 0;  // draft tokens that the speculative server told of
  int64_t accepted = 0;
  RemoteVerdict verdict = RemoteVerdict::kIncomplete;
  std::string reason{};
  absl::Duration time{};

  void Add(std::string name, CheckOutcome outcome, std::string text) {
    checks.push_back({std::move(name), outcome, std::move(text)});
  }
};

// One of the two servers, and what its answers told.
struct RemoteSide {
  RemoteEngine* engine = nullptr;
  int64_t answers = 0;
  std::optional<int64_t> proposed{};
  int64_t accepted = 0;
  bool has_wide_chunks = false;

  // Asks all, `concurrency` at a time, the last one first if `is_reversed`. Returns the replies in
  // the order of the questions, or the first error.
  absl::StatusOr<std::vector<RemoteReply>> Ask(absl::Span<const Question> questions,
                                               int concurrency, bool is_reversed = false);
  // Scores the first answer of each reply with this server, `concurrency` at a time.
  absl::StatusOr<std::vector<std::vector<TopLogprobs>>> Score(absl::Span<const Question> questions,
                                                              absl::Span<const RemoteReply> replies,
                                                              int concurrency);
};

// What checks compare, and where they add their results.
struct RemoteTrial {
  RemoteSide& plain;
  RemoteSide& speculative;
  const RemoteProofOptions& options;
  RemoteProof& proof;
};

// An error is UNAVAILABLE: a server did not answer.
absl::StatusOr<RemoteProof> ProveRemotely(RemoteEngine* plain, RemoteEngine* speculative,
                                          const RemoteProofOptions& options);

}  // namespace tandem

#endif  // TANDEM_PROOF_REMOTE_REMOTE_PROOF_H_
