// What a rendering may use, and what the functions that templates call are given and declared as.
#ifndef TANDEM_CHAT_JINJA_RUNTIME_H_
#define TANDEM_CHAT_JINJA_RUNTIME_H_

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
#include "chat/jinja/text_tools.h"
#include "chat/jinja/value.h"

namespace tandem::jinja {

// What a rendering may use, so that no template and no words keep a thread busy or fill the memory.
struct Limits {
  // Expressions and statements done, elements and 16 bytes of strings made or looked at, a step
  // each. Some seconds; a thousand messages take the templates that are published one million.
  size_t steps = 50'000'000;
  size_t output_bytes = size_t{64} << 20;
  // Held at once by all values and texts that the rendering makes.
  size_t memory_bytes = size_t{256} << 20;
  int call_depth = 400;   // of expressions, statements, macros and filters inside one another
  int value_depth = 100;  // of lists, dictionaries and objects inside one another
  size_t value_weight = 10'000'000;  // elements of one value, all that is inside counted
};

// What goes along with a rendering.
struct Runtime {
  Limits limits;
  absl::Time now;
  size_t steps_left = limits.steps;
  bool is_raised = false;  // the error is one that the template raised itself
  int depth = 0;           // of calls
  MemoryMeter memory = {};

  // RESOURCE_EXHAUSTED if fewer than so many steps are left, or too much memory is held.
  absl::Status Charge(size_t steps);
  // To be called before so many bytes are made or read: RESOURCE_EXHAUSTED also if they do not fit
  // into the memory that is left.
  absl::Status ChargeBytes(size_t bytes);
  // The check alone, without steps.
  absl::Status CheckRoom(size_t bytes) const;
  size_t room() const;
  // Around calls that may nest: RESOURCE_EXHAUSTED if they are too deep.
  absl::Status Enter();
  void Leave() { --depth; }
};

// The size of a string of one character as an element of a list.
inline constexpr size_t kElementBytes = sizeof(MarkedText) + sizeof(Value) + 64;

// A filter, a test, a method or a function.
struct Builtin {
  using Run = absl::StatusOr<Value> (*)(Runtime*, const Value& self, const Arguments&);
  static constexpr int kAny = -1;  // takes what it is given

  std::string_view name;
  Run run = nullptr;
  int num_required = 0;
  // The names of its parameters. `run` is given a value for each by position, undefined if absent.
  std::array<std::string_view, 4> parameters = {};
};

// Calls it after a check of the arguments. INVALID_ARGUMENT if they are too few or too many.
absl::StatusOr<Value> CallBuiltin(Runtime* runtime, const Builtin& builtin, const Value& self,
                                  const Arguments& arguments);
// Null if there is none of the name.
const Builtin* FindBuiltin(absl::Span<const Builtin> table, std::string_view name);

// Tables of their files.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindSequenceFilter(std::string_view name);  // filters of lists, objects and texts
const Builtin* FindTest(std::string_view name);
const Builtin* FindFunction(std::string_view name);    // `range` and so on
const Builtin* FindTextMethod(std::string_view name);  // of strings
const Builtin* FindDictMethod(std::string_view name);  // of dictionaries
const Builtin* FindListMethod(std::string_view name);  // of lists and tuples

// A builtin as a value: a function, or a method of `self`.
Value Callable(const Builtin* builtin, Value self);

// The result of a test.
absl::StatusOr<bool> RunTest(Runtime* runtime, std::string_view name, const Value& value,
                             const Arguments& arguments);

// ---- What functions do with their arguments ----

// `value`, or `otherwise` if it is undefined. INVALID_ARGUMENT if it is something else.
absl::StatusOr<int64_t> IntegerOr(const Value& value, int64_t otherwise, std::string_view name);
absl::StatusOr<const MarkedText*> TextArgument(const Value& value, std::string_view name);
// In quotes, for errors that values keep: cut if it is long.
std::string Shortened(std::string_view name);
// Before a search of `what` in `text`, which may look at every byte as often as `what` has some.
absl::Status ChargeSearch(Runtime* runtime, const MarkedText& text, const MarkedText& what);
// What a loop over the value goes through: elements, keys, characters; nothing for undefined.
absl::StatusOr<std::vector<Value>> Elements(Runtime* runtime, const Value& value);
// value.name, value[key]; undefined, saying so, if there is none.
absl::StatusOr<Value> GetAttribute(const Value& value, std::string_view name);
absl::StatusOr<Value> GetItem(Runtime* runtime, const Value& value, const Value& key);
// value[start:stop:step]; none or undefined for what is left out.
absl::StatusOr<Value> GetSlice(Runtime* runtime, const Value& value, const Value& start,
                               const Value& stop, const Value& step);
// Whether `what` is in `where`.
absl::StatusOr<bool> Contains(Runtime* runtime, const Value& where, const Value& what);
// a + b and the like: "+", "-", "*", "/", "//", "%", "**".
absl::StatusOr<Value> Calculate(Runtime* runtime, std::string_view operation, const Value& a,
                                const Value& b);
// Python's format % values.
absl::StatusOr<Value> FormatPercent(Runtime* runtime, const MarkedText& format,
                                    const Value& values);

// The text with `fill`, one character, on the sides named until it has `width` characters; on both
// sides as str.center does.
absl::StatusOr<Value> PadText(Runtime* runtime, const MarkedText& text, int64_t width,
                              const MarkedText& fill, Sides sides);

// format.format(arguments): fields {}, {0} and {name} with [[fill]align][sign][0][width][,]
// [.precision][type]. UNIMPLEMENTED for other fields.
absl::StatusOr<Value> FormatBraces(Runtime* runtime, const MarkedText& format,
                                   const Arguments& arguments);

}  // namespace tandem::jinja

#endif  // TANDEM_CHAT_JINJA_RUNTIME_H_
