#include "model/checkpoint/gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/format.h"
#include "base/hash_map.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "model/checkpoint/weights.h"

namespace tandem {
namespace {

struct Kind {
  const char* name;
  size_t bytes;
};
// By number.
constexpr Kind kKinds[] = {{"uint8", 1},  {"int8", 1},  {"uint16", 2},  {"int16", 2},
                           {"uint32", 4}, {"int32", 4}, {"float32", 4}, {"bool", 1},
                           {"string", 0}, {"array", 0}, {"uint64", 8},  {"int64", 8},
                           {"float64", 8}};

// By number. Reference: enum ggml_type of ggml.h; the numbers without a name are obsolete formats.
constexpr GgufTensorType kTypes[] = {
    {"F32", DType::kF32},
    {"F16", DType::kF16},
    {"Q4_0", DType::kQ4_0},
    {"Q4_1", DType::kQ4_1},
    {},
    {},
    {"Q5_0", DType::kQ5_0},
    {"Q5_1", DType::kQ5_1},
    {"Q8_0", DType::kQ8_0},
    {"Q8_1"},
    {"Q2_K", DType::kQ2K},
    {"Q3_K", DType::kQ3K},
    {"Q4_K", DType::kQ4K},
    {"Q5_K", DType::kQ5K},
    {"Q6_K", DType::kQ6K},
    {"Q8_K"},
    {"IQ2_XXS"},
    {"IQ2_XS"},
    {"IQ3_XXS"},
    {"IQ1_S"},
    {"IQ4_NL", DType::kIq4Nl},
    {"IQ3_S"},
    {"IQ2_S"},
    {"IQ4_XS", DType::kIq4Xs},
    {"I8"},
    {"I16"},
    {"I32"},
    {"I64", std::nullopt, /*is_int64=*/true},
    {"F64"},
    {"IQ1_M"},
    {"BF16", DType::kBF16},
    {},
    {},
    {},
    {"TQ1_0"},
    {"TQ2_0"},
    {},
    {},
    {},
    {"MXFP4"},
};

static_assert(std::size(kKinds) == kNumGgufKinds && kTypes[kGgufInt64Type].is_int64);

}  // namespace

const char* NameOf(GgufKind kind) { return kKinds[static_cast<uint32_t>(kind)].name; }
size_t BytesOf(GgufKind kind) { return kKinds[static_cast<uint32_t>(kind)].bytes; }

GgufTensorType GgufTensorTypeOf(uint32_t number) {
  return number < std::size(kTypes) ? kTypes[number] : GgufTensorType{};
}

uint32_t GgufTensorTypeNumber(DType dtype) {
  for (uint32_t number = 0; number < std::size(kTypes); ++number) {
    if (kTypes[number].dtype == dtype) return number;
  }
  TANDEM_CHECK(false);
}

std::string AllowedGgufTensorTypes() {
  std::string names;
  for (const GgufTensorType& type : kTypes) {
    if (type.dtype.has_value() || type.is_int64)
      absl::StrAppend(&names, names.empty() ? "" : ", ", type.name);
  }
  return names;
}

namespace {

constexpr char kSuffix[] = ".gguf";
constexpr char kAllowed[] = "one GGUF model in a folder without a config.json";
constexpr char kPartNumber[] = "split.no";  // from 0
constexpr char kNumParts[] = "split.count";
constexpr char kNumTensors[] = "split.tensors.count";  // of all parts
constexpr int kMaxParts = 65'535;

// ---- Values ----

template <typename Number>
Number Load(const std::byte* at) {
  Number number;
  std::memcpy(&number, at, sizeof(Number));
  return number;
}

// Returns the integer of this kind at `at`; nullopt if the kind is not an integer or the value
// exceeds int64.
std::optional<int64_t> LoadInteger(GgufKind kind, const std::byte* at) {
  switch (kind) {
    case GgufKind::kUint8:
      return Load<uint8_t>(at);
    case GgufKind::kInt8:
      return Load<int8_t>(at);
    case GgufKind::kUint16:
      return Load<uint16_t>(at);
    case GgufKind::kInt16:
      return Load<int16_t>(at);
    case GgufKind::kUint32:
      return Load<uint32_t>(at);
    case GgufKind::kInt32:
      return Load<int32_t>(at);
    case GgufKind::kInt64:
      return Load<int64_t>(at);
    case GgufKind::kUint64: {
      const uint64_t number = Load<uint64_t>(at);
      if (number > uint64_t{std::numeric_limits<int64_t>::max()}) return std::nullopt;
      return static_cast<int64_t>(number);
    }
    default:
      return std::nullopt;
  }
}

// Returns the floating-point number of this kind at `at`; nullopt if the kind is not
// floating-point.
std::optional<double> LoadFloat(GgufKind kind, const std::byte* at) {
  if (kind == GgufKind::kFloat32) return Load<float>(at);
  if (kind == GgufKind::kFloat64) return Load<double>(at);
  return std::nullopt;
}

std::string_view Text(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Formats a value that is not an array, for errors.
std::string ShownValue(GgufKind kind, absl::Span<const std::byte> bytes) {
  if (kind == GgufKind::kString) return absl::StrCat("the string ", Quoted(View(Text(bytes))));
  if (kind == GgufKind::kBool) {
    const int byte = Load<uint8_t>(bytes.data());
    return byte == 0 ? "false" : byte == 1 ? "true" : absl::StrCat("a bool of ", byte);
  }
  if (kind == GgufKind::kUint64) return absl::StrCat(Load<uint64_t>(bytes.data()));
  if (const auto number = LoadFloat(kind, bytes.data())) return absl::StrCat(*number);
  return absl::StrCat(LoadInteger(kind, bytes.data()).value_or(0));
}

// ---- The parts of a split model ----

// "x-00002-of-00003.gguf"; the stem "x" includes the folder.
struct PartName {
  std::string stem;
  int part = 0;  // from 1
  int num_parts = 0;

  std::string Path(int of_part) const {
    return Format("%s-%05d-of-%05d%s", stem, of_part, num_parts, kSuffix);
  }
};

std::optional<PartName> ParsePartName(absl::string_view path) {
  constexpr size_t kTailBytes = sizeof("-00001-of-00003.gguf") - 1;
  if (path.size() < kTailBytes) return std::nullopt;
  PartName name;
  name.stem = std::string(path.substr(0, path.size() - kTailBytes));
  const absl::string_view tail = path.substr(name.stem.size());
  const bool are_numbers = absl::SimpleAtoi(tail.substr(1, 5), &name.part) &&
                           absl::SimpleAtoi(tail.substr(10, 5), &name.num_parts);
  if (!are_numbers || name.Path(name.part) != path) return std::nullopt;
  if (name.part < 1 || name.part > name.num_parts) return std::nullopt;
  return name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::OpenOne(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, Parse(mapped.bytes(), path));
  file->files_.push_back(std::move(mapped));  // the bytes stay where they are
  return file;
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, OpenOne(path));
  if (!file->Has(kNumParts)) return file;
  ASSIGN_OR_RETURN(const int64_t num_parts, file->GetInteger(kNumParts, 0, kMaxParts));
  if (num_parts <= 1) return file;
  ASSIGN_OR_RETURN(const int64_t index, file->GetInteger(kPartNumber, 0, num_parts - 1));
  const std::optional<PartName> name = ParsePartName(path);
  if (!name.has_value() || name->num_parts != num_parts || name->part != index + 1) {
    return file->Wrong(kNumParts, absl::StrCat(num_parts),
                       Format("1 unless the file is named as part %d of %d of a split "
                              "model, ...-%05d-of-%05d%s",
                              index + 1, num_parts, index + 1, num_parts, kSuffix));
  }
  if (index != 0) {
    return file->Wrong(kPartNumber, absl::StrCat(index),
                       absl::StrCat("0, the first part, which is ", name->Path(1)));
  }
  for (int part = 2; part <= num_parts; ++part) {
    RETURN_IF_ERROR(file->AddPart(name->Path(part), part, num_parts));
  }
  RETURN_IF_ERROR(file->CheckParts());
  return file;
}

absl::Status GgufFile::AddPart(const std::string& path, int part, int64_t num_parts) {
  absl::StatusOr<std::unique_ptr<GgufFile>> opened = OpenOne(path);
  if (absl::IsNotFound(opened.status())) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file, but ", path_,
                                            " is the first of ", num_parts, " parts"));
  }
  RETURN_IF_ERROR(opened.status());
  GgufFile& added = **opened;
  RETURN_IF_ERROR(added.GetInteger(kNumParts, num_parts, num_parts).status());
  RETURN_IF_ERROR(added.GetInteger(kPartNumber, part - 1, part - 1).status());
  std::move(added.tensors_.begin(), added.tensors_.end(), std::back_inserter(tensors_));
  std::move(added.paths_.begin(), added.paths_.end(), std::back_inserter(paths_));
  std::move(added.files_.begin(), added.files_.end(), std::back_inserter(files_));
  return absl::OkStatus();
}

std::vector<std::string> GgufFile::files() const {
  std::vector<std::string> files;
  for (const std::unique_ptr<const std::string>& path : paths_) files.push_back(*path);
  return files;
}

absl::Status GgufFile::CheckParts() const {
  HashMap<absl::string_view, const GgufTensor*> tensors;
  for (const GgufTensor& tensor : tensors_) {
    const auto [place, is_new] = tensors.try_emplace(tensor.name, &tensor);
    if (is_new) continue;
    return absl::InvalidArgumentError(absl::StrCat(*tensor.path, ": tensor ", Quoted(tensor.name),
                                                   ": also in ", *place->second->path,
                                                   ", allowed: once"));
  }
  if (!Has(kNumTensors)) return absl::OkStatus();
  const int64_t found = static_cast<int64_t>(tensors_.size());
  return GetInteger(kNumTensors, found, found).status();
}

absl::Status GgufFile::Wrong(std::string_view key, absl::string_view found,
                             absl::string_view allowed) const {
  return NotAllowed(absl::StrCat(path_, ": key ", Quoted(View(key))), found, allowed);
}

absl::Status GgufFile::InvalidValue(std::string_view key, const Value& value,
                                    absl::string_view allowed) const {
  const GgufKind kind = value.kind;
  if (kind != GgufKind::kArray) return Wrong(key, ShownValue(kind, value.bytes), allowed);
  return Wrong(key, absl::StrCat("an array of ", value.count, " ", NameOf(value.element_kind)),
               allowed);
}

absl::StatusOr<const GgufFile::Value*> GgufFile::Find(std::string_view key,
                                                      absl::string_view allowed) const {
  const auto found = values_.find(View(key));
  if (found != values_.end()) return &found->second;
  return absl::NotFoundError(
      absl::StrCat(path_, ": key ", Quoted(View(key)), ": found nothing, allowed: ", allowed));
}

absl::StatusOr<std::string_view> GgufFile::GetString(std::string_view key) const {
  constexpr char kAllowed[] = "a string";
  ASSIGN_OR_RETURN(const Value* const value, Find(key, kAllowed));
  if (value->kind != GgufKind::kString) return InvalidValue(key, *value, kAllowed);
  return Text(value->bytes);
}

GgufFile::Value GgufFile::ScalarIn(const Value& value, uint64_t num_equal) {
  using enum GgufKind;
  const bool is_list = IsArrayOf(value, {kUint8, kInt8, kUint16, kInt16, kUint32, kInt32, kUint64,
                                         kInt64, kFloat32, kFloat64});
  if (!is_list || value.count != num_equal) return value;
  const size_t size = value.bytes.size() / value.count;
  const bool is_equal = value.bytes.subspan(size) == value.bytes.first(value.bytes.size() - size);
  return is_equal ? Value{.kind = value.element_kind, .bytes = value.bytes.first(size)} : value;
}

absl::StatusOr<int64_t> GgufFile::GetInteger(std::string_view key, int64_t least, int64_t most,
                                             uint64_t num_equal) const {
  const std::string allowed =
      least == most ? absl::StrCat(least) : absl::StrCat("an integer from ", least, " to ", most);
  ASSIGN_OR_RETURN(const Value* const value, Find(key, allowed));
  const Value scalar = ScalarIn(*value, num_equal);
  const std::optional<int64_t> number = LoadInteger(scalar.kind, scalar.bytes.data());
  if (number.has_value() && *number >= least && *number <= most) return *number;
  return InvalidValue(key, *value, allowed);
}

absl::StatusOr<double> GgufFile::GetNumber(std::string_view key, uint64_t num_equal) const {
  constexpr char kAllowed[] = "a finite number";
  ASSIGN_OR_RETURN(const Value* const value, Find(key, kAllowed));
  const Value scalar = ScalarIn(*value, num_equal);
  if (const auto number = LoadFloat(scalar.kind, scalar.bytes.data())) {
    if (std::isfinite(*number)) return *number;
  } else if (scalar.kind == GgufKind::kUint64) {
    return static_cast<double>(Load<uint64_t>(scalar.bytes.data()));
  } else if (const auto integer = LoadInteger(scalar.kind, scalar.bytes.data())) {
    return static_cast<double>(*integer);
  }
  return InvalidValue(key, *value, kAllowed);
}

absl::StatusOr<bool> GgufFile::GetBool(std::string_view key) const {
  constexpr char kAllowed[] = "a bool of 0 or 1";
  ASSIGN_OR_RETURN(const Value* const value, Find(key, kAllowed));
  if (value->kind == GgufKind::kBool) {
    const uint8_t byte = Load<uint8_t>(value->bytes.data());
    if (byte <= 1) return byte == 1;
  }
  return InvalidValue(key, *value, kAllowed);
}

absl::StatusOr<std::vector<std::string_view>> GgufFile::GetStrings(std::string_view key) const {
  constexpr char kAllowed[] = "an array of strings";
  ASSIGN_OR_RETURN(const Value* const value, Find(key, kAllowed));
  if (!IsArrayOf(*value, {GgufKind::kString})) return InvalidValue(key, *value, kAllowed);
  std::vector<std::string_view> strings(value->count);
  const std::byte* at = value->bytes.data();
  for (std::string_view& string : strings) {
    string = Text({at + sizeof(uint64_t), Load<uint64_t>(at)});
    at += sizeof(uint64_t) + string.size();
  }
  return strings;
}

absl::StatusOr<std::vector<float>> GgufFile::GetFloats(std::string_view key) const {
  constexpr char kAllowed[] = "an array of finite float32 or float64";
  ASSIGN_OR_RETURN(const Value* const value, Find(key, kAllowed));
  if (!IsArrayOf(*value, {GgufKind::kFloat32, GgufKind::kFloat64})) {
    return InvalidValue(key, *value, kAllowed);
  }
  const GgufKind kind = value->element_kind;
  std::vector<float> numbers(value->count);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(*LoadFloat(kind, value->bytes.data() + i * BytesOf(kind)));
    if (std::isfinite(numbers[i])) continue;
    return Wrong(key, absl::StrCat(numbers[i], " as element ", i), kAllowed);
  }
  return numbers;
}

absl::StatusOr<std::vector<int32_t>> GgufFile::GetIntegers(std::string_view key) const {
  constexpr char kAllowed[] = "an array of integers of 32 bits";
  ASSIGN_OR_RETURN(const Value* const value, Find(key, kAllowed));
  using enum GgufKind;
  if (!IsArrayOf(*value, {kUint8, kInt8, kUint16, kInt16, kUint32, kInt32, kUint64, kInt64})) {
    return InvalidValue(key, *value, kAllowed);
  }
  const GgufKind kind = value->element_kind;
  std::vector<int32_t> integers(value->count);
  for (size_t i = 0; i < integers.size(); ++i) {
    const absl::Span<const std::byte> bytes =
        value->bytes.subspan(i * BytesOf(kind), BytesOf(kind));
    const std::optional<int64_t> integer = LoadInteger(kind, bytes.data());
    if (!integer.has_value() || *integer != static_cast<int32_t>(*integer)) {
      return Wrong(key, absl::StrCat(ShownValue(kind, bytes), " as element ", i), kAllowed);
    }
    integers[i] = static_cast<int32_t>(*integer);
  }
  return integers;
}

absl::StatusOr<std::vector<bool>> GgufFile::GetBools(std::string_view key) const {
  constexpr char kAllowed[] = "an array of bools or integers";
  ASSIGN_OR_RETURN(const Value* const value, Find(key, kAllowed));
  std::vector<bool> bools;
  if (IsArrayOf(*value, {GgufKind::kBool})) {
    for (const std::byte byte : value->bytes) bools.push_back(byte != std::byte{0});
    return bools;
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> integers, GetIntegers(key));
  for (const int32_t integer : integers) bools.push_back(integer != 0);
  return bools;
}

bool GgufFile::IsArray(std::string_view key) const {
  const auto found = values_.find(View(key));
  return found != values_.end() && found->second.kind == GgufKind::kArray;
}

bool GgufFile::IsArrayOf(const Value& value, absl::Span<const GgufKind> kinds) {
  return value.kind == GgufKind::kArray &&
         std::find(kinds.begin(), kinds.end(), value.element_kind) != kinds.end();
}

std::vector<std::string> GgufFile::keys() const { return SortedKeys(values_); }

std::string GgufFile::EncodedValue(std::string_view key) const {
  TANDEM_CHECK(Has(key));
  const Value& value = values_.find(View(key))->second;
  std::string bytes;
  const auto append = [&](auto number) {
    char encoded[sizeof(number)];
    std::memcpy(encoded, &number, sizeof(number));
    bytes.append(encoded, sizeof(number));
  };
  append(value.kind);
  if (value.kind == GgufKind::kArray) {
    append(value.element_kind);
    append(value.count);
  }
  if (value.kind == GgufKind::kString) append(uint64_t{value.bytes.size()});
  bytes.append(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
  return bytes;
}

bool IsGguf(const std::string& path) {
  if (absl::EndsWith(path, kSuffix)) return true;
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  return file.ok() && absl::StartsWith(View(Text(file->bytes())), "GGUF");
}

absl::StatusOr<std::string> OnlyGgufIn(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::set<std::string> models;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string file = entry->path().string();
    std::error_code ignored;
    if (!absl::EndsWith(file, kSuffix) || entry->is_directory(ignored)) continue;
    const std::optional<PartName> part = ParsePartName(file);
    models.insert(part.has_value() ? part->Path(1) : file);
  }
  if (error) return absl::ErrnoToStatus(error.value(), folder);
  if (models.size() > 1) {
    return NotAllowed(folder,
                      absl::StrCat(models.size(), " GGUF models, ", *models.begin(), " and ",
                                   *std::next(models.begin()), " among them"),
                      kAllowed);
  }
  return models.empty() ? "" : *models.begin();
}

absl::StatusOr<std::string> GgufIn(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error)) return IsGguf(path) ? path : "";
  if (fs::exists(fs::path(path) / "config.json", error)) return "";
  ASSIGN_OR_RETURN(std::string only, OnlyGgufIn(path));
  if (!only.empty() || !absl::EndsWith(path, kSuffix)) return only;
  return NotAllowed(path, "a folder without one", absl::StrCat("a GGUF file, or ", kAllowed));
}

}  // namespace tandem
