#ifndef TANDEM_ENGINE_RUNTIME_H_
#define TANDEM_ENGINE_RUNTIME_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/process_limits.h"
#include "draft/drafter.h"
#include "draft/make_drafter.h"
#include "draft/policy/speculation_policy.h"
#include "draft/prediction.h"
#include "draft/vocabulary_map.h"
#include "engine/learned_head.h"
#include "engine/tensor_parallel.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/transformer.h"
#include "tandem/engine_options.h"
#include "tandem/model_info.h"
#include "tandem/number_formats.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"
#include "text/constraint/constraint_compiler.h"

namespace tandem {

// Used as the free memory where it is unknown.
inline constexpr int64_t kGuessedMemory = int64_t{1} << 30;

// A target, perhaps a draft, their caches, and everything else that EngineOptions select. Members
// are ordered so that users are destroyed before the objects that they use.
struct Runtime {
  std::unique_ptr<LeadingRank> ranks;  // null if this process computes alone
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Tokenizer> tokenizer;             // the target's
  std::unique_ptr<ConstraintCompiler> constraints;  // for the target's vocabulary
  std::unique_ptr<PredictedTexts> predictions;      // in the target's tokens
  std::unique_ptr<Transformer> target;
  std::vector<TokenId> end_tokens;     // the target's (text/end_tokens.h)
  std::unique_ptr<Transformer> draft;  // or null
  // The format to which the draft's matrices were quantised at load.
  Quantization draft_format = Quantization::kNone;
  std::unique_ptr<PagedKvCache> target_cache;
  std::unique_ptr<PagedKvCache> draft_cache;  // null without a draft model
  KvDType kv_cache = KvDType::kF32;
  KvDType draft_kv_cache = KvDType::kF32;
  LeadingRank::Needs target_needs, draft_needs;
  DraftWindow draft_window;
  TokenId mask_token = kNoMaskToken;              // of a draft model that drafts in one pass
  std::unique_ptr<VocabularyMap> vocabulary;      // null without a draft, or if the ids agree
  std::unique_ptr<LearnedHead> head;              // null unless the draft's head is learned
  DrafterKind drafter_kind = DrafterKind::kNone;  // never kAuto
  bool has_all_drafters = false;
  int chunk_tokens = 0;              // EngineOptions::chunk_tokens, never 0
  std::unique_ptr<Drafter> drafter;  // combines all drafters that can run; null for none

  // The drafters that a request may name, except kNone.
  std::vector<DrafterKind> Drafters() const;
  DraftForm draft_form() const { return FormOf(draft.get()); }
  // Whether the draft is a head. Its layer is in target_cache.
  bool has_head() const { return draft_form() == DraftForm::kHead; }

  // The bytes in a page of target_cache for a head's layer and the state that it reads; 0 without a
  // head.
  size_t HeadPageBytes() const;

  std::string DeviceDescription() const { return std::string(backend->description()); }
  // Tells the policy what to expect of these models and this device before its first round. Warns
  // of a draft that cannot pay.
  void SetUp(SpeculationPolicy* policy) const;
  // Transformer::AwaitPackedFile of each model. Thread-safe.
  void AwaitPackedFiles() const;
  // Describe the models, which were loaded from these paths. DraftInfo is empty without a draft.
  ModelInfo TargetInfo(const std::string& path) const;
  std::optional<ModelInfo> DraftInfo(const std::string& path) const;

  // Loads the models and creates the caches. Errors name the file or the option.
  // RESOURCE_EXHAUSTED, with the bytes needed and available, if packing the weights and filling the
  // caches would take more memory than the device has, or more than `host_memory` if the device is
  // the host; nothing was packed then. Mapped files do not count, because their pages are evicted
  // when memory is needed.
  static absl::StatusOr<Runtime> Load(const EngineOptions& options,
                                      std::optional<int64_t> host_memory = AvailableMemoryBytes());
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_RUNTIME_H_
