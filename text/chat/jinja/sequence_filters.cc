// Jinja's filters of values with elements: lists, dictionaries, strings.
#include <algorithm>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "text/chat/jinja/runtime.h"
#include "text/chat/jinja/text_tools.h"
#include "text/chat/jinja/value_text.h"

namespace tandem::jinja {
namespace {

using Result = absl::StatusOr<Value>;
using Values = std::vector<Value>;

Value Iterator(Values items) { return Value::OfList(std::move(items), List::Kind::kIterator); }

// Returns item.a.b for the name "a.b", item[0] for "0", and the item itself without a name.
// `otherwise`, if it is defined, replaces undefined attributes.
Result AttributeOf(Runtime* runtime, Value item, const Value& name,
                   const Value& otherwise = Value()) {
  if (name.is_undefined() || name.is_none()) return item;
  if (name.is_integer()) return GetItem(runtime, item, name);
  ASSIGN_OR_RETURN(const MarkedText* path, TextArgument(name, "attribute"));
  const std::string& text = path->text();
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('.', at), text.size());
    const std::string_view part = std::string_view(text).substr(at, end - at);
    at = end + 1;
    RETURN_IF_ERROR(runtime->ChargeBytes(64 + part.size()));
    int64_t index = 0;
    const bool is_index = absl::SimpleAtoi(View(part), &index);
    ASSIGN_OR_RETURN(item, GetItem(runtime, item, is_index ? Value::Int(index) : Value::Own(part)));
    if (item.is_undefined() && !otherwise.is_undefined()) item = otherwise;
  }
  return item;
}

// Returns the key by which elements are sorted and compared: in lower case unless `has_case`.
Result KeyOf(Runtime* runtime, const Value& item, const Value& attribute, bool has_case,
             const Value& otherwise) {
  ASSIGN_OR_RETURN(Value key, AttributeOf(runtime, item, attribute, otherwise));
  if (has_case || key.text() == nullptr) return key;
  RETURN_IF_ERROR(runtime->ChargeBytes(8 * key.text()->size()));
  return Value::Text(WithCase(*key.text(), LetterCase::kLower));
}

struct Keyed {
  Value key;
  Value item;
};
absl::StatusOr<std::vector<Keyed>> KeyedItems(Runtime* runtime, const Value& value,
                                              const Value& attribute, bool has_case,
                                              const Value& otherwise = Value()) {
  ASSIGN_OR_RETURN(const Values items, Elements(runtime, value));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value key, KeyOf(runtime, item, attribute, has_case, otherwise));
    keyed.push_back({std::move(key), item});
  }
  return keyed;
}

absl::Status SortByKey(Runtime* runtime, bool is_reversed, std::vector<Keyed>* items) {
  size_t weight = 0;
  for (const Keyed& item : *items) weight += item.key.extent().weight;
  RETURN_IF_ERROR(runtime->Charge(32 * weight));
  absl::Status status;
  std::stable_sort(items->begin(), items->end(), [&](const Keyed& a, const Keyed& b) {
    if (!status.ok()) return false;
    const absl::StatusOr<bool> less = is_reversed ? Less(b.key, a.key) : Less(a.key, b.key);
    if (!less.ok()) status = less.status();
    return less.ok() && *less;
  });
  return status;
}

Values ItemsOf(std::vector<Keyed> keyed) {
  Values items;
  for (Keyed& item : keyed) items.push_back(std::move(item.item));
  return items;
}

Result Sort(Runtime* runtime, const Value& value, const Arguments& arguments) {
  const Values& given = arguments.positional;  // reverse, case_sensitive, attribute
  ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                   KeyedItems(runtime, value, given[2], given[1].IsTrue()));
  RETURN_IF_ERROR(SortByKey(runtime, given[0].IsTrue(), &keyed));
  return Value::OfList(ItemsOf(std::move(keyed)));
}

Result DictSort(Runtime* runtime, const Value& value, const Arguments& arguments) {
  const Values& given = arguments.positional;  // case_sensitive, by, reverse
  if (value.dict() == nullptr) return Wrong("a ", value.type_name(), " has no items to sort");
  int64_t by = 0;
  if (!given[1].is_undefined()) {
    ASSIGN_OR_RETURN(const MarkedText* name, TextArgument(given[1], "by"));
    if (name->text() != "key" && name->text() != "value") {
      return Wrong("by is ", Quoted(name->text()), ", allowed: key, value");
    }
    by = name->text() == "value" ? 1 : 0;
  }
  RETURN_IF_ERROR(runtime->ChargeBytes(value.dict()->size() * (sizeof(List) + 3 * sizeof(Value))));
  Values pairs;
  for (const auto& [key, element] : value.dict()->entries()) {
    pairs.push_back(Value::OfList({key, element}, List::Kind::kTuple));
  }
  ASSIGN_OR_RETURN(std::vector<Keyed> keyed, KeyedItems(runtime, Value::OfList(std::move(pairs)),
                                                        Value::Int(by), given[0].IsTrue()));
  RETURN_IF_ERROR(SortByKey(runtime, given[2].IsTrue(), &keyed));
  return Value::OfList(ItemsOf(std::move(keyed)));
}

Result Unique(Runtime* runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<Keyed> keyed,
                   KeyedItems(runtime, value, arguments[1], arguments[0].IsTrue()));
  Dict seen;
  Values items;
  for (const Keyed& item : keyed) {
    RETURN_IF_ERROR(runtime->Charge(item.key.extent().weight));
    if (seen.Find(item.key) != nullptr) continue;
    RETURN_IF_ERROR(seen.Set(item.key, Value::None()));
    items.push_back(item.item);
  }
  return Iterator(std::move(items));
}

// Returns pairs of a key and the list of its elements, in the order of the keys.
Result GroupBy(Runtime* runtime, const Value& value, const Arguments& arguments) {
  const Values& given = arguments.positional;  // attribute, default, case_sensitive
  ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                   KeyedItems(runtime, value, given[0], given[2].IsTrue(), given[1]));
  RETURN_IF_ERROR(SortByKey(runtime, /*is_reversed=*/false, &keyed));
  Values groups;
  for (size_t i = 0; i < keyed.size();) {
    Values members;
    ASSIGN_OR_RETURN(Value name, AttributeOf(runtime, keyed[i].item, given[0], given[1]));
    size_t end = i;
    while (end < keyed.size() && Equal(keyed[end].key, keyed[i].key)) {
      members.push_back(keyed[end++].item);
    }
    groups.push_back(
        Value::OfList({std::move(name), Value::OfList(std::move(members))}, List::Kind::kTuple));
    i = end;
  }
  return Value::OfList(std::move(groups));
}

template <bool kIsMax>
Result Extreme(Runtime* runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<Keyed> keyed,
                   KeyedItems(runtime, value, arguments[1], arguments[0].IsTrue()));
  if (keyed.empty()) return Value::Missing("an empty sequence has no minimum or maximum");
  const Keyed* best = keyed.data();
  for (const Keyed& item : keyed) {
    RETURN_IF_ERROR(runtime->Charge(item.key.extent().weight));
    ASSIGN_OR_RETURN(const bool is_better,
                     kIsMax ? Less(best->key, item.key) : Less(item.key, best->key));
    if (is_better) best = &item;
  }
  return best->item;
}

Result Sum(Runtime* runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Values items, Elements(runtime, value));
  Value sum = arguments[1].is_undefined() ? Value::Int(0) : arguments[1];
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value part, AttributeOf(runtime, item, arguments[0]));
    ASSIGN_OR_RETURN(sum, Calculate(runtime, "+", sum, part));
  }
  return sum;
}

Result Join(Runtime* runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Values items, Elements(runtime, value));
  MarkedText between;
  if (!arguments[0].is_undefined()) {
    ASSIGN_OR_RETURN(between, ToText(runtime, arguments[0]));
  }
  MarkedText out;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const Value part, AttributeOf(runtime, items[i], arguments[1]));
    ASSIGN_OR_RETURN(const MarkedText text, ToText(runtime, part));
    RETURN_IF_ERROR(runtime->ChargeBytes(16 + between.size()));
    if (i > 0) out.Append(between);
    out.Append(text);
  }
  return Value::Text(std::move(out));
}

template <bool kIsLast>
Result End(Runtime* runtime, const Value& value, const Arguments&) {
  ASSIGN_OR_RETURN(const Values items, Elements(runtime, value));
  if (!items.empty()) return kIsLast ? items.back() : items.front();
  return Value::Missing(kIsLast ? "an empty sequence has no last element"
                                : "an empty sequence has no first element");
}

Result MakeList(Runtime* runtime, const Value& value, const Arguments&) {
  ASSIGN_OR_RETURN(Values items, Elements(runtime, value));
  return Value::OfList(std::move(items));
}

Result Items(Runtime* runtime, const Value& value, const Arguments& arguments) {
  if (value.is_undefined()) return Iterator({});
  if (value.dict() == nullptr) return Wrong("a ", value.type_name(), " has no items");
  ASSIGN_OR_RETURN(const Value view, FindDictMethod("items")->run(runtime, value, arguments));
  return Iterator(view.list()->items);
}

Result Reverse(Runtime* runtime, const Value& value, const Arguments&) {
  ASSIGN_OR_RETURN(Values items, Elements(runtime, value));
  std::reverse(items.begin(), items.end());
  if (value.text() == nullptr) return Iterator(std::move(items));
  MarkedText out;
  for (const Value& item : items) out.Append(*item.text());
  return Value::Text(std::move(out));
}

// Splits the elements into lists of `size`. The last is filled up with `fill_with` if it is given.
Result Batch(Runtime* runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Values items, Elements(runtime, value));
  ASSIGN_OR_RETURN(const int64_t size, IntegerOr(arguments[0], 0, "linecount"));
  if (size < 1) return Wrong("linecount is ", size, ", allowed: 1 or more");
  Values batches;
  Values batch;
  const auto finish = [&] { batches.push_back(Value::OfList(std::exchange(batch, {}))); };
  for (const Value& item : items) {
    if (static_cast<int64_t>(batch.size()) == size) finish();
    batch.push_back(item);
  }
  const Value& fill = arguments[1];
  const bool is_filled = !batch.empty() && !fill.is_undefined() && !fill.is_none();
  if (is_filled) {
    const size_t missing = static_cast<size_t>(size) - batch.size();
    RETURN_IF_ERROR(runtime->ChargeBytes(missing * sizeof(Value)));
    RETURN_IF_ERROR(runtime->Charge(missing));
    batch.insert(batch.end(), missing, fill);
  }
  if (!batch.empty()) finish();
  return Iterator(std::move(batches));
}

// ---- Filters that apply a filter or test to every element ----

// Returns the named arguments, and the positional ones from `begin` on.
Arguments Rest(const Arguments& arguments, size_t begin) {
  Arguments rest{.positional = {}, .named = arguments.named};
  for (size_t i = begin; i < arguments.positional.size(); ++i) {
    rest.positional.push_back(arguments[i]);
  }
  return rest;
}

// As in Jinja, a false value, none included, has no elements for `map` and `select`.
Result Map(Runtime* runtime, const Value& value, const Arguments& arguments) {
  if (!value.IsTrue()) return Iterator({});
  ASSIGN_OR_RETURN(Values items, Elements(runtime, value));
  if (arguments.positional.empty()) {
    Value attribute, otherwise;
    for (const auto& [name, given] : arguments.named) {
      if (name != "attribute" && name != "default") {
        return Wrong("map does not accept the argument ", Quoted(name));
      }
      (name == "attribute" ? attribute : otherwise) = given;
    }
    if (attribute.is_undefined()) return Wrong("map needs the name of a filter or an attribute");
    for (Value& item : items) {
      ASSIGN_OR_RETURN(item, AttributeOf(runtime, std::move(item), attribute, otherwise));
    }
    return Iterator(std::move(items));
  }
  ASSIGN_OR_RETURN(const MarkedText* name, TextArgument(arguments[0], "filter"));
  const Builtin* filter = FindFilter(name->text());
  if (filter == nullptr) return Wrong("unknown filter ", Quoted(name->text()));
  // The filter may be `map` again, so this nests.
  RETURN_IF_ERROR(runtime->Charge(arguments.positional.size()));
  const Arguments rest = Rest(arguments, 1);
  const MemoryHold held((items.size() + rest.positional.size()) * sizeof(Value));
  RETURN_IF_ERROR(runtime->Enter());
  const absl::Cleanup leave = [runtime] { runtime->Leave(); };
  for (Value& item : items) {
    RETURN_IF_ERROR(runtime->Charge(1));
    ASSIGN_OR_RETURN(item, CallBuiltin(runtime, *filter, item, rest));
  }
  return Iterator(std::move(items));
}

// select and reject; selectattr and rejectattr if the first argument is an attribute.
template <bool kWanted, bool kHasAttribute>
Result Select(Runtime* runtime, const Value& value, const Arguments& arguments) {
  if (!value.IsTrue()) return Iterator({});
  ASSIGN_OR_RETURN(const Values items, Elements(runtime, value));
  const size_t first = kHasAttribute ? 1 : 0;
  if (arguments.positional.size() < first) return Wrong("the name of an attribute is missing");
  const Builtin* test = nullptr;
  if (arguments.positional.size() > first) {
    ASSIGN_OR_RETURN(const MarkedText* name, TextArgument(arguments[first], "test"));
    test = FindTest(name->text());
    if (test == nullptr) return Wrong("unknown test ", Quoted(name->text()));
  }
  const Arguments rest = Rest(arguments, first + 1);
  Values selected;
  for (const Value& item : items) {
    RETURN_IF_ERROR(runtime->Charge(1));
    Value subject = item;
    if (kHasAttribute) {
      ASSIGN_OR_RETURN(subject, AttributeOf(runtime, item, arguments[0]));
    }
    if (test != nullptr) {
      ASSIGN_OR_RETURN(subject, CallBuiltin(runtime, *test, subject, rest));
    }
    if (subject.IsTrue() == kWanted) selected.push_back(item);
  }
  return Iterator(std::move(selected));
}

constexpr Builtin kSequenceFilters[] = {
    {"batch", Batch, 1, {"linecount", "fill_with"}},
    {"dictsort", DictSort, 0, {"case_sensitive", "by", "reverse"}},
    {"first", End<false>},
    {"groupby", GroupBy, 1, {"attribute", "default", "case_sensitive"}},
    {"items", Items},
    {"join", Join, 0, {"d", "attribute"}},
    {"last", End<true>},
    {"list", MakeList},
    {"map", Map, Builtin::kAny},
    {"max", Extreme<true>, 0, {"case_sensitive", "attribute"}},
    {"min", Extreme<false>, 0, {"case_sensitive", "attribute"}},
    {"reject", Select<false, false>, Builtin::kAny},
    {"rejectattr", Select<false, true>, Builtin::kAny},
    {"reverse", Reverse},
    {"select", Select<true, false>, Builtin::kAny},
    {"selectattr", Select<true, true>, Builtin::kAny},
    {"sort", Sort, 0, {"reverse", "case_sensitive", "attribute"}},
    {"sum", Sum, 0, {"attribute", "start"}},
    {"unique", Unique, 0, {"case_sensitive", "attribute"}},
};

}  // namespace

const Builtin* FindSequenceFilter(std::string_view name) {
  return FindBuiltin(kSequenceFilters, name);
}

}  // namespace tandem::jinja
