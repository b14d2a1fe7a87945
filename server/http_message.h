#ifndef TANDEM_SERVER_HTTP_MESSAGE_H_
#define TANDEM_SERVER_HTTP_MESSAGE_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {

// What the server looks at in a request.
struct HttpRequest {
  std::string method;
  std::string target;         // path and query, as sent
  std::string authorization;  // the header's value
  std::string body;

  std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};  // beside those of every answer
};

}  // namespace tandem

#endif  // TANDEM_SERVER_HTTP_MESSAGE_H_
