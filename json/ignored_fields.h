// Fields of requests that this server does not know. Clients and routers add what other servers
// take: such a field has no effect, and both sides are told so.
#ifndef TANDEM_JSON_IGNORED_FIELDS_H_
#define TANDEM_JSON_IGNORED_FIELDS_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace tandem {

// Those of one request, bounded in number and length. Thread-compatible.
class IgnoredFields {
 public:
  static constexpr size_t kMostNames = 16;
  static constexpr size_t kLongestName = 64;

  // `path` as errors have it, "messages[3].mood": places in lists do not count, and what has no
  // place in a header becomes "?".
  void Add(absl::string_view path);
  // In the order of their coming, each once: {"no_stop_trim", "messages[].mood"}.
  const std::vector<std::string>& names() const { return names_; }
  // {{"x-tandem-ignored-fields", "no_stop_trim, messages[].mood"}}, and nothing without any.
  std::vector<std::pair<std::string, std::string>> Headers() const;

 private:
  std::vector<std::string> names_;
  bool is_cut_ = false;  // there were more
};

// What the log is to say of them: each name once, and at some number of them that more are not
// said. Thread-safe.
class IgnoredFieldsLog {
 public:
  static constexpr size_t kMostNames = 256;
  std::vector<std::string> NewLines(const IgnoredFields& fields);

 private:
  absl::Mutex mutex_;
  std::set<std::string> said_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_JSON_IGNORED_FIELDS_H_
