#ifndef TANDEM_BASE_ENVIRONMENT_H_
#define TANDEM_BASE_ENVIRONMENT_H_

#include <cstdlib>
#include <string>

namespace tandem {

// Returns the value of an environment variable; empty if it is not set.
inline std::string EnvironmentVariable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace tandem

#endif  // TANDEM_BASE_ENVIRONMENT_H_
