#include "engine/runtime.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "draft/make_drafter.h"
#include "engine/device_memory.h"
#include "engine/draft_format.h"
#include "engine/draft_mask.h"
#include "engine/known_drafts.h"
#include "engine/record_passes.h"
#include "kernels/number_formats.h"
#include "model/ranks/numa_nodes.h"
#include "tandem/field_error.h"
#include "text/end_tokens.h"

namespace tandem {
namespace {

// `bytes_read_per_pass`: by the model. `page_bytes`: the model's bytes in each page of the cache.
ModelInfo InfoOf(const std::string& path, const Transformer& model, const PagedKvCache& cache,
                 size_t page_bytes, int64_t bytes_read_per_pass) {
  return {.path = path,
          .family = model.config().family,
          .dtype = NameOf(model.dtype()),
          .parameters = model.num_parameters(),
          .bytes_read_per_pass = bytes_read_per_pass,
          .kv_cache = NameOf(cache.layout().dtype),
          .kv_bytes_per_token = static_cast<int64_t>(page_bytes / cache.layout().page_size),
          .vocab_size = model.vocab_size(),
          .context_length = model.context_length(),
          .num_pages = cache.num_pages(),
          .page_size = cache.layout().page_size,
          .weights_form = model.weights_form()};
}

// A device's products need more rows than a CPU's to reach their full speed (docs/cuda.md).
constexpr int kChunkTokensOfHost = 256;
constexpr int kChunkTokensOfDevice = 1024;
constexpr int64_t kMaxPages = std::numeric_limits<int>::max();  // pages are counted in an int

// Whether both are Hugging Face folders with the same tokenizer.json.
bool HaveSameTokenizerFile(const EngineOptions& options) {
  const auto draft = ReadFile(absl::StrCat(options.draft, "/tokenizer.json"));
  const auto target = ReadFile(absl::StrCat(options.target, "/tokenizer.json"));
  return draft.ok() && target.ok() && *draft == *target;
}

// Checks that a draft without a tokenizer can use its target's, as far as the size of its
// vocabulary shows it. Models of one family pad their vocabularies by a few hundred rows (Qwen2.5:
// by 271 or 399).
absl::Status CheckVocabularySize(const EngineOptions& options, const Runtime& runtime) {
  constexpr int kMaxPadding = 1024;
  const int least = runtime.tokenizer->vocab_size();
  const int most = std::max(least, runtime.target->vocab_size()) + kMaxPadding;
  const int found = runtime.draft->vocab_size();
  if (least <= found && found <= most) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string file, Tokenizer::FileOf(options.target));
  return absl::InvalidArgumentError(absl::StrCat(
      options.draft, ": has no tokenizer, and cannot use its target's: vocabulary: found ", found,
      ", allowed: from ", least, " to ", most, ", for the ", least, " tokens of ", file));
}

// Returns the map between the draft's and the target's tokens; null if they are the same.
absl::StatusOr<std::unique_ptr<VocabularyMap>> MakeVocabularyMap(const EngineOptions& options,
                                                                 const Runtime& runtime) {
  ASSIGN_OR_RETURN(const std::string draft_file, Tokenizer::FileOf(options.draft));
  if (draft_file.empty()) {
    RETURN_IF_ERROR(CheckVocabularySize(options, runtime));
    return nullptr;
  }
  const bool same_file = HaveSameTokenizerFile(options);
  const Tokenizer& tokenizer = *runtime.tokenizer;
  if (same_file && tokenizer.vocab_size() <= runtime.draft->vocab_size()) return nullptr;
  std::unique_ptr<Tokenizer> draft_tokenizer;
  if (!same_file) {
    ASSIGN_OR_RETURN(draft_tokenizer, Tokenizer::Load(options.draft));
  }
  const Vocabulary target{.tokenizer = &tokenizer,
                          .size = runtime.target->vocab_size(),
                          .end_tokens = runtime.end_tokens};
  const Tokenizer& of_draft = same_file ? tokenizer : *draft_tokenizer;
  const std::vector<TokenId> draft_ends = EndTokensOf(runtime.draft->config(), of_draft);
  const Vocabulary draft{
      .tokenizer = &of_draft, .size = runtime.draft->vocab_size(), .end_tokens = draft_ends};
  if (VocabularyMap::HasSameIds(target, draft)) return nullptr;
  auto vocabulary = std::make_unique<VocabularyMap>(target, draft);
  const auto& [num_target, num_draft, num_paired] = vocabulary->counts();
  if (IsUsable(*vocabulary)) {
    Log(LogLevel::kInfo,
        absl::StrCat("vocabulary target=", options.target, " draft=", options.draft,
                     " tokens=", num_target, " draft_tokens=", num_draft, " same=", num_paired));
    return vocabulary;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      options.draft, ": cannot draft for ", options.target, ": only ", num_paired,
      " tokens have the same text; ", num_target - num_paired, " of the target's ", num_target,
      " and ", num_draft - num_paired, " of the draft's ", num_draft, " have no counterpart"));
}

bool IsDraftSharedOut(const EngineOptions& options, const Runtime& runtime) {
  return runtime.ranks != nullptr && options.draft_tensor_parallel;
}

// Creates both caches for the same number of tokens, within the memory and at most as many as are
// useful.
absl::Status MakeCaches(const EngineOptions& options, std::optional<int64_t> host_memory,
                        Runtime* runtime) {
  KvLayout target_layout = runtime->target->kv_layout(options.page_size, runtime->kv_cache);
  int64_t page_bytes = runtime->target_needs.page_bytes + runtime->draft_needs.page_bytes;
  KvLayout draft_layout;
  if (runtime->has_head()) {
    target_layout.num_layers += 1;
    target_layout.state_size = runtime->target->state_size();
    page_bytes = static_cast<int64_t>(target_layout.page_bytes());
  } else if (runtime->draft != nullptr) {
    draft_layout = runtime->draft->kv_layout(options.page_size, runtime->draft_kv_cache);
  }
  const std::optional<int64_t> on_device = runtime->backend->free_memory_bytes();
  const std::optional<int64_t> available = on_device.has_value() ? on_device : host_memory;
  const int64_t to_pack = runtime->target_needs.bytes_to_pack + runtime->draft_needs.bytes_to_pack;
  const int64_t left = std::max<int64_t>(0, available.value_or(kGuessedMemory) - to_pack);
  const int64_t memory =
      options.kv_memory_bytes > 0 ? options.kv_memory_bytes : left / kDefaultShareOfFreeMemory;
  const int64_t useful = UsefulPages(options, runtime->target->context_length());
  int64_t num_pages = std::min({memory / page_bytes, useful, kMaxPages});
  if (runtime->ranks != nullptr) {
    ASSIGN_OR_RETURN(const int64_t most, runtime->ranks->MostPages());
    num_pages = std::min(num_pages, most);
  }
  const int64_t cache_bytes = num_pages * page_bytes;
  if (available.has_value() && to_pack + cache_bytes > *available) {
    const std::string weights = absl::StrCat(to_pack, " bytes of packed weights");
    return absl::ResourceExhaustedError(
        to_pack >= *available
            ? absl::StrCat("memory: ", weights, " are needed, but only ", *available,
                           " are available")
            : absl::StrCat("kv_memory: ", cache_bytes, " bytes of key-value caches and ", weights,
                           " are needed, but only ", *available, " are available"));
  }
  if (num_pages < 1) {
    return FieldError("kv_memory",
                      absl::StrCat(memory, " bytes cannot hold a page of ", options.page_size,
                                   " tokens, which takes ", page_bytes));
  }
  const auto make = [&](const KvLayout& layout) {
    auto cache = PagedKvCache::Create(runtime->backend.get(), layout, static_cast<int>(num_pages));
    if (cache.ok()) return cache;
    return decltype(cache)(absl::Status(cache.status().code(),
                                        absl::StrCat("kv_memory: key-value caches of ", cache_bytes,
                                                     " bytes: ", cache.status().message())));
  };
  ASSIGN_OR_RETURN(runtime->target_cache, make(target_layout));
  if (runtime->draft != nullptr && !runtime->has_head()) {
    ASSIGN_OR_RETURN(runtime->draft_cache, make(draft_layout));
  }
  if (runtime->ranks == nullptr) return absl::OkStatus();
  runtime->target->Lead(runtime->target_cache.get());
  if (IsDraftSharedOut(options, *runtime)) runtime->draft->Lead(runtime->draft_cache.get());
  return runtime->ranks->MakeCaches(num_pages);
}

absl::Status CheckCompute(const EngineOptions& options, const Transformer& model,
                          const std::string& path) {
  if (options.compute != CpuCompute::kBF16 || model.dtype() == DType::kBF16)
    return absl::OkStatus();
  return FieldError("compute", absl::StrCat("bf16 needs bfloat16 weights, but ", path, " has ",
                                            NameOf(model.dtype())));
}

Transformer::LoadOptions Loading(const EngineOptions& options, Quantization format) {
  return {.quantized = BlockTypeOf(format),
          .has_exact_activations = options.compute == CpuCompute::kF32,
          .packed_folder = options.packed_weights,
          .max_packed_bytes = options.packed_weights_bytes,
          .allowed_config_keys = options.allow_unknown_config,
          .on_packing = options.on_packing};
}

// Loads a model, or this rank's part of it.
absl::StatusOr<std::unique_ptr<Transformer>> LoadModel(const RankModel& model,
                                                       Transformer::LoadOptions loading,
                                                       const Runtime& runtime, bool is_shared_out) {
  if (is_shared_out) {
    loading.group = runtime.ranks->group();
    loading.first_slot = model.first_slot;
    RETURN_IF_ERROR(runtime.ranks->Load(model));
  }
  return Transformer::Load(model.path, runtime.backend.get(), loading);
}

absl::StatusOr<std::unique_ptr<Transformer>> LoadTarget(const EngineOptions& options,
                                                        const Runtime& runtime) {
  Transformer::LoadOptions loading = Loading(options, options.quantize);
  loading.context = options.context;
  return LoadModel({.path = options.target,
                    .quantize = options.quantize,
                    .requantizes = false,
                    .head_tokens = 0,
                    .context = options.context,
                    .kv_cache = runtime.kv_cache,
                    .first_slot = 0},
                   loading, runtime, runtime.ranks != nullptr);
}

// A learned head is built from rows in the host's memory, which ranks would split. So a draft that
// is split among ranks does not have one.
absl::StatusOr<std::unique_ptr<Transformer>> LoadDraft(const EngineOptions& options,
                                                       const std::string& path, Quantization format,
                                                       const Runtime& runtime) {
  Transformer::LoadOptions loading = Loading(options, format);
  loading.which = Transformer::Quantize::kAll;
  const bool is_shared_out = IsDraftSharedOut(options, runtime);
  if (options.draft_head_tokens != kAutoDraftHeadTokens) {
    loading.head_tokens = options.draft_head_tokens;
  } else if (runtime.backend->memory_is_host() && !is_shared_out) {
    loading.sets_head_from = DraftHead::kMinVocabulary;
  }
  return LoadModel({.path = path,
                    .quantize = format,
                    .requantizes = true,
                    .head_tokens = loading.head_tokens,
                    .context = 0,
                    .kv_cache = runtime.draft_kv_cache,
                    .first_slot = Transformer::kNumSlots},
                   loading, runtime, is_shared_out);
}

// Loads the target's own weights in another format. Its files are mapped a second time, but are in
// memory only once.
absl::StatusOr<std::unique_ptr<Transformer>> LoadSelf(const EngineOptions& options,
                                                      const Runtime& runtime) {
  ASSIGN_OR_RETURN(const Quantization format, SelfDraftFormat(options.draft));
  if (format == Quantization::kNone) {
    return FieldError("draft", "\"self:none\" is the target itself");
  }
  if (options.draft_quantize != Quantization::kNone &&
      options.draft_quantize != Quantization::kAuto) {
    return FieldError("draft_quantize", absl::StrCat("found ", View(NameOf(options.draft_quantize)),
                                                     ", allowed: auto and none, because ",
                                                     options.draft, " sets the format"));
  }
  return LoadDraft(options, options.target, format, runtime);
}

// Returns the form of the draft that the options load; kNone if no drafter uses it.
absl::StatusOr<DraftForm> FormOfDraft(const EngineOptions& options) {
  const bool is_used =
      options.all_drafters || options.drafter == DrafterKind::kAuto || HasModel(options.drafter);
  if (options.draft.empty() || !is_used) return DraftForm::kNone;
  if (IsSelfDraft(options.draft)) return DraftForm::kModel;
  ASSIGN_OR_RETURN(const ModelConfig config,
                   ReadModelConfig(options.draft, options.allow_unknown_config));
  return config.is_draft_head() ? DraftForm::kHead : DraftForm::kModel;
}

// Rejects a draft head in place of the target, before files are missing that a head never has.
absl::Status CheckIsNoHead(const EngineOptions& options) {
  const auto config = ReadModelConfig(options.target, options.allow_unknown_config);
  if (!config.ok() || !config->is_draft_head()) return absl::OkStatus();
  return FieldError("target", absl::StrCat("found ", options.target,
                                           ", a draft head, allowed: a model; a head is a draft"));
}

absl::Status RefuseForHead(const EngineOptions& options, absl::string_view field,
                           const std::string& found, absl::string_view allowed) {
  return FieldError(field, absl::StrCat("found ", found, ", allowed: ", allowed, ", because ",
                                        options.draft, " is a draft head"));
}

// Rejects options that a head inherits from its target or does not use.
absl::Status CheckHeadOptions(const EngineOptions& options, const Runtime& runtime) {
  if (options.draft_window != kAutoDraftWindow && options.draft_window != 0) {
    return RefuseForHead(options, "draft_window", absl::StrCat(options.draft_window), "auto and 0");
  }
  if (options.draft_head_tokens != kAutoDraftHeadTokens && options.draft_head_tokens != 0) {
    return RefuseForHead(options, "draft_head_tokens", absl::StrCat(options.draft_head_tokens),
                         "auto and 0");
  }
  if (runtime.draft_kv_cache != runtime.kv_cache) {
    return RefuseForHead(options, "draft_kv_cache", NameOf(runtime.draft_kv_cache),
                         NameOf(runtime.kv_cache));
  }
  return absl::OkStatus();
}

// Loads a model of one layer that reads the target's states, and makes the target keep its states.
absl::StatusOr<std::unique_ptr<Transformer>> LoadHead(const EngineOptions& options,
                                                      Runtime* runtime) {
  RETURN_IF_ERROR(CheckHeadOptions(options, *runtime));
  if (options.draft_quantize != Quantization::kAuto) runtime->draft_format = options.draft_quantize;
  Transformer::LoadOptions loading = Loading(options, runtime->draft_format);
  loading.which = Transformer::Quantize::kAll;
  loading.target = runtime->target.get();
  loading.first_layer = runtime->target->config().num_layers;
  ASSIGN_OR_RETURN(std::unique_ptr<Transformer> head,
                   Transformer::Load(options.draft, runtime->backend.get(), loading));
  runtime->target->KeepStates(head->config().target_layers);
  return head;
}

// Resolves EngineOptions::draft_quantize for a draft with its own files. If memory is not the
// host's, requantised weights would not be kept, and every start would requantise them again.
absl::StatusOr<Quantization> DraftFormatOf(const EngineOptions& options, const Runtime& runtime) {
  if (options.draft_quantize != Quantization::kAuto) return options.draft_quantize;
  if (!runtime.backend->memory_is_host()) return Quantization::kNone;
  ASSIGN_OR_RETURN(const DraftMatrices matrices, DraftMatricesOf(options, options.draft));
  return ChooseDraftFormat(matrices, static_cast<double>(runtime.target->bytes_read_per_pass()),
                           options.compute == CpuCompute::kF32);
}

// Returns the memory that a model needs. If ranks share it, waits until all of them have loaded
// their parts (LeadingRank::AwaitLoaded).
absl::StatusOr<LeadingRank::Needs> NeedsOfAll(const EngineOptions& options,
                                              const Transformer& model, KvDType kv_cache,
                                              const Runtime& runtime, bool is_shared_out) {
  if (is_shared_out) return runtime.ranks->AwaitLoaded(model, *runtime.backend, kv_cache);
  return NeedsOf(model, *runtime.backend, options.page_size, kv_cache);
}

// Runs a pass of one token, which packs every weight, then one of `head`, which may be null, on the
// states of that pass.
absl::Status WarmUp(Transformer* model, Transformer* head, PagedKvCache* cache) {
  KvSequence kv = cache->NewSequence();
  constexpr TokenId kAnyToken = 0;
  ForwardRequest request{.tokens = {&kAnyToken, 1}, .kv = &kv, .num_logits = 1};
  RETURN_IF_ERROR(model->Forward({&request, 1}).status());
  if (head == nullptr) return absl::OkStatus();
  request.states = model->states();
  return head->Forward({&request, 1}).status();
}

}  // namespace

absl::StatusOr<Runtime> Runtime::Load(const EngineOptions& options,
                                      std::optional<int64_t> host_memory) {
  RETURN_IF_ERROR(options.Validate());
  RETURN_IF_ERROR(CheckIsNoHead(options));
  ASSIGN_OR_RETURN(const DraftForm form, FormOfDraft(options));
  RETURN_IF_ERROR(CheckMaskOption(options, form));
  if (form == DraftForm::kHead && options.tensor_parallel > 1) {
    return RefuseForHead(options, "tensor_parallel", absl::StrCat(options.tensor_parallel), "1");
  }
  Runtime runtime;
  int threads = options.threads;
  if (options.tensor_parallel > 1) {
    ASSIGN_OR_RETURN(runtime.ranks, LeadingRank::Start(options));
    threads = runtime.ranks->num_threads();
  }
  const CpuOptions cpu{.num_threads = threads, .compute = options.compute, .isa = ""};
  {
    std::optional<OnNumaNode> node;  // for the threads that the backend starts
    if (runtime.ranks != nullptr && options.rendezvous.empty()) {
      node.emplace(/*rank=*/0, options.tensor_parallel);
    }
    ASSIGN_OR_RETURN(runtime.backend, MakeBackendFor(options, cpu));
    RETURN_IF_ERROR(runtime.backend->TuneProducts(options.cuda_tune));
  }
  if (runtime.ranks != nullptr) RETURN_IF_ERROR(runtime.ranks->Open(runtime.backend.get()));
  runtime.chunk_tokens = options.chunk_tokens > 0            ? options.chunk_tokens
                         : runtime.backend->memory_is_host() ? kChunkTokensOfHost
                                                             : kChunkTokensOfDevice;
  const KvDType automatic = runtime.backend->memory_is_host() ? KvDType::kF32 : KvDType::kBF16;
  runtime.kv_cache = KvDTypeOf(options.kv_cache, automatic);
  runtime.draft_kv_cache = KvDTypeOf(options.kv_cache_of_draft(), automatic);
  ASSIGN_OR_RETURN(runtime.tokenizer, Tokenizer::Load(options.target));
  ASSIGN_OR_RETURN(runtime.target, LoadTarget(options, runtime));
  RETURN_IF_ERROR(CheckCompute(options, *runtime.target, options.target));
  ASSIGN_OR_RETURN(runtime.target_needs, NeedsOfAll(options, *runtime.target, runtime.kv_cache,
                                                    runtime, runtime.ranks != nullptr));
  if (runtime.tokenizer->vocab_size() > runtime.target->vocab_size()) {
    ASSIGN_OR_RETURN(const std::string file, Tokenizer::FileOf(options.target));
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": has ids up to ", runtime.tokenizer->vocab_size() - 1,
                     ", but the model's vocabulary has ", runtime.target->vocab_size()));
  }
  runtime.end_tokens = EndTokensOf(runtime.target->config(), *runtime.tokenizer);
  runtime.predictions = std::make_unique<PredictedTexts>();
  runtime.constraints = std::make_unique<ConstraintCompiler>(
      runtime.tokenizer.get(), runtime.target->vocab_size(), ConstraintCompiler::Limits());
  runtime.drafter_kind = ResolveDrafter(options.drafter, form);
  runtime.has_all_drafters = options.all_drafters;
  const bool has_model = options.all_drafters || HasModel(runtime.drafter_kind);
  if (IsSelfDraft(options.draft) && has_model) {
    ASSIGN_OR_RETURN(runtime.draft, LoadSelf(options, runtime));
  } else if (form == DraftForm::kHead && has_model) {
    ASSIGN_OR_RETURN(runtime.draft, LoadHead(options, &runtime));
  } else if (!options.draft.empty() && has_model) {
    ASSIGN_OR_RETURN(runtime.draft_format, DraftFormatOf(options, runtime));
    ASSIGN_OR_RETURN(runtime.draft,
                     LoadDraft(options, options.draft, runtime.draft_format, runtime));
    RETURN_IF_ERROR(CheckCompute(options, *runtime.draft, options.draft));
    ASSIGN_OR_RETURN(runtime.vocabulary, MakeVocabularyMap(options, runtime));
  }
  if (runtime.draft != nullptr && !runtime.has_head() && runtime.draft->head_tokens() == 0) {
    runtime.head =
        std::make_unique<LearnedHead>(runtime.draft.get(),
                                      LearnedHead::Target{.tokenizer = runtime.tokenizer.get(),
                                                          .model = runtime.target.get(),
                                                          .end_tokens = runtime.end_tokens,
                                                          .vocabulary = runtime.vocabulary.get()},
                                      DraftsInOnePass(options, runtime.draft->config()));
    RETURN_IF_ERROR(runtime.head->Make());
  }
  if (runtime.draft != nullptr) {
    ASSIGN_OR_RETURN(runtime.draft_needs,
                     NeedsOfAll(options, *runtime.draft, runtime.draft_kv_cache, runtime,
                                IsDraftSharedOut(options, runtime)));
  }
  RETURN_IF_ERROR(MakeCaches(options, host_memory, &runtime));
  ASSIGN_OR_RETURN(runtime.mask_token, ChooseMaskToken(options, runtime));
  if (options.warm_up) {
    RETURN_IF_ERROR(WarmUp(runtime.target.get(), runtime.has_head() ? runtime.draft.get() : nullptr,
                           runtime.target_cache.get()));
    if (runtime.draft_cache != nullptr) {
      RETURN_IF_ERROR(WarmUp(runtime.draft.get(), /*head=*/nullptr, runtime.draft_cache.get()));
    }
  }
  if (runtime.draft != nullptr && !runtime.has_head()) {
    runtime.draft_window = DraftWindow::Of(options.draft_window,
                                           {.target = runtime.target->context_length(),
                                            .draft = runtime.draft->context_length(),
                                            .reads_other_tokens = runtime.vocabulary != nullptr});
  }
  const DrafterParts parts = {
      .model = runtime.draft.get(),
      .cache = runtime.has_head() ? runtime.target_cache.get() : runtime.draft_cache.get(),
      .target = runtime.target.get(),
      .backend = runtime.backend.get(),
      .target_vocab_size = runtime.target->vocab_size(),
      .chunk_tokens = runtime.chunk_tokens,
      .vocabulary = runtime.vocabulary.get(),
      .window = runtime.draft_window,
      .mask_token = runtime.mask_token};
  ASSIGN_OR_RETURN(runtime.drafter, runtime.has_all_drafters
                                        ? MakeEveryDrafter(runtime.drafter_kind, parts)
                                        : MakeDrafter(runtime.drafter_kind, parts));
  if (options.warm_up) RETURN_IF_ERROR(RecordPasses(options, &runtime));
  return runtime;
}

std::vector<DrafterKind> Runtime::Drafters() const {
  if (!has_all_drafters) {
    return drafter == nullptr ? std::vector<DrafterKind>() : std::vector{drafter_kind};
  }
  if (draft == nullptr) return {DrafterKind::kNgram};
  if (has_head()) return {DrafterKind::kHead, DrafterKind::kNgram, DrafterKind::kHeadAndNgram};
  return {DrafterKind::kModel, DrafterKind::kNgram, DrafterKind::kModelAndNgram};
}

size_t Runtime::HeadPageBytes() const {
  if (!has_head()) return 0;
  KvLayout without = target_cache->layout();
  --without.num_layers;
  without.state_size = 0;
  return target_cache->layout().page_bytes() - without.page_bytes();
}

void Runtime::SetUp(SpeculationPolicy* policy) const {
  policy->set_watches_processor(backend->memory_is_host() && ranks == nullptr);
  if (draft == nullptr) return;
  const double step = static_cast<double>(draft->bytes_read_per_pass()) /
                      static_cast<double>(target->bytes_read_per_pass());
  policy->costs().ExpectStep(step);
  if (step < 1.0) return;
  Log(LogLevel::kWarning,
      Format("draft: reads %.2f times the bytes of the target in a pass, so it cannot make "
             "the target faster",
             step));
}

void Runtime::AwaitPackedFiles() const {
  for (Transformer* const model : {target.get(), draft.get()}) {
    if (model != nullptr) model->AwaitPackedFile().IgnoreError();
  }
}

ModelInfo Runtime::TargetInfo(const std::string& path) const {
  return InfoOf(path, *target, *target_cache, target_cache->layout().page_bytes() - HeadPageBytes(),
                static_cast<int64_t>(target->bytes_read_per_pass()));
}

std::optional<ModelInfo> Runtime::DraftInfo(const std::string& path) const {
  if (draft == nullptr) return std::nullopt;
  const LearnedHead::Facts facts =
      head != nullptr ? head->facts()
                      : LearnedHead::Facts{.num_tokens = draft->head_tokens(),
                                           .bytes_read_per_pass =
                                               static_cast<int64_t>(draft->bytes_read_per_pass())};
  const PagedKvCache& cache = has_head() ? *target_cache : *draft_cache;
  ModelInfo info =
      InfoOf(path, *draft, cache, has_head() ? HeadPageBytes() : cache.layout().page_bytes(),
             facts.bytes_read_per_pass);
  info.quantize = NameOf(draft_format);
  info.head_tokens = facts.num_tokens;
  if (head != nullptr) info.head_coverage = facts.coverage;
  info.window = draft_window.recent;
  if (mask_token != kNoMaskToken) info.mask_token = mask_token;
  if (vocabulary != nullptr) info.mapped_tokens = static_cast<int>(vocabulary->pairs().size());
  return info;
}

}  // namespace tandem
