// Samples texts from constraints. `constraint_sampler TOKENIZER` reads one constraint per line from
// standard input, as {"kind": "schema", "text": "...", "strict": true, "choices": [...], "samples":
// 5, "seed": 1, "takes": ["..."]}. For each it writes a line to standard output: {"error": "..."},
// or {"texts": [...], "unfinished": 0, "takes": [true], "compile_ms": 1.5, "mask_ms": 0.1}.
#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/strip.h"
#include "base/instant.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"
#include "text/constraint/constraint_compiler.h"

namespace tandem {
namespace {

using Json = SortedJson;

using Kind = OutputConstraint::Kind;

constexpr size_t kLongText = 160;  // bytes after which a text is steered to its end
constexpr size_t kMaxText = 6000;

OutputConstraint ConstraintOf(const Json& line) {
  const std::string kind = line.at("kind");
  OutputConstraint constraint{.kind = Kind::kJsonSchema};
  if (kind == "object") constraint.kind = Kind::kJsonObject;
  if (kind == "regex") constraint.kind = Kind::kRegex;
  if (kind == "choice") constraint.kind = Kind::kChoice;
  if (kind == "grammar") constraint.kind = Kind::kGrammar;
  if (kind == "tag") constraint.kind = Kind::kStructuralTag;
  constraint.text = line.value("text", "");
  constraint.choices = line.value("choices", std::vector<std::string>());
  constraint.is_strict = line.value("strict", true);
  return constraint;
}

double MillisecondsSince(Instant begin) {
  return absl::ToDoubleMilliseconds(Instant::Now() - begin);
}

class Sampler {
 public:
  explicit Sampler(const std::string& path)
      : tokenizer_(*Tokenizer::Load(path)),
        compiler_(tokenizer_.get(), tokenizer_->vocab_size(),
                  {.patience = absl::InfiniteDuration()}) {
    for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
      const auto text = tokenizer_->TextOf(id, /*is_first=*/false);
      texts_.emplace_back(text.has_value() && !tokenizer_->IsSpecial(id) ? text->bytes : "");
      if (tokenizer_->IsSpecial(id)) end_ = id;
    }
  }

  Json Answer(const Json& line) {
    const Instant begin = Instant::Now();
    const auto constraint = compiler_.Compile(ConstraintOf(line), {{end_}});
    const double compile_ms = MillisecondsSince(begin);
    if (!constraint.ok()) {
      return {{"error", absl::StripPrefix(constraint.status().message(), "constraint: ")}};
    }
    std::mt19937 random(line.value("seed", 1));
    Json texts = Json::array();
    int num_unfinished = 0;
    mask_ms_ = all_masks_ms_ = num_masks_ = 0;
    for (int i = 0; i < line.value("samples", 5); ++i) {
      std::string text;
      const std::unique_ptr<ConstraintState> state = (*constraint)->Begin();
      if (Sample(state.get(), &random, &text)) {
        texts.push_back(text);
      } else if (text.size() < kMaxText && state->status().ok()) {
        return {{"error", "nothing is allowed after " + text}};
      } else {
        ++num_unfinished;
      }
    }
    Json takes = Json::array();
    for (const std::string& text : line.value("takes", std::vector<std::string>())) {
      takes.push_back(Takes((*constraint)->Begin().get(), text));
    }
    return {{"texts", texts},      {"unfinished", num_unfinished},
            {"takes", takes},      {"compile_ms", compile_ms},
            {"mask_ms", mask_ms_}, {"mask_mean", all_masks_ms_ / std::max(1, num_masks_)}};
  }

 private:
  std::vector<TokenId> Allowed(ConstraintState* state) {
    const Instant begin = Instant::Now();
    const absl::Span<const uint32_t> mask = state->Allowed();
    const double ms = MillisecondsSince(begin);
    mask_ms_ = std::max(mask_ms_, ms);
    all_masks_ms_ += ms;
    ++num_masks_;
    std::vector<TokenId> tokens;
    for (TokenId v = 0; v < tokenizer_->vocab_size(); ++v) {
      if ((mask[v / 32] >> (v % 32) & 1) != 0) tokens.push_back(v);
    }
    return tokens;
  }

  // Returns a random token, or one that brings a long text closer to its end.
  TokenId Choose(const std::vector<TokenId>& allowed, size_t length, std::mt19937* random) const {
    const bool is_long = length > kLongText;
    const auto may_come = [&](TokenId id) {
      return std::binary_search(allowed.begin(), allowed.end(), id);
    };
    if (may_come(end_) && (is_long || (*random)() % 3 == 0)) return end_;
    if (is_long || (*random)() % 8 == 0) {
      for (const char* closing : {"\"", "}", "]", ",", "n", "t", "0", "1", "b"}) {
        const TokenId id = tokenizer_->IdOf(closing);
        if (id >= 0 && may_come(id) && (*random)() % 8 != 0) return id;
      }
    }
    return allowed[(*random)() % allowed.size()];
  }

  // Returns false if the text does not end, or takes too long to follow.
  bool Sample(ConstraintState* state, std::mt19937* random, std::string* text) {
    while (text->size() < kMaxText) {
      const std::vector<TokenId> allowed = Allowed(state);
      if (allowed.empty()) return false;
      const TokenId token = Choose(allowed, text->size(), random);
      if (!state->Accept(token)) return false;
      if (token == end_) return true;
      *text += texts_[token];
    }
    return false;
  }

  bool Takes(ConstraintState* state, const std::string& text) {
    const auto tokens = tokenizer_->Encode(text, SpecialTokens::kPlain);
    if (!tokens.ok()) return false;
    return std::all_of(tokens->begin(), tokens->end(),
                       [&](TokenId token) { return state->Accept(token); }) &&
           state->Accept(end_);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  ConstraintCompiler compiler_;
  std::vector<std::string> texts_;  // of the tokens
  TokenId end_ = -1;
  double all_masks_ms_ = 0;
  int num_masks_ = 0;
  double mask_ms_ = 0;  // of the slowest mask
};

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  tandem::Sampler sampler(argv[1]);
  for (std::string line; std::getline(std::cin, line);) {
    const auto answer = sampler.Answer(tandem::SortedJson::parse(line));
    std::cout << answer.dump(-1, ' ', false, tandem::SortedJson::error_handler_t::replace)
              << std::endl;
  }
}
