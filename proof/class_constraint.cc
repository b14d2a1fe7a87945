#include "proof/class_constraint.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"

namespace tandem {
namespace {

constexpr int kNumClasses = 3;
constexpr int kMostTokens = 1 << 18;  // of a vocabulary

using Mask = std::vector<uint32_t>;

bool IsAllowed(int64_t sum, TokenId token) {
  return (token - sum % kNumClasses + kNumClasses) % kNumClasses <= 1;
}

// Behind tokens whose ids add up to `sum`.
const Mask& MaskBehind(int64_t sum) {
  static const auto* const masks = [] {
    auto* const made = new std::vector<Mask>(kNumClasses, Mask(kMostTokens / 32));
    for (int first = 0; first < kNumClasses; ++first) {
      for (TokenId v = 0; v < kMostTokens; ++v) {
        if (IsAllowed(first, v)) (*made)[first][v / 32] |= uint32_t{1} << (v % 32);
      }
    }
    return made;
  }();
  return (*masks)[sum % kNumClasses];
}

const Mask& MaskOfAll() {
  static const auto* const mask = new Mask(kMostTokens / 32, ~uint32_t{0});
  return *mask;
}

class ClassState final : public ConstraintState {
 public:
  ClassState(ConstraintFault fault, const Session* session) : fault_(fault), session_(session) {}

  std::unique_ptr<ConstraintState> Clone() const override {
    return std::make_unique<ClassState>(*this);
  }
  bool Accept(TokenId token) override {
    // A broken one has allowed what it should not have.
    if (fault_ == ConstraintFault::kNone && !IsAllowed(SumOf(tokens_), token)) return false;
    tokens_.push_back(token);
    return true;
  }
  void Undo() override {
    if (fault_ != ConstraintFault::kNotRolledBack) tokens_.pop_back();
  }
  absl::Span<const uint32_t> Allowed() override {
    if (fault_ == ConstraintFault::kNotOnBonus && IsBonus()) return MaskOfAll();
    absl::Span<const TokenId> seen = tokens_;
    if (fault_ == ConstraintFault::kLate && !seen.empty()) seen.remove_suffix(1);
    return MaskBehind(SumOf(seen));
  }
  std::string Forced() override { return ""; }

 private:
  static int64_t SumOf(absl::Span<const TokenId> tokens) {
    return std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
  }
  bool IsBonus() const {
    const int num_drafted = static_cast<int>(tokens_.size()) - session_->num_output();
    return num_drafted > 0 && num_drafted == session_->draft_tokens;
  }

  ConstraintFault fault_;
  const Session* session_;  // null for a sound one
  std::vector<TokenId> tokens_;
};

}  // namespace

std::unique_ptr<ConstraintState> ClassConstraint::Begin() const {
  return std::make_unique<ClassState>(ConstraintFault::kNone, nullptr);
}

std::unique_ptr<ConstraintState> BrokenClassState(ConstraintFault fault, const Session* session) {
  TANDEM_CHECK(session != nullptr);
  return std::make_unique<ClassState>(fault, session);
}

}  // namespace tandem
