// Loads a Transformer: its options and files, and the cache of its packed weights.
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "checkpoint/head_config.h"
#include "checkpoint/model_tensors.h"
#include "model/transformer.h"
#include "model/transformer_loader.h"
#include "tandem/field_error.h"

namespace tandem {

bool Transformer::LoadOptions::SetsHead(const ModelConfig& config) const {
  return sets_head_from > 0 && config.vocab_size >= sets_head_from;
}

std::string Transformer::LoadOptions::FormOf(const Weights& weights) const {
  const std::string quantization = weights.quantization();
  return absl::StrCat("quantized ", quantized.has_value() ? NameOf(*quantized) : "not",
                      which == Quantize::kAll ? ", all" : "",
                      has_exact_activations ? ", exact activations" : "",
                      quantization.empty() ? "" : ", ", quantization);
}

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::LoadFrom(const Files& files,
                                                                   Backend* backend,
                                                                   const LoadOptions& options,
                                                                   PackedFile* packed) {
  std::unique_ptr<Transformer> model(new Transformer(backend, files, options));
  model->weights_form_ = options.FormOf(*files.weights);
  RETURN_IF_ERROR(TransformerLoader(files.path, options, model.get()).Load(packed));
  RETURN_IF_ERROR(backend->Synchronize());
  return model;
}

// Loads a model with the cached weights of options.packed_folder, and writes these first if they
// are missing or stale. Returns null if the model is too small for the cache.
absl::StatusOr<std::unique_ptr<Transformer>> Transformer::LoadPacked(const Files& files,
                                                                     Backend* backend,
                                                                     const LoadOptions& options) {
  const std::string quantization = files.weights->quantization();
  const std::string how = absl::StrCat(
      "quantized ", options.quantized.has_value() ? NameOf(*options.quantized) : "not",
      options.which == Quantize::kAll ? ", all" : "", ", heads turned ", files.config.rotary_dim,
      " of ", files.config.head_dim,
      options.head_tokens > 0 ? absl::StrCat(", head of ", options.head_tokens) : "",
      options.SetsHead(files.config) ? ", no head" : "",
      options.group == nullptr
          ? ""
          : absl::StrCat(", rank ", options.group->rank(), " of ", options.group->world()),
      quantization.empty() ? "" : ", ", quantization);
  ASSIGN_OR_RETURN(const PackedSource source,
                   PackedSource::Of(files.weights->files(), how, options.packed_folder));
  if (source.bytes < options.min_packed_bytes) return nullptr;
  RemoveUnfinishedPackedFiles(options.packed_folder);
  absl::StatusOr<PackedFile> kept = PackedFile::Open(source);
  if (kept.ok()) {
    auto model = LoadFrom(files, backend, options, &*kept);
    if (model.ok()) return model;
  } else if (!absl::IsNotFound(kept.status()) && !absl::IsFailedPrecondition(kept.status())) {
    Log(LogLevel::kWarning, absl::StrCat(kept.status().message(), "; packing the weights again"));
  }
  // Check first, so that an unsupported model fails before packing begins.
  Transformer checked(backend, files, options);
  RETURN_IF_ERROR(TransformerLoader(files.path, options, &checked).Check());
  ASSIGN_OR_RETURN(PackedFileWriter writer,
                   PackedFileWriter::Create(source, TransformerLoader::MaxEntries(files.config)));
  Log(LogLevel::kInfo, absl::StrCat("packing the weights of ", files.path,
                                    " into a file that later starts map: ", source.path));
  Transformer unfilled(backend, files, options);
  RETURN_IF_ERROR(
      TransformerLoader(files.path, options, &unfilled).Write(&writer, checked.num_parameters()));
  ASSIGN_OR_RETURN(PackedFile packed, PackedFile::Open(source));
  return LoadFrom(files, backend, options, &packed);
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
  if (const std::string quantization = stored->quantization(); !quantization.empty()) {
    Log(LogLevel::kInfo, absl::StrCat("weights of ", folder, " were quantised: ", quantization));
  }
  ASSIGN_OR_RETURN(files.weights, ArrangeWeights(std::move(stored), files.config));
  CompleteHead(*files.weights, &files.config);
  RETURN_IF_ERROR(TransformerLoader::FitToTarget(folder, options, &files.config));
  absl::Status not_cached;
  if (!options.packed_folder.empty() && backend->memory_is_host()) {
    auto packed = LoadPacked(files, backend, options);
    if (packed.ok() && *packed != nullptr) return packed;
    not_cached = packed.status();
  }
  ASSIGN_OR_RETURN(auto model, LoadFrom(files, backend, options, nullptr));
  if (!not_cached.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("packed weights are not cached: ", not_cached.message()));
  }
  return model;
}

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Load(
    const std::string& name, const ModelConfig& config, std::shared_ptr<const Weights> weights,
    Backend* backend) {
  return LoadFrom({.path = name, .config = config, .weights = std::move(weights)}, backend, {},
                  nullptr);
}

}  // namespace tandem
