// A draft head for a shipped model, made in the test: a layer of noise, and an lm_head over its
// rows that has learned some texts. Its proposals depend on every state and every row that it
// reads, and the target accepts many of them when it writes these texts.
#ifndef TANDEM_TESTS_HEAD_FOLDER_H_
#define TANDEM_TESTS_HEAD_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvcache/store/store_testing.h"
#include "tandem/types.h"

namespace tandem {

// Returns for each prompt its tokens, followed by the next `tokens` tokens that the model in the
// folder `target` writes greedily.
std::vector<std::vector<TokenId>> TextsOf(const std::string& target,
                                          const std::vector<std::string>& prompts, int tokens);

class HeadFolder {
 public:
  struct Form {
    bool is_one_layer = false;  // else EAGLE-3, which reads the inputs of layers 0, 1 and 2
    uint64_t seed = 1;          // of the noise
  };
  // Makes a head for the model in the folder `target`. Its vocabulary is the tokens of `texts`.
  HeadFolder(const std::string& target, const std::vector<std::vector<TokenId>>& texts, Form form);

  const std::string& path() const { return folder_.path(); }

 private:
  TestFolder folder_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_HEAD_FOLDER_H_
