#include "kvcache/transfer/wire_messages.h"

#include <msgpack.hpp>

#include "absl/status/status.h"
#include "base/guard.h"
#include "base/string_view.h"

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

  void operator()(const auto& field) { packer->pack(field); }
  template <typename Kind>
  void operator()(const DigestId<Kind>& id) {
    packer->pack(id.bytes);
  }
  template <typename Kind>
  void operator()(const std::vector<DigestId<Kind>>& ids) {
    packer->pack_array(ids.size());
    for (const auto& id : ids) (*this)(id);
  }
};

// Reads fields. Throws an exception if one is missing or has another type.
struct FieldReader {
  absl::Span<const msgpack::object> fields;
  size_t next = 0;

  const msgpack::object& Next() { return fields.at(next++); }
  void operator()(auto& field) { Next().convert(field); }
  template <typename Kind>
  void operator()(DigestId<Kind>& id) {
    Next().convert(id.bytes);
  }
  template <typename Kind>
  void operator()(std::vector<DigestId<Kind>>& ids) {
    const auto objects = Next().as<std::vector<msgpack::object>>();
    FieldReader each{.fields = objects};
    ids.resize(objects.size());
    for (auto& id : ids) each(id);
  }
};

void Visit(auto& visit, Hello& hello) {
  std::string magic(kMagic);
  visit(magic);
  visit(hello.version);
  visit(hello.engine_id);
  visit(hello.peer_engine_id);
  visit(hello.build);
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

// Reads a message of the type whose index in WireMessage is `number`; nothing if there is none.
template <size_t kPlace = 0>
void ReadNumbered(uint64_t number, FieldReader* reader, WireMessage* message) {
  if constexpr (kPlace < std::variant_size_v<WireMessage>) {
    if (number != kPlace) return ReadNumbered<kPlace + 1>(number, reader, message);
    Visit(*reader, message->emplace<kPlace>());
  }
}

WireMessage DecodeFields(absl::Span<const std::byte> bytes) {
  // Limits on arrays, maps, strings, binaries, extensions and depth.
  const msgpack::unpack_limit limit(kMaxKeys, 0, kMaxNameBytes, sizeof(PartHasher::Digest), 0, 3);
  const char* const data = reinterpret_cast<const char*>(bytes.data());
  const msgpack::object_handle handle =
      msgpack::unpack(data, bytes.size(), nullptr, nullptr, limit);
  const auto objects = handle->as<std::vector<msgpack::object>>();
  FieldReader reader{.fields = objects};
  uint64_t number = 0;
  reader(number);
  WireMessage message;
  ReadNumbered(number, &reader, &message);
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
  const absl::Status malformed = absl::InvalidArgumentError("it sent a malformed message");
  if (bytes.size() > kMaxMessageBytes) return malformed;
  WireMessage message;
  // The library throws an exception for bytes that are not MessagePack.
  if (!Caught("kv transfer", [&] { message = DecodeFields(bytes); }).ok()) return malformed;
  // So a message has one form only: unknown numbers, other sizes of integers, and bytes that follow
  // are refused.
  if (Encode(message) != View(bytes)) return malformed;
  const auto* const hello = std::get_if<Hello>(&message);
  if (hello != nullptr && (hello->pools.size() > kMaxPools || hello->lease_ms < 0))
    return malformed;
  const auto* const finish = std::get_if<Finish>(&message);
  if (finish != nullptr && finish->num_sent < 0) return malformed;
  return message;
}

}  // namespace tandem
