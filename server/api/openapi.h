#ifndef TANDEM_SERVER_API_OPENAPI_H_
#define TANDEM_SERVER_API_OPENAPI_H_

#include <string>

namespace tandem {

// Returns the document of GET /openapi.json: server/web/openapi.json, in which a field of several
// requests is described once, with the numbers of VisitSamplingParams and the KnownFields.
const std::string& OpenApiDocument();

}  // namespace tandem

#endif  // TANDEM_SERVER_API_OPENAPI_H_
