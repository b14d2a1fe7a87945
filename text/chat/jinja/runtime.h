// The limits and state of a rendering, and the declaration of the functions that templates call.
#ifndef TANDEM_TEXT_CHAT_JINJA_RUNTIME_H_
#define TANDEM_TEXT_CHAT_JINJA_RUNTIME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "text/chat/jinja/text_tools.h"
#include "text/chat/jinja/value.h"

namespace tandem::jinja {

// The limits of a rendering, so that no template and no message keeps a thread busy or fills
// memory.
struct Limits {
  // One step is an expression or statement evaluated, or an element or 16 bytes of a string made or
  // read. The default takes a few seconds; published templates need a million steps for a thousand
  // messages.
  size_t steps = 50'000'000;
  size_t output_bytes = size_t{64} << 20;
  // Memory held at once by all values and texts that the rendering makes.
  size_t memory_bytes = size_t{256} << 20;
  int call_depth = 400;              // nesting of expressions, statements, macros and filters
  int value_depth = 100;             // nesting of lists, dictionaries and objects
  size_t value_weight = 10'000'000;  // elements of one value, those of inner values included
};

// The state of a rendering. Thread-compatible.
struct Runtime {
  Limits limits;
  absl::Time now;
  size_t steps_left = limits.steps;
  bool is_raised = false;  // whether the template raised the error itself
  int depth = 0;           // nesting of calls
  MemoryMeter memory = {};

  // Uses up `steps`. RESOURCE_EXHAUSTED if fewer are left, or if too much memory is held.
  absl::Status Charge(size_t steps);
  // Call before making or reading `bytes` bytes. Also RESOURCE_EXHAUSTED if they do not fit in the
  // memory that is left.
  absl::Status ChargeBytes(size_t bytes);
  // Only checks the memory, and uses no steps.
  absl::Status CheckRoom(size_t bytes) const;
  size_t room() const;  // bytes of memory left
  // Called around calls that may nest. RESOURCE_EXHAUSTED if they nest too deep.
  absl::Status Enter();
  void Leave() { --depth; }
};

// The memory of a string of one character as an element of a list.
inline constexpr size_t kElementBytes = sizeof(MarkedText) + sizeof(Value) + 64;

// A built-in filter, test, method or function.
struct Builtin {
  using Run = absl::StatusOr<Value> (*)(Runtime*, const Value& self, const Arguments&);
  static constexpr int kAny = -1;  // as num_required: `run` checks the arguments itself

  std::string_view name;
  Run run = nullptr;
  int num_required = 0;
  // The names of the parameters. `run` gets a value for each by position, undefined if absent.
  std::array<std::string_view, 4> parameters = {};
};

// Checks the arguments and calls `builtin`. INVALID_ARGUMENT if there are too few or too many.
absl::StatusOr<Value> CallBuiltin(Runtime* runtime, const Builtin& builtin, const Value& self,
                                  const Arguments& arguments);
// Returns null if no builtin of the table has the name.
const Builtin* FindBuiltin(absl::Span<const Builtin> table, std::string_view name);

// Look up a builtin in the table of its source file; null if it has no such name.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindSequenceFilter(std::string_view name);  // filters of lists, objects and texts
const Builtin* FindTest(std::string_view name);
const Builtin* FindFunction(std::string_view name);    // `range` and so on
const Builtin* FindTextMethod(std::string_view name);  // of strings
const Builtin* FindDictMethod(std::string_view name);  // of dictionaries
const Builtin* FindListMethod(std::string_view name);  // of lists and tuples

// Returns a builtin as a value: a function, or a method of `self`.
Value Callable(const Builtin* builtin, Value self);

// ---- Arguments and operations ----

// Returns the integer `value`, or `otherwise` if it is undefined. INVALID_ARGUMENT for other types.
absl::StatusOr<int64_t> IntegerOr(const Value& value, int64_t otherwise, std::string_view name);
absl::StatusOr<const MarkedText*> TextArgument(const Value& value, std::string_view name);
// Returns the name in quotes, cut to 64 bytes, for messages that are stored in values.
std::string Shortened(std::string_view name);
// Call before searching `text` for `what`, which may read each byte of `text` what.size() times.
absl::Status ChargeSearch(Runtime* runtime, const MarkedText& text, const MarkedText& what);
// Returns the values that a loop over `value` visits: elements, keys or characters; none for an
// undefined value.
absl::StatusOr<std::vector<Value>> Elements(Runtime* runtime, const Value& value);
// Return value.name and value[key]; an undefined value with a reason if it does not exist.
absl::StatusOr<Value> GetAttribute(const Value& value, std::string_view name);
absl::StatusOr<Value> GetItem(Runtime* runtime, const Value& value, const Value& key);
// Returns value[start:stop:step]. Omitted bounds are none or undefined.
absl::StatusOr<Value> GetSlice(Runtime* runtime, const Value& value, const Value& start,
                               const Value& stop, const Value& step);
// Returns whether a comparison holds: "==", "!=", "<", "<=", ">", ">=", "in", "not in".
absl::StatusOr<bool> Compare(Runtime* runtime, std::string_view operation, const Value& a,
                             const Value& b);
// Returns the result of an operation: "+", "-", "*", "/", "//", "%", "**".
absl::StatusOr<Value> Calculate(Runtime* runtime, std::string_view operation, const Value& a,
                                const Value& b);
// Python's `format % values`.
absl::StatusOr<Value> FormatPercent(Runtime* runtime, const MarkedText& format,
                                    const Value& values);

// Pads a text to `width` characters with `fill`, which is one character, on the given sides.
// Padding both sides works like str.center.
absl::StatusOr<Value> PadText(Runtime* runtime, const MarkedText& text, int64_t width,
                              const MarkedText& fill, Sides sides);

// Python's format.format(arguments), with fields {}, {0} and {name}, and formats
// [[fill]align][sign][#][0][width][grouping][.precision][type]. UNIMPLEMENTED for other formats.
absl::StatusOr<Value> FormatBraces(Runtime* runtime, const MarkedText& format,
                                   const Arguments& arguments);

}  // namespace tandem::jinja

#endif  // TANDEM_TEXT_CHAT_JINJA_RUNTIME_H_
