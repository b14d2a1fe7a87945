#include <tandem/answer_reader.h>
#include <tandem/chat_answer.h>
#include <tandem/chat_template.h>
#include <tandem/engine.h>
#include <tandem/tokenizer.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace

// Runs one turn of a conversation: streams the answer, with the reasoning in parentheses, and
// cancels it after a number of tokens:
//   chat TARGET_FOLDER DRAFT_FOLDER MESSAGE MOST_TOKENS
int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::size_t max_tokens = std::stoul(argv[4]);
  auto engine = tandem::Engine::Create({.target = argv[1], .draft = argv[2]});
  if (!engine.ok()) return Fail(engine.status());
  const tandem::Tokenizer& tokenizer = (*engine)->tokenizer();

  // Special tokens are not parsed, so that a message cannot imitate the template.
  const auto message = tokenizer.Encode(argv[3], tandem::SpecialTokens::kPlain);
  if (!message.ok()) return Fail(message.status());
  const auto chat = tandem::ChatTemplate::Load((*engine)->target_info().path);
  if (!chat.ok()) return Fail(chat.status());
  const std::vector<tandem::ChatMessage> messages = {{.role = "user", .content = argv[3]}};
  const tandem::ChatInput input = tandem::ChatInputOf(messages, absl::Now());
  const auto prompt = tandem::EncodeChat(*chat, tokenizer, input);
  if (!prompt.ok()) return Fail(prompt.status());
  const auto answer_of = tandem::ChatAnswer::Of(*chat, tokenizer, input, *prompt);
  if (!answer_of.ok()) return Fail(answer_of.status());
  std::printf("message: %zu tokens, prompt: %zu\n", message->size(), prompt->size());

  tandem::AnswerReader reader(answer_of->reading);
  const auto print = [](const tandem::AnswerDelta& delta) {
    if (!delta.reasoning.empty()) std::printf("(%s)", delta.reasoning.c_str());
    std::fwrite(delta.content.data(), 1, delta.content.size(), stdout);
  };
  std::size_t num_tokens = 0;
  const auto id = (*engine)->Submit(
      {.prompt_ids = *prompt,
       .time_limit = absl::Seconds(60),
       .thinking_budget = answer_of->thinking_budget,
       .stop_tokens = tandem::EndTokenIds(*chat, tokenizer),
       .shown_special_tokens = answer_of->shown_special_tokens},
      [&](const tandem::Piece& piece) {
        print(reader.Push(piece.text));
        num_tokens += piece.token_ids.size();
        return num_tokens < max_tokens;  // false ends it here; Engine::Cancel works from any thread
      });
  if (!id.ok()) return Fail(id.status());
  for (;;) {
    const auto answer = (*engine)->Wait(*id, absl::Milliseconds(100));
    if (absl::IsDeadlineExceeded(answer.status())) continue;  // do other work here
    if (!answer.ok()) return Fail(answer.status());
    print(reader.Finish());
    std::printf("\nanswer: %zu tokens, ended by %s\n", answer->token_ids.size(),
                std::string(tandem::NameOf(answer->finish_reason)).c_str());
    return 0;
  }
}
