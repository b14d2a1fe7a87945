#include "model/chat/value.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"

namespace tandem::jinja {
namespace {

bool SameEntries(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const Dict::Entry& entry) {
    const Value* other = b.Find(entry.first);
    return other != nullptr && Equal(entry.second, *other);
  });
}

}  // namespace

void Extent::Add(const Extent& inner) {
  depth = std::max(depth, inner.depth + 1);
  weight = std::min(weight + inner.weight, kMost);
}

Value Value::Text(MarkedText text) {
  return Value(std::make_shared<const MarkedText>(std::move(text)));
}

Value Value::Own(std::string_view text) { return Text(MarkedText(text, SpecialTokens::kParse)); }

Value Value::OfList(std::vector<Value> items, List::Kind kind) {
  Extent extent{.depth = 1};
  for (const Value& item : items) extent.Add(item.extent());
  return Value(std::make_shared<const List>(List{kind, std::move(items), extent}));
}

Value Value::OfDict(Dict dict) { return Value(std::make_shared<const Dict>(std::move(dict))); }

Value Value::Missing(std::string what) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(what))});
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
  return *undefined->what;
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
  return {};
}

std::string_view Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_integer()) return "int";
  if (is_float()) return "float";
  if (text() != nullptr) return "str";
  if (dict() != nullptr) return "dict";
  if (object() != nullptr) return object()->type_name();
  switch (list()->kind) {
    case List::Kind::kList:
      return "list";
    case List::Kind::kTuple:
      return "tuple";
    case List::Kind::kView:
      return "dict view";
    case List::Kind::kIterator:
      break;
  }
  return "iterator";
}

bool Value::IsSame(const Value& other) const {
  if (value_.index() != other.value_.index()) return false;
  if (list() != nullptr) return list() == other.list();
  if (dict() != nullptr) return dict() == other.dict();
  if (object() != nullptr) return object() == other.object();
  return Equal(*this, other);
}

std::optional<size_t> Dict::IndexOf(const Value& key) const {
  if (const MarkedText* text = key.text()) {
    const auto found = texts_.find(text->text());
    return found == texts_.end() ? std::nullopt : std::optional<size_t>(found->second);
  }
  if (texts_.size() == entries_.size()) return std::nullopt;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (Equal(entries_[i].first, key)) return i;
  }
  return std::nullopt;
}

const Value* Dict::Find(const Value& key) const {
  const std::optional<size_t> index = IndexOf(key);
  return index.has_value() ? &entries_[*index].second : nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  const auto found = texts_.find(View(key));
  return found == texts_.end() ? nullptr : &entries_[found->second].second;
}

absl::Status Dict::Set(Value key, Value value) {
  const bool is_tuple = key.list() != nullptr && key.list()->kind == List::Kind::kTuple;
  if (!is_tuple && (key.extent().depth > 0 || key.object() != nullptr || key.is_undefined())) {
    return Wrong(absl::StrCat("a ", View(key.type_name()), " is no key of a dictionary"));
  }
  extent_.Add(key.extent());
  extent_.Add(value.extent());
  if (const std::optional<size_t> index = IndexOf(key)) {
    entries_[*index].second = std::move(value);
    return absl::OkStatus();
  }
  if (const MarkedText* text = key.text()) texts_.emplace(text->text(), entries_.size());
  entries_.emplace_back(std::move(key), std::move(value));
  return absl::OkStatus();
}

void Dict::Set(std::string_view key, Value value) {
  Set(Value::Own(key), std::move(value)).IgnoreError();
}

absl::StatusOr<Value> Object::Call(Runtime*, const Arguments&) {
  return Wrong(absl::StrCat("a ", View(type_name()), " cannot be called"));
}

bool Equal(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
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
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) return Wrong(value->what());
  }
  if (a.is_integer() && b.is_integer()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  // The order of UTF-8 is that of code points.
  if (a.text() != nullptr && b.text() != nullptr) return a.text()->text() < b.text()->text();
  const List* x = a.list();
  const List* y = b.list();
  const bool has_order = x != nullptr && y != nullptr && x->kind == y->kind &&
                         (x->kind == List::Kind::kList || x->kind == List::Kind::kTuple);
  if (!has_order) {
    return Wrong(
        absl::StrCat("there is no order of ", View(a.type_name()), " and ", View(b.type_name())));
  }
  for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i) {
    if (!Equal(x->items[i], y->items[i])) return Less(x->items[i], y->items[i]);
  }
  return x->items.size() < y->items.size();
}

absl::Status Wrong(std::string_view what) { return absl::InvalidArgumentError(View(what)); }

}  // namespace tandem::jinja
