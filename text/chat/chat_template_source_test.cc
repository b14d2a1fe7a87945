// Tests of the chat templates of GGUF files.
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tandem/chat_template.h"
#include "tandem/json_value.h"
#include "tests/folder_testing.h"
#include "tests/gguf_builder.h"

namespace tandem {
namespace {

TEST(GgufChatTemplate, IsReadWithItsTokens) {
  const TestFolder folder;
  GgufBuilder file = PiecesFile();
  file.Set("general.architecture", GgufString("llama"));
  const auto load = [&] { return ChatTemplate::Load(folder.Write("chat.gguf", file.Bytes())); };
  const auto plain = load().value();
  EXPECT_TRUE(plain.is_plain());
  file.Set("tokenizer.chat_template",
           GgufString("{{ bos_token }}{% for message in messages %}<|im_start|>x<|im_end|>"
                      "{% endfor %}"));
  file.Set("tokenizer.chat_template.tool_use", GgufString("{{ eos_token }}{{ tools[0] }}"));
  const auto chat = load().value();
  EXPECT_FALSE(chat.is_plain());
  ChatInput input = ChatInputOf({{.role = "user", .content = "Hi"}}, absl::UnixEpoch());
  const auto parts = chat.Render(input).value();
  EXPECT_EQ(parts.front().text, "<s><|im_start|>x<|im_end|>");
  input.tools = SortedJson::array({"t"});
  EXPECT_EQ(chat.Render(input)->front().text, "</s>");
  file.Set("tokenizer.chat_template", GgufString("<|im_start|>\xFF"));
  EXPECT_NE(load().status().message().find("not UTF-8"), absl::string_view::npos);
  file.Set("tokenizer.chat_template", GgufUint32(1));
  EXPECT_NE(load().status().message().find("tokenizer.chat_template"), absl::string_view::npos);
}

}  // namespace
}  // namespace tandem
