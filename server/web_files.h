#ifndef TANDEM_SERVER_WEB_FILES_H_
#define TANDEM_SERVER_WEB_FILES_H_

#include <string_view>

namespace tandem {

// The files of server/web/, built into the program (server/CMakeLists.txt).
std::string_view IndexPage();        // index.html
std::string_view OpenApiDocument();  // openapi.json

}  // namespace tandem

#endif  // TANDEM_SERVER_WEB_FILES_H_
