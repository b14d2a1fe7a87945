#include "kvstore/pool_table.h"

#include <endian.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr char kWhat[] = "kv store: pools";

std::string KeyOf(uint32_t number) { return absl::StrCat(BytesOf(htobe32(number))); }

}  // namespace

absl::Status PoolTable::Load() {
  MDB_cursor* cursor = nullptr;
  if (const int code = mdb_cursor_open(txn_, table_, &cursor); code != 0) {
    return LmdbError(code, kWhat);
  }
  MDB_val key, value;
  while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
    uint32_t number = 0;
    Pool pool;
    if (!ReadRecord(key, &number) || !ReadRecord(value, &pool.record)) continue;
    pool.description = std::string(ViewOf(value).substr(sizeof(Record)));
    pools_[be32toh(number)] = std::move(pool);
  }
  mdb_cursor_close(cursor);
  return absl::OkStatus();
}

absl::Status PoolTable::Store() {
  for (const auto& [number, pool] : pools_) {
    const std::string key = KeyOf(number);
    const std::string value = absl::StrCat(BytesOf(pool.record), pool.description);
    MDB_val key_value = ValueOf(key), data = ValueOf(value);
    const int code = mdb_put(txn_, table_, &key_value, &data, 0);
    if (code != 0) return LmdbError(code, kWhat);
  }
  return absl::OkStatus();
}

std::optional<uint32_t> PoolTable::Find(const PoolId& id) const {
  for (const auto& [number, pool] : pools_) {
    if (pool.record.id == id) return number;
  }
  return std::nullopt;
}

uint32_t PoolTable::NumberOf(const PoolInfo& info) {
  const uint32_t next = pools_.empty() ? 0 : pools_.rbegin()->first + 1;
  const uint32_t number = Find(info.id).value_or(next);
  Pool& pool = pools_[number];
  pool.record.id = info.id;
  pool.description = info.description;
  if (info.tokens_per_second > 0) pool.record.tokens_per_second = info.tokens_per_second;
  return number;
}

void PoolTable::Count(uint32_t number, int pages, int64_t bytes_each) {
  Record& record = pools_[number].record;
  record.pages += pages;
  record.bytes += pages * bytes_each;
}

void PoolTable::AddHits(const PoolId& id, int64_t hits) {
  if (const std::optional<uint32_t> number = Find(id)) pools_[*number].record.hits += hits;
}

absl::Status PoolTable::RemoveEmpty() {
  for (auto it = pools_.begin(); it != pools_.end();) {
    if (it->second.record.pages > 0) {
      ++it;
      continue;
    }
    const std::string key = KeyOf(it->first);
    MDB_val key_value = ValueOf(key);
    const int code = mdb_del(txn_, table_, &key_value, nullptr);
    if (code != 0 && code != MDB_NOTFOUND) return LmdbError(code, kWhat);
    it = pools_.erase(it);
  }
  return absl::OkStatus();
}

int64_t PoolTable::bytes() const {
  int64_t bytes = 0;
  for (const auto& [number, pool] : pools_) bytes += pool.record.bytes;
  return bytes;
}

std::vector<PoolInfo> PoolTable::Infos() const {
  std::vector<PoolInfo> infos;
  for (const auto& [number, pool] : pools_) {
    const Record& record = pool.record;
    infos.push_back({.id = record.id,
                     .description = pool.description,
                     .pages = record.pages,
                     .bytes = record.bytes,
                     .hits = record.hits,
                     .last_used = absl::FromUnixMicros(static_cast<int64_t>(record.last_used)),
                     .tokens_per_second = record.tokens_per_second});
  }
  return infos;
}

}  // namespace tandem
