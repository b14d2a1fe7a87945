#include <tandem/lossless_proof.h>

#include <cstdio>
#include <string>

// Proves that speculation does not change a pair's output:  prove TARGET_FOLDER DRAFT_FOLDER PROMPT
int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto proof = tandem::ProveLossless({.target = argv[1], .draft = argv[2]},
                                           {.prompts = {argv[3]}, .time = absl::Seconds(10)});
  if (!proof.ok()) {
    std::fprintf(stderr, "%s\n", proof.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", proof->reason.c_str());
  return proof->verdict == tandem::ProofVerdict::kLossless ? 0 : 1;
}
