#include "text/chat/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <compare>

#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/string_view.h"

namespace tandem::jinja {
namespace {

thread_local MemoryMeter* of_thread = nullptr;

bool EndsAtOrBefore(const MarkedText::Run& run, size_t offset) { return run.end <= offset; }

}  // namespace

MemoryMeter::MemoryMeter() : outer_(of_thread) { of_thread = this; }
MemoryMeter::~MemoryMeter() { of_thread = outer_; }

MemoryMeter* MemoryMeter::OfThread() { return of_thread; }

void MarkedText::Append(std::string_view text, SpecialTokens special) {
  if (text.empty()) return;
  if (runs_.empty() || runs_.back().special != special) runs_.push_back({size(), special});
  text_.append(text);
  runs_.back().end = size();
  held_.Set(memory_bytes());
}

void MarkedText::Append(const MarkedText& other, size_t begin, size_t end) {
  TANDEM_CHECK(begin <= end && end <= other.size());
  const std::string_view text = other.text_;
  auto run = std::lower_bound(other.runs_.begin(), other.runs_.end(), begin, EndsAtOrBefore);
  for (; begin < end; ++run) {
    const size_t next = std::min(run->end, end);
    Append(text.substr(begin, next - begin), run->special);
    begin = next;
  }
}

MarkedText MarkedText::Slice(size_t begin, size_t end) const {
  MarkedText slice;
  slice.Append(*this, begin, end);
  return slice;
}

SpecialTokens MarkedText::MarkAt(size_t offset) const {
  TANDEM_CHECK(offset < size());
  return std::lower_bound(runs_.begin(), runs_.end(), offset, EndsAtOrBefore)->special;
}

namespace {

bool SameEntries(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const Dict::Entry& entry) {
    const Value* other = b.Find(entry.first);
    return other != nullptr && Equal(entry.second, *other);
  });
}

// Appends a text that two keys share if and only if they are equal, as 1, 1.0 and true are. Returns
// false for values that cannot be keys: lists, dictionaries, objects, undefined values, and tuples
// that contain one of these.
bool AppendKeyText(const Value& key, std::string* out) {
  if (const MarkedText* text = key.text()) {
    absl::StrAppend(out, "s", text->size(), ":", text->text());
    return true;
  }
  if (const List* list = key.list()) {
    if (list->kind != List::Kind::kTuple) return false;
    absl::StrAppend(out, "(");
    for (const Value& item : list->items) {
      if (!AppendKeyText(item, out)) return false;
    }
    absl::StrAppend(out, ")");
    return true;
  }
  if (key.is_integer()) {
    absl::StrAppend(out, "i", key.integer(), ";");
  } else if (key.is_float()) {
    const double number = key.number();
    const bool is_whole = number == std::floor(number) && std::abs(number) < 0x1p63;
    if (is_whole) return AppendKeyText(Value::Int(static_cast<int64_t>(number)), out);
    absl::StrAppend(out, "f", absl::Hex(absl::bit_cast<uint64_t>(number)), ";");
  } else if (key.is_none()) {
    absl::StrAppend(out, "n");
  } else {
    return false;
  }
  return true;
}

using Order = std::partial_ordering;  // unordered: one of the two is NaN

// Compares an integer and a float exactly: converting the integer to a float would round it.
Order OrderOfNumbers(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return a.integer() <=> b.integer();
  if (a.is_float() == b.is_float()) return a.number() <=> b.number();
  if (a.is_float()) {
    const Order reversed = OrderOfNumbers(b, a);
    if (std::is_lt(reversed)) return Order::greater;
    return std::is_gt(reversed) ? Order::less : reversed;
  }
  const double other = b.number();
  if (!(std::abs(other) < 0x1p63)) return 0.0 <=> other;
  const double whole = std::floor(other);
  const Order order = a.integer() <=> static_cast<int64_t>(whole);
  return std::is_eq(order) && other != whole ? Order::less : order;
}

// Compares two values in one pass. List elements that cannot be ordered may still be equal.
absl::StatusOr<Order> Compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return OrderOfNumbers(a, b);
  // Strings in UTF-8 sort in the order of their code points.
  if (a.text() != nullptr && b.text() != nullptr) {
    return a.text()->text() <=> b.text()->text();
  }
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) return Wrong(value->what());
  }
  const List* x = a.list();
  const List* y = b.list();
  const bool has_order = x != nullptr && y != nullptr && x->kind == y->kind &&
                         (x->kind == List::Kind::kList || x->kind == List::Kind::kTuple);
  if (!has_order) {
    return Wrong("values of the types ", a.type_name(), " and ", b.type_name(),
                 " cannot be ordered");
  }
  for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i) {
    absl::StatusOr<Order> order = Compare(x->items[i], y->items[i]);
    if (!order.ok() && Equal(x->items[i], y->items[i])) continue;
    if (!order.ok() || !std::is_eq(*order)) return order;
  }
  return x->items.size() <=> y->items.size();
}

// Returns the text of a key in the index of a dictionary: that of a string is the string, and those
// of others begin with a byte that no string has. Returns nullopt for values that cannot be keys.
std::optional<std::string> KeyText(const Value& key) {
  if (key.text() != nullptr) return key.text()->text();
  std::string text = "\xFF";
  return AppendKeyText(key, &text) ? std::optional(text) : std::nullopt;
}

}  // namespace

void Extent::Add(const Extent& inner) {
  depth = std::max(depth, inner.depth + 1);
  weight = std::min(weight + inner.weight, kMaxWeight);
}

Value Value::Text(MarkedText text) {
  return Value(std::make_shared<const MarkedText>(std::move(text)));
}

Value Value::Own(std::string_view text) { return Text(MarkedText(text, SpecialTokens::kParse)); }

Value Value::OfList(std::vector<Value> items, List::Kind kind) {
  Extent extent{.depth = 1};
  for (const Value& item : items) extent.Add(item.extent());
  const size_t bytes = sizeof(List) + items.capacity() * sizeof(Value);
  return Value(
      std::make_shared<const List>(List{kind, std::move(items), extent, MemoryHold(bytes)}));
}

Value Value::OfDict(Dict dict) { return Value(std::make_shared<const Dict>(std::move(dict))); }

Value Value::Missing(std::string_view reason) {
  return Value(Undefined{std::make_shared<const MarkedText>(reason, kOwn)});
}

Object* Value::object() const {
  const auto* pointer = std::get_if<std::shared_ptr<Object>>(&value_);
  return pointer == nullptr ? nullptr : pointer->get();
}

int64_t Value::integer() const {
  const bool* is_true = std::get_if<bool>(&value_);
  return is_true != nullptr ? static_cast<int64_t>(*is_true) : std::get<int64_t>(value_);
}

double Value::number() const {
  const double* number = std::get_if<double>(&value_);
  return number != nullptr ? *number : static_cast<double>(integer());
}

std::string Value::what() const {
  const Undefined* undefined = std::get_if<Undefined>(&value_);
  if (undefined == nullptr || undefined->what == nullptr) return "the value is undefined";
  return undefined->what->text();
}

bool Value::IsTrue() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (const MarkedText* string = text()) return !string->empty();
  if (const List* elements = list()) {
    return elements->kind == List::Kind::kIterator || !elements->items.empty();
  }
  if (const Dict* entries = dict()) return entries->size() > 0;
  return true;
}

Extent Value::extent() const {
  if (const List* elements = list()) return elements->extent;
  if (const Dict* entries = dict()) return entries->extent();
  if (const MarkedText* string = text()) return {.weight = 1 + string->size() / 64};
  if (object() != nullptr) return object()->extent();
  return {};
}

std::string_view Value::type_name() const {
  constexpr std::string_view kScalars[] = {"Undefined", "NoneType", "bool", "int", "float", "str"};
  constexpr std::string_view kLists[] = {"list",        "tuple",      "range",   "dict_keys",
                                         "dict_values", "dict_items", "iterator"};
  if (list() != nullptr) return kLists[static_cast<size_t>(list()->kind)];
  if (dict() != nullptr) return "dict";
  return object() != nullptr ? object()->type_name() : kScalars[value_.index()];
}

bool Value::IsSame(const Value& other) const {
  if (value_.index() != other.value_.index()) return false;
  if (list() != nullptr) return list() == other.list();
  if (dict() != nullptr) return dict() == other.dict();
  if (object() != nullptr) return object() == other.object();
  return Equal(*this, other);
}

const Value* Dict::Find(const Value& key) const {
  if (key.text() != nullptr) return Find(std::string_view(key.text()->text()));
  const std::optional<std::string> text = KeyText(key);
  return text.has_value() ? Find(std::string_view(*text)) : nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  const auto found = places_.find(key);
  return found == places_.end() ? nullptr : &entries_[found->second].second;
}

absl::Status Dict::Set(Value key, Value value) {
  constexpr size_t kNodeBytes = 96;  // an entry of the index, without the key's text
  const std::optional<std::string> text = KeyText(key);
  if (!text.has_value()) return Wrong("a ", key.type_name(), " is not a valid dictionary key");
  extent_.Add(key.extent());
  extent_.Add(value.extent());
  const auto [place, is_new] = places_.emplace(*text, entries_.size());
  if (is_new) {
    held_.Add(2 * sizeof(Entry) + kNodeBytes + text->size());
    entries_.emplace_back(std::move(key), std::move(value));
  } else {
    entries_[place->second].second = std::move(value);
  }
  return absl::OkStatus();
}

void Dict::Set(std::string_view key, Value value) {
  Set(Value::Own(key), std::move(value)).IgnoreError();
}

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return std::is_eq(OrderOfNumbers(a, b));
  if (a.text() != nullptr && b.text() != nullptr) return a.text()->text() == b.text()->text();
  if (a.list() != nullptr && b.list() != nullptr) {
    const List& x = *a.list();
    const List& y = *b.list();
    if (x.kind == List::Kind::kIterator || x.kind != y.kind) return &x == &y;
    return std::equal(x.items.begin(), x.items.end(), y.items.begin(), y.items.end(), Equal);
  }
  if (a.dict() != nullptr && b.dict() != nullptr) return SameEntries(*a.dict(), *b.dict());
  if (a.object() != nullptr && b.object() != nullptr) return a.object() == b.object();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

absl::StatusOr<bool> Less(const Value& a, const Value& b) {
  ASSIGN_OR_RETURN(const Order order, Compare(a, b));
  return std::is_lt(order);
}

absl::StatusOr<bool> LessOrEqual(const Value& a, const Value& b) {
  ASSIGN_OR_RETURN(const Order order, Compare(a, b));
  return std::is_lteq(order);
}

}  // namespace tandem::jinja
