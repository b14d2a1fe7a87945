// Reads the state dicts that torch.save writes ("pytorch_model.bin"): a zip archive of an object in
// Python's pickle format, data.pkl, and a file for each storage of tensors. A pickle is a program
// that can call any Python function; this reader only makes dicts, tuples, numbers, strings and
// tensors, and refuses everything else. Formats:
// https://docs.python.org/3/library/pickletools.html, and torch/serialization.py.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "model/checkpoint/safetensors.h"
#include "model/checkpoint/weights.h"

namespace tandem {
namespace {

// ---- Zip archives whose entries are stored without compression: the container of a file ----

struct ZipEntry {
  absl::string_view name;             // in the file
  absl::Span<const std::byte> bytes;  // in the file
};

// The signatures of sections, and the sizes of their fixed parts.
constexpr uint32_t kLocal = 0x04034b50, kDirectory = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr size_t kLocalBytes = 30, kDirectoryBytes = 46, kEndBytes = 22;
constexpr size_t kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // the number is in the extra field

// Reads the entries of an archive without a comment, in the order of its directory. Does not check
// checksums.
class ZipReader {
 public:
  ZipReader(absl::Span<const std::byte> file, absl::string_view name) : file_(file), name_(name) {}

  absl::StatusOr<std::vector<ZipEntry>> Read() const {
    if (!IsAt(kEnd, file_.size() - kEndBytes, kEndBytes)) {
      return Wrong("no end of a zip archive", "the format of torch.save since version 1.6");
    }
    const size_t end = file_.size() - kEndBytes;
    uint64_t count = Int<uint16_t>(end + 10), size = Int<uint32_t>(end + 12);
    uint64_t place = Int<uint32_t>(end + 16);
    if (IsAt(kLocator64, end - kLocator64Bytes, kLocator64Bytes)) {
      const uint64_t end64 = Int<uint64_t>(end - kLocator64Bytes + 8);
      if (!IsAt(kEnd64, end64, kEnd64Bytes))
        return Wrong("no zip64 end record", "one at its offset");
      count = Int<uint64_t>(end64 + 32);
      size = Int<uint64_t>(end64 + 40);
      place = Int<uint64_t>(end64 + 48);
    }
    if (!Holds(place, size)) return Wrong("a directory past the end", "one in the file");
    std::vector<ZipEntry> entries;
    for (const uint64_t stop = place + size; place < stop;) {
      if (!IsAt(kDirectory, place, kDirectoryBytes))
        return Wrong("no directory entry", "a directory of entries");
      const uint64_t name_bytes = Int<uint16_t>(place + 28),
                     extra_bytes = Int<uint16_t>(place + 30);
      const uint64_t entry_bytes =
          kDirectoryBytes + name_bytes + extra_bytes + Int<uint16_t>(place + 32);
      if (entry_bytes > stop - place) return Wrong("an entry past the directory", "one in it");
      ASSIGN_OR_RETURN(entries.emplace_back(), ReadEntry(place, name_bytes, extra_bytes));
      place += entry_bytes;
    }
    if (entries.size() == count) return entries;
    return Wrong(absl::StrCat(entries.size(), " entries"),
                 absl::StrCat(count, ", as the archive states"));
  }

 private:
  // Reads the entry at `place` in the directory. REQUIRES: it lies in the file.
  absl::StatusOr<ZipEntry> ReadEntry(uint64_t place, size_t name_bytes, size_t extra_bytes) const {
    ZipEntry entry;
    entry.name = {reinterpret_cast<const char*>(&file_[place]) + kDirectoryBytes, name_bytes};
    const std::string of_entry = absl::StrCat("entry ", Quoted(entry.name), ": ");
    const int method = Int<uint16_t>(place + 10);
    uint64_t stored = Int<uint32_t>(place + 20), size = Int<uint32_t>(place + 24);
    uint64_t local = Int<uint32_t>(place + 42);
    const absl::Span<const std::byte> extra =
        file_.subspan(place + kDirectoryBytes + name_bytes, extra_bytes);
    for (size_t i = 0; i + 4 <= extra.size();) {
      const size_t at = extra.data() + i - file_.data();
      const uint16_t id = Int<uint16_t>(at), field_bytes = Int<uint16_t>(at + 2);
      if (field_bytes > extra.size() - i - 4) break;
      size_t next = at + 4;
      for (uint64_t* const number : {&size, &stored, &local}) {
        if (id != 1 || *number != kIn64 || next + 8 > at + 4 + field_bytes) continue;
        *number = Int<uint64_t>(next);
        next += 8;
      }
      i += size_t{4} + field_bytes;
    }
    if (method != 0 || stored != size) {
      return Wrong(absl::StrCat(of_entry, "method ", method), "0, not compressed");
    }
    if (!IsAt(kLocal, local, kLocalBytes)) {
      return Wrong(absl::StrCat(of_entry, "no header"), "one at its offset");
    }
    const uint64_t data =
        local + kLocalBytes + Int<uint16_t>(local + 26) + Int<uint16_t>(local + 28);
    if (!Holds(data, size)) {
      return Wrong(absl::StrCat(of_entry, size, " bytes at ", data), "bytes in the file");
    }
    entry.bytes = file_.subspan(data, size);
    return entry;
  }

  bool Holds(uint64_t place, uint64_t size) const {
    return place <= file_.size() && size <= file_.size() - place;
  }
  bool IsAt(uint32_t signature, uint64_t place, uint64_t size) const {
    return Holds(place, size) && Int<uint32_t>(place) == signature;
  }
  template <typename T>
  T Int(size_t place) const {
    T value;
    std::memcpy(&value, &file_[place], sizeof(T));
    return value;
  }
  absl::Status Wrong(absl::string_view found, absl::string_view allowed) const {
    return NotAllowed(name_, found, allowed);
  }

  const absl::Span<const std::byte> file_;
  const absl::string_view name_;
};

constexpr size_t kMaxPickleBytes = size_t{4} << 20;  // a tensor takes some hundred
constexpr size_t kMaxDimensions = 8;

// The names that a pickle is allowed to use.
struct PickleClass {
  enum Kind { kOrderedDict, kRebuildTensor, kRebuildParameter, kStorage };
  const char* name;  // "module name"
  Kind kind;
  const char* dtype = "";  // of a storage's elements, as safetensors files call it
};
constexpr PickleClass kClasses[] = {
    {"collections OrderedDict", PickleClass::kOrderedDict},
    {"torch._utils _rebuild_tensor_v2", PickleClass::kRebuildTensor},
    {"torch._utils _rebuild_parameter", PickleClass::kRebuildParameter},
    {"torch FloatStorage", PickleClass::kStorage, "F32"},
    {"torch HalfStorage", PickleClass::kStorage, "F16"},
    {"torch BFloat16Storage", PickleClass::kStorage, "BF16"},
    {"torch DoubleStorage", PickleClass::kStorage, "F64"},
    {"torch LongStorage", PickleClass::kStorage, "I64"},
    {"torch IntStorage", PickleClass::kStorage, "I32"},
    {"torch ShortStorage", PickleClass::kStorage, "I16"},
    {"torch CharStorage", PickleClass::kStorage, "I8"},
    {"torch ByteStorage", PickleClass::kStorage, "U8"},
    {"torch BoolStorage", PickleClass::kStorage, "BOOL"},
};

struct Mark {};
struct None {};
using PickleText = absl::string_view;
// Indices into the reader's values, so that cyclic values do not own themselves.
struct Tuple {
  std::vector<int> items;
};
struct Dict {
  std::vector<std::pair<int, int>> items;
};
struct TorchStorage {
  const SafetensorsDType* type;
  absl::Span<const std::byte> bytes;
};
using PickleValue = std::variant<Mark, None, bool, int64_t, PickleText, Tuple, Dict,
                                 const PickleClass*, TorchStorage, SafetensorsEntry>;

class PickleReader {
 public:
  PickleReader(absl::Span<const std::byte> pickle, absl::string_view where,
               const HashMap<absl::string_view, absl::Span<const std::byte>>& storages)
      : pickle_(pickle), where_(where), storages_(storages) {}

  absl::StatusOr<std::vector<SafetensorsEntry>> Read() {
    while (!is_over_) {
      opcode_place_ = next_;
      ASSIGN_OR_RETURN(const uint8_t opcode, Take<uint8_t>());
      RETURN_IF_ERROR(Run(opcode));
    }
    ASSIGN_OR_RETURN(const Dict* const dict, Pop<Dict>("a dict of tensors"));
    std::vector<SafetensorsEntry> entries;
    for (const auto& [key, value] : dict->items) {
      const PickleText* const name = std::get_if<PickleText>(&values_[key]);
      const auto* const tensor = std::get_if<SafetensorsEntry>(&values_[value]);
      if (name == nullptr) return Wrong("a key that is not a string", "names of tensors");
      if (tensor == nullptr) {
        return Wrong(absl::StrCat("no tensor for ", Quoted(*name)), "a dict of tensors");
      }
      entries.push_back(*tensor);
      entries.back().name = std::string(*name);
    }
    return entries;
  }

 private:
  absl::Status Run(uint8_t opcode) {
    switch (opcode) {
      case 0x80:  // PROTO
        return Take<uint8_t>().status();
      case '.':
        is_over_ = true;
        return absl::OkStatus();
      case '(':
        return Push(Mark());
      case 'N':
        return Push(None());
      case 0x88:
      case 0x89:
        return Push(opcode == 0x88);
      case 'K':
        return PushInteger<uint8_t>();
      case 'M':
        return PushInteger<uint16_t>();
      case 'J':
        return PushInteger<int32_t>();
      case 0x8a:  // LONG1
        return PushLong();
      case 'X': {
        ASSIGN_OR_RETURN(const uint32_t size, Take<uint32_t>());
        ASSIGN_OR_RETURN(const PickleText text, TakeText(size));
        return Push(text);
      }
      case 'c':
        return PushClass();
      case '}':
        return Push(Dict());
      case ')':
        return Push(Tuple());
      case 0x85:
      case 0x86:
      case 0x87:
        return PushTuple(opcode - 0x84);
      case 't': {
        ASSIGN_OR_RETURN(const size_t count, CountToMark());
        RETURN_IF_ERROR(PushTuple(count));
        stack_.erase(stack_.end() - 2);  // the mark
        return absl::OkStatus();
      }
      case 's':
        return SetItems(2);
      case 'u': {
        ASSIGN_OR_RETURN(const size_t count, CountToMark());
        RETURN_IF_ERROR(SetItems(count));
        return PopAny();
      }
      case 'q':
        return Memorize<uint8_t>();
      case 'r':
        return Memorize<uint32_t>();
      case 'h':
        return Recall<uint8_t>();
      case 'j':
        return Recall<uint32_t>();
      case 'Q':
        return PushStorage();
      case 'R':
        return Call();
      case 'b':  // attributes of a dict (versions of its modules): ignored
        RETURN_IF_ERROR(PopAny());
        return Top<Dict>("a dict").status();
      default:
        return Wrong(absl::StrCat("opcode ", absl::Hex(opcode, absl::kZeroPad2)),
                     "those of a dict of tensors");
    }
  }

  // ---- The pickle's bytes ----

  template <typename T>
  absl::StatusOr<T> Take() {
    if (pickle_.size() - next_ < sizeof(T)) return EndsEarly();
    T value;
    std::memcpy(&value, pickle_.data() + next_, sizeof(T));
    next_ += sizeof(T);
    return value;
  }
  absl::StatusOr<PickleText> TakeText(size_t size) {
    if (pickle_.size() - next_ < size) return EndsEarly();
    const PickleText text(reinterpret_cast<const char*>(pickle_.data()) + next_, size);
    next_ += size;
    return text;
  }
  absl::StatusOr<PickleText> TakeLine() {
    const PickleText rest(reinterpret_cast<const char*>(pickle_.data()) + next_,
                          pickle_.size() - next_);
    const size_t size = rest.find('\n');
    if (size == rest.npos) return EndsEarly();
    next_ += size + 1;
    return rest.substr(0, size);
  }
  absl::Status EndsEarly() const { return Wrong("the end of the pickle", "a whole pickle"); }

  // ---- The stack ----

  absl::Status Push(PickleValue value) {
    stack_.push_back(static_cast<int>(values_.size()));
    values_.push_back(std::move(value));
    return absl::OkStatus();
  }
  absl::Status PopAny() {
    if (stack_.empty()) return Wrong("an empty stack", "a value");
    stack_.pop_back();
    return absl::OkStatus();
  }
  // Returns the value on top, which must be of this kind.
  template <typename T>
  absl::StatusOr<T*> Top(absl::string_view allowed) {
    T* const value = stack_.empty() ? nullptr : std::get_if<T>(&values_[stack_.back()]);
    if (value == nullptr) return Wrong("another value", allowed);
    return value;
  }
  template <typename T>
  absl::StatusOr<T*> Pop(absl::string_view allowed) {
    ASSIGN_OR_RETURN(T* const value, Top<T>(allowed));
    stack_.pop_back();
    return value;
  }
  // Returns the number of values above the last mark.
  absl::StatusOr<size_t> CountToMark() const {
    for (size_t count = 0; count < stack_.size(); ++count) {
      if (std::holds_alternative<Mark>(values_[stack_[stack_.size() - 1 - count]])) return count;
    }
    return Wrong("no mark", "a mark on the stack");
  }

  template <typename T>
  absl::Status PushInteger() {
    ASSIGN_OR_RETURN(const T value, Take<T>());
    return Push(int64_t{value});
  }
  absl::Status PushLong() {
    ASSIGN_OR_RETURN(const uint8_t size, Take<uint8_t>());
    ASSIGN_OR_RETURN(const PickleText bytes, TakeText(size));
    if (size > sizeof(int64_t)) return Wrong("an integer of more than 64 bits", "at most 64 bits");
    int64_t value = size > 0 && (bytes.back() & 0x80) != 0 ? -1 : 0;
    std::memcpy(&value, bytes.data(), size);
    return Push(value);
  }
  absl::Status PushClass() {
    ASSIGN_OR_RETURN(const PickleText module, TakeLine());
    ASSIGN_OR_RETURN(const PickleText name, TakeLine());
    const std::string whole = absl::StrCat(module, " ", name);
    for (const PickleClass& known : kClasses) {
      if (whole == known.name) return Push(&known);
    }
    return Wrong(Quoted(whole), "the classes of a dict of tensors");
  }
  absl::Status PushTuple(size_t count) {
    if (count > stack_.size()) return Wrong("an empty stack", "a tuple's values");
    Tuple tuple{{stack_.end() - static_cast<ptrdiff_t>(count), stack_.end()}};
    stack_.resize(stack_.size() - count);
    return Push(std::move(tuple));
  }
  // Adds pairs to the dict that is `count` values below the top, or one more with a mark between.
  absl::Status SetItems(size_t count) {
    if (count % 2 != 0 || count > stack_.size())
      return Wrong("a key without a value", "pairs of keys and values");
    const std::vector<int> items(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    size_t below = 1;
    if (!stack_.empty() && std::holds_alternative<Mark>(values_[stack_.back()])) below = 2;
    Dict* const dict = below > stack_.size()
                           ? nullptr
                           : std::get_if<Dict>(&values_[stack_[stack_.size() - below]]);
    if (dict == nullptr) return Wrong("another value", "a dict");
    for (size_t i = 0; i < count; i += 2) dict->items.emplace_back(items[i], items[i + 1]);
    return absl::OkStatus();
  }
  template <typename T>
  absl::Status Memorize() {
    ASSIGN_OR_RETURN(const T key, Take<T>());
    if (stack_.empty()) return Wrong("an empty stack", "a value");
    memo_[key] = stack_.back();
    return absl::OkStatus();
  }
  template <typename T>
  absl::Status Recall() {
    ASSIGN_OR_RETURN(const T key, Take<T>());
    const auto found = memo_.find(key);
    if (found == memo_.end()) return Wrong("an unknown memo key", "a stored one");
    stack_.push_back(found->second);
    return absl::OkStatus();
  }

  // ---- Tensors ----

  // Returns item `i` of a tuple; null unless it is of this kind.
  template <typename T>
  const T* Item(const Tuple& tuple, size_t i) const {
    return i < tuple.items.size() ? std::get_if<T>(&values_[tuple.items[i]]) : nullptr;
  }

  // Replaces the tuple ("storage", class, key, device, number of elements) by the storage.
  absl::Status PushStorage() {
    ASSIGN_OR_RETURN(const Tuple* const id, Pop<Tuple>("the tuple of a storage"));
    const PickleText* const kind = Item<PickleText>(*id, 0);
    const PickleClass* const* const type = Item<const PickleClass*>(*id, 1);
    const PickleText* const key = Item<PickleText>(*id, 2);
    const int64_t* const count = Item<int64_t>(*id, 4);
    if (kind == nullptr || *kind != "storage" || type == nullptr ||
        (*type)->kind != PickleClass::kStorage || key == nullptr || count == nullptr ||
        *count < 0) {
      return Wrong("another tuple", "that of a storage");
    }
    const auto found = storages_.find(*key);
    if (found == storages_.end()) {
      return Wrong(absl::StrCat("storage ", Quoted(*key)), "one that the archive has");
    }
    const SafetensorsDType* const dtype = FindSafetensorsDType((*type)->dtype);
    const int64_t most = static_cast<int64_t>(found->second.size()) / dtype->bytes;
    if (*count > most) {
      return Wrong(absl::StrCat("storage ", Quoted(*key), " of ", *count, " elements"),
                   absl::StrCat("at most ", most, ", which is all that the archive holds"));
    }
    return Push(TorchStorage{dtype, found->second.first(*count * dtype->bytes)});
  }

  absl::Status Call() {
    ASSIGN_OR_RETURN(const Tuple* const arguments, Pop<Tuple>("arguments"));
    ASSIGN_OR_RETURN(const PickleClass* const* const called, Pop<const PickleClass*>("a function"));
    switch ((*called)->kind) {
      case PickleClass::kOrderedDict:
        if (!arguments->items.empty()) break;
        return Push(Dict());
      case PickleClass::kRebuildTensor:
        return PushTensor(*arguments);
      case PickleClass::kRebuildParameter:
        if (Item<SafetensorsEntry>(*arguments, 0) == nullptr) break;
        stack_.push_back(arguments->items[0]);
        return absl::OkStatus();
      case PickleClass::kStorage:
        break;
    }
    return Wrong(absl::StrCat("a call of ", Quoted((*called)->name)),
                 "one as torch.save writes it");
  }

  // Pushes a tensor from the arguments (storage, offset, shape, strides, ...); the rest is for
  // training.
  absl::Status PushTensor(const Tuple& arguments) {
    const auto* const storage = Item<TorchStorage>(arguments, 0);
    const int64_t* const offset = Item<int64_t>(arguments, 1);
    const Tuple* const shape = Item<Tuple>(arguments, 2);
    const Tuple* const strides = Item<Tuple>(arguments, 3);
    if (storage == nullptr || offset == nullptr || shape == nullptr || strides == nullptr ||
        shape->items.size() != strides->items.size()) {
      return Wrong("other arguments", "storage, offset, shape and strides of a tensor");
    }
    if (shape->items.size() > kMaxDimensions) {
      return Wrong(absl::StrCat("a tensor of ", shape->items.size(), " dimensions"),
                   absl::StrCat("at most ", kMaxDimensions));
    }
    SafetensorsEntry entry;
    entry.dtype_name = storage->type->name;
    entry.dtype = storage->type->dtype;
    for (size_t i = 0; i < shape->items.size(); ++i) {
      const int64_t* const size = Item<int64_t>(*shape, i);
      if (size == nullptr || *size < 0) return Wrong("another shape", "integers from 0");
      entry.shape.push_back(*size);
    }
    const int64_t element_bytes = storage->type->bytes;
    const auto num_stored = static_cast<int64_t>(storage->bytes.size()) / element_bytes;
    entry.num_elements = 1;
    for (size_t i = entry.shape.size(); i-- > 0;) {
      const int64_t* const stride = Item<int64_t>(*strides, i);
      if (stride == nullptr || (entry.shape[i] > 1 && *stride != entry.num_elements)) {
        return Wrong(absl::StrCat("a tensor of shape ", ShapeText(entry.shape), " with gaps"),
                     "contiguous rows");
      }
      if (__builtin_mul_overflow(entry.num_elements, entry.shape[i], &entry.num_elements)) {
        return Wrong(absl::StrCat("shape ", ShapeText(entry.shape)), "fewer than 2^63 elements");
      }
    }
    if (*offset < 0 || *offset > num_stored || entry.num_elements > num_stored - *offset) {
      return Wrong(absl::StrCat("a tensor of shape ", ShapeText(entry.shape), " from element ",
                                *offset, " on"),
                   absl::StrCat("one within the ", num_stored, " of its storage"));
    }
    entry.bytes =
        storage->bytes.subspan(*offset * element_bytes, entry.num_elements * element_bytes);
    return Push(std::move(entry));
  }

  absl::Status Wrong(absl::string_view found, absl::string_view allowed) const {
    return NotAllowed(absl::StrCat(where_, ": byte ", opcode_place_), found, allowed);
  }

  const absl::Span<const std::byte> pickle_;
  const absl::string_view where_;
  const HashMap<absl::string_view, absl::Span<const std::byte>>& storages_;  // by key
  size_t next_ = 0;
  size_t opcode_place_ = 0;
  bool is_over_ = false;
  std::deque<PickleValue> values_;
  std::vector<int> stack_;  // indices into values_
  HashMap<uint32_t, int> memo_;
};

}  // namespace

absl::StatusOr<std::vector<SafetensorsEntry>> ParseTorchFile(absl::Span<const std::byte> file,
                                                             absl::string_view file_name) {
  constexpr char kPickle[] = "data.pkl";
  const auto wrong = [&](absl::string_view found, absl::string_view allowed) {
    return NotAllowed(file_name, found, allowed);
  };
  ASSIGN_OR_RETURN(const std::vector<ZipEntry> entries, ZipReader(file, file_name).Read());
  const ZipEntry* pickle = nullptr;
  for (const ZipEntry& entry : entries) {
    if (!absl::EndsWith(entry.name, absl::StrCat("/", kPickle))) continue;
    if (pickle != nullptr) return wrong(absl::StrCat("several ", kPickle), "one");
    pickle = &entry;
  }
  if (pickle == nullptr) return wrong(absl::StrCat("no ", kPickle), "an archive of torch.save");
  if (pickle->bytes.size() > kMaxPickleBytes) {
    return wrong(absl::StrCat(kPickle, " of ", pickle->bytes.size(), " bytes"),
                 absl::StrCat("at most ", kMaxPickleBytes));
  }
  const absl::string_view folder = absl::StripSuffix(pickle->name, kPickle);
  HashMap<absl::string_view, absl::Span<const std::byte>> storages;
  for (const ZipEntry& entry : entries) {
    absl::string_view name = entry.name;
    if (!absl::ConsumePrefix(&name, folder)) continue;
    const absl::string_view text(reinterpret_cast<const char*>(entry.bytes.data()),
                                 entry.bytes.size());
    if (name == "byteorder" && text != "little") return wrong("byteorder big", "little");
    if (!absl::ConsumePrefix(&name, "data/")) continue;
    if (!storages.emplace(name, entry.bytes).second) {
      return wrong(absl::StrCat("two storages ", Quoted(name)), "one");
    }
  }
  return PickleReader(pickle->bytes, absl::StrCat(file_name, ": ", kPickle), storages).Read();
}

}  // namespace tandem
