// Any bytes as the body of every POST: refused with an error that can be sent, or a request whose
// numbers are within their bounds.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "base/check.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"
#include "server/api_error.h"
#include "server/api_request.h"
#include "server/token_endpoints.h"

namespace tandem {
namespace {

constexpr int kContext = 64;

ServedModel MakeModel() {
  constexpr char kFile[] = R"({"added_tokens": [
      {"id": 3, "content": "<|im_start|>", "special": true, "normalized": false},
      {"id": 4, "content": "<|im_end|>", "special": true, "normalized": false}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";
  auto tokenizer = Tokenizer::Parse(kFile, "", "fuzz");
  TANDEM_CHECK(tokenizer.ok());
  return {.name = "fuzz",
          .tokenizer = tokenizer->release(),
          .chat_template = ChatTemplate::Parse("<|im_start|><|im_end|>", "", ""),
          .drafter = "model",
          .context_length = kContext,
          .cache_tokens = 1000,
          .max_sequences = 4};
}

void CheckError(const absl::Status& status) {
  const HttpResponse response = ErrorResponse(status);
  TANDEM_CHECK(response.status >= 400 && response.status < 500);
  TANDEM_CHECK(response.body.size() < 4000);
  TANDEM_CHECK(nlohmann::json::accept(response.body));
}

void CheckRequest(const absl::StatusOr<ApiRequest>& request) {
  if (!request.ok()) return CheckError(request.status());
  TANDEM_CHECK(1 <= request->num_sequences() && request->num_sequences() <= 4);
  TANDEM_CHECK(request->options.max_tokens >= 1);
  for (const auto& prompt : request->prompts) {
    TANDEM_CHECK(!prompt.empty());
    TANDEM_CHECK(prompt.size() + request->options.max_tokens <= kContext);
  }
}

void FuzzOne(absl::string_view body) {
  static const ServedModel& model = *new ServedModel(MakeModel());
  CheckRequest(ParseCompletionRequest(body, model));
  CheckRequest(ParseChatRequest(body, model, absl::UnixEpoch()));
  const auto tokens = TokenizeBody(body, model);
  if (!tokens.ok()) CheckError(tokens.status());
  const auto text = DetokenizeBody(body, model);
  if (!text.ok()) CheckError(text.status());
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
