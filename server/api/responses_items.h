#ifndef TANDEM_SERVER_API_RESPONSES_ITEMS_H_
#define TANDEM_SERVER_API_RESPONSES_ITEMS_H_

#include <string>

#include "json/request_fields.h"
#include "tandem/json_value.h"

namespace tandem {

// Makes messages of the items of a conversation as OpenAI's Responses API has them: what an
// assistant thought, said and called in one turn comes as items, and is one message.
// Thread-compatible.
class ResponsesItemReader {
 public:
  // Errors are remembered by `fields`. Both must outlive it.
  ResponsesItemReader(RequestFields* fields, JsonValue* messages)
      : fields_(fields), messages_(messages) {}

  // The next item: a message, or one of type function_call, function_call_output or reasoning.
  // Errors call it `path`.
  void Read(const JsonValue& item, const std::string& path);
  // Behind the last item.
  void Finish() { FlushReasoning(); }

 private:
  void ReadMessageItem(const JsonValue& item, const std::string& path);
  void ReadCall(RequestFields* item);
  void ReadOutput(RequestFields* item);
  void ReadReasoning(RequestFields* item);
  // Begins a message of the assistant's, with what it thought.
  JsonValue& BeginTurn();
  // What was thought and led to nothing is a message of its own.
  void FlushReasoning();

  RequestFields* fields_;
  JsonValue* messages_;
  std::string reasoning_{};  // in front of the next item
  bool is_in_turn_ = false;  // the last message is one that calls may be added to
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_RESPONSES_ITEMS_H_
