// Boost.Asio under a short name. Only this file includes it, because Asio 1.74 does not include
// <utility>, and because its coroutines are disabled (CMakeLists.txt).
#ifndef TANDEM_BASE_NET_ASIO_H_
#define TANDEM_BASE_NET_ASIO_H_

#include <utility>

#include "boost/asio.hpp"

namespace tandem {

namespace net = boost::asio;

}  // namespace tandem

#endif  // TANDEM_BASE_NET_ASIO_H_
