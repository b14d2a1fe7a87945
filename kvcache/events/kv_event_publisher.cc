#include "kvcache/events/kv_event_publisher.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <deque>
#include <msgpack/pack.hpp>
#include <msgpack/sbuffer.hpp>
#include <string_view>
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
constexpr std::string_view kMedium = "GPU";

void PackText(std::string_view text, Packer* packer) {
  packer->pack_str(static_cast<uint32_t>(text.size()));
  packer->pack_str_body(text.data(), static_cast<uint32_t>(text.size()));
}

void PackPage(const PageKey& page, Packer* packer) {
  packer->pack_bin(static_cast<uint32_t>(page.bytes.size()));
  packer->pack_bin_body(reinterpret_cast<const char*>(page.bytes.data()),
                        static_cast<uint32_t>(page.bytes.size()));
}

void PackPages(absl::Span<const PageKey> pages, Packer* packer) {
  PackText("block_hashes", packer);
  packer->pack_array(static_cast<uint32_t>(pages.size()));
  for (const PageKey& page : pages) PackPage(page, packer);
}

void BeginEvent(std::string_view type, int num_fields, Packer* packer) {
  packer->pack_map(1 + num_fields);
  PackText("type", packer);
  PackText(type, packer);
}

void PackEvent(const PagesStored& event, Packer* packer) {
  BeginEvent("BlockStored", event.tenant.empty() ? 7 : 8, packer);
  PackPages(event.pages, packer);
  PackText("parent_block_hash", packer);
  if (event.parent.has_value()) {
    PackPage(*event.parent, packer);
  } else {
    packer->pack_nil();
  }
  PackText("token_ids", packer);
  packer->pack_array(static_cast<uint32_t>(event.tokens.size()));
  for (const TokenId token : event.tokens) packer->pack_int32(token);
  PackText("block_size", packer);
  packer->pack_uint64(event.tokens.size() / event.pages.size());
  PackText("lora_id", packer);
  packer->pack_nil();
  PackText("medium", packer);
  PackText(kMedium, packer);
  PackText("lora_name", packer);
  packer->pack_nil();
  if (event.tenant.empty()) return;
  PackText("extra_keys", packer);
  packer->pack_array(static_cast<uint32_t>(event.pages.size()));
  packer->pack_array(1);
  PackText(event.tenant, packer);
  for (size_t i = 1; i < event.pages.size(); ++i) packer->pack_nil();
}

void PackEvent(const PagesRemoved& event, Packer* packer) {
  BeginEvent("BlockRemoved", 2, packer);
  PackPages(event.pages, packer);
  PackText("medium", packer);
  PackText(kMedium, packer);
}

void PackEvent(const CacheCleared&, Packer* packer) { BeginEvent("AllBlocksCleared", 0, packer); }

constexpr int64_t kEndOfReplay = -1;
// A request is a number, so larger messages are dropped to save memory.
constexpr int64_t kMaxRequestBytes = 1024;

zmq::message_t MessageOf(const std::string& bytes) { return {bytes.data(), bytes.size()}; }

zmq::message_t NumberMessage(int64_t number) {
  std::array<char, sizeof(number)> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(static_cast<uint64_t>(number) >> (8 * (bytes.size() - 1 - i)));
  }
  return {bytes.data(), bytes.size()};
}

// Decodes a message of 8 bytes.
uint64_t NumberIn(const zmq::message_t& message) {
  uint64_t number = 0;
  for (size_t i = 0; i < message.size(); ++i) {
    number = number << 8 | static_cast<uint8_t>(message.data<char>()[i]);
  }
  return number;
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
    const uint64_t first = NumberIn(request[2]);
    for (Kept& kept : kept_) {
      if (static_cast<uint64_t>(kept.number) >= first) {
        Answer(&request[0], kept.number, &kept.bytes);
      }
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
