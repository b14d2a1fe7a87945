// Reads the fields of requests. Clients and routers send fields of other servers, which are unknown
// here: such a field has no effect, and the answer's headers and the log name it.
#ifndef TANDEM_BASE_JSON_REQUEST_FIELDS_H_
#define TANDEM_BASE_JSON_REQUEST_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "tandem/json_value.h"
#include "tandem/parameter.h"

namespace tandem {

// The unknown fields of one request, bounded in number and length. Thread-compatible.
class IgnoredFields {
 public:
  static constexpr size_t kMaxNames = 16;
  static constexpr size_t kLongestName = 64;

  // Adds a field by its path in error messages, "messages[3].mood". Drops the indices, and replaces
  // characters that a header cannot hold with "?".
  void Add(absl::string_view path);
  // Returns the distinct names in order of arrival: {"no_stop_trim", "messages[].mood"}.
  const std::vector<std::string>& names() const { return names_; }
  // Returns {{"x-tandem-ignored-fields", "no_stop_trim, messages[].mood"}}, or nothing if no field
  // was ignored.
  std::vector<std::pair<std::string, std::string>> Headers() const;

 private:
  std::vector<std::string> names_;
  bool is_cut_ = false;  // more than kMaxNames were added
};

// Produces the log lines about ignored fields. Each name is logged once. After kMaxNames names, one
// last line says that further names are not logged. Thread-safe.
class IgnoredFieldsLog {
 public:
  static constexpr size_t kMaxNames = 256;
  std::vector<std::string> NewLines(const IgnoredFields& fields);

 private:
  absl::Mutex mutex_;
  std::set<std::string> said_ ABSL_GUARDED_BY(mutex_);
};

// Returns INVALID_ARGUMENT "field: is required, allowed: <allowed>".
absl::Status MissingField(absl::string_view field, absl::string_view allowed);

// Reads the members of a JSON object one by one. Each is optional, and null counts as absent.
// Remembers the first error, which names the field, the value given and the values allowed. The
// object must outlive it. Thread-compatible.
class RequestFields {
 public:
  // `path` is the field that holds the object, or empty for the whole request. Remembers
  // INVALID_ARGUMENT if `object` is not an object. Members that are never read are added to
  // `ignored`, or are errors if it is null.
  RequestFields(const JsonValue* object, std::string path, IgnoredFields* ignored = nullptr);

  // Returns the member, or null if it is absent or null. Marks it as read.
  const JsonValue* Find(absl::string_view name);

  // Each Read() leaves `value` unchanged if the member is absent or wrong.
  void Read(absl::string_view name, bool* value);
  void Read(absl::string_view name, int* value, const Limits& limits);
  void Read(absl::string_view name, std::optional<int>* value, const Limits& limits);
  void Read(absl::string_view name, float* value, const Limits& limits = {});
  void Read(absl::string_view name, std::string* value);
  // Reads any 64-bit integer; negative ones as two's complement. Here and above, 1.0 counts as 1.
  void Read(absl::string_view name, std::optional<uint64_t>* value);

  // For fields that are known but not served: an error unless null or one of `neutral`. `instead`
  // is the field to use in its place, if there is one.
  void AllowOnly(absl::string_view name, absl::Span<const JsonValue> neutral,
                 absl::string_view instead = "");
  void AllowOnly(absl::string_view name, std::initializer_list<JsonValue> neutral) {
    AllowOnly(name, absl::Span<const JsonValue>(neutral.begin(), neutral.size()));
  }
  // For fields that have no meaning on a self-hosted server.
  void Ignore(absl::string_view name) { Find(name); }

  // Treats a field that is known, but has no effect here, like an unknown field.
  void TreatAsUnknown(absl::string_view name, absl::string_view why);

  // Returns whether Find() was called with this name, by itself or by a Read().
  bool IsKnown(absl::string_view name) const;
  // Returns the members, in their order, for which that is not so.
  std::vector<std::string> UnknownMembers() const;

  // "path.name".
  std::string PathOf(absl::string_view name) const;
  // Remembers INVALID_ARGUMENT "path.name: must be <allowed>, got <found>".
  void FailBeyond(absl::string_view name, const JsonValue& found, absl::string_view allowed);
  // Remembers INVALID_ARGUMENT "path.name: <found> is not <allowed>", or MissingField if `found` is
  // null or "" because the member is absent or null.
  void FailNot(absl::string_view name, const JsonValue& found, absl::string_view allowed);
  void Fail(absl::Status status);  // unless an earlier error is remembered

  bool ok() const { return status_.ok(); }
  // Returns the first error. Unread members count as errors only after all others.
  absl::Status Finish();

  // Receives unread members; null if they are errors. Pass it to the RequestFields of nested
  // objects.
  IgnoredFields* ignored() const { return ignored_; }

 private:
  std::string path_;
  const JsonValue* object_;
  IgnoredFields* ignored_;
  std::vector<std::string> known_;
  absl::Status status_;
};

}  // namespace tandem

#endif  // TANDEM_BASE_JSON_REQUEST_FIELDS_H_
