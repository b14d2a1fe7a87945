// Parses bytes as a file of torch.save, mostly an archive whose pickle is nearly right. A file must
// be refused with its name, or every tensor's bytes lie in the file and are as many as its shape
// says.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "model/checkpoint/safetensors.h"
#include "tests/fuzzing.h"

namespace tandem {
namespace {

template <typename T>
std::string Number(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

std::string PickledText(absl::string_view text) {
  return absl::StrCat("X", Number(static_cast<uint32_t>(text.size())), text);
}

// A dict of two tensors, [2, 3] and [4], that share a storage.
std::string SamplePickle() {
  const std::string storage = absl::StrCat("(", PickledText("storage"), "ctorch\nFloatStorage\n",
                                           PickledText("0"), PickledText("cpu"), "K\x0Atq\x01Q");
  const std::string end =
      "\x89"
      "ccollections\nOrderedDict\n)RtR";
  return absl::StrCat(
      "\x80\x02}q\x02(", PickledText("a"), "ctorch._utils\n_rebuild_tensor_v2\nq\x03(", storage,
      absl::string_view("K\x00K\x02K\x03\x86K\x03K\x01\x86", 12), end, PickledText("b"),
      "h\x03(h\x01QM\x06", absl::string_view("\x00J\x04\x00\x00\x00\x85K\x01\x85", 10), end, "u.");
}

// Returns an archive of uncompressed entries with its directory.
std::string Archive(const std::string& pickle, size_t data_bytes) {
  const struct {
    std::string name, bytes;
  } files[] = {{"a/data.pkl", pickle},
               {"a/byteorder", "little"},
               {"a/data/0", std::string(data_bytes, '\x11')}};
  std::string archive, directory;
  for (const auto& [name, bytes] : files) {
    const auto size = static_cast<uint32_t>(bytes.size());
    const std::string sizes =
        absl::StrCat(Number(size), Number(size), Number(static_cast<uint16_t>(name.size())),
                     std::string(2, '\0'));
    absl::StrAppend(&directory, Number(0x02014b50u), std::string(16, '\0'), sizes,
                    std::string(10, '\0'), Number(static_cast<uint32_t>(archive.size())), name);
    absl::StrAppend(&archive, Number(0x04034b50u), std::string(14, '\0'), sizes, name, bytes);
  }
  return absl::StrCat(archive, directory, Number(0x06054b50u), std::string(6, '\0'),
                      Number(uint16_t{3}), Number(static_cast<uint32_t>(directory.size())),
                      Number(static_cast<uint32_t>(archive.size())), std::string(2, '\0'));
}

void FuzzOne(absl::Span<const std::byte> file) {
  const auto entries = ParseTorchFile(file, "fuzz");
  if (!entries.ok()) return CheckRefusal(entries.status(), 1000 + file.size());
  for (const SafetensorsEntry& entry : *entries) {
    TANDEM_CHECK(entry.bytes.data() >= file.data());
    TANDEM_CHECK(entry.bytes.data() + entry.bytes.size() <= file.data() + file.size());
    int64_t num_elements = 1;
    for (const int64_t size : entry.shape) num_elements *= size;
    TANDEM_CHECK(num_elements == entry.num_elements);
    TANDEM_CHECK(num_elements == 0 ? entry.bytes.empty() : entry.bytes.size() % num_elements == 0);
  }
}

// The sample must be accepted, otherwise nothing nearly right is.
const bool kSampleIsRead = [] {
  const std::string file = Archive(SamplePickle(), 40);
  const auto entries =
      ParseTorchFile({reinterpret_cast<const std::byte*>(file.data()), file.size()}, "sample");
  TANDEM_CHECK(entries.ok() && entries->size() == 2);
  TANDEM_CHECK((*entries)[1].bytes.data() + 16 == (*entries)[0].bytes.data() + 40);
  return true;
}();

}  // namespace
}  // namespace tandem

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t end) { return random() % end; };
  if (size > 0 && below(4) == 0) return LLVMFuzzerMutate(data, size, max_size);
  // Takes the pickle of the input if it is such an archive, else the sample's; mutates it, and puts
  // it into a valid archive.
  std::string pickle = tandem::SamplePickle();
  constexpr size_t kFirst = 30 + 10;  // the header of a/data.pkl
  uint32_t pickle_bytes = 0;
  if (size > kFirst) std::memcpy(&pickle_bytes, data + 18, sizeof(pickle_bytes));
  if (pickle_bytes > 0 && pickle_bytes <= size - std::min(size, kFirst) && below(8) != 0) {
    pickle.assign(reinterpret_cast<const char*>(data) + kFirst, pickle_bytes);
  }
  const size_t before = pickle.size();
  pickle.resize(before + 16);
  pickle.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(pickle.data()), before, before + 16));
  const std::string file = tandem::Archive(pickle, below(4) == 0 ? below(100) : 40);
  if (file.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, file.data(), file.size());
  return file.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
