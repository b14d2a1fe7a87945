#ifndef TANDEM_TEXT_PRE_TOKENIZER_H_
#define TANDEM_TEXT_PRE_TOKENIZER_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/json/json_fields.h"
#include "text/regex.h"

namespace tandem {

// GPT-2's expression: contractions, words, numbers and other runs, each with at most one space
// before it.
inline constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Cuts a normalised text into pieces; merges do not cross their borders. This is the pre_tokenizer
// of a tokenizer.json. Thread-safe.
class PreTokenizer {
 public:
  struct Piece {
    std::string text;
    bool is_first = false;  // at the beginning of the whole text
  };

  // Creates a pre-tokenizer from the field "pre_tokenizer", which may be null. INVALID_ARGUMENT,
  // naming a component that is not implemented or a field that is wrong.
  static absl::StatusOr<PreTokenizer> FromJson(const JsonField& field);

  // Creates the pre-tokenizer of a byte-level vocabulary. Each expression cuts a piece into its
  // matches and the text between them; the next expression cuts these further. The pieces are then
  // written in the byte alphabet. INVALID_ARGUMENT if a pattern is not a valid expression.
  static absl::StatusOr<PreTokenizer> ByteLevel(absl::Span<const std::string_view> patterns);

  // Receives one piece at a time; an error ends the cutting and is returned.
  using Sink = absl::FunctionRef<absl::Status(Piece piece)>;
  // What happens to the matches of a Split.
  enum class Delimiters { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

  // Passes the pieces of `piece` to `sink`, in order, none of them empty. The pieces never exist
  // all at once: together they could need a hundred times the memory of the text. INVALID_ARGUMENT,
  // naming the field `text`, if an expression takes too many steps.
  absl::Status ForEach(Piece piece, Sink sink) const;

 private:
  // Cuts one piece further.
  using Step = std::function<absl::Status(Piece piece, Sink sink)>;
  absl::Status Run(size_t step, Piece piece, Sink sink) const;
  // Adds a step that cuts pieces at the matches, or with `invert` at the text between them.
  void AddCuts(const Regex& regex, Delimiters behaviour = Delimiters::kIsolated,
               bool invert = false);
  void AddByteAlphabet();
  absl::Status Add(const JsonField& field);
  absl::Status AddSplit(const JsonField& field);
  absl::Status AddByteLevel(const JsonField& field);
  absl::Status AddMetaspace(const JsonField& field);
  absl::Status AddPunctuation(const JsonField& field);
  absl::Status AddCharDelimiterSplit(const JsonField& field);
  absl::Status AddDigits(const JsonField& field);

  std::vector<Step> steps_;
};

// Writes bytes in GPT-2's alphabet of printable characters, as byte-level vocabularies do.
// Printable bytes of Latin-1 stand for themselves; the other 68 are U+0100 and on, in order.
std::string ToByteAlphabet(std::string_view bytes);
// Returns the bytes of a token; a token with a character outside the alphabet stands for its own
// UTF-8.
std::string FromByteAlphabet(std::string_view token);

}  // namespace tandem

#endif  // TANDEM_TEXT_PRE_TOKENIZER_H_
