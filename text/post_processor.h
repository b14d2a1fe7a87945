#ifndef TANDEM_TEXT_POST_PROCESSOR_H_
#define TANDEM_TEXT_POST_PROCESSOR_H_

#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json/json_fields.h"
#include "tandem/types.h"

namespace tandem {

// Adds the tokens around a text: the post_processor of a tokenizer.json, else the tokens that
// tokenizer_config.json asks for.
class PostProcessor {
 public:
  // Returns the id of a token by its written form, or -1.
  using IdOf = std::function<TokenId(std::string_view)>;

  // Creates a post-processor from the field "post_processor", which may be null. INVALID_ARGUMENT,
  // naming a component that is not implemented or a field that is wrong, such as an id outside [0,
  // vocab_size).
  static absl::StatusOr<PostProcessor> FromJson(const JsonField& field, int vocab_size);

  // The default tokens around a text; -1: no such token.
  struct Ends {
    bool adds_bos = false;
    bool adds_eos = false;
    TokenId bos = -1;
    TokenId eos = -1;
  };
  // Returns a post-processor that puts these around a text. REQUIRES: the tokens that are added
  // exist.
  static PostProcessor Around(const Ends& ends);

  // Uses `bos_token` and `eos_token` if `add_bos_token` and `add_eos_token` ask for them and the
  // post-processor does not add anything yet; `ends` has the defaults of all four. INVALID_ARGUMENT
  // if such a token is not in the vocabulary.
  absl::Status ReadConfig(const JsonField& config, const Ends& ends, const IdOf& id_of);

  std::vector<TokenId> Apply(std::vector<TokenId> ids) const;

 private:
  absl::Status Add(const JsonField& field, int vocab_size);
  absl::Status AddTemplate(const JsonField& field, int vocab_size);
  absl::Status AddPair(const JsonField& field, int vocab_size);

  bool has_template_ = false;
  std::vector<TokenId> before_;
  std::vector<TokenId> after_;
};

}  // namespace tandem

#endif  // TANDEM_TEXT_POST_PROCESSOR_H_
