#include "server/attempt.h"

#include "spdlog/spdlog.h"

namespace tandem {

void LogException(const char* what, const std::exception& error) {
  try {
    spdlog::error("failed what=\"{}\" error=\"{}\"", what, error.what());
  } catch (const std::exception&) {
    // There is nowhere left to say it.
  }
}

}  // namespace tandem
