#include "model/formats/weights.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/hash_map.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "model/formats/gguf.h"
#include "model/formats/gguf_weights.h"
#include "model/formats/json_text.h"
#include "model/formats/safetensors.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

class SafetensorsWeights : public Weights {
 public:
  // Adds the tensors of one file.
  absl::Status Add(const std::string& path) {
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    ASSIGN_OR_RETURN(std::vector<SafetensorsEntry> entries, ParseSafetensors(file.bytes(), path));
    files_.push_back(std::move(file));  // the bytes stay where they are
    paths_.push_back(path);
    for (SafetensorsEntry& entry : entries) {
      const std::string name = entry.name;
      const auto [place, is_new] = tensors_.try_emplace(name, Tensor{path, std::move(entry)});
      if (!is_new) {
        return absl::InvalidArgumentError(absl::StrCat(
            path, ": tensor ", Quoted(name), ": also in ", place->second.path, ", allowed: once"));
      }
    }
    return absl::OkStatus();
  }

  bool Has(std::string_view name) const override { return tensors_.contains(View(name)); }

  absl::StatusOr<ConstMatrixView> Get(std::string_view name,
                                      absl::Span<const int64_t> shape) const override {
    ASSIGN_OR_RETURN(ConstMatrixView matrix, Describe(name, shape));
    matrix.data = Aligned(tensors_.find(View(name))->second.entry);
    return matrix;
  }

  absl::StatusOr<ConstMatrixView> Describe(std::string_view name,
                                           absl::Span<const int64_t> shape) const override {
    TANDEM_CHECK(shape.size() == 1 || shape.size() == 2);
    const auto found = tensors_.find(View(name));
    if (found == tensors_.end()) {
      return absl::NotFoundError(absl::StrCat(source_, ": tensor ", Quoted(View(name)),
                                              ": not found, wanted with shape ", ShapeText(shape)));
    }
    const SafetensorsEntry& entry = found->second.entry;
    const std::string where =
        absl::StrCat(found->second.path, ": tensor ", Quoted(entry.name), ": ");
    if (!std::equal(shape.begin(), shape.end(), entry.shape.begin(), entry.shape.end())) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, "shape: found ", Shown(json(entry.shape)), ", allowed: ", ShapeText(shape)));
    }
    if (!entry.dtype.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "dtype: found ", entry.dtype_name, ", allowed: F32, F16, BF16"));
    }
    const int64_t rows = shape.size() == 2 ? shape[0] : 1;
    const int64_t cols = shape.back();
    if (rows > INT_MAX || cols > INT_MAX) {
      return absl::InvalidArgumentError(absl::StrCat(where, "shape: found ", ShapeText(shape),
                                                     ", allowed: sizes up to ", INT_MAX));
    }
    return ConstMatrixView(nullptr, *entry.dtype, static_cast<int>(rows), static_cast<int>(cols),
                           cols);
  }

  void Forget(std::string_view name) const override {
    const auto found = tensors_.find(View(name));
    TANDEM_CHECK(found != tensors_.end());
    MappedFile::Forget(found->second.entry.bytes);
  }

  std::vector<std::string> files() const override { return paths_; }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    std::sort(names.begin(), names.end());
    return names;
  }

  int64_t num_elements(std::string_view name) const override {
    const auto found = tensors_.find(View(name));
    TANDEM_CHECK(found != tensors_.end());
    return found->second.entry.num_elements;
  }

  std::string Where(std::string_view name) const override {
    const auto found = tensors_.find(View(name));
    TANDEM_CHECK(found != tensors_.end());
    return absl::StrCat(found->second.path, ": tensor ", Quoted(View(name)));
  }

  // The file or folder to name when a tensor is missing.
  void set_source(const std::string& source) { source_ = source; }
  // The file that holds a tensor, or nothing.
  const std::string* PathOf(absl::string_view name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second.path;
  }
  size_t num_tensors() const { return tensors_.size(); }

 private:
  struct Tensor {
    std::string path;
    SafetensorsEntry entry;
  };

  // The tensor's first element. The format does not align data to the element, and reading it
  // unaligned is undefined: such a tensor is copied when it is first wanted.
  const void* Aligned(const SafetensorsEntry& entry) const {
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

  std::string source_;
  std::vector<MappedFile> files_;
  std::vector<std::string> paths_;  // of files_
  HashMap<std::string, Tensor> tensors_;
  mutable std::mutex copies_mutex_;
  mutable std::map<std::string, std::unique_ptr<std::byte[]>> copies_;  // of unaligned tensors
};

// The shard of each tensor, by name, as an index file says.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ASSIGN_OR_RETURN(const JsonDocument document, ParseJsonDocument(text, path));
  const json& index = *document;
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object() || map->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": weight_map: found ",
                                                   Shown(map == index.end() ? json() : *map),
                                                   ", allowed: an object from tensors to files"));
  }
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    const bool is_plain = !name.empty() && name != "." && name != ".." &&
                          name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    if (!is_plain) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": weight_map: tensor ", Quoted(tensor),
                                                     ": found ", Shown(file),
                                                     ", allowed: a file name in the same folder"));
    }
    shards[tensor] = name;
  }
  return shards;
}

absl::Status AddShards(const std::string& folder, SafetensorsWeights* weights) {
  const std::string index_path = absl::StrCat(folder, "/", kIndexFile);
  ASSIGN_OR_RETURN(const auto shards, ReadIndex(index_path));
  std::map<std::string, std::string> path_of_file;
  for (const auto& [tensor, file] : shards) {
    std::string& path = path_of_file[file];
    if (!path.empty()) continue;
    path = absl::StrCat(folder, "/", file);
    if (absl::Status status = weights->Add(path); !status.ok()) {
      if (!absl::IsNotFound(status)) return status;
      return absl::NotFoundError(
          absl::StrCat(path, ": no such file, but ", index_path, " names it as a shard"));
    }
  }
  for (const auto& [tensor, file] : shards) {
    const std::string* const path = weights->PathOf(tensor);
    if (path == nullptr || *path != path_of_file[file]) {
      return absl::InvalidArgumentError(absl::StrCat(path_of_file[file], ": tensor ",
                                                     Quoted(tensor), ": not found, but ",
                                                     index_path, " says it is there"));
    }
  }
  if (weights->num_tensors() != shards.size()) {
    for (const std::string& name : weights->names()) {
      if (shards.count(name) > 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(*weights->PathOf(name), ": tensor ", Quoted(name), ": not in ", index_path));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<std::unique_ptr<Weights>> Weights::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string gguf, GgufIn(path));
  if (!gguf.empty()) return OpenGgufWeights(gguf);
  auto weights = std::make_unique<SafetensorsWeights>();
  const std::string single = absl::StrCat(path, "/", kSingleFile);
  weights->set_source(single);
  absl::Status status = weights->Add(single);
  if (absl::IsNotFound(status)) {
    weights->set_source(path);
    status = AddShards(path, weights.get());
    if (absl::IsNotFound(status) && weights->num_tensors() == 0 &&
        !MappedFile::Open(absl::StrCat(path, "/", kIndexFile)).ok()) {
      const absl::StatusOr<std::string> beside = OnlyGgufIn(path);
      if (beside.ok() && !beside->empty()) return OpenGgufWeights(*beside);
      return absl::NotFoundError(
          absl::StrCat(path, ": found neither ", kSingleFile, " nor ", kIndexFile));
    }
  }
  RETURN_IF_ERROR(status);
  return weights;
}

}  // namespace tandem
