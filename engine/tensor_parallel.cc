#include "engine/tensor_parallel.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/guard.h"
#include "base/json/json_text.h"
#include "base/log.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/thread_pool.h"
#include "engine/device_memory.h"
#include "engine/fingerprint.h"
#include "engine/runtime.h"
#include "kernels/number_formats.h"
#include "model/pass_message.h"
#include "model/ranks/linked_ranks.h"
#include "model/ranks/numa_nodes.h"
#include "model/ranks/rank_group.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = SortedJson;

absl::Span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// The message that every rank sends after a step of loading.
struct Answer {
  std::string error{};
  int error_code = 0;
  std::string arithmetic{};  // must be the same on all ranks
  LeadingRank::Needs needs{};
  std::string description{};
  int64_t most_pages =
      std::numeric_limits<int64_t>::max();  // limit of this rank's machine, if it has one
};

std::string ToText(const Answer& answer) {
  return Json{{"error", answer.error.substr(0, RankGroup::kMaxWords / 4)},
              {"code", answer.error_code},
              {"arithmetic", answer.arithmetic},
              {"page_bytes", answer.needs.page_bytes},
              {"bytes_to_pack", answer.needs.bytes_to_pack},
              {"description", answer.description},
              {"most_pages", answer.most_pages}}
      .dump(-1, ' ', true, Json::error_handler_t::replace);
}

absl::StatusOr<Answer> ParseAnswer(const std::string& text) {
  ASSIGN_OR_RETURN(const Json parsed, ParseJson(text, "tensor_parallel"));
  return Answer{
      .error = parsed.at("error"),
      .error_code = parsed.at("code"),
      .arithmetic = parsed.at("arithmetic"),
      .needs = {.page_bytes = parsed.at("page_bytes"), .bytes_to_pack = parsed.at("bytes_to_pack")},
      .description = parsed.at("description"),
      .most_pages = parsed.at("most_pages")};
}

// Exchanges the answers of all ranks; `own` is this rank's. The error is that of the first rank
// that has one.
absl::StatusOr<std::vector<Answer>> ExchangeAnswers(RankGroup* group, const Answer& own) {
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, group->Exchange(ToText(own)));
  std::vector<Answer> answers(texts.size());
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    RETURN_IF_ERROR(Guarded("tensor_parallel", [&]() -> absl::Status {
      ASSIGN_OR_RETURN(answers[rank], ParseAnswer(texts[rank]));
      return absl::OkStatus();
    }));
    if (answers[rank].error_code == 0) continue;
    return absl::Status(static_cast<absl::StatusCode>(answers[rank].error_code),
                        absl::StrCat("tensor_parallel: rank ", rank, ": ", answers[rank].error));
  }
  return answers;
}

// Returns the threads of a rank. The ranks of one machine divide its cores among them.
int ThreadsOf(const EngineOptions& options, int rank) {
  if (options.threads > 0 || !options.rendezvous.empty()) return options.threads;
  const Share share = ShareOf(NumUsableCores(), options.tensor_parallel, rank);
  return static_cast<int>(std::max<int64_t>(1, share.end - share.begin));
}

// Returns the device of rank `rank` on a machine on which rank 0 uses `device`.
std::string DeviceOfRank(const std::string& device, int rank) {
  absl::string_view number = device;
  int first = 0;
  if (!absl::ConsumePrefix(&number, "cuda:") || !absl::SimpleAtoi(number, &first)) return device;
  return absl::StrCat("cuda:", first + rank);
}

// Opens the library through which a backend's device communicates with others, if it has one.
absl::Status OpenGatherer(Backend& backend) {
  if (backend.gatherer() == nullptr) return absl::OkStatus();
  return Named(View(backend.name()), backend.gatherer()->Open());
}

// Identifies a model only by its files; options of loading do not matter.
std::string FingerprintOfModel(const std::string& path) {
  EngineOptions options;
  options.target = path;
  return FingerprintOf(options, /*version=*/"");
}

LinkedRankOptions LinkedOptionsOf(const EngineOptions& options) {
  return {.rank = options.rank,
          .world = options.tensor_parallel,
          .rendezvous = options.rendezvous,
          .secret = options.rendezvous_secret};
}

// The orders of rank 0 to the others, by their member "order".
constexpr char kOpen[] = "open";               // the device
constexpr char kJoin[] = "join";               // the group of devices
constexpr char kLoad[] = "load";               // a model
constexpr char kMakeCaches[] = "make_caches";  // of all models

// One of the other ranks.
class Follower {
 public:
  // `own`: the process's own options if it was started by hand, else null.
  Follower(RankGroup* group, const EngineOptions* own)
      : group_(*group), own_(own), available_(AvailableMemoryBytes()) {}

  absl::Status Run() {
    for (;;) {
      ASSIGN_OR_RETURN(const absl::Span<const std::byte> message, group_.Receive());
      if (!message.empty() && message[0] == std::byte{'{'}) {
        const std::string text(reinterpret_cast<const char*>(message.data()), message.size());
        Answer answer;
        absl::Status status = Guarded("loading", [&] { return Handle(text, &answer); });
        answer.error = std::string(status.message());
        answer.error_code = static_cast<int>(status.code());
        const absl::Status told = group_.Exchange(ToText(answer)).status();
        if (status.ok()) {
          RETURN_IF_ERROR(told);
          continue;
        }
        // Rank 0 ends the group when it has read the answer, perhaps before this rank has read all
        // answers.
        group_.Receive().IgnoreError();
        if (own_ != nullptr) return status;  // an error of this process's own command line
        return Named(absl::StrCat("tensor_parallel: rank ", group_.rank()), status);
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

  absl::Status Handle(const std::string& text, Answer* answer) {
    ASSIGN_OR_RETURN(const Json order, ParseJson(text, "tensor_parallel"));
    const std::string name = order.at("order");
    if (name == kOpen) return Open(order, answer);
    if (name == kJoin) return Join(order.at("devices"));
    if (name == kLoad) return Load(order, answer);
    if (name == kMakeCaches) return MakeCaches(order.at("pages"));
    return absl::InternalError(absl::StrCat("tensor_parallel: rank 0 has sent the order ", name));
  }

  absl::Status Open(const Json& order, Answer* answer) {
    const std::vector<int> threads = order.at("threads");
    ASSIGN_OR_RETURN(const CpuCompute compute, ComputeOf(order));
    CpuOptions cpu{.num_threads = threads.at(group_.rank()), .compute = compute, .isa = ""};
    if (own_ != nullptr) cpu.num_threads = own_->threads;
    const std::string device =
        own_ != nullptr ? own_->device : DeviceOfRank(order.at("device"), group_.rank());
    ASSIGN_OR_RETURN(backend_, MakeBackend(device, cpu));
    RETURN_IF_ERROR(backend_->TuneProducts(
        own_ != nullptr ? own_->cuda_tune : order.at("cuda_tune").get<std::string>()));
    page_size_ = order.at("page_size");
    answer->arithmetic = backend_->arithmetic();
    return OpenGatherer(*backend_);
  }

  absl::Status Join(const std::string& devices) {
    std::string words;
    if (backend_ == nullptr || !absl::Base64Unescape(devices, &words)) {
      return absl::InternalError("tensor_parallel: rank 0 has sent an invalid group of devices");
    }
    ASSIGN_OR_RETURN(devices_, JoinDeviceRanks(&group_, backend_.get(), words));
    return absl::OkStatus();
  }

  absl::Status Load(const Json& order, Answer* answer) {
    ASSIGN_OR_RETURN(const CpuCompute compute, ComputeOf(order));
    ASSIGN_OR_RETURN(const Quantization quantize,
                     ParseQuantization(order.at("quantize").get<std::string>()));
    ASSIGN_OR_RETURN(const std::string path, PathOf(order));
    Model loaded{.first_slot = order.at("first_slot")};
    ASSIGN_OR_RETURN(loaded.kv_cache, ParseKvDType(order.at("kv_cache").get<std::string>()));
    Transformer::LoadOptions loading{.quantized = BlockTypeOf(quantize),
                                     .which = order.at("requantizes")
                                                  ? Transformer::Quantize::kAll
                                                  : Transformer::Quantize::kFloats,
                                     .has_exact_activations = compute == CpuCompute::kF32,
                                     .packed_folder = order.at("packed_weights"),
                                     .max_packed_bytes = order.at("packed_weights_bytes"),
                                     .allowed_config_keys = order.at("allow_unknown_config"),
                                     .head_tokens = order.at("head_tokens"),
                                     .context = order.at("context"),
                                     .group = devices_ != nullptr ? devices_.get() : &group_,
                                     .first_slot = loaded.first_slot};
    if (own_ != nullptr) {
      loading.packed_folder = own_->packed_weights;
      loading.max_packed_bytes = own_->packed_weights_bytes;
      loading.allowed_config_keys = own_->allow_unknown_config;
    }
    ASSIGN_OR_RETURN(loaded.model, Transformer::Load(path, backend_.get(), loading));
    answer->description = DescriptionOfPart(*loaded.model);
    answer->needs = NeedsOf(*loaded.model, *backend_, page_size_, loaded.kv_cache);
    models_.push_back(std::move(loaded));
    page_bytes_ += answer->needs.page_bytes;
    bytes_to_pack_ += answer->needs.bytes_to_pack;
    if (own_ != nullptr && page_bytes_ > 0) answer->most_pages = CacheMemory() / page_bytes_;
    return absl::OkStatus();
  }

  static absl::StatusOr<CpuCompute> ComputeOf(const Json& order) {
    return ParseCpuCompute(order.at("compute").get<std::string>());
  }

  // Returns the path of the model: this process's own, if it has own options, else rank 0's.
  absl::StatusOr<std::string> PathOf(const Json& order) const {
    const std::string path = order.at("path");
    if (own_ == nullptr) return path;
    const std::string which = order.at("which");
    const std::string& own = which == "draft" ? own_->draft : own_->target;
    if (FingerprintOfModel(own) == order.at("fingerprint").get<std::string>()) return own;
    return absl::FailedPreconditionError(
        absl::StrCat(which, ": \"", own, "\" is not the same model as rank 0's \"", path, "\""));
  }

  // The memory that this machine allows for its caches.
  int64_t CacheMemory() const {
    if (own_->kv_memory_bytes > 0) return own_->kv_memory_bytes;
    const std::optional<int64_t> on_device = backend_->free_memory_bytes();
    const std::optional<int64_t> available = on_device.has_value() ? on_device : available_;
    if (!available.has_value()) return kGuessedMemory / kDefaultShareOfFreeMemory;
    return std::max<int64_t>(0, *available - bytes_to_pack_) / kDefaultShareOfFreeMemory;
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
  const EngineOptions* const own_;
  const std::optional<int64_t> available_;  // of the host's memory, before anything was loaded
  int64_t page_bytes_ = 0;                  // of all models
  int64_t bytes_to_pack_ = 0;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<RankGroup> devices_;  // of the group, where ranks have some
  int page_size_ = 0;
  std::vector<Model> models_;
};

}  // namespace

LeadingRank::Needs NeedsOf(const Transformer& model, const Backend& backend, int page_size,
                           KvDType kv_cache) {
  // Host memory that loading took counts, too: the available memory was measured before loading.
  const size_t packed = backend.memory_is_host() ? model.bytes_packed_at_load() : 0;
  return {.page_bytes = static_cast<int64_t>(model.kv_layout(page_size, kv_cache).page_bytes()),
          .bytes_to_pack = static_cast<int64_t>(model.bytes_to_pack() + packed)};
}

std::string DescriptionOfPart(const Transformer& model) {
  const KvLayout layout = model.kv_layout(1);
  return absl::StrCat(layout.num_kv_heads, " of ", model.config().num_kv_heads,
                      " key-value heads, reads ", model.bytes_read_per_pass(),
                      " bytes of weights a token");
}

absl::StatusOr<std::unique_ptr<LeadingRank>> LeadingRank::Start(const EngineOptions& options) {
  if (options.rank != 0) {
    return FieldError("rank", absl::StrCat("must be 0 to run an engine, got ", options.rank));
  }
  std::unique_ptr<LeadingRank> leader(new LeadingRank(options));
  if (!options.rendezvous.empty()) {
    LinkedRankOptions linked = LinkedOptionsOf(options);
    linked.on_failure = [leader = leader.get()](const absl::Status& why) { leader->Tell(why); };
    ASSIGN_OR_RETURN(leader->group_, JoinLinkedRanks(linked));
    return leader;
  }
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
  if (group_ == nullptr) return;  // joining the group failed
  group_->Fail(absl::CancelledError("tensor_parallel: rank 0 has ended"));
  processes_ = nullptr;  // waits for the other ranks, which end with the group
}

void LeadingRank::Lost(const absl::Status& why) {
  group_->Fail(why);
  Tell(group_->status());  // a rank that fails reports why before its process ends
}

void LeadingRank::Tell(const absl::Status& why) {
  if (!is_over_.exchange(true) && options_.on_rank_failure) options_.on_rank_failure(why);
}

int LeadingRank::num_threads() const { return ThreadsOf(options_, /*rank=*/0); }

absl::Status LeadingRank::Open(Backend* backend) {
  std::vector<int> threads;
  for (int rank = 0; rank < options_.tensor_parallel; ++rank) {
    threads.push_back(ThreadsOf(options_, rank));
  }
  RETURN_IF_ERROR(Named("tensor_parallel", OpenGatherer(*backend)));
  const Json order{{"order", kOpen},
                   {"device", std::string(backend->name())},
                   {"threads", threads},
                   {"cuda_tune", options_.cuda_tune == "off" ? "off" : "load"},  // no shared file
                   {"compute", NameOf(options_.compute)},
                   {"page_size", options_.page_size}};
  RETURN_IF_ERROR(group_->Send(BytesOf(order.dump())));
  const std::string arithmetic = backend->arithmetic();
  ASSIGN_OR_RETURN(const std::vector<Answer> answers,
                   ExchangeAnswers(group_.get(), {.arithmetic = arithmetic}));
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    if (answers[rank].arithmetic == arithmetic) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("tensor_parallel: rank ", rank, " computes with ", answers[rank].arithmetic,
                     ", rank 0 with ", arithmetic, ", which gives other bits"));
  }
  if (backend->gatherer() == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string words, backend->gatherer()->NewGroup());
  RETURN_IF_ERROR(
      group_->Send(BytesOf(Json{{"order", kJoin}, {"devices", absl::Base64Escape(words)}}.dump())));
  ASSIGN_OR_RETURN(devices_, JoinDeviceRanks(group_.get(), backend, words));
  return ExchangeAnswers(group_.get(), {}).status();
}

absl::Status LeadingRank::Load(const RankModel& model) {
  const bool is_target = model.path == options_.target;
  // Ranks of this machine read the same files.
  const bool has_own_files = !options_.rendezvous.empty();
  const Json order{{"order", kLoad},
                   {"path", model.path},
                   {"which", is_target ? "target" : "draft"},
                   {"fingerprint", has_own_files ? FingerprintOfModel(model.path) : ""},
                   {"quantize", NameOf(model.quantize)},
                   {"requantizes", model.requantizes},
                   {"head_tokens", model.head_tokens},
                   {"context", model.context},
                   {"kv_cache", NameOf(model.kv_cache)},
                   {"first_slot", model.first_slot},
                   {"compute", NameOf(options_.compute)},
                   {"packed_weights", options_.packed_weights},
                   {"packed_weights_bytes", options_.packed_weights_bytes},
                   {"allow_unknown_config", options_.allow_unknown_config}};
  return group_->Send(BytesOf(order.dump()));
}

absl::StatusOr<LeadingRank::Needs> LeadingRank::AwaitLoaded(const Transformer& model,
                                                            const Backend& backend,
                                                            KvDType kv_cache) {
  const Needs own = NeedsOf(model, backend, options_.page_size, kv_cache);
  ASSIGN_OR_RETURN(
      const std::vector<Answer> answers,
      ExchangeAnswers(group_.get(), {.needs = own, .description = DescriptionOfPart(model)}));
  // Each rank has its own memory if ranks have their own devices or machines.
  const bool shares_memory = devices_ == nullptr && options_.rendezvous.empty();
  Needs needs;
  descriptions_.clear();
  most_pages_.clear();
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    const Answer& answer = answers[rank];
    if (rank == 0 || shares_memory) {
      needs.page_bytes += answer.needs.page_bytes;
      needs.bytes_to_pack += answer.needs.bytes_to_pack;
    } else if (devices_ != nullptr) {
      needs.page_bytes = std::max(needs.page_bytes, answer.needs.page_bytes);
      needs.bytes_to_pack = std::max(needs.bytes_to_pack, answer.needs.bytes_to_pack);
    }
    most_pages_.push_back(answer.most_pages);
    descriptions_.push_back(answer.description);
  }
  return needs;
}

absl::StatusOr<int64_t> LeadingRank::MostPages() const {
  const auto least = std::min_element(most_pages_.begin(), most_pages_.end());
  if (*least > 0) return *least;
  return FieldError("kv_memory",
                    absl::StrCat("the machine of rank ", least - most_pages_.begin(),
                                 " has no memory for a page of ", options_.page_size, " tokens"));
}

absl::Status LeadingRank::MakeCaches(int64_t num_pages) {
  RETURN_IF_ERROR(group_->Send(BytesOf(Json{{"order", kMakeCaches}, {"pages", num_pages}}.dump())));
  return ExchangeAnswers(group_.get(), {}).status();
}

namespace {

// Computes this rank's part of each pass. Returns OK when rank 0 has ended.
//   own: as for Follower
absl::Status Follow(RankGroup* group, const EngineOptions* own) {
  const absl::Status status = Guarded("rank", [&] { return Follower(group, own).Run(); });
  if (absl::IsCancelled(status) && group->is_over()) return absl::OkStatus();
  // Requests fail with UNAVAILABLE, whatever happened to this rank.
  group->Fail(absl::UnavailableError(status.message()));
  return group->is_over() ? status : group->status();
}

}  // namespace

absl::Status FollowRankZero(const EngineOptions& own) {
  RETURN_IF_ERROR(own.Validate());
  Log(LogLevel::kInfo,
      absl::StrCat("tensor_parallel: rank=", own.rank, " of ", own.tensor_parallel,
                   " follows rank 0 at ", own.rendezvous, " and does not do a job of its own"));
  ASSIGN_OR_RETURN(const std::unique_ptr<RankGroup> group, JoinLinkedRanks(LinkedOptionsOf(own)));
  RETURN_IF_ERROR(Follow(group.get(), &own));
  Log(LogLevel::kInfo, absl::StrCat("tensor_parallel: rank=", own.rank, " ends with rank 0"));
  return absl::OkStatus();
}

absl::Status FollowRankZero(int rank) {
  EndWithParent();
  ASSIGN_OR_RETURN(const std::shared_ptr<SharedMemory> memory, SharedMemory::Open(kRankDescriptor));
  RETURN_IF_ERROR(CheckRank(rank, /*least=*/1, memory->world()));
  const OnNumaNode node(rank, memory->world());
  const std::unique_ptr<RankGroup> group = JoinSharedRanks(memory, rank);
  // Rank 0 has received the error and reports it.
  if (!Follow(group.get(), nullptr).ok()) std::_Exit(1);
  return absl::OkStatus();
}

}  // namespace tandem
