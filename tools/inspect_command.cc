// tandem inspect: describes a model, and how fast this machine could decode with it.
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/format.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/thread_pool.h"
#include "engine/runtime.h"
#include "kernels/blocks.h"
#include "kernels/built_backends.h"
#include "kernels/number_formats.h"
#include "kvcache/kv_layout.h"
#include "model/checkpoint/gguf.h"
#include "model/checkpoint/gguf_keys.h"
#include "model/checkpoint/head_config.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_tensors.h"
#include "model/checkpoint/weights.h"
#include "model/ranks/rank_group.h"
#include "tandem/chat_template.h"
#include "tandem/json_value.h"
#include "tandem/model_places.h"
#include "tandem/reasoning.h"
#include "tandem/tokenizer.h"
#include "text/end_tokens.h"
#include "tools/bandwidth.h"
#include "tools/command.h"
#include "tools/engine_options.h"
#include "tools/help_text.h"
#include "tools/hub/hub_fetch.h"
#include "tools/option_group.h"
#include "tools/standard_streams.h"
#include "tools/status_line.h"

namespace tandem {
namespace {

using OrderedJson = JsonValue;

struct InspectFlags {
  std::string path;
  std::string draft;
  std::string device;
  KvDType kv_cache = KvDType::kF32;
  int tensor_parallel = 1;
  bool json = false;
  bool config_only = false;
  EngineOptions options;  // only threads and allow_unknown_config are used
};

// The chat features of a model.
struct ChatFacts {
  std::string problem{};  // why the template cannot be used; else empty
  bool has_template = false;
  bool takes_tools = false;  // whether the template has a place for tools
  std::optional<ReasoningFormat> reasoning{};
};

struct Inspection {
  ModelConfig config;
  int64_t parameters = 0;
  int64_t weight_bytes = 0;
  std::string quantization;  // Weights::quantization
  std::map<std::string, int> tensors_by_dtype;
  int64_t bytes_read_per_token = 0;
  int64_t kv_bytes_per_token = 0;
  std::string mask;                   // its mask token and what that means, or empty
  std::optional<int> tokenizer_size;  // tokens; nullopt if the model uses its target's tokenizer
  std::optional<ChatFacts> chat;      // nullopt without a tokenizer
  std::optional<ModelInfo> draft;     // the engine's initial choices for --draft
  std::optional<ModelConfig> head;    // of --draft, if it is a draft head
  std::string device;                 // where the models were loaded, with --device
  std::vector<std::string> products;  // Backend::product_report
  std::vector<std::string> ranks;     // the contents of each rank, with --tensor-parallel
  std::string known_draft;            // the name of the model's known draft, or empty
  ReadBandwidth memory;
  std::optional<ReadBandwidth> cache;  // if the matrices fit into the last-level cache

  double TokensPerSecondAt(const ReadBandwidth& limit) const {
    return limit.bytes_per_second / static_cast<double>(bytes_read_per_token);
  }
};

int64_t BytesOf(const ConstMatrixView& matrix) {
  return matrix.rows * static_cast<int64_t>(RowBytes(matrix.dtype, matrix.cols));
}

// Counts the tensors that the configuration requires. A missing one, or another shape, is an error.
absl::Status CountTensors(const Weights& weights, Inspection* inspection) {
  double read = 0.0;
  for (const TensorSpec& tensor : TensorsOf(inspection->config)) {
    ASSIGN_OR_RETURN(const ConstMatrixView view, weights.Describe(tensor.name, tensor.shape));
    const int64_t bytes = BytesOf(view);
    ++inspection->tensors_by_dtype[NameOf(view.dtype)];
    inspection->parameters += tensor.num_elements();
    inspection->weight_bytes += bytes;
    read += ShareRead(tensor, inspection->config) * static_cast<double>(bytes);
  }
  inspection->bytes_read_per_token = static_cast<int64_t>(std::llround(read));
  return absl::OkStatus();
}

ChatFacts ChatFactsOf(const std::string& path, const Tokenizer& tokenizer) {
  const absl::StatusOr<ChatTemplate> chat = ChatTemplate::Load(path);
  if (!chat.ok()) return {.problem = std::string(chat.status().message())};
  if (chat->is_plain()) return {};
  return {.has_template = true,
          .takes_tools = chat->HasPlaceForTools(),
          .reasoning = ReasoningFormat::Of(*chat, tokenizer)};
}

// Returns the known draft of a model, found by the model's name as typed or by its file.
std::string KnownDraftOf(const std::string& typed, const std::string& path) {
  const KnownModel* const known = KnownModelAt(path);
  const std::optional<KnownPair> pair = FindKnownPair(known == nullptr ? typed : known->name);
  return pair.has_value() ? pair->draft : "";
}

// Describes the mask of a parallel draft, or of a GGUF file that names one for whatever use.
absl::StatusOr<std::string> MaskOf(const std::string& path, const ModelConfig& config) {
  if (config.mask_token != kNoMaskToken) {
    return absl::StrCat(config.mask_token, "; as a draft it is parallel");
  }
  ASSIGN_OR_RETURN(const std::string gguf, GgufIn(path));
  if (gguf.empty()) return "";
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(gguf));
  if (!file->Has(kGgufMask)) return "";
  ASSIGN_OR_RETURN(const TokenId mask, file->GetInteger(kGgufMask, 0, config.vocab_size - 1));
  return absl::StrCat(mask,
                      "; if it was trained for parallel drafts, use it with "
                      "--draft-mask-token ",
                      mask);
}

// Loads the models for --draft, --device or --tensor-parallel, and records the engine's initial
// choices: those for the draft, for the device, and the contents of the ranks.
absl::Status InspectLoaded(const InspectFlags& flags, const std::string& target,
                           Inspection* inspection) {
  const bool has_ranks = flags.tensor_parallel > 1;
  if (flags.draft.empty() && flags.device.empty() && !has_ranks) return absl::OkStatus();
  EngineOptions options{.target = target, .draft = flags.draft, .max_batch = 1};
  options.tensor_parallel = flags.tensor_parallel;
  if (!flags.device.empty()) options.device = flags.device;
  options.allow_unknown_config = flags.options.allow_unknown_config;
  RETURN_IF_ERROR(FetchIfMissing(options.draft));
  RETURN_IF_ERROR(ResolveModels(&options));
  ASSIGN_OR_RETURN(const Runtime runtime, Runtime::Load(options));
  if (!flags.draft.empty()) inspection->draft = runtime.DraftInfo(flags.draft);
  if (runtime.has_head()) inspection->head = runtime.draft->config();
  if (has_ranks) inspection->ranks = runtime.ranks->descriptions();
  if (flags.device.empty()) return absl::OkStatus();
  inspection->device =
      absl::StrCat(View(runtime.backend->name()), ": ", View(runtime.backend->description()));
  inspection->products = runtime.backend->product_report();
  return absl::OkStatus();
}

absl::StatusOr<Inspection> Inspect(const InspectFlags& flags) {
  const WaitingLine line(absl::StrCat("inspecting ", flags.path));
  Inspection inspection;
  ASSIGN_OR_RETURN(const std::string path, BringModel(flags.path));
  inspection.known_draft = KnownDraftOf(flags.path, path);
  RETURN_IF_ERROR(InspectLoaded(flags, path, &inspection));
  ASSIGN_OR_RETURN(inspection.config, ReadModelConfig(path, flags.options.allow_unknown_config));
  const ModelConfig& c = inspection.config;
  ASSIGN_OR_RETURN(inspection.mask, MaskOf(path, c));
  ASSIGN_OR_RETURN(std::shared_ptr<const Weights> stored, Weights::Open(path));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Weights> weights,
                   ArrangeWeights(std::move(stored), c));
  CompleteHead(*weights, &inspection.config);
  RETURN_IF_ERROR(SettleHead(*weights, /*is_equal=*/std::nullopt, &inspection.config));
  RETURN_IF_ERROR(CountTensors(*weights, &inspection));
  RETURN_IF_ERROR(CheckAllHavePlaces(*weights, c));
  inspection.quantization = weights->quantization();
  ASSIGN_OR_RETURN(const std::string tokenizer_file, Tokenizer::FileOf(path));
  if (!tokenizer_file.empty()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Load(path));
    inspection.chat = ChatFactsOf(path, *tokenizer);
    inspection.config.eos_token_ids = EndTokensOf(c, *tokenizer);
    inspection.tokenizer_size = 0;
    for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
      if (tokenizer->TextOf(id, /*is_first=*/false).has_value()) ++*inspection.tokenizer_size;
    }
  }
  inspection.kv_bytes_per_token =
      static_cast<int64_t>(KvLayoutOf(c, /*page_size=*/1, flags.kv_cache).page_bytes());
  ThreadPool pool(flags.options.threads > 0 ? UsableThreads(flags.options.threads)
                                            : NumUsableCores());
  ASSIGN_OR_RETURN(inspection.memory, MeasureReadBandwidth(MemoryBufferBytes(), &pool));
  if (inspection.bytes_read_per_token <= LastLevelCacheBytes()) {
    ASSIGN_OR_RETURN(inspection.cache,
                     MeasureReadBandwidth(inspection.bytes_read_per_token, &pool));
  }
  return inspection;
}

// An object with `value` for memory, and for the cache or null.
OrderedJson LimitsJson(const Inspection& inspection,
                       absl::FunctionRef<double(const ReadBandwidth&)> value) {
  return {{"dram", value(inspection.memory)},
          {"cache", inspection.cache.has_value() ? OrderedJson(value(*inspection.cache))
                                                 : OrderedJson(nullptr)}};
}

OrderedJson ToJson(const std::optional<ChatFacts>& chat) {
  if (!chat.has_value() || !chat->has_template) return nullptr;
  OrderedJson json = {{"tools", chat->takes_tools}, {"reasoning", nullptr}};
  if (chat->reasoning.has_value()) {
    json["reasoning"] = {chat->reasoning->begin, chat->reasoning->end};
  }
  return json;
}

OrderedJson DraftJson(const Inspection& inspection) {
  const std::optional<ModelInfo>& draft = inspection.draft;
  if (!draft.has_value()) return nullptr;
  OrderedJson json = {{"path", draft->path},
                      {"kind", inspection.head.has_value() ? "eagle3" : "model"},
                      {"draft_quantize", draft->quantize},
                      {"draft_head_tokens", draft->head_tokens},
                      {"bytes_read_per_token", draft->bytes_read_per_pass},
                      {"mask_token", OrNull(draft->mask_token)}};
  if (inspection.head.has_value()) json["target_layers"] = inspection.head->target_layers;
  return json;
}

OrderedJson ToJson(const InspectFlags& flags, const Inspection& inspection) {
  const ModelConfig& c = inspection.config;
  return {
      {"path", flags.path},
      {"architecture",
       {{"family", c.family},
        {"hidden_size", c.hidden_size},
        {"intermediate_size", c.intermediate_size},
        {"num_layers", c.num_layers},
        {"num_heads", c.num_heads},
        {"num_kv_heads", c.num_kv_heads},
        {"head_dim", c.head_dim},
        {"vocab_size", c.vocab_size},
        {"tied_embeddings", c.tied_embeddings},
        {"mask_token",
         c.mask_token == kNoMaskToken ? OrderedJson(nullptr) : OrderedJson(c.mask_token)}}},
      {"parameters", inspection.parameters},
      {"weight_bytes", inspection.weight_bytes},
      {"tensors_by_dtype", inspection.tensors_by_dtype},
      {"quantization", OrNull(inspection.quantization)},
      {"bytes_read_per_token", inspection.bytes_read_per_token},
      {"kv_cache", NameOf(flags.kv_cache)},
      {"kv_bytes_per_token", inspection.kv_bytes_per_token},
      {"context_length", c.context_length},
      {"eos_token_ids", c.eos_token_ids},
      {"tokenizer_size", OrNull(inspection.tokenizer_size)},
      {"chat_template", ToJson(inspection.chat)},
      {"known_draft", OrNull(inspection.known_draft)},
      {"draft", DraftJson(inspection)},
      {"program", BuiltBackends()},
      {"device", OrNull(inspection.device)},
      {"products", inspection.products},
      {"ranks", inspection.ranks},
      {"threads", inspection.memory.num_threads},
      {"read_bytes_per_second",
       LimitsJson(inspection, [](const ReadBandwidth& limit) { return limit.bytes_per_second; })},
      {"tokens_per_second_limit", LimitsJson(inspection, [&](const ReadBandwidth& limit) {
         return inspection.TokensPerSecondAt(limit);
       })}};
}

std::string Line(absl::string_view name, const std::string& value) {
  return Format("%-16s%s\n", name, value);
}

std::string ArchitectureText(const ModelConfig& c) {
  return Format("%s: %d layers of %d, %d query and %d key-value heads of %d, feed-forward %d",
                c.family, c.num_layers, c.hidden_size, c.num_heads, c.num_kv_heads, c.head_dim,
                c.intermediate_size);
}

std::string VocabularyText(const ModelConfig& c, const std::optional<int>& tokenizer_size) {
  const std::string tokenizer = tokenizer_size.has_value()
                                    ? absl::StrCat("of which the tokenizer has ", *tokenizer_size)
                                    : "without a tokenizer, as a draft may be";
  const bool is_head = c.is_draft_head();
  const char* const tied =
      is_head ? "uses rows of the target's head" : "the head is the embedding table";
  return Format("%d, %s; %s", c.vocab_size, tokenizer,
                c.tied_embeddings ? tied : "has a separate head");
}

// Describes the target's states that a draft head reads.
std::string StatesText(const ModelConfig& c) {
  std::string layers = "the last one after the final norm";
  if (c.state_input == StateInput::kNextToEmbedding) {
    layers = c.target_layers.empty()
                 ? "the inputs of a low, a middle and a high layer"
                 : absl::StrCat("the inputs of layers ", absl::StrJoin(c.target_layers, ", "));
  }
  return Format("%d of %d of the target, %s; drafts %d of its tokens; %s", c.num_states,
                c.target_hidden_size, layers, c.draft_vocab_size,
                c.has_own_embedding ? "has its own embedding" : "uses its embedding");
}

std::string ChatText(const ChatFacts& chat) {
  if (!chat.problem.empty()) return absl::StrCat("the template cannot be used: ", chat.problem);
  if (!chat.has_template) return "no template";
  std::string text =
      absl::StrCat("a template, ", chat.takes_tools ? "with" : "without", " a place for tools; ");
  if (!chat.reasoning.has_value()) return text + "no reasoning";
  return absl::StrCat(text, "reasoning between ", View(chat.reasoning->begin), " and ",
                      View(chat.reasoning->end));
}

std::string ToText(const InspectFlags& flags, const Inspection& inspection) {
  const ModelConfig& c = inspection.config;
  const std::string dtypes = absl::StrJoin(
      inspection.tensors_by_dtype, ", ", [](std::string* out, const auto& dtype_and_count) {
        absl::StrAppend(out, dtype_and_count.second, " tensors of ", dtype_and_count.first);
      });
  const std::string end_tokens =
      c.eos_token_ids.empty() ? "none" : absl::StrJoin(c.eos_token_ids, ", ");
  std::string text = Line("program", BuiltBackends());
  text += Line("model", flags.path);
  text += Line("architecture", ArchitectureText(c));
  if (c.is_draft_head()) text += Line("states", StatesText(c));
  text += Line("vocabulary", VocabularyText(c, inspection.tokenizer_size));
  text += Line("end tokens", end_tokens);
  if (!inspection.mask.empty()) text += Line("mask token", inspection.mask);
  text += Line("context", absl::StrCat(c.context_length, " tokens"));
  if (inspection.chat.has_value()) text += Line("chat", ChatText(*inspection.chat));
  if (!inspection.known_draft.empty()) {
    text += Line("known draft", absl::StrCat(inspection.known_draft,
                                             ", which is used if --target is the model's name"));
  }
  if (const std::optional<ModelInfo>& draft = inspection.draft; draft.has_value()) {
    const bool is_head = inspection.head.has_value();
    text += Line("draft", Format("%s: %squantised to %s at load, %s %d of %d tokens, "
                                 "reads %.2f MB per token",
                                 draft->path, is_head ? "a draft head, " : "", draft->quantize,
                                 is_head ? "drafts" : "begins with a head of", draft->head_tokens,
                                 draft->vocab_size, draft->bytes_read_per_pass * 1e-6));
    if (draft->mask_token.has_value()) {
      text += Line(
          "", absl::StrCat("parallel: drafts in one pass with mask token ", *draft->mask_token));
    }
    if (is_head) text += Line("", absl::StrCat("reads ", StatesText(*inspection.head)));
  }
  if (!inspection.device.empty()) text += Line("device", inspection.device);
  for (size_t rank = 0; rank < inspection.ranks.size(); ++rank) {
    text += Line(absl::StrCat("rank ", rank), inspection.ranks[rank]);
  }
  for (const std::string& line : inspection.products) {
    text += Line(line == inspection.products.front() ? "products" : "", line);
  }
  text += Line("parameters", Format("%.2f million", inspection.parameters * 1e-6));
  text += Line("weights", Format("%.2f MB: %s", inspection.weight_bytes * 1e-6, dtypes));
  if (!inspection.quantization.empty()) text += Line("quantised", inspection.quantization);
  text += Line("reads per token",
               Format("%.2f MB of matrices", inspection.bytes_read_per_token * 1e-6));
  text +=
      Line("cache per token", Format("%.2f KB of keys and values (%s)",
                                     inspection.kv_bytes_per_token * 1e-3, NameOf(flags.kv_cache)));
  const auto limit = [&](const ReadBandwidth& bandwidth, absl::string_view place) {
    return Format("%.1f tokens/s with one token per pass: %d threads read %s at %.1f GB/s",
                  inspection.TokensPerSecondAt(bandwidth), bandwidth.num_threads, place,
                  bandwidth.bytes_per_second * 1e-9);
  };
  text += Line("decode limit", limit(inspection.memory, "memory"));
  if (inspection.cache.has_value()) {
    text += Line("", limit(*inspection.cache, "the cache, which holds the matrices,"));
  }
  return text;
}

// Reads only the configuration; the model's other files need not exist.
absl::Status RunConfigOnly(const InspectFlags& flags) {
  ASSIGN_OR_RETURN(const std::string path, BringConfig(flags.path));
  const absl::StatusOr<ModelConfig> config =
      ReadModelConfig(path, flags.options.allow_unknown_config);
  if (flags.json) {
    OrderedJson json = {{"model", flags.path}, {"supported", config.ok()}};
    if (!config.ok()) json["reason"] = std::string(config.status().message());
    if (config.ok()) {
      json["family"] = config->family;
      json["context_length"] = config->context_length;
      json["ignored_keys"] = OrderedJson::object();
      for (const auto& [key, why] : config->ignored_keys) json["ignored_keys"][key] = why;
    }
    RETURN_IF_ERROR(PrintJson(json));
  }
  RETURN_IF_ERROR(config.status());
  if (flags.json) return absl::OkStatus();
  std::string text = Line("program", BuiltBackends());
  text += Line("model", flags.path);
  text += Line("configuration", "supported");
  text += Line("architecture", ArchitectureText(*config));
  text += Line("context", absl::StrCat(config->context_length, " tokens"));
  for (const auto& [key, why] : config->ignored_keys) {
    const bool is_first = key == config->ignored_keys.front().key;
    text += Line(is_first ? "ignored" : "", absl::StrCat(key, ": ", why));
  }
  return Print(text);
}

absl::Status Run(const InspectFlags& flags) {
  if (flags.config_only) return RunConfigOnly(flags);
  ASSIGN_OR_RETURN(const Inspection inspection, Inspect(flags));
  return flags.json ? PrintJson(ToJson(flags, inspection)) : Print(ToText(flags, inspection));
}

}  // namespace

Command AddInspectCommand(CLI::App* program) {
  const auto flags = std::make_shared<InspectFlags>();
  CLI::App* app = program->add_subcommand(
      "inspect", "Describe a model, and how fast this machine could decode with it");
  OptionGroup group(app);
  group
      .Add("-m,--target,path", "PATH", &flags->path,
           "Model folder or GGUF file, or the name of a fetched model")
      ->required();
  group.Add("--draft", "PATH", &flags->draft,
            "Also report the engine's initial choices for this draft");
  group.Add("--tensor-parallel", "N", &flags->tensor_parallel,
            "Also load the model in N processes, and report what each of them holds",
            {.low = 1, .high = kMaxRanks});
  group.Add("--device", "NAME", &flags->device,
            "Also load the model on this device, and report how its products are computed: auto, "
            "cpu, cuda:N");
  group.Add("--kv-cache", "NAME", &flags->kv_cache, "Type of the cache: f32, bf16, int8",
            ParseKvDType);
  group.AddFlag("--json", &flags->json, "Print one JSON object instead of text");
  group.AddFlag("--config-only", &flags->config_only,
                "Only report whether the configuration is supported, and if not, why; the folder "
                "needs only config.json, and only that is fetched");
  AddEngineOptions(app, {"threads", "allow_unknown_config"}, &flags->options);
  AddExamples(app,
              {"tandem inspect smollm2", "tandem inspect storyteller-7m --draft storyteller-1m",
               "tandem inspect model.gguf --config-only"});
  return {
      .app = app, .check = [] { return absl::OkStatus(); }, .run = [flags] { return Run(*flags); }};
}

}  // namespace tandem
