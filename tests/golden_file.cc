#include "tests/golden_file.h"

#include <cstring>

#include "base/check.h"
#include "base/mapped_file.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

template <typename T>
std::vector<T> ReadTensor(const std::string& file, const nlohmann::json& header, size_t data_start,
                          const char* name) {
  const size_t begin = header[name]["data_offsets"][0];
  const size_t end = header[name]["data_offsets"][1];
  std::vector<T> values((end - begin) / sizeof(T));
  TANDEM_CHECK(data_start + end <= file.size());
  std::memcpy(values.data(), file.data() + data_start + begin, end - begin);
  return values;
}

}  // namespace

Golden ReadGolden(const std::string& folder) {
  const auto file = ReadFile(folder + "/golden.safetensors");
  TANDEM_CHECK(file.ok() && file->size() > 8);
  uint64_t header_size = 0;
  std::memcpy(&header_size, file->data(), sizeof(header_size));
  const auto header = nlohmann::json::parse(file->substr(8, header_size));
  const size_t data_start = 8 + header_size;
  return {.input_ids = ReadTensor<TokenId>(*file, header, data_start, "input_ids"),
          .logits = ReadTensor<float>(*file, header, data_start, "logits"),
          .greedy_ids = ReadTensor<TokenId>(*file, header, data_start, "greedy_ids")};
}

}  // namespace tandem
