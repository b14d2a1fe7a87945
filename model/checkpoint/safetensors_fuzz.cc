// Parses bytes as a safetensors file, mostly with a header that is nearly right and the bytes that
// it describes. A file must be refused with its name, or every tensor lies where the header says,
// has the bytes of its type and shape, and together they cover the file.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"
#include "model/checkpoint/safetensors.h"
#include "tests/fuzzing.h"
#include "tests/json_mutator.h"

namespace tandem {
namespace {

constexpr size_t kLengthBytes = 8;

const std::vector<tandem::SortedJson>& Samples() {
  static const auto& samples = *new std::vector<tandem::SortedJson>(ParseAll({
      R"({"__metadata__": {"format": "pt"},
          "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
          "b.weight": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
          "c": {"dtype": "I8", "shape": [], "data_offsets": [32, 33]}})",
      R"({"a": {"dtype": "F16", "shape": [2, 2], "data_offsets": [0, 8]}})",
      R"({"e": {"dtype": "F8_E4M3", "shape": [0, 5], "data_offsets": [0, 0]},
          "a": {"dtype": "U64", "shape": [1, 1, 2], "data_offsets": [0, 16]}})",
      R"({"__metadata__": {}})", R"({})"}));
  return samples;
}

void FuzzOne(absl::Span<const std::byte> file) {
  const auto entries = ParseSafetensors(file, "fuzz");
  if (!entries.ok()) return CheckRefusal(entries.status());
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  const std::byte* const data = file.data() + kLengthBytes + header_bytes;
  const auto* text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  const auto header = tandem::SortedJson::parse(text, text + header_bytes, nullptr, false);
  TANDEM_CHECK(header.is_object());
  TANDEM_CHECK(header.size() == entries->size() + header.contains("__metadata__"));
  const std::byte* end = data;
  for (const SafetensorsEntry& entry : *entries) {
    const tandem::SortedJson& said = header.at(entry.name);
    TANDEM_CHECK(entry.bytes.data() == end);
    end += entry.bytes.size();
    TANDEM_CHECK(said.at("data_offsets").at(0) == entry.bytes.data() - data);
    TANDEM_CHECK(said.at("data_offsets").at(1) == end - data);
    TANDEM_CHECK(said.at("shape") == entry.shape);
    TANDEM_CHECK(said.at("dtype") == entry.dtype_name);
    int64_t num_elements = 1;
    for (const int64_t size : entry.shape) num_elements *= size;
    TANDEM_CHECK(num_elements == entry.num_elements);
    TANDEM_CHECK(num_elements == 0 || entry.bytes.size() % num_elements == 0);
  }
  TANDEM_CHECK(end == file.data() + file.size());
}

}  // namespace
}  // namespace tandem

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  using tandem::kLengthBytes;
  tandem::JsonMutator mutator(tandem::Samples(), seed);
  if (mutator.Below(8) == 0) return LLVMFuzzerMutate(data, size, max_size);
  uint64_t header_bytes = 0;
  if (size >= kLengthBytes) std::memcpy(&header_bytes, data, kLengthBytes);
  tandem::SortedJson header(tandem::SortedJson::value_t::discarded);
  size_t data_bytes = 33;
  if (size >= kLengthBytes && header_bytes <= size - kLengthBytes) {
    const uint8_t* const text = data + kLengthBytes;
    header =
        tandem::SortedJson::parse(text, text + header_bytes, nullptr, /*allow_exceptions=*/false);
    data_bytes = size - kLengthBytes - header_bytes;
  }
  if (header.is_discarded()) header = mutator.Sample();
  if (mutator.Below(4) != 0) mutator.Mutate(&header);
  if (mutator.Below(4) == 0) data_bytes = mutator.Below(3 * data_bytes + 40);
  const std::string text = tandem::JsonMutator::Text(header);
  const size_t whole = kLengthBytes + text.size() + data_bytes;
  if (whole > max_size) return LLVMFuzzerMutate(data, size, max_size);
  header_bytes = text.size() + (mutator.Below(10) == 0 ? mutator.Below(3) : 0);
  std::memcpy(data, &header_bytes, kLengthBytes);
  std::memcpy(data + kLengthBytes, text.data(), text.size());
  std::memset(data + kLengthBytes + text.size(), 0, data_bytes);
  return whole;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
