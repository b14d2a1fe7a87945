// tandem fetch: fetches published models by name: known ones by pip, others from a hub.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/format.h"
#include "base/status_macros.h"
#include "engine/hub_files.h"
#include "tandem/field_error.h"
#include "tandem/known_models.h"
#include "tandem/model_places.h"
#include "tools/command.h"
#include "tools/fetch_model.h"
#include "tools/help_text.h"
#include "tools/hub/hub_client.h"
#include "tools/hub/hub_fetch.h"
#include "tools/standard_streams.h"

namespace tandem {
namespace {

struct FetchFlags {
  std::string name;  // empty: list
  bool dry_run = false;

  absl::Status Check() const;
};

absl::Status FetchFlags::Check() const {
  if (HubName::Parse(name).has_value()) return absl::OkStatus();
  if (dry_run) return FieldError("--dry-run", "needs a model of a hub, ORG/NAME");
  if (name.empty() || FindKnownModel(name) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "NAME: \"", name, "\" is not one of ",
      absl::StrJoin(KnownModels(), ", ",
                    [](std::string* out, const KnownModel& model) { *out += model.name; }),
      ", and not ORG/NAME[@REVISION][:FILE or quantisation] of a hub"));
}

std::string Origin(const KnownModel& model) {
  return absl::StrCat(model.maker, ", in the Python package ", model.package, " ", model.version);
}

absl::Status List() {
  std::string text;
  for (const KnownModel& model : KnownModels()) {
    const std::optional<std::string> folder = FetchedModel(model);
    absl::StrAppend(&text, model.name, "\n  what     ", model.what, "\n  size     ",
                    DecimalSize(model.bytes), "\n  licence  ", model.licence, "\n  from     ",
                    Origin(model), "\n  here     ", folder.value_or("not fetched yet"), "\n");
  }
  return Print(text);
}

// Prints where the draft is. Drafts are small and come with the program, so they need not be
// fetched.
void SayDraft(const KnownModel& model) {
  const absl::StatusOr<std::string> draft = ModelNamed(model.draft);
  std::fprintf(stderr, "its draft %s %s\n", model.draft,
               draft.ok() ? absl::StrCat("comes with tandem: ", *draft).c_str()
                          : "is missing: this program was installed without its models");
}

absl::Status Fetch(const KnownModel& model) {
  if (const std::optional<std::string> folder = FetchedModel(model)) {
    std::fprintf(stderr, "%s is there already\n", model.name);
    SayDraft(model);
    return Print(absl::StrCat(*folder, "\n"));
  }
  if (IsHubOffline()) return ModelNamed(model.name).status();
  std::fprintf(stderr, "fetching %s: %s, %s, licence %s, from %s\n", model.name, model.what,
               DecimalSize(model.bytes).c_str(), model.licence, Origin(model).c_str());
  ASSIGN_OR_RETURN(const std::string cache, ModelCache());
  ASSIGN_OR_RETURN(const std::string folder,
                   FetchModel(model, cache, /*shows_progress=*/isatty(STDERR_FILENO) != 0));
  SayDraft(model);
  return Print(absl::StrCat(folder, "\n"));
}

absl::Status FetchByName(const FetchFlags& flags) {
  if (const KnownModel* const model = FindKnownModel(flags.name)) return Fetch(*model);
  if (IsHubOffline()) {
    const absl::StatusOr<std::string> path = ModelNamed(flags.name);
    if (path.ok()) return Print(absl::StrCat(*path, "\n"));
    if (!absl::IsNotFound(path.status())) return path.status();
    return absl::NotFoundError(absl::StrCat(flags.name,
                                            ": is not here, and --offline or "
                                            "HF_HUB_OFFLINE forbids to fetch it"));
  }
  const HubClient client(HubOptions::FromEnvironment());
  const HubName name = *HubName::Parse(flags.name);
  if (flags.dry_run) {
    ASSIGN_OR_RETURN(const std::string plan, FetchPlan(client, name));
    return Print(plan);
  }
  ASSIGN_OR_RETURN(const std::string path, FetchFromHub(client, name));
  return Print(absl::StrCat(path, "\n"));
}

}  // namespace

Command AddFetchCommand(CLI::App* program) {
  const auto flags = std::make_shared<FetchFlags>();
  CLI::App* app =
      program->add_subcommand("fetch", "Fetch a published model, or list the known ones");
  app->add_option("name", flags->name,
                  "A known model, or ORG/NAME[@REVISION][:FILE or quantisation] of Hugging Face's "
                  "hub; without it, lists the known models")
      ->type_name("NAME");
  app->add_flag("--dry-run", flags->dry_run, "Only list the files of a hub's model");
  AddExamples(app,
              {"tandem fetch", "tandem fetch smollm2", "tandem fetch Qwen/Qwen3-8B-GGUF:Q4_K_M"});
  return {.app = app,
          .check = [flags] { return flags->Check(); },
          .run = [flags] { return flags->name.empty() ? List() : FetchByName(*flags); }};
}

}  // namespace tandem
