#ifndef TANDEM_SERVER_HTTP_MESSAGE_H_
#define TANDEM_SERVER_HTTP_MESSAGE_H_

#include <string>
#include <utility>
#include <vector>

#include "base/instant.h"

namespace tandem {

struct Route;  // server/api/service.cc

// What the server looks at in a request. Of a header that is absent the value is empty.
struct HttpRequest {
  std::string method;
  std::string target;  // as sent
  std::string path;    // of the target, as RequestTarget has it
  std::string host;    // whom it is for, with the port if it is given
  std::string origin;  // of the page that asks, where a browser does
  std::string fetch_site;
  std::string requested_method;   // of what a page means to ask next
  std::string requested_headers;  // likewise
  std::string authorization;
  std::string content_type;
  std::string id{};  // the client's name for it, else the server's; in headers and log
  std::string body{};
  const Route* route = nullptr;  // that the head asks for; null if there is none
  Instant received;              // when its head was read
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";  // empty: there is no body
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers = {};  // beside those of every answer
};

}  // namespace tandem

#endif  // TANDEM_SERVER_HTTP_MESSAGE_H_
