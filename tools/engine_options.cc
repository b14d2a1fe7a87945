#include "tools/engine_options.h"

#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "engine/tensor_parallel.h"
#include "tandem/field_error.h"
#include "tandem/model_places.h"
#include "tools/hub/hub_fetch.h"
#include "tools/option_group.h"
#include "tools/standard_streams.h"
#include "tools/status_line.h"

namespace tandem {
namespace {

template <typename Member, typename... Allowed>
void AddOne(CLI::App* app, const std::string& heading, const Parameter& parameter, Member* value,
            const Allowed&... allowed) {
  OptionGroup group(app, heading);
  std::string help = parameter.help;
  if (*parameter.otherwise != '\0') absl::StrAppend(&help, " [", parameter.otherwise, "]");
  CLI::Option* option = nullptr;
  if constexpr (std::is_same_v<Member, bool>) {
    option = group.AddFlag(parameter.option, value, help);
  } else {
    option = group.Add(parameter.option, parameter.value, value, help, allowed...);
  }
  if (*parameter.needs != '\0') option->needs(app->get_option(parameter.needs));
}

}  // namespace

void EngineFlags::AddTo(CLI::App* app, std::initializer_list<absl::string_view> groups,
                        bool with_draft_tokens) {
  for (const absl::string_view heading : groups) {
    OptionGroup group(app, std::string(heading));
    VisitEngineOptions([&](Parameter parameter, auto member, const auto&... allowed) {
      const absl::string_view own = *parameter.group == '\0' ? kEngineGroup : parameter.group;
      if (own != heading || *parameter.option == '\0') return;
      if (parameter.name == absl::string_view("draft_tokens") && !with_draft_tokens) return;
      if (parameter.name == absl::string_view("target") && prefers_real_pair) {
        parameter.otherwise = "smollm2 if it was fetched, else the shipped storyteller-7m";
      }
      AddOne(app, std::string(heading), parameter, &(options.*member), allowed...);
    });
    if (heading == kEngineGroup) {
      group.Add("--world", "N", &world, "Another name for --tensor-parallel",
                {.low = 1, .high = kMaxRanks, .unset = 0});
      group.Add("--rendezvous-secret-file", "F", &rendezvous_secret.file,
                "A file that holds the secret of all ranks; required [$TANDEM_RENDEZVOUS_SECRET]");
    } else if (heading == kTransferGroup) {
      group.Add(
          "--kv-transfer-secret-file", "F", &kv_transfer_secret.file,
          "A file that holds the secret of all workers; required [$TANDEM_KV_TRANSFER_SECRET]");
    }
  }
}

void AddEngineOptions(CLI::App* app, std::initializer_list<absl::string_view> names,
                      EngineOptions* options) {
  VisitEngineOptions([&](const Parameter& parameter, auto member, const auto&... allowed) {
    if (!absl::c_linear_search(names, parameter.name)) return;
    AddOne(app, "Options", parameter, &(options->*member), allowed...);
  });
}

bool IsEngineOption(absl::string_view option) {
  bool is_one = false;
  VisitEngineOptions([&](const Parameter& parameter, auto, const auto&...) {
    is_one |= absl::EndsWith(absl::StrCat(",", parameter.option), absl::StrCat(",", option));
  });
  return is_one;
}

absl::Status EngineFlags::ChooseModels(EngineOptions* chosen, bool are_fetched_later) const {
  if (chosen->target.empty()) {
    const std::optional<PairPaths> real =
        prefers_real_pair ? RealPair(chosen->tensor_parallel) : std::nullopt;
    const PairPaths pair = real.has_value() ? *real : StoryPair();
    chosen->target = pair.target;
    if (chosen->draft.empty()) chosen->draft = pair.draft;
  }
  if (!are_fetched_later) {
    RETURN_IF_ERROR(FetchIfMissing(chosen->target));
    RETURN_IF_ERROR(FetchIfMissing(chosen->draft));
  }
  // A missing model is not an error of the command line. The engine reports it later.
  const absl::Status status = ResolveModels(chosen);
  RETURN_IF_ERROR(absl::IsNotFound(status) ? absl::OkStatus() : status);
  if (chosen->drafter == DrafterKind::kAuto) return absl::OkStatus();
  // A draft that was given explicitly stays if requests may choose their drafter.
  const bool is_for_requests = chosen->all_drafters && !options.draft.empty();
  if (!HasModel(chosen->drafter) && !is_for_requests) chosen->draft.clear();
  if (!HasModel(chosen->drafter) || !chosen->draft.empty()) return absl::OkStatus();
  return FieldError("--drafter", absl::StrCat(View(NameOf(chosen->drafter)), " needs a --draft"));
}

absl::Status EngineFlags::ChooseRanks(EngineOptions* chosen) const {
  if (world > 0 && chosen->tensor_parallel > 1 && world != chosen->tensor_parallel) {
    return FieldError("--world", absl::StrCat("must be the same as --tensor-parallel, which is ",
                                              chosen->tensor_parallel, ", got ", world));
  }
  if (world > 0) chosen->tensor_parallel = world;
  for (const auto& [source, of, secret] :
       {std::tuple(&rendezvous_secret, &options.rendezvous, &chosen->rendezvous_secret),
        std::tuple(&kv_transfer_secret, &options.kv_transfer, &chosen->kv_transfer_secret)}) {
    if (!of->empty()) {
      ASSIGN_OR_RETURN(*secret, source->Read());
    } else if (!source->file.empty()) {
      return FieldError(source->file_option, absl::StrCat("needs a ", source->needed_by));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<EngineOptions> EngineFlags::ToOptions(bool are_fetched_later) const {
  EngineOptions chosen = options;
  RETURN_IF_ERROR(ChooseRanks(&chosen));
  RETURN_IF_ERROR(ChooseModels(&chosen, are_fetched_later));
  chosen.threads = UsableThreads(options.threads);
  chosen.on_packing = [progress = std::shared_ptr<Progress>()](int64_t packed,
                                                               int64_t total) mutable {
    if (progress == nullptr) progress = std::make_shared<Progress>("packing", total);
    progress->AdvanceTo(packed);
    if (packed == total) progress.reset();
  };
  if (options.packed_weights.empty()) chosen.packed_weights = PackedWeightsFolder().value_or("");
  if (options.packed_weights == "none") chosen.packed_weights.clear();
  RETURN_IF_ERROR(chosen.Validate());
  return chosen;
}

absl::Status RunOrFollow(const EngineOptions& options, absl::FunctionRef<absl::Status()> job) {
  return options.rank == 0 ? job() : FollowRankZero(options);
}

absl::StatusOr<std::unique_ptr<Engine>> LoadEngine(const EngineOptions& options) {
  const WaitingLine line(absl::StrCat("loading ", options.target));
  return Engine::Create(options);
}

absl::Status RunWithEngine(const EngineOptions& options,
                           absl::FunctionRef<absl::Status(Engine&)> job) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(options));
  RETURN_IF_ERROR(job(*engine));
  const WaitingLine line("writing packed weights");
  engine->AwaitPackedWeights();
  return absl::OkStatus();
}

int UsableThreads(int threads) {
  const int most = NumUsableProcessors();
  if (threads <= most) return threads;
  Log(LogLevel::kWarning, absl::StrCat("threads=", most, " reason=\"--threads ", threads,
                                       " exceeds the number of usable processors\""));
  return most;
}

}  // namespace tandem
