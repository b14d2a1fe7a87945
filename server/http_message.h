#ifndef TANDEM_SERVER_HTTP_MESSAGE_H_
#define TANDEM_SERVER_HTTP_MESSAGE_H_

#include <string>
#include <utility>
#include <vector>

#include "base/instant.h"

namespace tandem {

struct Route;  // server/api/service.cc

// The parts of a request that the server uses. Absent headers are empty.
struct HttpRequest {
  std::string method;
  std::string target;  // as sent
  std::string path;    // of the target, as decoded by RequestTarget
  std::string host;    // the Host header, with its port if given
  std::string origin;  // of the page that sent the request, if a browser sent it
  std::string fetch_site;
  std::string requested_method;   // preflight: the method that the page will use
  std::string requested_headers;  // preflight: the headers that the page will send
  std::string authorization;
  std::string api_key{};  // the header x-api-key
  std::string content_type;
  std::string id{};  // the client's name for the request, else the server's; in headers and log
  // Its address; for IPv6 the first 64 bits, because a client may use all addresses below them.
  std::string client{};
  std::string body{};
  const Route* route = nullptr;  // the route of method and path; null if there is none
  Instant received;              // when the head was read
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";  // empty: no body
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers =
      {};  // in addition to those of every answer
};

}  // namespace tandem

#endif  // TANDEM_SERVER_HTTP_MESSAGE_H_
