#include "model/checkpoint/stored_weights.h"

#include <climits>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "model/checkpoint/safetensors.h"

namespace tandem {

absl::Status StoredWeights::Add(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(std::vector<SafetensorsEntry> entries, ParseSafetensors(file.bytes(), path));
  files_.push_back(std::move(file));  // the bytes stay where they are
  return AddEntries(std::move(entries), path);
}

absl::Status StoredWeights::AddTorchFile(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(std::vector<SafetensorsEntry> entries, ParseTorchFile(file.bytes(), path));
  files_.push_back(std::move(file));
  return AddEntries(std::move(entries), path);
}

absl::Status StoredWeights::AddEntries(std::vector<SafetensorsEntry> entries,
                                       const std::string& path) {
  paths_.push_back(path);
  for (SafetensorsEntry& entry : entries) {
    const std::string name = entry.name;
    RETURN_IF_ERROR(AddTensor(name, {path, std::move(entry)}));
  }
  return absl::OkStatus();
}

absl::Status StoredWeights::AddTensor(const std::string& name, Tensor&& tensor) {
  const auto [place, is_new] = tensors_.try_emplace(name, std::move(tensor));
  if (is_new) return absl::OkStatus();
  // try_emplace leaves `tensor` as it was when the name is taken.
  const Tensor& known = place->second;
  const std::string where = absl::StrCat(tensor.path, ": tensor ", Quoted(tensor.entry.name));
  return absl::InvalidArgumentError(
      known.entry.name == tensor.entry.name
          ? absl::StrCat(where, ": also in ", known.path, ", allowed: once")
          : absl::StrCat(where, ": has the place of ", Where(name)));
}

const SafetensorsEntry* StoredWeights::Find(absl::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.entry;
}

const std::string* StoredWeights::PathOf(absl::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.path;
}

bool StoredWeights::Has(std::string_view name) const { return tensors_.contains(View(name)); }

absl::StatusOr<ConstMatrixView> StoredWeights::Get(std::string_view name,
                                                   absl::Span<const int64_t> shape) const {
  ASSIGN_OR_RETURN(ConstMatrixView matrix, Describe(name, shape));
  matrix.data = Aligned(At(name).entry);
  return matrix;
}

const StoredWeights::Tensor& StoredWeights::At(std::string_view name) const {
  const auto found = tensors_.find(View(name));
  TANDEM_CHECK(found != tensors_.end());
  return found->second;
}

absl::Status StoredWeights::NotFound(std::string_view name, absl::Span<const int64_t> shape) const {
  return absl::NotFoundError(absl::StrCat(source_, ": tensor ", Quoted(View(name)),
                                          ": not found, wanted with shape ", ShapeText(shape)));
}

absl::StatusOr<const SafetensorsEntry*> StoredWeights::FindOfShape(
    std::string_view name, absl::Span<const int64_t> shape) const {
  if (!Has(name)) return NotFound(name, shape);
  const auto& [path, entry, stack_size] = At(name);
  if (shape == absl::MakeConstSpan(entry.shape)) return &entry;
  std::vector<int64_t> found = entry.shape, wanted(shape.begin(), shape.end());
  for (std::vector<int64_t>* whole : {&found, &wanted}) {
    if (stack_size > 0) whole->insert(whole->begin(), stack_size);
  }
  return NotAllowed(absl::StrCat(Where(name), ": shape"), ShapeText(found), ShapeText(wanted));
}

absl::StatusOr<ConstMatrixView> StoredWeights::Describe(std::string_view name,
                                                        absl::Span<const int64_t> shape) const {
  TANDEM_CHECK(shape.size() == 1 || shape.size() == 2);
  ASSIGN_OR_RETURN(const SafetensorsEntry* const entry, FindOfShape(name, shape));
  const bool is_vector = shape.size() == 1;
  if (!entry->dtype.has_value() || (is_vector && IsBlocks(*entry->dtype))) {
    return NotAllowed(absl::StrCat(Where(name), ": dtype"), entry->dtype_name, allowed_.floats);
  }
  const int64_t rows = is_vector ? 1 : shape[0];
  const int64_t cols = shape.back();
  if (rows > INT_MAX || cols > INT_MAX) {
    return NotAllowed(absl::StrCat(Where(name), ": shape"), ShapeText(shape),
                      absl::StrCat("sizes up to ", INT_MAX));
  }
  return ConstMatrixView(nullptr, *entry->dtype, static_cast<int>(rows), static_cast<int>(cols),
                         cols);
}

absl::StatusOr<std::vector<int64_t>> StoredWeights::GetIntegers(std::string_view name,
                                                                int64_t size) const {
  ASSIGN_OR_RETURN(const SafetensorsEntry* const entry, FindOfShape(name, {size}));
  std::vector<int64_t> numbers(size);
  const auto read = [&](auto number) {
    for (int64_t i = 0; i < size; ++i) {
      std::memcpy(&number, entry->bytes.data() + i * sizeof(number), sizeof(number));
      numbers[i] = number;
    }
  };
  if (entry->dtype_name == "I64" || entry->dtype_name == "int64") {
    read(int64_t{});
  } else if (entry->dtype_name == "I32") {
    read(int32_t{});
  } else if (entry->dtype_name == "BOOL") {
    read(uint8_t{});
  } else {
    return NotAllowed(absl::StrCat(Where(name), ": dtype"), entry->dtype_name, allowed_.integers);
  }
  return numbers;
}

void StoredWeights::Forget(std::string_view name) const {
  MappedFile::Forget(At(name).entry.bytes);
}

std::vector<std::string> StoredWeights::names() const { return SortedKeys(tensors_); }

int64_t StoredWeights::num_elements(std::string_view name) const {
  return At(name).entry.num_elements;
}

std::string StoredWeights::Where(std::string_view name) const {
  const Tensor& tensor = At(name);
  return absl::StrCat(tensor.path, ": tensor ", Quoted(tensor.entry.name));
}

// Returns the tensor's first element. The format does not align data to the element size, and
// unaligned reads are undefined behaviour, so an unaligned tensor is copied when it is first read.
const void* StoredWeights::Aligned(const SafetensorsEntry& entry) const {
  const std::byte* const data = entry.bytes.data();
  if (IsBlocks(*entry.dtype) || reinterpret_cast<uintptr_t>(data) % SizeOf(*entry.dtype) == 0) {
    return data;
  }
  const std::lock_guard<std::mutex> lock(copies_mutex_);
  std::unique_ptr<std::byte[]>& copy = copies_[data];
  if (copy == nullptr) {
    copy.reset(new std::byte[entry.bytes.size()]);
    std::memcpy(copy.get(), data, entry.bytes.size());
  }
  return copy.get();
}

}  // namespace tandem
