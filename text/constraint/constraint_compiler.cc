#include "text/constraint/constraint_compiler.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/guard.h"
#include "base/instant.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"
#include "text/constraint/grammar_engine.h"

namespace tandem {
namespace {

constexpr int kMaxThreads = 2;
// Compiling for longer may have taken much memory.
constexpr absl::Duration kLongWork = absl::Milliseconds(100);
constexpr int64_t kBytesOfJob = 64 << 10;  // rough size without its text and its grammar

using GrammarPtr = std::shared_ptr<const CompiledGrammar>;

bool AreTheSame(const OutputConstraint& a, const OutputConstraint& b) {
  return a.kind == b.kind && a.is_strict == b.is_strict && a.text == b.text &&
         a.choices == b.choices && a.tokens == b.tokens;
}

// Returns the largest number of brackets that are open at once, including those in strings and
// classes.
int DepthOf(absl::string_view text) {
  int depth = 0;
  int deepest = 0;
  for (const char c : text) {
    if (c == '(' || c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ')' || c == ']' || c == '}') depth = std::max(depth - 1, 0);
  }
  return deepest;
}

size_t NumBytes(const OutputConstraint& constraint) {
  size_t num_bytes = constraint.text.size();
  for (const std::string& choice : constraint.choices) num_bytes += choice.size();
  return num_bytes;
}

absl::Status Check(const OutputConstraint& constraint, const ConstraintCompiler::Limits& limits) {
  const size_t num_bytes = NumBytes(constraint);
  if (num_bytes > limits.max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", num_bytes, " bytes, allowed: ", limits.max_bytes));
  }
  if (const int depth = DepthOf(constraint.text); depth > limits.max_depth) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", depth, " nested brackets, allowed: ", limits.max_depth));
  }
  if (constraint.kind != OutputConstraint::Kind::kChoice) return absl::OkStatus();
  const bool has_empty = absl::c_linear_search(constraint.choices, "");
  if (!constraint.choices.empty() && !has_empty) return absl::OkStatus();
  return absl::InvalidArgumentError(has_empty ? "has an empty choice" : "has no choices");
}

}  // namespace

struct ConstraintCompiler::Shared {
  Shared(const Tokenizer* tokenizer, int vocab_size, const Limits& limits)
      : tokenizer(tokenizer), vocab_size(vocab_size), limits(limits) {}

  struct Job {
    OutputConstraint constraint;
    std::string salt;
    Instant begin = Instant::Now();
    int num_waiting = 0;  // callers that wait for it
    bool is_done = false;
    std::atomic<bool> is_unwanted = false;
    absl::StatusOr<GrammarPtr> grammar;
  };
  using JobPtr = std::shared_ptr<Job>;

  const Tokenizer* const tokenizer;
  const int vocab_size;
  const Limits limits;

  absl::Mutex mutex;
  // Made by the first call of Compile, under the lock: that takes some tens of milliseconds.
  std::unique_ptr<GrammarEngine> engine ABSL_GUARDED_BY(mutex);
  std::list<JobPtr> kept ABSL_GUARDED_BY(mutex);     // all jobs, the most recently used first
  std::list<JobPtr> waiting ABSL_GUARDED_BY(mutex);  // jobs that wait for a thread
  int num_threads ABSL_GUARDED_BY(mutex) = 0;

  // Returns the job of this constraint and salt, a new one if none is kept. RESOURCE_EXHAUSTED if
  // too many jobs wait.
  absl::StatusOr<JobPtr> FindOrAdd(const OutputConstraint& constraint, absl::string_view salt,
                                   const std::shared_ptr<Shared>& self)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto it = absl::c_find_if(kept, [&](const JobPtr& job) {
      return job->salt == salt && AreTheSame(job->constraint, constraint);
    });
    if (it != kept.end()) {
      kept.splice(kept.begin(), kept, it);
      return kept.front();
    }
    const bool is_full = waiting.size() >= static_cast<size_t>(limits.max_waiting) &&
                         Instant::Now() - waiting.front()->begin > limits.short_wait;
    if (is_full) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "constraint: the compiler is busy (", waiting.size(), " waiting); try again later"));
    }
    auto job = std::make_shared<Job>();
    job->constraint = constraint;
    job->salt = std::string(salt);
    std::list<JobPtr> one = {job};
    std::list<JobPtr> other = {job};
    if (num_threads < kMaxThreads) {
      const bool has_started = Attempt("starting a thread that compiles constraints",
                                       [&] { std::thread([self] { self->Work(); }).detach(); });
      num_threads += has_started ? 1 : 0;
    }
    if (num_threads == 0) {
      return absl::ResourceExhaustedError("constraint: no thread can be started; try again later");
    }
    waiting.splice(waiting.end(), one);
    kept.splice(kept.begin(), other);
    return job;
  }
  // Waits until the job is done. RESOURCE_EXHAUSTED if that takes longer than `patience`.
  absl::Status Await(const JobPtr& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto is_done = [&job] { return job->is_done; };
    ++job->num_waiting;
    mutex.AwaitWithTimeout(absl::Condition(&is_done), limits.patience);
    --job->num_waiting;
    if (job->is_done) return absl::OkStatus();
    if (job->num_waiting == 0) {
      job->is_unwanted = true;
      waiting.remove(job);
      kept.remove(job);
    }
    return absl::ResourceExhaustedError(absl::StrCat("constraint: was not compiled within ",
                                                     absl::FormatDuration(limits.patience),
                                                     "; try again later"));
  }
  // Drops finished jobs: those whose errors may not recur, and the least recently used ones that do
  // not fit in `max_kept_bytes`. Jobs that are not finished are kept.
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    int64_t bytes = 0;
    kept.remove_if([&](const JobPtr& job) {
      if (!job->is_done) return false;
      const bool may_stay = job->grammar.ok() || absl::IsInvalidArgument(job->grammar.status());
      bytes += kBytesOfJob + static_cast<int64_t>(NumBytes(job->constraint)) +
               (job->grammar.ok() ? (*job->grammar)->bytes() : 0);
      return !may_stay || bytes > limits.max_kept_bytes;
    });
  }
  absl::StatusOr<GrammarPtr> CompileWithin(const Job& job, const GrammarEngine& compiler) const {
    GrammarPtr grammar;
    RETURN_IF_ERROR(Guarded("compiling a constraint", [&]() -> absl::Status {
      auto compiled = compiler.Compile(job.constraint, {.time = limits.time,
                                                        .watches_stack = true,
                                                        .bytes = limits.max_work_bytes,
                                                        .unwanted = &job.is_unwanted});
      if (absl::IsOutOfRange(compiled.status())) {
        return absl::OutOfRangeError(
            absl::StrCat("cannot be compiled: it ", compiled.status().message()));
      }
      RETURN_IF_ERROR(compiled.status());
      grammar = *std::move(compiled);
      if (grammar->bytes() <= limits.max_grammar_bytes) return absl::OkStatus();
      return absl::OutOfRangeError(absl::StrCat("cannot be used: its compiled grammar has ",
                                                grammar->bytes(),
                                                " bytes, allowed: ", limits.max_grammar_bytes));
    }));
    return grammar;
  }
  // Compiles waiting jobs until there are none left.
  void Work() {
    mutex.Lock();
    while (!waiting.empty()) {
      const JobPtr job = std::move(waiting.front());
      waiting.pop_front();
      const GrammarEngine* const compiler = engine.get();
      mutex.Unlock();
      const Instant begin = Instant::Now();
      absl::StatusOr<GrammarPtr> grammar = CompileWithin(*job, *compiler);
      if (Instant::Now() - begin > kLongWork) ReturnFreeMemory();
      mutex.Lock();
      job->grammar = std::move(grammar);
      job->is_done = true;
      Forget();
    }
    --num_threads;
    mutex.Unlock();
  }
};

ConstraintCompiler::ConstraintCompiler(const Tokenizer* tokenizer, int vocab_size,
                                       const Limits& limits)
    : shared_(std::make_shared<Shared>(tokenizer, vocab_size, limits)) {}

ConstraintCompiler::~ConstraintCompiler() {
  const absl::MutexLock lock(&shared_->mutex);
  shared_->waiting.clear();
  for (const Shared::JobPtr& job : shared_->kept) job->is_unwanted = true;
}

ConstraintCompiler::Load ConstraintCompiler::load() const {
  const absl::MutexLock lock(&shared_->mutex);
  return {.num_kept = static_cast<int>(shared_->kept.size()),
          .num_waiting = static_cast<int>(shared_->waiting.size()),
          .num_threads = shared_->num_threads};
}

absl::StatusOr<std::shared_ptr<const TokenConstraint>> ConstraintCompiler::Compile(
    const OutputConstraint& constraint, absl::Span<const TokenId> end_tokens,
    absl::string_view salt) {
  Shared& s = *shared_;
  if (absl::Status status = Check(constraint, s.limits); !status.ok()) {
    return FieldError("constraint", status.message());
  }
  std::vector<TokenId> ends;
  absl::c_copy_if(end_tokens, std::back_inserter(ends),
                  [&s](TokenId id) { return s.tokenizer->IsSpecial(id); });
  if (ends.empty()) {
    return FieldError("constraint", "needs an end token that is a special token, found none");
  }
  const absl::MutexLock lock(&s.mutex);
  if (s.engine == nullptr) {
    absl::StatusOr<std::unique_ptr<GrammarEngine>> engine =
        GrammarEngine::Make(*s.tokenizer, s.vocab_size);
    if (!engine.ok()) {
      return absl::Status(engine.status().code(),
                          absl::StrCat("constraint: ", engine.status().message()));
    }
    s.engine = *std::move(engine);
  }
  ASSIGN_OR_RETURN(const Shared::JobPtr job, s.FindOrAdd(constraint, salt, shared_));
  RETURN_IF_ERROR(s.Await(job));
  const absl::Status& status = job->grammar.status();
  if (absl::IsInvalidArgument(status) || absl::IsOutOfRange(status)) {
    return FieldError("constraint", status.message());
  }
  RETURN_IF_ERROR(Named("constraint", status));
  return (*job->grammar)->EndingIn(ends);
}

}  // namespace tandem
