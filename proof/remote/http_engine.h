// Engines over HTTP: what each calls the parts of a question, and where its answers have theirs.
#ifndef TANDEM_PROOF_REMOTE_HTTP_ENGINE_H_
#define TANDEM_PROOF_REMOTE_HTTP_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "proof/remote/http_client.h"
#include "proof/remote/remote_engine.h"
#include "tandem/json_value.h"

namespace tandem {

// Tokens of APIs without ids, numbered by their texts. Both sides of a proof share one.
// Thread-safe.
class TokenTexts {
 public:
  TokenId IdOf(const std::string& text);

 private:
  absl::Mutex mutex_;
  std::map<std::string, TokenId> ids_ ABSL_GUARDED_BY(mutex_);
};

// The names of the engines that are known, with "auto" first.
std::vector<std::string> RemoteEngineNames();

struct EngineProfile;

class HttpEngine : public RemoteEngine {
 public:
  struct Options {
    std::string engine = "auto";            // one of RemoteEngineNames()
    std::string path{};                     // of the URL, with or without "/v1"
    SortedJson body{};                      // members added to each request
    std::atomic<int64_t>* requests_left{};  // of all engines together
    TokenTexts* token_texts{};
  };
  // Finds out its name and its features, with a few requests. All must outlive it.
  static absl::StatusOr<std::unique_ptr<HttpEngine>> Connect(HttpExchange* exchange,
                                                             const Options& options);

  absl::StatusOr<RemoteReply> Ask(const Question& question) override;
  absl::StatusOr<std::vector<TopLogprobs>> Score(const RemotePrompt& prompt,
                                                 absl::Span<const TokenId> tokens) override;
  const RemoteFeatures& features() const override { return features_; }
  std::string Description() const override;
  std::string BodyOf(const Question& question) const override { return Body(question).dump(); }

  // Turns texts into ids where prompts may be ids; returns other prompts as they are.
  absl::StatusOr<RemotePrompt> Tokenized(const RemotePrompt& prompt);
  // Members that make this engine decode plainly, or draft k tokens; empty if it has none.
  SortedJson SpeculationMembers(int draft_tokens) const;
  void AddMembers(const SortedJson& members) { options_.body.update(members); }

 private:
  HttpEngine(HttpExchange* exchange, const Options& options)
      : exchange_(exchange), options_(options) {}
  absl::Status Detect();
  absl::Status Probe();
  std::string ProbeScores(Question question, const RemoteAnswer& answer);
  absl::StatusOr<std::string> Post(const std::string& path, const SortedJson& body);
  SortedJson Body(const Question& question) const;
  absl::StatusOr<RemoteReply> Parse(const SortedJson& json) const;
  RemoteAnswer ParseCompletion(const SortedJson& choice) const;
  RemoteAnswer ParseLlama(const SortedJson& choice) const;
  TopLogprobs ParseTop(const SortedJson& top, bool has_ids) const;
  TokenId IdOfKey(const std::string& key, bool has_ids) const;
  std::vector<TokenId> IdsOfWords(const std::string& text) const;

  HttpExchange* const exchange_;
  Options options_;
  const EngineProfile* profile_ = nullptr;
  std::string root_;  // path before "/tokenize"
  std::string api_;   // path before "/completions"
  std::string model_;
  std::string version_;
  RemoteFeatures features_;
};

}  // namespace tandem

#endif  // TANDEM_PROOF_REMOTE_HTTP_ENGINE_H_
