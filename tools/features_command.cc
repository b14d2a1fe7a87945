// tandem features: writes the inputs of a model's layers for the tokens of texts, to train draft
// heads.
#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/float16.h"
#include "base/status_macros.h"
#include "engine/new_session.h"
#include "engine/runtime.h"
#include "tandem/field_error.h"
#include "tools/command.h"
#include "tools/engine_options.h"
#include "tools/help_text.h"
#include "tools/hub/hub_fetch.h"
#include "tools/npz_file.h"
#include "tools/option_group.h"
#include "tools/prompt_file.h"
#include "tools/standard_streams.h"

namespace tandem {
namespace {

struct FeaturesFlags {
  EngineOptions options;  // as typed
  std::string layers;
  std::string prompts;
  std::string out;
  std::string type = "f16";
};

// Parses a list such as "2,15,last", where "last" stands for `num_layers`.
absl::StatusOr<std::vector<int>> ParseLayers(const std::string& text, int num_layers) {
  std::vector<int> layers;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    int layer = num_layers;
    if (word != "last" && !(absl::SimpleAtoi(word, &layer) && 0 <= layer && layer < num_layers)) {
      return FieldError("--layers", absl::StrCat("must be layers from 0 to ", num_layers - 1,
                                                 ", or last, got \"", word, "\""));
    }
    layers.push_back(layer);
  }
  return layers;
}

constexpr float kLargestF16 = 65504.0f;

template <typename T>
absl::Span<const std::byte> BytesOf(const std::vector<T>& values) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                             values.size() * sizeof(T));
}

float LargestMagnitude(absl::Span<const float> values) {
  float largest = 0.0f;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

// Runs texts through the target in order, several in a pass, and returns the states that each pass
// leaves.
class StateReader {
 public:
  StateReader(const Runtime* runtime, const std::vector<std::vector<TokenId>>* texts, bool as_half)
      : runtime_(*runtime), texts_(*texts), as_half_(as_half) {}

  // Runs the next pass. Returns the states of its tokens, in order.
  absl::StatusOr<absl::Span<const std::byte>> Next() {
    std::vector<ForwardRequest> passes;
    int room = runtime_.chunk_tokens;
    for (; text_ < texts_.size() && room > 0; ++text_, num_read_ = 0) {
      const absl::Span<const TokenId> text = texts_[text_];
      if (num_read_ == 0) sequences_.push_back(runtime_.target_cache->NewSequence());
      const auto tokens = text.subspan(num_read_, room);
      passes.push_back({.tokens = tokens, .kv = &sequences_.back(), .num_logits = 0});
      room -= static_cast<int>(tokens.size());
      num_read_ += tokens.size();
      if (num_read_ < text.size()) break;
    }
    RETURN_IF_ERROR(runtime_.target->Forward(passes).status());
    num_tokens_ += runtime_.chunk_tokens - room;
    sequences_.erase(sequences_.begin(),
                     sequences_.end() - (text_ < texts_.size() && num_read_ > 0 ? 1 : 0));
    return Brought(runtime_.target->states());
  }

  int64_t num_tokens_read() const { return num_tokens_; }

 private:
  absl::StatusOr<absl::Span<const std::byte>> Brought(ConstMatrixView states) {
    floats_.resize(states.rows * int64_t{states.cols});
    runtime_.backend->Download(states.data, {reinterpret_cast<std::byte*>(floats_.data()),
                                             floats_.size() * sizeof(float)});
    if (!as_half_) return BytesOf(floats_);
    const float largest = LargestMagnitude(floats_);
    if (largest > kLargestF16) {
      return absl::OutOfRangeError(absl::StrCat("--type: found a state of ", largest,
                                                ", allowed with f16: up to ", kLargestF16,
                                                "; use f32"));
    }
    halves_.resize(floats_.size());
    std::transform(floats_.begin(), floats_.end(), halves_.begin(), FloatToF16);
    return BytesOf(halves_);
  }
  const Runtime& runtime_;
  const std::vector<std::vector<TokenId>>& texts_;
  const bool as_half_;
  size_t text_ = 0;                   // index of the text being read
  size_t num_read_ = 0;               // tokens of this text
  std::deque<KvSequence> sequences_;  // one for each text of a pass
  int64_t num_tokens_ = 0;            // read from all texts
  std::vector<float> floats_;
  std::vector<uint16_t> halves_;
};

absl::StatusOr<std::vector<TokenId>> IdsOf(const Prompt& prompt, const Runtime& runtime,
                                           const std::string& where) {
  ASSIGN_OR_RETURN(
      std::vector<TokenId> ids,
      Named(where, PromptIdsOf({.prompt = prompt.text, .prompt_ids = prompt.ids}, runtime)));
  const int context = runtime.target->context_length();
  if (static_cast<int>(ids.size()) > context) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": has ", ids.size(), " tokens, allowed: at most ", context));
  }
  return ids;
}

// Makes an array of integers that are in memory. `values` must outlive the result.
NpyArray Integers(std::string name, const std::vector<int32_t>* values) {
  return {.name = std::move(name),
          .type = "<i4",
          .item_bytes = sizeof(int32_t),
          .shape = {static_cast<int64_t>(values->size())},
          .next = [values]() -> absl::StatusOr<absl::Span<const std::byte>> {
            return BytesOf(*values);
          }};
}

absl::Status Run(const FeaturesFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<Prompt> prompts, ReadPromptFile(flags.prompts));
  EngineOptions options = flags.options;
  options.drafter = DrafterKind::kNone;
  ASSIGN_OR_RETURN(options.target, BringModel(options.target));
  options.threads = UsableThreads(options.threads);
  ASSIGN_OR_RETURN(const Runtime runtime, Runtime::Load(options));
  ASSIGN_OR_RETURN(const std::vector<int> layers,
                   ParseLayers(flags.layers, runtime.target->config().num_layers));
  std::vector<std::vector<TokenId>> texts;
  std::vector<int32_t> ids;
  std::vector<int32_t> lengths;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string where = absl::StrCat(flags.prompts, ": prompt ", i + 1);
    ASSIGN_OR_RETURN(std::vector<TokenId> text, IdsOf(prompts[i], runtime, where));
    ids.insert(ids.end(), text.begin(), text.end());
    lengths.push_back(static_cast<int32_t>(text.size()));
    texts.push_back(std::move(text));
  }
  runtime.target->KeepStates(layers);
  const bool as_half = flags.type == "f16";
  StateReader reader(&runtime, &texts, as_half);
  Progress progress("read", static_cast<int64_t>(ids.size()));
  return WriteNpz(flags.out,
                  {Integers("ids", &ids),
                   Integers("lengths", &lengths),
                   Integers("layers", &layers),
                   {.name = "states",
                    .type = as_half ? "<f2" : "<f4",
                    .item_bytes = as_half ? sizeof(uint16_t) : sizeof(float),
                    .shape = {static_cast<int64_t>(ids.size()), static_cast<int64_t>(layers.size()),
                              runtime.target->config().hidden_size},
                    .next = [&] {
                      progress.AdvanceTo(reader.num_tokens_read());
                      return reader.Next();
                    }}});
}

}  // namespace

Command AddFeaturesCommand(CLI::App* program) {
  const auto flags = std::make_shared<FeaturesFlags>();
  CLI::App* app = program->add_subcommand(
      "features",
      "Write the inputs of a model's layers for each token of texts, to train draft heads");
  EngineOptions& options = flags->options;
  OptionGroup group(app);
  group
      .Add("-m,--target", "PATH", &options.target,
           "Model: a Hugging Face folder, a GGUF file or the name of a fetched model")
      ->required();
  group
      .Add("--layers", "A,B,C", &flags->layers,
           "Layers whose inputs are written, counted from 0 and separated by commas; last is the "
           "state after the final norm")
      ->required();
  group
      .Add("--prompts", "F", &flags->prompts,
           "JSON lines {\"prompt\": ...} or {\"prompt_ids\": [...]}; - reads standard input")
      ->required();
  group
      .Add("--out", "F.npz", &flags->out,
           "The .npz file to write: ids and lengths of the texts, layers, and states [tokens, "
           "layers, hidden size]")
      ->required();
  group.Add("--type", "NAME", &flags->type, "Type of the states: f16 or f32",
            OneOf{{"f16", "f32"}});
  AddEngineOptions(app, {"device", "threads", "quantize", "kv_cache", "allow_unknown_config"},
                   &options);
  group.Add("--packed-weights", "DIR", &options.packed_weights,
            "Folder that keeps packed weights for later starts [none]");
  AddExamples(app, {"tandem features -m storyteller-7m --layers 1,last \\\n"
                    "      --prompts prompts.jsonl --out states.npz",
                    "tandem features -m smollm2 --layers 2,14,25 \\\n"
                    "      --prompts - --out states.npz"});
  return {
      .app = app, .check = [] { return absl::OkStatus(); }, .run = [flags] { return Run(*flags); }};
}

}  // namespace tandem
