#include "base/json/json_text.h"

#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/hash_map.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxShownBytes = 80;

using Json = SortedJson;

// Builds a document from the parser's events. The contents of an array or object are collected
// until it ends, so that each is allocated once, at its final size. (Moving an ordered member
// copies it.)
template <typename Value>
class JsonReader : public nlohmann::json_sax<Value> {
  using Events = nlohmann::json_sax<Value>;

 public:
  const std::string& problem() const { return problem_; }
  // REQUIRES: a whole text was read.
  Value TakeRoot() { return std::move(values_.front()); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(typename Events::number_integer_t value) override { return Add(value); }
  bool number_unsigned(typename Events::number_unsigned_t value) override { return Add(value); }
  bool number_float(typename Events::number_float_t value, const std::string&) override {
    return Add(value);
  }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(typename Events::binary_t&) override { return false; }  // does not occur in text
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const bool is_cut_off = absl::StrContains(error.what(), "unexpected end of input");
    return Refuse(absl::StrCat("not JSON in UTF-8 (", is_cut_off ? "cut off " : "", "at byte ",
                               position, ")"));
  }

  bool start_object(size_t) override { return Enter(); }
  bool start_array(size_t) override { return Enter(); }
  bool key(std::string& key) override {
    keys_.push_back(std::move(key));
    return true;
  }
  bool end_array() override {
    Value array = Value::array();
    auto& elements = array.template get_ref<typename Value::array_t&>();
    const auto begin = values_.begin() + static_cast<std::ptrdiff_t>(open_.back().first_value);
    elements.assign(std::make_move_iterator(begin), std::make_move_iterator(values_.end()));
    return Leave(std::move(array));
  }
  bool end_object() override {
    const Open& open = open_.back();
    Value object = Value::object();
    auto& members = object.template get_ref<typename Value::object_t&>();
    constexpr bool kIsOrdered = requires { members.reserve(0); };
    if constexpr (kIsOrdered) {
      if (const std::string* twice = KeyGivenTwice(open.first_key)) return RefuseTwice(*twice);
      members.reserve(keys_.size() - open.first_key);
    }
    for (size_t i = 0; open.first_key + i < keys_.size(); ++i) {
      std::string& key = keys_[open.first_key + i];
      Value& value = values_[open.first_value + i];
      if constexpr (kIsOrdered) {
        members.emplace_back(std::move(key), std::move(value));  // emplace() looks for the key
      } else if (!members.try_emplace(std::move(key), std::move(value)).second) {
        return RefuseTwice(key);
      }
    }
    return Leave(std::move(object));
  }

 private:
  // An array or object that has not ended: the indices of its first value and first key.
  struct Open {
    size_t first_value;
    size_t first_key;
  };

  bool Refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool RefuseTwice(absl::string_view key) {
    return Refuse(absl::StrCat("key ", Quoted(key), " twice in one object, allowed: once"));
  }
  bool Add(Value value) {
    values_.push_back(std::move(value));
    return true;
  }
  bool Enter() {
    if (open_.size() == kMaxDepth) {
      return Refuse(absl::StrCat("values nested more than ", kMaxDepth, " deep"));
    }
    open_.push_back({values_.size(), keys_.size()});
    return true;
  }
  bool Leave(Value value) {
    values_.resize(open_.back().first_value);
    keys_.resize(open_.back().first_key);
    open_.pop_back();
    return Add(std::move(value));
  }
  // Returns the repeated key, or null.
  const std::string* KeyGivenTwice(size_t first) const {
    constexpr size_t kFew = 16;  // comparing so few pairwise is faster than hashing
    if (keys_.size() - first <= kFew) {
      for (size_t i = first; i < keys_.size(); ++i) {
        for (size_t j = first; j < i; ++j) {
          if (keys_[i] == keys_[j]) return &keys_[i];
        }
      }
      return nullptr;
    }
    HashSet<absl::string_view> seen;
    for (size_t i = first; i < keys_.size(); ++i) {
      if (!seen.insert(keys_[i]).second) return &keys_[i];
    }
    return nullptr;
  }

  std::string problem_;
  std::vector<Value> values_;      // of arrays and objects that have not ended
  std::vector<std::string> keys_;  // the same
  std::vector<Open> open_;
};

// Finds a member of the outermost object that is a text or a boolean, and then ends the parse.
class MemberFinder : public nlohmann::json_sax<Json> {
 public:
  explicit MemberFinder(absl::string_view key) : key_(key) {}
  const std::string& text() const { return text_; }
  bool is_true() const { return is_true_; }

  bool null() override { return true; }
  bool boolean(bool value) override {
    is_true_ = value && IsIt();
    return !IsIt();
  }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const std::string&) override { return true; }
  bool string(std::string& value) override {
    if (!IsIt()) return true;
    text_ = std::move(value);
    return false;
  }
  bool binary(binary_t&) override { return false; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }
  bool start_object(size_t) override { return ++depth_ <= kMaxDepth; }
  bool start_array(size_t) override { return ++depth_ <= kMaxDepth; }
  bool key(std::string& key) override {
    is_next_ = depth_ == 1 && key == key_;
    return true;
  }
  bool end_object() override { return --depth_ > 0; }
  bool end_array() override { return --depth_ > 0; }

 private:
  bool IsIt() const { return depth_ == 1 && is_next_; }

  const absl::string_view key_;
  size_t depth_ = 0;
  bool is_next_ = false;  // the value of the key follows
  std::string text_;
  bool is_true_ = false;
};

template <typename Value>
absl::StatusOr<Value> Parsed(absl::string_view text, absl::string_view file) {
  JsonReader<Value> reader;
  if (!Value::sax_parse(text.begin(), text.end(), &reader)) {
    return FieldError(file, reader.problem());
  }
  // The library takes a NUL for the end of the text.
  const size_t nul = text.find('\0');
  if (nul == absl::string_view::npos) return reader.TakeRoot();
  return FieldError(file, absl::StrCat("not JSON in UTF-8 (at byte ", nul + 1, ")"));
}

template <typename Value>
std::optional<JsonInteger> IntegerIn(const Value& json) {
  if (json.is_number_unsigned()) return JsonInteger{.bits = json.template get<uint64_t>()};
  if (json.is_number_integer()) {
    const auto value = json.template get<int64_t>();
    return JsonInteger{.bits = static_cast<uint64_t>(value), .is_negative = value < 0};
  }
  if (!json.is_number()) return std::nullopt;
  // Beyond 2^53 a float may have been rounded from a neighbouring integer.
  constexpr double kMaxExactInteger = 9007199254740992.0;
  const double value = json.template get<double>();
  if (!(std::abs(value) <= kMaxExactInteger) || value != std::floor(value)) return std::nullopt;
  return JsonInteger{.bits = static_cast<uint64_t>(static_cast<int64_t>(value)),
                     .is_negative = value < 0};
}

std::string Shortened(std::string text) {
  if (text.size() <= kMaxShownBytes) return text;
  return absl::StrCat(text.substr(0, kMaxShownBytes - 3), "...");
}

}  // namespace

std::string TextMember(absl::string_view text, absl::string_view key) {
  MemberFinder finder(key);
  (void)Json::sax_parse(text.begin(), text.end(), &finder);
  return finder.text();
}

bool FlagMember(absl::string_view text, absl::string_view key) {
  MemberFinder finder(key);
  (void)Json::sax_parse(text.begin(), text.end(), &finder);
  return finder.is_true();
}

absl::StatusOr<Json> ParseJson(absl::string_view text, absl::string_view file) {
  return Parsed<Json>(text, file);
}

absl::StatusOr<Json> ParseJsonObject(absl::string_view text, absl::string_view file) {
  ASSIGN_OR_RETURN(Json document, ParseJson(text, file));
  if (document.is_object()) return document;
  return NotAllowed(file, Shown(document), "an object");
}

absl::StatusOr<JsonValue> ParseJsonValue(absl::string_view text, absl::string_view file) {
  return Parsed<JsonValue>(text, file);
}

bool JsonInteger::IsWithin(int64_t low, int64_t high) const {
  const auto value = static_cast<int64_t>(bits);
  if (!is_negative && value < 0) return false;  // above 2^63 - 1
  return low <= value && value <= high;
}

std::optional<JsonInteger> AsJsonInteger(const JsonValue& json) { return IntegerIn(json); }
std::optional<JsonInteger> AsJsonInteger(const SortedJson& json) { return IntegerIn(json); }

bool SaysNothing(const SortedJson& value) {
  return value.is_null() || value == false || IsText(value, "") ||
         (value.is_structured() && value.empty());
}

bool IsText(const SortedJson& value, absl::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

bool IsText(const JsonValue& value, absl::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

std::string Shown(const SortedJson& value) {
  return Shortened(value.dump(-1, ' ', true, SortedJson::error_handler_t::replace));
}

std::string Shown(const JsonValue& value) {
  return Shortened(value.dump(-1, ' ', true, JsonValue::error_handler_t::replace));
}

std::string Quoted(absl::string_view text) {
  const absl::string_view start = text.substr(0, kMaxShownBytes);
  return Shortened(absl::StrCat("\"", absl::CHexEscape(start), "\""));
}

absl::Status NotAllowed(absl::string_view where, absl::string_view found,
                        absl::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": found ", found, ", allowed: ", allowed));
}

}  // namespace tandem
