#ifndef TANDEM_BASE_LOG_H_
#define TANDEM_BASE_LOG_H_

#include <string_view>

namespace tandem {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Logs `line`, after EscapeControls (utf8.h), with the spdlog logger that is registered as
// "tandem", for example by spdlog::stderr_color_mt("tandem"). Does nothing without such a logger,
// or without the memory for the line. Thread-safe.
void Log(LogLevel level, std::string_view line) noexcept;

}  // namespace tandem

#endif  // TANDEM_BASE_LOG_H_
