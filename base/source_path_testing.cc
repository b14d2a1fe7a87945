#include "base/source_path_testing.h"

namespace tandem {

std::string SourcePath(std::string_view path) {
  std::string whole = TANDEM_SOURCE_DIR;
  if (!path.empty()) whole.append("/").append(path);
  return whole;
}

}  // namespace tandem
