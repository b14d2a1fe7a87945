// Any bytes as a safetensors file: refused, or every tensor lies inside them and none overlap.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "model/formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = absl::MakeSpan(reinterpret_cast<const std::byte*>(data), size);
  const auto entries = tandem::ParseSafetensors(file, "fuzz");
  if (!entries.ok()) {
    TANDEM_CHECK(entries.status().message().size() < 1000);
    return 0;
  }
  size_t covered = 0;
  for (const tandem::SafetensorsEntry& entry : *entries) {
    TANDEM_CHECK(entry.bytes.data() >= file.data());
    TANDEM_CHECK(entry.bytes.data() + entry.bytes.size() <= file.data() + file.size());
    covered += entry.bytes.size();
  }
  TANDEM_CHECK(covered <= size);
  return 0;
}
