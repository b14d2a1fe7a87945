#include "engine/learned_speculation.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/format.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "base/output_folder.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "engine/fingerprint.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// The file's first line. Its number changes whenever the order or meaning of the numbers changes.
constexpr char kVersionLine[] = "tandem learned speculation 4\n";
constexpr char kAnyVersion[] = "tandem learned speculation ";

// The largest has 16,384 tokens of a head and their counts, at most 25 bytes each.
constexpr size_t kMaxFileBytes = size_t{1} << 20;

absl::Status Damaged(const std::string& file) {
  return absl::DataLossError(
      absl::StrCat(file, ": is not a complete file of learned speculation of this version"));
}

std::string HeadFileNextTo(const std::string& file) {
  const fs::path path(file);
  const std::string name =
      absl::StrReplaceAll(path.filename().string(), {{"speculation-", "head-"}});
  return (path.parent_path() / name).string();
}

// Reads the numbers of a file into the objects that `serialize` passes to the archive.
absl::Status Load(const std::string& file, absl::FunctionRef<void(StateArchive*)> serialize) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxFileBytes));
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, kVersionLine) || !absl::EndsWith(text, "\n")) {
    return Damaged(file);
  }
  std::vector<double> numbers;
  for (const absl::string_view word : absl::StrSplit(rest, '\n', absl::SkipEmpty())) {
    if (!absl::SimpleAtod(word, &numbers.emplace_back())) return Damaged(file);
  }
  StateArchive archive(std::move(numbers));
  serialize(&archive);
  return archive.is_complete() ? absl::OkStatus() : Damaged(file);
}

absl::Status Save(const std::string& file, absl::FunctionRef<void(StateArchive*)> serialize) {
  StateArchive archive;
  serialize(&archive);
  std::string text = kVersionLine;
  for (const double number : archive.numbers()) text += Format("%.17g\n", number);
  std::error_code error;
  fs::create_directories(fs::path(file).parent_path(), error);
  if (error) return absl::ErrnoToStatus(error.value(), file);
  return ReplaceFile(file, text);
}

}  // namespace

std::string LearnedSpeculationFile(const EngineOptions& options, DrafterKind drafter,
                                   std::string_view device_description) {
  if (options.packed_weights.empty() || drafter == DrafterKind::kNone) return "";
  // The name includes the draft as it was given, because self drafts do not name a file.
  EngineOptions draft = options;
  draft.target = options.draft;
  draft.quantize = options.draft_quantize;
  draft.kv_cache = options.kv_cache_of_draft();
  const std::string pair = absl::StrCat(
      FingerprintOf(options, kVersionLine), "\n", FingerprintOf(draft, options.draft), "\n",
      View(NameOf(drafter)), "\n", options.draft_head_tokens, "\n", options.draft_window, "\n",
      NameOf(options.draft_mask_token), "\n", View(device_description));
  return (fs::path(options.packed_weights) /
          Format("speculation-%016x.txt", std::hash<std::string>()(pair)))
      .string();
}

absl::StatusOr<SpeculationPolicy> LoadLearnedSpeculation(const std::string& file) {
  SpeculationPolicy policy;
  RETURN_IF_ERROR(Load(file, [&](StateArchive* archive) { policy.Serialize(archive); }));
  return policy;
}

absl::Status SaveLearnedSpeculation(SpeculationPolicy* policy, const std::string& file) {
  return Save(file, [&](StateArchive* archive) { policy->Serialize(archive); });
}

std::vector<CachedFile> LearnedFilesIn(const std::string& folder) {
  return CachedFilesIn(folder, [](CachedFile* file) {
    const std::string path_name = fs::path(file->path).filename().string();
    absl::string_view name = path_name;
    if (!absl::ConsumePrefix(&name, "speculation-") && !absl::ConsumePrefix(&name, "head-")) {
      return false;
    }
    if (!absl::ConsumeSuffix(&name, ".txt") || !absl::c_all_of(name, absl::ascii_isxdigit)) {
      return false;
    }
    const absl::StatusOr<std::string> text = ReadFile(file->path, kMaxFileBytes);
    return text.ok() && absl::StartsWith(*text, kAnyVersion);
  });
}

LearnedSpeculation::LearnedSpeculation(std::string file, LearnedHead* head)
    : file_(std::move(file)),
      head_file_(file_.empty() || head == nullptr ? "" : HeadFileNextTo(file_)),
      head_(head) {}

void LearnedSpeculation::Recall(SpeculationPolicy* policy) const {
  const auto recall = [](const std::string& file, absl::FunctionRef<absl::Status()> load) {
    if (file.empty()) return;
    const absl::Status status = Guarded("learned speculation", load);
    if (status.ok() || absl::IsNotFound(status)) return;
    Log(LogLevel::kWarning,
        absl::StrCat(status.message(),
                     "; speculation starts without what earlier processes learned"));
  };
  recall(file_, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(*policy, LoadLearnedSpeculation(file_));
    return absl::OkStatus();
  });
  recall(head_file_, [&]() -> absl::Status {
    RETURN_IF_ERROR(Load(head_file_, [&](StateArchive* archive) { head_->Serialize(archive); }));
    head_->ApplyLoadedState(*policy);
    return absl::OkStatus();
  });
}

void LearnedSpeculation::Keep(SpeculationPolicy* policy, absl::Duration at_least) {
  const Instant now = Instant::Now();
  if (file_.empty() || policy->num_rounds() == num_rounds_kept_) return;
  if (now - last_kept_ < at_least) return;
  const absl::Status status = Guarded("learned speculation", [&]() -> absl::Status {
    RETURN_IF_ERROR(SaveLearnedSpeculation(policy, file_));
    if (head_file_.empty()) return absl::OkStatus();
    return Save(head_file_, [&](StateArchive* archive) { head_->Serialize(archive); });
  });
  if (!status.ok()) Log(LogLevel::kWarning, std::string(status.message()));
  num_rounds_kept_ = policy->num_rounds();
  last_kept_ = now;
}

}  // namespace tandem
