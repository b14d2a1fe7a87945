#include "tests/golden_file.h"

#include <cstring>

#include "base/check.h"
#include "base/mapped_file.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

class GoldenTensors {
 public:
  explicit GoldenTensors(const std::string& folder) {
    const auto file = ReadFile(folder + "/golden.safetensors");
    TANDEM_CHECK(file.ok() && file->size() > 8);
    uint64_t header_size = 0;
    std::memcpy(&header_size, file->data(), sizeof(header_size));
    header_ = SortedJson::parse(file->substr(8, header_size));
    data_ = file->substr(8 + header_size);
  }

  template <typename T>
  std::vector<T> Get(const char* name) const {
    const size_t begin = header_.at(name)["data_offsets"][0];
    const size_t end = header_.at(name)["data_offsets"][1];
    std::vector<T> values((end - begin) / sizeof(T));
    TANDEM_CHECK(end <= data_.size());
    std::memcpy(values.data(), data_.data() + begin, end - begin);
    return values;
  }

 private:
  SortedJson header_;
  std::string data_;
};

}  // namespace

Golden ReadGolden(const std::string& folder) {
  const GoldenTensors tensors(folder);
  return {.input_ids = tensors.Get<TokenId>("input_ids"),
          .logits = tensors.Get<float>("logits"),
          .greedy_ids = tensors.Get<TokenId>("greedy_ids")};
}

std::vector<float> ReadGoldenFloats(const std::string& folder, const char* name) {
  return GoldenTensors(folder).Get<float>(name);
}

}  // namespace tandem
