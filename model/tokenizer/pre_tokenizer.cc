#include "model/tokenizer/pre_tokenizer.h"

#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/component_fields.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/unicode.h"

namespace tandem {
namespace {

using Piece = PreTokenizer::Piece;
using Pieces = std::vector<Piece>;

// What becomes of the matches of a Split.
enum class Delimiters { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// A stretch of a text, in order and without gaps; delimiters may be empty.
struct Stretch {
  size_t begin;
  size_t end;
  bool is_delimiter;
};

std::vector<Stretch> Stretches(const std::vector<Regex::Match>& matches, size_t size, bool invert) {
  std::vector<Stretch> stretches;
  size_t done = 0;
  for (const Regex::Match& match : matches) {
    if (match.begin > done) stretches.push_back({done, match.begin, invert});
    stretches.push_back({match.begin, match.end, !invert});
    done = match.end;
  }
  if (size > done) stretches.push_back({done, size, invert});
  return stretches;
}

// Joins stretches as the behaviour says; what is left is the pieces.
std::vector<Stretch> Join(const std::vector<Stretch>& stretches, Delimiters behaviour) {
  std::vector<Stretch> joined;
  bool previous_is_open = false;  // the last one in `joined` still takes this one in
  for (const Stretch& stretch : stretches) {
    bool joins = false;
    switch (behaviour) {
      case Delimiters::kIsolated:
        break;
      case Delimiters::kRemoved:
        if (stretch.is_delimiter) continue;
        break;
      case Delimiters::kMergedWithPrevious:
        joins = stretch.is_delimiter && previous_is_open;
        previous_is_open = !stretch.is_delimiter;
        break;
      case Delimiters::kMergedWithNext:
        joins = !stretch.is_delimiter && previous_is_open;
        previous_is_open = stretch.is_delimiter;
        break;
      case Delimiters::kContiguous:
        joins = !joined.empty() && joined.back().is_delimiter == stretch.is_delimiter;
        break;
    }
    if (joins) {
      joined.back().end = stretch.end;
    } else {
      joined.push_back(stretch);
    }
  }
  return joined;
}

void AppendPieces(const Piece& piece, const std::vector<Stretch>& stretches, Pieces* pieces) {
  for (const Stretch& stretch : stretches) {
    if (stretch.begin == stretch.end) continue;
    pieces->push_back({.text = piece.text.substr(stretch.begin, stretch.end - stretch.begin),
                       .is_first = piece.is_first && stretch.begin == 0});
  }
}

absl::Status Cut(const Regex& regex, Delimiters behaviour, bool invert, const Piece& piece,
                 Pieces* pieces) {
  ASSIGN_OR_RETURN(const std::vector<Regex::Match> matches, regex.FindAll(piece.text));
  AppendPieces(piece, Join(Stretches(matches, piece.text.size(), invert), behaviour), pieces);
  return absl::OkStatus();
}

// Classes of characters that end where another begins.
enum class CharacterClass { kSpace, kWord, kOther };

// The runs of characters of one class; white space goes.
void CutRuns(CharacterClass (*class_of)(char32_t), const Piece& piece, Pieces* pieces) {
  std::vector<Stretch> runs;
  CharacterClass last = CharacterClass::kSpace;
  for (size_t at = 0; at < piece.text.size();) {
    const Utf8Prefix prefix = ReadUtf8(std::string_view(piece.text).substr(at));
    const CharacterClass current = class_of(prefix.code_point);
    const size_t end = at + prefix.size;
    if (current != last) {
      runs.push_back({at, end, false});
    } else if (!runs.empty()) {
      runs.back().end = end;
    }
    if (current == CharacterClass::kSpace && !runs.empty()) runs.back().is_delimiter = true;
    last = current;
    at = end;
  }
  AppendPieces(piece, Join(runs, Delimiters::kRemoved), pieces);
}

CharacterClass SpaceOrNot(char32_t c) {
  return IsWhiteSpace(c) ? CharacterClass::kSpace : CharacterClass::kOther;
}

CharacterClass SpaceWordOrOther(char32_t c) {
  return IsWordCharacter(c) ? CharacterClass::kWord : SpaceOrNot(c);
}

absl::StatusOr<Delimiters> ParseBehaviour(const JsonField& field) {
  ASSIGN_OR_RETURN(const std::string name, field.String());
  if (name == "Isolated") return Delimiters::kIsolated;
  if (name == "Removed") return Delimiters::kRemoved;
  if (name == "MergedWithPrevious") return Delimiters::kMergedWithPrevious;
  if (name == "MergedWithNext") return Delimiters::kMergedWithNext;
  if (name == "Contiguous") return Delimiters::kContiguous;
  return field.Error(
      "is not one of Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous");
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
    pre_tokenizer.steps_.push_back([regex](const Piece& piece, Pieces* pieces) {
      return Cut(regex, Delimiters::kIsolated, false, piece, pieces);
    });
  }
  pre_tokenizer.AddByteAlphabet();
  return pre_tokenizer;
}

void PreTokenizer::AddByteAlphabet() {
  steps_.push_back([](Piece piece, Pieces* pieces) {
    piece.text = ToByteAlphabet(piece.text);
    pieces->push_back(std::move(piece));
    return absl::OkStatus();
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
    steps_.push_back([class_of](const Piece& piece, Pieces* pieces) {
      CutRuns(class_of, piece, pieces);
      return absl::OkStatus();
    });
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
  steps_.push_back([=](const Piece& piece, Pieces* pieces) {
    return Cut(regex, behaviour, invert, piece, pieces);
  });
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddByteLevel(const JsonField& field) {
  ASSIGN_OR_RETURN(const JsonField prefix_field, field.Member("add_prefix_space"));
  ASSIGN_OR_RETURN(const bool add_prefix_space, prefix_field.Bool());
  ASSIGN_OR_RETURN(const JsonField regex_field, field.Member("use_regex"));
  ASSIGN_OR_RETURN(const bool use_regex, regex_field.Bool(true));
  ASSIGN_OR_RETURN(const Regex regex, Regex::Compile(kGpt2Pattern));
  steps_.push_back([=](Piece piece, Pieces* pieces) -> absl::Status {
    if (add_prefix_space && !absl::StartsWith(piece.text, " ")) piece.text.insert(0, " ");
    if (use_regex) return Cut(regex, Delimiters::kIsolated, false, piece, pieces);
    pieces->push_back(std::move(piece));
    return absl::OkStatus();
  });
  AddByteAlphabet();
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddMetaspace(const JsonField& field) {
  ASSIGN_OR_RETURN(const Metaspace metaspace, ReadMetaspace(field));
  ASSIGN_OR_RETURN(const JsonField split_field, field.Member("split"));
  ASSIGN_OR_RETURN(const bool splits, split_field.Bool(true));
  ASSIGN_OR_RETURN(const Regex regex, Regex::CompileLiteral(metaspace.replacement));
  steps_.push_back([=](Piece piece, Pieces* pieces) -> absl::Status {
    piece.text = absl::StrReplaceAll(piece.text, {{" ", metaspace.replacement}});
    const bool prepends = metaspace.prepend == Metaspace::Prepend::kAlways ||
                          (metaspace.prepend == Metaspace::Prepend::kFirst && piece.is_first);
    if (prepends && !absl::StartsWith(piece.text, metaspace.replacement)) {
      piece.text.insert(0, metaspace.replacement);
    }
    if (splits) return Cut(regex, Delimiters::kMergedWithNext, false, piece, pieces);
    pieces->push_back(std::move(piece));
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddPunctuation(const JsonField& field) {
  ASSIGN_OR_RETURN(const JsonField behaviour_field, field.Member("behavior"));
  Delimiters behaviour = Delimiters::kIsolated;
  if (!behaviour_field.is_null()) {
    ASSIGN_OR_RETURN(behaviour, ParseBehaviour(behaviour_field));
  }
  steps_.push_back([behaviour](const Piece& piece, Pieces* pieces) {
    std::vector<Regex::Match> matches;
    for (size_t at = 0; at < piece.text.size();) {
      const Utf8Prefix prefix = ReadUtf8(std::string_view(piece.text).substr(at));
      if (IsPunctuation(prefix.code_point)) matches.push_back({at, at + prefix.size});
      at += prefix.size;
    }
    AppendPieces(piece, Join(Stretches(matches, piece.text.size(), false), behaviour), pieces);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddCharDelimiterSplit(const JsonField& field) {
  ASSIGN_OR_RETURN(const JsonField delimiter_field, field.Member("delimiter"));
  ASSIGN_OR_RETURN(const std::string delimiter, delimiter_field.Character());
  ASSIGN_OR_RETURN(const Regex regex, Regex::CompileLiteral(delimiter));
  steps_.push_back([regex](const Piece& piece, Pieces* pieces) {
    return Cut(regex, Delimiters::kRemoved, false, piece, pieces);
  });
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddDigits(const JsonField& field) {
  ASSIGN_OR_RETURN(const JsonField member, field.Member("individual_digits"));
  ASSIGN_OR_RETURN(const bool individual, member.Bool(false));
  ASSIGN_OR_RETURN(const Regex regex, Regex::Compile(individual ? R"(\p{N})" : R"(\p{N}+)"));
  steps_.push_back([regex](const Piece& piece, Pieces* pieces) {
    return Cut(regex, Delimiters::kIsolated, false, piece, pieces);
  });
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PreTokenizer::Piece>> PreTokenizer::Split(Piece piece) const {
  Pieces pieces;
  if (!piece.text.empty()) pieces.push_back(std::move(piece));
  for (const Step& step : steps_) {
    Pieces cut;
    for (Piece& whole : pieces) RETURN_IF_ERROR(step(std::move(whole), &cut));
    pieces = std::move(cut);
  }
  return pieces;
}

}  // namespace tandem
