// Helpers of tests that run whole engines.
#ifndef TANDEM_TESTS_ENGINE_TESTING_H_
#define TANDEM_TESTS_ENGINE_TESTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "tandem/engine.h"
#include "tandem/sampling_params.h"
#include "tandem/types.h"

namespace tandem {

std::string ShippedModelPath(absl::string_view name);

// A golden pair: which models, which prompt, and what the reference made of them
// (tests/data/README.md).
struct GoldenPair {
  explicit GoldenPair(const std::string& name);

  std::string target;  // folders
  std::string draft;
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> output_ids;         // [64]
  std::vector<TokenId> draft_ids_on_path;  // [64]: the draft's choice in place of each
  nlohmann::json runs;
};

inline const SamplingParams kGreedy = {.temperature = 0.0f};

// Prompts of 1, 3, 5, ... tokens made of `ids`, that share beginnings.
std::vector<std::vector<TokenId>> PromptsFrom(const std::vector<TokenId>& ids, int count);

// Requests of these prompts for plain decoding, greedily and at temperature 0.8 in turns, seeded,
// with log-probabilities.
std::vector<Request> PlainRequests(const std::vector<std::vector<TokenId>>& prompts,
                                   int max_tokens);

// f32 on one thread, so that a busy machine does not slow tests down, and a whole head of the
// draft, so that counts depend on one request alone; the draft may be empty.
EngineOptions CpuOptionsFor(const std::string& target, const std::string& draft);
// The same, but the draft model alone proposes: for tests that count what it does. The default
// looks drafts up as well.
EngineOptions DraftModelOptionsFor(const std::string& target, const std::string& draft);

// Bytes of both caches for `num_tokens` tokens; the draft may be empty.
int64_t KvBytesFor(const std::string& target, const std::string& draft, int num_tokens);

// The value, or the end of the test program with the error.
std::unique_ptr<Engine> MakeEngine(const EngineOptions& options);
Completion Generate(Engine* engine, const Request& request);
// All at once.
std::vector<Completion> GenerateAll(Engine* engine, const std::vector<Request>& requests);

// Expects what plain decoding promises: ids, text, finish reason and log-probabilities, these bit
// for bit.
void ExpectSameOutput(const Completion& got, const Completion& want);
// Expects the same counts.
void ExpectSameCounts(const RoundStats& got, const RoundStats& want);
// Expects that what a completion says of itself fits together.
void ExpectConsistent(const Completion& completion);

// A copy of a model folder that a test may damage; removed at the end.
class ModelCopy {
 public:
  explicit ModelCopy(const std::string& folder);
  ~ModelCopy();
  ModelCopy(const ModelCopy&) = delete;
  ModelCopy& operator=(const ModelCopy&) = delete;

  const std::string& path() const { return path_; }
  std::string FilePath(absl::string_view name) const;
  std::string Read(absl::string_view name) const;
  void Write(absl::string_view name, absl::string_view contents) const;
  void Remove(absl::string_view name) const;
  nlohmann::json ReadJson(absl::string_view name) const;
  void WriteJson(absl::string_view name, const nlohmann::json& json) const;
  void SetConfig(const std::string& key, const nlohmann::json& value) const;

 private:
  std::string path_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_ENGINE_TESTING_H_
