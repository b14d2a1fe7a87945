#include "base/json/request_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json/json_text.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

// Maps "messages[3].mood" to "messages[].mood".
std::string NameOfPath(absl::string_view path) {
  std::string name;
  bool is_in_brackets = false;
  for (const char c : path) {
    if (name.size() == IgnoredFields::kLongestName) break;
    if (c == '[') is_in_brackets = true;
    if (c == ']') is_in_brackets = false;
    if (is_in_brackets && absl::ascii_isdigit(c)) continue;
    const bool is_plain = absl::ascii_isalnum(c) || absl::StrContains("_-.[]$", c);
    name += is_plain ? c : '?';
  }
  return name;
}

// Returns the name itself if an error message can begin with it, else the name in quotes.
std::string NameOf(const std::string& name) {
  const bool is_plain = name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
                          return absl::ascii_isalnum(c) || c == '_';
                        });
  return is_plain && !name.empty() ? name : Quoted(name);
}

const JsonValue& EmptyObject() {
  static const JsonValue* const empty = new JsonValue(JsonValue::object());
  return *empty;
}

}  // namespace

void IgnoredFields::Add(absl::string_view path) {
  std::string name = NameOfPath(path);
  if (std::find(names_.begin(), names_.end(), name) != names_.end()) return;
  if (names_.size() == kMaxNames) {
    is_cut_ = true;
    return;
  }
  names_.push_back(std::move(name));
}

std::vector<std::pair<std::string, std::string>> IgnoredFields::Headers() const {
  if (names_.empty()) return {};
  return {{"x-tandem-ignored-fields",
           absl::StrCat(absl::StrJoin(names_, ", "), is_cut_ ? ", ..." : "")}};
}

std::vector<std::string> IgnoredFieldsLog::NewLines(const IgnoredFields& fields) {
  std::vector<std::string> lines;
  absl::MutexLock lock(&mutex_);
  for (const std::string& name : fields.names()) {
    if (said_.size() > kMaxNames || !said_.insert(name).second) continue;
    lines.push_back(said_.size() <= kMaxNames
                        ? absl::StrCat("ignored field=", name,
                                       " why=\"unknown; --strict-requests refuses such fields\"")
                        : "ignored fields=many more=\"further ones are not logged\"");
  }
  return lines;
}

absl::Status MissingField(absl::string_view field, absl::string_view allowed) {
  return FieldError(field, absl::StrCat("is required, allowed: ", allowed));
}

RequestFields::RequestFields(const JsonValue* object, std::string path, IgnoredFields* ignored)
    : path_(std::move(path)), object_(object), ignored_(ignored) {
  if (object->is_object()) return;
  object_ = &EmptyObject();
  Fail(FieldError(path_.empty() ? "body" : path_,
                  absl::StrCat(Shown(*object), " is not an object")));
}

std::string RequestFields::PathOf(absl::string_view name) const {
  return path_.empty() ? std::string(name) : absl::StrCat(path_, ".", name);
}

void RequestFields::Fail(absl::Status status) { status_.Update(std::move(status)); }

void RequestFields::FailNot(absl::string_view name, const JsonValue& found,
                            absl::string_view allowed) {
  const bool says_nothing = found.is_null() || IsText(found, "");
  if (says_nothing && Find(name) == nullptr) return Fail(MissingField(PathOf(name), allowed));
  Fail(FieldError(PathOf(name), absl::StrCat(Shown(found), " is not ", allowed)));
}

void RequestFields::FailBeyond(absl::string_view name, const JsonValue& found,
                               absl::string_view allowed) {
  Fail(FieldError(PathOf(name), absl::StrCat("must be ", allowed, ", got ", Shown(found))));
}

const JsonValue* RequestFields::Find(absl::string_view name) {
  auto known = std::find(known_.begin(), known_.end(), name);
  if (known == known_.end()) known = known_.emplace(known_.end(), name);
  const auto it = object_->find(*known);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

void RequestFields::Read(absl::string_view name, bool* value) {
  const JsonValue* found = Find(name);
  if (found == nullptr) return;
  if (!found->is_boolean()) return FailNot(name, *found, "true or false");
  *value = found->get<bool>();
}

void RequestFields::Read(absl::string_view name, int* value, const Limits& limits) {
  const JsonValue* found = Find(name);
  if (found == nullptr) return;
  if (*limits.word != '\0' && IsText(*found, limits.word)) {
    *value = static_cast<int>(*limits.unset);
    return;
  }
  const std::optional<JsonInteger> number = AsJsonInteger(*found);
  Limits of_int = limits;
  of_int.high = std::min<double>(limits.high, std::numeric_limits<int>::max());
  const auto low = static_cast<int64_t>(limits.low);
  if (!number.has_value() || !number->IsWithin(low, static_cast<int64_t>(of_int.high))) {
    const bool is_small = !number.has_value() || number->IsWithin(INT64_MIN, low);
    const std::string allowed = AllowedBy(is_small ? limits : of_int, /*as_text=*/true);
    return FailBeyond(name, *found,
                      absl::StrCat(number.has_value() ? "" : "an integer, ", allowed));
  }
  *value = static_cast<int>(number->bits);
}

void RequestFields::Read(absl::string_view name, std::optional<int>* value, const Limits& limits) {
  if (Find(name) != nullptr) Read(name, &value->emplace(), limits);
}

void RequestFields::Read(absl::string_view name, float* value, const Limits& limits) {
  const JsonValue* found = Find(name);
  if (found == nullptr) return;
  if (!found->is_number()) return FailNot(name, *found, "a number");
  const double number = found->get<double>();
  if (!(std::abs(number) <= std::numeric_limits<float>::max())) {
    return FailNot(name, *found, "a number of 32 bits");
  }
  if (!limits.Contain(number)) return FailBeyond(name, *found, AllowedBy(limits));
  *value = static_cast<float>(number);
}

void RequestFields::Read(absl::string_view name, std::string* value) {
  const JsonValue* found = Find(name);
  if (found == nullptr) return;
  if (!found->is_string()) return FailNot(name, *found, "a string");
  *value = found->get<std::string>();
}

void RequestFields::Read(absl::string_view name, std::optional<uint64_t>* value) {
  const JsonValue* found = Find(name);
  if (found == nullptr) return;
  const std::optional<JsonInteger> number = AsJsonInteger(*found);
  if (!number.has_value()) return FailNot(name, *found, "an integer of 64 bits");
  *value = number->bits;
}

void RequestFields::AllowOnly(absl::string_view name, absl::Span<const JsonValue> neutral,
                              absl::string_view instead) {
  const JsonValue* found = Find(name);
  if (found == nullptr) return;
  if (std::find(neutral.begin(), neutral.end(), *found) != neutral.end()) return;
  std::string allowed = "supported, allowed: null";
  for (const JsonValue& value : neutral) absl::StrAppend(&allowed, ", ", Shown(value));
  if (!instead.empty()) absl::StrAppend(&allowed, "; use ", instead, " in its place");
  FailNot(name, *found, allowed);
}

void RequestFields::TreatAsUnknown(absl::string_view name, absl::string_view why) {
  if (ignored_ != nullptr) return ignored_->Add(PathOf(name));
  Fail(FieldError(PathOf(name), why));
}

bool RequestFields::IsKnown(absl::string_view name) const {
  return std::find(known_.begin(), known_.end(), name) != known_.end();
}

std::vector<std::string> RequestFields::UnknownMembers() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_->items()) {
    if (!IsKnown(name)) names.push_back(name);
  }
  return names;
}

absl::Status RequestFields::Finish() {
  for (const std::string& name : UnknownMembers()) {
    if (ignored_ != nullptr) {
      ignored_->Add(PathOf(name));
      continue;
    }
    Fail(WithCode(FieldError(PathOf(NameOf(name)),
                             absl::StrCat("is not known, allowed: ", absl::StrJoin(known_, ", "))),
                  "unknown_parameter"));
  }
  return status_;
}

}  // namespace tandem
