// The names and limits of parameters. Tables (engine_parameters.h, sampling_params.h) state each
// once, for every place where users give it: the command line, HTTP, Python, the library.
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
  const char* name;         // of the member, and of Python's keyword
  const char* option = "";  // on the command line, such as "-k,--draft-tokens"; empty for none
  const char* value = "";   // what helps call its value, such as "N"; empty for a flag
  const char* help = "";
  const char* otherwise = "";  // in place of the default in helps
  const char* group = "";      // the heading of helps that it stands under; empty for the usual
  const char* needs = "";      // the option that it goes with; empty for none
};

// The numbers that are allowed: from `low` to `high`, all of them finite.
struct Limits {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool excludes_low = false;
  // A number beyond them that leaves the choice to the engine. Text has `word` for it; without one
  // text leaves the parameter out.
  std::optional<double> unset = std::nullopt;
  const char* word = "";
  bool is_size = false;  // bytes, which text gives as 512M or 2G

  bool Contain(double value) const;
};

// "auto or from 0 to 32", "at least 1", "above 0 and at most 1". `as_text`: as text has them, else
// as numbers have them.
std::string AllowedBy(const Limits& limits, bool as_text = false);

// INVALID_ARGUMENT "`field`: must be <allowed>, got `value`" unless `value` is allowed or unset.
absl::Status CheckWithin(absl::string_view field, double value, const Limits& limits);

// The names that are allowed. An empty text is allowed where it is the default.
struct OneOf {
  std::vector<std::string> names;
};

// INVALID_ARGUMENT "`field`: "`name`" is not one of <names>" unless it is.
absl::Status CheckOneOf(absl::string_view field, absl::string_view name, const OneOf& allowed);

// The name that errors have for a parameter: its option's, "kv_memory" for --kv-memory, else its
// member's.
std::string FieldOf(const Parameter& parameter);

// Limits that several folders share.
inline constexpr int kMaxRanks = 64;                         // of a group of processes
inline constexpr int64_t kMinStoreBytes = int64_t{1} << 20;  // of pages on disk

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_PARAMETER_H_
