#include "checkpoint/safetensors_weights.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "checkpoint/torch_file.h"
#include "json/json_text.h"

namespace tandem {

absl::Status SafetensorsWeights::Add(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(std::vector<SafetensorsEntry> entries, ParseSafetensors(file.bytes(), path));
  files_.push_back(std::move(file));  // the bytes stay where they are
  return AddEntries(std::move(entries), path);
}

absl::Status SafetensorsWeights::AddTorchFile(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(std::vector<SafetensorsEntry> entries, ParseTorchFile(file.bytes(), path));
  files_.push_back(std::move(file));
  return AddEntries(std::move(entries), path);
}

absl::Status SafetensorsWeights::AddEntries(std::vector<SafetensorsEntry> entries,
                                            const std::string& path) {
  paths_.push_back(path);
  for (SafetensorsEntry& entry : entries) {
    const std::string name = entry.name;
    const auto [place, is_new] = tensors_.try_emplace(name, Tensor{path, std::move(entry)});
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", Quoted(name), ": also in ",
                                                     place->second.path, ", allowed: once"));
    }
  }
  return absl::OkStatus();
}

const SafetensorsEntry* SafetensorsWeights::Find(absl::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.entry;
}

const std::string* SafetensorsWeights::PathOf(absl::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.path;
}

bool SafetensorsWeights::Has(std::string_view name) const { return tensors_.contains(View(name)); }

absl::StatusOr<ConstMatrixView> SafetensorsWeights::Get(std::string_view name,
                                                        absl::Span<const int64_t> shape) const {
  ASSIGN_OR_RETURN(ConstMatrixView matrix, Describe(name, shape));
  matrix.data = Aligned(tensors_.find(View(name))->second.entry);
  return matrix;
}

absl::StatusOr<const SafetensorsWeights::Tensor*> SafetensorsWeights::FindOfShape(
    std::string_view name, absl::Span<const int64_t> shape) const {
  const auto found = tensors_.find(View(name));
  if (found == tensors_.end()) {
    return absl::NotFoundError(absl::StrCat(source_, ": tensor ", Quoted(View(name)),
                                            ": not found, wanted with shape ", ShapeText(shape)));
  }
  const SafetensorsEntry& entry = found->second.entry;
  if (!std::equal(shape.begin(), shape.end(), entry.shape.begin(), entry.shape.end())) {
    return NotAllowed(absl::StrCat(Where(name), ": shape"), Shown(nlohmann::json(entry.shape)),
                      ShapeText(shape));
  }
  return &found->second;
}

absl::StatusOr<ConstMatrixView> SafetensorsWeights::Describe(
    std::string_view name, absl::Span<const int64_t> shape) const {
  TANDEM_CHECK(shape.size() == 1 || shape.size() == 2);
  ASSIGN_OR_RETURN(const Tensor* const tensor, FindOfShape(name, shape));
  const SafetensorsEntry& entry = tensor->entry;
  if (!entry.dtype.has_value()) {
    return NotAllowed(absl::StrCat(Where(name), ": dtype"), entry.dtype_name, "F32, F16, BF16");
  }
  const int64_t rows = shape.size() == 2 ? shape[0] : 1;
  const int64_t cols = shape.back();
  if (rows > INT_MAX || cols > INT_MAX) {
    return NotAllowed(absl::StrCat(Where(name), ": shape"), ShapeText(shape),
                      absl::StrCat("sizes up to ", INT_MAX));
  }
  return ConstMatrixView(nullptr, *entry.dtype, static_cast<int>(rows), static_cast<int>(cols),
                         cols);
}

absl::StatusOr<std::vector<int64_t>> SafetensorsWeights::GetIntegers(std::string_view name,
                                                                     int64_t size) const {
  ASSIGN_OR_RETURN(const Tensor* const tensor, FindOfShape(name, {size}));
  const SafetensorsEntry& entry = tensor->entry;
  std::vector<int64_t> numbers(size);
  const auto read = [&](auto number) {
    for (int64_t i = 0; i < size; ++i) {
      std::memcpy(&number, entry.bytes.data() + i * sizeof(number), sizeof(number));
      numbers[i] = number;
    }
  };
  if (entry.dtype_name == "I64") {
    read(int64_t{});
  } else if (entry.dtype_name == "I32") {
    read(int32_t{});
  } else if (entry.dtype_name == "BOOL") {
    read(uint8_t{});
  } else {
    return NotAllowed(absl::StrCat(Where(name), ": dtype"), entry.dtype_name, "I64, I32, BOOL");
  }
  return numbers;
}

void SafetensorsWeights::Forget(std::string_view name) const {
  const auto found = tensors_.find(View(name));
  TANDEM_CHECK(found != tensors_.end());
  MappedFile::Forget(found->second.entry.bytes);
}

std::vector<std::string> SafetensorsWeights::names() const { return SortedKeys(tensors_); }

int64_t SafetensorsWeights::num_elements(std::string_view name) const {
  const auto found = tensors_.find(View(name));
  TANDEM_CHECK(found != tensors_.end());
  return found->second.entry.num_elements;
}

std::string SafetensorsWeights::Where(std::string_view name) const {
  const auto found = tensors_.find(View(name));
  TANDEM_CHECK(found != tensors_.end());
  return absl::StrCat(found->second.path, ": tensor ", Quoted(View(name)));
}

// The tensor's first element. The format does not align data to the element, and reading it
// unaligned is undefined: such a tensor is copied when it is first wanted.
const void* SafetensorsWeights::Aligned(const SafetensorsEntry& entry) const {
  const std::byte* const data = entry.bytes.data();
  if (reinterpret_cast<uintptr_t>(data) % SizeOf(*entry.dtype) == 0) return data;
  const std::lock_guard<std::mutex> lock(copies_mutex_);
  std::unique_ptr<std::byte[]>& copy = copies_[entry.name];
  if (copy == nullptr) {
    copy.reset(new std::byte[entry.bytes.size()]);
    std::memcpy(copy.get(), data, entry.bytes.size());
  }
  return copy.get();
}

}  // namespace tandem
