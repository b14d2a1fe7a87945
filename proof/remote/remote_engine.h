// An engine as its clients see it: questions and answers, whatever the API.
#ifndef TANDEM_PROOF_REMOTE_REMOTE_ENGINE_H_
#define TANDEM_PROOF_REMOTE_REMOTE_ENGINE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proof/remote/remote_form.h"
#include "tandem/types.h"

namespace tandem {

// Text, or token ids where they are given.
struct RemotePrompt {
  std::string text{};
  std::vector<TokenId> ids{};
};

// The likeliest tokens with their log-probabilities, best first.
using TopLogprobs = std::vector<std::pair<TokenId, double>>;

// A request. The defaults sample from the model's own distribution.
struct Question {
  RemotePrompt prompt{};
  int max_tokens = 16;
  int n = 1;
  double temperature = 1.0;
  int top_k = 0;  // 0: all
  double top_p = 1.0;
  double min_p = 0.0;
  double frequency_penalty = 0.0;
  std::vector<std::pair<TokenId, double>> logit_bias{};
  std::optional<int64_t> seed{};
  std::vector<std::string> stop{};
  int min_tokens = 0;
  bool stream = false;
  bool wants_logprobs = false;
  RemoteForm form{};
};

// One of the n answers. A token is its id, or a number for its text if the API has no ids.
struct RemoteAnswer {
  std::vector<TokenId> tokens{};
  std::vector<double> logprobs{};   // [tokens], or empty
  std::vector<TopLogprobs> tops{};  // [tokens], or empty
  std::string text{};
  std::string finish{};  // "stop", "length", or another name of the API
  bool has_ids = false;
};

struct RemoteReply {
  std::vector<RemoteAnswer> answers{};    // [n]
  std::optional<int64_t> proposed{};      // draft tokens, if the API tells
  std::optional<int64_t> accepted{};      // those kept
  std::optional<int64_t> usage_tokens{};  // tokens of all answers, as the server counts them
  bool has_wide_chunks = false;           // a chunk of the stream had several tokens
};

// What an API offers. A check that needs a missing part is left out and listed.
struct RemoteFeatures {
  bool ids = false;             // of the answers' tokens
  bool prompt_ids = false;      // prompts may be ids
  int num_top = 0;              // likeliest tokens with log-probabilities
  bool scores = false;          // RemoteEngine::Score
  std::string no_scores{};      // why not
  bool seeds_as_plain = false;  // seeded answers are promised to be those of plain decoding
};

// Thread-safe.
class RemoteEngine {
 public:
  virtual ~RemoteEngine() = default;

  // UNAVAILABLE: the server did not answer. RESOURCE_EXHAUSTED: no more requests are allowed. Other
  // errors: the request was refused.
  virtual absl::StatusOr<RemoteReply> Ask(const Question& question) = 0;
  // Returns the likeliest tokens before each of `tokens`, of which the server reads the prompt and
  // those before. REQUIRES: features().scores.
  virtual absl::StatusOr<std::vector<TopLogprobs>> Score(const RemotePrompt& prompt,
                                                         absl::Span<const TokenId> tokens) = 0;
  virtual const RemoteFeatures& features() const = 0;
  // One line: "llama.cpp b11434, model x".
  virtual std::string Description() const = 0;
  // The body of the question's request, for a report.
  virtual std::string BodyOf(const Question& question) const = 0;
};

// Calls work(i) for every i in [0, count), `concurrency` at a time.
template <typename Work>
void ForAll(size_t count, int concurrency, const Work& work) {
  std::atomic<size_t> next = 0;
  const auto take = [&] {
    for (size_t i; (i = next++) < count;) work(i);
  };
  std::vector<std::thread> threads;
  const size_t num_threads = std::min(count, static_cast<size_t>(concurrency));
  for (size_t i = 1; i < num_threads; ++i) threads.emplace_back(take);
  take();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tandem

#endif  // TANDEM_PROOF_REMOTE_REMOTE_ENGINE_H_
