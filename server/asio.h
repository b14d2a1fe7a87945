// Boost.Asio and Beast under short names. Only this file includes Beast, which needs <utility>
// before Asio (base/net/asio.h).
#ifndef TANDEM_SERVER_ASIO_H_
#define TANDEM_SERVER_ASIO_H_

#include <utility>

#include "base/net/asio.h"
#include "boost/beast/core.hpp"
#include "boost/beast/http.hpp"

namespace tandem {

namespace beast = boost::beast;
namespace http = boost::beast::http;

}  // namespace tandem

#endif  // TANDEM_SERVER_ASIO_H_
