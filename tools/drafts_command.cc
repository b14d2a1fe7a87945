// tandem drafts: which drafts fit a target, which of them are here, and the gain to expect.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/format.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "engine/draft_format.h"
#include "engine/hub_cache.h"
#include "engine/known_drafts.h"
#include "model/checkpoint/model_config.h"
#include "tandem/chat_template.h"
#include "tandem/known_models.h"
#include "tandem/model_places.h"
#include "tools/bandwidth.h"
#include "tools/command.h"
#include "tools/help_text.h"
#include "tools/option_group.h"
#include "tools/standard_streams.h"
#include "tools/status_line.h"
#include "tools/table.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// The mean over eight tasks of two pairs whose vocabularies differ (docs/benchmarks/real_pairs.md).
constexpr double kTranslatedAcceptance = 0.53;

struct DraftsFlags {
  std::string target;
  bool json = false;
};

constexpr const char* kKinds[] = {"model", "parallel", "head"};

// Bits of a weight in a draft that is not here: a GGUF file's by its name; others are quantised to
// four bits at load if they are large.
double BitsOf(absl::string_view draft) {
  if (absl::StrContains(draft, ":Q8_0")) return 8.5;
  return absl::StrContains(draft, ":Q4_K_M") ? 4.85 : 4.5;
}

// A target, and how long its passes take here.
struct Target {
  std::string path;
  double bytes = 0;  // read by a pass; 0 if it is not here
  ReadBandwidth memory{};
  std::optional<ReadBandwidth> cache{};

  // The least time of a pass that reads so many bytes.
  double SecondsOf(double read) const {
    const bool is_cached = cache.has_value() && read <= static_cast<double>(LastLevelCacheBytes());
    return read / (is_cached ? cache->bytes_per_second : memory.bytes_per_second);
  }
};

absl::StatusOr<Target> Measure(const std::string& path) {
  Target target = {.path = path};
  ASSIGN_OR_RETURN(target.bytes, BytesReadPerPass({}, path));
  const WaitingLine line("measuring the bandwidth of this machine");
  ThreadPool pool(NumUsableCores());
  ASSIGN_OR_RETURN(target.memory, MeasureReadBandwidth(MemoryBufferBytes(), &pool));
  if (LastLevelCacheBytes() > 0) {
    ASSIGN_OR_RETURN(target.cache, MeasureReadBandwidth(LastLevelCacheBytes() / 2, &pool));
  }
  return target;
}

// A draft in the answer.
struct Candidate {
  std::string name;
  std::string kind = "model";
  std::string path{};  // empty if it is not here
  double bytes = 0;    // read by a step; 0 if it is unknown
  double acceptance = kUsualAcceptance;
  bool is_published = false;  // the acceptance
  double gain = 0;            // expected, times plain decoding; 0 without the target
  std::string source{};
  std::string note{};  // why it does not fit, or what speaks against it
};

void SetGain(const Target& target, Candidate* draft) {
  if (target.bytes == 0 || draft->bytes == 0) return;
  const double step = target.SecondsOf(draft->bytes) / target.SecondsOf(target.bytes);
  draft->gain = ExpectedGain(draft->acceptance, step, draft->kind == kKinds[1]);
}

Candidate CandidateOf(const KnownDraft& known, const Target& target) {
  Candidate draft = {.name = known.draft,
                     .kind = kKinds[static_cast<int>(known.kind)],
                     .path = FindDraft(known, target.path).value_or(""),
                     .acceptance = known.Acceptance(kUsualAcceptance),
                     .is_published = known.accepted > 0,
                     .source = known.source};
  draft.bytes = known.millions * 1e6 * BitsOf(known.draft) / 8;
  if (!draft.path.empty()) {
    const absl::StatusOr<DraftMatrices> matrices = DraftMatricesOf({}, draft.path);
    if (matrices.ok()) draft.bytes = matrices->bytes;
  }
  SetGain(target, &draft);
  return draft;
}

// The other models on this machine: fetched ones, and those in the target's folder.
std::vector<std::string> ModelsHere(const std::string& target) {
  std::vector<std::string> models = ModelsInHubCache();
  for (const KnownModel& model : KnownModels()) {
    if (std::optional<std::string> path = FetchedModel(model)) models.push_back(*std::move(path));
  }
  std::error_code error;
  const bool is_file = fs::is_regular_file(target, error);
  const fs::path folder = is_file ? fs::path(target).parent_path() : fs::path();
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    if (is_file && entry.path().extension() == ".gguf") models.push_back(entry.path().string());
  }
  return models;
}

std::string TemplateOf(const std::string& path) {
  const absl::StatusOr<ChatTemplate::Source> source = ChatTemplate::ReadSource(path);
  return source.ok() ? source->jinja : "";
}

// Says how a model that no table knows fits the target.
Candidate Compare(const std::string& path, const Target& target) {
  Candidate draft = {.name = path, .path = path};
  const absl::StatusOr<DraftMatrices> matrices = DraftMatricesOf({}, path);
  if (!matrices.ok()) {
    draft.note = std::string(matrices.status().message());
    return draft;
  }
  draft.bytes = matrices->bytes;
  if (draft.bytes > target.bytes / 2) {
    draft.note = Format("size: it reads %.2f of the target's bytes", draft.bytes / target.bytes);
    return draft;
  }
  const absl::StatusOr<VocabularyFit> fit = CompareVocabularies(target.path, path);
  if (!fit.ok()) {
    draft.note = std::string(fit.status().message());
  } else if (!fit->is_usable) {
    draft.note = absl::StrCat("vocabulary: it has ", fit->paired, " of the target's ", fit->target,
                              " tokens");
  } else {
    if (!fit->is_same) draft.acceptance = kTranslatedAcceptance;
    SetGain(target, &draft);
    if (!fit->is_same) {
      draft.note = absl::StrCat("vocabulary: it has ", fit->paired, " of the target's ",
                                fit->target, " tokens, so fewer may be kept");
    } else if (TemplateOf(path) != TemplateOf(target.path)) {
      draft.note = "template: it was trained for another one, so fewer may be kept in chats";
    }
  }
  return draft;
}

std::string NumberOr(const absl::FormatSpec<double>& format, double value, const char* none) {
  return value == 0 ? none : Format(format, value);
}

JsonValue ToJson(const Candidate& draft) {
  JsonValue json = {{"draft", draft.name}, {"kind", draft.kind}, {"path", nullptr}};
  if (!draft.path.empty()) json["path"] = draft.path;
  json["bytes"] = std::llround(draft.bytes);
  json["acceptance"] = draft.acceptance;
  json["is_published"] = draft.is_published;
  json["expected_gain"] = draft.gain == 0 ? JsonValue(nullptr) : JsonValue(draft.gain);
  json["source"] = draft.source;
  json["note"] = draft.note;
  return json;
}

std::string TextOf(const std::string& typed, const Target& target,
                   const std::vector<Candidate>& drafts) {
  std::string text = absl::StrCat("target  ", typed, "\n");
  if (target.bytes > 0) {
    absl::StrAppend(
        &text, "path    ", target.path, "\n",
        Format("a pass  %.1f MB, at least %.1f ms at %.1f GB/s\n", target.bytes * 1e-6,
               target.SecondsOf(target.bytes) * 1e3, target.memory.bytes_per_second * 1e-9));
  } else {
    absl::StrAppend(&text, "path    not here, so that no gain can be told\n");
  }
  Table table({"draft", "kind", "here", "MB", "kept", "gain", "figure from"});
  std::string notes;
  for (const Candidate& draft : drafts) {
    const bool fits = draft.gain > 0 || target.bytes == 0;
    if (fits) {
      table.AddRow({draft.name, draft.kind, draft.path.empty() ? "no" : "yes",
                    NumberOr("%.0f", draft.bytes * 1e-6, "?"), Format("%.2f", draft.acceptance),
                    NumberOr("%.2f", draft.gain, "?"),
                    draft.is_published ? draft.source : "assumed"});
    }
    if (!draft.note.empty()) {
      absl::StrAppend(&notes, fits ? "note: " : "does not fit: ", draft.name, ": ", draft.note,
                      "\n");
    }
  }
  absl::StrAppend(&text, "\n", table.ToText(), notes.empty() ? "" : "\n", notes,
                  "\n\"kept\" is the share of draft tokens that the target keeps, \"gain\" the "
                  "expected speed in times plain\ndecoding, from the bytes of both models. "
                  "`tandem pair TARGET DRAFT` measures it.\n");
  const auto missing = absl::c_find_if(drafts, [](const Candidate& d) { return d.path.empty(); });
  if (missing != drafts.end()) {
    absl::StrAppend(&text, "`tandem fetch ", missing->name,
                    "` fetches the first that is not here.\n");
  }
  return text;
}

absl::Status ListAll(bool as_json) {
  Table table({"target", "draft", "kind", "kept", "source"});
  JsonValue json = JsonValue::array();
  for (const KnownDraft& draft : KnownDrafts()) {
    const char* const kind = kKinds[static_cast<int>(draft.kind)];
    table.AddRow(
        {draft.target, draft.draft, kind, NumberOr("%.2f", draft.accepted, "?"), draft.source});
    json.push_back(
        {{"target", draft.target},
         {"draft", draft.draft},
         {"kind", kind},
         {"accepted", draft.accepted == 0 ? JsonValue(nullptr) : JsonValue(draft.accepted)},
         {"draft_tokens", draft.draft_tokens},
         {"source", draft.source}});
  }
  return as_json ? PrintJson(json) : Print(table.ToText());
}

absl::Status Run(const DraftsFlags& flags) {
  if (flags.target.empty()) return ListAll(flags.json);
  const absl::StatusOr<std::string> path = ModelNamed(flags.target);
  if (!path.ok() && !absl::IsNotFound(path.status())) return path.status();
  const std::vector<std::string> names = NamesOfModel(flags.target, path.value_or(flags.target));
  const std::vector<const KnownDraft*> known = KnownDraftsFor(names);
  if (!path.ok() && known.empty()) return path.status();
  Target target;
  if (path.ok()) {
    ASSIGN_OR_RETURN(target, Measure(*path));
  }
  std::vector<Candidate> drafts;
  for (const KnownDraft* draft : known) drafts.push_back(CandidateOf(*draft, target));
  if (path.ok()) {
    for (const std::string& model : ModelsHere(*path)) {
      std::error_code error;
      const bool is_target = fs::equivalent(model, *path, error);
      const bool is_known =
          absl::c_any_of(drafts, [&](const Candidate& d) { return d.path == model; });
      if (!is_target && !is_known) drafts.push_back(Compare(model, target));
    }
  }
  if (!flags.json) return Print(TextOf(flags.target, target, drafts));
  JsonValue json = {{"target", flags.target}, {"drafts", JsonValue::array()}};
  for (const Candidate& draft : drafts) json["drafts"].push_back(ToJson(draft));
  return PrintJson(json);
}

}  // namespace

Command AddDraftsCommand(CLI::App* program) {
  const auto flags = std::make_shared<DraftsFlags>();
  CLI::App* app = program->add_subcommand(
      "drafts", "List the drafts that fit a target, and the gain to expect on this machine");
  app->add_option("target", flags->target,
                  "The target: a folder, a GGUF file or a name; without it, lists all known drafts")
      ->type_name("TARGET");
  OptionGroup group(app);
  group.AddFlag("--json", &flags->json, "Print a JSON object");
  AddExamples(app, {"tandem drafts smollm2", "tandem drafts Qwen/Qwen3-8B-GGUF:Q4_K_M"});
  return {
      .app = app, .check = [] { return absl::OkStatus(); }, .run = [flags] { return Run(*flags); }};
}

}  // namespace tandem
