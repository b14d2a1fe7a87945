#include "text/chat/jinja/runtime.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"

namespace tandem::jinja {

size_t Runtime::room() const {
  return memory.bytes() < limits.memory_bytes ? limits.memory_bytes - memory.bytes() : 0;
}

absl::Status Runtime::CheckRoom(size_t bytes) const {
  if (memory.bytes() <= limits.memory_bytes && bytes <= room()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("holds more than ", limits.memory_bytes, " bytes of values at once"));
}

absl::Status Runtime::ChargeBytes(size_t bytes) {
  RETURN_IF_ERROR(CheckRoom(bytes));
  return Charge(bytes / 16);
}

absl::Status Runtime::Enter() {
  if (++depth <= limits.call_depth) return Charge(1);
  return absl::ResourceExhaustedError(
      absl::StrCat("nests calls more than ", limits.call_depth, " deep"));
}

absl::Status Runtime::Charge(size_t steps) {
  if (steps <= steps_left) {
    steps_left -= steps;
    return CheckRoom(0);
  }
  steps_left = 0;
  return absl::ResourceExhaustedError(absl::StrCat("needs more than ", limits.steps, " steps"));
}

absl::StatusOr<Value> CallBuiltin(Runtime* runtime, const Builtin& builtin, const Value& self,
                                  const Arguments& arguments) {
  if (builtin.num_required == Builtin::kAny) return builtin.run(runtime, self, arguments);
  const auto end = std::find(builtin.parameters.begin(), builtin.parameters.end(), "");
  const auto num_parameters = static_cast<size_t>(end - builtin.parameters.begin());
  if (arguments.positional.size() > num_parameters) {
    return Wrong(builtin.name, " takes at most ", num_parameters, " arguments, found ",
                 arguments.positional.size());
  }
  Arguments bound{.positional = arguments.positional, .named = {}};
  bound.positional.resize(num_parameters);
  std::vector<bool> is_given(num_parameters);
  std::fill_n(is_given.begin(), arguments.positional.size(), true);
  for (const auto& [name, value] : arguments.named) {
    const auto index =
        static_cast<size_t>(std::find(builtin.parameters.begin(), end, std::string_view(name)) -
                            builtin.parameters.begin());
    if (index == num_parameters || is_given[index]) {
      return Wrong(builtin.name, " does not accept the argument ", Quoted(name),
                   index == num_parameters ? "" : " twice");
    }
    bound.positional[index] = value;
    is_given[index] = true;
  }
  for (int i = 0; i < builtin.num_required; ++i) {
    if (is_given[i]) continue;
    return Wrong(builtin.name, " needs the argument ", builtin.parameters[i]);
  }
  return builtin.run(runtime, self, bound);
}

const Builtin* FindBuiltin(absl::Span<const Builtin> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [name](const Builtin& builtin) { return builtin.name == name; });
  return found == table.end() ? nullptr : &*found;
}

Value Callable(const Builtin* builtin, Value self) {
  const Extent extent = self.extent();
  auto call = [builtin, self = std::move(self)](Runtime* runtime, const Arguments& arguments) {
    return CallBuiltin(runtime, *builtin, self, arguments);
  };
  return Value::OfObject(std::make_shared<Object>("function", std::move(call), extent));
}

absl::StatusOr<int64_t> IntegerOr(const Value& value, int64_t otherwise, std::string_view name) {
  if (value.is_undefined()) return otherwise;
  if (value.is_integer()) return value.integer();
  return Wrong(name, " is a ", value.type_name(), ", allowed: an integer");
}

absl::StatusOr<const MarkedText*> TextArgument(const Value& value, std::string_view name) {
  if (value.is_undefined()) return Wrong(value.what());
  if (value.text() != nullptr) return value.text();
  return Wrong(name, " is a ", value.type_name(), ", allowed: a string");
}

std::string Shortened(std::string_view name) {
  constexpr size_t kMaxBytes = 64;
  if (name.size() <= kMaxBytes) return Quoted(View(name));
  size_t end = kMaxBytes;
  while ((name[end] & 0xC0) == 0x80) --end;
  return absl::StrCat(Quoted(View(name.substr(0, end))), "...");
}

absl::Status ChargeSearch(Runtime* runtime, const MarkedText& text, const MarkedText& what) {
  return runtime->Charge(text.size() / 64 * std::max<size_t>(what.size(), 1));
}

}  // namespace tandem::jinja
