// The operations of expressions on values.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "text/chat/jinja/runtime.h"
#include "text/chat/jinja/text_tools.h"

namespace tandem::jinja {
namespace {

absl::Status TooLarge() { return Wrong("found an integer of more than 64 bits"); }

absl::Status NoOperation(std::string_view operation, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) return Wrong(value->what());
  }
  return Wrong("cannot apply ", operation, " to ", a.type_name(), " and ", b.type_name());
}

bool IsListOrTuple(const Value& value) {
  const List* list = value.list();
  return list != nullptr && (list->kind == List::Kind::kList || list->kind == List::Kind::kTuple);
}

// Converts an index, which counts from the end if it is negative, to one in [0, size).
std::optional<size_t> IndexIn(size_t size, int64_t index) {
  const auto length = static_cast<int64_t>(size);
  if (index < -length || index >= length) return std::nullopt;
  return static_cast<size_t>(index < 0 ? index + length : index);
}

// ---- Arithmetic ----

absl::StatusOr<Value> Power(const Value& a, const Value& b) {
  if (!a.is_integer() || !b.is_integer() || b.integer() < 0) {
    const double power = std::pow(a.number(), b.number());
    if (!std::isfinite(power)) return Wrong("found a power that is not a finite number");
    return Value::Float(power);
  }
  int64_t result = 1;
  int64_t base = a.integer();
  for (int64_t left = b.integer(); left > 0; left /= 2) {
    if (left % 2 == 1 && __builtin_mul_overflow(result, base, &result)) return TooLarge();
    if (left > 1 && __builtin_mul_overflow(base, base, &base)) return TooLarge();
  }
  return Value::Int(result);
}

absl::StatusOr<Value> CalculateIntegers(std::string_view operation, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  if (operation == "+") {
    overflows = __builtin_add_overflow(a, b, &result);
  } else if (operation == "-") {
    overflows = __builtin_sub_overflow(a, b, &result);
  } else if (operation == "*") {
    overflows = __builtin_mul_overflow(a, b, &result);
  } else if (b == -1) {  // the smallest integer cannot be negated
    overflows = operation == "//" && __builtin_sub_overflow(0, a, &result);
  } else {
    // As in Python, quotients are rounded down, and remainders have the divisor's sign.
    result = operation == "//" ? a / b : a % b;
    const bool is_inexact = a % b != 0 && (a < 0) != (b < 0);
    if (is_inexact) result += operation == "//" ? -1 : b;
  }
  if (overflows) return TooLarge();
  return Value::Int(result);
}

absl::StatusOr<Value> CalculateFloats(std::string_view operation, double a, double b) {
  if (operation == "+") return Value::Float(a + b);
  if (operation == "-") return Value::Float(a - b);
  if (operation == "*") return Value::Float(a * b);
  if (operation == "/") return Value::Float(a / b);
  // As in Python, the remainder has the divisor's sign, even if it is zero, and the quotient is
  // rounded down.
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest == 0) {
    rest = std::copysign(0.0, b);
  } else if ((rest < 0) != (b < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (operation == "%") return Value::Float(rest);
  return Value::Float(quotient == 0 ? std::copysign(0.0, a / b) : std::round(quotient));
}

absl::StatusOr<Value> Repeated(Runtime* runtime, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (const MarkedText* text = value.text()) {
    if (text->empty()) return value;
    RETURN_IF_ERROR(runtime->Charge(count));
    RETURN_IF_ERROR(runtime->ChargeBytes(count * text->size()));
    RETURN_IF_ERROR(runtime->CheckRoom(count * text->appended_bytes()));
    MarkedText out;
    for (size_t i = 0; i < count; ++i) out.Append(*text);
    return Value::Text(std::move(out));
  }
  const std::vector<Value>& items = value.list()->items;
  if (items.empty()) return value;
  RETURN_IF_ERROR(runtime->Charge(count));
  RETURN_IF_ERROR(runtime->ChargeBytes(count * items.size() * sizeof(Value)));
  std::vector<Value> out;
  out.reserve(count * items.size());
  for (size_t i = 0; i < count; ++i) out.insert(out.end(), items.begin(), items.end());
  return Value::OfList(std::move(out), value.list()->kind);
}

absl::StatusOr<Value> Joined(Runtime* runtime, const Value& a, const Value& b) {
  if (a.text() != nullptr && b.text() != nullptr) {
    RETURN_IF_ERROR(runtime->ChargeBytes(a.text()->size() + b.text()->size()));
    RETURN_IF_ERROR(runtime->CheckRoom(a.text()->memory_bytes() + b.text()->memory_bytes()));
    MarkedText out = *a.text();
    out.Append(*b.text());
    return Value::Text(std::move(out));
  }
  if (!IsListOrTuple(a) || !IsListOrTuple(b) || a.list()->kind != b.list()->kind) {
    return NoOperation("+", a, b);
  }
  const std::vector<Value>& more = b.list()->items;
  const size_t size = a.list()->items.size() + more.size();
  RETURN_IF_ERROR(runtime->ChargeBytes(size * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(size);
  items = a.list()->items;
  items.insert(items.end(), more.begin(), more.end());
  return Value::OfList(std::move(items), a.list()->kind);
}

std::string HasNo(const Value& value, std::string_view name) {
  return absl::StrCat("a ", View(value.type_name()), " has no ", Shortened(name));
}

// The indices of a slice, as Python's slice.indices gives them.
struct SliceBounds {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
};
absl::StatusOr<SliceBounds> RangeOf(size_t size, const Value& start, const Value& stop,
                                    const Value& step) {
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is_integer() && !bound->is_none()) {
      return Wrong("slice bounds must be integers, found ", bound->type_name());
    }
  }
  SliceBounds range;
  if (!step.is_none()) range.step = step.integer();
  if (range.step == 0) return Wrong("the slice step must not be 0");
  const auto length = static_cast<int64_t>(size);
  const int64_t low = range.step > 0 ? 0 : -1;
  const int64_t high = range.step > 0 ? length : length - 1;
  const auto bound = [&](const Value& value, int64_t otherwise) {
    if (value.is_none()) return otherwise;
    const int64_t index = value.integer();
    if (index < 0) return std::max(index < -length ? low : index + length, low);
    return std::min(index, high);
  };
  range.start = bound(start, range.step > 0 ? low : high);
  range.stop = bound(stop, range.step > 0 ? high : low);
  return range;
}

// Returns whether `what` is in `where`.
absl::StatusOr<bool> Contains(Runtime* runtime, const Value& where, const Value& what) {
  if (where.is_undefined()) return false;
  if (const MarkedText* text = where.text()) {
    if (what.text() == nullptr) {
      return Wrong("a string contains only strings, found ", what.type_name());
    }
    RETURN_IF_ERROR(ChargeSearch(runtime, *text, *what.text()));
    return text->text().find(what.text()->text()) != std::string::npos;
  }
  if (const Dict* dict = where.dict()) {
    RETURN_IF_ERROR(runtime->Charge(what.extent().weight));
    const bool is_key = what.dict() == nullptr &&
                        (what.list() == nullptr || what.list()->kind == List::Kind::kTuple);
    if (!is_key) return Wrong("a ", what.type_name(), " cannot be a key");
    return dict->Find(what) != nullptr;
  }
  const List* list = where.list();
  if (list == nullptr) return Wrong("a ", where.type_name(), " has no elements to search");
  RETURN_IF_ERROR(runtime->Charge(list->extent.weight));
  return std::any_of(list->items.begin(), list->items.end(),
                     [&](const Value& item) { return Equal(item, what); });
}

}  // namespace

absl::StatusOr<Value> Calculate(Runtime* runtime, std::string_view operation, const Value& a,
                                const Value& b) {
  const bool are_numbers = a.is_number() && b.is_number();
  const bool divides = operation == "/" || operation == "//" || operation == "%";
  if (are_numbers && divides && b.number() == 0) return Wrong("found a division by zero");
  if (are_numbers && operation == "**") return Power(a, b);
  if (a.is_integer() && b.is_integer() && operation != "/") {
    return CalculateIntegers(operation, a.integer(), b.integer());
  }
  if (are_numbers) return CalculateFloats(operation, a.number(), b.number());
  if (operation == "+") return Joined(runtime, a, b);
  if (operation == "*") {
    const bool is_first = b.is_integer();
    const Value& value = is_first ? a : b;
    const Value& times = is_first ? b : a;
    if (times.is_integer() && (value.text() != nullptr || IsListOrTuple(value))) {
      return Repeated(runtime, value, times.integer());
    }
  }
  if (operation == "%" && a.text() != nullptr) return FormatPercent(runtime, *a.text(), b);
  return NoOperation(operation, a, b);
}

absl::StatusOr<bool> Compare(Runtime* runtime, std::string_view operation, const Value& a,
                             const Value& b) {
  if (operation == "in") return Contains(runtime, b, a);
  if (operation == "not in") {
    ASSIGN_OR_RETURN(const bool is_in, Contains(runtime, b, a));
    return !is_in;
  }
  RETURN_IF_ERROR(runtime->Charge(std::min(a.extent().weight, b.extent().weight)));
  if (operation == "==") return Equal(a, b);
  if (operation == "!=") return !Equal(a, b);
  if (operation == "<=") return LessOrEqual(a, b);
  if (operation == ">=") return LessOrEqual(b, a);
  return operation[0] == '<' ? Less(a, b) : Less(b, a);
}

absl::StatusOr<std::vector<Value>> Elements(Runtime* runtime, const Value& value) {
  if (const List* list = value.list()) {
    RETURN_IF_ERROR(runtime->ChargeBytes(list->items.size() * sizeof(Value)));
    return list->items;
  }
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (const Dict* dict = value.dict()) {
    RETURN_IF_ERROR(runtime->ChargeBytes(dict->size() * sizeof(Value)));
    for (const auto& [key, unused] : dict->entries()) items.push_back(key);
    return items;
  }
  if (const MarkedText* text = value.text()) {
    RETURN_IF_ERROR(runtime->ChargeBytes(text->size() * sizeof(size_t)));
    const std::vector<size_t> offsets = CharacterOffsets(text->text());
    RETURN_IF_ERROR(runtime->ChargeBytes(offsets.size() * kElementBytes));
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      items.push_back(Value::Text(text->Slice(offsets[i], offsets[i + 1])));
    }
    return items;
  }
  return Wrong("a ", value.type_name(), " is not iterable");
}

absl::StatusOr<Value> GetAttribute(const Value& value, std::string_view name) {
  if (value.is_undefined()) return Wrong(value.what());
  const Builtin* method = nullptr;
  if (value.text() != nullptr) method = FindTextMethod(name);
  if (value.list() != nullptr) method = FindListMethod(name);
  if (value.dict() != nullptr) method = FindDictMethod(name);
  if (method != nullptr) return Callable(method, value);
  if (const Dict* dict = value.dict()) {
    if (const Value* found = dict->Find(name)) return *found;
  }
  if (const Object* object = value.object()) {
    if (std::optional<Value> found = object->Attribute(name)) return *std::move(found);
  }
  // Python's numbers have these attributes, but no template needs them.
  const bool is_of_number = value.is_number() && (name == "real" || name == "imag" ||
                                                  name == "numerator" || name == "denominator");
  if (is_of_number) return Wrong(HasNo(value, name));
  return Value::Missing(HasNo(value, name));
}

absl::StatusOr<Value> GetItem(Runtime* runtime, const Value& value, const Value& key) {
  if (value.is_undefined()) return Wrong(value.what());
  if (const Dict* dict = value.dict()) {
    RETURN_IF_ERROR(runtime->Charge(key.extent().weight));
    if (const Value* found = dict->Find(key)) return *found;
  } else if (key.is_integer() && value.text() != nullptr) {
    RETURN_IF_ERROR(runtime->ChargeBytes(8 * value.text()->size()));
    const std::vector<size_t> offsets = CharacterOffsets(value.text()->text());
    if (const auto index = IndexIn(offsets.size() - 1, key.integer())) {
      return Value::Text(value.text()->Slice(offsets[*index], offsets[*index + 1]));
    }
    return Value::Missing(HasNo(value, absl::StrCat(key.integer())));
  } else if (key.is_integer() && value.list() != nullptr && value.list()->is_sequence()) {
    if (const auto index = IndexIn(value.list()->items.size(), key.integer())) {
      return value.list()->items[*index];
    }
    return Value::Missing(HasNo(value, absl::StrCat(key.integer())));
  }
  if (const MarkedText* name = key.text()) {
    RETURN_IF_ERROR(runtime->ChargeBytes(name->size()));
    return GetAttribute(value, name->text());
  }
  return Value::Missing(absl::StrCat("a ", View(value.type_name()), " has no such item"));
}

absl::StatusOr<Value> GetSlice(Runtime* runtime, const Value& value, const Value& start,
                               const Value& stop, const Value& step) {
  if (value.is_undefined()) return Wrong(value.what());
  const MarkedText* text = value.text();
  if (text == nullptr && (value.list() == nullptr || !value.list()->is_sequence())) {
    return Value::Missing(absl::StrCat("a ", View(value.type_name()), " has no slices"));
  }
  std::vector<size_t> offsets;
  if (text != nullptr) {
    RETURN_IF_ERROR(runtime->ChargeBytes(8 * text->size()));
    offsets = CharacterOffsets(text->text());
  }
  const size_t size = text != nullptr ? offsets.size() - 1 : value.list()->items.size();
  ASSIGN_OR_RETURN(const SliceBounds range, RangeOf(size, start, stop, step));
  if (text != nullptr && range.step == 1) {
    const auto begin = static_cast<size_t>(range.start);
    return Value::Text(
        text->Slice(offsets[begin], offsets[std::max(begin, static_cast<size_t>(range.stop))]));
  }
  MarkedText characters;
  std::vector<Value> items;
  int64_t i = range.start;
  while (range.step > 0 ? i < range.stop : i > range.stop) {
    RETURN_IF_ERROR(runtime->Charge(1));
    if (text != nullptr) {
      characters.Append(*text, offsets[i], offsets[i + 1]);
    } else {
      items.push_back(value.list()->items[i]);
    }
    if (__builtin_add_overflow(i, range.step, &i)) break;
  }
  if (text != nullptr) return Value::Text(std::move(characters));
  return Value::OfList(std::move(items), value.list()->kind);
}

}  // namespace tandem::jinja
