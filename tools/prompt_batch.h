#ifndef TANDEM_TOOLS_PROMPT_BATCH_H_
#define TANDEM_TOOLS_PROMPT_BATCH_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tandem/answer_reader.h"
#include "tandem/engine.h"
#include "tools/prompt_file.h"

namespace tandem {

// Prompts that are with the engine together, which must have room for them: `batch` that run, and
// some that may end before one that writes on, so that the engine has work all the while; with a
// comparison all, since it is of all at once.
int MostPromptsBegun(int batch, bool compare);

struct PromptBatchOptions {
  std::string file;  // for errors
  Request base;      // the fields of all requests except their prompts
  int batch = 8;     // prompts at a time
  bool compare = false;
  bool json = false;
  // Makes each request a turn of a chat before it begins, if set, and says how its answer is read;
  // its error becomes that of the prompt.
  using PutTurn = std::function<absl::StatusOr<AnswerReader::Options>(Request*)>;
  PutTurn put_turn;
  // An engine's error in the words of the command line, if they are others.
  std::function<absl::Status(const absl::Status&)> in_its_names;
};

// Runs all prompts of `reader` and prints what became of each, in their order and as soon as it and
// all before it have ended; a comparison is of all together, and JSON that has one comes at the
// end. A prompt that cannot be read, is refused or fails is reported in its place, on standard
// error and as {"error": ..., "line": ...} in JSON; the others go on, and it is the error at the
// end.
absl::Status RunPromptBatch(const PromptBatchOptions& options, PromptReader* reader,
                            Engine* engine);

}  // namespace tandem

#endif  // TANDEM_TOOLS_PROMPT_BATCH_H_
