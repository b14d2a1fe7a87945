#include "tools/engine_options.h"

#include <limits>
#include <memory>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "engine/tensor_parallel.h"
#include "kernels/quantize.h"
#include "kvcache/kv_layout.h"
#include "ranks/rank_group.h"
#include "tandem/field_error.h"
#include "tandem/model_places.h"
#include "tools/progress.h"

namespace tandem {
namespace {

absl::Status CheckName(absl::string_view option, absl::string_view name,
                       absl::Span<const absl::string_view> allowed) {
  std::string list;
  for (const absl::string_view candidate : allowed) {
    if (name == candidate) return absl::OkStatus();
    absl::StrAppend(&list, list.empty() ? "" : ", ", candidate);
  }
  return absl::InvalidArgumentError(absl::StrCat(option, ": \"", name, "\" is not one of ", list));
}

absl::StatusOr<int> ParseDraftHeadTokens(const std::string& text) {
  if (text == "auto") return kAutoDraftHeadTokens;
  int count = 0;
  if (absl::SimpleAtoi(text, &count) && count >= 0) return count;
  return FieldError("--draft-head-tokens", absl::StrCat("must be auto or at least 0, got ", text));
}

}  // namespace

void EngineFlags::AddTo(CLI::App* app, bool with_draft_tokens) {
  const std::string group = kEngineGroup;
  const std::string target_help =
      "Target model: a Hugging Face folder, a GGUF file or the name of a fetched model [";
  app->add_option("-m,--target", target,
                  target_help + (prefers_real_pair ? "smollm2 where it was fetched, else the "
                                                     "shipped storyteller-7m]"
                                                   : "the shipped storyteller-7m]"))
      ->type_name("PATH")
      ->group(group);
  app->add_option(
         "--draft", draft,
         "Draft model, in the same forms (also -md); without a tokenizer it has the target's; "
         "self:FORMAT is the target's own weights as --quantize makes them, self those of int4; or "
         "a draft head for this target "
         "[the one that is known for a target given by its name, else none]")
      ->type_name("PATH")
      ->group(group);
  app->add_option("--drafter", drafter,
                  "What proposes: model (the draft), ngram (what followed last time, in prompt or "
                  "output), model+ngram; where the draft is a head also eagle3 and eagle3+ngram, "
                  "which are the same; none [the draft and ngram if there is a draft, else ngram]")
      ->type_name("NAME")
      ->group(group);
  if (with_draft_tokens) {
    app->add_option("-k,--draft-tokens", draft_tokens,
                    "Most tokens proposed per round, or auto; 0 decodes plainly [auto]")
        ->type_name("N")
        ->group(group);
  }
  app->add_option("--verifier", verifier,
                  "What decides: exact_match, block, token; auto is exact_match with a seed or at "
                  "temperature 0 and where drafts are not drawn, else block [auto]")
      ->type_name("NAME")
      ->group(group);
  app->add_option(
         "--device", device,
         "cpu, cuda:N, or auto: cuda:0 where there is one of compute capability 8.0 or later, "
         "else the CPU [auto]")
      ->type_name("NAME")
      ->group(group);
  app->add_option("--threads", threads,
                  "CPU threads, at most one for each processor [the physical cores]")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->group(group);
  app->add_option(
         "--compute", compute,
         "Activations in CPU products with bf16 weights: f32, bf16; auto is bf16 where the "
         "CPU has it. With f32 quantised checkpoints are dequantised [auto]")
      ->type_name("NAME")
      ->group(group);
  app->add_option(
         "--quantize", quantize,
         "Quantise the target's weights of floats at load: none, a block format (q8_0, q6_k, "
         "q5_k, q5_1, q5_0, q4_k, q4_1, q4_0, iq4_nl, iq4_xs, q3_k, q2_k), or the best of "
         "8 or 4 bits: int8, int4 [none]")
      ->type_name("NAME")
      ->group(group);
  app->add_option("--draft-quantize", draft_quantize,
                  "The same for the draft's weights, of blocks too where the format is smaller; "
                  "auto is int4 for a large draft whose drafts gain from it [auto]")
      ->type_name("NAME")
      ->group(group);
  app->add_option(
         "--draft-head-tokens", draft_head_tokens,
         "Tokens that the draft can propose, those of the lowest ids: a smaller head takes less "
         "time. 0 for all; auto learns which are common, and how many pay [auto]")
      ->type_name("N")
      ->group(group);
  app->add_option("--draft-window", draft_window,
                  "The draft reads the first few and the last N tokens of a longer context; auto "
                  "keeps the reading of long prompts short, 0 reads all [auto]")
      ->type_name("N")
      ->group(group);
  app->add_option("--kv-cache", kv_cache,
                  "Type of the caches: f32, bf16, or int8 with a scale per token and head; auto is "
                  "bf16 on a CUDA device and f32 on a CPU [auto]")
      ->type_name("NAME")
      ->group(group);
  app->add_option("--draft-kv-cache", draft_kv_cache,
                  "Type of the draft's cache; it affects speed alone [as --kv-cache]")
      ->type_name("NAME")
      ->group(group);
  app->add_option("--kv-memory", kv_memory,
                  "Memory of both caches, such as 512M or 2G [a quarter of the free memory]")
      ->type_name("SIZE")
      ->group(group);
  app->add_option("--draft-memory", draft_memory,
                  "Memory to draft from what earlier texts went on with, half of it for requests "
                  "without a cache_salt and a 32nd for each of 16 others; 0 for none [16M]")
      ->type_name("SIZE")
      ->group(group);
  app->add_option("-c,--context", context,
                  "Limits the context: no prompt and answer have more tokens together [the "
                  "model's context]")
      ->type_name("N")
      ->check(CLI::Range(1, std::numeric_limits<int>::max()))
      ->group(group);
  app->add_option("--page-size", page_size, "Tokens per cache page [16]")
      ->type_name("N")
      ->check(CLI::Range(1, 4096))
      ->group(group);
  app->add_option("--tensor-parallel", tensor_parallel,
                  "Processes that compute the target's passes together, each its own part of every "
                  "layer, with the bits of one; --threads are those of each [1]")
      ->type_name("N")
      ->check(CLI::Range(1, kMostRanks))
      ->group(group);
  app->add_flag("--draft-tensor-parallel", draft_tensor_parallel,
                "They compute the draft's passes together, too [the first one has the draft]")
      ->group(group);
  app->add_option("--rendezvous", rendezvous,
                  "For processes on several machines, which are started with the same command and "
                  "--rank each: where rank 0 listens, as the others reach it. Rank 0 does the job, "
                  "the others follow it [all are on this machine]")
      ->type_name("HOST:PORT")
      ->group(group);
  app->add_option("--rank", rank, "With --rendezvous: which process this is, from 0 [0]")
      ->type_name("R")
      ->check(CLI::Range(0, kMostRanks - 1))
      ->group(group);
  app->add_option("--world", world, "The same as --tensor-parallel, which it stands in for")
      ->type_name("N")
      ->check(CLI::Range(1, kMostRanks))
      ->group(group);
  app->add_option("--rendezvous-secret-file", rendezvous_secret.file,
                  "A file that holds the secret of all ranks; needed where HOST is not a loopback "
                  "address [$TANDEM_RENDEZVOUS_SECRET, else none]")
      ->type_name("F")
      ->group(group);
  app->add_option("--packed-weights", packed_weights,
                  "Folder that caches large models' weights in the CPU's layout, so that later "
                  "starts are fast, and what speculation has learned; none for no cache [packed/ "
                  "next to fetched models]")
      ->type_name("DIR")
      ->group(group);
  AddUnknownConfigOption(app, &allow_unknown_config, group);
}

void AddUnknownConfigOption(CLI::App* app, std::vector<std::string>* keys,
                            const std::string& group) {
  CLI::Option* const option =
      app->add_option("--allow-unknown-config", *keys,
                      "A key of config.json that is ignored though it is not known and might "
                      "change the result; may be given again")
          ->type_name("KEY")
          ->allow_extra_args(false);
  if (!group.empty()) option->group(group);
}

absl::Status EngineFlags::ChooseModels(EngineOptions* options) const {
  options->target = target;
  options->draft = draft;
  if (target.empty()) {
    const std::optional<PairPaths> real =
        prefers_real_pair ? RealPair(options->tensor_parallel) : std::nullopt;
    const PairPaths pair = real.has_value() ? *real : StoryPair();
    options->target = pair.target;
    if (draft.empty()) options->draft = pair.draft;
  }
  // A model that is missing fails the job, not the command line: the engine says so.
  const absl::Status status = ResolveModels(options);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::Status EngineFlags::ChooseRanks(EngineOptions* options) const {
  if (world > 0 && tensor_parallel > 1 && world != tensor_parallel) {
    return FieldError("--world", absl::StrCat("must be that of --tensor-parallel, which is ",
                                              tensor_parallel, ", got ", world));
  }
  options->tensor_parallel = world > 0 ? world : tensor_parallel;
  options->rank = rank;
  options->rendezvous = rendezvous;
  if (rendezvous.empty()) {
    if (rendezvous_secret.file.empty()) return absl::OkStatus();
    return FieldError("--rendezvous-secret-file", "needs a --rendezvous");
  }
  ASSIGN_OR_RETURN(options->rendezvous_secret, rendezvous_secret.Read());
  return absl::OkStatus();
}

absl::StatusOr<EngineOptions> EngineFlags::ToOptions() const {
  EngineOptions options;
  absl::StatusOr<AcceptanceRule> rule = ParseAcceptanceRule(verifier);
  if (!rule.ok()) return WithField(rule.status(), "--verifier");
  options.verifier = *rule;
  RETURN_IF_ERROR(CheckName("--compute", compute, {"auto", "f32", "bf16"}));
  RETURN_IF_ERROR(ValueOf(kQuantizations, "--quantize", quantize).status());
  if (draft_quantize != "auto") {
    RETURN_IF_ERROR(ValueOf(kQuantizations, "--draft-quantize", draft_quantize).status());
  }
  RETURN_IF_ERROR(ParseKvDType(kv_cache, "--kv-cache", KvDType::kF32).status());
  absl::StatusOr<DrafterKind> kind = ParseDrafterKind(drafter);
  if (!kind.ok()) return WithField(kind.status(), "--drafter");
  options.drafter = *kind;
  RETURN_IF_ERROR(ChooseRanks(&options));
  RETURN_IF_ERROR(ChooseModels(&options));
  const bool is_given = *kind != DrafterKind::kAuto;
  // One that was asked for is for requests to choose, where they may.
  options.all_drafters = all_drafters;
  const bool is_for_requests = all_drafters && !draft.empty();
  if (is_given && !HasModel(*kind) && !is_for_requests) options.draft.clear();
  if (is_given && HasModel(*kind) && options.draft.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--drafter: ", drafter, " needs a --draft"));
  }
  ASSIGN_OR_RETURN(options.draft_tokens, ParseDraftTokens(draft_tokens));
  options.device = device;
  options.threads = UsableThreads(threads);
  options.compute = compute;
  options.quantize = quantize;
  options.draft_quantize = draft_quantize;
  ASSIGN_OR_RETURN(options.draft_head_tokens, ParseDraftHeadTokens(draft_head_tokens));
  ASSIGN_OR_RETURN(options.draft_window, ParseDraftWindow(draft_window));
  options.kv_cache = kv_cache;
  options.draft_kv_cache = draft_kv_cache;
  RETURN_IF_ERROR(
      ParseKvDType(options.kv_cache_of_draft(), "--draft-kv-cache", KvDType::kF32).status());
  if (!kv_memory.empty()) {
    ASSIGN_OR_RETURN(options.kv_memory_bytes, ParseSize("--kv-memory", kv_memory));
  }
  options.draft_memory_bytes = 0;
  if (draft_memory != "0") {
    ASSIGN_OR_RETURN(options.draft_memory_bytes, ParseSize("--draft-memory", draft_memory));
  }
  options.page_size = page_size;
  options.draft_tensor_parallel = draft_tensor_parallel;
  options.context = context;
  options.on_packing = [progress = std::shared_ptr<Progress>()](int64_t packed,
                                                                int64_t total) mutable {
    if (progress == nullptr) progress = std::make_shared<Progress>("packing", total);
    progress->AdvanceTo(packed);
    if (packed == total) progress.reset();
  };
  options.allow_unknown_config = allow_unknown_config;
  options.packed_weights = packed_weights;
  if (packed_weights.empty()) options.packed_weights = PackedWeightsFolder().value_or("");
  if (packed_weights == "none") options.packed_weights.clear();
  RETURN_IF_ERROR(options.Validate());
  return options;
}

absl::Status RunOrFollow(const EngineOptions& options, absl::FunctionRef<absl::Status()> job) {
  return options.rank == 0 ? job() : FollowRankZero(options);
}

int UsableThreads(int threads) {
  const int most = NumUsableProcessors();
  if (threads <= most) return threads;
  Log(LogLevel::kWarning, absl::StrCat("threads=", most, " reason=\"--threads ", threads,
                                       " is more than the processors that there are\""));
  return most;
}

absl::StatusOr<int> ParseDraftWindow(const std::string& text) {
  if (text == "auto") return kAutoDraftWindow;
  int count = 0;
  if (absl::SimpleAtoi(text, &count) && count >= 0) return count;
  return FieldError("--draft-window", absl::StrCat("must be auto or at least 0, got ", text));
}

absl::StatusOr<int> ParseDraftTokens(const std::string& text, absl::string_view option) {
  if (text == "auto") return kAutoDraftTokens;
  int count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 0 || count > kMaxDraftTokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        option, ": \"", text, "\" is not auto or a number from 0 to ", kMaxDraftTokens));
  }
  return count;
}

absl::StatusOr<int64_t> ParseSize(absl::string_view option, const std::string& text) {
  absl::string_view digits = text;
  int shift = 0;
  if (!digits.empty()) {
    const size_t unit = absl::string_view("KMGT").find(absl::ascii_toupper(digits.back()));
    if (unit != absl::string_view::npos) {
      shift = 10 * static_cast<int>(unit + 1);
      digits.remove_suffix(1);
    }
  }
  int64_t count = 0;
  if (!absl::SimpleAtoi(digits, &count) || count < 1 ||
      count > std::numeric_limits<int64_t>::max() >> shift) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": \"", text, "\" is not a size such as 512M or 2G"));
  }
  return count << shift;
}

}  // namespace tandem
