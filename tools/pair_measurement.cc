#include "tools/pair_measurement.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/instant.h"
#include "base/status_macros.h"
#include "tandem/json_value.h"
#include "tools/conversation.h"
#include "tools/report.h"

namespace tandem {
namespace {

using OrderedJson = JsonValue;

struct TaskPrompt {
  const char* name;
  const char* prompt;
};

constexpr TaskPrompt kTasks[] = {
    {"code", "Write a Python function that merges two sorted lists into one sorted list."},
    {"explanation", "Explain in one paragraph why the sky is blue during the day."},
    {"translation",
     "Translate to French: The shop on the corner closes at six, so please buy the bread before "
     "you come home."},
    {"extraction",
     "List the name, the age and the city of each person as JSON: Anna is 34 and lives in Oslo. "
     "Tom, 27, lives in Porto. Maria lives in Turin and is 51."},
    {"arithmetic",
     "A box holds 12 pencils. A class of 25 pupils needs 3 pencils each. How many boxes are "
     "needed? Think step by step."},
};

constexpr int kMinTokens = 8;
constexpr int kMaxTokens = 64;
// Below this share of plain decoding a draft loses, and above the other it pays.
constexpr double kLoses = 0.98;
constexpr double kPays = 1.03;

OrderedJson RunsJson(const PairTask& task) {
  OrderedJson runs = OrderedJson::array();
  for (size_t i = 0; i < task.runs.size(); ++i) {
    const PairRun& run = task.runs[i];
    OrderedJson acceptance = OrderedJson::array();
    for (int at = 0; at < run.draft_tokens; ++at) acceptance.push_back(run.stats.AcceptanceAt(at));
    runs.push_back({{"draft_tokens", run.draft_tokens},
                    {"gain", task.GainOf(i)},
                    {"tokens_per_second", 1.0 / run.SecondsPerToken()},
                    {"proposed", run.stats.proposed},
                    {"accepted", run.stats.accepted},
                    {"acceptance_rate", run.stats.AcceptanceRate()},
                    {"acceptance_per_position", acceptance}});
  }
  return runs;
}

double Seconds(absl::Duration time) { return absl::ToDoubleSeconds(time); }

class Measurement {
 public:
  explicit Measurement(Engine* engine) : engine_(*engine) {
    auto format = ChatFormat::Load(engine);
    if (format.ok()) format_ = *std::move(format);
  }

  absl::Status Run(absl::Duration time, absl::FunctionRef<absl::Status(double)> on_run,
                   PairFindings* findings) {
    findings->bytes_ratio = static_cast<double>(engine_.draft_info()->bytes_read_per_pass) /
                            static_cast<double>(engine_.target_info().bytes_read_per_pass);
    findings->in_one_pass = engine_.draft_info()->mask_token.has_value();
    for (const TaskPrompt& task : kTasks) {
      findings->tasks.push_back({.name = task.name, .runs = {}});
      for (const int k : kPairLengths) {
        PairRun& run = findings->tasks.back().runs.emplace_back();
        run.draft_tokens = k;
        run.in_one_pass = findings->in_one_pass;
      }
    }
    const LoadWatch watch;
    absl::Status status = AnswerAll(time, on_run, &findings->tasks);
    findings->others = watch.Read();
    std::erase_if(findings->tasks, [](const PairTask& task) {
      return absl::c_any_of(task.runs, [](const PairRun& run) { return run.num_tokens == 0; });
    });
    return status;
  }

 private:
  absl::Status AnswerAll(absl::Duration time, absl::FunctionRef<absl::Status(double)> on_run,
                         std::vector<PairTask>* tasks) {
    const Instant begin = Instant::Now();
    PairRun first;
    RETURN_IF_ERROR(Answer(kTasks[0].prompt, kMinTokens, &first));
    constexpr int kNumRuns = std::size(kTasks) * std::size(kPairLengths);
    // A third of the time is left for prompts.
    const double affordable = Seconds(time) * 2.0 / 3.0 / kNumRuns / first.SecondsPerToken();
    const int num_tokens = static_cast<int>(std::clamp<double>(affordable, kMinTokens, kMaxTokens));
    const auto is_over = [&] { return Instant::Now() - begin >= time; };
    for (int turn = 0; turn == 0 || !is_over(); ++turn) {
      for (size_t i = 0; i < std::size(kTasks); ++i) {
        for (size_t j = 0; j < std::size(kPairLengths); ++j) {
          // Every other turn backwards, so that a drift of the machine's speed cancels out.
          const size_t length = turn % 2 == 0 ? j : std::size(kPairLengths) - 1 - j;
          RETURN_IF_ERROR(Answer(kTasks[i].prompt, num_tokens, &(*tasks)[i].runs[length]));
          RETURN_IF_ERROR(on_run(std::min(1.0, Seconds(Instant::Now() - begin) / Seconds(time))));
        }
        if (turn > 0 && is_over()) return absl::OkStatus();
      }
    }
    return absl::OkStatus();
  }

  absl::Status Answer(const char* prompt, int num_tokens, PairRun* run) {
    Request request{.prompt = prompt,
                    .max_tokens = num_tokens,
                    .sampling = {.temperature = 0.0f},
                    .ignore_eos = true,
                    .draft_tokens = run->draft_tokens};
    if (format_.has_value()) RETURN_IF_ERROR(format_->PutTurn({}, &request).status());
    ASSIGN_OR_RETURN(const Completion completion, engine_.Generate(std::move(request)));
    run->Add(completion);
    return absl::OkStatus();
  }

  Engine& engine_;
  std::optional<ChatFormat> format_;
};

}  // namespace

void PairRun::Add(const Completion& completion) {
  const RoundStats& of = completion.stats;
  stats += of;
  decode_time += completion.timings.decode();
  draft_time += completion.timings.draft;
  verify_time += completion.timings.verify;
  num_tokens += completion.num_decoded_tokens();
  num_rounds += of.rounds - 1;
  num_steps += std::max<int64_t>(in_one_pass ? of.rounds - 1 : of.proposed - draft_tokens, 0);
}

PairRun& PairRun::operator+=(const PairRun& other) {
  stats += other.stats;
  decode_time += other.decode_time;
  draft_time += other.draft_time;
  verify_time += other.verify_time;
  num_tokens += other.num_tokens;
  num_rounds += other.num_rounds;
  num_steps += other.num_steps;
  return *this;
}

double PairRun::SecondsPerToken() const {
  return num_tokens == 0 ? 0.0 : Seconds(decode_time) / static_cast<double>(num_tokens);
}

double PairTask::GainOf(size_t i) const {
  const double time = runs[i].SecondsPerToken();
  return time == 0.0 ? 0.0 : runs[0].SecondsPerToken() / time;
}

PairTask PairFindings::All() const {
  PairTask all{.name = "all", .runs = tasks.front().runs};
  for (size_t i = 1; i < tasks.size(); ++i) {
    for (size_t j = 0; j < all.runs.size(); ++j) all.runs[j] += tasks[i].runs[j];
  }
  return all;
}

size_t PairFindings::Best() const {
  const PairTask all = All();
  size_t best = 0;
  for (size_t i = 1; i < all.runs.size(); ++i) {
    if (all.GainOf(i) > (best == 0 ? 1.0 : all.GainOf(best))) best = i;
  }
  return best;
}

double PairFindings::StepCost() const {
  const PairTask all = All();
  const PairRun& longest = all.runs.back();
  if (longest.num_steps == 0) return bytes_ratio;
  return Seconds(longest.draft_time) / static_cast<double>(longest.num_steps) /
         all.runs[0].SecondsPerToken();
}

double PairFindings::RowCost() const {
  const PairTask all = All();
  const PairRun& run = all.runs[2];
  if (run.num_rounds == 0) return 0.0;
  const double pass = Seconds(run.verify_time) / static_cast<double>(run.num_rounds);
  return std::max(0.0, (pass / all.runs[0].SecondsPerToken() - 1.0) / run.draft_tokens);
}

std::string PairFindings::Verdict() const {
  const PairTask all = All();
  const size_t best = Best();
  const double gain = best == 0 ? 1.0 : all.GainOf(best);
  const auto [least, most] = std::minmax_element(
      tasks.begin(), tasks.end(),
      [best](const PairTask& a, const PairTask& b) { return a.GainOf(best) < b.GainOf(best); });
  if (gain >= kPays) {
    return Format(
        "It pays: %.2f times plain decoding with -k %d, from %.2f (%s) to %.2f (%s); -k auto finds "
        "the length by itself.",
        gain, kPairLengths[best], least->GainOf(best), least->name, most->GainOf(best), most->name);
  }
  const double kept = all.runs[1].stats.AcceptanceAt(0);
  const std::string why = Format(
      "%.2f of its first tokens are kept, so a step and a row together must cost less than that "
      "part of a plain pass, and they cost %.2f",
      kept, StepCost() + RowCost());
  if (bytes_ratio >= 1.0) {
    return Format(
        "It cannot pay: a step of the draft reads %.2f times the bytes of the target's pass.",
        bytes_ratio);
  }
  if (all.GainOf(1) >= kLoses) return absl::StrCat("It hardly changes the speed: ", why, ".");
  return absl::StrCat("It does not pay here: ", why, ".");
}

OrderedJson PairFindings::ToJson() const {
  OrderedJson json = {{"draft_to_target_bytes", bytes_ratio},
                      {"draft_in_one_pass", in_one_pass},
                      {"step_cost", nullptr},
                      {"row_cost", nullptr},
                      {"tasks", OrderedJson::array()},
                      {"all", OrderedJson::array()},
                      {"best_draft_tokens", nullptr},
                      {"gain", nullptr},
                      {"verdict", nullptr}};
  json.update(LoadJson(others));
  if (tasks.empty()) return json;
  for (const PairTask& task : tasks) {
    json["tasks"].push_back({{"task", task.name}, {"runs", RunsJson(task)}});
  }
  const PairTask all = All();
  const size_t best = Best();
  json["step_cost"] = StepCost();
  json["row_cost"] = RowCost();
  json["all"] = RunsJson(all);
  json["best_draft_tokens"] = kPairLengths[best];
  json["gain"] = all.GainOf(best);
  json["verdict"] = Verdict();
  return json;
}

absl::Status MeasurePair(absl::Duration time, Engine* engine,
                         absl::FunctionRef<absl::Status(double)> on_run, PairFindings* findings) {
  return Measurement(engine).Run(time, on_run, findings);
}

}  // namespace tandem
