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

// Returns how many prompts the engine may hold at the same time. These are `batch` that run, and
// some more, so that the engine stays busy if later prompts end before an earlier one. A comparison
// runs all prompts at once.
int MostPromptsBegun(int batch, bool compare);

struct PromptBatchOptions {
  std::string file;  // for errors
  Request base;      // the fields of all requests except their prompts
  int batch = 8;     // prompts at a time
  bool compare = false;
  bool json = false;
  // If set, turns each request into a turn of a chat before it begins, and returns the options for
  // reading its answer. An error becomes the result of the prompt.
  using PutTurn = std::function<absl::StatusOr<AnswerReader::Options>(Request*)>;
  PutTurn put_turn;
  // If set, called once, before the first prompt that is text begins.
  std::function<void()> on_first_text;
  // If set, returns an engine's error with the names of command-line options.
  std::function<absl::Status(const absl::Status&)> in_its_names;
};

// Runs all prompts of `reader` and prints each result, in order, as soon as it and all earlier ones
// have ended. A comparison covers all prompts together; JSON with a comparison is printed at the
// end. A prompt that cannot be read, is rejected or fails is reported in its place, on standard
// error and as {"error": ..., "line": ...} in JSON. The other prompts continue, and the function
// returns an error at the end.
absl::Status RunPromptBatch(const PromptBatchOptions& options, PromptReader* reader,
                            Engine* engine);

}  // namespace tandem

#endif  // TANDEM_TOOLS_PROMPT_BATCH_H_
