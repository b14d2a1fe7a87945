#include "tools/hub/hub_fetch.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/format.h"
#include "base/instant.h"
#include "base/output_folder.h"
#include "base/status_macros.h"
#include "engine/hub_cache.h"
#include "tandem/model_places.h"
#include "tools/command.h"
#include "tools/hub/hub_download.h"
#include "tools/interrupt_flag.h"
#include "tools/status_line.h"
#include "tools/table.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kQuiet = absl::Milliseconds(500);

// A model, and where its files are to be.
struct Plan {
  HubName name{};
  HubListing listing{};
  HubModel model{};
  fs::path cache{};

  fs::path folder() const { return cache / HubFolderName(name); }
  fs::path snapshot() const { return folder() / "snapshots" / listing.commit; }
  fs::path BlobOf(const HubFile& file) const { return folder() / "blobs" / file.hash; }
  bool IsHere(const HubFile& file) const {
    std::error_code error;
    const uintmax_t bytes = fs::file_size(BlobOf(file), error);
    return !error && bytes == static_cast<uintmax_t>(file.bytes);
  }
};

absl::StatusOr<Plan> MakePlan(const HubClient& client, const HubName& name) {
  Plan plan{.name = name};
  ASSIGN_OR_RETURN(plan.listing, client.List(name));
  ASSIGN_OR_RETURN(plan.model, ChooseModel(name, plan.listing.files));
  ASSIGN_OR_RETURN(plan.cache, HubCache());
  return plan;
}

absl::Status CreateFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return error ? absl::ErrnoToStatus(error.value(), folder.string()) : absl::OkStatus();
}

// "fetching ORG/NAME: 1.20 GB of 4.37 GB, 35.1 MB per second, 1m32s left"
std::string ProgressText(const HubName& name, int64_t received, int64_t before, int64_t total,
                         absl::Duration time) {
  if (received == total) return absl::StrCat("checking ", name.Text());
  std::string text = absl::StrCat("fetching ", name.Text(), ": ", DecimalSize(received), " of ",
                                  DecimalSize(total));
  const double rate = static_cast<double>(received - before) / absl::ToDoubleSeconds(time);
  if (!CanBeElapsed(time) || rate < 1) return text;
  const absl::Duration left = absl::Seconds(static_cast<double>(total - received) / rate);
  return absl::StrCat(text, ", ", DecimalSize(static_cast<int64_t>(rate)), " per second, ",
                      absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))), " left");
}

absl::Status Download(const HubClient& client, const Plan& plan) {
  std::vector<HubFile> missing;
  int64_t total = 0;
  int64_t before = 0;  // of the missing bytes, on the disk
  for (const HubFile& file : plan.model.files) {
    if (plan.IsHere(file)) continue;
    missing.push_back(file);
    total += file.bytes;
    before += PartialBytes(plan.BlobOf(file).string());
  }
  if (missing.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CreateFolder(plan.folder() / "blobs"));
  ASSIGN_OR_RETURN(const OutputFolder space,
                   OutputFolder::Around((plan.folder() / "blobs").string()));
  RETURN_IF_ERROR(space.CheckFreeSpace(std::max<int64_t>(0, total - before)));
  std::fprintf(stderr, "fetching %s: %zu %s, %s, from %s\n", plan.name.Text().c_str(),
               missing.size(), missing.size() == 1 ? "file" : "files", DecimalSize(total).c_str(),
               client.Host().c_str());
  std::atomic<int64_t> received = 0;
  const StatusLine line(kQuiet, [&, start = Instant::Now()] {
    return ProgressText(plan.name, received, before, total, Instant::Now() - start);
  });
  for (const HubFile& file : missing) {
    const fs::path lock = plan.cache / ".locks" / HubFolderName(plan.name) / (file.hash + ".lock");
    RETURN_IF_ERROR(DownloadFile(client,
                                 {.name = plan.name,
                                  .commit = plan.listing.commit,
                                  .file = file,
                                  .blob = plan.BlobOf(file).string(),
                                  .lock = lock.string()},
                                 &received));
  }
  return absl::OkStatus();
}

// Makes the snapshot's links, and then the revision, so that what is found is complete.
absl::Status Publish(const Plan& plan) {
  for (const HubFile& file : plan.model.files) {
    const fs::path link = plan.snapshot() / file.name;
    RETURN_IF_ERROR(CreateFolder(link.parent_path()));
    const fs::path to = plan.BlobOf(file).lexically_relative(link.parent_path());
    std::error_code error;
    if (fs::read_symlink(link, error) == to) continue;
    fs::remove(link, error);
    fs::create_symlink(to, link, error);
    if (error && error != std::errc::file_exists) {
      return absl::ErrnoToStatus(error.value(), link.string());
    }
  }
  if (IsCommit(plan.name.revision)) return absl::OkStatus();
  const fs::path ref = plan.folder() / "refs" / plan.name.revision;
  RETURN_IF_ERROR(CreateFolder(ref.parent_path()));
  return ReplaceFile(ref.string(), plan.listing.commit);
}

absl::StatusOr<std::string> Bring(const HubClient& client, const HubName& name, bool config_only) {
  const InterruptFlag interrupt(InterruptFlag::Second::kEndsTheProgram);
  ASSIGN_OR_RETURN(Plan plan, MakePlan(client, name));
  const bool is_gguf = !plan.model.path.empty();
  if (config_only && is_gguf) {
    return absl::FailedPreconditionError(absl::StrCat(
        name.Text(), ": its configuration is in a GGUF file of ", DecimalSize(plan.model.Bytes()),
        ", which is not here; run `tandem fetch ", name.Text(), "`"));
  }
  if (config_only) {
    std::erase_if(plan.model.files, [](const HubFile& file) { return file.name != "config.json"; });
  }
  RETURN_IF_ERROR(Download(client, plan));
  RETURN_IF_ERROR(Publish(plan));
  return (is_gguf ? plan.snapshot() / plan.model.path : plan.snapshot()).string();
}

// The name of a model of the hub that is not here, and may be fetched; else nothing.
std::optional<HubName> Missing(const std::string& name) {
  std::optional<HubName> hub_name = HubName::Parse(name);
  const bool may_fetch = hub_name.has_value() && !IsHubOffline();
  if (!may_fetch || !absl::IsNotFound(ModelNamed(name).status())) return std::nullopt;
  return hub_name;
}

// Errors of fetching are not errors of the command line.
absl::StatusOr<std::string> BringMissing(const HubName& name, bool config_only) {
  absl::StatusOr<std::string> path =
      Bring(HubClient(HubOptions::FromEnvironment()), name, config_only);
  if (!path.ok()) return WithExitStatus(path.status(), 1);
  return path;
}

}  // namespace

absl::StatusOr<std::string> FetchFromHub(const HubClient& client, const HubName& name) {
  return Bring(client, name, /*config_only=*/false);
}

absl::StatusOr<std::string> FetchConfig(const HubClient& client, const HubName& name) {
  return Bring(client, name, /*config_only=*/true);
}

absl::StatusOr<std::string> FetchPlan(const HubClient& client, const HubName& name) {
  ASSIGN_OR_RETURN(const Plan plan, MakePlan(client, name));
  Table table({"file", "size", "here"});
  for (const HubFile& file : plan.model.files) {
    table.AddRow({file.name, DecimalSize(file.bytes), plan.IsHere(file) ? "yes" : "no"});
  }
  return table.ToText();
}

absl::Status FetchIfMissing(const std::string& name) {
  const std::optional<HubName> missing = Missing(name);
  if (!missing.has_value()) return absl::OkStatus();
  return BringMissing(*missing, /*config_only=*/false).status();
}

absl::StatusOr<std::string> BringModel(const std::string& name) {
  RETURN_IF_ERROR(FetchIfMissing(name));
  return ModelNamed(name);
}

absl::StatusOr<std::string> BringConfig(const std::string& name) {
  const std::optional<HubName> missing = Missing(name);
  return missing.has_value() ? BringMissing(*missing, /*config_only=*/true) : ModelNamed(name);
}

}  // namespace tandem
