#include "kvevents/kv_event_batch.h"

#include <cstdint>
#include <msgpack/pack.hpp>
#include <msgpack/sbuffer.hpp>
#include <string_view>

#include "absl/types/span.h"

namespace tandem {
namespace {

using Packer = msgpack::packer<msgpack::sbuffer>;

// What vLLM calls the memory that attention reads.
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

}  // namespace tandem
