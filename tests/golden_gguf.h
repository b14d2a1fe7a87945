#ifndef TANDEM_TESTS_GOLDEN_GGUF_H_
#define TANDEM_TESTS_GOLDEN_GGUF_H_

#include <string>

#include "tests/gguf_builder.h"

namespace tandem {

// How experts lie in a file: in one tensor of three dimensions, or, as in files of 2024, each
// apart.
enum class GoldenExperts { kStacked, kApart };

// A golden model as llama.cpp's converter (conversion/*.py there) would lay it out, all
// tensors F32 and without a tokenizer. Written apart from the reader and from `tandem quantize`,
// with benchmarks/safetensors_to_gguf.py, whose files llama.cpp was seen to read alike. What the
// format cannot say of gemma, another scale of scores than the heads', is moved into the weights.
GgufBuilder GoldenAsGguf(const std::string& folder,
                         GoldenExperts experts = GoldenExperts::kStacked);

}  // namespace tandem

#endif  // TANDEM_TESTS_GOLDEN_GGUF_H_
