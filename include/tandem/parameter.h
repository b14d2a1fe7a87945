// The names and limits of parameters. The tables in engine_parameters.h and sampling_params.h
// define each parameter once, for the command line, HTTP, Python and the library.
#ifndef TANDEM_INCLUDE_TANDEM_PARAMETER_H_
#define TANDEM_INCLUDE_TANDEM_PARAMETER_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem {

struct Parameter {
  const char* name;         // of the member and of the Python keyword
  const char* option = "";  // on the command line, such as "-k,--draft-tokens"; empty for none
  const char* value = "";   // placeholder in help texts, such as "N"; empty for a flag
  const char* help = "";
  const char* otherwise = "";  // shown in help texts in place of the default
  const char* group = "";      // heading in help texts; empty for the first
  const char* needs = "";      // the option that it requires; empty for none
};

// The allowed numbers: finite, from `low` to `high`.
struct Limits {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool excludes_low = false;
  // A number outside the limits that leaves the choice to the engine. Text spells it `word`; if
  // `word` is empty, text omits the parameter.
  std::optional<double> unset = std::nullopt;
  const char* word = "";
  bool is_size = false;  // bytes, which text writes as 512M or 2G

  bool Contain(double value) const;
};

// Describes the limits: "auto or from 0 to 32", "at least 1", "above 0 and at most 1". `as_text`:
// for values written as text, else for numbers.
std::string AllowedBy(const Limits& limits, bool as_text = false);
// The same for an error about the number `found`: "finite and at least 1" if an infinity or NaN
// would otherwise seem to be allowed.
std::string AllowedInPlaceOf(double found, const Limits& limits, bool as_text = false);

// INVALID_ARGUMENT "`field`: must be <allowed>, got `value`" unless `value` is allowed or unset.
absl::Status CheckWithin(absl::string_view field, double value, const Limits& limits);

// The allowed names. An empty text is allowed where it is the default.
struct OneOf {
  std::vector<std::string> names;
};

// INVALID_ARGUMENT "`field`: "`name`" is not one of <names>" unless `name` is allowed.
absl::Status CheckOneOf(absl::string_view field, absl::string_view name, const OneOf& allowed);

// The name of a parameter in errors: that of its option ("kv_memory" for --kv-memory), else that of
// its member.
std::string FieldOf(const Parameter& parameter);

// Limits that several folders share.
inline constexpr int kMaxRanks = 64;                         // in a group of processes
inline constexpr int64_t kMinStoreBytes = int64_t{1} << 20;  // of page storage on disk

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_PARAMETER_H_
