// Fuzzes chat templates: the bytes before the first zero are a template, and those after it are the
// text of messages. A template is rejected or makes a prompt in which no text of a message becomes
// a special token, whatever the template does to it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/check.h"
#include "tandem/chat_template.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"
#include "text/chat/jinja/jinja_template.h"
#include "text/chat/jinja/value_text.h"

namespace tandem {
namespace {

// A tokenizer of the letters a and b, and the special tokens of some families.
std::unique_ptr<Tokenizer> MakeTokenizer() {
  constexpr char kFile[] = R"({"added_tokens": [
      {"id": 3, "content": "<|im_start|>", "special": true, "normalized": false},
      {"id": 4, "content": "<|im_end|>", "special": true, "normalized": false},
      {"id": 5, "content": "<s>", "special": true, "normalized": false, "rstrip": true},
      {"id": 6, "content": "</s>", "special": true, "normalized": false, "lstrip": true}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";
  auto tokenizer = Tokenizer::Parse(kFile, "", "fuzz");
  TANDEM_CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

// Templates that change the text of messages in the ways that published templates do.
constexpr const char* kTemplates[] = {
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
    "{% for m in messages %}{{ '<|im_start|>' + m.content.split('</think>')[-1].strip('\n') }}"
    "{% endfor %}",
    "{{ bos_token }}{% for m in messages %}{{ '[INST] ' ~ m.content | trim ~ ' [/INST]' }}"
    "{% endfor %}{{ eos_token }}",
    "{{ messages | tojson }}{{ messages | tojson(indent=2) }}{{ messages }}</s>",
    "{% for m in messages %}{{ (m.content | upper)[::-1] }}{{ m.content[1:-1] | title }}"
    "{{ m.content.replace('a', '<s>') | indent }}{% endfor %}",
    "{% for m in messages %}{{ '%s|%9s' % (m.content, m.content) }}{{ '{}'.format(m.content) }}"
    "{{ m.content.splitlines() | join('</s>') }}{% for c in m.content %}{{ c }}{% endfor %}"
    "{% endfor %}",
    ""};

size_t NumSpecial(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  size_t count = 0;
  for (const TokenId id : ids) count += tokenizer.IsSpecial(id);
  return count;
}

void Exercise(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::string& words) {
  const std::vector<std::vector<ChatMessage>> talks = {
      {{"user", words}},
      {{"system", words}, {"user", words}, {"assistant", words}, {"user", words}}};
  for (const std::vector<ChatMessage>& messages : talks) {
    const auto parts = chat.Render(ChatInputOf(messages, absl::UnixEpoch()));
    if (!parts.ok()) continue;
    const auto ids = tokenizer.EncodeMarked(*parts);
    if (!ids.ok()) continue;
    size_t expected = 0;
    for (const MarkedText& part : *parts) {
      if (part.special != SpecialTokens::kParse) continue;
      expected += NumSpecial(tokenizer, *tokenizer.Encode(part.text, SpecialTokens::kParse));
    }
    TANDEM_CHECK(NumSpecial(tokenizer, *ids) == expected);
  }
}

void FuzzOne(std::string_view input) {
  static const std::unique_ptr<Tokenizer> tokenizer = MakeTokenizer();
  const size_t end = std::min(input.find('\0'), input.size());
  const std::string words(input.substr(std::min(end + 1, input.size())));
  const auto any = jinja::Template::Parse(input.substr(0, end));
  const auto messages = jinja::FromJson(
      SortedJson::array({{{"role", "user"}, {"content", words}, {"tool_calls", {1, 2.5}}}}));
  if (any.ok() && messages.ok()) {
    // Low limits, so that every input takes about as long.
    const jinja::Limits limits{.steps = 200'000, .output_bytes = 1 << 20, .memory_bytes = 4 << 20};
    const auto render = [&] {
      return any->Render({{"messages", *messages}}, absl::UnixEpoch(), limits);
    };
    const absl::StatusOr<jinja::MarkedText> text = render();
    const absl::StatusOr<jinja::MarkedText> again = render();
    TANDEM_CHECK(text.status() == again.status());
    if (text.ok()) {
      TANDEM_CHECK(text->text() == again->text() && text->size() <= limits.output_bytes);
    } else {
      TANDEM_CHECK(absl::IsInvalidArgument(text.status()) ||
                   absl::IsResourceExhausted(text.status()) ||
                   absl::IsUnimplemented(text.status()));
    }
  }
  if (!any.ok()) TANDEM_CHECK(any.status().message().size() < 2000);
  for (const char* jinja : kTemplates) {
    const auto chat = ChatTemplate::Parse(jinja, "<s>", "</s>");
    TANDEM_CHECK(chat.ok());
    Exercise(*chat, *tokenizer, words);
  }
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
