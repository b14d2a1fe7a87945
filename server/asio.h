// Boost.Asio and Beast under short names. The only file that includes them, because Asio 1.74
// leaves out <utility>, and because its coroutines are turned off (server/CMakeLists.txt).
#ifndef TANDEM_SERVER_ASIO_H_
#define TANDEM_SERVER_ASIO_H_

#include <utility>

#include "boost/asio.hpp"
#include "boost/beast/core.hpp"
#include "boost/beast/http.hpp"

namespace tandem {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

}  // namespace tandem

#endif  // TANDEM_SERVER_ASIO_H_
