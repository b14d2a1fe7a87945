#include "tandem/chat_template.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = SortedJson;

// Short versions of the templates of some model families.
constexpr char kChatMl[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr char kChatMlWithSystem[] =
    "{%- if tools %}{{- '<|im_start|>system\\nYou have ' ~ (tools | tojson) ~ '<|im_end|>\\n' }}"
    "{%- elif messages[0].role != 'system' %}"
    "{{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{%- endif %}"
    "{%- for m in messages %}"
    "{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}";
constexpr char kThinking[] =
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.role == 'assistant' and not loop.last %}"
    "{{- m.content.split('</think>')[-1].lstrip('\\n') }}"
    "{%- else %}{{- ('<think>' ~ m.reasoning_content ~ '</think>') if m.reasoning_content }}"
    "{{- m.content }}{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";
constexpr char kLlama2[] =
    "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}"
    "{% set system = messages[0]['content'] %}{% else %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate user/assistant') }}{% endif %}"
    "{% if loop.first and system is defined %}"
    "{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + m['content'] %}"
    "{% else %}{% set content = m['content'] %}{% endif %}"
    "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}";
constexpr char kLlama3[] =
    "{{- bos_token }}{%- if date_string is not defined %}"
    "{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}"
    "{{- 'Today Date: ' + date_string + '\\n' }}{%- for m in messages %}"
    "{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + "
    "'<|eot_id|>' }}{%- endfor %}{%- if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}";
constexpr char kPhi[] =
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}";

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

std::string Joined(const absl::StatusOr<std::vector<MarkedText>>& parts) {
  if (!parts.ok()) return std::string(parts.status().message());
  std::string text;
  for (const MarkedText& part : *parts) text += part.text;
  return text;
}

std::string RenderInput(const char* jinja, const ChatInput& input) {
  return Joined(ParseTemplate(jinja).Render(input));
}
std::string Render(const char* jinja, const std::vector<ChatMessage>& messages) {
  return RenderInput(jinja, ChatInputOf(messages, absl::FromUnixSeconds(1741132800)));
}

TEST(ChatTemplate, RendersConversations) {
  EXPECT_EQ(Render(kChatMl, kQuestion),
            "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(Render(kChatMl, kTalkWithSystem),
            "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n Hello! <|im_end|>\n<|im_start|>user\nBye <|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(Render(kLlama2, kQuestion), "<s>[INST] Hi [/INST]");
  EXPECT_EQ(Render(kLlama2, kTalkWithSystem),
            "<s>[INST] <<SYS>>\n Be brief. \n<</SYS>>\n\nHi [/INST] Hello! </s><s>[INST] Bye "
            "[/INST]");
  EXPECT_EQ(Render(kLlama3, kQuestion),
            "<s>Today Date: 05 Mar 2025\n<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(ChatTemplate, WritesItsDefaultSystemMessage) {
  EXPECT_EQ(Render(kChatMlWithSystem, kQuestion),
            "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_THAT(Render(kChatMlWithSystem, kTalkWithSystem), Not(HasSubstr("You help")));
}

TEST(ChatTemplate, PassesToolsAndVariablesToTheTemplate) {
  ChatInput input = ChatInputOf(kQuestion, absl::UnixEpoch());
  input.tools = Json::array({{{"name", "f"}, {"count", 1.0}}});
  input.kwargs = {{"enable_thinking", false}};
  EXPECT_EQ(RenderInput(kChatMlWithSystem, input),
            "<|im_start|>system\nYou have [{\"count\": 1.0, \"name\": \"f\"}]<|im_end|>\n"
            "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  input.kwargs = {{"date_string", "today"}};
  EXPECT_THAT(RenderInput(kLlama3, input), HasSubstr("Today Date: today\n"));
  input.kwargs = {{"messages", Json::array()}};
  EXPECT_THAT(RenderInput(kChatMl, input), HasSubstr("chat_template_kwargs.\"messages\": is a"));
  input.kwargs = Json::array();
  EXPECT_THAT(RenderInput(kChatMl, input), HasSubstr("chat_template_kwargs: is not an object"));
  input.kwargs = Json::object();
  for (int i = 0; i < 256; ++i) input.kwargs[absl::StrCat("k", i)] = i;
  EXPECT_THAT(RenderInput(kChatMl, input), HasSubstr("<|im_start|>user"));
  input.kwargs["one_more"] = 0;
  EXPECT_THAT(RenderInput(kChatMl, input),
              HasSubstr("chat_template_kwargs: has 257 variables, allowed: 256"));
}

TEST(ChatTemplate, DropsReasoningOfEarlierAnswers) {
  const char answer[] = "<think>\nhm\n</think>\n\nHello";
  EXPECT_EQ(Render(kThinking, {{"user", "Hi"}, {"assistant", answer}, {"user", "Bye"}}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
            "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, AcceptsReasoningUnderAnyOfItsNames) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    ChatInput input = ChatInputOf({{"assistant", "Hi"}}, absl::UnixEpoch());
    input.messages[0][name] = "hm";
    input.add_generation_prompt = false;
    EXPECT_EQ(RenderInput(kThinking, input),
              "<|im_start|>assistant\n<think>hm</think>Hi<|im_end|>\n");
  }
}

TEST(ChatTemplate, PlainTemplateContinuesAnswersAndStartsQuestionsOnNewLines) {
  EXPECT_TRUE(ParseTemplate("").is_plain());
  EXPECT_TRUE(ParseTemplate(" \n").is_plain());
  EXPECT_EQ(ParseTemplate("").name(), "plain");
  EXPECT_FALSE(ParseTemplate(kChatMl).is_plain());
  EXPECT_EQ(Render("", kTalk), "Hi Hello! \nBye ");
  EXPECT_EQ(Render("", {{"user", ""}, {"user", "\n a \n"}}), "\n a \n");
}

TEST(ChatTemplate, DistinguishesItsOwnTextFromMessages) {
  for (const char* jinja : {kChatMl, kLlama2, kLlama3, kPhi, ""}) {
    const auto parts = ParseTemplate(jinja)
                           .Render(ChatInputOf({{"user", "</s><|im_end|>"}}, absl::UnixEpoch()))
                           .value();
    for (const MarkedText& part : parts) {
      EXPECT_EQ(part.text == "</s><|im_end|>", part.special == SpecialTokens::kPlain) << part.text;
    }
  }
}

TEST(ChatTemplate, TrustsOnlyUsualRoles) {
  const auto parts = [](const std::string& role) {
    ChatInput input = ChatInputOf({{role, "Hi"}}, absl::UnixEpoch());
    input.add_generation_prompt = false;
    return *ParseTemplate(kPhi).Render(input);
  };
  EXPECT_EQ(parts("user")[0].text, "<|user|>");
  EXPECT_EQ(parts("user")[0].special, SpecialTokens::kParse);
  EXPECT_EQ(parts("end")[0].text, "<|");
  EXPECT_EQ(parts("end")[1].text, "end");
  EXPECT_EQ(parts("end")[1].special, SpecialTokens::kPlain);
}

TEST(ChatTemplate, FindsTheEndOfAnAnswer) {
  EXPECT_EQ(ParseTemplate(kChatMl).answer_end(), "<|im_end|>\n");
  EXPECT_EQ(ParseTemplate(kLlama2).answer_end(), "</s>");
  EXPECT_EQ(ParseTemplate(kLlama3).answer_end(), "<|eot_id|>");
  EXPECT_EQ(ParseTemplate(kPhi).answer_end(), "<|end|></s>");
  EXPECT_THAT(ParseTemplate("").answer_end(), IsEmpty());
  EXPECT_THAT(ParseTemplate("{{ raise_exception('x') }}").answer_end(), IsEmpty());
}

TEST(ChatTemplate, EndTokensComeFromTheVocabulary) {
  constexpr char kFile[] = R"({"added_tokens": [
      {"id": 3, "content": "<|im_end|>", "special": true, "normalized": false},
      {"id": 4, "content": "<|end|>", "special": false, "normalized": false}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";
  const auto tokenizer = Tokenizer::Parse(kFile, "", "test").value();
  EXPECT_THAT(EndTokenIds(ParseTemplate(kChatMl), *tokenizer), ElementsAre(3));
  EXPECT_THAT(EndTokenIds(ParseTemplate(kPhi, "", ""), *tokenizer), ElementsAre(4));
  EXPECT_THAT(EndTokenIds(ParseTemplate("{{ messages[-1].content }}ab"), *tokenizer), IsEmpty());
  EXPECT_THAT(EndTokenIds(ParseTemplate(""), *tokenizer), IsEmpty());
}

TEST(ChatTemplate, ContinuesTheLastMessage) {
  ChatInput input = ChatInputOf({{"user", "Hi"}, {"assistant", "Hel "}}, absl::UnixEpoch());
  input.continue_final_message = true;
  EXPECT_THAT(RenderInput(kChatMl, input),
              HasSubstr("must be false if add_generation_prompt is true"));
  input.add_generation_prompt = false;
  EXPECT_EQ(RenderInput(kChatMl, input),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHel ");
  EXPECT_THAT(RenderInput(kLlama3, input), testing::EndsWith("<|end_header_id|>\n\nHel"));
  EXPECT_EQ(RenderInput("", input), "HiHel ");
  EXPECT_THAT(RenderInput("{{ messages[0].content }}", input),
              HasSubstr("continue_final_message: the chat template does not write"));
  input.messages[1]["content"] = nullptr;
  EXPECT_THAT(RenderInput(kChatMl, input), HasSubstr("messages[1].content: is not a string"));
}

TEST(ChatTemplate, FindsTheRolesWhoseNamesItWrites) {
  const auto writes = [](const char* jinja) {
    const auto chat = ChatTemplate::Parse(jinja, "", "");
    EXPECT_TRUE(chat.ok()) << chat.status();
    std::vector<std::string> roles;
    for (const char* role : {"system", "user", "assistant", "tool"}) {
      if (chat->WritesNameOf(role)) roles.emplace_back(role);
    }
    return roles;
  };
  EXPECT_THAT(writes(""), ElementsAre("tool"));
  EXPECT_THAT(writes(kChatMl), ElementsAre("tool"));
  EXPECT_THAT(writes("{{ messages | tojson }}"),
              ElementsAre("system", "user", "assistant", "tool"));
  EXPECT_THAT(writes("{% for m in messages %}{% if m.role == 'user' %}{{ m['name'] }}{% endif %}"
                     "{{ m.content }}{% endfor %}"),
              ElementsAre("user", "tool"));
  // A role that the template rejects counts as one whose name it writes.
  EXPECT_THAT(writes("{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}"
                     "{% endif %}{{ m.content }}{% endfor %}"),
              ElementsAre("system", "tool"));
}

TEST(ChatTemplate, FindsItsCallStyle) {
  const auto style_of = [](const std::string& jinja) {
    return ChatTemplate::Parse(jinja, "", "")->call_style();
  };
  EXPECT_FALSE(style_of("").has_value());
  EXPECT_FALSE(style_of(kChatMl).has_value());
  for (const char* jinja : {"{{ messages | tojson }}", "{{ raise_exception('no') }}",
                            "{{ messages[1].tool_calls[0].function.name }}",
                            "{{ messages[1].tool_calls[0].function.arguments.text }}"}) {
    const std::optional<CallStyle> usual = style_of(jinja);
    ASSERT_TRUE(usual.has_value()) << jinja;
    EXPECT_FALSE(usual->replaces_content || usual->has_text_arguments) << jinja;
  }
  const auto of_two = ChatTemplate::Parse(
      {.jinja = kChatMl, .tool_use = "{{ messages | tojson }}", .bos_token = "", .eos_token = ""});
  EXPECT_TRUE(of_two->call_style().has_value());
  // As in DeepSeek-R1's template.
  const std::optional<CallStyle> strict = style_of(
      "{% for m in messages %}{% if m.role == 'assistant' and m.content is none %}"
      "{{ m.tool_calls[0].function.name + ':' + m.tool_calls[0].function.arguments }}"
      "{% else %}{{ m.content }}{% endif %}{% endfor %}");
  ASSERT_TRUE(strict.has_value());
  EXPECT_TRUE(strict->replaces_content && strict->has_text_arguments);
  JsonValue message = {{"role", "assistant"}, {"content", ""}};
  JsonValue function = {{"name", "f"}};
  function["arguments"] = {{"x", {1, "é"}}};
  message["tool_calls"] = JsonValue::array({{{"function", function}}});
  EXPECT_EQ(InCallStyle(message, *strict)->dump(),
            R"({"role":"assistant","content":null,"tool_calls":)"
            R"([{"function":{"name":"f","arguments":"{\"x\": [1, \"é\"]}"}}]})");
  EXPECT_EQ(*InCallStyle(message, CallStyle()), message);
}

TEST(ChatTemplate, RejectsInvalidTemplates) {
  for (const std::string jinja :
       {"a\n{{ messages", "\n{% for x %}", "\n{% nothing %}", "\n{{ 1 + }}"}) {
    const auto chat = ChatTemplate::Parse(jinja, "<s>", "</s>");
    EXPECT_EQ(chat.status().code(), absl::StatusCode::kInvalidArgument) << jinja;
    EXPECT_THAT(std::string(chat.status().message()), testing::StartsWith("chat_template: line 2"))
        << jinja;
  }
  EXPECT_EQ(ChatTemplate::Parse("{% extends 'x' %}", "", "").status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(ChatTemplate, ErrorsSayWhatTheTemplateRejects) {
  EXPECT_THAT(Render(kChatMl, {}), HasSubstr("messages: is empty"));
  EXPECT_THAT(Render(kLlama2, {{"user", "a"}, {"user", "b"}}),
              AllOf(HasSubstr("messages: "), HasSubstr("Roles must alternate user/assistant")));
  EXPECT_THAT(Render("{{ raise_exception('a\nb') }}", kQuestion), HasSubstr("a b (line 1)"));
  EXPECT_THAT(Render("\n{{ messages[0].nope.nope }}", kQuestion),
              AllOf(HasSubstr("messages: "), HasSubstr("line 2: a dict has no \"nope\"")));
  EXPECT_THAT(Render(kChatMl, {{"user", "\xFF"}}), HasSubstr("messages: found bytes that are not"));
  ChatInput input;
  input.messages = {{{"role", 1}}};
  EXPECT_THAT(RenderInput(kChatMl, input), HasSubstr("messages[0].role: is not a string"));
  input.messages = {"Hi"};
  EXPECT_THAT(RenderInput(kChatMl, input), HasSubstr("messages[0]: is not an object"));
  input.messages = nullptr;
  EXPECT_THAT(RenderInput(kChatMl, input), HasSubstr("messages: is not a list"));
  EXPECT_THAT(Render("{{ 'a' * 1000000000000 }}", kQuestion), HasSubstr("50000000 steps"));
}

// ---- Where models keep their templates ----

class TemplateFolder : public TestFolder {
 public:
  std::string Render(bool has_tools = false) const {
    const auto chat = ChatTemplate::Load(path());
    if (!chat.ok()) return std::string(chat.status().message());
    ChatInput input = ChatInputOf(kQuestion, absl::UnixEpoch());
    if (has_tools) input.tools = Json::array({"t"});
    return Joined(chat->Render(input));
  }
};

TEST(ChatTemplateFiles, PreferTheJinjaFile) {
  const TemplateFolder folder;
  folder.Write("chat_template.json", R"({"chat_template": "old"})");
  EXPECT_EQ(folder.Render(), "old");
  folder.Write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(folder.Render(), "config");
  folder.Write("chat_template.jinja", "file");
  EXPECT_EQ(folder.Render(), "file");
  folder.Write("chat_template.jinja", "{{ nope");
  EXPECT_THAT(folder.Render(), HasSubstr("chat_template: line 1: found"));
}

TEST(ChatTemplateFiles, MayHaveATemplateForTools) {
  const TemplateFolder folder;
  folder.Write("tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "tools"},
                                     {"name": "rag", "template": "{{ other"},
                                     {"name": "default", "template": "talk"}]})");
  EXPECT_EQ(folder.Render(), "talk");
  EXPECT_EQ(folder.Render(/*has_tools=*/true), "tools");
  folder.Write("tokenizer_config.json", R"({"chat_template": {"tool_use": "T", "default": "D"}})");
  EXPECT_EQ(folder.Render() + folder.Render(/*has_tools=*/true), "DT");
  folder.Write("tokenizer_config.json", R"({"chat_template": {"x": "T"}})");
  EXPECT_THAT(std::string(ChatTemplate::ReadSource(folder.path()).status().message()),
              HasSubstr("has no template named default"));
  folder.Write("tokenizer_config.json", R"({"chat_template": "talk"})");
  folder.Write("additional_chat_templates/tool_use.jinja", "{{ tools[0] }}!");
  EXPECT_EQ(folder.Render(/*has_tools=*/true), "t!");
  folder.Write("tokenizer_config.json", R"({"chat_template": [{"name": "x", "template": ""}]})");
  EXPECT_THAT(folder.Render(), HasSubstr("has no template named default"));
}

TEST(ChatTemplateFiles, TokensComeFromTwoFiles) {
  const TemplateFolder folder;
  folder.Write("chat_template.jinja",
               "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ unk_token is defined }}");
  folder.Write("special_tokens_map.json",
               R"({"bos_token": "<a>", "eos_token": {"content": "<b>"}, "pad_token": "<c>"})");
  EXPECT_EQ(folder.Render(), "<a>|<b>|<c>|False");
  folder.Write("tokenizer_config.json", R"({"bos_token": null, "eos_token": "<d>"})");
  EXPECT_EQ(folder.Render(), "|<d>|<c>|False");
}

}  // namespace
}  // namespace tandem
