#include "draft/draft_text_store.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/json/json_text.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

constexpr size_t kMaxNameBytes = 256;
constexpr int kShareOfSalted = 8;     // of the memory: one part for each tenant
constexpr int64_t kEntryBytes = 256;  // of the tables, for each addition

absl::StatusOr<std::vector<std::vector<TokenId>>> TokensOf(const DraftTextInput& input,
                                                           const Tokenizer& tokenizer) {
  std::vector<std::vector<TokenId>> tokens;
  for (size_t i = 0; i < input.texts.size(); ++i) {
    auto encoded = tokenizer.Encode(input.texts[i], SpecialTokens::kPlain);
    if (!encoded.ok()) return WithField(encoded.status(), absl::StrCat("texts[", i, "]"));
    tokens.push_back(*std::move(encoded));
  }
  return tokens;
}

// Returns the memory of an addition whose tokens and index take `index_bytes`. Strings count, too,
// which bounds the number of tenants.
int64_t MemoryOf(const DraftTextInput& input, int64_t index_bytes) {
  return index_bytes + static_cast<int64_t>(input.name.size() + input.cache_salt.size()) +
         kEntryBytes;
}

absl::StatusOr<std::string> TextOfLine(absl::string_view line, const std::string& place) {
  ASSIGN_OR_RETURN(const JsonValue json, ParseJsonValue(line, place));
  if (json.is_string()) return json.get<std::string>();
  const auto text = json.is_object() ? json.find("text") : json.end();
  if (text != json.end() && text->is_string()) return text->get<std::string>();
  return absl::InvalidArgumentError(
      absl::StrCat(place, ": found ", Shown(json), ", allowed: a string, or {\"text\": ...}"));
}

}  // namespace

absl::Status CheckCacheSalt(const std::string& salt) {
  constexpr size_t kMaxBytes = 1024;
  if (salt.size() <= kMaxBytes) return absl::OkStatus();
  return FieldError("cache_salt",
                    absl::StrCat("must be at most ", kMaxBytes, " bytes, got ", salt.size()));
}

absl::Status NoSuchDraftText(std::string_view id) {
  return absl::NotFoundError(absl::StrCat("id: this tenant has no draft texts ", Quoted(View(id))));
}

absl::StatusOr<DraftTextInput> ReadDraftTextFile(const std::string& path) {
  ASSIGN_OR_RETURN(std::string contents, ReadFile(path));
  DraftTextInput input{.name = path.substr(path.size() - std::min(path.size(), kMaxNameBytes))};
  if (!absl::EndsWith(path, ".jsonl")) {
    input.texts.push_back(std::move(contents));
    return input;
  }
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(contents, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    ASSIGN_OR_RETURN(std::string text, TextOfLine(line, absl::StrCat(path, ":", number)));
    input.texts.push_back(std::move(text));
  }
  return input;
}

void DraftTextStore::Update(TenantTexts* texts) {
  auto list = std::make_shared<DraftTextList>();
  for (const Held& held : texts->held) list->push_back(held.text);
  texts->list = std::move(list);
}

absl::Status DraftTextStore::CheckRoom(const DraftTextInput& input, int64_t bytes) const {
  const bool is_salted = !input.cache_salt.empty();
  const int64_t share = is_salted ? max_bytes_ / kShareOfSalted : max_bytes_ / 2;
  int64_t room = share - BytesOf(input.cache_salt);
  if (is_salted) room = std::min(room, max_bytes_ - max_bytes_ / 2 - (bytes_ - BytesOf("")));
  if (bytes <= room) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "texts: need ", bytes, " bytes of memory, but ", std::max<int64_t>(room, 0), " of the ",
      share, " for one tenant are free; remove other texts, or raise draft_text_bytes"));
}

int64_t DraftTextStore::BytesOf(std::string_view salt) const {
  const auto found = tenants_.find(salt);
  return found == tenants_.end() ? 0 : found->second.bytes;
}

absl::StatusOr<DraftTextInfo> DraftTextStore::Add(const DraftTextInput& input,
                                                  const Tokenizer& tokenizer) {
  if (input.name.size() > kMaxNameBytes) {
    return FieldError(
        "name", absl::StrCat("must be at most ", kMaxNameBytes, " bytes, got ", input.name.size()));
  }
  RETURN_IF_ERROR(CheckCacheSalt(input.cache_salt));
  size_t size = 0;
  for (const std::string& text : input.texts) size += text.size();
  if (size == 0) return FieldError("texts", "must not be empty");
  ASSIGN_OR_RETURN(const std::vector<std::vector<TokenId>> tokens, TokensOf(input, tokenizer));
  size_t num_tokens = 0;
  for (const std::vector<TokenId>& text : tokens) num_tokens += text.size() + 1;
  if (num_tokens > std::numeric_limits<uint32_t>::max()) {
    return FieldError("texts",
                      absl::StrCat("must be at most ", std::numeric_limits<uint32_t>::max(),
                                   " tokens together, got ", num_tokens));
  }
  const auto expected = static_cast<int64_t>(num_tokens * (sizeof(TokenId) + sizeof(uint32_t)));
  {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(CheckRoom(input, MemoryOf(input, expected)));
  }
  auto text = std::make_shared<const DraftText>(tokens);  // takes time, so without the lock
  const int64_t bytes = MemoryOf(input, text->bytes());
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckRoom(input, bytes));
  TenantTexts& texts = tenants_[input.cache_salt];
  if (static_cast<int>(texts.held.size()) >= kMaxPerTenant) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "texts: ", kMaxPerTenant, " are held for this tenant; remove some, or join them"));
  }
  const DraftTextInfo info{.id = absl::StrCat("dt-", next_id_++),
                           .name = input.name,
                           .num_texts = static_cast<int>(input.texts.size()),
                           .num_tokens = text->num_tokens(),
                           .bytes = bytes,
                           .created = absl::Now()};
  texts.held.push_back({.info = info, .text = std::move(text)});
  texts.bytes += info.bytes;
  bytes_ += info.bytes;
  Update(&texts);
  version_.fetch_add(1, std::memory_order_release);
  return info;
}

std::vector<DraftTextInfo> DraftTextStore::List(std::string_view salt) const {
  absl::MutexLock lock(&mutex_);
  std::vector<DraftTextInfo> infos;
  const auto found = tenants_.find(salt);
  if (found == tenants_.end()) return infos;
  for (const Held& held : found->second.held) infos.push_back(held.info);
  return infos;
}

absl::Status DraftTextStore::Remove(std::string_view id, std::string_view salt) {
  absl::MutexLock lock(&mutex_);
  const auto found = tenants_.find(salt);
  if (found == tenants_.end()) return NoSuchDraftText(id);
  TenantTexts& texts = found->second;
  const auto held = std::find_if(texts.held.begin(), texts.held.end(),
                                 [id](const Held& one) { return one.info.id == id; });
  if (held == texts.held.end()) return NoSuchDraftText(id);
  texts.bytes -= held->info.bytes;
  bytes_ -= held->info.bytes;
  texts.held.erase(held);
  Update(&texts);
  if (texts.held.empty()) tenants_.erase(found);
  version_.fetch_add(1, std::memory_order_release);
  return absl::OkStatus();
}

std::shared_ptr<const DraftTextList> DraftTextStore::Of(std::string_view salt) const {
  absl::MutexLock lock(&mutex_);
  const auto found = tenants_.find(salt);
  return found == tenants_.end() ? nullptr : found->second.list;
}

int64_t DraftTextStore::bytes_in_use() const {
  absl::MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace tandem
