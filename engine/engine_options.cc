#include "tandem/engine_options.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/named_values.h"
#include "base/status_macros.h"
#include "engine/prompt_transfer.h"
#include "engine/runtime.h"
#include "kernels/quantize.h"
#include "kvcache/kv_layout.h"
#include "kvstore/lmdb_store.h"
#include "kvtransfer/address.h"
#include "ranks/rank_group.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

// More than any machine can use, and so little that no count of pages, rows or threads overflows.
constexpr int kMostThreads = 4096;
constexpr int kMostPageSize = 4096;
constexpr int kMostInBatch = 65536;
constexpr int kMostInChunk = 65536;

absl::Status CheckRanks(const EngineOptions& options) {
  RETURN_IF_ERROR(CheckBetween("tensor_parallel", options.tensor_parallel, 1, kMostRanks));
  RETURN_IF_ERROR(CheckRank(options.rank, 0, options.tensor_parallel));
  if (options.rendezvous.empty()) {
    if (options.rank > 0) return FieldError("rendezvous", "must be given where rank is above 0");
    if (options.rendezvous_secret.empty()) return absl::OkStatus();
    return FieldError("rendezvous_secret", "needs a rendezvous");
  }
  if (options.tensor_parallel == 1) {
    return FieldError("rendezvous", "needs a tensor_parallel above 1");
  }
  return ParseHostAndPort(options.rendezvous, "rendezvous").status();
}

absl::Status CheckKvEvents(const EngineOptions& options) {
  for (const auto& [field, endpoint] : {std::pair("kv_events", &options.kv_events),
                                        std::pair("kv_events_replay", &options.kv_events_replay)}) {
    if (!endpoint->empty() && !absl::StartsWith(*endpoint, "tcp://") &&
        !absl::StartsWith(*endpoint, "ipc://")) {
      return FieldError(field, absl::StrCat(*endpoint, " is not an endpoint such as tcp://*:5557 ",
                                            "or ipc:///run/tandem.events"));
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

absl::Status CheckDraftTokens(int draft_tokens) {
  if (draft_tokens == kAutoDraftTokens || (0 <= draft_tokens && draft_tokens <= kMaxDraftTokens)) {
    return absl::OkStatus();
  }
  return FieldError("draft_tokens",
                    absl::StrCat(draft_tokens, " is not auto or from 0 to ", kMaxDraftTokens));
}

absl::Status CheckDraftWindow(int draft_window) {
  if (draft_window == kAutoDraftWindow || draft_window >= 0) return absl::OkStatus();
  return FieldError("draft_window", absl::StrCat("must be auto or at least 0, got ", draft_window));
}

absl::Status EngineOptions::Validate() const {
  if (target.empty()) return FieldError("target", "no model folder is given");
  RETURN_IF_ERROR(CheckDraftTokens(draft_tokens));
  RETURN_IF_ERROR(CheckBetween("threads", threads, 0, kMostThreads));
  if (draft_head_tokens < kAutoDraftHeadTokens) {
    return FieldError("draft_head_tokens",
                      absl::StrCat("must be auto or at least 0, got ", draft_head_tokens));
  }
  RETURN_IF_ERROR(CheckDraftWindow(draft_window));
  RETURN_IF_ERROR(CheckAtLeast("draft_memory", draft_memory_bytes, 0));
  RETURN_IF_ERROR(ParseCompute(compute).status());
  RETURN_IF_ERROR(ValueOf(kQuantizations, "quantize", quantize).status());
  if (draft_quantize != "auto") {
    RETURN_IF_ERROR(ValueOf(kQuantizations, "draft_quantize", draft_quantize).status());
  }
  RETURN_IF_ERROR(ParseKvDType(kv_cache, "kv_cache", KvDType::kF32).status());
  RETURN_IF_ERROR(ParseKvDType(kv_cache_of_draft(), "draft_kv_cache", KvDType::kF32).status());
  RETURN_IF_ERROR(CheckAtLeast("kv_memory", kv_memory_bytes, 0));
  RETURN_IF_ERROR(CheckAtLeast("kv_store_size", kv_store_bytes, kLeastStoreBytes));
  if (!kv_store.empty() && !prefix_cache) {
    return FieldError("kv_store", "needs the prefix cache, which is off");
  }
  RETURN_IF_ERROR(CheckRanks(*this));
  if (tensor_parallel > 1) {
    for (const auto& [field, value] :
         {std::pair{"kv_store", &kv_store}, std::pair{"kv_transfer", &kv_transfer}}) {
      if (value->empty()) continue;
      return FieldError(field,
                        "must be empty where tensor_parallel is above 1: each rank has a "
                        "part of every page");
    }
  }
  if (!kv_transfer.empty() && !prefix_cache) {
    return FieldError("kv_transfer", "needs the prefix cache, which is off");
  }
  RETURN_IF_ERROR(ParseTransferAddress(kv_transfer).status());
  RETURN_IF_ERROR(CheckAtLeast("kv_transfer_memory", kv_transfer_bytes, kLeastTransferBytes));
  RETURN_IF_ERROR(
      CheckBetween("kv_transfer_lease", kv_transfer_lease_seconds, 1, kMostLeaseSeconds));
  RETURN_IF_ERROR(CheckKvEvents(*this));
  RETURN_IF_ERROR(CheckBetween("page_size", page_size, 1, kMostPageSize));
  RETURN_IF_ERROR(CheckAtLeast("context", context, 0));
  RETURN_IF_ERROR(CheckBetween("max_batch", max_batch, 1, kMostInBatch));
  RETURN_IF_ERROR(CheckAtLeast("max_generations", max_generations, 1));
  return CheckBetween("chunk_tokens", chunk_tokens, 0, kMostInChunk);
}

}  // namespace tandem
