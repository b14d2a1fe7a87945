#ifndef TANDEM_SERVER_API_WEB_FILES_H_
#define TANDEM_SERVER_API_WEB_FILES_H_

#include <optional>
#include <string_view>

#include "absl/types/span.h"

namespace tandem {

// A file of server/web/, built into the program (server/CMakeLists.txt).
struct WebFile {
  std::string_view name;
  std::string_view contents;
};
absl::Span<const WebFile> WebFiles();

std::string_view IndexPage();      // index.html
std::string_view DocsPage();       // docs.html
std::string_view OpenApiTables();  // openapi.json

// A style, script or picture of the page, with its Content-Type.
struct PageFile {
  std::string_view contents;
  std::string_view content_type;
};
// Returns nothing if the page has no such file.
std::optional<PageFile> FindPageFile(std::string_view name);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_WEB_FILES_H_
