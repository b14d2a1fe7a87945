// The values of a template's expressions, those of Python that chat templates have to do with, and
// how many bytes those of a rendering hold.
#ifndef TANDEM_CHAT_JINJA_VALUE_H_
#define TANDEM_CHAT_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tandem/tokenizer.h"

namespace tandem::jinja {

// Counts for the thread that makes it, until it is destroyed there. Every value that is made on the
// thread meanwhile must be destroyed, or leave the meter, before the meter is destroyed.
class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  size_t bytes() const { return bytes_; }

 private:
  friend class MemoryHold;
  static MemoryMeter* OfThread();  // null if there is none

  MemoryMeter* const outer_;
  size_t bytes_ = 0;
};

// A member of whatever counts: so many bytes, added to the meter of the thread that made it and
// taken off again by the destructor. A copy counts as much, for the thread that makes the copy.
class MemoryHold {
 public:
  explicit MemoryHold(size_t bytes = 0) : meter_(MemoryMeter::OfThread()) { Set(bytes); }
  ~MemoryHold() { Set(0); }
  MemoryHold(const MemoryHold& other) : MemoryHold(other.bytes_) {}
  MemoryHold(MemoryHold&& other) noexcept
      : meter_(other.meter_), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryHold& operator=(MemoryHold other) noexcept {
    std::swap(meter_, other.meter_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void Set(size_t bytes) {
    if (meter_ != nullptr) meter_->bytes_ += bytes - bytes_;
    bytes_ = bytes;
  }
  void Add(size_t bytes) { Set(bytes_ + bytes); }
  // For an owner that outlives the meter.
  void LeaveMeter() {
    if (meter_ != nullptr) meter_->bytes_ -= bytes_;
    meter_ = nullptr;
  }

 private:
  MemoryMeter* meter_;
  size_t bytes_ = 0;
};

// The mark of the template's own text.
inline constexpr SpecialTokens kOwn = SpecialTokens::kParse;

// A string of which every byte knows where it came from: kParse for the template's own text,
// kPlain for text from outside. Operations on strings are made of Append and Slice, which keep the
// marks. Thread-compatible.
class MarkedText {
 public:
  // `[end of the one before, end)` of the text; neighbours differ in `special`, and none is empty.
  struct Run {
    size_t end = 0;
    SpecialTokens special = SpecialTokens::kPlain;
  };

  MarkedText() = default;
  MarkedText(std::string_view text, SpecialTokens special) { Append(text, special); }

  const std::string& text() const { return text_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  // Its size in memory, marks included.
  size_t memory_bytes() const {
    return sizeof(MarkedText) + text_.capacity() + runs_.capacity() * sizeof(Run);
  }
  // By how much a text grows each time that this one is appended.
  size_t appended_bytes() const {
    return text_.size() + (runs_.size() > 1 ? runs_.size() * sizeof(Run) : 0);
  }
  // For the result of a rendering: it outlives the meter.
  void LeaveMeter() { held_.LeaveMeter(); }
  const std::vector<Run>& runs() const { return runs_; }

  void Append(std::string_view text, SpecialTokens special);
  void Append(const MarkedText& other) { Append(other, 0, other.size()); }
  // Bytes [begin, end) of `other`, which is not this object.
  // REQUIRES: begin <= end <= other.size().
  void Append(const MarkedText& other, size_t begin, size_t end);

  // REQUIRES: begin <= end <= size().
  MarkedText Slice(size_t begin, size_t end) const;
  // REQUIRES: offset < size().
  SpecialTokens MarkAt(size_t offset) const;

 private:
  std::string text_;
  std::vector<Run> runs_;
  MemoryHold held_{sizeof(std::string) + sizeof(std::vector<Run>)};
};

class Dict;
class Object;
class Value;

// What a name or an attribute that is not there is: prints as nothing, and is an error to use.
struct Undefined {
  std::shared_ptr<const MarkedText> what;  // "'x' is undefined"; null: of no name
};
struct None {};

// How large a value is when everything inside it is counted as often as it is there.
struct Extent {
  int depth = 0;      // of lists, dictionaries and objects inside one another
  size_t weight = 1;  // values, and 64 bytes of strings; no more than kMaxWeight
  static constexpr size_t kMaxWeight = size_t{1} << 40;

  // With another value inside.
  void Add(const Extent& inner);
};

// Elements in order. They do not change once a Value has them.
struct List {
  enum class Kind {
    kList,
    kTuple,
    kRange,  // of range(): is indexed as a list, and no text
    kKeys,   // of dict.keys(); this and the next two have a length, and no elements by index
    kValues,
    kItems,
    kIterator,  // what filters such as map are: neither, and always true
  };
  Kind kind = Kind::kList;
  std::vector<Value> items;
  Extent extent;
  MemoryHold held;

  bool is_sequence() const { return kind <= Kind::kRange; }  // has elements by index
};

// Cheap to copy: what is large is shared, and never changes, but for namespaces. Thread-compatible.
class Value {
 public:
  Value() = default;  // undefined
  static Value None() { return Value(jinja::None()); }
  static Value Bool(bool value) { return Value(value); }
  static Value Int(int64_t value) { return Value(value); }
  static Value Float(double value) { return Value(value); }
  static Value Text(MarkedText text);
  static Value Own(std::string_view text);  // the template's own text
  static Value OfList(std::vector<Value> items, List::Kind kind = List::Kind::kList);
  static Value OfDict(Dict dict);
  static Value OfObject(std::shared_ptr<Object> object) { return Value(std::move(object)); }
  static Value Missing(std::string_view reason);  // undefined; errors give the reason

  bool is_undefined() const { return Is<Undefined>(); }
  bool is_none() const { return Is<jinja::None>(); }
  bool is_bool() const { return Is<bool>(); }
  bool is_float() const { return Is<double>(); }
  bool is_integer() const { return Is<int64_t>() || is_bool(); }  // as Python has it
  bool is_number() const { return is_integer() || is_float(); }

  // Null if the value is something else.
  const MarkedText* text() const { return Pointer<MarkedText>(); }
  const List* list() const { return Pointer<List>(); }
  const Dict* dict() const { return Pointer<Dict>(); }
  Object* object() const;

  // REQUIRES: is_integer().
  int64_t integer() const;
  // REQUIRES: is_number().
  double number() const;
  // Of the undefined: what an error says.
  std::string what() const;

  bool IsTrue() const;
  Extent extent() const;
  // "str", "int", "dict" and so on, as Python's errors have them.
  std::string_view type_name() const;
  // The same object, or the same scalar.
  bool IsSame(const Value& other) const;

 private:
  using Variant = std::variant<Undefined, jinja::None, bool, int64_t, double,
                               std::shared_ptr<const MarkedText>, std::shared_ptr<const List>,
                               std::shared_ptr<const Dict>, std::shared_ptr<Object>>;
  explicit Value(Variant value) : value_(std::move(value)) {}
  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(value_);
  }
  template <typename T>
  const T* Pointer() const {
    const auto* pointer = std::get_if<std::shared_ptr<const T>>(&value_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Variant value_;
};

// Keys and values in the order in which they came.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  // Null if there is none. Time is that of reading the key, here and in Set.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  // An old value of the key gives way. INVALID_ARGUMENT if `key` cannot be one.
  absl::Status Set(Value key, Value value);
  void Set(std::string_view key, Value value);  // a key of the template's own

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Extent& extent() const { return extent_; }

 private:
  std::optional<size_t> IndexOf(const Value& key) const;

  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string, size_t> texts_;   // where keys that are strings stand
  absl::flat_hash_map<std::string, size_t> others_;  // where others do, by their KeyText
  Extent extent_{.depth = 1};
  MemoryHold held_{sizeof(std::vector<Entry>)};
};

// What a call is given.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  MemoryHold held = MemoryHold();  // of those that lists and dictionaries were taken apart for
};

struct Runtime;

// What has attributes of its own, or can be called: namespaces, `loop`, macros, functions, methods.
class Object {
 public:
  // `held`: the extent of the values that are destroyed with it.
  explicit Object(const Extent& held = {}) { extent_.Add(held); }
  virtual ~Object() = default;
  const Extent& extent() const { return extent_; }
  virtual std::string_view type_name() const = 0;
  virtual std::optional<Value> Attribute(std::string_view) const { return std::nullopt; }
  virtual bool is_callable() const { return false; }
  virtual absl::StatusOr<Value> Call(Runtime* runtime, const Arguments& arguments);

 private:
  static constexpr size_t kBytes = 128;  // the largest, with its reference count

  Extent extent_;
  MemoryHold held_{kBytes};
};

// Python's ==.
bool Equal(const Value& a, const Value& b);
// Python's < and <=. INVALID_ARGUMENT for values that have no order.
absl::StatusOr<bool> Less(const Value& a, const Value& b);
absl::StatusOr<bool> LessOrEqual(const Value& a, const Value& b);

// INVALID_ARGUMENT with these words; the interpreter adds the line.
absl::Status Wrong(std::string_view what);

}  // namespace tandem::jinja

#endif  // TANDEM_CHAT_JINJA_VALUE_H_
