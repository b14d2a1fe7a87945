#include "tools/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "base/output_folder.h"
#include "nlohmann/json.hpp"

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

std::string LineOf(const nlohmann::ordered_json& json) {
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  return json.dump(-1, ' ', /*ensure_ascii=*/false, kReplace) + "\n";
}

absl::Status PrintJson(const nlohmann::ordered_json& json) { return Print(LineOf(json)); }

namespace {

constexpr absl::Duration kQuietTime = absl::Seconds(1);
constexpr absl::Duration kBetweenLines = absl::Milliseconds(100);
constexpr int kBarWidth = 30;

}  // namespace

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)),
      total_(total),
      is_terminal_(isatty(STDERR_FILENO) != 0),
      start_(Instant::Now()) {
  TANDEM_CHECK(total > 0);
}

Progress::~Progress() {
  if (shown_ != Instant()) std::fprintf(stderr, "\r\x1b[K");
}

void Progress::Advance(int64_t steps) {
  done_ = std::min(done_ + steps, total_);
  if (!is_terminal_ || done_ == 0) return;
  const Instant now = Instant::Now();
  if (now - start_ < kQuietTime || now - shown_ < kBetweenLines) return;
  shown_ = now;
  const double share = static_cast<double>(done_) / static_cast<double>(total_);
  const int filled = static_cast<int>(share * kBarWidth);
  const double seconds_left = absl::ToDoubleSeconds(now - start_) * (1 / share - 1);
  std::fprintf(stderr, "\r\x1b[K%s [%s%s] %.0f %%, %.0f s left", label_.c_str(),
               std::string(filled, '#').c_str(), std::string(kBarWidth - filled, ' ').c_str(),
               100 * share, seconds_left);
}

}  // namespace tandem
