#include "tools/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "base/output_folder.h"
#include "tandem/json_value.h"

namespace tandem {

void PrepareStandardStreams() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // open() returns the lowest free descriptor, which is `stream`. Standard output is opened
    // read-only, so that printing results fails.
    (void)open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

absl::Status Print(std::string_view text) {
  return WriteAll(STDOUT_FILENO, {text.data(), text.size()}, "standard output");
}

std::string LineOf(const JsonValue& json) {
  constexpr auto kReplace = JsonValue::error_handler_t::replace;
  return json.dump(-1, ' ', /*ensure_ascii=*/false, kReplace) + "\n";
}

absl::Status PrintJson(const JsonValue& json) { return Print(LineOf(json)); }

namespace {

constexpr absl::Duration kQuietTime = absl::Seconds(1);
constexpr int kBarWidth = 30;

}  // namespace

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)),
      total_(total),
      start_(Instant::Now()),
      line_(kQuietTime, [this] { return Text(); }) {
  TANDEM_CHECK(total > 0);
}

std::string Progress::Text() const {
  const double share = static_cast<double>(done_) / static_cast<double>(total_);
  const int filled = static_cast<int>(share * kBarWidth);
  std::string text = Format("%s [%s%s] %.0f %%", label_, std::string(filled, '#'),
                            std::string(kBarWidth - filled, ' '), 100 * share);
  if (share == 0) return text;
  const double seconds = absl::ToDoubleSeconds(Instant::Now() - start_);
  return Format("%s, %.0f s left", text, seconds * (1 / share - 1));
}

}  // namespace tandem
