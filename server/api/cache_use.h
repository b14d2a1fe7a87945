#ifndef TANDEM_SERVER_API_CACHE_USE_H_
#define TANDEM_SERVER_API_CACHE_USE_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "server/api/api_request.h"
#include "tandem/completion.h"
#include "tandem/json_value.h"

namespace tandem {

// The header that says what CacheUse::Header says.
inline constexpr char kCacheHeader[] = "x-tandem-cache";

// Where the tokens of a request's prompts came from. A prompt counts once, however many sequences
// it has.
struct CacheUse {
  int64_t prompt_tokens = 0;
  int64_t memory_tokens = 0;
  int64_t store_tokens = 0;     // EngineOptions::kv_store
  int64_t transfer_tokens = 0;  // EngineOptions::kv_transfer

  static CacheUse Of(const ApiRequest& request, absl::Span<const Completion> completions);

  int64_t cached_tokens() const { return memory_tokens + store_tokens + transfer_tokens; }
  // The object `prompt_tokens_details`.
  JsonValue Details() const;
  // "memory=1488 store=512 transfer=0 computed=34".
  std::string Header() const;
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_CACHE_USE_H_
