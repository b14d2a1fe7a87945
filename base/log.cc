#include "base/log.h"

#include <exception>

#include "base/utf8.h"
#include "spdlog/spdlog.h"

namespace tandem {
namespace {

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

void Log(LogLevel level, std::string_view line) noexcept {
  try {
    const std::shared_ptr<spdlog::logger> logger = spdlog::get("tandem");
    if (logger != nullptr) logger->log(LevelOf(level), "{}", EscapeControls(line));
  } catch (const std::exception&) {  // std::bad_alloc
  }
}

}  // namespace tandem
