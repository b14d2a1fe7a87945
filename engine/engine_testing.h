// Helpers for tests that run whole engines.
#ifndef TANDEM_ENGINE_ENGINE_TESTING_H_
#define TANDEM_ENGINE_ENGINE_TESTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"
#include "tandem/number_formats.h"
#include "tandem/sampling_params.h"
#include "tandem/types.h"
#include "tests/folder_testing.h"

namespace tandem {

std::string ShippedModelPath(absl::string_view name);

// A golden pair: its models, its prompt and the reference's outputs (tests/data/README.md).
struct GoldenPair {
  // "perturbed", or with a parallel draft "parallel/llama-parallel".
  explicit GoldenPair(const std::string& name);

  std::string target;  // folders
  std::string draft;
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> output_ids;         // [64]
  std::vector<TokenId> draft_ids_on_path;  // [64]: the draft's choice in place of each; serial
  // The tokens that `token` accepts on average at T = 1 in the first round, at k = 1 and k = 2; for
  // a parallel draft only.
  std::vector<double> expected_accepted;
  SortedJson runs;
};

inline const SamplingParams kGreedy = {.temperature = 0.0f};

// All but kAuto.
inline constexpr KvCacheType kCacheTypes[] = {KvCacheType::kF32, KvCacheType::kBF16,
                                              KvCacheType::kInt8};

// Returns prompts of 1, 3, 5, ... tokens made of `ids`, which share prefixes.
std::vector<std::vector<TokenId>> PromptsFrom(const std::vector<TokenId>& ids, int count);

// Returns seeded plain-decoding requests for these prompts, alternately greedy and at temperature
// 0.8, with log-probabilities.
std::vector<Request> PlainRequests(const std::vector<std::vector<TokenId>>& prompts,
                                   int max_tokens);

// Options for f32 on one thread, so that a busy machine does not slow tests down, and for the
// draft's full vocabulary, so that counts depend on one request alone. The draft may be empty.
EngineOptions CpuOptionsFor(const std::string& target, const std::string& draft);
// The same, but only the draft model proposes, for tests that count its work. The default also uses
// lookups.
EngineOptions DraftModelOptionsFor(const std::string& target, const std::string& draft);

// Bytes of both caches for `num_tokens` tokens; the draft may be empty.
int64_t KvBytesFor(const std::string& target, const std::string& draft, int num_tokens);

// Each prints the error and aborts the test program on failure.
std::unique_ptr<Engine> MakeEngine(const EngineOptions& options);
Completion Generate(Engine* engine, const Request& request);
// Submits all requests, then waits for all.
std::vector<Completion> GenerateAll(Engine* engine, const std::vector<Request>& requests);

// Expects the same ids, text and finish reason, and log-probabilities that are equal bit for bit.
void ExpectSameOutput(const Completion& got, const Completion& want);
// Expects equal counts.
void ExpectSameCounts(const RoundStats& got, const RoundStats& want);
// Expects that the fields of a completion agree with each other.
void ExpectConsistent(const Completion& completion);

// A copy of a model folder that a test may damage.
class ModelCopy : public TestFolder {
 public:
  explicit ModelCopy(const std::string& folder);
  void Remove(absl::string_view name) const;
  SortedJson ReadJson(absl::string_view name) const;
  void WriteJson(absl::string_view name, const SortedJson& json) const;
  void SetConfig(const std::string& key, const SortedJson& value) const;
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_ENGINE_TESTING_H_
