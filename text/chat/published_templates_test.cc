// Renders the chat templates of published models, which are not part of this tree. The script
// tests/clients/check_chat_templates.py makes the cases and describes them.
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tandem/chat_template.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = SortedJson;

ChatInput InputOf(const Json& json) {
  ChatInput input;
  input.messages = json.at("messages");
  input.tools = json.at("tools");
  input.kwargs = json.at("kwargs");
  input.add_generation_prompt = json.at("add_generation_prompt");
  input.continue_final_message = json.at("continue_final_message");
  input.now = absl::FromUnixSeconds(json.at("now").get<int64_t>());
  return input;
}

// {"text": ...} or {"fails": ...}.
Json Rendered(const Json& one) {
  const ChatTemplate::Source source{.jinja = one.at("jinja"),
                                    .tool_use = "",
                                    .bos_token = one.at("bos_token"),
                                    .eos_token = one.at("eos_token")};
  const auto chat = ChatTemplate::Parse(source);
  if (!chat.ok()) return {{"fails", std::string(chat.status().message())}};
  const auto parts = chat->Render(InputOf(one));
  if (!parts.ok()) return {{"fails", std::string(parts.status().message())}};
  std::string text;
  for (const MarkedText& part : *parts) text += part.text;
  return {{"text", text}, {"answer_end", chat->answer_end()}};
}

TEST(PublishedTemplates, MatchTheReference) {
  const char* path = std::getenv("TANDEM_CHAT_CASES");
  if (path == nullptr) {
    GTEST_SKIP()
        << "TANDEM_CHAT_CASES is not set: tests/clients/check_chat_templates.py makes the file";
  }
  std::ifstream cases(path);
  std::ofstream results(std::string(path) + ".results");
  int count = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    const Json one = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(one.is_object()) << line;
    const Json result = Rendered(one);
    results << result.dump() << "\n";
    EXPECT_EQ(result.contains("fails"), one.contains("fails"))
        << one.at("name") << ": got " << result << ", expected "
        << (one.contains("fails") ? one.at("fails") : one.at("text"));
    if (one.contains("text") && result.contains("text")) {
      EXPECT_EQ(result.at("text").get<std::string>(), one.at("text").get<std::string>())
          << one.at("name");
    }
  }
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace tandem
