// Boost.Asio and Beast under short names. Only this file includes them, because Asio 1.74 does not
// include <utility>, and because its coroutines are disabled (server/CMakeLists.txt).
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
