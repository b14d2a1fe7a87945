#include <string>

#include "absl/algorithm/container.h"
#include "gtest/gtest.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using Json = SortedJson;

// A wrong prediction is a draft whose refusal is known in advance.
TEST(RejectedTexts, TellWhatTheDraftHadProposed) {
  const auto engine = MakeTestEngine();
  const auto server = StartServer(engine.get(), TestServerOptions());
  Json body = {
      {"prompt", "Once upon a time"}, {"max_tokens", 24}, {"temperature", 0}, {"ignore_eos", true}};
  const Json whole = Ask(server.get(), "POST", "/v1/completions", body.dump()).json()["choices"][0];
  const std::string text = whole["text"];
  const size_t cut = text.find(' ', text.size() / 2);
  ASSERT_NE(cut, std::string::npos);
  const std::string other = " grandmother sang a song";
  body["prediction"] = {{"type", "content"}, {"content", text.substr(0, cut) + other}};
  body["speculation"] = {{"draft_tokens", 8}};
  body["stream"] = true;
  body["stream_options"] = {{"include_token_texts", true}};
  const Answer answer = Ask(server.get(), "POST", "/v1/completions", body.dump());
  std::string shown, rejected;
  for (const Json& event : EventsOf(answer.body)) {
    const Json& choice = event["choices"][0];
    if (!choice.contains("token_texts")) continue;
    const std::string letters = choice["provenance"];
    EXPECT_EQ(choice["rejected_texts"].size(), absl::c_count(letters, 'c'));
    size_t num_corrections = 0;  // a busy machine sends several rounds at once
    for (size_t i = 0; i < letters.size(); ++i) {
      if (letters[i] == 'c') {
        const Json& draft = choice["rejected_texts"][num_corrections++];
        if (shown.size() == cut) rejected = draft.get<std::string>();
      }
      shown += choice["token_texts"][i].get<std::string>();
    }
  }
  EXPECT_EQ(shown, text);
  // The round may have had room for a part of it.
  EXPECT_GT(rejected.size(), 5u);
  EXPECT_EQ(rejected, other.substr(0, rejected.size()));
}

}  // namespace
}  // namespace tandem
