#include "proof/remote/stand_in_engine_testing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr int kVocab = StandInEngine::kVocabSize;
constexpr char kAlphabet[kVocab + 1] = "abcdefghijklmnopqrstuvwxyz0123456789{}\":,- ABCDE";

std::string TextOf(absl::Span<const TokenId> tokens) {
  std::string text;
  for (const TokenId token : tokens) text += kAlphabet[token];
  return text;
}

// Logits by the last two tokens, and by how much the draft's differ.
struct Tables {
  std::vector<double> target, draft_change;  // [kVocab, kVocab, kVocab]
};
const Tables& TheTables() {
  static const Tables& tables = *[] {
    auto* made = new Tables;
    std::mt19937_64 random(7);
    std::normal_distribution<double> target(0.0, 1.6), change(0.0, 0.9);
    for (int i = 0; i < kVocab * kVocab * kVocab; ++i) {
      made->target.push_back(target(random));
      made->draft_change.push_back(change(random));
    }
    return made;
  }();
  return tables;
}

// Where a text cannot go on; npos if it can.
size_t EndOfForm(const RemoteForm& form, absl::string_view text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const FormMatch match = Match(form, text.substr(0, end));
    if (match.is_complete && match.next.empty()) return end;
  }
  return std::string::npos;
}

Question WithoutForm(Question question) {
  question.form = {};
  return question;
}

size_t Argmax(const std::vector<double>& row) {
  return std::max_element(row.begin(), row.end()) - row.begin();
}

std::vector<size_t> Descending(const std::vector<double>& row) {
  std::vector<size_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
  return order;
}

std::vector<double> LogSoftmax(const std::vector<double>& logits) {
  double sum = 0.0;
  const double best = logits[Argmax(logits)];
  for (const double logit : logits) sum += std::exp(logit - best);
  std::vector<double> row;
  for (const double logit : logits) row.push_back(logit - best - std::log(sum));
  return row;
}

TopLogprobs TopOf(const std::vector<double>& logprobs, int num_top) {
  TopLogprobs top;
  for (const size_t token : Descending(logprobs)) {
    if (static_cast<int>(top.size()) == num_top) break;
    top.emplace_back(static_cast<TokenId>(token), logprobs[token]);
  }
  return top;
}

}  // namespace

struct StandInEngine::Answering {
  const Question& question;
  std::vector<TokenId> tokens;  // the prompt and the answer
  size_t prompt_size = 0;
  uint64_t key = 0;  // of seeded noise; 0 without a seed
  int round = 0;
  RemoteAnswer answer{};
  RemoteAnswer before{};  // log-probabilities of the last token, for kLogprobsLate
  size_t size() const { return tokens.size() - prompt_size; }
};

StandInEngine::StandInEngine(const Options& options)
    : options_(options),
      features_{
          .ids = true, .prompt_ids = true, .num_top = 20, .scores = true, .seeds_as_plain = true},
      random_(options.seed) {}

std::string StandInEngine::BodyOf(const Question& question) const {
  return absl::StrCat("temperature ", question.temperature, " top_k ", question.top_k);
}

StandInEngine::Row StandInEngine::Logits(const Answering& at, absl::Span<const TokenId> tokens,
                                         bool is_draft) {
  const size_t base = (tokens[tokens.size() - 2] * kVocab + tokens.back()) * kVocab;
  const auto from = static_cast<ptrdiff_t>(base);
  Row row(TheTables().target.begin() + from, TheTables().target.begin() + from + kVocab);
  std::normal_distribution<double> noise(0.0, 1.0);
  for (int v = 0; v < kVocab; ++v) {
    if (is_draft) row[v] += TheTables().draft_change[base + v];
    if (options_.noise > 0.0) row[v] += options_.noise * noise(random_);
  }
  size_t counted = tokens.size() - at.prompt_size;
  if (Has(StandInFault::kPenaltiesEveryFourth)) counted = counted / 4 * 4;
  for (const TokenId token : tokens.subspan(at.prompt_size, counted)) {
    row[token] -= at.question.frequency_penalty;
  }
  if (at.question.form.kind != RemoteForm::Kind::kNone) {
    const FormMatch match = Match(at.question.form, TextOf(tokens.subspan(at.prompt_size)));
    for (int v = 0; v < kVocab && !match.next.empty(); ++v) {
      if (!absl::StrContains(match.next, kAlphabet[v]))
        row[v] = -std::numeric_limits<double>::infinity();
    }
  }
  const bool is_first = at.size() == 0;
  for (const auto& [token, bias] : at.question.logit_bias) {
    if (is_first || !Has(StandInFault::kBiasOnFirstOnly)) row[token] += bias;
  }
  return row;
}

StandInEngine::Row StandInEngine::Probabilities(const Answering& at, Row row, bool is_draft) const {
  const Question& q = at.question;
  const size_t best = Argmax(row);
  if (q.temperature == 0.0) {
    std::fill(row.begin(), row.end(), 0.0);
    row[best] = 1.0;
    return row;
  }
  const double most = row[best];
  for (double& x : row) x = std::exp((x - most) / q.temperature);
  const auto normalise = [&row] {
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    for (double& x : row) x /= sum;
  };
  const bool has_top_k = q.top_k > 0 && (is_draft || !Has(StandInFault::kTopKOnDraftOnly));
  if (has_top_k || q.top_p < 1.0) {
    const std::vector<size_t> order = Descending(row);
    for (size_t i = q.top_k; has_top_k && i < order.size(); ++i) row[order[i]] = 0.0;
    normalise();
    double sum = 0.0;
    for (const size_t v : order) {
      const double before = sum;
      sum += row[v];
      if (before >= q.top_p) row[v] = 0.0;
    }
  }
  normalise();
  if (q.min_p > 0.0) {
    const double least = q.min_p * row[best];
    for (double& x : row) x = x < least ? 0.0 : x;
    normalise();
  }
  return row;
}

TokenId StandInEngine::DrawFrom(const Answering& at, const Row& row, int position) {
  if (at.question.temperature == 0.0) return static_cast<TokenId>(Argmax(row));
  if (at.key == 0) {
    double left = Uniform() * std::accumulate(row.begin(), row.end(), 0.0);
    for (int v = 0; v < kVocab; ++v) {
      if ((left -= row[v]) < 0.0) return v;
    }
    return static_cast<TokenId>(Argmax(row));
  }
  // A race of exponentials, whose noise belongs to the position.
  const auto place = static_cast<uint64_t>(
      Has(StandInFault::kKeysNoiseByRound) ? 1000000 + 100 * at.round : position);
  std::mt19937_64 noise(at.key * 0x9e3779b97f4a7c15 + place);
  std::exponential_distribution<double> exponential;
  Row times(kVocab);
  for (int v = 0; v < kVocab; ++v) {
    const double time = exponential(noise);
    times[v] = row[v] > 0.0 ? -time / row[v] : -1e300;
  }
  return static_cast<TokenId>(Argmax(times));
}

void StandInEngine::Commit(TokenId token, const Row& logits, bool is_draft, Answering* at) {
  at->tokens.push_back(token);
  if (!at->question.wants_logprobs) return;
  const Row logprobs = LogSoftmax(logits);
  RemoteAnswer now;
  now.logprobs = {logprobs[token]};
  now.tops = {TopOf(logprobs, 20)};
  const bool is_late = is_draft && Has(StandInFault::kLogprobsLate) && !at->before.logprobs.empty();
  const RemoteAnswer& told = is_late ? at->before : now;
  const bool is_certain = is_draft && Has(StandInFault::kDraftsAreCertain);
  at->answer.logprobs.push_back(is_certain ? 0.0 : told.logprobs[0]);
  at->answer.tops.push_back(told.tops[0]);
  at->before = now;
}

void StandInEngine::RunRound(Answering* at) {
  ++at->round;
  const bool is_exact = at->key != 0 || at->question.temperature == 0.0;
  std::vector<TokenId> ahead = at->tokens;
  std::vector<Row> drafted;
  std::vector<double> coins;
  const auto first = static_cast<int>(at->size());
  for (int i = 0; i < kDraftTokens; ++i) {
    drafted.push_back(Probabilities(*at, Logits(*at, ahead, true), true));
    coins.push_back(Uniform());
    TokenId token = 0;
    if (!is_exact && Has(StandInFault::kCoinDrawsTheDraft)) {
      double left = coins.back();
      while (token + 1 < kVocab && (left -= drafted.back()[token]) >= 0.0) ++token;
    } else {
      token = DrawFrom(*at, drafted.back(), first + i);
    }
    ahead.push_back(token);
  }
  proposed_ += kDraftTokens;
  const std::vector<TokenId> drafts(ahead.end() - kDraftTokens, ahead.end());
  for (int i = 0; i < kDraftTokens; ++i) {
    const Row logits = Logits(*at, at->tokens, false);
    const Row target = Probabilities(*at, logits, false);
    const TokenId draft = drafts[i];
    if (is_exact) {
      TokenId token = DrawFrom(*at, target, first + i);
      if (at->question.temperature == 0.0 && Has(StandInFault::kGreedySometimesSecond) &&
          Uniform() < 0.002) {
        token = static_cast<TokenId>(Descending(logits)[1]);
      }
      Commit(token, logits, token == draft, at);
      if (token != draft) {
        if (Has(StandInFault::kRepeatsToken) && Uniform() < 0.1) Commit(token, logits, false, at);
        return;
      }
      ++accepted_;
      continue;
    }
    const double coin = Has(StandInFault::kCoinDrawsTheDraft) ? coins[i] : Uniform();
    if (coin * drafted[i][draft] < target[draft] ||
        (Has(StandInFault::kAcceptsLikely) && target[draft] > 0.15)) {
      Commit(draft, logits, true, at);
      ++accepted_;
      continue;
    }
    Row residual(kVocab);
    for (int v = 0; v < kVocab; ++v) residual[v] = std::max(0.0, target[v] - drafted[i][v]);
    if (Has(StandInFault::kResidualIsTarget)) residual = target;
    const TokenId token = Has(StandInFault::kArgmaxAfterRejection)
                              ? static_cast<TokenId>(Argmax(logits))
                              : DrawFrom(*at, residual, first + i);
    Commit(token, logits, false, at);
    if (Has(StandInFault::kRepeatsToken) && Uniform() < 0.1) Commit(token, logits, false, at);
    return;
  }
  const Row logits = Logits(*at, at->tokens, false);
  Commit(DrawFrom(*at, Probabilities(*at, logits, false), first + kDraftTokens), logits, false, at);
}

RemoteAnswer StandInEngine::Answer(const Question& question, int index) {
  Answering at = {.question = question, .tokens = question.prompt.ids};
  at.prompt_size = at.tokens.size();
  const bool ignores = Has(StandInFault::kIgnoresSeedSometimes) && num_requests_ % 5 == 0;
  if (question.seed.has_value() && !ignores) {
    at.key = 1 + static_cast<uint64_t>(*question.seed) * 1000 + static_cast<uint64_t>(index);
  }
  const auto wanted = static_cast<size_t>(question.max_tokens);
  while (at.size() < wanted) {
    if (options_.speculates) {
      RunRound(&at);
      continue;
    }
    const Row logits = Logits(at, at.tokens, false);
    const auto position = static_cast<int>(at.size());
    Commit(DrawFrom(at, Probabilities(at, logits, false), position), logits, false, &at);
  }
  RemoteAnswer answer = std::move(at.answer);
  answer.tokens.assign(at.tokens.begin() + static_cast<ptrdiff_t>(at.prompt_size),
                       at.tokens.begin() + static_cast<ptrdiff_t>(at.prompt_size + wanted));
  if (Has(StandInFault::kArgmaxSometimes) && question.temperature > 0.0 && wanted > 1 &&
      Uniform() < 0.05) {
    const size_t place = 1 + random_() % (wanted - 1);
    std::vector<TokenId> before = question.prompt.ids;
    before.insert(before.end(), answer.tokens.begin(),
                  answer.tokens.begin() + static_cast<ptrdiff_t>(place));
    answer.tokens[place] = static_cast<TokenId>(Argmax(Logits(at, before, false)));
  }
  answer.has_ids = true;
  answer.finish = "length";
  answer.text = TextOf(answer.tokens);
  for (const std::string& stop : question.stop) {
    const size_t end = answer.text.find(stop);
    if (end == std::string::npos || Has(StandInFault::kMissesStops)) continue;
    answer.text.resize(end);
    answer.tokens.resize(end + stop.size());
    answer.finish = Has(StandInFault::kTellsWrongFinish) ? "length" : "stop";
  }
  const size_t end = EndOfForm(question.form, answer.text);
  if (end < std::string::npos) {
    answer.finish = Has(StandInFault::kCutsForms) ? "length" : "stop";
    answer.text.resize(end - (Has(StandInFault::kCutsForms) ? 1 : 0));
    answer.tokens.resize(answer.text.size());
  } else if (question.form.kind != RemoteForm::Kind::kNone &&
             Has(StandInFault::kDropsUnfinishedForms)) {
    return Answer(WithoutForm(question), index);
  }
  answer.logprobs.resize(std::min(answer.logprobs.size(), answer.tokens.size()));
  answer.tops.resize(std::min(answer.tops.size(), answer.tokens.size()));
  return answer;
}

absl::StatusOr<RemoteReply> StandInEngine::Ask(const Question& question) {
  absl::MutexLock lock(&mutex_);
  ++num_requests_;
  proposed_ = accepted_ = 0;
  RemoteReply reply;
  if (question.form.kind != RemoteForm::Kind::kNone && !options_.takes_forms) {
    return absl::InvalidArgumentError("forms are refused");
  }
  const bool drops_form = Has(StandInFault::kDropsForms) && num_requests_ % 3 == 0;
  for (int i = 0; i < question.n; ++i) {
    const bool is_shared =
        Has(StandInFault::kSharesStreams) && i % 4 == 3 && !question.seed.has_value();
    reply.answers.push_back(is_shared ? reply.answers.back()
                                      : Answer(drops_form ? WithoutForm(question) : question, i));
  }
  int64_t num_tokens = 0;
  for (const RemoteAnswer& answer : reply.answers) {
    num_tokens += static_cast<int64_t>(answer.tokens.size());
  }
  reply.usage_tokens = num_tokens;
  if (options_.speculates) {
    reply.proposed = proposed_;
    reply.accepted = accepted_;
    reply.has_wide_chunks = question.stream;
  }
  if (Has(StandInFault::kSwapsAnswers) && num_requests_ % 8 == 0) {
    if (!held_.answers.empty() && held_.answers.size() == reply.answers.size()) {
      std::swap(reply.answers, held_.answers);
    } else {
      held_ = reply;
    }
  }
  return reply;
}

absl::StatusOr<std::vector<TopLogprobs>> StandInEngine::Score(const RemotePrompt& prompt,
                                                              absl::Span<const TokenId> tokens) {
  absl::MutexLock lock(&mutex_);
  const Question question = {.prompt = prompt};
  Answering at = {.question = question, .tokens = prompt.ids};
  at.prompt_size = at.tokens.size();
  std::vector<TopLogprobs> rows;
  for (const TokenId token : tokens) {
    const Row logprobs = LogSoftmax(Logits(at, at.tokens, false));
    rows.push_back(TopOf(logprobs, 20));
    // The text's own token comes last if it is not among the likeliest, as servers tell it.
    if (logprobs[token] < rows.back().back().second) {
      rows.back().emplace_back(token, logprobs[token]);
    }
    at.tokens.push_back(token);
  }
  return rows;
}

}  // namespace tandem
