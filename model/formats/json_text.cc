#include "model/formats/json_text.h"

#include <cstddef>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxShownBytes = 80;

// Walks a document and says what is wrong with it; builds nothing.
class JsonChecker : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::string& problem() const { return problem_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool start_array(size_t) override { return Enter(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& key) override {
    if (keys_.back().insert(key).second) return true;
    problem_ = absl::StrCat("key ", Quoted(key), " twice in one object, allowed: once");
    return false;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    problem_ = absl::StrCat("not JSON in UTF-8 (at byte ", position, ")");
    return false;
  }

 private:
  bool Enter() {
    keys_.emplace_back();
    if (keys_.size() <= kMaxDepth) return true;
    problem_ = absl::StrCat("values nested more than ", kMaxDepth, " deep");
    return false;
  }
  bool Leave() {
    keys_.pop_back();
    return true;
  }

  std::vector<absl::flat_hash_set<std::string>> keys_;  // of every value that is open
  std::string problem_;
};

std::string Shortened(std::string text) {
  if (text.size() <= kMaxShownBytes) return text;
  return absl::StrCat(text.substr(0, kMaxShownBytes - 3), "...");
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, absl::string_view file) {
  JsonChecker checker;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &checker)) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", checker.problem()));
  }
  nlohmann::json parsed = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  if (parsed.is_discarded()) return absl::InvalidArgumentError(absl::StrCat(file, ": not JSON"));
  return parsed;
}

std::string Shown(const nlohmann::json& value) {
  return Shortened(value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

std::string Quoted(absl::string_view text) {
  const absl::string_view start = text.substr(0, kMaxShownBytes);
  return Shortened(absl::StrCat("\"", absl::CHexEscape(start), "\""));
}

}  // namespace tandem
