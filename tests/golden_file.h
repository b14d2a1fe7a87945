#ifndef TANDEM_TESTS_GOLDEN_FILE_H_
#define TANDEM_TESTS_GOLDEN_FILE_H_

#include <string>
#include <vector>

#include "tandem/types.h"

namespace tandem {

// Where a golden model lies; with an empty name, where all of them do.
inline std::string GoldenModelPath(const std::string& name) {
  return TANDEM_SOURCE_DIR "/tests/data/models/" + name;
}

// Where a golden GGUF file lies.
inline std::string GoldenGgufPath(const std::string& name) {
  return TANDEM_SOURCE_DIR "/tests/data/gguf/" + name;
}

// The reference's outputs for one model: tests/data/README.md.
struct Golden {
  std::vector<TokenId> input_ids;   // [n]
  std::vector<float> logits;        // [n, vocab]
  std::vector<TokenId> greedy_ids;  // [64]
};

// Reads golden.safetensors of a model folder; aborts if it is not as expected.
Golden ReadGolden(const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TESTS_GOLDEN_FILE_H_
