// Boost.Asio and Beast under short names. Only this file includes Beast, and only folders with
// HTTP include it. Beast needs <utility> before Asio (base/net/asio.h).
#ifndef TANDEM_BASE_NET_BEAST_H_
#define TANDEM_BASE_NET_BEAST_H_

#include <utility>

#include "base/net/asio.h"
#include "boost/beast/core.hpp"
#include "boost/beast/http.hpp"

namespace tandem {

namespace beast = boost::beast;
namespace http = boost::beast::http;

}  // namespace tandem

#endif  // TANDEM_BASE_NET_BEAST_H_
