#ifndef TANDEM_TESTS_GOLDEN_GGUF_H_
#define TANDEM_TESTS_GOLDEN_GGUF_H_

#include <string>

#include "tests/gguf_builder.h"

namespace tandem {

// How a file stores experts: stacked in one tensor of three dimensions, or, as files of 2024 do, in
// one tensor per expert.
enum class GoldenExperts { kStacked, kApart };

// Returns a golden model as llama.cpp's converter (conversion/*.py there) would store it, with all
// tensors in F32 and without a tokenizer. It is written independently of the reader and of `tandem
// quantize`, with benchmarks/safetensors_to_gguf.py; llama.cpp was seen to read the files of both
// in the same way. GGUF has no key for gemma's scale of attention scores, so that scale is folded
// into the weights.
GgufBuilder GoldenAsGguf(const std::string& folder,
                         GoldenExperts experts = GoldenExperts::kStacked);

}  // namespace tandem

#endif  // TANDEM_TESTS_GOLDEN_GGUF_H_
