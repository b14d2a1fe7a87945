#include "tools/model_list.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "engine/device_memory.h"
#include "engine/fingerprint.h"
#include "engine/generation_config.h"
#include "engine/hub_files.h"
#include "tandem/field_error.h"
#include "tandem/model_places.h"
#include "tools/command_line.h"
#include "tools/hub/hub_fetch.h"
#include "tools/option_group.h"
#include "tools/option_table.h"
#include "tools/toml_file.h"

namespace tandem {
namespace {

constexpr char kTables[] = "model";  // [[model]]

// The options of a table.
struct ModelFlags : ServedPairFlags {
  std::string name;
  bool preload = false;
  bool pinned = false;

  void AddTo(CLI::App* app) {
    OptionGroup group(app);
    group.Add("--name", "NAME", &name, "The model's name in requests and answers");
    group.AddFlag("--preload", &preload, "Load the model at the start");
    group.AddFlag("--pinned", &pinned, "Never unload the model to make room or for being idle");
    ServedPairFlags::AddTo(app);
  }
};

// The options of `app` that the command `serve` was given.
std::vector<OptionWords> DefaultsOf(const CLI::App& app, const CLI::App* serve) {
  std::vector<OptionWords> defaults;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty()) continue;
    const std::string name = absl::StrCat("--", option->get_lnames().front());
    const CLI::Option* const given = serve->get_option_no_throw(name);
    if (given == nullptr || given->count() == 0) continue;
    OptionWords& entry = defaults.emplace_back(OptionWords{.option = option});
    if (option->get_items_expected_max() == 0) {
      entry.words = {name};
      continue;
    }
    for (const std::string& value : given->results()) {
      entry.words.insert(entry.words.end(), {name, value});
    }
  }
  return defaults;
}

absl::Status Parse(CLI::App* app, std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());
  try {
    app->parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  return absl::OkStatus();
}

// A model whose load is planned.
struct Planned {
  EngineOptions options;  // with paths
  MemoryPlan memory;
};

// Fetches models of a hub that are not here.
absl::StatusOr<Planned> Plan(EngineOptions options, int64_t memory_bytes) {
  RETURN_IF_ERROR(FetchIfMissing(options.target));
  RETURN_IF_ERROR(FetchIfMissing(options.draft));
  RETURN_IF_ERROR(ResolveModels(&options));
  ASSIGN_OR_RETURN(MemoryPlan memory, PlanMemory(options, memory_bytes));
  if (options.kv_memory_bytes == 0) options.kv_memory_bytes = memory.cache_bytes;
  return Planned{std::move(options), std::move(memory)};
}

absl::StatusOr<LoadedPair> Load(const ModelFlags& flags, EngineOptions options,
                                const PairFailures& failures) {
  options.on_rank_failure = failures.lose_ranks;
  options.on_device_failure = failures.lose_device;
  LoadedPair loaded;
  if (flags.generation_config == "auto") {
    ASSIGN_OR_RETURN(loaded.sampling, ReadGenerationConfig(options.target));
  }
  ASSIGN_OR_RETURN(loaded.engine, Engine::Create(options));
  loaded.system_fingerprint =
      FingerprintOf(options, TANDEM_VERSION, loaded.engine->target_info().weights_form);
  return loaded;
}

absl::StatusOr<PairSource> ReadModel(absl::string_view source, const JsonValue& table,
                                     const CLI::App* serve, int64_t memory_bytes) {
  if (!table.is_object()) return FieldError(source, "must be a table");
  const auto flags = std::make_shared<ModelFlags>();
  CLI::App app("", absl::StrCat("[[", kTables, "]]"));
  flags->AddTo(&app);
  ASSIGN_OR_RETURN(const std::vector<OptionWords> own, WordsOfTable(&app, source, table));
  std::vector<std::string> words = WordsIn(NotOverridden(DefaultsOf(app, serve), own));
  for (std::string& word : WordsIn(own)) words.push_back(std::move(word));
  const auto named = [&](const absl::Status& status) {
    return InSource(source, InOptionNames(&app, status));
  };
  if (table.find("target") == table.end()) return named(FieldError("target", "is required"));
  if (absl::Status status = Parse(&app, std::move(words)); !status.ok()) return named(status);
  absl::StatusOr<EngineOptions> options = flags->engine.ToOptions(/*are_fetched_later=*/true);
  if (!options.ok()) return named(options.status());
  if (!options->rendezvous.empty()) {
    return named(FieldError("--rendezvous", "ranks on other machines can have one model only"));
  }
  const std::string& typed = flags->engine.options.target;
  const auto planned = std::make_shared<Planned>();
  return PairSource{
      .name =
          flags->name.empty() ? ModelNameOf(typed.empty() ? options->target : typed) : flags->name,
      .plan = [planned, options = *options, memory_bytes]() -> absl::StatusOr<PairMemory> {
        ASSIGN_OR_RETURN(*planned, Plan(options, memory_bytes));
        const MemoryPlan& memory = planned->memory;
        return PairMemory{.device = memory.device,
                          .bytes = memory.model_bytes + memory.cache_bytes,
                          .free_bytes = memory.free_bytes,
                          .parts = absl::StrCat(DecimalSize(memory.model_bytes), " of weights, ",
                                                DecimalSize(memory.cache_bytes), " of caches")};
      },
      .load =
          [planned, flags](const PairFailures& failures) {
            return Load(*flags, planned->options, failures);
          },
      .max_sequences = options->max_batch + flags->max_waiting,
      .prefix_cache = options->prefix_cache,
      .is_preloaded = flags->preload,
      .is_pinned = flags->pinned,
      .idle_timeout = flags->unload_after_seconds > 0 ? absl::Seconds(flags->unload_after_seconds)
                                                      : absl::InfiniteDuration()};
}

}  // namespace

ServedPairFlags::ServedPairFlags() {
  engine.options.all_drafters = true;
  engine.options.warm_up = true;
  engine.options.callback_thread = CallbackThread::kEngine;  // the server's callbacks never block
}

void ServedPairFlags::AddTo(CLI::App* app) {
  OptionGroup group(app);
  group.Add("--generation-config", "NAME", &generation_config,
            "Default sampling parameters of requests: auto, those of the model's "
            "generation_config.json, or none, those of OpenAI's API",
            OneOf{{"auto", "none"}});
  OptionGroup limits(app, kLimitGroup);
  limits.Add("--max-waiting", "N", &max_waiting,
             "Maximum number of waiting sequences; more are rejected with 429",
             {.low = 0, .high = 1 << 20});
  limits.Add("--unload-after", "SECONDS", &unload_after_seconds,
             "Unload a model of --models that no request has used for so long; 0 for never",
             {.low = 0, .high = 1e9});
  engine.AddTo(app, {kLimitGroup, kEngineGroup, kStoreGroup, kTransferGroup, kEventGroup});
}

std::string ModelNameOf(const std::string& target) {
  std::error_code error;
  if (!std::filesystem::exists(target, error)) {
    const std::optional<HubName> of_hub = HubName::Parse(target);
    return of_hub.has_value() ? of_hub->repository : target;
  }
  const std::filesystem::path path = std::filesystem::path(target).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

absl::StatusOr<std::vector<PairSource>> ReadModelList(const std::string& path,
                                                      const CLI::App* serve, int64_t memory_bytes) {
  ASSIGN_OR_RETURN(const JsonValue file, ReadTomlFile(path));
  for (const auto& [key, value] : file.items()) {
    if (key == kTables) continue;
    return FieldError(path, absl::StrCat(Shown(JsonValue(key)), " is not allowed; a table [[",
                                         kTables, "]] describes a model"));
  }
  const auto tables = file.find(kTables);
  if (tables == file.end() || !tables->is_array() || tables->empty()) {
    return FieldError(path, absl::StrCat("has no table [[", kTables, "]]"));
  }
  std::vector<PairSource> sources;
  for (const JsonValue& table : *tables) {
    const std::string source = absl::StrCat(path, ": ", kTables, " ", sources.size() + 1);
    ASSIGN_OR_RETURN(PairSource one, ReadModel(source, table, serve, memory_bytes));
    for (const PairSource& other : sources) {
      if (other.name != one.name) continue;
      return FieldError(source, absl::StrCat("name: ", Quoted(one.name), " is taken"));
    }
    sources.push_back(std::move(one));
  }
  return sources;
}

}  // namespace tandem
