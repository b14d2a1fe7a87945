// For tests: where the sources are. Only this library's commands name the folder, so that the
// commands of tests are the same in every checkout.
#ifndef TANDEM_BASE_SOURCE_PATH_TESTING_H_
#define TANDEM_BASE_SOURCE_PATH_TESTING_H_

#include <string>
#include <string_view>

namespace tandem {

// The path of `path`, relative to the root of the sources; of the root if it is empty.
std::string SourcePath(std::string_view path);

}  // namespace tandem

#endif  // TANDEM_BASE_SOURCE_PATH_TESTING_H_
