#include "model/tokenizer/pre_tokenizer.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/regex.h"

namespace tandem {
namespace {

// GPT-2's expression: contractions, words, numbers and other runs, each with one space in front.
constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// What becomes of the matches of a Split.
enum class Delimiters { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// A stretch of a text, in order and without gaps.
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
    if (match.end > match.begin) stretches.push_back({match.begin, match.end, !invert});
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

absl::Status Cut(const Regex& regex, Delimiters behaviour, bool invert, const std::string& text,
                 std::vector<std::string>* pieces) {
  ASSIGN_OR_RETURN(const std::vector<Regex::Match> matches, regex.FindAll(text));
  for (const Stretch& stretch : Join(Stretches(matches, text.size(), invert), behaviour)) {
    pieces->push_back(text.substr(stretch.begin, stretch.end - stretch.begin));
  }
  return absl::OkStatus();
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

absl::Status PreTokenizer::Add(const JsonField& field) {
  ASSIGN_OR_RETURN(const std::string type, field.Type());
  if (type == "Split") return AddSplit(field);
  if (type == "ByteLevel") return AddByteLevel(field);
  if (type == "Metaspace") return AddMetaspace(field);
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const JsonField member, field.Member("individual_digits"));
    ASSIGN_OR_RETURN(const bool individual, member.Bool(false));
    ASSIGN_OR_RETURN(const Regex regex, Regex::Compile(individual ? R"(\p{N})" : R"(\p{N}+)"));
    steps_.push_back([regex](const std::string& text, bool, Pieces* pieces) {
      return Cut(regex, Delimiters::kIsolated, false, text, pieces);
    });
    return absl::OkStatus();
  }
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const JsonField parts, field.Member("pretokenizers"));
    RETURN_IF_ERROR(parts.CheckArray());
    for (size_t i = 0; i < parts.value().size(); ++i) {
      ASSIGN_OR_RETURN(const JsonField part, parts.Element(i));
      RETURN_IF_ERROR(Add(part));
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const JsonField member, field.Member("type"));
  return member.Error(
      "is not implemented; there are ByteLevel, Digits, Metaspace, Split and Sequence");
}

absl::Status PreTokenizer::AddSplit(const JsonField& field) {
  ASSIGN_OR_RETURN(const JsonField pattern, field.Member("pattern"));
  ASSIGN_OR_RETURN(const JsonField literal, pattern.Member("String"));
  ASSIGN_OR_RETURN(const JsonField expression, pattern.Member("Regex"));
  ASSIGN_OR_RETURN(const JsonField behaviour_field, field.Member("behavior"));
  ASSIGN_OR_RETURN(const Delimiters behaviour, ParseBehaviour(behaviour_field));
  ASSIGN_OR_RETURN(const JsonField invert_field, field.Member("invert"));
  ASSIGN_OR_RETURN(const bool invert, invert_field.Bool(false));
  const JsonField& source = literal.is_null() ? expression : literal;
  ASSIGN_OR_RETURN(const std::string text, source.String());
  absl::StatusOr<Regex> regex =
      literal.is_null() ? Regex::Compile(text) : Regex::CompileLiteral(text);
  if (!regex.ok()) return source.Error(std::string(regex.status().message()));
  steps_.push_back(
      [regex = *regex, behaviour, invert](const std::string& piece, bool, Pieces* pieces) {
        return Cut(regex, behaviour, invert, piece, pieces);
      });
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddByteLevel(const JsonField& field) {
  ASSIGN_OR_RETURN(const JsonField prefix_field, field.Member("add_prefix_space"));
  ASSIGN_OR_RETURN(const bool add_prefix_space, prefix_field.Bool(true));
  ASSIGN_OR_RETURN(const JsonField regex_field, field.Member("use_regex"));
  ASSIGN_OR_RETURN(const bool use_regex, regex_field.Bool(true));
  ASSIGN_OR_RETURN(const Regex regex, Regex::Compile(kGpt2Pattern));
  steps_.push_back([=](std::string text, bool, Pieces* pieces) -> absl::Status {
    if (add_prefix_space && !absl::StartsWith(text, " ")) text.insert(0, " ");
    Pieces parts;
    if (use_regex) {
      RETURN_IF_ERROR(Cut(regex, Delimiters::kIsolated, false, text, &parts));
    } else {
      parts.push_back(std::move(text));
    }
    for (const std::string& part : parts) pieces->push_back(ToByteAlphabet(part));
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddMetaspace(const JsonField& field) {
  ASSIGN_OR_RETURN(const JsonField replacement_field, field.Member("replacement"));
  ASSIGN_OR_RETURN(const std::string replacement, replacement_field.String());
  ASSIGN_OR_RETURN(const JsonField scheme_field, field.Member("prepend_scheme"));
  std::string scheme = "always";
  if (!scheme_field.is_null()) {
    ASSIGN_OR_RETURN(scheme, scheme_field.String());
  }
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return scheme_field.Error("is not one of always, first, never");
  }
  ASSIGN_OR_RETURN(const JsonField old_field, field.Member("add_prefix_space"));
  ASSIGN_OR_RETURN(const bool old_prefix, old_field.Bool(true));
  if (scheme_field.is_null() && !old_prefix) scheme = "never";
  ASSIGN_OR_RETURN(const JsonField split_field, field.Member("split"));
  ASSIGN_OR_RETURN(const bool splits, split_field.Bool(true));
  ASSIGN_OR_RETURN(const Regex regex, Regex::CompileLiteral(replacement));
  steps_.push_back([=](const std::string& piece, bool is_first, Pieces* pieces) -> absl::Status {
    std::string text = absl::StrReplaceAll(piece, {{" ", replacement}});
    const bool prepends = scheme == "always" || (scheme == "first" && is_first);
    if (prepends && !absl::StartsWith(text, replacement)) text.insert(0, replacement);
    if (splits) return Cut(regex, Delimiters::kMergedWithNext, false, text, pieces);
    pieces->push_back(std::move(text));
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> PreTokenizer::Split(std::string text,
                                                             bool is_first) const {
  Pieces pieces;
  pieces.push_back(std::move(text));
  for (const Step& step : steps_) {
    Pieces cut;
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].empty()) continue;
      RETURN_IF_ERROR(step(std::move(pieces[i]), is_first && i == 0, &cut));
    }
    pieces = std::move(cut);
  }
  return pieces;
}

}  // namespace tandem
