#include "proof/proof_world.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "engine/round.h"
#include "tandem/reasoning.h"
#include "text/chat/thinking_constraint.h"

namespace tandem {
namespace {

constexpr int kNumClasses = 3;
constexpr int kMaxTokens = 1 << 18;  // of a vocabulary

using Mask = std::vector<uint32_t>;

bool IsAllowed(int64_t sum, TokenId token) {
  return (token - sum % kNumClasses + kNumClasses) % kNumClasses <= 1;
}

// Returns the mask after tokens whose ids sum to `sum`.
const Mask& MaskAfter(int64_t sum) {
  static const auto* const masks = [] {
    auto* const made = new std::vector<Mask>(kNumClasses, Mask(kMaxTokens / 32));
    for (int first = 0; first < kNumClasses; ++first) {
      for (TokenId v = 0; v < kMaxTokens; ++v) {
        if (IsAllowed(first, v)) (*made)[first][v / 32] |= uint32_t{1} << (v % 32);
      }
    }
    return made;
  }();
  return (*masks)[sum % kNumClasses];
}

const Mask& MaskOfAll() {
  static const auto* const mask = new Mask(kMaxTokens / 32, ~uint32_t{0});
  return *mask;
}

class ClassState final : public ConstraintState {
 public:
  ClassState(ConstraintFault fault, const Session* session) : fault_(fault), session_(session) {}

  std::unique_ptr<ConstraintState> Clone() const override {
    return std::make_unique<ClassState>(*this);
  }
  bool Accept(TokenId token) override {
    // A broken state has allowed tokens that it should not have.
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
    return MaskAfter(SumOf(seen));
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
  const Session* session_;  // null in a sound state
  std::vector<TokenId> tokens_;
};

}  // namespace

std::unique_ptr<ConstraintState> ClassConstraint::Begin() const {
  return std::make_unique<ClassState>(ConstraintFault::kNone, nullptr);
}

std::shared_ptr<const TokenConstraint> ClassThinking() {
  return std::make_shared<const ThinkingConstraint>(ThinkingConstraint::Rules{
      .markers = {.format = {.begin = "<", .end = "ab"}, .start = ReasoningStart::kInside},
      .max_tokens = 1,
      .window = 1,
      .vocab_size = kMaxTokens,
      .text_of = [](TokenId token) { return std::string_view("ab\nx").substr(token % 4, 1); },
      .closings = {{0, 1}, {1}}});
}

std::unique_ptr<ConstraintState> BrokenClassState(ConstraintFault fault, const Session* session) {
  TANDEM_CHECK(session != nullptr);
  return std::make_unique<ClassState>(fault, session);
}

std::unique_ptr<Session> ProofRounds::NewSession(const ProofRequest& request,
                                                 KvSequence read) const {
  auto session = std::make_unique<Session>();
  Session& s = *session;
  s.sampling = request.sampling;
  s.random = request.random;
  s.rule = request.rule;
  s.prompt_length = static_cast<int>(request.prompt.size());
  s.max_length = s.prompt_length + request.max_tokens;
  s.logprobs = request.logprobs;
  s.tokens.assign(request.prompt.begin(), request.prompt.end());
  s.history = world_.constraint_fault == ConstraintFault::kNone || s.sampling.constraint == nullptr
                  ? TokenHistory(s.sampling.constraint.get())
                  : TokenHistory(BrokenClassState(world_.constraint_fault, &s));
  if (s.sampling.has_penalties()) s.history.AddPrompt(s.tokens);
  s.target_kv = std::move(read);
  s.tenant = world_.tenant;
  if (world_.drafter != nullptr) {
    s.draft_state = world_.drafter->NewStateOf(s.drafter, s.tokens, s.tenant);
    if (world_.drafter->shares_target_cache() && s.target_kv.length() > 0) {
      world_.drafter->AdoptLongerPrefix(s.draft_state.get(), s.tokens, s.target_kv);
    }
  }
  return session;
}

absl::Status ProofRounds::Run(absl::Span<Session* const> sessions, int draft_tokens,
                              int chunk_tokens) {
  std::vector<RoundStep> steps;
  for (Session* session : sessions) {
    RoundStep step{.session = session,
                   .num_fed = std::min(session->num_pending(), chunk_tokens),
                   .granted = 0};
    session->draft_tokens = draft_tokens;
    if (draft_tokens > 0 && step.completes() && session->draft_state != nullptr) {
      const std::vector<DraftOption> options =
          world_.drafter->Options(session->draft_state.get(), session->tokens);
      // Alternates between several sources, by the number of committed tokens.
      if (!options.empty()) {
        step.option = options[session->length() % options.size()];
        step.granted = std::min({draft_tokens, step.option.max_tokens, session->DraftRoom()});
      }
    }
    steps.push_back(step);
  }
  RETURN_IF_ERROR(RunRound(world_.drafter, &verifier_, steps, &policy_));
  for (const Session* session : sessions) RETURN_IF_ERROR(session->status);
  return absl::OkStatus();
}

}  // namespace tandem
