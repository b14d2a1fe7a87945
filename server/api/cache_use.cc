#include "server/api/cache_use.h"

#include "absl/strings/str_cat.h"

namespace tandem {

CacheUse CacheUse::Of(const ApiRequest& request, absl::Span<const Completion> completions) {
  CacheUse use;
  for (size_t i = 0; i < completions.size(); i += request.sequences_per_prompt()) {
    use.prompt_tokens += completions[i].prompt_tokens;
    use.memory_tokens += completions[i].memory_tokens();
    use.store_tokens += completions[i].store_tokens;
    use.transfer_tokens += completions[i].transfer_tokens;
  }
  return use;
}

JsonValue CacheUse::Details() const {
  return {{"cached_tokens", cached_tokens()},
          {"memory_tokens", memory_tokens},
          {"store_tokens", store_tokens},
          {"transfer_tokens", transfer_tokens}};
}

std::string CacheUse::Header() const {
  return absl::StrCat("memory=", memory_tokens, " store=", store_tokens,
                      " transfer=", transfer_tokens, " computed=", prompt_tokens - cached_tokens());
}

}  // namespace tandem
