#include "model/ranks/linked_ranks.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/net/address.h"
#include "base/net/host_and_port.h"
#include "base/net/secret.h"
#include "base/status_macros.h"
#include "model/ranks/rank_link.h"
#include "tandem/field_error.h"
#include "tandem/parameter.h"

namespace tandem {
namespace {

constexpr size_t kMaxMessageSize = size_t{64} << 20;
// Maximum number of messages between meetings of all ranks. Another rank may still be in the step
// of the last meeting.
constexpr int kMaxMessages = RankLink::kMaxStepsAhead - 1;
// Address space; memory is allocated when it is written. Pieces of two steps may wait at a time.
constexpr size_t kSlotSize = RankLink::kMaxWaitingBytes / 2;

// Memory that keeps its address when it grows.
class GrowingMemory {
 public:
  GrowingMemory() = default;
  GrowingMemory(const GrowingMemory&) = delete;
  GrowingMemory& operator=(const GrowingMemory&) = delete;
  ~GrowingMemory() {
    if (data_ != nullptr) munmap(data_, kSlotSize);
  }
  absl::StatusOr<void*> Get() {
    if (data_ != nullptr) return data_;
    void* const data = mmap(nullptr, kSlotSize, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return absl::ErrnoToStatus(errno, "tensor_parallel: memory of a pass");
    return data_ = data;
  }

 private:
  void* data_ = nullptr;
};

// Every call except FillReplicated and Memory is a step of the link. A payload ends with a padding
// byte, so that it is never empty.
class LinkedRanks final : public RankGroup {
 public:
  explicit LinkedRanks(const LinkedRankOptions& options, const Address& address)
      : RankGroup(options.rank, options.world), link_(options, address) {}

  absl::Status Start() { return link_.Start(); }

  absl::StatusOr<Buffer> Memory(int slot, size_t bytes, Backend* backend) override {
    TANDEM_CHECK(0 <= slot && slot < kNumSlots && backend->memory_is_host());
    if (bytes > kSlotSize) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "tensor_parallel: ", bytes, " bytes are needed for a pass, allowed: ", kSlotSize));
    }
    ASSIGN_OR_RETURN(void* const data, slots_[slot].Get());
    return Buffer(nullptr, data, bytes);
  }

  void FillReplicated(absl::FunctionRef<void()> fill) override { fill(); }

  void AllGather(absl::FunctionRef<void(int, UsePiece)> for_each_piece) override {
    if (link_.has_failed()) return;
    size_t own_bytes = 0;
    for_each_piece(rank(), [&](void*, size_t bytes) { own_bytes += bytes; });
    std::vector<std::byte> payload = link_.Take(own_bytes + 1);
    std::byte* to = payload.data();
    for_each_piece(rank(), [&](void* data, size_t bytes) {
      std::memcpy(to, data, bytes);
      to += bytes;
    });
    link_.Give(step_, std::move(payload));
    for (int r = 0; r < world(); ++r) {
      if (r == rank()) continue;
      const RankLink::Payload pieces = link_.Await(step_, r);
      if (pieces == nullptr || !Unpack(r, *pieces, for_each_piece)) return;
    }
    num_unmet_ = 0;
    link_.EnterStep(++step_);
  }

  absl::Status Send(absl::Span<const std::byte> message) override {
    TANDEM_CHECK(rank() == 0);
    if (message.size() > kMaxMessageSize) {
      return absl::ResourceExhaustedError(absl::StrCat("tensor_parallel: found a pass of ",
                                                       message.size(),
                                                       " bytes, allowed: ", kMaxMessageSize));
    }
    if (absl::Status failed = status(); !failed.ok()) return failed;
    std::vector<std::byte> payload = link_.Take(message.size() + 1);
    std::copy(message.begin(), message.end(), payload.begin());
    link_.Give(step_, std::move(payload));
    return EndMessage();
  }

  absl::StatusOr<absl::Span<const std::byte>> Receive() override {
    TANDEM_CHECK(rank() != 0);
    message_ = link_.Await(step_, 0);
    if (message_ == nullptr) return status();
    const absl::Status ended = EndMessage();
    if (!ended.ok()) return ended;
    return absl::MakeConstSpan(*message_).first(message_->size() - 1);
  }

  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& words) override {
    TANDEM_CHECK(words.size() <= kMaxWords);
    if (absl::Status failed = status(); !failed.ok()) return failed;
    std::vector<std::byte> payload(words.size() + 1);
    std::memcpy(payload.data(), words.data(), words.size());
    link_.Give(step_, std::move(payload));
    std::vector<std::string> all;
    for (int r = 0; r < world(); ++r) {
      if (r == rank()) {
        all.push_back(words);
        continue;
      }
      const RankLink::Payload said = link_.Await(step_, r);
      if (said == nullptr) return status();
      const size_t size = said->size() - 1;
      if (size > kMaxWords) return WrongSize(r, size, kMaxWords);
      all.emplace_back(reinterpret_cast<const char*>(said->data()), size);
    }
    num_unmet_ = 0;
    link_.EnterStep(++step_);
    return all;
  }

  absl::Status status() const override { return link_.status(); }
  void Fail(absl::Status why) override { link_.Fail(why); }

 private:
  // Copies the pieces of `rank`. Returns false and fails the group if they do not have the expected
  // size.
  bool Unpack(int rank, const std::vector<std::byte>& bytes,
              absl::FunctionRef<void(int, UsePiece)> for_each_piece) {
    const size_t size = bytes.size() - 1;
    size_t at = 0;
    for_each_piece(rank, [&](void* data, size_t piece) {
      if (at + piece <= size) std::memcpy(data, bytes.data() + at, piece);
      at += piece;
    });
    return at == size || WrongSize(rank, size, at).ok();
  }

  absl::Status WrongSize(int rank, size_t found, size_t wanted) {
    Fail(absl::InternalError(absl::StrCat("tensor_parallel: rank ", rank, " sent ", found,
                                          " bytes in step ", step_, ", expected: ", wanted)));
    return status();
  }

  // Ends the step of a message. After kMaxMessages messages without an answer, all ranks meet.
  absl::Status EndMessage() {
    link_.EnterStep(++step_);
    if (++num_unmet_ < kMaxMessages) return absl::OkStatus();
    return Exchange("").status();
  }

  RankLink link_;
  std::array<GrowingMemory, kNumSlots> slots_;
  uint64_t step_ = 0;
  int num_unmet_ = 0;          // messages since the last meeting of all ranks
  RankLink::Payload message_;  // returned by Receive
};

absl::Status CheckLinked(const LinkedRankOptions& options) {
  RETURN_IF_ERROR(CheckWithin("tensor_parallel", options.world, {.low = 1, .high = kMaxRanks}));
  RETURN_IF_ERROR(CheckRank(options.rank, 0, options.world));
  if (options.silence > absl::ZeroDuration() && options.patience > absl::ZeroDuration()) {
    return absl::OkStatus();
  }
  return FieldError("rendezvous", "its silence and patience must be positive");
}

absl::StatusOr<Address> RendezvousOf(const LinkedRankOptions& options) {
  ASSIGN_OR_RETURN(const HostAndPort parsed, ParseHostAndPort(options.rendezvous, "rendezvous"));
  ASSIGN_OR_RETURN(const Address address,
                   ParseAddress(parsed.host, parsed.port, Names::kResolved, "rendezvous"));
  if (parsed.port == 0 && options.rank != 0) {
    return FieldError("rendezvous", "must have rank 0's port, got port 0");
  }
  RETURN_IF_ERROR(ParseSecrets(options.secret, "rendezvous_secret").status());
  return address;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankGroup>> JoinLinkedRanks(const LinkedRankOptions& options) {
  RETURN_IF_ERROR(CheckLinked(options));
  ASSIGN_OR_RETURN(const Address address, RendezvousOf(options));
  LinkedRankOptions complete = options;
  if (complete.version.empty()) complete.version = TANDEM_VERSION;
  auto group = std::make_unique<LinkedRanks>(complete, address);
  RETURN_IF_ERROR(group->Start());
  return group;
}

}  // namespace tandem
