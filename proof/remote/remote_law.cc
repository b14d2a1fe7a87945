#include "proof/remote/remote_law.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/instant.h"
#include "base/philox.h"
#include "base/status_macros.h"
#include "proof/statistics.h"

namespace tandem {
namespace {

constexpr double kFinalRate = 0.75 * kRemoteErrorRate;
constexpr double kLookRate = 0.25 * kRemoteErrorRate / 3;  // of each earlier look
constexpr int kTestsOfSetting = 8;                         // at most, per prompt
constexpr size_t kMostCandidates = 24;
constexpr size_t kLawPrompts = 2;
constexpr size_t kLeastSettings = 1;  // that are tested however long they take
constexpr double kLeastPathProbability = 1.0 / 64;
constexpr double kControlFails = 0.01;  // p of the plain server against its own rows

Draw DrawOf(const RemoteAnswer& answer, int length) {
  Draw draw = answer.tokens;
  if (draw.size() < static_cast<size_t>(length)) draw.push_back(kAnswerEnd);
  draw.resize(std::min(draw.size(), static_cast<size_t>(length)));
  return draw;
}

// The draws' token at one position, as draws of one token.
std::vector<Draw> TokensAt(absl::Span<const Draw> draws, size_t position) {
  std::vector<Draw> tokens;
  for (const Draw& draw : draws) {
    tokens.push_back({position < draw.size() ? draw[position] : kAnswerEnd});
  }
  return tokens;
}

// Cells with fewer draws would be merged in the test.
int64_t LeastDraws(size_t num_draws) {
  return std::max<int64_t>(20, static_cast<int64_t>(num_draws) / 400);
}

std::vector<Draw> Joined(absl::Span<const Draw> plain, absl::Span<const Draw> speculative) {
  std::vector<Draw> both(plain.begin(), plain.end());
  both.insert(both.end(), speculative.begin(), speculative.end());
  return both;
}

RemoteLawTest TwoSamples(const char* name, absl::Span<const Draw> plain,
                         absl::Span<const Draw> speculative, int length) {
  const std::vector<Draw> both = Joined(plain, speculative);
  const PrefixCells cells(both, length, LeastDraws(both.size()));
  const Fit fit = GTestTwo(cells.Count(plain), cells.Count(speculative));
  return {.test = name,
          .effective_runs = static_cast<int64_t>(plain.size() * speculative.size() / both.size()),
          .degrees = fit.degrees,
          .p_value = fit.p_value};
}

// The token among the first three whose share differs most, as each side has it.
std::array<std::string, 2> MostDifferent(absl::Span<const Draw> plain,
                                         absl::Span<const Draw> speculative) {
  std::array<std::string, 2> shown;
  double most = 0.0;
  for (size_t position = 0; position < 3; ++position) {
    std::map<Draw, std::array<int64_t, 2>> counts;
    for (const Draw& draw : TokensAt(plain, position)) ++counts[draw][0];
    for (const Draw& draw : TokensAt(speculative, position)) ++counts[draw][1];
    for (const auto& [token, count] : counts) {
      const double difference =
          std::abs(static_cast<double>(count[0]) / static_cast<double>(plain.size()) -
                   static_cast<double>(count[1]) / static_cast<double>(speculative.size()));
      if (difference <= most) continue;
      most = difference;
      for (const auto& [side, size] : {std::pair{0, plain.size()}, {1, speculative.size()}}) {
        shown[side] =
            Format("token %d is %d in %d of %d answers", position + 1, token[0], count[side], size);
      }
    }
  }
  return shown;
}

// The mean of the log pooled frequency of an answer's cell, for answers that are too likely or too
// flat. The scores are symmetric in the samples.
RemoteLawTest Likelihood(absl::Span<const Draw> plain, absl::Span<const Draw> speculative,
                         int length) {
  const std::vector<Draw> both = Joined(plain, speculative);
  const PrefixCells cells(both, length, LeastDraws(both.size()));
  const std::vector<int64_t> a = cells.Count(plain);
  const std::vector<int64_t> b = cells.Count(speculative);
  double sum = 0.0, squares = 0.0, sum_a = 0.0, sum_b = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto count = static_cast<double>(a[i] + b[i]);
    const double score = std::log(std::max(count, 1.0));
    sum += score * count;
    squares += score * score * count;
    sum_a += score * static_cast<double>(a[i]);
    sum_b += score * static_cast<double>(b[i]);
  }
  const auto total = static_cast<double>(both.size());
  const auto num_a = static_cast<double>(plain.size());
  const auto num_b = static_cast<double>(speculative.size());
  const double variance =
      (squares / total - sum / total * (sum / total)) * (1.0 / num_a + 1.0 / num_b);
  const double difference = sum_a / num_a - sum_b / num_b;
  const double statistic = variance > 0.0 ? difference * difference / variance : 0.0;
  return {.test = "likelihood",
          .effective_runs = static_cast<int64_t>(num_a * num_b / total),
          .degrees = 1,
          .p_value = ChiSquareTail(statistic, 1)};
}

// Answers of a request that share random numbers equal each other more often than independent ones,
// whose chance is estimated from the sample without bias.
RemoteLawTest EqualNeighbours(absl::Span<const Draw> draws) {
  std::map<Draw, int64_t> counts;
  for (const Draw& draw : draws) ++counts[draw];
  double pairs = 0.0;
  for (const auto& [draw, count] : counts) {
    pairs += static_cast<double>(count) * static_cast<double>(count - 1);
  }
  const auto total = static_cast<double>(draws.size());
  int64_t equal = 0;
  const auto num_pairs = static_cast<int64_t>(draws.size() / 2);
  for (size_t i = 0; i + 1 < draws.size(); i += 2) equal += draws[i] == draws[i + 1];
  return {.test = "equal neighbours",
          .effective_runs = num_pairs,
          .degrees = 1,
          .p_value = BinomialTail(equal, num_pairs, pairs / (total * (total - 1.0)))};
}

}  // namespace

PrefixCells::PrefixCells(absl::Span<const Draw> draws, int length, int64_t least)
    : PrefixCells(length) {
  std::map<Draw, int64_t> counts;  // a prefix comes before its continuations
  for (const Draw& draw : draws) {
    for (size_t i = 1; i <= std::min(draw.size(), static_cast<size_t>(length)); ++i) {
      ++counts[Draw(draw.begin(), draw.begin() + static_cast<ptrdiff_t>(i))];
    }
  }
  for (const auto& [prefix, count] : counts) {
    if (count >= least) Add(prefix);
  }
}

size_t PrefixCells::CellOf(const Draw& draw) const {
  Draw prefix;
  size_t cell = 0;
  for (size_t i = 0; i < std::min(draw.size(), static_cast<size_t>(length_)); ++i) {
    prefix.push_back(draw[i]);
    const auto at = cells_.find(prefix);
    if (at == cells_.end()) break;
    cell = at->second;
  }
  return cell;
}

std::vector<int64_t> PrefixCells::Count(absl::Span<const Draw> draws) const {
  std::vector<int64_t> counts(cells_.size());
  for (const Draw& draw : draws) ++counts[CellOf(draw)];
  return counts;
}

std::vector<RemoteLawTest> CompareDraws(absl::Span<const Draw> plain,
                                        absl::Span<const Draw> speculative, int length) {
  return {TwoSamples("two samples", plain, speculative, length),
          Likelihood(plain, speculative, length),
          TwoSamples("token 2", TokensAt(plain, 1), TokensAt(speculative, 1), 1),
          TwoSamples("token 3", TokensAt(plain, 2), TokensAt(speculative, 2), 1),
          EqualNeighbours(speculative)};
}

// ---- The laws of two servers ----

namespace {

struct LawSetting {
  const char* name;
  Question question{};  // without a prompt
  int exact_top_k = 0;  // the law is known from this many log-probabilities; 0: it is not
};

class LawChecks {
 public:
  explicit LawChecks(const RemoteTrial& trial)
      : trial_(trial),
        length_(trial.options.draft_tokens + 2),
        end_(Instant::Now() + trial.options.time * 0.6) {}

  absl::Status RunOne(const RemotePrompt& prompt) {
    prompts_ = {prompt};
    settings_ = {{"T 1, top-k 8", {.top_k = 8}, 8}};
    RETURN_IF_ERROR(RunSetting(0, settings_[0], trial_.options.time));
    Judge();
    return absl::OkStatus();
  }

  absl::Status Run() {
    RETURN_IF_ERROR(ChoosePrompts());
    trial_.proof.law_prompts = prompts_;
    RETURN_IF_ERROR(MakeSettings());
    absl::Status status;
    size_t left = prompts_.size() * settings_.size() + 1;
    for (size_t i = 0; i < prompts_.size() && status.ok(); ++i) {
      for (size_t j = 0; j < settings_.size() && status.ok(); ++j, --left) {
        if (refused_.contains(settings_[j].name)) continue;
        if (i + j >= kLeastSettings && trial_.options.runs == 0 && Instant::Now() > end_) {
          if (i == 0) refused_[settings_[j].name] = "the time was over";
          continue;
        }
        const absl::Status tested =
            RunSetting(i, settings_[j], (end_ - Instant::Now()) / static_cast<double>(left));
        if (absl::IsUnavailable(tested) || absl::IsResourceExhausted(tested)) status = tested;
        if (!tested.ok()) refused_[settings_[j].name] = std::string(tested.message());
      }
    }
    if (status.ok()) status = RunLongAnswers();
    Judge();
    return status;
  }

 private:
  absl::StatusOr<std::vector<Draw>> Sample(RemoteSide* side, Question question, int64_t runs) {
    std::vector<Draw> draws;
    // Engines cut drafts near the end, so answers are longer than the tokens that are tested.
    question.max_tokens = length_ + trial_.options.draft_tokens;
    question.n = num_answers_;
    const std::vector<Question> questions((runs + question.n - 1) / question.n, question);
    ASSIGN_OR_RETURN(const std::vector<RemoteReply> replies,
                     side->Ask(questions, trial_.options.concurrency));
    for (const RemoteReply& reply : replies) {
      for (const RemoteAnswer& answer : reply.answers) draws.push_back(DrawOf(answer, length_));
    }
    return draws;
  }

  // Takes those where a draft decides most: after which some six first tokens are likely, and most
  // drafts are rejected.
  absl::Status ChoosePrompts() {
    constexpr int64_t kRuns = 32;
    constexpr double kBestFirstTokens = 6.0;
    std::vector<std::pair<double, size_t>> scores;
    const Instant start = Instant::Now();
    for (size_t i = 0; i < std::min(trial_.options.prompts.size(), kMostCandidates); ++i) {
      const int64_t before = trial_.speculative.proposed.value_or(0) - trial_.speculative.accepted;
      absl::StatusOr<std::vector<Draw>> draws =
          Sample(&trial_.speculative, {.prompt = trial_.options.prompts[i]}, kRuns);
      while (absl::IsInvalidArgument(draws.status()) && num_answers_ > 1) {
        num_answers_ = std::max(1, num_answers_ / 4);
        draws = Sample(&trial_.speculative, {.prompt = trial_.options.prompts[i]}, kRuns);
      }
      RETURN_IF_ERROR(draws.status());
      const auto num_rejected = static_cast<double>(trial_.speculative.proposed.value_or(0) -
                                                    trial_.speculative.accepted - before);
      std::set<Draw> ones, twos;
      for (const Draw& draw : *draws) {
        ones.insert(Draw(draw.begin(), draw.begin() + 1));
        twos.insert(Draw(draw.begin(), draw.begin() + std::min<ptrdiff_t>(2, draw.size())));
      }
      const double score = static_cast<double>(twos.size()) * (0.1 + num_rejected / kRuns) /
                           (1.0 + std::abs(static_cast<double>(ones.size()) - kBestFirstTokens));
      scores.emplace_back(-score, i);
      const bool has_enough = scores.size() > 4 && trial_.options.runs == 0;
      if (has_enough && Instant::Now() - start > trial_.options.time * 0.07) break;
    }
    absl::c_sort(scores);
    for (size_t i = 0; i < std::min(scores.size(), kLawPrompts); ++i) {
      prompts_.push_back(trial_.options.prompts[scores[i].second]);
    }
    return absl::OkStatus();
  }

  absl::Status MakeSettings() {
    settings_ = {
        {"T 1, top-k 8", {.top_k = 8}, 8},
        {"T 0.7, top-k 20", {.temperature = 0.7, .top_k = 20}, 20},
        {"T 1"},
        {"T 0.8, top-p 0.8", {.temperature = 0.8, .top_p = 0.8}},
        {"T 1, min-p 0.05", {.min_p = 0.05}},
        {"T 1, frequency penalty -1.5, top-k 20", {.top_k = 20, .frequency_penalty = -1.5}},
        {"T 1, a schema", {.form = LawForm()}},
    };
    constexpr const char* kBiasName = "T 1, bias, top-k 20";
    if (!trial_.plain.engine->features().ids || trial_.plain.engine->features().num_top < 3) {
      refused_[kBiasName] = "it needs log-probabilities with token ids";
      return absl::OkStatus();
    }
    const std::vector<Question> question = {
        {.prompt = prompts_[0], .max_tokens = 2, .temperature = 0.0, .wants_logprobs = true}};
    ASSIGN_OR_RETURN(const std::vector<RemoteReply> reply, trial_.plain.Ask(question, 1));
    const std::vector<TopLogprobs>& tops = reply[0].answers[0].tops;
    if (tops.empty() || tops.back().size() < 3) return absl::OkStatus();
    LawSetting bias = {kBiasName, {.top_k = 20}};
    constexpr double kBiases[] = {2.0, -3.0, 1.0};
    for (size_t i = 0; i < 3; ++i) {
      bias.question.logit_bias.emplace_back(tops.back()[i].first, kBiases[i]);
    }
    settings_.push_back(bias);
    return absl::OkStatus();
  }

  // Looks at 1/8, 1/4 and 1/2 of the answers already, and ends where they suffice.
  absl::Status RunSetting(size_t prompt, const LawSetting& setting, absl::Duration time) {
    Question question = setting.question;
    question.prompt = prompts_[prompt];
    const double num_tests =
        static_cast<double>(prompts_.size() * settings_.size() * kTestsOfSetting);
    std::vector<Draw> plain, speculative;
    std::vector<RemoteLawTest> tests;
    int64_t runs = trial_.options.runs;
    for (const int part : {8, 4, 2, 1}) {
      const Instant start = Instant::Now();
      const bool is_first = plain.empty();
      const int64_t wanted = is_first && runs == 0 ? 64 : std::max<int64_t>(runs / part, 64);
      for (auto& [side, draws] :
           {std::pair{&trial_.speculative, &speculative}, {&trial_.plain, &plain}}) {
        const int64_t more = wanted - static_cast<int64_t>(draws->size());
        if (more <= 0) continue;
        ASSIGN_OR_RETURN(const std::vector<Draw> drawn, Sample(side, question, more));
        draws->insert(draws->end(), drawn.begin(), drawn.end());
      }
      if (is_first && runs == 0) {
        const double per_run = absl::ToDoubleSeconds(Instant::Now() - start) / 64.0;
        runs = std::clamp<int64_t>(
            static_cast<int64_t>(absl::ToDoubleSeconds(time) / std::max(per_run, 1e-6)), 64, 20000);
      }
      tests = CompareDraws(plain, speculative, length_);
      const bool is_rejected = absl::c_any_of(
          tests, [&](const RemoteLawTest& test) { return test.p_value < kLookRate / num_tests; });
      if (is_rejected) break;
    }
    if (setting.exact_top_k > 0) {
      RETURN_IF_ERROR(AddExact(question, setting, plain, speculative, &tests));
    }
    const std::string request = trial_.speculative.engine->BodyOf(question);
    const std::array<std::string, 2> evidence = MostDifferent(plain, speculative);
    for (RemoteLawTest& test : tests) {
      test.request = request;
      test.evidence = evidence;
      test.setting = setting.name;
      test.prompt = static_cast<int>(prompt);
      test.runs = static_cast<int64_t>(speculative.size());
      trial_.proof.laws.push_back(std::move(test));
    }
    return absl::OkStatus();
  }

  // Tests both samples against the law that the plain server's log-probabilities give. If its own
  // sample fails, the reading is wrong, not the engine.
  absl::Status AddExact(const Question& question, const LawSetting& setting,
                        absl::Span<const Draw> plain, absl::Span<const Draw> speculative,
                        std::vector<RemoteLawTest>* tests) {
    const RemoteFeatures& features = trial_.plain.engine->features();
    if (!features.prompt_ids || features.num_top < setting.exact_top_k) return absl::OkStatus();
    constexpr int kDepth = 3;
    const PrefixCells seen(Joined(plain, speculative), kDepth, 1);
    PrefixCells cells(kDepth);
    std::vector<double> probabilities = {1.0};
    std::vector<std::pair<Draw, size_t>> open = {{{}, 0}};
    while (!open.empty()) {
      const auto [path, cell] = open.back();
      open.pop_back();
      std::vector<Question> row = {
          {.prompt = question.prompt, .max_tokens = 1, .temperature = 0.0, .wants_logprobs = true}};
      row[0].prompt.ids.insert(row[0].prompt.ids.end(), path.begin(), path.end());
      ASSIGN_OR_RETURN(const std::vector<RemoteReply> reply, trial_.plain.Ask(row, 1));
      const std::vector<TopLogprobs>& tops = reply[0].answers[0].tops;
      if (tops.empty() || tops[0].size() < static_cast<size_t>(setting.exact_top_k)) {
        return absl::OkStatus();
      }
      std::vector<double> weights;
      double sum = 0.0;
      for (int i = 0; i < setting.exact_top_k; ++i) {
        weights.push_back(std::exp((tops[0][i].second - tops[0][0].second) / question.temperature));
        sum += weights.back();
      }
      const double of_path = probabilities[cell];
      for (size_t i = 0; i < weights.size(); ++i) {
        Draw longer = path;
        longer.push_back(tops[0][i].first);
        const double probability = of_path * weights[i] / sum;
        // An unseen token may be the one that ends answers, which these do not tell.
        if (probability < kLeastPathProbability || !seen.Knows(longer)) continue;
        probabilities[cell] -= probability;
        probabilities.push_back(probability);
        cells.Add(longer);
        if (longer.size() < kDepth) open.emplace_back(longer, cells.size() - 1);
      }
    }
    for (double& probability : probabilities) probability = std::max(probability, 1e-12);
    const Fit of_plain = GTest(cells.Count(plain), probabilities);
    if (of_plain.p_value < kControlFails) {
      ++num_dropped_;
      return absl::OkStatus();
    }
    const Fit fit = GTest(cells.Count(speculative), probabilities);
    tests->push_back({.test = "exact",
                      .effective_runs = static_cast<int64_t>(speculative.size()),
                      .degrees = fit.degrees,
                      .p_value = fit.p_value});
    return absl::OkStatus();
  }

  // The place of each token of long answers in the plain law before it, as a number that is uniform
  // under the law: the probability of better tokens, and a random part of its own.
  absl::Status RunLongAnswers() {
    constexpr const char* kName = "T 1, long answers";
    if (!trial_.plain.engine->features().scores) {
      refused_[kName] = "the plain server scores no given text";
      return absl::OkStatus();
    }
    constexpr int kBins = 20;
    constexpr int kTokens = 48;
    const Instant start = Instant::Now();
    const absl::Duration time = std::max(end_ - start, trial_.options.time * 0.05);
    std::vector<int64_t> bins[2] = {std::vector<int64_t>(kBins), std::vector<int64_t>(kBins)};
    int64_t num_answers = 0;
    const int64_t most = trial_.options.runs > 0 ? trial_.options.runs / 8 : 4000;
    while (num_answers < most && (num_answers == 0 || Instant::Now() - start < time)) {
      std::vector<Question> questions;
      for (int i = 0; i < trial_.options.concurrency; ++i, ++num_answers) {
        questions.push_back(
            {.prompt = trial_.options.prompts[num_answers % trial_.options.prompts.size()],
             .max_tokens = kTokens});
      }
      int side_index = 0;
      for (RemoteSide* side : {&trial_.plain, &trial_.speculative}) {
        ASSIGN_OR_RETURN(const std::vector<RemoteReply> replies,
                         side->Ask(questions, trial_.options.concurrency));
        ASSIGN_OR_RETURN(const std::vector<std::vector<TopLogprobs>> scores,
                         trial_.plain.Score(questions, replies, trial_.options.concurrency));
        for (size_t i = 0; i < questions.size(); ++i) {
          for (size_t j = 0; j < scores[i].size(); ++j) {
            const double place = PlaceOf(replies[i].answers[0].tokens[j], scores[i][j]);
            ++bins[side_index][std::min(static_cast<int>(place * kBins), kBins - 1)];
          }
        }
        ++side_index;
      }
    }
    const std::vector<double> uniform(kBins, 1.0 / kBins);
    if (GTest(bins[0], uniform).p_value < kControlFails) {
      ++num_dropped_;
      return absl::OkStatus();
    }
    const Fit fit = GTest(bins[1], uniform);
    int64_t tokens = 0;
    for (const int64_t count : bins[1]) tokens += count;
    trial_.proof.laws.push_back({.setting = kName,
                                 .test = "places",
                                 .runs = num_answers,
                                 .effective_runs = tokens,
                                 .degrees = fit.degrees,
                                 .p_value = fit.p_value});
    return absl::OkStatus();
  }

  double PlaceOf(TokenId token, const TopLogprobs& top) {
    const double uniform = RandomSource(trial_.options.seed).Uniform({.position = num_places_++});
    double before = 0.0;
    // A less likely token of the text is told after the likeliest, but its rank is not known.
    const auto num_ranked = static_cast<size_t>(trial_.plain.engine->features().num_top);
    for (size_t i = 0; i < std::min(num_ranked, top.size()); ++i) {
      const double probability = std::exp(top[i].second);
      if (top[i].first == token) return std::min(1.0, before + uniform * probability);
      before += probability;
    }
    return before + uniform * std::max(0.0, 1.0 - before);
  }

  void Judge() {
    std::vector<double> p_values;
    for (const RemoteLawTest& test : trial_.proof.laws) p_values.push_back(test.p_value);
    const std::vector<double> adjusted = HolmAdjusted(p_values);
    std::map<std::string, std::vector<const RemoteLawTest*>> by_setting;
    std::vector<std::string> order;
    for (size_t i = 0; i < trial_.proof.laws.size(); ++i) {
      RemoteLawTest& test = trial_.proof.laws[i];
      test.adjusted_p = adjusted[i];
      test.seen_variation = SeenVariation(test.effective_runs, test.degrees,
                                          kFinalRate / static_cast<double>(p_values.size()), 0.99);
      if (!by_setting.contains(test.setting)) order.push_back(test.setting);
      by_setting[test.setting].push_back(&test);
    }
    bool has_shown_law = false;
    for (const std::string& setting : order) {
      const auto& tests = by_setting[setting];
      const RemoteLawTest& least = **absl::c_min_element(
          tests, [](const auto* x, const auto* y) { return x->p_value < y->p_value; });
      double seen = 1.0;
      int64_t runs = 0;
      for (const RemoteLawTest* test : tests) {
        const bool sees_any_shape =
            test->test == "two samples" || test->test == "exact" || test->test == "places";
        if (sees_any_shape) seen = std::min(seen, test->seen_variation);
        runs = std::max(runs, test->runs);
      }
      const bool is_rejected = least.adjusted_p < kFinalRate;
      if (is_rejected && !least.request.empty() && !std::exchange(has_shown_law, true)) {
        trial_.proof.differences.push_back(
            {absl::StrCat("law: ", setting), least.request, least.evidence[0], least.evidence[1]});
      }
      trial_.proof.Add(
          absl::StrCat("law: ", setting),
          is_rejected   ? CheckOutcome::kFault
          : seen >= 1.0 ? CheckOutcome::kNotTested
                        : CheckOutcome::kEqual,
          Format("%d tests, up to %d answers a side: smallest p %.2g (%s), "
                 "adjusted %.2g; TV seen %.3f",
                 tests.size(), runs, least.p_value, least.test, least.adjusted_p, seen));
      if (seen >= 1.0) continue;
      trial_.proof.law_bound = std::max(trial_.proof.law_bound.value_or(0.0), seen);
      ++trial_.proof.num_laws;
    }
    for (const auto& [setting, why] : refused_) {
      trial_.proof.Add(absl::StrCat("law: ", setting), CheckOutcome::kNotTested, why);
    }
    if (num_dropped_ > 0) {
      trial_.proof.Add("law: known rows", CheckOutcome::kNote,
                       absl::StrCat(num_dropped_,
                                    " tests dropped: the plain server does not follow its own "
                                    "log-probabilities as they are read here"));
    }
  }

  const RemoteTrial trial_;
  const int length_;  // tokens of a draw
  const Instant end_;
  int num_answers_ = 8;  // of a request
  std::vector<RemotePrompt> prompts_;
  std::vector<LawSetting> settings_;
  std::map<std::string, std::string> refused_;  // a setting's name and the reason
  int num_dropped_ = 0;
  uint32_t num_places_ = 0;
};

}  // namespace

absl::Status CheckLaws(const RemoteTrial& trial) { return LawChecks(trial).Run(); }

absl::Status CheckOneLaw(const RemoteTrial& trial, const RemotePrompt& prompt) {
  return LawChecks(trial).RunOne(prompt);
}

}  // namespace tandem
