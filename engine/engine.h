// The library's front door.
//
//   #include <tandem/engine.h>
//
//   absl::StatusOr<std::unique_ptr<tandem::Engine>> engine =
//       tandem::Engine::Create({.target = "models/storyteller-7m", .draft =
//       "models/storyteller-1m"});
//   if (!engine.ok()) return Fail(engine.status());
//   absl::StatusOr<tandem::Completion> story =
//       (*engine)->Generate({.prompt = "Once upon a time", .max_tokens = 64});
//   if (story.ok()) std::cout << story->text << "\n";
#ifndef TANDEM_ENGINE_ENGINE_H_
#define TANDEM_ENGINE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "model/sampling.h"
#include "model/sampling_params.h"
#include "verify/round_stats.h"

namespace tandem {

class Tokenizer;

struct EngineOptions {
  std::string target{};                 // folder with config.json, tokenizer.json and *.safetensors
  std::string draft{};                  // likewise; empty for none
  std::string drafter{};                // "model", "ngram", "model+ngram", "none"; empty: by draft
  int draft_tokens = kAutoDraftTokens;  // k, the most tokens proposed per round; 0: plain decoding
  std::string verifier = "auto";        // "auto", "exact_match", "block", "token"
  std::string device = "auto";          // "cpu", "cuda:<n>", or "auto": CUDA if present, else CPU
  int threads = 0;                      // of the CPU; 0: the physical cores
  std::string compute = "auto";         // activations in CPU products: "auto", "f32", "bf16"
  std::string quantize = "none";        // the target's weights at load: "none", "int8", "int4"
  std::string draft_quantize = "none";  // the draft's, likewise
  std::string kv_cache = "f32";         // what both caches hold: "f32", "bf16", "int8"
  int64_t kv_memory_bytes = 0;          // both caches together; 0: a quarter of what is free
  int page_size = 16;                   // tokens per page
  int max_batch = 8;                    // sequences decoded together; more wait
  int chunk_tokens = 256;               // prompt tokens read per pass
  bool prefix_cache = true;             // keep prompts' pages for later requests
  bool warm_up = false;                 // pack weights at load, not in the first request's pass

  // INVALID_ARGUMENT naming the field, what was given and what is allowed.
  absl::Status Validate() const;
};

// One generation to be made.
struct Request {
  std::string prompt{};               // text, which gets the tokens the tokenizer's template adds
  std::vector<TokenId> prompt_ids{};  // or ids, taken as they are
  int max_tokens = 256;
  SamplingParams sampling{};
  // With a seed the output is a function of model, prompt, parameters and seed alone, unless
  // `verifier` asks for another rule than exact_match. Without, every request draws afresh.
  std::optional<uint64_t> seed{};
  uint32_t sequence = 0;  // which of several sequences under one seed
  std::vector<std::string> stop{};
  std::vector<TokenId> stop_tokens{};  // beside the model's own end tokens
  bool ignore_eos = false;             // go on past the model's own end tokens
  std::optional<int> draft_tokens{};   // in place of the engine's
  std::optional<std::string> verifier{};
  LogprobOptions logprobs{};
  LogprobOptions prompt_logprobs{};
};

// Where an output token came from.
enum class Provenance : char {
  kPlain = 'p',       // a pass without a draft
  kAccepted = 'a',    // an accepted draft token
  kCorrection = 'c',  // the target's own, after a rejection
  kBonus = 'b',       // the target's own, after a draft accepted whole
};

struct Timings {
  absl::Duration time_to_first_token;
  absl::Duration end_to_end;
  absl::Duration
      prefill;  // passes that only read the prompt; the last prompt pass counts as verify
  absl::Duration draft;
  absl::Duration verify;
  // Mean time of an output token after the first round's.
  absl::Duration TimePerOutputToken(int num_tokens, int first_tokens) const;
};

struct Completion {
  std::string text;                     // without special tokens, cut before a stop string
  std::vector<TokenId> token_ids;       // with the stop token, if one ended it
  std::string finish_reason;            // "stop", "length", "cancelled"
  std::string provenance;               // a letter of Provenance per token
  std::vector<TokenLogprobs> logprobs;  // per token, if asked for
  std::vector<std::optional<TokenLogprobs>>
      prompt_logprobs;  // per prompt token, the first has none
  int prompt_tokens = 0;
  int cached_tokens = 0;       // of the prompt, found in the prefix cache
  int first_round_tokens = 0;  // emitted together with the first
  int num_preemptions = 0;     // times it gave its cache back and was computed again
  std::string verifier;        // the rule that ran
  int draft_tokens = 0;        // k, or kAutoDraftTokens
  RoundStats stats;
  Timings timings;
};

// What a round did to one generation's caches.
struct RoundReport {
  int proposed = 0;              // draft tokens that the target verified
  int accepted = 0;              // of those, kept
  int target_cached_tokens = 0;  // after the rollback
  int draft_cached_tokens = 0;   // likewise, in the draft's tokens; 0 without a draft model
};

// What one round added to a generation.
struct Piece {
  std::string_view text;  // may be empty: characters and stop strings are let out whole
  absl::Span<const TokenId> token_ids;
  std::string_view provenance;                 // a letter per token
  absl::Span<const TokenLogprobs> logprobs{};  // per token, if asked for
  RoundReport round{};
};

// What the engine runs, for reports.
struct ModelInfo {
  std::string path;
  std::string family;
  std::string dtype;
  int64_t parameters = 0;
  int64_t bytes_read_per_pass = 0;
  int64_t kv_bytes_per_token = 0;
  int vocab_size = 0;
  int context_length = 0;
  int num_pages = 0;
  int page_size = 0;  // tokens
  // Of a draft with other tokens than the target's: how many of the target's it can propose.
  std::optional<int> mapped_tokens{};
};

// The engine between two rounds, for who watches it. Counts are of all time so far.
struct EngineLoad {
  int num_running = 0;  // generations that have their caches
  int num_waiting = 0;
  int target_pages_in_use = 0;  // by sequences; published pages that nobody uses are free
  int draft_pages_in_use = 0;
  RoundStats stats;  // of generations in progress, too
  int64_t prompt_tokens = 0;
  int64_t prefix_queries = 0;     // prompt tokens looked up in the target's prefix cache
  int64_t prefix_hits = 0;        // of those, found
  int64_t draft_prefix_hits = 0;  // tokens found in the draft's, in its own
  int64_t preemptions = 0;
};

using GenerationId = int64_t;

// Generates text with a target model, sped up by a drafter. The output is distributed as the
// target's alone; with a seed or at temperature 0 it is the target's alone, token for token.
//
// Thread-safe. Rounds run on one thread of the engine's own.
class Engine {
 public:
  // NOT_FOUND, INVALID_ARGUMENT or RESOURCE_EXHAUSTED naming the file and field.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  // Cancels what runs and waits for its callbacks.
  virtual ~Engine() = default;

  // Called with what each round committed, on the engine's thread; return false to stop. Must not
  // call the engine.
  using OnPiece = absl::AnyInvocable<bool(const Piece&)>;
  // Called once, when the generation has ended and after its last piece. As OnPiece.
  using OnDone = absl::AnyInvocable<void(absl::StatusOr<Completion>)>;

  // Queues a generation. INVALID_ARGUMENT naming the field if the request is impossible. Without
  // `on_done` every generation must be waited for; with it none may be.
  virtual absl::StatusOr<GenerationId> Submit(Request request, OnPiece on_piece,
                                              OnDone on_done) = 0;
  absl::StatusOr<GenerationId> Submit(Request request, OnPiece on_piece) {
    return Submit(std::move(request), std::move(on_piece), nullptr);
  }
  // Blocks until the generation ends; its errors are returned here. NOT_FOUND for an id that is
  // unknown or was waited for.
  virtual absl::StatusOr<Completion> Wait(GenerationId id) = 0;
  // Ends a generation at its next round, as "cancelled". Unknown ids are ignored.
  virtual void Cancel(GenerationId id) = 0;
  // Submit and Wait.
  absl::StatusOr<Completion> Generate(Request request, OnPiece on_piece = nullptr);

  // Counts every page of both caches, between two rounds: INTERNAL, naming the page, unless each is
  // free or held exactly as often as is known.
  virtual absl::Status CheckIntegrity() = 0;

  virtual RoundStats stats() const = 0;  // of all generations that have ended
  virtual EngineLoad load() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  virtual ModelInfo target_info() const = 0;
  virtual std::optional<ModelInfo> draft_info() const = 0;
  virtual std::string drafter_name() const = 0;
  virtual std::string device_description() const = 0;
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_ENGINE_H_
