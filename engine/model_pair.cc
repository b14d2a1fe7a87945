#include "engine/model_pair.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "draft/make_drafter.h"

namespace tandem {
namespace {

// Share of the free memory that the caches take when nothing is said.
constexpr int kDefaultShareOfFreeMemory = 4;  // a quarter
// Beyond the sequences of a full batch, room for as many earlier prompts.
constexpr int kRoomForPrefixes = 2;

absl::StatusOr<CpuCompute> ParseCompute(const std::string& name) {
  if (name == "auto") return CpuCompute::kAuto;
  if (name == "f32") return CpuCompute::kF32;
  if (name == "bf16") return CpuCompute::kBF16;
  return absl::InvalidArgumentError(
      absl::StrCat("compute: \"", name, "\" is not one of auto, f32, bf16"));
}

// Bytes that new allocations may take without swapping; a guess of 1 GiB where /proc is missing.
int64_t FreeMemoryBytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    int64_t kib = 0;
    if (key == "MemAvailable:" && file >> kib) return kib << 10;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return int64_t{1} << 30;
}

// Tokens of the draft and the target must be the same: ids are compared, not texts.
absl::Status CheckSameVocabulary(const EngineOptions& options, const Tokenizer& target,
                                 int target_vocab_size, int draft_vocab_size) {
  const auto draft_file = ReadFile(absl::StrCat(options.draft, "/tokenizer.json"));
  const auto target_file = ReadFile(absl::StrCat(options.target, "/tokenizer.json"));
  if (draft_file.ok() && target_file.ok() && *draft_file == *target_file) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> draft, Tokenizer::Load(options.draft));
  const int shared = std::min(
      {target_vocab_size, draft_vocab_size, std::max(target.vocab_size(), draft->vocab_size())});
  int num_different = 0;
  for (TokenId id = 0; id < shared; ++id) {
    if (target.Decode({&id, 1}) != draft->Decode({&id, 1})) ++num_different;
  }
  if (num_different == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      options.draft, ": ", num_different, " of ", shared, " tokens differ from those of ",
      options.target, "; a draft model must have the target's tokenizer"));
}

// Both caches hold the same number of tokens, within the memory and no more than can be of use.
absl::Status MakeCaches(const EngineOptions& options, ModelPair* pair) {
  const KvLayout target_layout = pair->target->kv_layout(options.page_size);
  size_t bytes_per_page = target_layout.page_bytes();
  KvLayout draft_layout;
  if (pair->draft != nullptr) {
    draft_layout = pair->draft->kv_layout(options.page_size);
    bytes_per_page += draft_layout.page_bytes();
  }
  const int64_t memory = options.kv_memory_bytes > 0
                             ? options.kv_memory_bytes
                             : FreeMemoryBytes() / kDefaultShareOfFreeMemory;
  const int64_t pages_per_sequence =
      (pair->target->context_length() + options.page_size - 1) / options.page_size + 1;
  const int64_t useful = pages_per_sequence * options.max_batch * kRoomForPrefixes;
  const int64_t num_pages = std::min(memory / static_cast<int64_t>(bytes_per_page), useful);
  if (num_pages < 1) {
    return absl::InvalidArgumentError(absl::StrCat("kv_memory: ", memory, " bytes hold no page of ",
                                                   options.page_size, " tokens, which takes ",
                                                   bytes_per_page));
  }
  ASSIGN_OR_RETURN(pair->target_cache, PagedKvCache::Create(pair->backend.get(), target_layout,
                                                            static_cast<int>(num_pages)));
  if (pair->draft == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(pair->draft_cache, PagedKvCache::Create(pair->backend.get(), draft_layout,
                                                           static_cast<int>(num_pages)));
  return absl::OkStatus();
}

absl::Status CheckCompute(const EngineOptions& options, const Transformer& model,
                          const std::string& path) {
  if (options.compute != "bf16" || model.dtype() == DType::kBF16) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("compute: bf16 needs bfloat16 weights, and ", path,
                                                 " has ", NameOf(model.dtype())));
}

}  // namespace

absl::StatusOr<ModelPair> ModelPair::Load(const EngineOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  ModelPair pair;
  CpuOptions cpu{.num_threads = options.threads, .compute = CpuCompute::kAuto, .isa = ""};
  ASSIGN_OR_RETURN(cpu.compute, ParseCompute(options.compute));
  ASSIGN_OR_RETURN(pair.backend, MakeBackend(options.device, cpu));
  ASSIGN_OR_RETURN(pair.tokenizer, Tokenizer::Load(options.target));
  ASSIGN_OR_RETURN(pair.target, Transformer::Load(options.target, pair.backend.get()));
  RETURN_IF_ERROR(CheckCompute(options, *pair.target, options.target));
  if (pair.tokenizer->vocab_size() > pair.target->vocab_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.target, "/tokenizer.json: has ids up to ", pair.tokenizer->vocab_size() - 1,
        ", but the model's vocabulary has ", pair.target->vocab_size()));
  }
  if (!options.draft.empty() && options.drafter != "none" && options.drafter != "ngram") {
    ASSIGN_OR_RETURN(pair.draft, Transformer::Load(options.draft, pair.backend.get()));
    RETURN_IF_ERROR(CheckCompute(options, *pair.draft, options.draft));
    RETURN_IF_ERROR(CheckSameVocabulary(options, *pair.tokenizer, pair.target->vocab_size(),
                                        pair.draft->vocab_size()));
  }
  RETURN_IF_ERROR(MakeCaches(options, &pair));
  ASSIGN_OR_RETURN(pair.drafter,
                   MakeDrafter(options.drafter, {.model = pair.draft.get(),
                                                 .cache = pair.draft_cache.get(),
                                                 .target_vocab_size = pair.target->vocab_size(),
                                                 .chunk_tokens = options.chunk_tokens}));
  return pair;
}

}  // namespace tandem
