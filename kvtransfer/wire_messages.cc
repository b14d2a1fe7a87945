#include "kvtransfer/wire_messages.h"

#include <algorithm>
#include <msgpack.hpp>
#include <type_traits>

#include "absl/status/status.h"
#include "base/guard.h"

namespace tandem {
namespace {

constexpr absl::string_view kMagic = "tandem pages";

using Packer = msgpack::packer<msgpack::sbuffer>;

// ---- Fields: the same Visit functions write and read them ----

struct FieldCounter {
  uint32_t num_fields = 0;
  void operator()(auto&) { ++num_fields; }
};

struct FieldWriter {
  Packer* packer;

  void operator()(int64_t number) { packer->pack(number); }
  void operator()(uint64_t number) { packer->pack(number); }
  void operator()(const std::string& text) { packer->pack(text); }
  template <typename Kind>
  void operator()(const DigestId<Kind>& id) {
    (*this)(id.bytes);
  }
  void operator()(const PartHasher::Digest& bytes) {
    packer->pack_bin(bytes.size());
    packer->pack_bin_body(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  template <typename Kind>
  void operator()(const std::vector<DigestId<Kind>>& ids) {
    packer->pack_array(ids.size());
    for (const auto& id : ids) (*this)(id);
  }
};

// Reads fields. Sets `is_good` to false if a field does not have the expected type.
struct FieldReader {
  absl::Span<const msgpack::object> fields;
  size_t next = 0;
  bool is_good = true;

  const msgpack::object* Next(msgpack::type::object_type type) {
    if (!is_good || next == fields.size() || fields[next].type != type) {
      is_good = false;
      return nullptr;
    }
    return &fields[next++];
  }
  void operator()(uint64_t& number) {
    const auto* field = Next(msgpack::type::POSITIVE_INTEGER);
    if (field != nullptr) number = field->via.u64;
  }
  void operator()(int64_t& number) {
    uint64_t positive = 0;
    (*this)(positive);
    is_good = is_good && positive <= uint64_t{INT64_MAX};
    number = static_cast<int64_t>(positive);
  }
  void operator()(std::string& text) {
    const auto* field = Next(msgpack::type::STR);
    if (field != nullptr) text.assign(field->via.str.ptr, field->via.str.size);
  }
  template <typename Kind>
  void operator()(DigestId<Kind>& id) {
    (*this)(id.bytes);
  }
  void operator()(PartHasher::Digest& bytes) {
    const auto* field = Next(msgpack::type::BIN);
    is_good = is_good && field->via.bin.size == bytes.size();
    if (!is_good) return;
    std::copy_n(reinterpret_cast<const std::byte*>(field->via.bin.ptr), bytes.size(),
                bytes.begin());
  }
  template <typename Kind>
  void operator()(std::vector<DigestId<Kind>>& ids) {
    const auto* field = Next(msgpack::type::ARRAY);
    if (field == nullptr) return;
    FieldReader each{.fields = {field->via.array.ptr, field->via.array.size}};
    ids.resize(each.fields.size());
    for (auto& id : ids) each(id);
    is_good = each.is_good;
  }
};

template <typename Visitor>
void Visit(Visitor& visit, Hello& hello) {
  std::string magic(kMagic);
  visit(magic);
  if constexpr (std::is_same_v<Visitor, FieldReader>) {
    visit.is_good = visit.is_good && magic == kMagic;
  }
  visit(hello.version);
  visit(hello.engine_id);
  visit(hello.peer_engine_id);
  visit(hello.pools);
  visit(hello.lease_ms);
}
void Visit(auto& visit, AskPages& ask) {
  visit(ask.number);
  visit(ask.lease);
  visit(ask.request_id);
  visit(ask.pool);
  visit(ask.keys);
}
void Visit(auto& visit, Cancel& cancel) { visit(cancel.number); }
void Visit(auto& visit, Heartbeat& heartbeat) { visit(heartbeat.lease); }
void Visit(auto& visit, Release& release) { visit(release.lease); }
void Visit(auto& visit, Finish& finish) {
  visit(finish.number);
  visit(finish.num_sent);
  visit(finish.reason);
}

// Reads a message of the type whose index in WireMessage is `number`.
template <size_t kPlace = 0>
bool ReadNumbered(uint64_t number, FieldReader* reader, WireMessage* message) {
  if constexpr (kPlace == std::variant_size_v<WireMessage>) {
    return false;
  } else {
    if (number != kPlace) return ReadNumbered<kPlace + 1>(number, reader, message);
    Visit(*reader, message->emplace<kPlace>());
    return reader->is_good && reader->next == reader->fields.size();
  }
}

absl::Status NotAMessage() { return absl::InvalidArgumentError("it sent a malformed message"); }

absl::StatusOr<WireMessage> DecodeFields(absl::Span<const std::byte> bytes) {
  // Limits on arrays, maps, strings, binaries, extensions and depth.
  const msgpack::unpack_limit limit(kMaxKeys, 0, kMaxNameBytes, sizeof(PartHasher::Digest), 0, 3);
  const char* const data = reinterpret_cast<const char*>(bytes.data());
  size_t end = 0;
  const msgpack::object_handle handle =
      msgpack::unpack(data, bytes.size(), end, nullptr, nullptr, limit);
  const msgpack::object& object = handle.get();
  if (end != bytes.size() || object.type != msgpack::type::ARRAY) return NotAMessage();
  FieldReader reader{.fields = {object.via.array.ptr, object.via.array.size}};
  uint64_t number = 0;
  reader(number);
  WireMessage message;
  if (!reader.is_good || !ReadNumbered(number, &reader, &message)) return NotAMessage();
  const auto* hello = std::get_if<Hello>(&message);
  if (hello != nullptr && hello->pools.size() > kMaxPools) return NotAMessage();
  return message;
}

}  // namespace

std::string Encode(WireMessage message) {
  msgpack::sbuffer buffer;
  Packer packer(buffer);
  FieldCounter counter;
  FieldWriter writer{&packer};
  uint64_t number = message.index();
  std::visit(
      [&](auto& fields) {
        Visit(counter, fields);
        packer.pack_array(1 + counter.num_fields);
        writer(number);
        Visit(writer, fields);
      },
      message);
  return std::string(buffer.data(), buffer.size());
}

absl::StatusOr<WireMessage> Decode(absl::Span<const std::byte> bytes) {
  if (bytes.size() > kMaxMessageBytes) return NotAMessage();
  absl::StatusOr<WireMessage> message = NotAMessage();
  // The library throws an exception for bytes that are not MessagePack.
  Caught("kv transfer", [&] { message = DecodeFields(bytes); }).IgnoreError();
  return message;
}

}  // namespace tandem
