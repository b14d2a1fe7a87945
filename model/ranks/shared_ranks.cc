#include "model/ranks/shared_ranks.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <new>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/guard.h"
#include "base/instant.h"
#include "base/status_macros.h"
#include "tandem/parameter.h"
extern char** environ;

namespace tandem {
namespace {

constexpr uint64_t kMagic = 0x314B4E4152444E54;  // "TNDRANK1"

constexpr size_t kMessageBytes = size_t{64} << 20;
constexpr size_t kSlotBytes = size_t{4} << 30;  // address space; allocated when written
constexpr size_t kMaxReasonBytes = 1024;

// A counter that ranks wait on.
using Stamp = std::atomic<uint32_t>;
static_assert(Stamp::is_always_lock_free && sizeof(Stamp) == 4, "processes share it");

struct alignas(64) RankState {
  Stamp passed{0};                    // number of meetings that this rank has reached
  std::atomic<uint32_t> sleepers{0};  // ranks that may sleep until `passed` changes
  alignas(64) Stamp beats{0};         // heartbeats
  char words[RankGroup::kMaxWords];   // Exchange
  std::atomic<uint32_t> num_words{0};
};

struct Header {
  uint64_t magic = kMagic;
  uint32_t world = 0;
  alignas(64) Stamp messages{0};
  std::atomic<uint32_t> message_sleepers{0};
  std::atomic<uint64_t> message_bytes{0};
  alignas(64) std::atomic<uint32_t> failure{0};  // 1 while a rank writes the reason, 2 after that
  std::atomic<uint32_t> failure_code{0};
  char reason[kMaxReasonBytes] = {};
  RankState ranks[kMaxRanks];
};

constexpr size_t RoundUp(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
constexpr size_t kMessagesAt = RoundUp(sizeof(Header));
constexpr size_t kSlotsAt = kMessagesAt + kMessageBytes;
constexpr size_t kWholeBytes = kSlotsAt + RankGroup::kNumSlots * kSlotBytes;

Header* HeaderOf(std::byte* data) { return std::launder(reinterpret_cast<Header*>(data)); }

// Sleeps while `*stamp` is `seen`, for at most `at_most`.
void SleepWhile(Stamp* stamp, uint32_t seen, absl::Duration at_most) {
  const timespec time = absl::ToTimespec(at_most);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(stamp), FUTEX_WAIT, seen, &time, nullptr, 0);
}

void Wake(Stamp* stamp) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(stamp), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Sets `*stamp` to `to` and wakes the threads that sleep on it.
void Move(Stamp* stamp, uint32_t to, std::atomic<uint32_t>* sleepers) {
  stamp->store(to, std::memory_order_seq_cst);
  if (sleepers->load(std::memory_order_seq_cst) > 0) Wake(stamp);
}

bool HasReached(uint32_t stamp, uint32_t wanted) {
  return static_cast<int32_t>(stamp - wanted) >= 0;
}

class SharedRanks final : public RankGroup {
 public:
  SharedRanks(std::shared_ptr<SharedMemory> memory, int rank, const SharedRankOptions& options)
      : RankGroup(rank, memory->world()),
        memory_(std::move(memory)),
        options_(options),
        header_(*HeaderOf(memory_->data())),
        lives_(world()) {
    beating_ = std::thread([this] { Beat(); });
  }
  ~SharedRanks() override {
    const std::string reason = absl::StrCat("tensor_parallel: rank ", rank(), " has ended");
    // The end of rank 0 is the normal end of a group.
    Fail(rank() == 0 ? absl::CancelledError(reason) : absl::UnavailableError(reason));
    end_.store(1);
    Wake(&end_);
    beating_.join();
  }

  absl::StatusOr<Buffer> Memory(int slot, size_t bytes, Backend* backend) override {
    TANDEM_CHECK(0 <= slot && slot < kNumSlots && backend->memory_is_host());
    if (bytes > kSlotBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "tensor_parallel: ", bytes, " bytes are needed for a pass, allowed: ", kSlotBytes));
    }
    return Buffer(nullptr, memory_->data() + kSlotsAt + slot * kSlotBytes, bytes);
  }

  void FillReplicated(absl::FunctionRef<void()> fill) override {
    if (rank() == 0) fill();
    Meet();
  }

  void AllGather(absl::FunctionRef<void(int, UsePiece)> /*for_each_piece*/) override { Meet(); }

  absl::Status Send(absl::Span<const std::byte> message) override {
    TANDEM_CHECK(rank() == 0);
    if (message.size() > kMessageBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "tensor_parallel: found a pass of ", message.size(), " bytes, allowed: ", kMessageBytes));
    }
    std::memcpy(memory_->data() + kMessagesAt, message.data(), message.size());
    header_.message_bytes.store(message.size(), std::memory_order_relaxed);
    Move(&header_.messages, ++num_messages_, &header_.message_sleepers);
    return status();
  }

  absl::StatusOr<absl::Span<const std::byte>> Receive() override {
    TANDEM_CHECK(rank() != 0);
    ++num_messages_;
    Await(&header_.messages, num_messages_, &header_.message_sleepers, 0);
    if (const absl::Status failed = status(); !failed.ok()) return failed;
    return absl::MakeConstSpan(memory_->data() + kMessagesAt,
                               header_.message_bytes.load(std::memory_order_relaxed));
  }

  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& words) override {
    TANDEM_CHECK(words.size() <= kMaxWords);
    RankState& own = header_.ranks[rank()];
    std::memcpy(own.words, words.data(), words.size());
    own.num_words.store(static_cast<uint32_t>(words.size()), std::memory_order_relaxed);
    Meet();
    std::vector<std::string> all;
    for (int r = 0; r < world(); ++r) {
      const RankState& state = header_.ranks[r];
      all.emplace_back(state.words, std::min<size_t>(state.num_words.load(), kMaxWords));
    }
    Meet();  // after this the words may be overwritten
    if (const absl::Status failed = status(); !failed.ok()) return failed;
    return all;
  }

  absl::Status status() const override {
    if (header_.failure.load(std::memory_order_acquire) != 2) return absl::OkStatus();
    return absl::Status(static_cast<absl::StatusCode>(header_.failure_code.load()), header_.reason);
  }

  void Fail(absl::Status why) override {
    uint32_t nobody = 0;
    if (!header_.failure.compare_exchange_strong(nobody, 1)) return;
    const std::string reason(why.message().substr(0, kMaxReasonBytes - 1));
    std::memcpy(header_.reason, reason.c_str(), reason.size() + 1);
    header_.failure_code.store(static_cast<uint32_t>(why.code()));
    header_.failure.store(2, std::memory_order_release);
    // Sleeping ranks notice it after kLook at most.
  }

 private:
  static constexpr absl::Duration kLook = absl::Milliseconds(50);
  // Number of polls before sleeping. Spinning this long pays off, because waking a rank takes some
  // 5 to 50 us.
  static constexpr int kSpins = 20000;

  // Waits until all ranks have called Meet.
  void Meet() {
    RankState& own = header_.ranks[rank()];
    ++num_passed_;
    Move(&own.passed, num_passed_, &own.sleepers);
    for (int r = 0; r < world(); ++r) {
      if (r == rank()) continue;
      RankState& other = header_.ranks[r];
      if (!Await(&other.passed, num_passed_, &other.sleepers, r)) return;
    }
  }

  // Waits until the stamp, which rank `owner` increments, reaches `wanted`. Returns false if the
  // group has failed.
  bool Await(Stamp* stamp, uint32_t wanted, std::atomic<uint32_t>* sleepers, int owner) {
    for (int i = 0; i < kSpins; ++i) {
      if (HasReached(stamp->load(std::memory_order_acquire), wanted)) return true;
      if (i % 1024 == 1023) {
        if (!status().ok()) return false;
        std::this_thread::yield();
      }
    }
    for (;;) {
      sleepers->fetch_add(1, std::memory_order_seq_cst);
      const uint32_t seen = stamp->load(std::memory_order_seq_cst);
      if (!HasReached(seen, wanted)) SleepWhile(stamp, seen, kLook);
      sleepers->fetch_sub(1, std::memory_order_seq_cst);
      if (HasReached(stamp->load(std::memory_order_acquire), wanted)) return true;
      if (!status().ok() || !Lives(owner)) return false;
    }
  }

  // How long, and for how many checks, a rank has sent no heartbeat. Both must exceed the limit:
  // after a machine was suspended for long, only one check has been made.
  struct Life {
    uint32_t beats = 0;
    Instant since = Instant::Now();
    int looks = 0;
  };
  bool Lives(int other) {
    Life& life = lives_[other];
    const uint32_t beats = header_.ranks[other].beats.load(std::memory_order_relaxed);
    if (beats != life.beats || life.looks == 0) {
      life = {.beats = beats, .since = Instant::Now(), .looks = 1};
      return true;
    }
    ++life.looks;
    if (life.looks * kLook < options_.silence || Instant::Now() - life.since < options_.silence) {
      return true;
    }
    const absl::Status why = absl::UnavailableError(
        absl::StrCat("tensor_parallel: rank ", other, " has been silent for ",
                     absl::FormatDuration(options_.silence)));
    Fail(why);
    if (options_.on_silence) options_.on_silence(why);
    return false;
  }

  void Beat() {
    const absl::Duration pause = std::min(options_.silence / 8, absl::Seconds(1));
    while (end_.load() == 0) {
      header_.ranks[rank()].beats.fetch_add(1, std::memory_order_relaxed);
      SleepWhile(&end_, 0, pause);
    }
  }

  const std::shared_ptr<SharedMemory> memory_;
  const SharedRankOptions options_;
  Header& header_;
  uint32_t num_passed_ = 0;
  uint32_t num_messages_ = 0;
  std::vector<Life> lives_;
  Stamp end_{0};  // set to 1 when this rank ends
  std::thread beating_;
};

constexpr absl::Duration kGrace = absl::Seconds(3);  // time for a process to unmap models and end

int OpenProcess(pid_t process) { return static_cast<int>(syscall(SYS_pidfd_open, process, 0)); }

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) {
    return absl::StrCat("was terminated by signal ", WTERMSIG(status), " (",
                        strsignal(WTERMSIG(status)), ")");
  }
  return absl::StrCat("ended with status ", WEXITSTATUS(status));
}

class Children final : public RankProcesses {
 public:
  struct Child {
    int rank = 0;
    pid_t process = -1;
    int descriptor = -1;  // pidfd of the process; -1 after it was waited for
  };

  explicit Children(std::function<void(const absl::Status&)> on_end)
      : on_end_(std::move(on_end)), stop_(eventfd(0, EFD_CLOEXEC)) {}
  ~Children() override {
    const uint64_t one = 1;
    if (write(stop_, &one, sizeof(one)) < 0) { /* the event is already set */
    }
    if (watcher_.joinable()) watcher_.join();
    const Instant deadline = Instant::Now() + kGrace;
    for (Child& child : children_) {
      if (child.descriptor < 0) continue;
      pollfd ends{.fd = child.descriptor, .events = POLLIN, .revents = 0};
      const auto left = absl::ToInt64Milliseconds(deadline - Instant::Now());
      if (poll(&ends, 1, static_cast<int>(std::max<int64_t>(left, 0))) <= 0) {
        kill(child.process, SIGKILL);
      }
      Reap(&child);
    }
    close(stop_);
  }

  absl::Status Add(const std::string& program, std::vector<std::string> words, int rank,
                   int descriptor) {
    words.insert(words.begin(), program);
    words.push_back(absl::StrCat(rank));
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, descriptor, kRankDescriptor);
    Child child{.rank = rank, .process = -1, .descriptor = -1};
    const int error =
        posix_spawnp(&child.process, program.c_str(), &files, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) {
      return absl::ErrnoToStatus(error,
                                 absl::StrCat("tensor_parallel: ", program, " for rank ", rank));
    }
    child.descriptor = OpenProcess(child.process);
    children_.push_back(child);
    if (child.descriptor >= 0) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, "tensor_parallel: pidfd_open");
  }

  void Watch() {
    watcher_ = std::thread([this] {
      std::vector<pollfd> ends;
      for (;;) {
        ends.assign(1, {.fd = stop_, .events = POLLIN, .revents = 0});
        for (const Child& child : children_) {
          ends.push_back({.fd = child.descriptor, .events = POLLIN, .revents = 0});
        }
        if (poll(ends.data(), ends.size(), -1) < 0) continue;
        if (ends[0].revents != 0) return;
        for (size_t i = 0; i < children_.size(); ++i) {
          if (ends[i + 1].revents == 0) continue;
          const int rank = children_[i].rank;
          const int how = Reap(&children_[i]);
          Attempt("tensor_parallel", [&] {
            on_end_(absl::UnavailableError(
                absl::StrCat("tensor_parallel: rank ", rank, " ", HowItEnded(how))));
          });
        }
      }
    });
  }

 private:
  static int Reap(Child* child) {
    int status = 0;
    while (waitpid(child->process, &status, 0) < 0 && errno == EINTR) {
    }
    close(child->descriptor);
    child->descriptor = -1;
    return status;
  }

  const std::function<void(const absl::Status&)> on_end_;
  const int stop_;
  std::vector<Child> children_;  // constant while they are watched, except `descriptor`
  std::thread watcher_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::Map(int descriptor) {
  void* const data =
      mmap(nullptr, kWholeBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (data == MAP_FAILED) return absl::ErrnoToStatus(errno, "tensor_parallel: shared memory");
  return std::shared_ptr<SharedMemory>(new SharedMemory(descriptor, static_cast<std::byte*>(data)));
}

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::Create(int world) {
  TANDEM_CHECK(1 <= world && world <= kMaxRanks);
  const int descriptor = memfd_create("tandem-ranks", MFD_CLOEXEC);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, "tensor_parallel: shared memory");
  absl::Cleanup close_it = [descriptor] { close(descriptor); };
  if (ftruncate(descriptor, kWholeBytes) != 0) {
    return absl::ErrnoToStatus(errno, "tensor_parallel: shared memory");
  }
  ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory, Map(descriptor));
  std::move(close_it).Cancel();
  (new (memory->data()) Header)->world = static_cast<uint32_t>(world);
  return memory;
}

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::Open(int descriptor) {
  absl::StatusOr<std::shared_ptr<SharedMemory>> memory = Map(descriptor);
  if (memory.ok() && lseek(descriptor, 0, SEEK_END) == static_cast<off_t>(kWholeBytes) &&
      HeaderOf((*memory)->data())->magic == kMagic) {
    return memory;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tensor_parallel: descriptor ", descriptor, " is not the memory of a group"));
}

SharedMemory::~SharedMemory() {
  munmap(data_, kWholeBytes);
  close(descriptor_);
}

int SharedMemory::world() const { return static_cast<int>(HeaderOf(data_)->world); }

std::unique_ptr<RankGroup> JoinSharedRanks(std::shared_ptr<SharedMemory> memory, int rank,
                                           const SharedRankOptions& options) {
  TANDEM_CHECK(0 <= rank && rank < memory->world());
  return std::make_unique<SharedRanks>(std::move(memory), rank, options);
}

absl::StatusOr<std::unique_ptr<RankProcesses>> RankProcesses::Start(
    const std::string& program, const std::vector<std::string>& arguments,
    const SharedMemory& memory, std::function<void(const absl::Status&)> on_end) {
  auto children = std::make_unique<Children>(std::move(on_end));
  for (int rank = 1; rank < memory.world(); ++rank) {
    const absl::Status status = children->Add(program, arguments, rank, memory.descriptor());
    if (!status.ok()) return status;
  }
  children->Watch();
  return children;
}

void EndWithParent() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_IGN);
  const pid_t parent = getppid();
  const int descriptor = OpenProcess(parent);
  if (descriptor < 0 || getppid() != parent) _exit(1);
  std::thread([descriptor] {
    pollfd ends{.fd = descriptor, .events = POLLIN, .revents = 0};
    while (poll(&ends, 1, -1) <= 0) {
    }
    _exit(1);
  }).detach();
}

std::string OwnProgram() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string name = program.filename();
  return !error && name == "tandem" ? program.string() : "tandem";
}

}  // namespace tandem
