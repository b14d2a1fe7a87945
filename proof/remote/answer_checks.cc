#include "proof/remote/answer_checks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/status_macros.h"
#include "proof/statistics.h"

namespace tandem {
namespace {

constexpr int kAnswerTokens = 48;
constexpr double kLeastNearTie = 0.01;  // nats
constexpr double kLeastLogprobChange = 0.02;
constexpr double kErrorRate = 1e-4;  // of a single fault that rests on chance
constexpr int kFormTokens = 64;      // of an answer that may complete its form
constexpr double kFormErrorRate = 1e-6;
constexpr size_t kMostDifferences = 3;  // kept for the report, without a law's
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The log-probability of a token; minus infinity outside the list.
double LogprobIn(const TopLogprobs& top, TokenId token) {
  for (const auto& [other, logprob] : top) {
    if (other == token) return logprob;
  }
  return -kInfinity;
}

size_t EqualTokens(const RemoteAnswer& a, const RemoteAnswer& b) {
  const auto end =
      std::mismatch(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end());
  return static_cast<size_t>(end.first - a.tokens.begin());
}

std::string Share(int64_t count, int64_t total) {
  return Format("%d of %d (at most %.1f %%)", count, total, 100.0 * LargestShare(count, total));
}

}  // namespace

AnswerChecks::AnswerChecks(const AnswerChecks& begun, const RemoteTrial& trial)
    : AnswerChecks(trial) {
  const size_t count = std::min(begun.questions_.size(), static_cast<size_t>(trial.options.runs));
  answer_time_ = begun.answer_time_;
  questions_.assign(begun.questions_.begin(), begun.questions_.begin() + count);
  greedy_.assign(begun.greedy_.begin(), begun.greedy_.begin() + count);
  noise_ = begun.noise_;
}

// ---- Comparing ----

struct AnswerChecks::Comparison {
  int64_t answers = 0;
  int64_t kinds[5] = {};  // [Kind]
  int64_t equal_tokens = 0;
  double worst = 0.0;  // margin

  int64_t of(Kind kind) const { return kinds[static_cast<int>(kind)]; }
  int64_t different() const { return answers - of(Kind::kEqual); }
  CheckOutcome outcome() const {
    if (of(Kind::kFault) + of(Kind::kForm) > 0) return CheckOutcome::kFault;
    if (of(Kind::kUnclear) > 0) return CheckOutcome::kUnclear;
    if (different() == 0 && equal_tokens == 0) return CheckOutcome::kNotTested;
    return of(Kind::kNearTie) > 0 ? CheckOutcome::kNearTies : CheckOutcome::kEqual;
  }
  std::string Text() const {
    std::string text = absl::StrCat(Share(different(), answers), " differ");
    const auto add = [&](Kind kind, const char* what) {
      if (of(kind) > 0) absl::StrAppend(&text, ", ", of(kind), " ", what);
    };
    add(Kind::kNearTie, "near ties");
    add(Kind::kFault, "beyond near ties");
    add(Kind::kUnclear, "without log-probabilities that would tell why");
    add(Kind::kForm, "in text, length or finish only");
    if (worst > 0.0) text += Format(", largest margin %.2g nats", worst);
    return absl::StrCat(text, "; ", equal_tokens, " equal tokens");
  }
};

Question AnswerChecks::Greedily(const RemotePrompt& prompt) const {
  return {.prompt = prompt,
          .max_tokens = kAnswerTokens,
          .temperature = 0.0,
          .wants_logprobs = trial_.plain.engine->features().num_top > 0};
}

size_t AnswerChecks::Fitting(double share, int passes, size_t least) const {
  const size_t all = trial_.options.prompts.size();
  if (trial_.options.runs > 0) return std::min(all, static_cast<size_t>(trial_.options.runs));
  const double fitting = absl::FDivDuration(trial_.options.time * share, answer_time_ * passes);
  return std::min(all, std::max(least, static_cast<size_t>(std::min(fitting, 1e6))));
}

absl::Status AnswerChecks::AskBoth(const std::string& check, absl::Span<const Question> questions,
                                   std::vector<RemoteReply>* plain,
                                   std::vector<RemoteReply>* speculative) {
  auto of_plain = trial_.plain.Ask(questions, trial_.options.concurrency);
  auto of_speculative = trial_.speculative.Ask(questions, trial_.options.concurrency);
  for (const absl::Status& status : {of_plain.status(), of_speculative.status()}) {
    if (absl::IsUnavailable(status) || absl::IsResourceExhausted(status)) return status;
    if (status.ok()) continue;
    trial_.proof.Add(check, CheckOutcome::kNotTested, std::string(status.message()));
    return absl::OkStatus();
  }
  *plain = *std::move(of_plain);
  *speculative = *std::move(of_speculative);
  return absl::OkStatus();
}

void AnswerChecks::Keep(const std::string& check, const Question& question,
                        const RemoteAnswer& plain, const RemoteAnswer& other) {
  if (trial_.proof.differences.size() >= kMostDifferences) return;
  const auto shown = [&](const RemoteAnswer& answer) {
    return plain.text != other.text ? answer.text
                                    : absl::StrCat(answer.text, " (", answer.tokens.size(),
                                                   " tokens, finish: ", answer.finish, ")");
  };
  trial_.proof.differences.push_back(
      {check, trial_.speculative.engine->BodyOf(question), shown(plain), shown(other)});
}

// The margin at the first different token is the plain server's best log-probability there minus
// that of the other token.
absl::StatusOr<AnswerChecks::Kind> AnswerChecks::Compare(const Question& question,
                                                         const RemoteAnswer& plain,
                                                         const RemoteAnswer& other,
                                                         double* margin) {
  const size_t at = EqualTokens(plain, other);
  if (at == plain.tokens.size() && at == other.tokens.size()) {
    return plain.text == other.text && plain.finish == other.finish ? Kind::kEqual : Kind::kForm;
  }
  const bool was_cut = at == static_cast<size_t>(question.max_tokens);
  if (was_cut || (at == plain.tokens.size() && !question.stop.empty())) return Kind::kForm;
  TopLogprobs top;
  if (at < plain.tops.size()) {
    top = plain.tops[at];
  } else if (trial_.plain.engine->features().scores && at < other.tokens.size()) {
    // The plain answer ended here, with a token that it does not tell.
    ASSIGN_OR_RETURN(const std::vector<TopLogprobs> scores,
                     trial_.plain.engine->Score(question.prompt, other.tokens));
    top = scores[at];
  }
  if (top.size() < 2) return Kind::kUnclear;
  // Where the other answer ended, its token is not known: the second best is the least margin.
  *margin =
      top[0].second - (at < other.tokens.size() ? LogprobIn(top, other.tokens[at]) : top[1].second);
  return *margin <= trial_.proof.near_tie ? Kind::kNearTie : Kind::kFault;
}

absl::StatusOr<AnswerChecks::Kind> AnswerChecks::Tally(const Question& question,
                                                       const RemoteAnswer& plain,
                                                       const RemoteAnswer& other,
                                                       Comparison* comparison) {
  double margin = 0.0;
  ASSIGN_OR_RETURN(const Kind kind, Compare(question, plain, other, &margin));
  ++comparison->answers;
  ++comparison->kinds[static_cast<int>(kind)];
  comparison->equal_tokens += static_cast<int64_t>(EqualTokens(plain, other));
  comparison->worst = std::max(comparison->worst, margin);
  return kind;
}

absl::StatusOr<AnswerChecks::Comparison> AnswerChecks::CompareAll(
    const std::string& check, absl::Span<const Question> questions,
    absl::Span<const RemoteReply> others) {
  Comparison comparison;
  for (size_t i = 0; i < others.size(); ++i) {
    const RemoteAnswer& other = others[i].answers[0];
    RemoteAnswer plain = greedy_[i];
    if (questions[i].max_tokens < kAnswerTokens) {  // compared with the beginning of a longer one
      const auto length = static_cast<size_t>(questions[i].max_tokens);
      if (plain.tokens.size() >= length) {
        plain.tokens.resize(length);
        plain.text = other.text;
        plain.finish = other.finish;
      }
    }
    ASSIGN_OR_RETURN(const Kind kind, Tally(questions[i], plain, other, &comparison));
    if (kind != Kind::kEqual && kind != Kind::kNearTie) Keep(check, questions[i], plain, other);
  }
  return comparison;
}

// ---- Checks ----

absl::Status AnswerChecks::Begin() {
  trial_.proof.near_tie = kLeastNearTie;
  const Instant start = Instant::Now();
  for (const RemotePrompt& prompt : trial_.options.prompts) {
    const std::vector<Question> question = {Greedily(prompt)};
    absl::StatusOr<std::vector<RemoteReply>> reply = trial_.plain.Ask(question, 1);
    if (absl::IsResourceExhausted(reply.status()) && !greedy_.empty()) break;
    RETURN_IF_ERROR(reply.status());
    questions_.push_back(question[0]);
    greedy_.push_back(std::move((*reply)[0].answers[0]));
    answer_time_ = (Instant::Now() - start) / static_cast<int64_t>(questions_.size());
    const bool has_noise = trial_.plain.engine->features().scores;
    if (questions_.size() >= Fitting(0.10, 6, has_noise ? 8 : 24)) break;
  }
  return absl::OkStatus();
}

absl::Status AnswerChecks::Arithmetic() {
  if (!trial_.plain.engine->features().scores) {
    trial_.proof.Add("arithmetic", CheckOutcome::kNotTested,
                     Format("a near tie is taken to be below %g nats: the plain server scores no "
                            "given text: %s",
                            trial_.proof.near_tie, trial_.plain.engine->features().no_scores));
    return absl::OkStatus();
  }
  constexpr size_t kMargins = 4;   // of the best tokens of a row
  constexpr double kLikely = 4.0;  // nats below the best
  int64_t compared = 0;
  double noise = 0.0;
  const size_t num_prompts = std::min(greedy_.size(), Fitting(0.02, 8, 4));
  for (size_t i = 0; i < num_prompts; ++i) {
    ASSIGN_OR_RETURN(const std::vector<TopLogprobs> rows,
                     trial_.plain.engine->Score(questions_[i].prompt, greedy_[i].tokens));
    for (size_t j = 0; j < std::min(rows.size(), greedy_[i].tops.size()); ++j) {
      const TopLogprobs& decoded = greedy_[i].tops[j];
      for (size_t k = 0; k < std::min(kMargins, decoded.size()); ++k) {
        const double margin = rows[j][0].second - LogprobIn(rows[j], decoded[k].first);
        if (margin > kLikely) continue;
        noise = std::max(noise, std::abs(margin - (decoded[0].second - decoded[k].second)));
        ++compared;
      }
    }
  }
  noise_ = noise;
  trial_.proof.near_tie = std::max(kLeastNearTie, 4.0 * noise);
  trial_.proof.Add("arithmetic", CheckOutcome::kNote,
                   Format("the plain server's margins change by at most %.2g nats between "
                          "decoding and reading (%d margins); a near tie is below %.2g",
                          noise, compared, trial_.proof.near_tie));
  return absl::OkStatus();
}

absl::Status AnswerChecks::Greedy() {
  struct Pass {
    const char* name;
    RemoteSide* side;
    int concurrency;
    bool is_reversed;
    int tokens_left_out;
  };
  const int many = trial_.options.concurrency;
  const Pass passes[] = {{"plain again", &trial_.plain, 1, false, 0},
                         {"plain, concurrent", &trial_.plain, many, false, 0},
                         {"alone", &trial_.speculative, 1, false, 0},
                         {"concurrent", &trial_.speculative, many, false, 0},
                         {"other order", &trial_.speculative, 1, true, 0},
                         {"shorter", &trial_.speculative, many, false, 3}};
  Comparison control;
  int64_t answers = 0;
  int64_t different = 0;
  for (const Pass& pass : passes) {
    std::vector<Question> questions = questions_;
    for (Question& question : questions) question.max_tokens -= pass.tokens_left_out;
    ASSIGN_OR_RETURN(const std::vector<RemoteReply> replies,
                     pass.side->Ask(questions, pass.concurrency, pass.is_reversed));
    const std::string name = absl::StrCat("greedy: ", pass.name);
    const bool is_control = pass.side == &trial_.plain;
    const size_t kept = trial_.proof.differences.size();
    ASSIGN_OR_RETURN(const Comparison comparison, CompareAll(name, questions, replies));
    if (is_control) trial_.proof.differences.resize(kept);
    if (pass.concurrency > 1 && is_control) control = comparison;
    std::string text = comparison.Text();
    if (pass.concurrency > 1 && !is_control && comparison.different() > 0) {
      text += Format("; plain under concurrency: %d (Fisher p %.2g)", control.different(),
                     FisherTail(comparison.different(), comparison.answers, control.different(),
                                control.answers));
    }
    trial_.proof.Add(name, is_control ? CheckOutcome::kNote : comparison.outcome(), text);
    if (!is_control) {
      answers = comparison.answers;
      different = std::max(different, comparison.different());
    }
  }
  trial_.proof.greedy_bound = LargestShare(different, answers);
  return absl::OkStatus();
}

// Scores the speculative server's answers, greedy and drawn, with the plain server, so that an
// early difference hides no later one.
absl::Status AnswerChecks::Logprobs() {
  const RemoteFeatures& features = trial_.plain.engine->features();
  if (!features.scores) {
    for (const char* name : {"scored tokens", "log-probabilities"}) {
      trial_.proof.Add(name, CheckOutcome::kNotTested,
                       absl::StrCat("the plain server scores no given text: ", features.no_scores));
    }
    return absl::OkStatus();
  }
  const size_t num_prompts = std::min(questions_.size(), Fitting(0.03, 8, 4));
  std::vector<Question> questions(questions_.begin(), questions_.begin() + num_prompts);
  for (size_t i = 0; i < num_prompts; ++i) {
    questions.push_back(questions[i]);
    questions.back().temperature = 1.0;
    questions.back().seed = static_cast<int64_t>(trial_.options.seed + i);
  }
  ASSIGN_OR_RETURN(const std::vector<RemoteReply> replies,
                   trial_.speculative.Ask(questions, trial_.options.concurrency));
  ASSIGN_OR_RETURN(const std::vector<std::vector<TopLogprobs>> scores,
                   trial_.plain.Score(questions, replies, trial_.options.concurrency));
  const double largest_change = std::max(trial_.proof.near_tie, kLeastLogprobChange);
  int64_t tokens = 0, ties = 0, faults = 0, compared = 0, certain = 0, missing = 0;
  double worst = 0.0, change = 0.0, sum = 0.0;
  for (size_t i = 0; i < questions.size(); ++i) {
    const RemoteAnswer& answer = replies[i].answers[0];
    const bool is_greedy = i < num_prompts;
    const int64_t before = faults;
    for (size_t j = 0; j < answer.tokens.size(); ++j) {
      const TopLogprobs& top = scores[i][j];
      const double logprob = LogprobIn(top, answer.tokens[j]);
      const double regret = top[0].second - logprob;
      if (is_greedy) {
        ++tokens;
        worst = std::max(worst, regret);
        ties += 0.0 < regret && regret <= trial_.proof.near_tie;
        faults += regret > trial_.proof.near_tie;
      }
      const bool has_list = j < answer.tops.size() && !answer.tops[j].empty();
      missing += !has_list;
      double mass = 0.0;
      if (has_list) {
        for (const auto& entry : answer.tops[j]) mass += std::exp(entry.second);
      }
      sum = std::max(sum, mass);
      if (j >= answer.logprobs.size() || !std::isfinite(logprob)) continue;
      ++compared;
      const double changed = std::abs(answer.logprobs[j] - logprob);
      change = std::max(change, changed);
      const bool is_certain = answer.logprobs[j] > -1e-6 && logprob < -0.01;
      certain += is_certain;
      if (is_certain || !has_list || changed > largest_change) {
        const auto told = [&](double number, const char* list) {
          return RemoteAnswer{
              .text = Format("token %d: log-probability %.4f, %s", j + 1, number, list)};
        };
        Keep("log-probabilities", questions[i], told(logprob, "scored"),
             told(answer.logprobs[j], has_list ? "with a list" : "without a list"));
      }
    }
    if (faults > before) Keep("scored tokens", questions[i], greedy_[i], answer);
  }
  trial_.proof.Add("scored tokens",
                   faults > 0    ? CheckOutcome::kFault
                   : ties > 0    ? CheckOutcome::kNearTies
                   : tokens == 0 ? CheckOutcome::kNotTested
                                 : CheckOutcome::kEqual,
                   Format("%d greedy tokens scored by the plain server: %d near ties, %d beyond, "
                          "largest margin %.2g nats",
                          tokens, ties, faults, worst));
  if (trial_.speculative.engine->features().num_top == 0) {
    trial_.proof.Add("log-probabilities", CheckOutcome::kNotTested,
                     "the speculative server gives none");
    return absl::OkStatus();
  }
  const bool is_wrong = change > largest_change || certain > 0 || missing > 0 || sum > 1.001;
  trial_.proof.Add("log-probabilities",
                   is_wrong        ? CheckOutcome::kFault
                   : compared == 0 ? CheckOutcome::kNotTested
                                   : CheckOutcome::kEqual,
                   Format("%d compared with the plain server's: largest change %.2g nats, %d "
                          "claim p = 1, %d are missing, lists sum to at most %.4f",
                          compared, change, certain, missing, sum));
  return absl::OkStatus();
}

// Each case changes one field of greedy requests. Both servers get it; only texts, lengths, ends
// and counts are compared, unless tokens differ beyond near ties.
absl::Status AnswerChecks::Surface() {
  struct Case {
    std::string name;
    std::vector<Question> questions{};
  };
  const size_t num_prompts = std::min(questions_.size(), Fitting(0.02, 12, 3));
  std::vector<Case> cases = {{"stop"},       {"n"},      {"max_tokens"},
                             {"min_tokens"}, {"stream"}, {"top-k 1"}};
  for (size_t i = 0; i < num_prompts; ++i) {
    const std::string& text = greedy_[i].text;
    for (const size_t at : {5, 17}) {  // in different places of drafts
      Question stop = questions_[i];
      if (text.size() < at + 3) continue;
      stop.stop = {text.substr(at, 3)};
      cases[0].questions.push_back(stop);
    }
    for (int c = 1; c < 6; ++c) {
      Question question = questions_[i];
      if (c == 1) question.n = 2;
      if (c == 2) question.max_tokens = 1 + static_cast<int>(i) % (trial_.options.draft_tokens + 2);
      if (c == 3) question.min_tokens = question.max_tokens;
      question.stream = c == 4;
      if (c == 5) {  // drawn, and yet with one right answer
        question.temperature = 1.0;
        question.top_k = 1;
      }
      cases[c].questions.push_back(question);
    }
  }
  for (int length = 1; length <= trial_.options.draft_tokens + 2; ++length) {
    cases[2].questions.push_back(questions_[0]);
    cases[2].questions.back().max_tokens = length;
  }
  for (const Case& c : cases) {
    const std::string name = absl::StrCat("surface: ", c.name);
    std::vector<RemoteReply> plain, other;
    RETURN_IF_ERROR(AskBoth(name, c.questions, &plain, &other));
    if (other.empty()) continue;
    Comparison comparison;
    int64_t counts = 0;
    for (size_t i = 0; i < c.questions.size(); ++i) {
      const auto& reply = other[i];
      for (size_t j = 0; j < reply.answers.size(); ++j) {
        const RemoteAnswer& expected = plain[i].answers[std::min(j, plain[i].answers.size() - 1)];
        ASSIGN_OR_RETURN(const Kind kind,
                         Tally(c.questions[i], expected, reply.answers[j], &comparison));
        if (kind == Kind::kForm || kind == Kind::kFault) {
          Keep(name, c.questions[i], expected, reply.answers[j]);
        }
      }
      const bool is_equal = comparison.different() == 0;
      counts += is_equal && reply.usage_tokens != plain[i].usage_tokens;
      comparison.kinds[static_cast<int>(Kind::kForm)] +=
          reply.answers.size() != plain[i].answers.size();
    }
    std::string text = comparison.Text();
    if (counts > 0) absl::StrAppend(&text, "; ", counts, " usages differ");
    trial_.proof.Add(name, counts > 0 ? CheckOutcome::kFault : comparison.outcome(), text);
  }
  return absl::OkStatus();
}

double AnswerChecks::SeededChange() const {
  return noise_.has_value() ? std::min(1.0, 4.0 * kAnswerTokens * *noise_) : 0.0;
}

// A seeded answer must not depend on when and with which others it is asked for, as far as the
// plain server keeps that promise. Other arithmetic may change draws, with a probability of at most
// twice the change of a log-probability where they are races of exponentials, and taken to be twice
// that where they are not.
absl::Status AnswerChecks::Seeds() {
  // Where the noise is not known, 8 answers cannot tell a fault from chance.
  const size_t num_prompts =
      std::min(questions_.size(), Fitting(0.04, 10, noise_.has_value() ? 8 : 24));
  std::vector<Question> questions(questions_.begin(), questions_.begin() + num_prompts);
  for (size_t i = 0; i < num_prompts; ++i) {
    questions[i].temperature = 1.0;
    questions[i].wants_logprobs = false;
    questions[i].seed = static_cast<int64_t>(trial_.options.seed + i + 1);
  }
  using Answers = std::vector<RemoteAnswer>;
  const auto answers_of = [&](RemoteSide* side, int concurrency, bool is_reversed,
                              int n) -> absl::StatusOr<Answers> {
    std::vector<Question> asked = questions;
    for (Question& question : asked) question.n = n;
    ASSIGN_OR_RETURN(std::vector<RemoteReply> replies, side->Ask(asked, concurrency, is_reversed));
    Answers answers;
    for (RemoteReply& reply : replies) answers.push_back(std::move(reply.answers.back()));
    return answers;
  };
  const auto count = [](const Answers& a, const Answers& b) {
    int64_t different = 0;
    for (size_t i = 0; i < a.size(); ++i) different += a[i].tokens != b[i].tokens;
    return different;
  };
  const double changed = SeededChange();
  const auto add = [&](const std::string& name, const Answers& first, const Answers& second,
                       std::optional<int64_t> control) {
    const int64_t different = count(first, second);
    const auto total = static_cast<int64_t>(num_prompts);
    const bool is_chance =
        BinomialTail(different, total, changed) >= kErrorRate ||
        (control.value_or(0) > 0 && FisherTail(different, total, *control, total) >= kErrorRate) ||
        (!noise_.has_value() && FisherTail(different, total, 0, total) >= kErrorRate);
    std::string text = Format("%d of %d seeded answers differ", different, total);
    if (control.has_value()) absl::StrAppend(&text, "; of the plain server ", *control);
    trial_.proof.Add(absl::StrCat("seeds: ", name),
                     different == 0 ? CheckOutcome::kEqual
                     : is_chance    ? CheckOutcome::kNote
                                    : CheckOutcome::kFault,
                     text);
    for (size_t i = 0; i < num_prompts && !is_chance; ++i) {
      if (first[i].tokens == second[i].tokens) continue;
      Keep(absl::StrCat("seeds: ", name), questions[i], first[i], second[i]);
      break;
    }
  };
  ASSIGN_OR_RETURN(const auto plain, answers_of(&trial_.plain, 1, false, 1));
  ASSIGN_OR_RETURN(const auto speculative, answers_of(&trial_.speculative, 1, false, 1));
  struct Way {
    const char* name;
    int concurrency;
    bool is_reversed;
  };
  const int many = trial_.options.concurrency;
  for (const Way& way :
       {Way{"again", 1, false}, Way{"concurrent", many, false}, Way{"other order", 1, true}}) {
    ASSIGN_OR_RETURN(const auto control,
                     answers_of(&trial_.plain, way.concurrency, way.is_reversed, 1));
    ASSIGN_OR_RETURN(const auto other,
                     answers_of(&trial_.speculative, way.concurrency, way.is_reversed, 1));
    add(way.name, speculative, other, count(plain, control));
  }
  const auto first = answers_of(&trial_.speculative, 1, false, 2);
  if (absl::IsInvalidArgument(first.status())) {
    trial_.proof.Add("seeds: second of n", CheckOutcome::kNotTested,
                     std::string(first.status().message()));
  } else {
    RETURN_IF_ERROR(first.status());
    ASSIGN_OR_RETURN(const auto second, answers_of(&trial_.speculative, many, false, 2));
    ASSIGN_OR_RETURN(const auto plain_first, answers_of(&trial_.plain, 1, false, 2));
    ASSIGN_OR_RETURN(const auto plain_second, answers_of(&trial_.plain, many, false, 2));
    add("second of n", *first, second, count(plain_first, plain_second));
  }
  if (trial_.plain.engine->features().seeds_as_plain &&
      trial_.speculative.engine->features().seeds_as_plain) {
    add("as plain", plain, speculative, std::nullopt);
  } else {
    trial_.proof.Add("seeds: as plain", CheckOutcome::kNote,
                     Format("%d of %d seeded answers differ, which the engine does not exclude",
                            count(speculative, plain), num_prompts));
  }
  return absl::OkStatus();
}

// Every answer must be a beginning of its form's texts, and a complete one where it ended by
// itself. The plain server's own wrong answers say that the engine's forms are broken, without
// speculation.
absl::Status AnswerChecks::Forms() {
  const size_t num_prompts = std::min(trial_.options.prompts.size(), Fitting(0.04, 8, 12));
  for (const RemoteForm& form : ProofForms()) {
    const std::string name = absl::StrCat("forms: ", form.name);
    std::vector<Question> questions;
    for (size_t i = 0; i < num_prompts; ++i) {
      // One that is long enough for the form, and one that is cut.
      for (const int length : {kFormTokens, 2 + static_cast<int>(i) % 8}) {
        questions.push_back(
            {.prompt = trial_.options.prompts[i], .max_tokens = length, .form = form});
      }
    }
    std::vector<RemoteReply> replies[2];  // plain, speculative
    RETURN_IF_ERROR(AskBoth(name, questions, &replies[0], &replies[1]));
    if (replies[1].empty()) continue;
    int64_t invalid[2] = {}, finished[2] = {};
    for (size_t i = 0; i < questions.size(); ++i) {
      for (const size_t side : {0, 1}) {
        const RemoteAnswer& answer = replies[side][i].answers[0];
        const FormMatch match = Match(form, answer.text);
        const bool is_finished = answer.finish != "length";
        const bool is_valid = is_finished ? match.is_complete : match.is_valid();
        invalid[side] += !is_valid;
        finished[side] += is_finished && questions[i].max_tokens == kFormTokens;
        if (side == 1 && !is_valid) Keep(name, questions[i], replies[0][i].answers[0], answer);
      }
    }
    const auto total = static_cast<int64_t>(questions.size());
    const auto num_long = static_cast<int64_t>(num_prompts);
    const double p = std::min(FisherTail(finished[1], num_long, finished[0], num_long),
                              FisherTail(finished[0], num_long, finished[1], num_long));
    const bool is_worse = invalid[0] == 0
                              ? invalid[1] > 0
                              : FisherTail(invalid[1], total, invalid[0], total) < kFormErrorRate;
    trial_.proof.Add(name,
                     is_worse || p < kFormErrorRate ? CheckOutcome::kFault
                     : invalid[0] > 0               ? CheckOutcome::kNote
                                                    : CheckOutcome::kEqual,
                     Format("%s are invalid, of the plain server %d%s; of %d long answers %d are "
                            "finished, of the plain server %d (Fisher p %.2g)",
                            Share(invalid[1], total), invalid[0],
                            invalid[0] > 0 ? ", which does not keep to the form" : "", num_long,
                            finished[1], finished[0], p));
  }
  trial_.proof.Add("forms: tool call", CheckOutcome::kNotTested,
                   "tool calls need the chat endpoint");
  return absl::OkStatus();
}

}  // namespace tandem
