#include "constraint/object_grammar.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "constraint/schema_keywords.h"

namespace tandem {
namespace {

constexpr int64_t kMaxCountedStates = 20'000;  // properties times their number

GrammarExpr Uncounted(const ObjectParts& parts, SchemaOutput* output) {
  const GrammarExpr more = parts.other.is_nothing()
                               ? TextExpr("")
                               : Repeat(Sequence({TextExpr(", "), parts.other}), 0, -1);
  // tail: what may follow a member; head: what may follow the brace.
  GrammarExpr tail = more;
  std::vector<GrammarExpr> heads = {
      parts.other.is_nothing() ? TextExpr("") : Optional(Sequence({parts.other, more}))};
  for (auto it = parts.named.rbegin(); it != parts.named.rend(); ++it) {
    if (it->is_required) heads.clear();
    heads.push_back(Sequence({it->pair, tail}));
    GrammarExpr here = Sequence({TextExpr(", "), it->pair, tail});
    if (!it->is_required) here = Choice({std::move(here), tail});
    const int rule = output->grammar.AddRule();
    output->grammar.SetRule(rule, std::move(here));
    tail = RuleExpr(rule);
  }
  std::reverse(heads.begin(), heads.end());
  return Sequence({TextExpr("{"), Choice(std::move(heads)), TextExpr("}")});
}

// Other members after `count`.
GrammarExpr OthersAfter(const ObjectParts& parts, int64_t count) {
  const int64_t missing = std::max<int64_t>(parts.min - count, 0);
  if (missing > 1 || (missing > 0 && parts.other.is_nothing())) return {};
  const int64_t room = parts.max < 0 ? -1 : parts.max - count;
  if (room == 0 || parts.other.is_nothing()) return missing == 0 ? TextExpr("") : GrammarExpr();
  const GrammarExpr next = Sequence({TextExpr(", "), parts.other});
  if (count > 0) return Repeat(next, missing, room);
  GrammarExpr some = Sequence({parts.other, Repeat(next, 0, room < 0 ? -1 : room - 1)});
  return missing > 0 ? some : Optional(std::move(some));
}

// The same, by the number of members so far. Without a maximum, `most` and more are the same.
GrammarExpr Counted(const ObjectParts& parts, bool counts_max, int64_t most, SchemaOutput* output) {
  // tails[n]: what may follow n members.
  std::vector<GrammarExpr> tails;
  for (int64_t n = 0; n <= most; ++n) tails.push_back(OthersAfter(parts, n));
  for (auto it = parts.named.rbegin(); it != parts.named.rend(); ++it) {
    std::vector<GrammarExpr> before;
    for (int64_t n = 0; n <= most; ++n) {
      const bool may_come = n < most || !counts_max;
      std::vector<GrammarExpr> ways;
      if (may_come) {
        ways.push_back(
            Sequence({TextExpr(n == 0 ? "" : ", "), it->pair, tails[std::min(n + 1, most)]}));
      }
      if (!it->is_required) ways.push_back(tails[n]);
      GrammarExpr here = Choice(std::move(ways));
      if (!here.is_nothing()) {
        const int rule = output->grammar.AddRule();
        output->grammar.SetRule(rule, std::move(here));
        here = RuleExpr(rule);
      }
      before.push_back(std::move(here));
    }
    tails = std::move(before);
  }
  return Sequence({TextExpr("{"), tails[0], TextExpr("}")});
}

}  // namespace

absl::StatusOr<GrammarExpr> ObjectGrammar(const ObjectParts& parts, const std::string& path,
                                          SchemaOutput* output) {
  const auto num_named = static_cast<int64_t>(parts.named.size());
  const int64_t num_required = absl::c_count_if(
      parts.named, [](const ObjectParts::Property& property) { return property.is_required; });
  const bool has_other = !parts.other.is_nothing();
  if (parts.max >= 0 && (num_required > parts.max || parts.min > parts.max)) {
    return output->None(path, "maxProperties", "is below what must be there");
  }
  // Other names may be written twice, and are one property then.
  if (parts.min > num_named + (has_other ? 1 : 0)) {
    if (!has_other) return output->None(path, "minProperties", "is more than there can be");
    return UnsupportedKeyword(path, "minProperties",
                              absl::StrCat(" of ", parts.min, " with ", num_named,
                                           " properties that have a name of their own"));
  }
  const bool counts_min = parts.min > num_required;
  const bool counts_max = parts.max >= 0 && (has_other || parts.max < num_named);
  if (!counts_min && !counts_max) return Uncounted(parts, output);
  const int64_t most = counts_max ? std::min(parts.max, num_named) : parts.min;
  if (num_named * (most + 1) > kMaxCountedStates) {
    return UnsupportedKeyword(path, counts_min ? "minProperties" : "maxProperties",
                              absl::StrCat(" of so many: ", num_named, " properties"));
  }
  return Counted(parts, counts_max, most, output);
}

}  // namespace tandem
