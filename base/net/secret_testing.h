// For tests: secrets.
#ifndef TANDEM_BASE_NET_SECRET_TESTING_H_
#define TANDEM_BASE_NET_SECRET_TESTING_H_

namespace tandem {

inline constexpr char kTestSecret[] = "0123456789abcdef0123456789abcdef";
inline constexpr char kOtherSecret[] = "fedcba9876543210fedcba9876543210";

}  // namespace tandem

#endif  // TANDEM_BASE_NET_SECRET_TESTING_H_
