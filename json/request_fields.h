// Fields of requests that this server does not know. Clients and routers add what other servers
// take: such a field has no effect, and both sides are told so.
#ifndef TANDEM_JSON_REQUEST_FIELDS_H_
#define TANDEM_JSON_REQUEST_FIELDS_H_

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
#include "tandem/json_value.h"
#include "tandem/parameter.h"

namespace tandem {

// Those of one request, bounded in number and length. Thread-compatible.
class IgnoredFields {
 public:
  static constexpr size_t kMaxNames = 16;
  static constexpr size_t kLongestName = 64;

  // `path` as errors have it, "messages[3].mood". Indices are dropped, and characters that a header
  // cannot hold become "?".
  void Add(absl::string_view path);
  // In the order of their coming, each once: {"no_stop_trim", "messages[].mood"}.
  const std::vector<std::string>& names() const { return names_; }
  // {{"x-tandem-ignored-fields", "no_stop_trim, messages[].mood"}}, and nothing without any.
  std::vector<std::pair<std::string, std::string>> Headers() const;

 private:
  std::vector<std::string> names_;
  bool is_cut_ = false;  // there were more
};

// The log lines about them: each name once, and at some number of names one line that no more are
// logged. Thread-safe.
class IgnoredFieldsLog {
 public:
  static constexpr size_t kMaxNames = 256;
  std::vector<std::string> NewLines(const IgnoredFields& fields);

 private:
  absl::Mutex mutex_;
  std::set<std::string> said_ ABSL_GUARDED_BY(mutex_);
};

// An integer of 64 bits, also one written as 5.0 or 5e0, if `json` is one; negative ones as
// two's complement. Clients whose language has one kind of number write it so.
struct JsonInteger {
  uint64_t bits = 0;
  bool is_negative = false;
  // Whether it is from `low` to `high`.
  bool IsWithin(int64_t low, int64_t high) const;
};
std::optional<JsonInteger> AsJsonInteger(const JsonValue& json);

// Reads the members of a JSON object one by one, each optional, null for absent. Remembers the
// first error, which names the field, what was given and what is allowed. The object must outlive
// it. Thread-compatible.
class RequestFields {
 public:
  // `path`: the object's own field, empty for the whole request. INVALID_ARGUMENT is remembered if
  // `object` is none. What nobody asks for goes to `ignored`, or is an error if that is null.
  RequestFields(const JsonValue* object, std::string path, IgnoredFields* ignored = nullptr);

  // The member if there is one and it is not null; it counts as read.
  const JsonValue* Find(absl::string_view name);

  // Each leaves `value` as it is without the member, or if it is wrong.
  void Read(absl::string_view name, bool* value);
  void Read(absl::string_view name, int* value, const Limits& limits);
  void Read(absl::string_view name, std::optional<int>* value, const Limits& limits);
  void Read(absl::string_view name, float* value, const Limits& limits = {});
  void Read(absl::string_view name, std::string* value);
  // Any integer of 64 bits; negative ones as two's complement. Here and above 1.0 is 1.
  void Read(absl::string_view name, std::optional<uint64_t>* value);

  // Fields of OpenAI's that are known but not served: an error unless null or one of `neutral`.
  void AllowOnly(absl::string_view name, std::initializer_list<JsonValue> neutral);
  // Fields that carry nothing for a server of one's own.
  void Ignore(absl::string_view name) { Find(name); }

  // A field that is known and read, but changes nothing here: counts as one that is not known.
  void Disregard(absl::string_view name, absl::string_view why);

  // "path.name".
  std::string PathOf(absl::string_view name) const;
  // Remembers INVALID_ARGUMENT "path.name: must be <allowed>, got <found>".
  void FailBeyond(absl::string_view name, const JsonValue& found, absl::string_view allowed);
  // Remembers INVALID_ARGUMENT "path.name: <found> is not <allowed>".
  void FailNot(absl::string_view name, const JsonValue& found, absl::string_view allowed);
  void Fail(absl::Status status);  // unless something failed before

  bool ok() const { return status_.ok(); }
  // The first error; of fields that were not asked for, if there is no other.
  absl::Status Finish();

  // Where members that nobody asks for go; null if they are errors. For objects within this one.
  IgnoredFields* ignored() const { return ignored_; }

 private:
  std::string path_;
  const JsonValue* object_;
  IgnoredFields* ignored_;
  std::vector<std::string> known_;
  absl::Status status_;
};

}  // namespace tandem

#endif  // TANDEM_JSON_REQUEST_FIELDS_H_
