#include "engine/tensor_parallel.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "engine/fingerprint.h"
#include "engine/runtime.h"
#include "json/json_text.h"
#include "kernels/quantize.h"
#include "model/pass_message.h"
#include "nlohmann/json.hpp"
#include "ranks/device_ranks.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

using nlohmann::json;

absl::Span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// What every rank says after a step of loading.
struct Answer {
  std::string error{};
  int error_code = 0;
  std::string arithmetic{};  // must be everyone's
  LeadingRank::Needs needs{};
  std::string description{};
};

std::string ToText(const Answer& answer) {
  return json{{"error", answer.error.substr(0, RankGroup::kMostWords / 4)},
              {"code", answer.error_code},
              {"arithmetic", answer.arithmetic},
              {"page_bytes", answer.needs.page_bytes},
              {"bytes_to_pack", answer.needs.bytes_to_pack},
              {"description", answer.description}}
      .dump(-1, ' ', true, json::error_handler_t::replace);
}

absl::StatusOr<Answer> ParseAnswer(const std::string& text) {
  ASSIGN_OR_RETURN(const json parsed, ParseJson(text, "tensor_parallel"));
  return Answer{
      .error = parsed.at("error"),
      .error_code = parsed.at("code"),
      .arithmetic = parsed.at("arithmetic"),
      .needs = {.page_bytes = parsed.at("page_bytes"), .bytes_to_pack = parsed.at("bytes_to_pack")},
      .description = parsed.at("description")};
}

// The other ranks' threads are those of their machine, shared out.
int ThreadsOf(const EngineOptions& options, int rank) {
  if (options.threads > 0) return options.threads;
  const Share share = ShareOf(NumUsableCores(), options.tensor_parallel, rank);
  return static_cast<int>(std::max<int64_t>(1, share.end - share.begin));
}

// Rank `rank`'s, of one machine, where rank 0 has `device`.
std::string DeviceOfRank(const std::string& device, int rank) {
  absl::string_view number = device;
  int first = 0;
  if (!absl::ConsumePrefix(&number, "cuda:") || !absl::SimpleAtoi(number, &first)) return device;
  return absl::StrCat("cuda:", first + rank);
}

// Finds the library by which a backend's device meets others, if it has one.
absl::Status OpenGatherer(Backend& backend) {
  if (backend.gatherer() == nullptr) return absl::OkStatus();
  const absl::Status opened = backend.gatherer()->Open();
  if (opened.ok()) return opened;
  return absl::Status(opened.code(), absl::StrCat(View(backend.name()), ": ", opened.message()));
}

// One of the other ranks.
class Follower {
 public:
  explicit Follower(RankGroup* group) : group_(*group) {}

  absl::Status Run() {
    for (;;) {
      ASSIGN_OR_RETURN(const absl::Span<const std::byte> message, group_.Receive());
      if (!message.empty() && message[0] == std::byte{'{'}) {
        const std::string text(reinterpret_cast<const char*>(message.data()), message.size());
        Answer answer;
        const absl::Status status = Guarded("loading", [&] { return Obey(text, &answer); });
        answer.error = std::string(status.message());
        answer.error_code = static_cast<int>(status.code());
        RETURN_IF_ERROR(group_.Exchange(ToText(answer)).status());
        if (status.ok()) continue;
        return absl::Status(status.code(), absl::StrCat("tensor_parallel: rank ", group_.rank(),
                                                        ": ", status.message()));
      }
      ASSIGN_OR_RETURN(const PassMessage pass, PassMessage::Decode(message));
      const auto model = std::find_if(models_.begin(), models_.end(), [&](const Model& candidate) {
        return candidate.first_slot == pass.model;
      });
      if (model == models_.end()) {
        return absl::InternalError("tensor_parallel: rank 0 runs a model that was not loaded");
      }
      RETURN_IF_ERROR(model->model->Follow(pass, model->cache.get()));
    }
  }

 private:
  struct Model {
    int first_slot = 0;
    KvDType kv_cache = KvDType::kF32;
    std::unique_ptr<Transformer> model{};
    std::unique_ptr<PagedKvCache> cache{};  // null where this rank has no heads
  };

  absl::Status Obey(const std::string& text, Answer* answer) {
    ASSIGN_OR_RETURN(const json order, ParseJson(text, "tensor_parallel"));
    if (order.contains("device")) return Open(order, answer);
    if (order.contains("devices")) return Join(order.at("devices"));
    if (order.contains("pages")) return MakeCaches(order.at("pages"));
    return Load(order, answer);
  }

  absl::Status Open(const json& order, Answer* answer) {
    const std::vector<int> threads = order.at("threads");
    CpuOptions cpu{
        .num_threads = threads.at(group_.rank()), .compute = CpuCompute::kAuto, .isa = ""};
    ASSIGN_OR_RETURN(cpu.compute, ParseCompute(order.at("compute")));
    const std::string device = DeviceOfRank(order.at("device"), group_.rank());
    ASSIGN_OR_RETURN(backend_, MakeBackend(device, cpu));
    page_size_ = order.at("page_size");
    answer->arithmetic = backend_->arithmetic();
    return OpenGatherer(*backend_);
  }

  absl::Status Join(const std::string& devices) {
    std::string words;
    if (backend_ == nullptr || !absl::Base64Unescape(devices, &words)) {
      return absl::InternalError("tensor_parallel: rank 0 has sent something else than a group");
    }
    ASSIGN_OR_RETURN(devices_, JoinDeviceRanks(&group_, backend_.get(), words));
    return absl::OkStatus();
  }

  absl::Status Load(const json& order, Answer* answer) {
    ASSIGN_OR_RETURN(const std::optional<DType> quantized,
                     ValueOf(kQuantizations, "quantize", order.at("quantize").get<std::string>()));
    Model loaded{.first_slot = order.at("first_slot")};
    ASSIGN_OR_RETURN(loaded.kv_cache, ParseKvDType(order.at("kv_cache").get<std::string>()));
    const Transformer::LoadOptions loading{.quantized = quantized,
                                           .which = order.at("requantizes")
                                                        ? Transformer::Quantize::kAll
                                                        : Transformer::Quantize::kFloats,
                                           .has_exact_activations = order.at("compute") == "f32",
                                           .packed_folder = order.at("packed_weights"),
                                           .allowed_config_keys = order.at("allow_unknown_config"),
                                           .head_tokens = order.at("head_tokens"),
                                           .context = order.at("context"),
                                           .group = devices_ != nullptr ? devices_.get() : &group_,
                                           .first_slot = loaded.first_slot};
    ASSIGN_OR_RETURN(loaded.model, Transformer::Load(order.at("path").get<std::string>(),
                                                     backend_.get(), loading));
    answer->arithmetic = backend_->arithmetic();
    answer->description = DescriptionOfPart(*loaded.model);
    answer->needs = NeedsOf(*loaded.model, *backend_, page_size_, loaded.kv_cache);
    models_.push_back(std::move(loaded));
    return absl::OkStatus();
  }

  absl::Status MakeCaches(int64_t num_pages) {
    for (Model& model : models_) {
      const KvLayout layout = model.model->kv_layout(page_size_, model.kv_cache);
      if (layout.num_kv_heads == 0) continue;
      ASSIGN_OR_RETURN(model.cache,
                       PagedKvCache::Create(backend_.get(), layout, static_cast<int>(num_pages)));
    }
    return absl::OkStatus();
  }

  RankGroup& group_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<RankGroup> devices_;  // of the group, where ranks have some
  int page_size_ = 0;
  std::vector<Model> models_;
};

}  // namespace

LeadingRank::Needs NeedsOf(const Transformer& model, const Backend& backend, int page_size,
                           KvDType kv_cache) {
  // What loading took of the host's memory counts, too: what was available was told before.
  const size_t packed = backend.memory_is_host() ? model.bytes_packed_at_load() : 0;
  return {.page_bytes = static_cast<int64_t>(model.kv_layout(page_size, kv_cache).page_bytes()),
          .bytes_to_pack = static_cast<int64_t>(model.bytes_to_pack() + packed)};
}

std::string DescriptionOfPart(const Transformer& model) {
  const KvLayout layout = model.kv_layout(1);
  return absl::StrCat(layout.num_kv_heads, " of ", model.config().num_kv_heads,
                      " key-value heads, ", model.bytes_read_per_pass(),
                      " bytes of weights a pass");
}

absl::StatusOr<std::unique_ptr<LeadingRank>> LeadingRank::Start(const EngineOptions& options) {
  std::unique_ptr<LeadingRank> leader(new LeadingRank(options));
  ASSIGN_OR_RETURN(const std::shared_ptr<SharedMemory> memory,
                   SharedMemory::Create(options.tensor_parallel));
  const auto lost = [leader = leader.get()](const absl::Status& why) { leader->Lost(why); };
  leader->group_ = JoinSharedRanks(memory, /*rank=*/0, {.on_silence = lost});
  const std::string program = options.rank_program.empty() ? OwnProgram() : options.rank_program;
  ASSIGN_OR_RETURN(leader->processes_, RankProcesses::Start(program, {"rank"}, *memory, lost));
  return leader;
}

LeadingRank::~LeadingRank() {
  is_over_ = true;
  group_->Fail(absl::CancelledError("tensor_parallel: rank 0 has ended"));
  processes_ = nullptr;  // the others end with the group, and are waited for
}

void LeadingRank::Lost(const absl::Status& why) {
  group_->Fail(why);
  // A rank that fails says why before its process ends.
  if (!is_over_.exchange(true) && options_.on_rank_failure) {
    options_.on_rank_failure(group_->status());
  }
}

int LeadingRank::num_threads() const { return ThreadsOf(options_, /*rank=*/0); }

absl::Status LeadingRank::Open(Backend* backend) {
  std::vector<int> threads;
  for (int rank = 0; rank < options_.tensor_parallel; ++rank) {
    threads.push_back(ThreadsOf(options_, rank));
  }
  const absl::Status opened = OpenGatherer(*backend);
  if (!opened.ok()) {
    return absl::Status(opened.code(), absl::StrCat("tensor_parallel: ", opened.message()));
  }
  const json order{{"device", std::string(backend->name())},
                   {"threads", threads},
                   {"compute", options_.compute},
                   {"page_size", options_.page_size}};
  RETURN_IF_ERROR(group_->Send(BytesOf(order.dump())));
  RETURN_IF_ERROR(Gather(ToText({.arithmetic = backend->arithmetic()})).status());
  if (backend->gatherer() == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string words, backend->gatherer()->NewGroup());
  RETURN_IF_ERROR(group_->Send(BytesOf(json{{"devices", absl::Base64Escape(words)}}.dump())));
  ASSIGN_OR_RETURN(devices_, JoinDeviceRanks(group_.get(), backend, words));
  return Gather(ToText({})).status();
}

absl::Status LeadingRank::Load(const RankModel& model) {
  const json order{{"path", model.path},
                   {"quantize", model.quantize},
                   {"requantizes", model.requantizes},
                   {"head_tokens", model.head_tokens},
                   {"context", model.context},
                   {"kv_cache", model.kv_cache},
                   {"first_slot", model.first_slot},
                   {"compute", options_.compute},
                   {"packed_weights", options_.packed_weights},
                   {"allow_unknown_config", options_.allow_unknown_config}};
  return group_->Send(BytesOf(order.dump()));
}

// Every rank's answer. The error is that of the first rank that has one.
absl::StatusOr<LeadingRank::Needs> LeadingRank::Gather(const std::string& own) {
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, group_->Exchange(own));
  Needs sum;
  std::string arithmetic;
  descriptions_.clear();
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    Answer answer;
    RETURN_IF_ERROR(Guarded("tensor_parallel", [&]() -> absl::Status {
      ASSIGN_OR_RETURN(answer, ParseAnswer(texts[rank]));
      return absl::OkStatus();
    }));
    if (answer.error_code != 0) {
      return absl::Status(static_cast<absl::StatusCode>(answer.error_code),
                          absl::StrCat("tensor_parallel: rank ", rank, ": ", answer.error));
    }
    if (rank == 0) arithmetic = answer.arithmetic;
    if (answer.arithmetic != arithmetic) {
      return absl::FailedPreconditionError(
          absl::StrCat("tensor_parallel: rank ", rank, " computes with ", answer.arithmetic,
                       ", rank 0 with ", arithmetic, ", whose bits differ"));
    }
    if (devices_ != nullptr) {  // each has memory of its own
      sum.page_bytes = std::max(sum.page_bytes, answer.needs.page_bytes);
      sum.bytes_to_pack = std::max(sum.bytes_to_pack, answer.needs.bytes_to_pack);
    } else {
      sum.page_bytes += answer.needs.page_bytes;
      sum.bytes_to_pack += answer.needs.bytes_to_pack;
    }
    descriptions_.push_back(answer.description);
  }
  return sum;
}

absl::StatusOr<LeadingRank::Needs> LeadingRank::AwaitLoaded(const Transformer& model,
                                                            const Backend& backend,
                                                            KvDType kv_cache) {
  return Gather(ToText({.arithmetic = backend.arithmetic(),
                        .needs = NeedsOf(model, backend, options_.page_size, kv_cache),
                        .description = DescriptionOfPart(model)}));
}

absl::Status LeadingRank::MakeCaches(int64_t num_pages) {
  RETURN_IF_ERROR(group_->Send(BytesOf(json{{"pages", num_pages}}.dump())));
  const std::vector<std::string> descriptions = descriptions_;
  RETURN_IF_ERROR(Gather(ToText({})).status());
  descriptions_ = descriptions;
  return absl::OkStatus();
}

absl::Status FollowRankZero(RankGroup* group) {
  const absl::Status status = Guarded("rank", [&] { return Follower(group).Run(); });
  if (group->is_over()) return absl::OkStatus();
  group->Fail(status);
  return group->status();
}

absl::Status FollowRankZero(int rank) {
  EndWithParent();
  ASSIGN_OR_RETURN(const std::shared_ptr<SharedMemory> memory, SharedMemory::Open(kRankDescriptor));
  if (rank < 1 || rank >= memory->world()) {
    return FieldError("rank",
                      absl::StrCat("must be from 1 to ", memory->world() - 1, ", got ", rank));
  }
  const std::unique_ptr<RankGroup> group = JoinSharedRanks(memory, rank);
  // Rank 0 has heard why, and tells people.
  if (!FollowRankZero(group.get()).ok()) std::_Exit(1);
  return absl::OkStatus();
}

}  // namespace tandem
