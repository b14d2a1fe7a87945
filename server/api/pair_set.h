// The pairs of models that a server has: one that is always loaded, or several that are loaded when
// requests need them.
#ifndef TANDEM_SERVER_API_PAIR_SET_H_
#define TANDEM_SERVER_API_PAIR_SET_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "server/api/admission.h"
#include "server/api/served_model.h"
#include "server/metrics/metrics.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"
#include "tandem/sampling_params.h"

namespace tandem {

// A loaded pair, and the parts of the server that only its requests use.
struct ServedPair {
  ServedPair(Engine* engine_of_pair, Metrics* metrics_of_pair, int max_sequences)
      : engine(engine_of_pair), metrics(metrics_of_pair), admission(max_sequences) {}

  Engine* const engine;
  Metrics* const metrics;
  Admission admission;
  ServedModel model;
};
// Keeps the pair loaded until it is destroyed. The PairSet must outlive it.
using PairLease = std::shared_ptr<ServedPair>;

// What loading a pair gives.
struct LoadedPair {
  std::unique_ptr<Engine> engine;
  SamplingParams sampling{};         // defaults of requests
  std::string system_fingerprint{};  // in answers
};

// The memory that a pair takes once it is loaded.
struct PairMemory {
  std::string device = "cpu";
  int64_t bytes = 0;
  int64_t free_bytes = 0;  // of the device, now
  std::string parts{};     // of `bytes`, in words
};

// Tells a PairSet about failures of a loaded pair. Thread-safe.
struct PairFailures {
  std::function<void(const absl::Status& why)> lose_device;  // all pairs on it are lost
  std::function<void(const absl::Status& why)> lose_ranks;   // the pair can be loaded again
};

// How to get a pair.
struct PairSource {
  std::string name;  // in the API
  // Returns about the memory that the pair will take. Reads files.
  std::function<absl::StatusOr<PairMemory>()> plan;
  // Loads the pair as it was last planned, which takes long; called after `plan`, on the same
  // thread. The failures' functions may be called until the engine ends.
  std::function<absl::StatusOr<LoadedPair>(const PairFailures&)> load;
  int max_sequences = 72;  // running and waiting together
  bool prefix_cache = true;
  bool is_preloaded = false;  // loaded at the start
  bool is_pinned = false;     // never unloaded to make room or for being idle
  absl::Duration idle_timeout = absl::InfiniteDuration();
};

struct PairSetOptions {
  // For all pairs.
  MetricsNames metrics_names = MetricsNames::kTandem;
  int64_t max_answer_bytes = kDefaultMaxAnswerBytes;
  bool is_strict = false;
  bool splits_reasoning = true;
  // For one that is always loaded.
  std::string name{};
  SamplingParams sampling{};
  std::string system_fingerprint{};
  int max_sequences = 72;
  bool prefix_cache = true;
  // For several.
  std::vector<PairSource> sources{};
  int64_t host_bytes = 0;  // memory of this machine for all pairs together
  // Called once, when every pair is on a lost device.
  std::function<void(const absl::Status& why)> on_all_lost{};
};

// Pairs are loaded and unloaded one after the other, by one thread, in the order of the first
// requests for them. To make room, pairs are unloaded that were not used for the longest time; one
// that still has requests finishes them first, while new ones wait until it is loaded again. A pair
// that fails leaves the others alone. Thread-safe.
class PairSet {
 public:
  // Called once with the lease, or with the error. Must not block.
  using Waiter = absl::AnyInvocable<void(absl::StatusOr<PairLease>)>;
  // For a request, or only to have the pair loaded; the lease is then null, as it is after Unload.
  enum class Use { kRequest, kLoad };

  // A set of one pair that is always loaded. `engine` must outlive the set.
  PairSet(Engine* engine, PairSetOptions options);
  // A set of options.sources, which are loaded when they are needed.
  explicit PairSet(PairSetOptions options);
  // Waits for all leases.
  ~PairSet();

  // Whether pairs are loaded and unloaded.
  bool has_several() const { return has_several_; }
  // The names, for errors: "a, b".
  std::string Names() const;

  // Returns the lease of the pair if it is loaded, or why it cannot be had: NOT_FOUND
  // "model_not_found" for an unknown name, and UNAVAILABLE if it failed a moment ago (kLoad tries
  // again). Otherwise returns nothing, and calls `waiter` from another thread once the pair is
  // loaded or has failed; does not wait without a waiter. The empty name is the only pair's; with
  // several it is an error.
  std::optional<absl::StatusOr<PairLease>> Acquire(const std::string& name, Use use, Waiter waiter);
  // Unloads the pair when its requests have ended. Returns at once if it is not loaded, else as
  // Acquire.
  std::optional<absl::StatusOr<PairLease>> Unload(const std::string& name, Waiter waiter);

  // The pair as /v1/models describes it; NOT_FOUND for an unknown name.
  absl::StatusOr<JsonValue> Describe(const std::string& name) const;
  JsonValue DescribeAll() const;  // an array
  // The metrics of all pairs, with `answers` of the server, in Prometheus' text format.
  std::string MetricsText(const AnswerCounts& answers);

  // OK while at least one pair can be used.
  absl::Status health() const;
  // Whether the preloaded pairs were loaded, or have failed.
  bool is_ready() const;
  // Refuses new requests, those that wait for a pair included; the first reason stays.
  void Close(const absl::Status& why);
  bool is_closed() const;
  // Close, then waits for the end of a load in progress. No waiter is called afterwards.
  void Stop();
  // Sequences inside all pairs.
  int num_inside() const;
  // Waits until there are none. Returns false if `timeout` passes first, for a pair. REQUIRES: the
  // set has one pair, or has stopped.
  bool AwaitEmpty(absl::Duration timeout) const;

 private:
  enum class State { kUnloaded, kWaiting, kLoading, kLoaded, kUnloading, kFailed, kLost };
  struct Entry;
  struct Waiting {
    Use use;
    Waiter waiter;
  };

  static std::string_view NameOf(State state);
  absl::StatusOr<Entry*> Find(const std::string& name) const;
  std::unique_ptr<ServedPair> Serve(const Entry& entry, Engine* engine,
                                    const SamplingParams& sampling,
                                    const std::string& fingerprint) const;
  void Count(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `is_use`: whether the pair counts as used until the lease is returned.
  PairLease CountedLease(Entry* entry, bool is_use = true);
  // Acquire for a pair that is not loaded.
  std::optional<absl::StatusOr<PairLease>> Queue(Entry* entry, Use use, Waiter waiter)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Return(Entry* entry, bool is_use);
  JsonValue DescribeLocked(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoseDevice(Entry* entry, const absl::Status& why);
  void LoseRanks(Entry* entry, const absl::Status& why);

  // The work of the thread. These unlock the mutex while they do what takes long.
  void Work();
  template <typename DoWork>
  void Unlocked(DoWork work);
  // When the pair is to be unloaded for being idle.
  static Instant IdleEnd(const Entry& entry);
  // Returns when the next pair is to be unloaded.
  Instant BeginUnloadingIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool UnloadOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool LoadFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GoOn(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Loads the pair, without the mutex.
  absl::Status Load(Entry* entry, LoadedPair* loaded, std::unique_ptr<ServedPair>* pair);
  // OK if the pair can be loaded now, nothing if others are being unloaded for it.
  std::optional<absl::Status> MakeRoom(const PairMemory& memory)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(Entry* entry, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginUnloading(Entry* entry, std::string_view why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enqueue(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls waiters without the mutex.
  void Tell(std::vector<Waiting> waiting, const absl::StatusOr<PairLease>& what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const PairSetOptions options_;
  const bool has_several_;
  const absl::Time started_;
  std::vector<std::unique_ptr<Entry>> entries_;  // the vector is constant
  mutable absl::Mutex mutex_;
  std::deque<Entry*> queue_ ABSL_GUARDED_BY(mutex_);  // to load
  absl::Status end_ ABSL_GUARDED_BY(mutex_);          // OK while it is open
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_changed_ ABSL_GUARDED_BY(mutex_) = false;  // since the thread last looked
  int num_leases_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<std::thread> worker_;  // only with several
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_PAIR_SET_H_
