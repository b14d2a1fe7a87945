// The functions that every template can call, the methods of dictionaries and lists, and the tests.
#include <algorithm>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "text/chat/jinja/runtime.h"
#include "text/chat/jinja/value_text.h"

namespace tandem::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// The same limit as in Jinja's sandbox.
constexpr int64_t kLongestRange = 100'000;

Result MakeRange(Runtime* runtime, const Value&, const Arguments& arguments) {
  const std::vector<Value>& given = arguments.positional;
  const bool has_stop = !given[1].is_undefined();
  ASSIGN_OR_RETURN(const int64_t first, IntegerOr(given[0], 0, "start"));
  ASSIGN_OR_RETURN(const int64_t stop, IntegerOr(has_stop ? given[1] : given[0], 0, "stop"));
  ASSIGN_OR_RETURN(const int64_t step, IntegerOr(given[2], 1, "step"));
  if (step == 0) return Wrong("step must not be 0");
  std::vector<Value> items;
  int64_t i = has_stop ? first : 0;
  while (step > 0 ? i < stop : i > stop) {
    if (static_cast<int64_t>(items.size()) == kLongestRange) {
      return Wrong("found a range of more than ", kLongestRange, " numbers");
    }
    items.push_back(Value::Int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  RETURN_IF_ERROR(runtime->Charge(items.size()));
  return Value::OfList(std::move(items), List::Kind::kRange);
}

absl::Status SetPairs(Runtime* runtime, const Value& pairs, Dict* dict) {
  if (const Dict* given = pairs.dict()) {
    for (const auto& [key, value] : given->entries()) {
      RETURN_IF_ERROR(runtime->Charge(key.extent().weight));
      RETURN_IF_ERROR(dict->Set(key, value));
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(runtime, pairs));
  for (const Value& item : items) {
    const List* pair = item.list();
    if (pair == nullptr || pair->items.size() != 2) {
      return Wrong("dict: the argument is not a list of pairs");
    }
    RETURN_IF_ERROR(runtime->Charge(pair->items[0].extent().weight));
    RETURN_IF_ERROR(dict->Set(pair->items[0], pair->items[1]));
  }
  return absl::OkStatus();
}

Result MakeDict(Runtime* runtime, const Value&, const Arguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) return Wrong("dict takes at most one dictionary");
  for (const Value& pairs : arguments.positional) RETURN_IF_ERROR(SetPairs(runtime, pairs, &dict));
  for (const auto& [name, value] : arguments.named) dict.Set(std::string_view(name), value);
  return Value::OfDict(std::move(dict));
}

Result RaiseException(Runtime* runtime, const Value&, const Arguments& arguments) {
  const MarkedText* message = arguments[0].text();
  runtime->is_raised = true;
  return Wrong(message != nullptr ? message->text() : "the template rejects the messages");
}

Result StrftimeNow(Runtime* runtime, const Value&, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const MarkedText* format, TextArgument(arguments[0], "format"));
  RETURN_IF_ERROR(runtime->Charge(format->size() * 16));
  return Value::Own(absl::FormatTime(format->text(), runtime->now, absl::UTCTimeZone()));
}

// ---- Dictionaries ----

Result Get(Runtime* runtime, const Value& self, const Arguments& arguments) {
  const Value& key = arguments[0];
  RETURN_IF_ERROR(runtime->Charge(key.extent().weight));
  const Value* found = self.dict()->Find(key);
  if (found != nullptr) return *found;
  return arguments[1].is_undefined() ? Value::None() : arguments[1];
}

template <List::Kind kPart>
Result ViewOf(Runtime* runtime, const Value& self, const Arguments&) {
  const size_t pair_bytes = kPart == List::Kind::kItems ? sizeof(List) + 3 * sizeof(Value) : 0;
  RETURN_IF_ERROR(runtime->ChargeBytes(self.dict()->size() * (sizeof(Value) + pair_bytes)));
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict()->entries()) {
    if (kPart == List::Kind::kKeys) items.push_back(key);
    if (kPart == List::Kind::kValues) items.push_back(value);
    if (kPart == List::Kind::kItems)
      items.push_back(Value::OfList({key, value}, List::Kind::kTuple));
  }
  return Value::OfList(std::move(items), kPart);
}

Result Copy(Runtime*, const Value& self, const Arguments&) { return self; }

Result Refuse(Runtime*, const Value& self, const Arguments&) {
  return Wrong("a template may not change a ", self.type_name());
}

// ---- Lists ----

Result IndexOf(Runtime* runtime, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(runtime->Charge(self.extent().weight));
  const std::vector<Value>& items = self.list()->items;
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const Value& item) { return Equal(item, arguments[0]); });
  if (found == items.end()) return Wrong("the value is not in the list");
  return Value::Int(found - items.begin());
}

Result Count(Runtime* runtime, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(runtime->Charge(self.extent().weight));
  const std::vector<Value>& items = self.list()->items;
  return Value::Int(std::count_if(items.begin(), items.end(),
                                  [&](const Value& item) { return Equal(item, arguments[0]); }));
}

constexpr Builtin kFunctions[] = {
    {"range", MakeRange, 1, {"start", "stop", "step"}},
    {"dict", MakeDict, Builtin::kAny},
    {"raise_exception", RaiseException, 1, {"message"}},
    {"strftime_now", StrftimeNow, 1, {"format"}},
};

constexpr Builtin kDictMethods[] = {
    {"get", Get, 1, {"key", "default"}},
    {"items", ViewOf<List::Kind::kItems>},
    {"keys", ViewOf<List::Kind::kKeys>},
    {"values", ViewOf<List::Kind::kValues>},
    {"copy", Copy},
    {"update", Refuse, Builtin::kAny},
    {"pop", Refuse, Builtin::kAny},
    {"popitem", Refuse, Builtin::kAny},
    {"clear", Refuse, Builtin::kAny},
    {"setdefault", Refuse, Builtin::kAny},
};

constexpr Builtin kListMethods[] = {
    {"index", IndexOf, 1, {"value"}},
    {"count", Count, 1, {"value"}},
    {"copy", Copy},
    {"append", Refuse, Builtin::kAny},
    {"extend", Refuse, Builtin::kAny},
    {"insert", Refuse, Builtin::kAny},
    {"pop", Refuse, Builtin::kAny},
    {"remove", Refuse, Builtin::kAny},
    {"clear", Refuse, Builtin::kAny},
    {"sort", Refuse, Builtin::kAny},
    {"reverse", Refuse, Builtin::kAny},
};

}  // namespace

const Builtin* FindFunction(std::string_view name) { return FindBuiltin(kFunctions, name); }
const Builtin* FindDictMethod(std::string_view name) { return FindBuiltin(kDictMethods, name); }
const Builtin* FindListMethod(std::string_view name) { return FindBuiltin(kListMethods, name); }

namespace {

using Result = absl::StatusOr<Value>;

template <auto kIs>
Result Is(Runtime*, const Value& value, const Arguments&) {
  return Value::Bool(std::invoke(kIs, value));
}

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsTrue(const Value& value) { return value.is_bool() && value.IsTrue(); }
bool IsFalse(const Value& value) { return value.is_bool() && !value.IsTrue(); }
bool IsInteger(const Value& value) { return value.is_integer() && !value.is_bool(); }
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
  // An undefined value is callable in Python: the call raises the error.
  return value.is_undefined() || (value.object() != nullptr && value.object()->call() != nullptr);
}

constexpr char kEqual[] = "==", kUnequal[] = "!=", kLess[] = "<",
               kLessOrEqual[] = "<=", kGreater[] = ">", kGreaterOrEqual[] = ">=", kIn[] = "in";
template <const char* kOperation>
Result Compares(Runtime* runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const bool holds, Compare(runtime, kOperation, value, arguments[0]));
  return Value::Bool(holds);
}

Result IsSame(Runtime* runtime, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(runtime->Charge(value.extent().weight));
  return Value::Bool(value.IsSame(arguments[0]));
}

Result HasRest(Runtime* runtime, const Value& value, const Value& divisor, int64_t rest) {
  ASSIGN_OR_RETURN(const Value found, Calculate(runtime, "%", value, divisor));
  return Value::Bool(Equal(found, Value::Int(rest)));
}

template <int64_t kRest>
Result HasRestOfTwo(Runtime* runtime, const Value& value, const Arguments&) {
  return HasRest(runtime, value, Value::Int(2), kRest);
}

Result IsDivisible(Runtime* runtime, const Value& value, const Arguments& arguments) {
  return HasRest(runtime, value, arguments[0], 0);
}

// Calls isupper or islower on the value's text.
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
    {"undefined", Is<&Value::is_undefined>},
    {"none", Is<&Value::is_none>},
    {"boolean", Is<&Value::is_bool>},
    {"true", Is<IsTrue>},
    {"false", Is<IsFalse>},
    {"integer", Is<IsInteger>},
    {"float", Is<&Value::is_float>},
    {"number", Is<&Value::is_number>},
    {"string", Is<IsString>},
    {"mapping", Is<IsMapping>},
    {"iterable", Is<IsIterable>},
    {"sequence", Is<IsSequence>},
    {"callable", Is<IsCallable>},
    {"eq", Compares<kEqual>, 1, {"other"}},
    {"equalto", Compares<kEqual>, 1, {"other"}},
    {"==", Compares<kEqual>, 1, {"other"}},
    {"ne", Compares<kUnequal>, 1, {"other"}},
    {"!=", Compares<kUnequal>, 1, {"other"}},
    {"lt", Compares<kLess>, 1, {"other"}},
    {"lessthan", Compares<kLess>, 1, {"other"}},
    {"<", Compares<kLess>, 1, {"other"}},
    {"le", Compares<kLessOrEqual>, 1, {"other"}},
    {"<=", Compares<kLessOrEqual>, 1, {"other"}},
    {"gt", Compares<kGreater>, 1, {"other"}},
    {"greaterthan", Compares<kGreater>, 1, {"other"}},
    {">", Compares<kGreater>, 1, {"other"}},
    {"ge", Compares<kGreaterOrEqual>, 1, {"other"}},
    {">=", Compares<kGreaterOrEqual>, 1, {"other"}},
    {"in", Compares<kIn>, 1, {"seq"}},
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
