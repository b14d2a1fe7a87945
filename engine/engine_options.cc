#include "tandem/engine_options.h"

#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/net/host_and_port.h"
#include "base/net/secret.h"
#include "base/status_macros.h"
#include "engine/prompt_transfer.h"
#include "model/ranks/rank_group.h"
#include "tandem/engine_parameters.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

// Checks each option on its own.
absl::Status CheckTable(const EngineOptions& options) {
  const EngineOptions defaults;
  absl::Status status;
  VisitEngineOptions([&](const Parameter& parameter, auto member, const auto&... allowed) {
    [[maybe_unused]] const auto& value = options.*member;
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, std::string>) {
      if (value == defaults.*member) return;
      (status.Update(CheckOneOf(FieldOf(parameter), value, allowed)), ...);
    } else if constexpr (std::is_enum_v<Value>) {
      (status.Update(WithField(allowed(NameOf(value)).status(), FieldOf(parameter))), ...);
    } else if constexpr (std::is_arithmetic_v<Value>) {
      (status.Update(CheckWithin(FieldOf(parameter), static_cast<double>(value), allowed)), ...);
    }
  });
  return status;
}

// Checks the secret that the option `needed_by` requires.
absl::Status CheckSecret(absl::string_view field, const std::string& secret,
                         absl::string_view needed_by) {
  if (!secret.empty()) return ParseSecrets(secret, field).status();
  return FieldError(
      field, absl::StrCat("is required by ", needed_by, "; `openssl rand -hex 32` makes a secret"));
}

absl::Status CheckRanks(const EngineOptions& options) {
  RETURN_IF_ERROR(CheckRank(options.rank, 0, options.tensor_parallel));
  if (options.rendezvous.empty()) {
    if (options.rank > 0) return FieldError("rendezvous", "must be given if rank is above 0");
    if (options.rendezvous_secret.empty()) return absl::OkStatus();
    return FieldError("rendezvous_secret", "needs a rendezvous");
  }
  if (options.tensor_parallel == 1) {
    return FieldError("rendezvous", "needs a tensor_parallel above 1");
  }
  RETURN_IF_ERROR(ParseHostAndPort(options.rendezvous, "rendezvous").status());
  return CheckSecret("rendezvous_secret", options.rendezvous_secret, "rendezvous");
}

absl::Status CheckTransfer(const EngineOptions& options) {
  if (options.kv_transfer.empty()) return absl::OkStatus();
  if (!options.prefix_cache) {
    return FieldError("kv_transfer", "needs the prefix cache, which is off");
  }
  RETURN_IF_ERROR(ParseTransferAddress(options.kv_transfer).status());
  RETURN_IF_ERROR(CheckSecret("kv_transfer_secret", options.kv_transfer_secret, "kv_transfer"));
  if (options.kv_transfer_peers.empty()) return absl::OkStatus();
  return CheckNetworks(options.kv_transfer_peers, "kv_transfer_peers");
}

absl::Status CheckKvEvents(const EngineOptions& options) {
  for (const auto& [field, endpoint] : {std::pair("kv_events", &options.kv_events),
                                        std::pair("kv_events_replay", &options.kv_events_replay)}) {
    if (!endpoint->empty() && !absl::StartsWith(*endpoint, "tcp://") &&
        !absl::StartsWith(*endpoint, "ipc://")) {
      return FieldError(
          field,
          absl::StrCat("must be an endpoint such as tcp://*:5557 or ipc:///run/tandem.events, got ",
                       *endpoint));
    }
  }
  if (options.kv_events.empty()) {
    if (!options.kv_events_replay.empty()) return FieldError("kv_events_replay", "needs kv_events");
    if (!options.kv_events_topic.empty()) return FieldError("kv_events_topic", "needs kv_events");
    return absl::OkStatus();
  }
  if (!options.prefix_cache) return FieldError("kv_events", "needs the prefix cache, which is off");
  return absl::OkStatus();
}

}  // namespace

bool IsSelfDraft(absl::string_view draft) {
  return draft == "self" || absl::StartsWith(draft, "self:");
}

absl::Status EngineOptions::Validate() const {
  if (target.empty()) return FieldError("target", "no model folder is given");
  RETURN_IF_ERROR(CheckTable(*this));
  if (cuda_tune.empty()) return FieldError("cuda_tune", "must be off, load or a file, got \"\"");
  if (!kv_store.empty() && !prefix_cache) {
    return FieldError("kv_store", "needs the prefix cache, which is off");
  }
  RETURN_IF_ERROR(CheckRanks(*this));
  if (tensor_parallel > 1) {
    for (const auto& [field, value] :
         {std::pair{"kv_store", &kv_store}, std::pair{"kv_transfer", &kv_transfer}}) {
      if (value->empty()) continue;
      return FieldError(
          field, "must be empty if tensor_parallel is above 1: each rank has a part of every page");
    }
  }
  RETURN_IF_ERROR(CheckTransfer(*this));
  return CheckKvEvents(*this);
}

}  // namespace tandem
