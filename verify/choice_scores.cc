#include "verify/choice_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "model/sampling.h"
#include "tandem/sampling_params.h"

namespace tandem {
namespace {

// Rows that a branch computes more than once to save a pass. On two cores a pass of SmolLM2-135M
// takes as long as 8 further rows (5.9 ms and 0.7 ms); on a device so few rows are free.
constexpr int kMaxRepeatedRows = 16;

// The logarithm of the sum of exp(value), less the largest value, which must be finite.
double LogSumBeyond(double largest, absl::Span<const double> values) {
  double sum = 0.0;
  for (const double value : values) sum += std::exp(value - largest);
  return std::log(sum);
}

}  // namespace

ChoiceScores::ChoiceScores(std::vector<std::vector<TokenId>> choices,
                           std::vector<TokenId> end_tokens, int num_top)
    : end_tokens_(std::move(end_tokens)), num_top_(num_top), order_(choices.size()) {
  TANDEM_CHECK(!choices.empty() && !end_tokens_.empty());
  for (std::vector<TokenId>& tokens : choices) choices_.push_back({.tokens = std::move(tokens)});
  std::iota(order_.begin(), order_.end(), 0);
  std::sort(order_.begin(), order_.end(),
            [this](int a, int b) { return choices_[a].tokens < choices_[b].tokens; });
}

int ChoiceScores::MaxLength() const {
  size_t length = 0;
  for (const Choice& choice : choices_) length = std::max(length, choice.tokens.size());
  return static_cast<int>(length);
}

int ChoiceScores::NumShared(int a, int b) const {
  const std::vector<TokenId>& x = choices_[order_[a]].tokens;
  const std::vector<TokenId>& y = choices_[order_[b]].tokens;
  return static_cast<int>(std::mismatch(x.begin(), x.end(), y.begin(), y.end()).first - x.begin());
}

ChoiceScores::Part ChoiceScores::NextPart(const KvSequence& prompt, int max_rows,
                                          int64_t max_pages) const {
  const KvSequence fork = prompt.Fork();
  Part part{.num_rows = 1};  // of the prompt's last token
  for (int i = num_scored_; i < num_choices(); ++i) {
    const int length = static_cast<int>(choices_[order_[i]].tokens.size());
    const int rows = part.num_rows + length - (i == num_scored_ ? 0 : NumShared(i - 1, i));
    const int64_t pages = part.pages + fork.PagesToExtend(1 + length);
    if (part.count > 0 && (rows > max_rows || pages > max_pages)) break;
    part = {.count = part.count + 1, .num_rows = rows, .pages = pages};
  }
  return part;
}

std::vector<double> ChoiceScores::Logprobs() const {
  TANDEM_CHECK(is_complete());
  std::vector<double> logprobs;
  for (const Choice& choice : choices_) logprobs.push_back(choice.logprob);
  return logprobs;
}

std::vector<TokenId> ChoiceScores::OutputOf(int choice) const {
  TANDEM_CHECK(is_complete());
  std::vector<TokenId> tokens = choices_[choice].tokens;
  tokens.push_back(choices_[choice].end);
  return tokens;
}

// Runs the passes of ScoreChoices.
class ChoicePasses {
 public:
  explicit ChoicePasses(LanguageModel* target) : target_(target) {}

  void Begin(const ChoiceRequest& request) {
    ChoiceScores& scores = *request.scores;
    TANDEM_CHECK(0 < request.count && request.count <= scores.num_choices() - scores.num_scored_);
    scored_.emplace_back(request.scores, request.count);
    Add({.scores = request.scores,
         .begin = scores.num_scored_,
         .end = scores.num_scored_ + request.count,
         .kv = request.kv->Fork(),
         .unread = {request.last}});
  }

  absl::Status Run(int max_rows) {
    while (!branches_.empty()) RETURN_IF_ERROR(Pass(std::max(max_rows, 1)));
    for (const auto& [scores, count] : scored_) scores->num_scored_ += count;
    return absl::OkStatus();
  }

 private:
  using Choice = ChoiceScores::Choice;

  // Choices that begin with the same `num_known + unread` tokens, as far as they are told apart.
  struct Branch {
    ChoiceScores* scores;
    int begin, end;  // of its choices, in their order
    KvSequence kv;
    std::vector<TokenId> unread;  // the next tokens to read
    int num_known = 0;            // tokens of the choices whose probabilities are in `logprob`
    double logprob = 0.0;
    std::vector<TokenLogprobs> rows{};

    const Choice& choice(int i) const { return scores->choices_[scores->order_[i]]; }
    // Lets the branch read the tokens of its first choice up to `length`.
    void ReadUpTo(int length) {
      const std::vector<TokenId>& tokens = choice(begin).tokens;
      unread.insert(unread.end(), tokens.begin() + num_known, tokens.begin() + length);
    }
  };

  // Adds a branch whose last unread token is the last of its known ones, or the prompt's. Its
  // choices read what they have in common either together or each for itself.
  void Add(Branch branch) {
    const int num_common = branch.scores->NumShared(branch.begin, branch.end - 1);
    int num_repeated = 0;
    for (int i = branch.begin + 1; i < branch.end; ++i) {
      num_repeated += static_cast<int>(branch.unread.size()) - branch.num_known +
                      branch.scores->NumShared(i - 1, i);
    }
    if (num_repeated > kMaxRepeatedRows) {
      branch.ReadUpTo(num_common);
      branches_.push_back(std::move(branch));
      return;
    }
    for (int i = branch.begin; i < branch.end; ++i) {
      Branch one{.scores = branch.scores,
                 .begin = i,
                 .end = i + 1,
                 .kv = i + 1 < branch.end ? branch.kv.Fork() : std::move(branch.kv),
                 .unread = branch.unread,
                 .num_known = branch.num_known,
                 .logprob = branch.logprob,
                 .rows = branch.rows};
      one.ReadUpTo(static_cast<int>(one.choice(i).tokens.size()));
      branches_.push_back(std::move(one));
    }
  }

  absl::Status Pass(int max_rows) {
    std::vector<ForwardRequest> requests;
    int num_left = max_rows;
    for (Branch& branch : branches_) {
      const int count = std::min<int>(static_cast<int>(branch.unread.size()), num_left);
      if (count == 0) break;
      requests.push_back({.tokens = absl::MakeConstSpan(branch.unread).first(count),
                          .kv = &branch.kv,
                          .num_logits = count});
      num_left -= count;
    }
    ASSIGN_OR_RETURN(const MatrixView logits, target_->Forward(requests));
    std::vector<Branch> read(std::make_move_iterator(branches_.begin()),
                             std::make_move_iterator(branches_.begin() + requests.size()));
    branches_.erase(branches_.begin(), branches_.begin() + static_cast<ptrdiff_t>(requests.size()));
    const auto* row = static_cast<const float*>(logits.data);
    for (size_t i = 0; i < read.size(); ++i) {
      const int count = static_cast<int>(requests[i].tokens.size());
      TakeRows(row, logits, count, std::move(read[i]));
      row += count * logits.stride;
    }
    return absl::OkStatus();
  }

  void TakeRows(const float* row, const MatrixView& logits, int count, Branch branch) {
    const std::vector<TokenId>& tokens = branch.choice(branch.begin).tokens;
    for (int j = 0; j < count; ++j, row += logits.stride) {
      const absl::Span<const float> values(row, logits.cols);
      const RawLogprobs logprobs(values);
      if (std::isnan(logprobs.Of(0))) {
        branch.scores->status_.Update(absl::InvalidArgumentError(
            absl::StrCat("the target's row for position ", branch.kv.length() - count + j + 1,
                         ": is not a distribution")));
      }
      if (j + 1 < static_cast<int>(branch.unread.size())) {
        Extend(tokens[branch.num_known], values, logprobs, &branch);
      } else {
        return Split(values, logprobs, std::move(branch));
      }
    }
    branch.unread.erase(branch.unread.begin(), branch.unread.begin() + count);
    branches_.push_back(std::move(branch));
  }

  static void Extend(TokenId token, absl::Span<const float> values, const RawLogprobs& logprobs,
                     Branch* branch) {
    branch->logprob += logprobs.Of(token);
    ++branch->num_known;
    if (branch->scores->num_top_ < 0) return;
    branch->rows.push_back(LogprobsOf(values, token, branch->scores->num_top_));
  }

  // The row after everything that the branch's choices have in common.
  void Split(absl::Span<const float> values, const RawLogprobs& logprobs, Branch branch) {
    ChoiceScores& scores = *branch.scores;
    const int known = branch.num_known;
    branch.unread.clear();
    if (static_cast<int>(branch.choice(branch.begin).tokens.size()) == known) {
      End(values, logprobs, branch, &scores.choices_[scores.order_[branch.begin]]);
      ++branch.begin;
    }
    while (branch.begin < branch.end) {
      const TokenId next = branch.choice(branch.begin).tokens[known];
      int end = branch.begin + 1;
      while (end < branch.end && branch.choice(end).tokens[known] == next) ++end;
      Branch child{.scores = branch.scores,
                   .begin = branch.begin,
                   .end = end,
                   .kv = end < branch.end ? branch.kv.Fork() : std::move(branch.kv),
                   .unread = {next},
                   .num_known = known,
                   .logprob = branch.logprob,
                   .rows = branch.rows};
      Extend(next, values, logprobs, &child);
      Add(std::move(child));
      branch.begin = end;
    }
  }

  static void End(absl::Span<const float> values, const RawLogprobs& logprobs, const Branch& branch,
                  Choice* choice) {
    const std::vector<TokenId>& end_tokens = branch.scores->end_tokens_;
    std::vector<double> ends;
    for (const TokenId token : end_tokens) ends.push_back(logprobs.Of(token));
    const auto largest = std::max_element(ends.begin(), ends.end());
    choice->end = end_tokens[largest - ends.begin()];
    const double beyond = std::isfinite(*largest) ? LogSumBeyond(*largest, ends) : 0.0;
    choice->logprob = branch.logprob + (*largest + beyond);
    if (branch.scores->num_top_ < 0) return;
    choice->rows = branch.rows;
    choice->rows.push_back(LogprobsOf(values, choice->end, branch.scores->num_top_));
  }

  LanguageModel* target_;
  std::vector<std::pair<ChoiceScores*, int>> scored_;
  std::vector<Branch> branches_;
};

absl::Status ScoreChoices(LanguageModel* target, absl::Span<const ChoiceRequest> requests,
                          int max_rows) {
  ChoicePasses passes(target);
  for (const ChoiceRequest& request : requests) passes.Begin(request);
  return passes.Run(max_rows);
}

absl::StatusOr<std::vector<double>> NormalizedLogprobs(absl::Span<const double> logprobs) {
  const double largest = *std::max_element(logprobs.begin(), logprobs.end());
  if (!std::isfinite(largest)) {
    return absl::InvalidArgumentError("the target gives none of the choices a probability");
  }
  const double beyond = LogSumBeyond(largest, logprobs);
  std::vector<double> normalized;
  for (const double logprob : logprobs) normalized.push_back((logprob - largest) - beyond);
  return normalized;
}

int DrawChoice(absl::Span<const double> logprobs, float temperature, double uniform) {
  const auto largest = std::max_element(logprobs.begin(), logprobs.end());
  const int best = static_cast<int>(largest - logprobs.begin());
  TANDEM_CHECK(std::isfinite(*largest));
  if (SamplingParams{.temperature = temperature}.is_greedy()) return best;
  std::vector<double> sums;  // of the weights up to each choice
  double sum = 0.0;
  for (const double logprob : logprobs) {
    sum += std::exp((logprob - *largest) / static_cast<double>(temperature));
    sums.push_back(sum);
  }
  // Rounding may lead to the end of the last choice with a weight.
  const double place = std::min(uniform * sum, std::nextafter(sum, 0.0));
  return static_cast<int>(std::upper_bound(sums.begin(), sums.end(), place) - sums.begin());
}

double ChoiceUniform(const RandomSource& random, int position) {
  return random.UniformDouble(
      {.stream = RandomStream::kChoice, .position = static_cast<uint32_t>(position)});
}

}  // namespace tandem
