// Jinja's tests: what stands behind `is`.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "chat/jinja/runtime.h"
#include "chat/jinja/value_text.h"

namespace tandem::jinja {
namespace {

using Result = absl::StatusOr<Value>;

template <bool (*kIs)(const Value&)>
Result Is(Runtime*, const Value& value, const Arguments&) {
  return Value::Bool(kIs(value));
}

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsBoolean(const Value& value) { return value.is_bool(); }
bool IsTrue(const Value& value) { return value.is_bool() && value.IsTrue(); }
bool IsFalse(const Value& value) { return value.is_bool() && !value.IsTrue(); }
bool IsInteger(const Value& value) { return value.is_integer() && !value.is_bool(); }
bool IsFloat(const Value& value) { return value.is_float(); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsString(const Value& value) { return value.text() != nullptr; }
bool IsMapping(const Value& value) { return value.dict() != nullptr; }
bool IsIterable(const Value& value) {
  return value.is_undefined() || value.text() != nullptr || value.list() != nullptr ||
         value.dict() != nullptr;
}
bool IsSequence(const Value& value) {
  const List* list = value.list();
  return list == nullptr ? IsIterable(value) : list->is_sequence();
}
bool IsCallable(const Value& value) {
  // Python calls the undefined too, to say that it is.
  return value.is_undefined() || (value.object() != nullptr && value.object()->is_callable());
}

template <bool kWanted>
Result IsEqual(Runtime* runtime, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(runtime->Charge(value.extent().weight));
  return Value::Bool(Equal(value, arguments.positional[0]) == kWanted);
}

// kIs(value, other), the other way round if kSwaps.
template <absl::StatusOr<bool> (*kIs)(const Value&, const Value&), bool kSwaps>
Result IsOrdered(Runtime* runtime, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(runtime->Charge(value.extent().weight));
  const Value& other = arguments.positional[0];
  ASSIGN_OR_RETURN(const bool is, kSwaps ? kIs(other, value) : kIs(value, other));
  return Value::Bool(is);
}

Result IsIn(Runtime* runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const bool is_in, Contains(runtime, arguments.positional[0], value));
  return Value::Bool(is_in);
}

Result IsSame(Runtime* runtime, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(runtime->Charge(value.extent().weight));
  return Value::Bool(value.IsSame(arguments.positional[0]));
}

absl::StatusOr<bool> HasRest(Runtime* runtime, const Value& value, const Value& divisor,
                             int64_t rest) {
  ASSIGN_OR_RETURN(const Value found, Calculate(runtime, "%", value, divisor));
  return Equal(found, Value::Int(rest));
}

template <int64_t kRest>
Result HasRestOfTwo(Runtime* runtime, const Value& value, const Arguments&) {
  ASSIGN_OR_RETURN(const bool has_rest, HasRest(runtime, value, Value::Int(2), kRest));
  return Value::Bool(has_rest);
}

Result IsDivisible(Runtime* runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const bool is_divisible, HasRest(runtime, value, arguments.positional[0], 0));
  return Value::Bool(is_divisible);
}

// The method of the same meaning, of the value's text.
template <bool kIsUpper>
Result IsTextInCase(Runtime* runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(MarkedText text, ToText(runtime, value));
  return FindTextMethod(kIsUpper ? "isupper" : "islower")
      ->run(runtime, Value::Text(std::move(text)), arguments);
}

Result IsFilter(Runtime*, const Value& value, const Arguments&) {
  return Value::Bool(value.text() != nullptr && FindFilter(value.text()->text()) != nullptr);
}
Result IsTest(Runtime*, const Value& value, const Arguments&) {
  return Value::Bool(value.text() != nullptr && FindTest(value.text()->text()) != nullptr);
}

constexpr Builtin kTests[] = {
    {"defined", Is<IsDefined>},
    {"undefined", Is<IsUndefined>},
    {"none", Is<IsNone>},
    {"boolean", Is<IsBoolean>},
    {"true", Is<IsTrue>},
    {"false", Is<IsFalse>},
    {"integer", Is<IsInteger>},
    {"float", Is<IsFloat>},
    {"number", Is<IsNumber>},
    {"string", Is<IsString>},
    {"mapping", Is<IsMapping>},
    {"iterable", Is<IsIterable>},
    {"sequence", Is<IsSequence>},
    {"callable", Is<IsCallable>},
    {"eq", IsEqual<true>, 1, {"other"}},
    {"equalto", IsEqual<true>, 1, {"other"}},
    {"==", IsEqual<true>, 1, {"other"}},
    {"ne", IsEqual<false>, 1, {"other"}},
    {"!=", IsEqual<false>, 1, {"other"}},
    {"lt", IsOrdered<Less, false>, 1, {"other"}},
    {"lessthan", IsOrdered<Less, false>, 1, {"other"}},
    {"<", IsOrdered<Less, false>, 1, {"other"}},
    {"le", IsOrdered<LessOrEqual, false>, 1, {"other"}},
    {"<=", IsOrdered<LessOrEqual, false>, 1, {"other"}},
    {"gt", IsOrdered<Less, true>, 1, {"other"}},
    {"greaterthan", IsOrdered<Less, true>, 1, {"other"}},
    {">", IsOrdered<Less, true>, 1, {"other"}},
    {"ge", IsOrdered<LessOrEqual, true>, 1, {"other"}},
    {">=", IsOrdered<LessOrEqual, true>, 1, {"other"}},
    {"in", IsIn, 1, {"seq"}},
    {"sameas", IsSame, 1, {"other"}},
    {"odd", HasRestOfTwo<1>},
    {"even", HasRestOfTwo<0>},
    {"divisibleby", IsDivisible, 1, {"num"}},
    {"lower", IsTextInCase<false>},
    {"upper", IsTextInCase<true>},
    {"filter", IsFilter},
    {"test", IsTest},
};

}  // namespace

const Builtin* FindTest(std::string_view name) { return FindBuiltin(kTests, name); }

}  // namespace tandem::jinja
