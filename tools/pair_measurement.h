// Measures in limited time what a draft brings to a target, by task.
#ifndef TANDEM_TOOLS_PAIR_MEASUREMENT_H_
#define TANDEM_TOOLS_PAIR_MEASUREMENT_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/machine_load.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"

namespace tandem {

// The draft lengths that are measured, plain decoding first.
inline constexpr int kPairLengths[] = {0, 1, 3, 6};

// Sums over the answers with one draft length. The first round of an answer, in which both models
// read the prompt, counts only in `stats`.
struct PairRun {
  int draft_tokens = 0;
  bool in_one_pass = false;  // whether a draft is one step, of all its rows
  RoundStats stats;
  absl::Duration decode_time, draft_time, verify_time;
  int64_t num_tokens = 0;
  int64_t num_rounds = 0;
  int64_t num_steps = 0;  // of the draft

  void Add(const Completion& completion);
  PairRun& operator+=(const PairRun& other);
  double SecondsPerToken() const;
};

struct PairTask {
  std::string name;
  std::vector<PairRun> runs;  // as kPairLengths

  // Times plain decoding with runs[i]; 0 if it was not measured.
  double GainOf(size_t i) const;
};

struct PairFindings {
  bool in_one_pass = false;
  double bytes_ratio = 0.0;  // bytes read by a step of the draft over those of the target's pass
  std::vector<PairTask> tasks;
  OtherLoad others = {};  // while they were measured

  // The same over all tasks together.
  PairTask All() const;
  // The index in kPairLengths of the greatest gain over all tasks; 0 if none gains.
  size_t Best() const;
  // The cost of a draft step, of as many rows as the longest draft has tokens if a draft is one
  // step, and of one more row of the target's pass, in plain passes.
  double StepCost() const;
  double RowCost() const;
  // One sentence.
  std::string Verdict() const;
  // The figures of reports.
  JsonValue ToJson() const;
};

// Answers one prompt of each task plainly and with every draft length, in turn, until `time` is
// over, but at least once. `on_run` is called with the share of the time that has passed, and ends
// the measurement with an error. After an error *findings has the tasks that were answered with
// every length. `engine` must have a draft and no prefix cache. Chat models get messages in their
// format.
absl::Status MeasurePair(absl::Duration time, Engine* engine,
                         absl::FunctionRef<absl::Status(double)> on_run, PairFindings* findings);

}  // namespace tandem

#endif  // TANDEM_TOOLS_PAIR_MEASUREMENT_H_
