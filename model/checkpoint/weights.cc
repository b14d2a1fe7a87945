#include "model/checkpoint/weights.h"

#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json/json_text.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "model/checkpoint/gguf.h"
#include "model/checkpoint/gguf_weights.h"
#include "model/checkpoint/quantization_config.h"
#include "model/checkpoint/quantized_weights.h"
#include "model/checkpoint/stored_weights.h"

namespace tandem {
namespace {

using Json = SortedJson;

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr char kTorchFile[] = "pytorch_model.bin";

// Reads the shard of each tensor, by name, from an index file.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ASSIGN_OR_RETURN(const Json index, ParseJson(text, path));
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object() || map->empty()) {
    return NotAllowed(absl::StrCat(path, ": weight_map"), Shown(map == index.end() ? Json() : *map),
                      "an object from tensors to files");
  }
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    const bool is_plain = !name.empty() && name != "." && name != ".." &&
                          name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    if (!is_plain) {
      return NotAllowed(absl::StrCat(path, ": weight_map: tensor ", Quoted(tensor)), Shown(file),
                        "a file name in the same folder");
    }
    shards[tensor] = name;
  }
  return shards;
}

absl::Status AddShards(const std::string& folder, StoredWeights* weights) {
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

absl::StatusOr<std::unique_ptr<Weights>> Weights::Open(const std::string& path,
                                                       QuantizedForm form) {
  ASSIGN_OR_RETURN(const std::string gguf, GgufIn(path));
  if (!gguf.empty()) return OpenGgufWeights(gguf);
  auto weights = std::make_unique<StoredWeights>();
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
      status = weights->AddTorchFile(absl::StrCat(path, "/", kTorchFile));
      if (absl::IsNotFound(status)) {
        return absl::NotFoundError(
            absl::StrCat(path, ": found neither ", kSingleFile, " nor ", kIndexFile));
      }
    }
  }
  RETURN_IF_ERROR(status);
  std::vector<std::string> config_files;
  ASSIGN_OR_RETURN(const auto quantization, ReadQuantization(path, &config_files));
  if (!quantization.has_value()) return weights;
  return OpenQuantizedWeights(std::move(weights), *quantization, form, config_files);
}

}  // namespace tandem
