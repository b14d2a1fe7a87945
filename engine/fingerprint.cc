#include "engine/fingerprint.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/string_view.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Bytes hashed at both ends of a weights file: its header and some of its weights.
constexpr int64_t kEndBytes = 64 << 10;

// FNV-1a, which is the same on every machine.
class TextHasher {
 public:
  void Add(absl::string_view text) {
    for (const char c : text) AddByte(static_cast<unsigned char>(c));
    AddByte(0xFF);  // occurs in no text, so parts stay separate
  }
  uint64_t value() const { return value_; }

 private:
  void AddByte(unsigned char byte) { value_ = (value_ ^ byte) * 1099511628211U; }
  uint64_t value_ = 14695981039346656037U;
};

void AddFile(const fs::path& path, TextHasher* hasher) {
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(path, error));
  if (error) return;
  hasher->Add(path.filename().string());
  hasher->Add(absl::StrCat(size));
  std::ifstream file(path, std::ios::binary);
  for (const int64_t at : {int64_t{0}, std::max<int64_t>(0, size - kEndBytes)}) {
    std::string bytes(static_cast<size_t>(std::min(size, kEndBytes)), '\0');
    file.seekg(at);
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    hasher->Add(bytes);
  }
}

// Returns the files of a folder that define the model. Packed weights, which this program writes
// next to them, do not count.
std::vector<fs::path> FilesOf(const std::string& model) {
  std::error_code error;
  if (!fs::is_directory(model, error)) return {model};
  std::vector<fs::path> files;
  for (fs::directory_iterator it(model, error), end; it != end; it.increment(error)) {
    if (error) break;
    const std::string name = it->path().filename().string();
    const bool is_of_model = absl::EndsWith(name, ".safetensors") ||
                             absl::EndsWith(name, ".gguf") || name == "pytorch_model.bin";
    if (is_of_model || name == "config.json") files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::string FingerprintOf(const EngineOptions& options, absl::string_view version,
                          absl::string_view weights_form) {
  TextHasher hasher;
  const absl::string_view device = options.device;
  for (const absl::string_view part :
       {version, weights_form, View(NameOf(options.quantize)), View(NameOf(options.compute)),
        View(NameOf(options.kv_cache)), device.substr(0, device.find(':'))}) {
    hasher.Add(part);
  }
  for (const fs::path& file : FilesOf(options.target)) AddFile(file, &hasher);
  return Format("fp_%016x", hasher.value());
}

}  // namespace tandem
