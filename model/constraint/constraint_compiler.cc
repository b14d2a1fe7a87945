#include "model/constraint/constraint_compiler.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/field_error.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "model/constraint/grammar_engine.h"
#include "model/constraint/json_schema.h"

namespace tandem {
namespace {

constexpr int kMostThreads = 2;
constexpr int64_t kBytesOfJob = 64 << 10;  // with its text, about

using GrammarPtr = std::shared_ptr<const CompiledGrammar>;

bool AreTheSame(const OutputConstraint& a, const OutputConstraint& b) {
  return a.kind == b.kind && a.is_strict == b.is_strict && a.text == b.text &&
         a.choices == b.choices;
}

// The most brackets that are open at once, those in strings and classes included.
int DepthOf(absl::string_view text) {
  int depth = 0;
  int deepest = 0;
  for (const char c : text) {
    if (c == '(' || c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ')' || c == ']' || c == '}') depth = std::max(depth - 1, 0);
  }
  return deepest;
}

absl::Status Check(const OutputConstraint& constraint, const ConstraintCompiler::Limits& limits) {
  size_t num_bytes = constraint.text.size();
  for (const std::string& choice : constraint.choices) num_bytes += choice.size();
  if (num_bytes > limits.most_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", num_bytes, " bytes, allowed: ", limits.most_bytes));
  }
  if (const int depth = DepthOf(constraint.text); depth > limits.most_depth) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", depth, " brackets in each other, allowed: ", limits.most_depth));
  }
  if (constraint.kind != OutputConstraint::Kind::kChoice) return absl::OkStatus();
  const bool has_empty = absl::c_linear_search(constraint.choices, "");
  if (!constraint.choices.empty() && !has_empty) return absl::OkStatus();
  return absl::InvalidArgumentError(has_empty ? "has an empty choice" : "has no choices");
}

absl::Status Prepare(const ConstraintCompiler::Limits& limits, OutputConstraint* constraint) {
  RETURN_IF_ERROR(Check(*constraint, limits));
  if (constraint->kind == OutputConstraint::Kind::kStructuralTag) {
    ASSIGN_OR_RETURN(constraint->text, PreparedTag(constraint->text));
  }
  if (constraint->kind != OutputConstraint::Kind::kJsonSchema) return absl::OkStatus();
  ASSIGN_OR_RETURN(constraint->text, PreparedSchema(constraint->text));
  return absl::OkStatus();
}

}  // namespace

struct ConstraintCompiler::Shared {
  Shared(const Tokenizer* tokenizer, int vocab_size, const Limits& limits)
      : tokenizer(tokenizer), vocab_size(vocab_size), limits(limits) {}

  struct Job {
    OutputConstraint constraint;
    bool is_done = false;
    absl::StatusOr<GrammarPtr> grammar = absl::InternalError("not compiled");
  };
  using JobPtr = std::shared_ptr<Job>;

  const Tokenizer* const tokenizer;
  const int vocab_size;
  const Limits limits;

  absl::Mutex mutex;
  // Made by the first that wants it, under the lock: it takes some tens of milliseconds.
  std::unique_ptr<GrammarEngine> engine ABSL_GUARDED_BY(mutex);
  std::list<JobPtr> kept ABSL_GUARDED_BY(mutex);      // the latest first
  std::deque<JobPtr> waiting ABSL_GUARDED_BY(mutex);  // for a thread
  int num_threads ABSL_GUARDED_BY(mutex) = 0;

  // The job of this constraint, which is being done or kept.
  JobPtr FindOrAdd(const OutputConstraint& constraint, const std::shared_ptr<Shared>& self);
  void Forget();
  void Work();
};

ConstraintCompiler::Shared::JobPtr ConstraintCompiler::Shared::FindOrAdd(
    const OutputConstraint& constraint, const std::shared_ptr<Shared>& self) {
  const auto it = absl::c_find_if(
      kept, [&](const JobPtr& job) { return AreTheSame(job->constraint, constraint); });
  if (it != kept.end()) {
    kept.splice(kept.begin(), kept, it);
    return kept.front();
  }
  auto job = std::make_shared<Job>();
  job->constraint = constraint;
  if (num_threads < kMostThreads) {
    std::thread([self] { self->Work(); }).detach();
    ++num_threads;
  }
  waiting.push_back(job);
  kept.push_front(job);
  return job;
}

// Those that are compiled, the latest first, as long as they fit; and those that are not.
void ConstraintCompiler::Shared::Forget() {
  int64_t bytes = 0;
  kept.remove_if([&](const JobPtr& job) {
    if (!job->is_done) return false;
    bytes += kBytesOfJob + (job->grammar.ok() ? (*job->grammar)->bytes() : 0);
    return bytes > limits.most_kept_bytes;
  });
}

// Until nothing waits.
void ConstraintCompiler::Shared::Work() {
  mutex.Lock();
  while (!waiting.empty()) {
    const JobPtr job = std::move(waiting.front());
    waiting.pop_front();
    const GrammarEngine* const compiler = engine.get();
    mutex.Unlock();
    absl::StatusOr<GrammarPtr> grammar = absl::InternalError("not compiled");
    const absl::Status status = Guarded("compiling a constraint", [&] {
      grammar = compiler->Compile(job->constraint);
      return grammar.status();
    });
    if (!status.ok()) grammar = status;
    mutex.Lock();
    job->grammar = std::move(grammar);
    job->is_done = true;
    Forget();
  }
  --num_threads;
  mutex.Unlock();
}

ConstraintCompiler::ConstraintCompiler(const Tokenizer* tokenizer, int vocab_size,
                                       const Limits& limits)
    : shared_(std::make_shared<Shared>(tokenizer, vocab_size, limits)) {}

ConstraintCompiler::~ConstraintCompiler() {
  const absl::MutexLock lock(&shared_->mutex);
  shared_->waiting.clear();
}

absl::StatusOr<std::shared_ptr<const TokenConstraint>> ConstraintCompiler::Compile(
    const OutputConstraint& constraint, absl::Span<const TokenId> end_tokens) {
  Shared& s = *shared_;
  OutputConstraint prepared = constraint;
  if (absl::Status status = Prepare(s.limits, &prepared); !status.ok()) {
    return FieldError("constraint", status.message());
  }
  std::vector<TokenId> ends;
  absl::c_copy_if(end_tokens, std::back_inserter(ends),
                  [&s](TokenId id) { return s.tokenizer->IsSpecial(id); });
  if (ends.empty()) {
    return FieldError("constraint", "needs a special token that ends the output; there is none");
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
  const Shared::JobPtr job = s.FindOrAdd(prepared, shared_);
  const auto is_done = [&job] { return job->is_done; };
  if (!s.mutex.AwaitWithTimeout(absl::Condition(&is_done), s.limits.time)) {
    return FieldError("constraint",
                      absl::StrCat("is not compiled after ", absl::FormatDuration(s.limits.time)));
  }
  if (!job->grammar.ok()) return FieldError("constraint", job->grammar.status().message());
  return (*job->grammar)->EndingIn(ends);
}

}  // namespace tandem
