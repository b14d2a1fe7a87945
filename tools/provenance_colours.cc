#include "tools/provenance_colours.h"

#include <unistd.h>

#include "absl/strings/ascii.h"
#include "base/environment.h"

namespace tandem {
namespace {

constexpr char kGreen[] = "\x1b[32m";
constexpr char kDim[] = "\x1b[2m";
constexpr char kPlain[] = "\x1b[0m";

}  // namespace

bool StandardOutputTakesColours() {
  return isatty(STDOUT_FILENO) != 0 && EnvironmentVariable("NO_COLOR").empty() &&
         EnvironmentVariable("TERM") != "dumb";
}

void ProvenanceColours::Paint(std::string_view text, Ink ink, std::string* out) {
  if (ink != ink_) {
    if (ink_ != Ink()) *out += kPlain;
    if (ink.is_dim) *out += kDim;
    if (ink.is_drafted) *out += kGreen;
    ink_ = ink;
  }
  for (const char c : text) {
    if (!absl::ascii_iscntrl(static_cast<unsigned char>(c)) || c == '\n' || c == '\t') *out += c;
  }
}

}  // namespace tandem
