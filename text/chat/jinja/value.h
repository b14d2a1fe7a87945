// The values of a template's expressions, which behave like Python's, and the memory that the
// values of a rendering hold.
#ifndef TANDEM_TEXT_CHAT_JINJA_VALUE_H_
#define TANDEM_TEXT_CHAT_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "tandem/tokenizer.h"

namespace tandem::jinja {

// Counts the bytes held by the values that are made on the thread that made the meter, while the
// meter exists. Those values must be destroyed, or leave the meter, before the meter is destroyed,
// which must happen on the same thread.
class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  size_t bytes() const { return bytes_; }

 private:
  friend class MemoryHold;
  static MemoryMeter* OfThread();  // null if the thread has no meter

  MemoryMeter* const outer_;
  size_t bytes_ = 0;
};

// A member of each object whose memory is counted. It adds bytes to the meter of the thread that
// made it, and the destructor subtracts them. A copy adds the same bytes to the copying thread's
// meter.
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
  // Stops counting, for an owner that outlives the meter.
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

// A string that records where each byte came from: kParse marks the template's own text, and kPlain
// the text of variables. All string operations are built on Append and Slice, which keep the marks.
// Thread-compatible.
class MarkedText {
 public:
  // Bytes [end of the run before, end) of the text. Neighbours differ in `special`; no run is
  // empty.
  struct Run {
    size_t end = 0;
    SpecialTokens special = SpecialTokens::kPlain;
  };

  MarkedText() = default;
  MarkedText(std::string_view text, SpecialTokens special) { Append(text, special); }

  const std::string& text() const { return text_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  // The size in memory, marks included.
  size_t memory_bytes() const {
    return sizeof(MarkedText) + text_.capacity() + runs_.capacity() * sizeof(Run);
  }
  // The bytes by which another text grows each time this one is appended.
  size_t appended_bytes() const {
    return text_.size() + (runs_.size() > 1 ? runs_.size() * sizeof(Run) : 0);
  }
  // Stops counting, for the result of a rendering, which outlives the meter.
  void LeaveMeter() { held_.LeaveMeter(); }
  const std::vector<Run>& runs() const { return runs_; }

  void Append(std::string_view text, SpecialTokens special);
  void Append(const MarkedText& other) { Append(other, 0, other.size()); }
  // Appends bytes [begin, end) of `other`, which must not be this object.
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

// The value of a name or an attribute that does not exist: prints as nothing, and using it is an
// error.
struct Undefined {
  std::shared_ptr<const MarkedText> what;  // the error, such as "'x' is undefined"; may be null
};
struct None {};

// The size of a value. A shared inner value counts each time it occurs.
struct Extent {
  int depth = 0;      // levels of nested lists, dictionaries and objects
  size_t weight = 1;  // number of values and of 64-byte units of strings; at most kMaxWeight
  static constexpr size_t kMaxWeight = size_t{1} << 40;

  // Adds an inner value.
  void Add(const Extent& inner);
};

// A sequence of elements. Immutable once it belongs to a Value.
struct List {
  enum class Kind {
    kList,
    kTuple,
    kRange,  // range(): indexed like a list, but cannot be printed
    kKeys,   // dict.keys(); this and the next two have a length but no index
    kValues,
    kItems,
    kIterator,  // the result of filters such as map: has neither, and is always true
  };
  Kind kind = Kind::kList;
  std::vector<Value> items;
  Extent extent;
  MemoryHold held;

  bool is_sequence() const { return kind <= Kind::kRange; }  // whether it can be indexed
};

// A value of a template. Cheap to copy: large data is shared and immutable, except namespaces.
// Thread-compatible.
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
  static Value Missing(std::string_view reason);  // undefined; errors quote the reason

  bool is_undefined() const { return Is<Undefined>(); }
  bool is_none() const { return Is<jinja::None>(); }
  bool is_bool() const { return Is<bool>(); }
  bool is_float() const { return Is<double>(); }
  bool is_integer() const { return Is<int64_t>() || is_bool(); }  // as Python has it
  bool is_number() const { return is_integer() || is_float(); }

  // Null if the value has another type.
  const MarkedText* text() const { return Pointer<MarkedText>(); }
  const List* list() const { return Pointer<List>(); }
  const Dict* dict() const { return Pointer<Dict>(); }
  Object* object() const;

  // REQUIRES: is_integer().
  int64_t integer() const;
  // REQUIRES: is_number().
  double number() const;
  // The error of using an undefined value.
  std::string what() const;

  bool IsTrue() const;
  Extent extent() const;
  // "str", "int", "dict" and so on, as in Python's errors.
  std::string_view type_name() const;
  // Whether both are the same object or equal scalars.
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

// A dictionary that keeps the order of insertion.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  // Returns null if there is no such key. Find and Set take time proportional to the key's size.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  // Adds or replaces a value. INVALID_ARGUMENT if `key` cannot be a key.
  absl::Status Set(Value key, Value value);
  void Set(std::string_view key, Value value);  // the key is the template's own text

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Extent& extent() const { return extent_; }

 private:
  std::vector<Entry> entries_;
  std::map<std::string, size_t, std::less<>> places_;  // KeyText of a key -> index in entries_
  Extent extent_{.depth = 1};
  MemoryHold held_{sizeof(std::vector<Entry>)};
};

// The arguments of a call.
struct Arguments {
  const Value& operator[](size_t i) const { return positional[i]; }

  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  MemoryHold held = MemoryHold();  // of the arguments that *list and **dictionary expand to
};

struct Runtime;

// A value with attributes or one that can be called: a namespace, `loop`, a macro, a function, a
// method.
class Object {
 public:
  using Function = std::function<absl::StatusOr<Value>(Runtime*, const Arguments&)>;

  // `call` is null if the object cannot be called. `held` is the extent of the values that are
  // destroyed with this object.
  explicit Object(std::string_view type_name, Function call = nullptr, const Extent& held = {})
      : type_name_(type_name), call_(std::move(call)) {
    extent_.Add(held);
  }
  virtual ~Object() = default;
  const Extent& extent() const { return extent_; }
  std::string_view type_name() const { return type_name_; }
  const Function& call() const { return call_; }
  virtual std::optional<Value> Attribute(std::string_view) const { return std::nullopt; }

 private:
  static constexpr size_t kBytes = 256;  // size of the largest subclass with its reference count

  const std::string_view type_name_;
  const Function call_;
  Extent extent_;
  MemoryHold held_{kBytes};
};

// Python's ==.
bool Equal(const Value& a, const Value& b);
// Python's < and <=. INVALID_ARGUMENT for values that cannot be ordered.
absl::StatusOr<bool> Less(const Value& a, const Value& b);
absl::StatusOr<bool> LessOrEqual(const Value& a, const Value& b);

// The parts of messages, as absl::StrCat accepts them.
inline absl::string_view MessagePart(std::string_view text) { return View(text); }
template <typename Part>
const Part& MessagePart(const Part& part) {
  return part;
}
// INVALID_ARGUMENT with the message that the parts make; the interpreter adds the line.
template <typename... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(MessagePart(parts)...));
}

}  // namespace tandem::jinja

#endif  // TANDEM_TEXT_CHAT_JINJA_VALUE_H_
