#ifndef TANDEM_TESTS_GOLDEN_FILE_H_
#define TANDEM_TESTS_GOLDEN_FILE_H_

#include <string>
#include <vector>

#include "base/source_path_testing.h"
#include "tandem/types.h"

namespace tandem {

// Returns the path of a golden model, or of the folder of all golden models if the name is empty.
inline std::string GoldenModelPath(const std::string& name) {
  return SourcePath("tests/data/models/") + name;
}

// Returns the path of a golden GGUF file.
inline std::string GoldenGgufPath(const std::string& name) {
  return SourcePath("tests/data/gguf/") + name;
}

// Returns the path of a file or folder of the golden parallel drafts.
inline std::string ParallelGoldenPath(const std::string& name) {
  return SourcePath("tests/data/parallel/") + name;
}

// The reference's outputs for one model: tests/data/README.md.
struct Golden {
  std::vector<TokenId> input_ids;   // [n]
  std::vector<float> logits;        // [n, vocab]
  std::vector<TokenId> greedy_ids;  // [64]
};

// Reads golden.safetensors of a model folder. Aborts if the file is missing or invalid.
Golden ReadGolden(const std::string& folder);

// Reads one float32 tensor of golden.safetensors in the same way.
std::vector<float> ReadGoldenFloats(const std::string& folder, const char* name);

}  // namespace tandem

#endif  // TANDEM_TESTS_GOLDEN_FILE_H_
