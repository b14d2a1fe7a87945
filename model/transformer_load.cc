// Loads a Transformer: its options and files, and the cache of its packed weights.
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "model/checkpoint/head_config.h"
#include "model/checkpoint/model_tensors.h"
#include "model/transformer.h"
#include "model/transformer_loader.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

// The entry of packed weights that records SettleHead's comparison: kYes, or another byte.
constexpr char kIsHeadEqual[] = "is_head_equal";
constexpr std::byte kYes{1};

absl::Status PackLater(TransformerLoader* loader) { return loader->Load(); }

}  // namespace

bool Transformer::LoadOptions::SetsHead(const ModelConfig& config) const {
  return sets_head_from > 0 && config.vocab_size >= sets_head_from;
}

std::string Transformer::LoadOptions::FormOf(const Weights& weights,
                                             const ModelConfig& config) const {
  const std::string quantization = weights.quantization();
  return absl::StrCat("quantized ", quantized.has_value() ? NameOf(*quantized) : "not",
                      which == Quantize::kAll ? ", all" : "",
                      has_exact_activations ? ", exact activations" : "",
                      config.tied_embeddings ? ", tied head" : ", own head",
                      quantization.empty() ? "" : ", ", quantization);
}

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::LoadFrom(
    const Files& files, Backend* backend, const LoadOptions& options,
    absl::FunctionRef<absl::Status(TransformerLoader*)> load) {
  std::unique_ptr<Transformer> model(new Transformer(backend, files, options));
  model->weights_form_ = options.FormOf(*files.weights, files.config);
  TransformerLoader loader(files.path, options, model.get());
  RETURN_IF_ERROR(load(&loader));
  RETURN_IF_ERROR(backend->Synchronize());
  return model;
}

absl::Status Transformer::Files::Settle(std::optional<bool> is_equal) {
  if (!is_head_settled) RETURN_IF_ERROR(SettleHead(*weights, is_equal, &config));
  is_head_settled = true;
  return absl::OkStatus();
}

// Loads a model with the cached weights of options.packed_folder. If they are missing or stale,
// packs them into memory, from where they are written in the background. Returns null if the model
// is too small for the cache.
absl::StatusOr<std::unique_ptr<Transformer>> Transformer::LoadPacked(Files* from, Backend* backend,
                                                                     const LoadOptions& options) {
  const Files& files = *from;
  const bool is_in_doubt = HasDoubtfulHead(*files.weights, files.config);
  const std::string quantization = files.weights->quantization();
  const std::string how = absl::StrCat(
      "quantized ", options.quantized.has_value() ? NameOf(*options.quantized) : "not",
      options.which == Quantize::kAll ? ", all" : "", ", heads turned ", files.config.rotary_dim,
      " of ", files.config.head_dim,
      options.head_tokens > 0 ? absl::StrCat(", head of ", options.head_tokens) : "",
      options.SetsHead(files.config) ? ", no head" : "", is_in_doubt ? ", head compared" : "",
      options.group == nullptr
          ? ""
          : absl::StrCat(", rank ", options.group->rank(), " of ", options.group->world()),
      quantization.empty() ? "" : ", ", quantization);
  ASSIGN_OR_RETURN(PackedSource source,
                   PackedSource::Of(files.weights->files(), how, options.packed_folder));
  source.max_folder_bytes = options.max_packed_bytes;
  if (source.bytes < options.min_packed_bytes) return nullptr;
  RemoveUnfinishedPackedFiles(options.packed_folder);
  const auto load_mapped = [&]() -> absl::StatusOr<std::unique_ptr<Transformer>> {
    ASSIGN_OR_RETURN(PackedFile kept, PackedFile::Open(source));
    if (is_in_doubt) {
      const auto is_equal = kept.Find(kIsHeadEqual);
      if (is_equal.ok()) RETURN_IF_ERROR(from->Settle(is_equal->front() == kYes));
    }
    return LoadFrom(files, backend, options,
                    [&](TransformerLoader* loader) { return loader->Load(std::move(kept)); });
  };
  auto mapped = load_mapped();
  if (mapped.ok()) return mapped;
  RETURN_IF_ERROR(from->Settle());
  // Check first, so that an unsupported model fails before packing begins.
  Transformer checked(backend, files, options);
  ASSIGN_OR_RETURN(const TransformerLoader::Totals totals,
                   TransformerLoader(files.path, options, &checked).Check());
  ASSIGN_OR_RETURN(PackingTurn turn, PackingTurn::Take(source));
  mapped = load_mapped();  // another process may have packed them meanwhile
  if (mapped.ok()) return mapped;
  if (!absl::IsNotFound(mapped.status()) && !absl::IsFailedPrecondition(mapped.status())) {
    Log(LogLevel::kWarning, absl::StrCat(mapped.status().message(), "; packing the weights again"));
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<PackedFileWriter> writer,
      PackedFileWriter::Create(source, TransformerLoader::MaxEntries(files.config),
                               totals.packed_bytes + PackedFileWriter::PaddedSize(sizeof(kYes)),
                               std::move(turn), backend));
  Log(LogLevel::kInfo, absl::StrCat("packing the weights of ", files.path,
                                    " into a file that later starts map: ", source.path));
  if (is_in_doubt) {
    const std::byte answer = files.config.tied_embeddings ? kYes : std::byte{0};
    RETURN_IF_ERROR(writer->Add(kIsHeadEqual, absl::MakeConstSpan(&answer, 1)));
  }
  return LoadFrom(files, backend, options, [&](TransformerLoader* loader) {
    return loader->Load(std::move(writer), totals);
  });
}

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Load(const std::string& folder,
                                                               Backend* backend,
                                                               const LoadOptions& options) {
  Files files{.path = folder, .config = {}, .weights = {}};
  ASSIGN_OR_RETURN(files.config, ReadModelConfig(folder, options.allowed_config_keys));
  if (options.context > files.config.context_length) {
    return FieldError("context", absl::StrCat("found ", options.context, ", allowed: at most ",
                                              files.config.context_length,
                                              ", as the configuration of ", folder, " says"));
  }
  if (options.context > 0) files.config.context_length = options.context;
  const bool as_floats = options.has_exact_activations || options.quantized.has_value();
  ASSIGN_OR_RETURN(
      std::shared_ptr<const Weights> stored,
      Weights::Open(folder, as_floats ? QuantizedForm::kFloats : QuantizedForm::kBlocks));
  if (std::error_code error;
      std::filesystem::exists(absl::StrCat(folder, "/adapter_config.json"), error)) {
    Log(LogLevel::kWarning, absl::StrCat(folder,
                                         ": the adapter that adapter_config.json describes is not "
                                         "used; merge it into the weights"));
  }
  if (const std::string quantization = stored->quantization(); !quantization.empty()) {
    Log(LogLevel::kInfo, absl::StrCat("weights of ", folder, " were quantised: ", quantization));
  }
  ASSIGN_OR_RETURN(files.weights, ArrangeWeights(std::move(stored), files.config));
  CompleteHead(*files.weights, &files.config);
  RETURN_IF_ERROR(TransformerLoader::FitToTarget(folder, options, &files.config));
  absl::Status not_cached;
  if (!options.packed_folder.empty() && backend->memory_is_host()) {
    auto packed = LoadPacked(&files, backend, options);
    if (packed.ok() && *packed != nullptr) return packed;
    not_cached = packed.status();
  }
  RETURN_IF_ERROR(files.Settle());
  ASSIGN_OR_RETURN(auto model, LoadFrom(files, backend, options, &PackLater));
  if (!not_cached.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("packed weights are not cached: ", not_cached.message()));
  }
  return model;
}

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Load(
    const std::string& name, const ModelConfig& config, std::shared_ptr<const Weights> weights,
    Backend* backend) {
  Files files{.path = name, .config = config, .weights = std::move(weights)};
  RETURN_IF_ERROR(files.Settle());
  return LoadFrom(files, backend, {}, &PackLater);
}

}  // namespace tandem
