// tandem fetch: fetches published models by name.
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
#include "tandem/known_models.h"
#include "tandem/model_places.h"
#include "tools/command.h"
#include "tools/fetch_model.h"
#include "tools/help_text.h"
#include "tools/standard_streams.h"

namespace tandem {
namespace {

struct FetchFlags {
  std::string name;  // empty: list

  absl::Status Check() const;
};

absl::Status FetchFlags::Check() const {
  if (name.empty() || FindKnownModel(name) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "NAME: \"", name, "\" is not one of ",
      absl::StrJoin(KnownModels(), ", ",
                    [](std::string* out, const KnownModel& model) { *out += model.name; })));
}

std::string Megabytes(int64_t bytes) {
  return Format("%.1f MB", static_cast<double>(bytes) * 1e-6);
}

std::string Origin(const KnownModel& model) {
  return absl::StrCat(model.maker, ", in the Python package ", model.package, " ", model.version);
}

absl::Status List() {
  std::string text;
  for (const KnownModel& model : KnownModels()) {
    const std::optional<std::string> folder = FetchedModel(model);
    absl::StrAppend(&text, model.name, "\n  what     ", model.what, "\n  size     ",
                    Megabytes(model.bytes), "\n  licence  ", model.licence, "\n  from     ",
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
  std::fprintf(stderr, "fetching %s: %s, %s, licence %s, from %s\n", model.name, model.what,
               Megabytes(model.bytes).c_str(), model.licence, Origin(model).c_str());
  ASSIGN_OR_RETURN(const std::string cache, ModelCache());
  ASSIGN_OR_RETURN(const std::string folder,
                   FetchModel(model, cache, /*shows_progress=*/isatty(STDERR_FILENO) != 0));
  SayDraft(model);
  return Print(absl::StrCat(folder, "\n"));
}

}  // namespace

Command AddFetchCommand(CLI::App* program) {
  const auto flags = std::make_shared<FetchFlags>();
  CLI::App* app =
      program->add_subcommand("fetch", "Fetch a published model, or list the known ones");
  app->add_option("name", flags->name, "The model to fetch; without it, lists the known models")
      ->type_name("NAME");
  AddExamples(app, {"tandem fetch", "tandem fetch smollm2"});
  return {
      .app = app,
      .check = [flags] { return flags->Check(); },
      .run =
          [flags] { return flags->name.empty() ? List() : Fetch(*FindKnownModel(flags->name)); }};
}

}  // namespace tandem
