// Reads any answers of a server: of models, completions, streams and scores, for each profile.
// Answers are used or refused with one message.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/check.h"
#include "proof/remote/http_engine.h"
#include "tests/json_mutator.h"

namespace tandem {
namespace {

const std::vector<SortedJson>& Samples() {
  static const auto& samples = *new std::vector<SortedJson>(ParseAll(
      {R"({"choices": [{"index": 0, "text": " a b", "finish_reason": "length", "token_ids": [5, 7],
           "logprobs": {"tokens": ["token_id:5", "token_id:7"], "token_logprobs": [-0.5, null],
           "top_logprobs": [{"token_id:9": -1.5, "token_id:5": -0.5}, {"token_id:7": -0.25}]},
           "prompt_logprobs": [null, {"2": {"logprob": -0.125}}]}],
           "usage": {"completion_tokens": 2}, "speculation": {"proposed": 4, "accepted": 1}})",
       R"({"index": 0, "content": " a b", "tokens": [5, 7], "stop_type": "limit", "stop": true,
           "tokens_predicted": 2, "timings": {"draft_n": 3, "draft_n_accepted": 1},
           "completion_probabilities": [{"id": 5, "logprob": -0.5,
           "top_logprobs": [{"id": 5, "logprob": -0.5}]}]})",
       R"({"data": [{"id": "m", "owned_by": "llamacpp"}], "tokens": [1, 2], "version": "1",
           "default_generation_settings": {}, "build_info": "b1"})"}));
  return samples;
}

// Gives the parts of a text, one after another, as answers.
class FuzzedServer : public HttpExchange {
 public:
  explicit FuzzedServer(absl::string_view text) : answers_(absl::StrSplit(text, '\1')) {}
  absl::StatusOr<std::string> Send(const std::string&, const std::string&,
                                   const std::string&) override {
    const std::string& answer = answers_[next_++ % answers_.size()];
    if (answer.empty()) return absl::InvalidArgumentError("400");
    return answer;
  }

 private:
  std::vector<std::string> answers_;
  size_t next_ = 0;
};

void FuzzOne(absl::string_view text) {
  for (const std::string& name : RemoteEngineNames()) {
    FuzzedServer server(text);
    TokenTexts texts;
    const auto engine = HttpEngine::Connect(
        &server, {.engine = name, .body = SortedJson::object(), .token_texts = &texts});
    if (!engine.ok()) continue;
    TANDEM_CHECK(!(*engine)->Description().empty());
    for (const bool is_streamed : {false, true}) {
      const auto reply = (*engine)->Ask({.n = 2, .stream = is_streamed, .wants_logprobs = true});
      if (!reply.ok()) continue;
      TANDEM_CHECK(!reply->answers.empty());
    }
    const auto scores = (*engine)->Score({.ids = {1, 2}}, {8, 9});
    TANDEM_CHECK(!scores.ok() || scores->size() == 2);
  }
}

}  // namespace
}  // namespace tandem

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return tandem::JsonMutator(tandem::Samples(), seed).MutateText(data, size, max_size, 2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
