#include "model/chat_template.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Family = ChatTemplate::Family;

// Templates cut down to what the families are told apart by; the renderings are what the reference
// makes of the whole ones.
constexpr char kChatMl[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n'}}{% endfor %}{{ '<|im_start|>assistant\\n' }}";
constexpr char kChatMlWithSystem[] =
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{{- 'You have tools.' }}{%- endif %}"
    "{{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{{ '<|im_start|>' + message.role }}";
constexpr char kChatMlThinking[] =
    "{{- '<|im_start|>' + message.role + '\\n' }}{% if '</think>' in content %}<|im_end|>{% endif "
    "%}";
constexpr char kLlama2[] =
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' %}"
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{{ ' ' + content.strip() + ' ' + eos_token }}";
constexpr char kLlama3[] =
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ "
    "message['content'] | trim + '<|eot_id|>' %}{% set content = bos_token + content %}";
constexpr char kLlama31[] =
    "{{- bos_token }}{{- \"Cutting Knowledge Date: December 2023\\n\" }}{{- "
    "\"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}{{ x | trim + '<|eot_id|>' }}";
constexpr char kMistral[] =
    "{{ bos_token }}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{{ message['content'] + eos_token + ' ' }}";
constexpr char kMistralSystemFirst[] =
    "{{- bos_token }}{%- if loop.first and system_message is defined %}"
    "{{- \" [INST] \" + system_message + \"\\n\\n\" + message[\"content\"] + \" [/INST]\" }}"
    "{{- \" \" + message[\"content\"] + eos_token}}";
constexpr char kMistralSystemLast[] =
    "{{- bos_token }}{%- if loop.last and system_message is defined %}"
    "{{- \"[INST] \" + system_message + \"\\n\\n\" + message[\"content\"] + \"[/INST]\" }}"
    "{{- \" \" + message[\"content\"]|trim + eos_token}}";
constexpr char kZephyr[] =
    "{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
    "{% endif %}\n{% if loop.last %}\n{{ '<|assistant|>' }}\n{% endif %}";

const std::vector<ChatMessage> kQuestion = {{"user", " Hi "}};
const std::vector<ChatMessage> kTalk = {
    {"user", "Hi"}, {"assistant", " Hello! "}, {"user", "Bye "}};
const std::vector<ChatMessage> kTalkWithSystem = {
    {"system", " Be brief. "}, {"user", "Hi"}, {"assistant", " Hello! "}, {"user", "Bye "}};

ChatTemplate ParseTemplate(const std::string& jinja, const char* bos = "<s>",
                           const char* eos = "</s>") {
  auto chat = ChatTemplate::Parse(jinja, bos, eos);
  EXPECT_TRUE(chat.ok()) << chat.status();
  return *chat;
}

std::string Joined(const absl::StatusOr<std::vector<ChatPart>>& parts) {
  if (!parts.ok()) return std::string(parts.status().message());
  std::string text;
  for (const ChatPart& part : *parts) text += part.text;
  return text;
}

std::string Render(const char* jinja, const std::vector<ChatMessage>& messages) {
  return Joined(ParseTemplate(jinja).Render(messages, "05 Mar 2025"));
}

TEST(ChatTemplate, RendersChatMl) {
  EXPECT_EQ(ParseTemplate(kChatMl).family(), Family::kChatMl);
  EXPECT_EQ(Render(kChatMl, kQuestion),
            "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(Render(kChatMl, kTalkWithSystem),
            "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n Hello! <|im_end|>\n<|im_start|>user\nBye <|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_THAT(ParseTemplate(kChatMl).EndTokens(), ElementsAre("<|im_end|>"));
}

TEST(ChatTemplate, PutsInTheSystemMessageOfATemplate) {
  EXPECT_EQ(Render(kChatMlWithSystem, kQuestion),
            "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_THAT(Render(kChatMlWithSystem, kTalkWithSystem), ::testing::Not(HasSubstr("You help")));
}

TEST(ChatTemplate, DropsEarlierThoughts) {
  const char answer[] = "<think>\nhm\n</think>\n\nHello";
  EXPECT_EQ(Render(kChatMlThinking, {{"user", "Hi"}, {"assistant", answer}, {"user", "Bye"}}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
            "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(Render(kChatMlThinking, {{"user", "Hi"}, {"assistant", answer}}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\n"
            "Hello<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(Render(kChatMlThinking, {{"user", "Hi"}, {"assistant", "\n\nHello"}}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
            "Hello<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, RendersLlama2) {
  EXPECT_EQ(Render(kLlama2, kQuestion), "<s>[INST] Hi [/INST]");
  EXPECT_EQ(Render(kLlama2, kTalkWithSystem),
            "<s>[INST] <<SYS>>\n Be brief. \n<</SYS>>\n\nHi [/INST] Hello! </s><s>[INST] Bye "
            "[/INST]");
  EXPECT_THAT(ParseTemplate(kLlama2).EndTokens(), ElementsAre("</s>"));
}

TEST(ChatTemplate, RendersLlama3) {
  const std::string want =
      "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant"
      "<|end_header_id|>\n\n";
  EXPECT_EQ(Render(kLlama3, kQuestion), "<s>" + want);
  const std::string header =
      "<s><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
      "Today Date: ";
  EXPECT_EQ(Render(kLlama31, kQuestion), header + "26 Jul 2024\n\n<|eot_id|>" + want);
  EXPECT_THAT(Render(kLlama31, kTalkWithSystem), HasSubstr("\n\nBe brief.<|eot_id|>"));
  EXPECT_THAT(Render((std::string(kLlama31) + "{{ strftime_now('%d %b %Y') }}").c_str(), kQuestion),
              HasSubstr("Today Date: 05 Mar 2025\n\n"));
  EXPECT_THAT(ParseTemplate(kLlama3).EndTokens(), ElementsAre("<|eot_id|>"));
}

TEST(ChatTemplate, RendersMistral) {
  EXPECT_EQ(Render(kMistral, kTalk), "<s>[INST] Hi [/INST] Hello! </s> [INST] Bye  [/INST]");
  EXPECT_EQ(Render(kMistralSystemFirst, kTalkWithSystem),
            "<s> [INST]  Be brief. \n\nHi [/INST]  Hello! </s> [INST] Bye  [/INST]");
  EXPECT_EQ(Render(kMistralSystemLast, kTalkWithSystem),
            "<s>[INST] Hi[/INST] Hello!</s>[INST]  Be brief. \n\nBye [/INST]");
}

TEST(ChatTemplate, RendersZephyr) {
  EXPECT_EQ(Render(kZephyr, kTalkWithSystem),
            "<|system|>\n Be brief. </s>\n<|user|>\nHi</s>\n<|assistant|>\n Hello! </s>\n"
            "<|user|>\nBye </s>\n<|assistant|>\n");
}

TEST(ChatTemplate, WithoutATemplateAnswersGoOnAndQuestionsAreLines) {
  EXPECT_EQ(ParseTemplate("").family(), Family::kPlain);
  EXPECT_EQ(ParseTemplate(" \n").family(), Family::kPlain);
  EXPECT_EQ(Render("", kTalk), "Hi Hello! \nBye ");
}

TEST(ChatTemplate, TellsItsOwnTextFromWords) {
  for (const char* jinja : {kChatMl, kLlama2, kLlama3, kMistral, kZephyr, ""}) {
    const auto parts = ParseTemplate(jinja).Render({{"user", "</s><|im_end|>"}}, "");
    ASSERT_TRUE(parts.ok());
    for (const ChatPart& part : *parts) {
      EXPECT_EQ(part.text == "</s><|im_end|>", part.special == SpecialTokens::kPlain) << part.text;
    }
  }
}

TEST(ChatTemplate, RefusesWhatItDoesNotKnow) {
  for (const std::string& jinja :
       {std::string("{{ '<start_of_turn>' + message['role'] }}"), std::string("{{ messages }}"),
        absl::StrCat(kChatMl, "<|im_sep|>"), absl::StrCat(kChatMl, "{{ strftime_now('%Y') }}"),
        std::string("[INST] {{ system_message }} [/INST]"),
        absl::StrCat(kMistral, "{{ system_message }}"),
        absl::StrCat(kLlama2, "{% elif not '<<SYS>>' in messages[0]['content'] %}")}) {
    const auto chat = ChatTemplate::Parse(jinja, "<s>", "</s>");
    EXPECT_EQ(chat.status().code(), absl::StatusCode::kUnimplemented) << jinja;
    EXPECT_THAT(std::string(chat.status().message()), HasSubstr("chat_template")) << jinja;
  }
}

TEST(ChatTemplate, RefusesRolesThatATemplateHasNoPlaceFor) {
  EXPECT_THAT(Render(kChatMl, {{"tool", "x"}}), HasSubstr("messages[0].role: \"tool\""));
  EXPECT_THAT(Render(kChatMl, {}), HasSubstr("messages: is empty"));
  EXPECT_THAT(Render(kMistral, kTalkWithSystem), HasSubstr("messages[0].role: \"system\""));
  EXPECT_THAT(Render(kLlama2, {{"user", "a"}, {"user", "b"}}),
              HasSubstr("messages[1].role: \"user\""));
  EXPECT_THAT(Render(kLlama2, {{"system", "a"}}), HasSubstr("no message of role user"));
}

}  // namespace
}  // namespace tandem
