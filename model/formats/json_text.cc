#include "model/formats/json_text.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxShownBytes = 80;

using Json = nlohmann::json;

// Makes a document of what the parser reads, and says what is wrong with it.
class JsonReader : public nlohmann::json_sax<Json> {
 public:
  explicit JsonReader(Json* root) : root_(root) {}
  const std::string& problem() const { return problem_; }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not of texts
  bool start_object(size_t) override { return Enter(Json::value_t::object); }
  bool end_object() override { return Leave(); }
  bool start_array(size_t) override { return Enter(Json::value_t::array); }
  bool end_array() override { return Leave(); }
  bool key(string_t& key) override {
    if (!open_.back()->contains(key)) {
      key_ = std::move(key);
      return true;
    }
    problem_ = absl::StrCat("key ", Quoted(key), " twice in one object, allowed: once");
    return false;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    problem_ = absl::StrCat("not JSON in UTF-8 (at byte ", position, ")");
    return false;
  }

 private:
  // The place of the next value. It moves only when more come behind it, which waits for its end.
  Json* NewPlace() {
    if (open_.empty()) return root_;
    if (open_.back()->is_object()) return &(*open_.back())[key_];
    return &open_.back()->emplace_back();
  }
  bool Add(Json value) {
    *NewPlace() = std::move(value);
    return true;
  }
  bool Enter(Json::value_t kind) {
    if (open_.size() == kMaxDepth) {
      problem_ = absl::StrCat("values nested more than ", kMaxDepth, " deep");
      return false;
    }
    Json* const place = NewPlace();
    *place = kind;
    open_.push_back(place);
    return true;
  }
  bool Leave() {
    open_.pop_back();
    return true;
  }

  Json* const root_;
  std::vector<Json*> open_;  // values that have not ended
  std::string key_;          // of the next value
  std::string problem_;
};

// Ends what is inside, the innermost first; no deeper than kMaxDepth.
void Clear(Json* value) {
  if (!value->is_structured()) return;
  for (Json& inner : *value) Clear(&inner);
  value->clear();
}

std::string Shortened(std::string text) {
  if (text.size() <= kMaxShownBytes) return text;
  return absl::StrCat(text.substr(0, kMaxShownBytes - 3), "...");
}

}  // namespace

JsonDocument::~JsonDocument() { Clear(&root_); }

absl::StatusOr<JsonDocument> ParseJsonDocument(absl::string_view text, absl::string_view file) {
  absl::StatusOr<JsonDocument> document = JsonDocument();
  JsonReader reader(&**document);
  if (Json::sax_parse(text.begin(), text.end(), &reader)) return document;
  return FieldError(file, reader.problem());
}

absl::StatusOr<Json> ParseJson(absl::string_view text, absl::string_view file) {
  ASSIGN_OR_RETURN(JsonDocument document, ParseJsonDocument(text, file));
  return std::move(*document);
}

absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(absl::string_view text,
                                                        absl::string_view file) {
  RETURN_IF_ERROR(ParseJsonDocument(text, file).status());  // which has limits
  return nlohmann::ordered_json::parse(text);
}

bool IsText(const nlohmann::json& value, absl::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

bool IsText(const nlohmann::ordered_json& value, absl::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

std::string Shown(const nlohmann::json& value) {
  return Shortened(value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

std::string Quoted(absl::string_view text) {
  const absl::string_view start = text.substr(0, kMaxShownBytes);
  return Shortened(absl::StrCat("\"", absl::CHexEscape(start), "\""));
}

}  // namespace tandem
