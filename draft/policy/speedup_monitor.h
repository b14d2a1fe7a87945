#ifndef TANDEM_DRAFT_POLICY_SPEEDUP_MONITOR_H_
#define TANDEM_DRAFT_POLICY_SPEEDUP_MONITOR_H_

#include "absl/time/time.h"
#include "draft/policy/state_archive.h"

namespace tandem {

// Whether speculation pays, by what comes out and not by what is predicted: where it works it rests
// now and then for a stretch of rounds, where it rests it works for one, and the tokens per time of
// such a stretch are compared with those of the stretches around it. So everything counts that
// slows others down, in rounds of every kind and between them. Thread-compatible.
class SpeedupMonitor {
 public:
  // Whether the next round may draft. Asked where drafting is believed to be faster by the factor
  // `predicted_gain`. Follow it by Observe.
  bool Allows(double predicted_gain);
  // What the round allowed or refused last brought, and took: with the time since the round before.
  // A time that cannot be is no measurement.
  void Observe(int num_tokens, absl::Duration time);
  // The mean gain of speculation that was seen, as a logarithm.
  double mean_gain() const { return mean_; }
  // The verdict so far, without the stretch under way.
  void Serialize(StateArchive* archive);

  // Rounds in a stretch; the first two of each do not count.
  static constexpr int kStretch = 16;
  // A clear gain is believed for so many rounds before it is checked.
  static constexpr double kClearGain = 1.25;
  static constexpr int kRoundsOfBelief = 64;
  // Where speculation rests, it begins anew once so much more is predicted, over some thirty
  // rounds, than when that began.
  static constexpr double kMuchMore = 1.25;

 private:
  struct Sum {
    double tokens = 0.0;
    double seconds = 0.0;
  };

  void EndStretch();
  void Compare(const Sum& after);
  int StretchesUntilException();

  bool pays_ = true;        // what is done but for exceptions
  int belief_left_ = -1;    // rounds; negative before the first
  double predicted_ = 1.0;  // in the mean
  double refused_ = 1.0;    // predicted when speculation was last found not to pay
  double mean_ = 0.0;
  int num_compared_ = 0;  // exceptions in `mean_`
  int rest_ = 0;          // stretches until the next exception, where speculation rests

  int usual_left_ = 1;          // stretches before the next exception
  int num_rounds_ = 0;          // of the stretch under way
  bool has_exception_ = false;  // the stretch just before
  Sum current_;
  Sum before_;
  Sum exception_;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_SPEEDUP_MONITOR_H_
