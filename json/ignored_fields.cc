#include "json/ignored_fields.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

// "messages[].mood" of "messages[3].mood".
std::string NameOfPath(absl::string_view path) {
  std::string name;
  bool is_in_brackets = false;
  for (const char c : path) {
    if (name.size() == IgnoredFields::kLongestName) break;
    if (c == '[') is_in_brackets = true;
    if (c == ']') is_in_brackets = false;
    if (is_in_brackets && absl::ascii_isdigit(c)) continue;
    const bool is_plain = absl::ascii_isalnum(c) || absl::StrContains("_-.[]$", c);
    name += is_plain ? c : '?';
  }
  return name;
}

}  // namespace

void IgnoredFields::Add(absl::string_view path) {
  std::string name = NameOfPath(path);
  if (std::find(names_.begin(), names_.end(), name) != names_.end()) return;
  if (names_.size() == kMostNames) {
    is_cut_ = true;
    return;
  }
  names_.push_back(std::move(name));
}

std::vector<std::pair<std::string, std::string>> IgnoredFields::Headers() const {
  if (names_.empty()) return {};
  return {{"x-tandem-ignored-fields",
           absl::StrCat(absl::StrJoin(names_, ", "), is_cut_ ? ", ..." : "")}};
}

std::vector<std::string> IgnoredFieldsLog::NewLines(const IgnoredFields& fields) {
  std::vector<std::string> lines;
  absl::MutexLock lock(&mutex_);
  for (const std::string& name : fields.names()) {
    if (said_.size() > kMostNames || !said_.insert(name).second) continue;
    lines.push_back(said_.size() <= kMostNames
                        ? absl::StrCat("ignored field=", name,
                                       " why=\"not known here; --strict-requests refuses such\"")
                        : "ignored fields=many more=\"not said any more\"");
  }
  return lines;
}

}  // namespace tandem
