#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash_map.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "kernels/blocks.h"
#include "model/checkpoint/gguf.h"

namespace tandem {
namespace {

constexpr absl::string_view kMagic = "GGUF";
constexpr uint32_t kVersions[] = {2, 3};  // the same layout
constexpr uint64_t kMinAlignment = 8;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint32_t kMaxGgufDimensions = 4;
// Bounds far above any real model, so that little of a hostile file is kept in memory.
constexpr uint64_t kMaxKeys = 100'000;
constexpr uint64_t kMaxTensors = 200'000;
constexpr uint64_t kMaxNameBytes = 65'535;  // of a key: the format's own
constexpr uint64_t kMaxStrings = 1 << 24;   // of an array
// The shortest key is a length, a kind and a byte; the shortest tensor is a length, a number of
// dimensions, one dimension, a type and an offset.
constexpr uint64_t kMinKeyBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

}  // namespace

// Reads one file from its first byte to the end of the tensors' descriptions.
class GgufFile::Reader {
 public:
  Reader(absl::Span<const std::byte> bytes, bool may_end_early, GgufFile* to)
      : bytes_(bytes), may_end_early_(may_end_early), to_(*to) {}

  absl::Status Read() {
    RETURN_IF_ERROR(ReadHeader());
    for (uint64_t i = 0; i < num_keys_; ++i) RETURN_IF_ERROR(ReadKey(i));
    ASSIGN_OR_RETURN(const uint64_t alignment, ReadAlignment());
    to_.tensors_.reserve(num_tensors_);
    offsets_.reserve(num_tensors_);
    for (uint64_t i = 0; i < num_tensors_; ++i) RETURN_IF_ERROR(ReadTensor(i));
    return Place(alignment);
  }

 private:
  // `where` is "key \"x\"" and so on.
  absl::Status Wrong(absl::string_view where, absl::string_view found,
                     absl::string_view allowed) const {
    return NotAllowed(absl::StrCat(to_.path_, ": ", where), found, allowed);
  }
  uint64_t left() const { return bytes_.size() - at_; }

  absl::StatusOr<absl::Span<const std::byte>> Take(uint64_t size, absl::string_view where,
                                                   absl::string_view what) {
    if (size > left()) {
      return Wrong(where, absl::StrCat(what, " of ", size, " bytes"),
                   absl::StrCat(left(), ", the bytes up to the end of the file", kCutOff));
    }
    const absl::Span<const std::byte> taken = bytes_.subspan(at_, size);
    at_ += size;
    return taken;
  }
  template <typename Number>
  absl::StatusOr<Number> TakeNumber(absl::string_view where, absl::string_view what) {
    ASSIGN_OR_RETURN(const absl::Span<const std::byte> taken, Take(sizeof(Number), where, what));
    Number number;
    std::memcpy(&number, taken.data(), sizeof(Number));
    return number;
  }
  absl::StatusOr<absl::Span<const std::byte>> TakeString(absl::string_view where,
                                                         absl::string_view what) {
    ASSIGN_OR_RETURN(const uint64_t size,
                     TakeNumber<uint64_t>(where, absl::StrCat("a length of ", what)));
    return Take(size, where, what);
  }
  // The name of a key or a tensor.
  absl::StatusOr<std::string> TakeName(absl::string_view where) {
    ASSIGN_OR_RETURN(const absl::Span<const std::byte> name, TakeString(where, "a name"));
    if (name.size() > kMaxNameBytes) {
      return Wrong(where, absl::StrCat("a name of ", name.size(), " bytes"),
                   absl::StrCat("at most ", kMaxNameBytes));
    }
    return std::string(reinterpret_cast<const char*>(name.data()), name.size());
  }

  absl::Status ReadHeader() {
    if (bytes_.size() < kMagic.size() ||
        std::memcmp(bytes_.data(), kMagic.data(), kMagic.size()) != 0) {
      const absl::string_view start(reinterpret_cast<const char*>(bytes_.data()),
                                    std::min(bytes_.size(), kMagic.size()));
      return Wrong("magic", bytes_.empty() ? "an empty file" : Quoted(start), Quoted(kMagic));
    }
    at_ = kMagic.size();
    ASSIGN_OR_RETURN(const uint32_t version, TakeNumber<uint32_t>("header", "a version"));
    if (std::find(std::begin(kVersions), std::end(kVersions), version) == std::end(kVersions)) {
      const bool is_swapped = version != 0 && version % (1 << 16) == 0;
      return Wrong("version",
                   is_swapped ? absl::StrCat(__builtin_bswap32(version), " in big-endian order")
                              : absl::StrCat(version),
                   absl::StrCat(absl::StrJoin(kVersions, ", "), ", little-endian"));
    }
    ASSIGN_OR_RETURN(num_tensors_, TakeNumber<uint64_t>("header", "a number of tensors"));
    ASSIGN_OR_RETURN(num_keys_, TakeNumber<uint64_t>("header", "a number of keys"));
    RETURN_IF_ERROR(CheckCount("number of tensors", num_tensors_, kMinTensorBytes, kMaxTensors));
    return CheckCount("number of keys", num_keys_, kMinKeyBytes, kMaxKeys);
  }
  absl::Status CheckCount(absl::string_view what, uint64_t count, uint64_t min_bytes,
                          uint64_t most) const {
    const uint64_t fit = left() / min_bytes;
    if (count <= std::min(fit, most)) return absl::OkStatus();
    return Wrong(what, absl::StrCat(count),
                 fit < most ? absl::StrCat("at most ", fit, ", which is all that the rest of the ",
                                           "file has bytes for", kCutOff)
                            : absl::StrCat("at most ", most));
  }

  absl::Status ReadKey(uint64_t index) {
    ASSIGN_OR_RETURN(std::string name,
                     TakeName(absl::StrCat("key ", index + 1, " of ", num_keys_)));
    const std::string where = absl::StrCat("key ", Quoted(name));
    Value value;
    ASSIGN_OR_RETURN(value.kind, TakeKind(where, "a value of type "));
    if (value.kind == GgufKind::kArray) {
      RETURN_IF_ERROR(ReadArray(where, &value));
    } else if (value.kind == GgufKind::kString) {
      ASSIGN_OR_RETURN(value.bytes, TakeString(where, "a string"));
    } else {
      ASSIGN_OR_RETURN(value.bytes, Take(BytesOf(value.kind), where, "a value"));
    }
    if (!to_.values_.try_emplace(std::move(name), value).second) {
      return Wrong(where, "twice", "once");
    }
    return absl::OkStatus();
  }
  absl::StatusOr<GgufKind> TakeKind(absl::string_view where, absl::string_view what) {
    ASSIGN_OR_RETURN(const uint32_t kind, TakeNumber<uint32_t>(where, "a type"));
    if (kind < kNumGgufKinds) return GgufKind{kind};
    return Wrong(where, absl::StrCat(what, kind),
                 absl::StrCat("types from 0 to ", kNumGgufKinds - 1));
  }
  // Checks that the elements lie in the file; the values of numbers are not checked.
  absl::Status ReadArray(absl::string_view where, Value* value) {
    ASSIGN_OR_RETURN(value->element_kind, TakeKind(where, "an array of values of type "));
    ASSIGN_OR_RETURN(value->count, TakeNumber<uint64_t>(where, "an array's length"));
    if (value->element_kind == GgufKind::kArray) {
      return Wrong(where, "an array of nested arrays", "arrays of strings or numbers");
    }
    const bool is_strings = value->element_kind == GgufKind::kString;
    const uint64_t least = is_strings ? 8 : BytesOf(value->element_kind);
    const uint64_t most = std::min(left() / least, is_strings ? kMaxStrings : left());
    if (value->count > most) {
      return Wrong(
          where, absl::StrCat("an array of ", value->count, " elements"),
          most == kMaxStrings
              ? absl::StrCat("at most ", most, " strings")
              : absl::StrCat("at most ", most, ", which is all the file has bytes for", kCutOff));
    }
    const size_t begin = at_;
    if (!is_strings) {
      at_ += value->count * least;
    } else {
      for (uint64_t i = 0; i < value->count; ++i) {
        RETURN_IF_ERROR(TakeString(where, "a string of an array").status());
      }
    }
    value->bytes = bytes_.subspan(begin, at_ - begin);
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> ReadAlignment() const {
    constexpr char kKey[] = "general.alignment";
    if (!to_.Has(kKey)) return kDefaultAlignment;
    ASSIGN_OR_RETURN(const int64_t alignment, to_.GetInteger(kKey, kMinAlignment, kMaxAlignment));
    if ((alignment & (alignment - 1)) != 0) {
      return to_.Wrong(kKey, absl::StrCat(alignment), "a power of two");
    }
    return alignment;
  }

  absl::Status ReadTensor(uint64_t index) {
    GgufTensor tensor;
    ASSIGN_OR_RETURN(tensor.name,
                     TakeName(absl::StrCat("tensor ", index + 1, " of ", num_tensors_)));
    tensor.path = to_.paths_.back().get();
    const std::string where = absl::StrCat("tensor ", Quoted(tensor.name));
    RETURN_IF_ERROR(ReadShape(where, &tensor));
    ASSIGN_OR_RETURN(const uint32_t number, TakeNumber<uint32_t>(where, "a type"));
    const GgufTensorType type = GgufTensorTypeOf(number);
    if (!type.dtype.has_value() && !type.is_int64) {
      return Wrong(where,
                   type.name == nullptr ? absl::StrCat("type ", number)
                                        : absl::StrCat("type ", type.name, " (", number, ")"),
                   AllowedGgufTensorTypes());
    }
    tensor.is_int64 = type.is_int64;
    tensor.dtype = type.dtype.value_or(DType::kF32);
    ASSIGN_OR_RETURN(const uint64_t size, BytesOfTensor(where, type.name, tensor));
    ASSIGN_OR_RETURN(const uint64_t offset, TakeNumber<uint64_t>(where, "an offset"));
    tensor.bytes = {nullptr, size};  // Place() sets the pointer
    to_.tensors_.push_back(std::move(tensor));
    offsets_.push_back(offset);
    return absl::OkStatus();
  }

  absl::Status ReadShape(absl::string_view where, GgufTensor* tensor) {
    ASSIGN_OR_RETURN(const uint32_t num_dimensions,
                     TakeNumber<uint32_t>(where, "a number of dimensions"));
    if (num_dimensions < 1 || num_dimensions > kMaxGgufDimensions) {
      return Wrong(where, absl::StrCat(num_dimensions, " dimensions"),
                   absl::StrCat("from 1 to ", kMaxGgufDimensions));
    }
    tensor->shape.resize(num_dimensions);
    for (auto size = tensor->shape.rbegin(); size != tensor->shape.rend(); ++size) {
      ASSIGN_OR_RETURN(const uint64_t value, TakeNumber<uint64_t>(where, "a dimension"));
      if (value < 1 || value > uint64_t{std::numeric_limits<int32_t>::max()}) {
        return Wrong(where, absl::StrCat("a dimension of ", value),
                     absl::StrCat("from 1 to ", std::numeric_limits<int32_t>::max()));
      }
      *size = static_cast<int64_t>(value);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> BytesOfTensor(absl::string_view where, absl::string_view type,
                                         const GgufTensor& tensor) const {
    const int block = tensor.is_int64 ? 1 : BlockShapeOf(tensor.dtype).inputs;
    const int64_t row = tensor.shape.back();
    if (row % block != 0) {
      return Wrong(where, absl::StrCat("rows of ", row),
                   absl::StrCat("multiples of ", block, ", the block of ", type));
    }
    uint64_t bytes = tensor.is_int64 ? sizeof(int64_t) * row : RowBytes(tensor.dtype, row);
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
      if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(tensor.shape[i]), &bytes)) {
        return Wrong(where, absl::StrCat("shape [", absl::StrJoin(tensor.shape, ", "), "]"),
                     "sizes whose product is less than 2^64 bytes");
      }
    }
    return bytes;
  }

  // Sets the tensors' bytes, which begin at the next multiple of the alignment.
  absl::Status Place(uint64_t alignment) {
    const uint64_t begin =
        std::min<uint64_t>((at_ + alignment - 1) / alignment * alignment, bytes_.size());
    const absl::Span<const std::byte> data = bytes_.subspan(begin);
    for (size_t i = 0; i < offsets_.size(); ++i) {
      GgufTensor& tensor = to_.tensors_[i];
      const std::string where = absl::StrCat("tensor ", Quoted(tensor.name));
      const uint64_t size = tensor.bytes.size();
      if (offsets_[i] % alignment != 0) {
        return Wrong(where, absl::StrCat("offset ", offsets_[i]),
                     absl::StrCat("multiples of the alignment ", alignment));
      }
      if (offsets_[i] > data.size() || size > data.size() - offsets_[i]) {
        tensor.bytes = {};
        if (may_end_early_) continue;
        return Wrong(where, absl::StrCat(size, " bytes from offset ", offsets_[i], " on"),
                     absl::StrCat("up to ", data.size(), ", the end of the file", kCutOff));
      }
      tensor.bytes = data.subspan(offsets_[i], size);
    }
    RETURN_IF_ERROR(CheckNames());
    return CheckOverlaps();
  }
  absl::Status CheckNames() const {
    HashSet<absl::string_view> names;
    for (const GgufTensor& tensor : to_.tensors_) {
      if (names.insert(tensor.name).second) continue;
      return Wrong(absl::StrCat("tensor ", Quoted(tensor.name)), "twice", "once");
    }
    return absl::OkStatus();
  }
  absl::Status CheckOverlaps() const {
    std::vector<const GgufTensor*> order;
    for (const GgufTensor& tensor : to_.tensors_) {
      if (!tensor.bytes.empty()) order.push_back(&tensor);
    }
    std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
      return std::pair(a->bytes.data(), a) < std::pair(b->bytes.data(), b);
    });
    for (size_t i = 1; i < order.size(); ++i) {
      const GgufTensor& before = *order[i - 1];
      if (before.bytes.data() + before.bytes.size() <= order[i]->bytes.data()) continue;
      return Wrong(absl::StrCat("tensor ", Quoted(order[i]->name)),
                   absl::StrCat("an offset within the bytes of ", Quoted(before.name)),
                   "tensors that do not overlap");
    }
    return absl::OkStatus();
  }

  absl::Span<const std::byte> bytes_;
  const bool may_end_early_;
  GgufFile& to_;
  size_t at_ = 0;
  uint64_t num_tensors_ = 0;
  uint64_t num_keys_ = 0;
  std::vector<uint64_t> offsets_;  // of the tensors, from the start of the data
};

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Parse(absl::Span<const std::byte> bytes,
                                                          const std::string& name,
                                                          bool may_end_early) {
  std::unique_ptr<GgufFile> file(new GgufFile());
  file->path_ = name;
  file->paths_.push_back(std::make_unique<const std::string>(name));
  RETURN_IF_ERROR(Reader(bytes, may_end_early, file.get()).Read());
  return file;
}

}  // namespace tandem
