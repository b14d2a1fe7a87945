#include "kvcache/events/kv_event_publisher.h"

#include <endian.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <msgpack.hpp>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

using Packer = msgpack::packer<msgpack::sbuffer>;

// vLLM's name for the memory that attention reads.
constexpr char kMedium[] = "GPU";

void BeginEvent(const char* type, int num_fields, absl::Span<const PageKey> pages, Packer* packer) {
  packer->pack_map(num_fields).pack("type").pack(type);
  packer->pack("block_hashes").pack_array(static_cast<uint32_t>(pages.size()));
  for (const PageKey& page : pages) packer->pack(page.bytes);
}

void PackEvent(const PagesStored& event, Packer* packer) {
  BeginEvent("BlockStored", event.tenant.empty() ? 8 : 9, event.pages, packer);
  packer->pack("parent_block_hash");
  if (event.parent.has_value()) {
    packer->pack(event.parent->bytes);
  } else {
    packer->pack_nil();
  }
  packer->pack("token_ids").pack(event.tokens);
  packer->pack("block_size").pack(event.tokens.size() / event.pages.size());
  packer->pack("lora_id").pack_nil();
  packer->pack("medium").pack(kMedium);
  packer->pack("lora_name").pack_nil();
  if (event.tenant.empty()) return;
  packer->pack("extra_keys").pack_array(static_cast<uint32_t>(event.pages.size()));
  packer->pack_array(1).pack(event.tenant);
  for (size_t i = 1; i < event.pages.size(); ++i) packer->pack_nil();
}

void PackEvent(const PagesRemoved& event, Packer* packer) {
  BeginEvent("BlockRemoved", 3, event.pages, packer);
  packer->pack("medium").pack(kMedium);
}

constexpr int64_t kEndOfReplay = -1;
// A request is a number, so larger messages are dropped to save memory.
constexpr int64_t kMaxRequestBytes = 1024;

zmq::message_t MessageOf(const std::string& bytes) { return {bytes.data(), bytes.size()}; }

zmq::message_t NumberMessage(int64_t number) {
  const uint64_t bytes = htobe64(static_cast<uint64_t>(number));
  return {&bytes, sizeof(bytes)};
}

absl::Status Bind(const char* field, const std::string& endpoint, zmq::socket_t* socket) {
  try {
    socket->bind(endpoint);
  } catch (const zmq::error_t& error) {
    return FieldError(field, absl::StrCat("cannot bind ", endpoint, ": ", error.what()));
  }
  return absl::OkStatus();
}

class ZmqPublisher final : public KvEventPublisher {
 public:
  explicit ZmqPublisher(const KvEventOptions& options)
      : options_(options),
        wake_(eventfd(0, EFD_CLOEXEC)),
        publish_(context_, zmq::socket_type::pub),
        replay_(context_, zmq::socket_type::router) {
    for (zmq::socket_t* socket : {&publish_, &replay_}) socket->set(zmq::sockopt::linger, 0);
    publish_.set(zmq::sockopt::sndhwm, static_cast<int>(options.max_queued));
    // Enough for two complete answers to a client that does not read them; answers share their
    // bytes.
    replay_.set(zmq::sockopt::sndhwm, static_cast<int>(2 * options.max_kept + 2));
    replay_.set(zmq::sockopt::maxmsgsize, kMaxRequestBytes);
  }

  ~ZmqPublisher() override {
    if (thread_.joinable()) {
      {
        absl::MutexLock lock(&mutex_);
        is_stopping_ = true;
      }
      Wake();
      thread_.join();
    }
    close(wake_);
  }

  absl::Status Start() {
    if (wake_ < 0) return absl::InternalError("kv events: no event descriptor");
    RETURN_IF_ERROR(Bind("kv_events", options_.endpoint, &publish_));
    if (!options_.replay_endpoint.empty()) {
      RETURN_IF_ERROR(Bind("kv_events_replay", options_.replay_endpoint, &replay_));
    }
    thread_ = std::thread([this] { Attempt("kv events", [this] { Work(); }); });
    return absl::OkStatus();
  }

  void Publish(KvEventBatch batch) override {
    {
      absl::MutexLock lock(&mutex_);
      const int64_t number = next_number_++;
      if (queue_.size() >= options_.max_queued) {
        ++num_lost_;
        return;
      }
      queue_.push_back({number, std::move(batch)});
    }
    Wake();
  }

  KvEventStats stats() const override {
    absl::MutexLock lock(&mutex_);
    return {.published = num_published_, .lost = num_lost_};
  }

 private:
  struct Numbered {
    int64_t number = 0;
    KvEventBatch batch;
  };
  struct Kept {
    int64_t number = 0;
    zmq::message_t bytes;
  };

  void Wake() const {
    const uint64_t one = 1;
    TANDEM_CHECK(write(wake_, &one, sizeof(one)) == sizeof(one));
  }

  // ---- Used only by the publisher's thread, which owns the sockets and the kept batches ----

  void Work() {
    std::vector<zmq::pollitem_t> waits = {{nullptr, wake_, ZMQ_POLLIN, 0},
                                          {replay_.handle(), 0, ZMQ_POLLIN, 0}};
    for (;;) {
      // poll throws when a signal interrupts it.
      if (!Caught("kv events", [&] { zmq::poll(waits.data(), waits.size()); }).ok()) continue;
      bool goes_on = true;
      if (waits[0].revents != 0) Attempt("kv events", [&] { goes_on = SendQueued(); });
      if (!goes_on) return;
      if (waits[1].revents != 0) Caught("kv events", [this] { AnswerReplay(); }).IgnoreError();
    }
  }

  // Sends all queued batches. Returns false when the publisher stops.
  bool SendQueued() {
    uint64_t num_woken = 0;
    TANDEM_CHECK(read(wake_, &num_woken, sizeof(num_woken)) == sizeof(num_woken));
    for (;;) {
      std::deque<Numbered> queued;
      {
        absl::MutexLock lock(&mutex_);
        queued.swap(queue_);
        if (queued.empty()) return !is_stopping_;
      }
      for (const Numbered& next : queued) {
        Count(&num_published_, 1);  // before a subscriber can receive it
        if (Caught("kv events", [&] { Send(next); }).ok()) continue;
        Count(&num_published_, -1);
        Count(&num_lost_, 1);
      }
    }
  }

  void Count(int64_t* counter, int64_t change) {
    absl::MutexLock lock(&mutex_);
    *counter += change;
  }

  void Send(const Numbered& next) {
    Kept kept{next.number, MessageOf(Encoded(next.batch))};
    zmq::message_t copy;
    copy.copy(kept.bytes);
    zmq::message_t number = NumberMessage(next.number);
    zmq::message_t topic = MessageOf(options_.topic);
    kept_bytes_ += kept.bytes.size();
    kept_.push_back(std::move(kept));
    while (kept_.size() > options_.max_kept || kept_bytes_ > options_.max_kept_bytes) {
      kept_bytes_ -= kept_.front().bytes.size();
      kept_.pop_front();
    }
    publish_.send(topic, zmq::send_flags::sndmore);
    publish_.send(number, zmq::send_flags::sndmore);
    publish_.send(copy, zmq::send_flags::none);
  }

  void AnswerReplay() {
    std::vector<zmq::message_t> request;  // client, delimiter, first number
    do {
      request.emplace_back();
      if (!replay_.recv(request.back(), zmq::recv_flags::dontwait)) return;
    } while (request.back().more());
    if (request.size() != 3 || request[1].size() != 0 || request[2].size() != sizeof(int64_t)) {
      return;
    }
    uint64_t first = 0;
    std::memcpy(&first, request[2].data(), sizeof(first));
    first = be64toh(first);
    for (Kept& kept : kept_) {
      if (static_cast<uint64_t>(kept.number) < first) continue;
      Answer(&request[0], kept.number, &kept.bytes);
    }
    zmq::message_t nothing;
    Answer(&request[0], kEndOfReplay, &nothing);
  }

  void Answer(zmq::message_t* client, int64_t number, zmq::message_t* bytes) {
    std::array<zmq::message_t, 5> frames = {zmq::message_t(), zmq::message_t(),
                                            MessageOf(options_.topic), NumberMessage(number),
                                            zmq::message_t()};
    frames[0].copy(*client);
    frames[4].copy(*bytes);
    for (size_t i = 0; i < frames.size(); ++i) {
      replay_.send(frames[i],
                   i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }

  const KvEventOptions options_;
  const int wake_;  // an eventfd: whether there is something to send
  zmq::context_t context_;
  zmq::socket_t publish_;
  zmq::socket_t replay_;
  std::deque<Kept> kept_;
  size_t kept_bytes_ = 0;
  mutable absl::Mutex mutex_;
  std::deque<Numbered> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_published_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_lost_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

std::string Encoded(const KvEventBatch& batch) {
  msgpack::sbuffer buffer;
  Packer packer(buffer);
  packer.pack_array(3);
  packer.pack_double(batch.time);
  packer.pack_array(static_cast<uint32_t>(batch.events.size()));
  for (const KvEvent& event : batch.events) {
    std::visit([&](const auto& what) { PackEvent(what, &packer); }, event);
  }
  packer.pack_int32(0);
  return {buffer.data(), buffer.size()};
}

absl::StatusOr<std::unique_ptr<KvEventPublisher>> StartKvEventPublisher(
    const KvEventOptions& options) {
  std::unique_ptr<ZmqPublisher> publisher;
  RETURN_IF_ERROR(Guarded("kv events", [&] {
    publisher = std::make_unique<ZmqPublisher>(options);
    return publisher->Start();
  }));
  return publisher;
}

}  // namespace tandem
