#include "model/checkpoint/safetensors.h"

#include <endian.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

using Json = SortedJson;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference library

constexpr SafetensorsDType kDTypes[] = {
    {"F32", 4, DType::kF32},   {"F16", 2, DType::kF16},      {"BF16", 2, DType::kBF16},
    {"F64", 8, std::nullopt},  {"I64", 8, std::nullopt},     {"I32", 4, std::nullopt},
    {"I16", 2, std::nullopt},  {"I8", 1, std::nullopt},      {"U64", 8, std::nullopt},
    {"U32", 4, std::nullopt},  {"U16", 2, std::nullopt},     {"U8", 1, std::nullopt},
    {"BOOL", 1, std::nullopt}, {"F8_E4M3", 1, std::nullopt}, {"F8_E5M2", 1, std::nullopt},
};

// Reads one tensor's description and the place of its bytes in the data.
class EntryReader {
 public:
  EntryReader(absl::string_view file, absl::string_view name, const Json& value)
      : file_(file), name_(name), value_(value) {}

  absl::StatusOr<SafetensorsEntry> Read(absl::Span<const std::byte> data) const {
    if (!value_.is_object()) return Wrong("description", value_, "an object");
    for (const auto& [key, field] : value_.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        return Wrong(key, field, "the keys dtype, shape and data_offsets");
      }
    }
    SafetensorsEntry entry;
    entry.name = std::string(name_);
    const Json& dtype_name = Field("dtype");
    const auto* const text = dtype_name.get_ptr<const std::string*>();
    const SafetensorsDType* const dtype = text == nullptr ? nullptr : FindSafetensorsDType(*text);
    if (dtype == nullptr) {
      return Wrong("dtype", dtype_name,
                   absl::StrJoin(kDTypes, ", ", [](std::string* out, const SafetensorsDType& type) {
                     out->append(type.name);
                   }));
    }
    entry.dtype_name = dtype->name;
    entry.dtype = dtype->dtype;
    RETURN_IF_ERROR(ReadShape(dtype->bytes, &entry));
    ASSIGN_OR_RETURN(entry.bytes, ReadBytes(data));
    const int64_t wanted = entry.num_elements * dtype->bytes;
    if (static_cast<int64_t>(entry.bytes.size()) != wanted) {
      return Wrong(
          "data_offsets", Field("data_offsets"),
          absl::StrCat(wanted, " bytes, as its dtype and shape ", Shown(Field("shape")), " say"));
    }
    return entry;
  }

 private:
  absl::Status Wrong(absl::string_view key, const Json& found, absl::string_view allowed) const {
    return NotAllowed(absl::StrCat(file_, ": tensor ", Quoted(name_), ": ", key), Shown(found),
                      allowed);
  }
  const Json& Field(const char* key) const {
    static const Json& absent = *new Json();
    const auto found = value_.find(key);
    return found == value_.end() ? absent : *found;
  }

  absl::Status ReadShape(int64_t element_bytes, SafetensorsEntry* entry) const {
    const Json& shape = Field("shape");
    if (!shape.is_array()) return Wrong("shape", shape, "a list");
    entry->num_elements = 1;
    int64_t bytes = element_bytes;
    for (const Json& size : shape) {
      if (!size.is_number_unsigned()) return Wrong("shape", shape, "integers from 0");
      const uint64_t value = size.get<uint64_t>();
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
          __builtin_mul_overflow(bytes, static_cast<int64_t>(value), &bytes)) {
        return Wrong("shape", shape, "sizes whose product is less than 2^63 bytes");
      }
      entry->shape.push_back(static_cast<int64_t>(value));
      entry->num_elements *= static_cast<int64_t>(value);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<absl::Span<const std::byte>> ReadBytes(absl::Span<const std::byte> data) const {
    const Json& offsets = Field("data_offsets");
    const bool is_pair = offsets.is_array() && offsets.size() == 2 &&
                         offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned();
    if (!is_pair) return Wrong("data_offsets", offsets, "two integers from 0");
    const uint64_t begin = offsets[0].get<uint64_t>();
    const uint64_t end = offsets[1].get<uint64_t>();
    if (begin > end || end > data.size()) {
      return Wrong("data_offsets", offsets,
                   absl::StrCat("[begin, end] with begin <= end <= ", data.size(),
                                ", the bytes after the header", begin > end ? "" : kCutOff));
    }
    return data.subspan(begin, end - begin);
  }

  absl::string_view file_;
  absl::string_view name_;
  const Json& value_;
};

absl::Status CheckMetadata(const Json& metadata, absl::string_view file) {
  bool good = metadata.is_object();
  if (good) {
    for (const Json& value : metadata) good = good && value.is_string();
  }
  if (good) return absl::OkStatus();
  return NotAllowed(absl::StrCat(file, ": __metadata__"), Shown(metadata), "an object of strings");
}

// Sorts the entries by their bytes, and checks that these cover the data without gaps or overlaps.
absl::Status CheckCoverage(absl::Span<const std::byte> data, absl::string_view file,
                           std::vector<SafetensorsEntry>* entries) {
  const auto end_of = [](const SafetensorsEntry& entry) {
    return entry.bytes.data() + entry.bytes.size();
  };
  std::sort(entries->begin(), entries->end(), [&](const auto& a, const auto& b) {
    return std::pair(a.bytes.data(), end_of(a)) < std::pair(b.bytes.data(), end_of(b));
  });
  const std::byte* covered = data.data();
  for (const SafetensorsEntry& entry : *entries) {
    if (entry.bytes.data() != covered) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": tensor ", Quoted(entry.name), ": data_offsets: begins at ",
                       entry.bytes.data() - data.data(), ", allowed: ", covered - data.data(),
                       entry.bytes.data() < covered ? ", the end of the tensor it overlaps"
                                                    : ", the end of the tensor before it"));
    }
    covered = end_of(entry);
  }
  if (covered != data.data() + data.size()) {
    return NotAllowed(file, absl::StrCat(data.size(), " bytes after the header"),
                      absl::StrCat(covered - data.data(), ", the end of its last tensor"));
  }
  return absl::OkStatus();
}

}  // namespace

const SafetensorsDType* FindSafetensorsDType(absl::string_view name) {
  const auto* const found =
      absl::c_find_if(kDTypes, [&](const SafetensorsDType& dtype) { return name == dtype.name; });
  return found == std::end(kDTypes) ? nullptr : found;
}

const char* SafetensorsName(DType dtype) {
  const auto* const found =
      absl::c_find_if(kDTypes, [&](const SafetensorsDType& known) { return known.dtype == dtype; });
  TANDEM_CHECK(found != std::end(kDTypes));
  return found->name;
}

absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensors(absl::Span<const std::byte> file,
                                                               absl::string_view file_name) {
  if (file.size() < kLengthBytes) {
    return NotAllowed(file_name, absl::StrCat(file.size(), " bytes"),
                      absl::StrCat("at least the ", kLengthBytes,
                                   " of a safetensors file's header length", kCutOff));
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  header_bytes = le64toh(header_bytes);
  const uint64_t most = std::min<uint64_t>(file.size() - kLengthBytes, kMaxHeaderBytes);
  if (header_bytes > most) {
    return NotAllowed(absl::StrCat(file_name, ": header length"), absl::StrCat(header_bytes),
                      absl::StrCat("at most ", most, most < kMaxHeaderBytes ? kCutOff : ""));
  }
  const absl::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes,
                               header_bytes);
  ASSIGN_OR_RETURN(const SortedJson document,
                   ParseJsonObject(text, absl::StrCat(file_name, ": header")));
  const absl::Span<const std::byte> data = file.subspan(kLengthBytes + header_bytes);
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, value] : document.items()) {
    if (name == "__metadata__") {
      RETURN_IF_ERROR(CheckMetadata(value, file_name));
      continue;
    }
    ASSIGN_OR_RETURN(SafetensorsEntry entry, EntryReader(file_name, name, value).Read(data));
    entries.push_back(std::move(entry));
  }
  RETURN_IF_ERROR(CheckCoverage(data, file_name, &entries));
  return entries;
}

std::string SafetensorsHeader(absl::Span<const TensorHeader> tensors, size_t min_bytes) {
  constexpr size_t kAlignment = 64;
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t offset = 0;
  for (const TensorHeader& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes}}};
    offset += tensor.bytes;
  }
  std::string text = header.dump();
  const size_t bytes = std::max(sizeof(uint64_t) + text.size(), min_bytes);
  text.resize((bytes + kAlignment - 1) / kAlignment * kAlignment - sizeof(uint64_t), ' ');
  const uint64_t length = htole64(text.size());
  return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&length), sizeof(length)),
                      text);
}

}  // namespace tandem
