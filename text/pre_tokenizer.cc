#include "text/pre_tokenizer.h"

#include <array>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "text/component_fields.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace tandem {
namespace {

using Piece = PreTokenizer::Piece;
using Sink = PreTokenizer::Sink;

using Delimiters = PreTokenizer::Delimiters;

absl::Status Give(const Piece& piece, size_t begin, size_t end, Sink sink) {
  if (begin == end) return absl::OkStatus();
  return sink(
      {.text = piece.text.substr(begin, end - begin), .is_first = piece.is_first && begin == 0});
}

// Cuts a piece at delimiters, which are added in order. Holds one stretch at a time, because a long
// text can have as many stretches as bytes.
class Cutter {
 public:
  // `invert`: exchanges delimiters and the text between them.
  Cutter(const Piece& piece, Delimiters behaviour, bool invert, Sink sink)
      : piece_(piece), behaviour_(behaviour), invert_(invert), sink_(sink) {}

  absl::Status Add(size_t begin, size_t end) {
    if (begin > done_) RETURN_IF_ERROR(Take({done_, begin, invert_}));
    done_ = end;
    return Take({begin, end, !invert_});
  }

  absl::Status Finish() {
    const size_t size = piece_.text.size();
    if (size > done_) RETURN_IF_ERROR(Take({done_, size, invert_}));
    return Give(piece_, open_.begin, open_.end, sink_);
  }

 private:
  struct Stretch {
    size_t begin = 0;
    size_t end = 0;
    bool is_delimiter = false;
  };

  // Joins the next stretch to the open one, or closes the open one, as the behaviour says.
  absl::Status Take(const Stretch& next) {
    if (behaviour_ == Delimiters::kRemoved && next.is_delimiter) return absl::OkStatus();
    if (Joins(next)) {
      open_.end = next.end;
      open_.is_delimiter = next.is_delimiter;
      return absl::OkStatus();
    }
    const Stretch closed = std::exchange(open_, next);
    return Give(piece_, closed.begin, closed.end, sink_);
  }

  bool Joins(const Stretch& next) const {
    switch (behaviour_) {
      case Delimiters::kIsolated:
      case Delimiters::kRemoved:
        return false;
      case Delimiters::kMergedWithPrevious:
        return next.is_delimiter && !open_.is_delimiter;
      case Delimiters::kMergedWithNext:
        return !next.is_delimiter && open_.is_delimiter;
      case Delimiters::kContiguous:
        return next.is_delimiter == open_.is_delimiter;
    }
    return false;
  }

  const Piece& piece_;
  const Delimiters behaviour_;
  const bool invert_;
  const Sink sink_;
  size_t done_ = 0;  // end of the stretches so far
  Stretch open_;     // the next stretch may still join it; empty at first
};

// Classes of characters; a run ends where another class begins.
enum class CharacterClass { kSpace, kWord, kOther };

// Cuts a piece into runs of characters of one class, and drops white space.
absl::Status CutRuns(CharacterClass (*class_of)(char32_t), const Piece& piece, Sink sink) {
  size_t begin = 0;
  CharacterClass run = CharacterClass::kSpace;
  for (size_t at = 0; at < piece.text.size();) {
    const Utf8Prefix prefix = ReadUtf8(std::string_view(piece.text).substr(at));
    const CharacterClass current = class_of(prefix.code_point);
    if (current != run) {
      if (run != CharacterClass::kSpace) RETURN_IF_ERROR(Give(piece, begin, at, sink));
      begin = at;
      run = current;
    }
    at += prefix.size;
  }
  if (run == CharacterClass::kSpace) return absl::OkStatus();
  return Give(piece, begin, piece.text.size(), sink);
}

CharacterClass SpaceOrNot(char32_t c) {
  return IsWhiteSpace(c) ? CharacterClass::kSpace : CharacterClass::kOther;
}

CharacterClass SpaceWordOrOther(char32_t c) {
  return IsWordCharacter(c) ? CharacterClass::kWord : SpaceOrNot(c);
}

absl::StatusOr<Delimiters> ParseBehaviour(const JsonField& field) {
  constexpr std::array kNames = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                 "Contiguous"};  // by Delimiters
  ASSIGN_OR_RETURN(const std::string name, field.String());
  const auto* const found = absl::c_find(kNames, name);
  if (found != kNames.end()) return static_cast<Delimiters>(found - kNames.begin());
  return field.Error(absl::StrCat("is not one of ", absl::StrJoin(kNames, ", ")));
}

struct Alphabet {
  std::array<char32_t, 256> character_of{};
  std::array<int, 0x100 + 68> byte_of{};  // -1 for characters that do not stand for a byte

  Alphabet() {
    byte_of.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      character_of[byte] = printable ? static_cast<char32_t>(byte) : next++;
      byte_of[character_of[byte]] = byte;
    }
  }
};

const Alphabet& GetAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const JsonField& field) {
  PreTokenizer pre_tokenizer;
  if (!field.is_null()) RETURN_IF_ERROR(pre_tokenizer.Add(field));
  return pre_tokenizer;
}

absl::StatusOr<PreTokenizer> PreTokenizer::ByteLevel(absl::Span<const std::string_view> patterns) {
  PreTokenizer pre_tokenizer;
  for (const std::string_view pattern : patterns) {
    ASSIGN_OR_RETURN(const Regex regex, Regex::Compile(pattern));
    pre_tokenizer.AddCuts(regex);
  }
  pre_tokenizer.AddByteAlphabet();
  return pre_tokenizer;
}

void PreTokenizer::AddCuts(const Regex& regex, Delimiters behaviour, bool invert) {
  steps_.push_back([=](const Piece& piece, Sink sink) {
    Cutter cutter(piece, behaviour, invert, sink);
    RETURN_IF_ERROR(regex.ForEach(
        piece.text, [&](const Regex::Match& match) { return cutter.Add(match.begin, match.end); }));
    return cutter.Finish();
  });
}

void PreTokenizer::AddByteAlphabet() {
  steps_.push_back([](Piece piece, Sink sink) {
    piece.text = ToByteAlphabet(piece.text);
    return sink(std::move(piece));
  });
}

absl::Status PreTokenizer::Add(const JsonField& field) {
  ASSIGN_OR_RETURN(const std::string type, field.Type());
  if (type == "Sequence") {
    return ForEachPart(field, "pretokenizers", [this](const JsonField& part) { return Add(part); });
  }
  if (type == "Split") return AddSplit(field);
  if (type == "ByteLevel") return AddByteLevel(field);
  if (type == "Metaspace") return AddMetaspace(field);
  if (type == "Punctuation") return AddPunctuation(field);
  if (type == "CharDelimiterSplit") return AddCharDelimiterSplit(field);
  if (type == "Digits") return AddDigits(field);
  if (type == "Whitespace" || type == "WhitespaceSplit") {
    const auto class_of = type == "Whitespace" ? SpaceWordOrOther : SpaceOrNot;
    steps_.push_back(
        [class_of](const Piece& piece, Sink sink) { return CutRuns(class_of, piece, sink); });
    return absl::OkStatus();
  }
  return UnknownType(field,
                     "ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation, Split, "
                     "Whitespace, WhitespaceSplit, Sequence");
}

absl::Status PreTokenizer::AddSplit(const JsonField& field) {
  ASSIGN_OR_RETURN(const Regex regex, ReadPattern(field));
  ASSIGN_OR_RETURN(const JsonField behaviour_field, field.Member("behavior"));
  ASSIGN_OR_RETURN(const Delimiters behaviour, ParseBehaviour(behaviour_field));
  ASSIGN_OR_RETURN(const JsonField invert_field, field.Member("invert"));
  ASSIGN_OR_RETURN(const bool invert, invert_field.Bool(false));
  AddCuts(regex, behaviour, invert);
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddByteLevel(const JsonField& field) {
  ASSIGN_OR_RETURN(const JsonField prefix_field, field.Member("add_prefix_space"));
  ASSIGN_OR_RETURN(const bool add_prefix_space, prefix_field.Bool());
  ASSIGN_OR_RETURN(const JsonField regex_field, field.Member("use_regex"));
  ASSIGN_OR_RETURN(const bool use_regex, regex_field.Bool(true));
  ASSIGN_OR_RETURN(const Regex regex, Regex::Compile(kGpt2Pattern));
  steps_.push_back([add_prefix_space](Piece piece, Sink sink) {
    if (add_prefix_space && !absl::StartsWith(piece.text, " ")) piece.text.insert(0, " ");
    return sink(std::move(piece));
  });
  if (use_regex) AddCuts(regex);
  AddByteAlphabet();
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddMetaspace(const JsonField& field) {
  ASSIGN_OR_RETURN(const Metaspace metaspace, ReadMetaspace(field));
  ASSIGN_OR_RETURN(const JsonField split_field, field.Member("split"));
  ASSIGN_OR_RETURN(const bool splits, split_field.Bool(true));
  ASSIGN_OR_RETURN(const Regex regex, Regex::CompileLiteral(metaspace.replacement));
  steps_.push_back([metaspace](Piece piece, Sink sink) {
    piece.text = absl::StrReplaceAll(piece.text, {{" ", metaspace.replacement}});
    const bool prepends = metaspace.prepend == Metaspace::Prepend::kAlways ||
                          (metaspace.prepend == Metaspace::Prepend::kFirst && piece.is_first);
    if (prepends && !absl::StartsWith(piece.text, metaspace.replacement)) {
      piece.text.insert(0, metaspace.replacement);
    }
    return sink(std::move(piece));
  });
  if (splits) AddCuts(regex, Delimiters::kMergedWithNext);
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddPunctuation(const JsonField& field) {
  ASSIGN_OR_RETURN(const JsonField behaviour_field, field.Member("behavior"));
  Delimiters behaviour = Delimiters::kIsolated;
  if (!behaviour_field.is_null()) {
    ASSIGN_OR_RETURN(behaviour, ParseBehaviour(behaviour_field));
  }
  steps_.push_back([behaviour](const Piece& piece, Sink sink) {
    Cutter cutter(piece, behaviour, /*invert=*/false, sink);
    for (size_t at = 0; at < piece.text.size();) {
      const Utf8Prefix prefix = ReadUtf8(std::string_view(piece.text).substr(at));
      const size_t end = at + prefix.size;
      if (IsPunctuation(prefix.code_point)) RETURN_IF_ERROR(cutter.Add(at, end));
      at = end;
    }
    return cutter.Finish();
  });
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddCharDelimiterSplit(const JsonField& field) {
  ASSIGN_OR_RETURN(const JsonField delimiter_field, field.Member("delimiter"));
  ASSIGN_OR_RETURN(const std::string delimiter, delimiter_field.Character());
  ASSIGN_OR_RETURN(const Regex regex, Regex::CompileLiteral(delimiter));
  AddCuts(regex, Delimiters::kRemoved);
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddDigits(const JsonField& field) {
  ASSIGN_OR_RETURN(const JsonField member, field.Member("individual_digits"));
  ASSIGN_OR_RETURN(const bool individual, member.Bool(false));
  ASSIGN_OR_RETURN(const Regex regex, Regex::Compile(individual ? R"(\p{N})" : R"(\p{N}+)"));
  AddCuts(regex);
  return absl::OkStatus();
}

absl::Status PreTokenizer::ForEach(Piece piece, Sink sink) const {
  return piece.text.empty() ? absl::OkStatus() : Run(0, std::move(piece), sink);
}

absl::Status PreTokenizer::Run(size_t step, Piece piece, Sink sink) const {
  if (step == steps_.size()) return sink(std::move(piece));
  return steps_[step](std::move(piece), [this, step, sink](Piece part) {
    return Run(step + 1, std::move(part), sink);
  });
}

std::string ToByteAlphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    AppendUtf8(GetAlphabet().character_of[static_cast<unsigned char>(byte)], &text);
  }
  return text;
}

std::string FromByteAlphabet(std::string_view token) {
  const auto& byte_of = GetAlphabet().byte_of;
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const Utf8Prefix prefix = ReadUtf8(token.substr(at));
    if (prefix.code_point >= byte_of.size() || byte_of[prefix.code_point] < 0) {
      return std::string(token);
    }
    bytes.push_back(static_cast<char>(byte_of[prefix.code_point]));
    at += prefix.size;
  }
  return bytes;
}

}  // namespace tandem
