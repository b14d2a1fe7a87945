#include "tools/prompt_batch.h"

#include <climits>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "base/status_macros.h"
#include "engine/report_json.h"
#include "tandem/json_value.h"
#include "tools/answer_text.h"
#include "tools/plain_comparison.h"
#include "tools/report.h"
#include "tools/standard_streams.h"
#include "tools/status_line.h"

namespace tandem {
namespace {

// Interval at which to poll for the next request while the input has no complete line.
constexpr absl::Duration kPause = absl::Milliseconds(5);

// Runs the requests of `next` until it returns nullopt. Passes each result to `on_result` in the
// order of the requests, as soon as it and all earlier ones have ended. At most `most` requests
// have begun without having been passed on, which bounds the memory. If `next` returns an error, or
// a request is rejected or fails, its result is that error. The first error of `on_result` cancels
// the running requests and is returned.
//
// `has_next`: whether `next` would return without blocking. While it would block, results are still
// passed on.
absl::Status RunInOrder(Engine* engine, size_t most, absl::FunctionRef<bool()> has_next,
                        absl::FunctionRef<std::optional<absl::StatusOr<Request>>()> next,
                        absl::FunctionRef<absl::Status(absl::StatusOr<Completion>)> on_result) {
  std::deque<absl::StatusOr<GenerationId>> begun;
  absl::Status status;
  int num_ended = 0;
  for (bool are_more = true;;) {
    const auto takes_more = [&] { return are_more && status.ok() && begun.size() < most; };
    while (takes_more() && (begun.empty() || has_next())) {
      std::optional<absl::StatusOr<Request>> request = next();
      are_more = request.has_value();
      if (!are_more) break;
      begun.push_back(request->ok() ? engine->Submit(**std::move(request), /*on_piece=*/nullptr)
                                    : request->status());
    }
    if (begun.empty()) return status;
    const absl::StatusOr<GenerationId> id = begun.front();
    const absl::Duration timeout = takes_more() ? kPause : absl::InfiniteDuration();
    std::optional<WaitingLine> line;  // not while prompts may be typed
    if (!takes_more()) line.emplace(absl::StrCat("answering prompt ", num_ended + 1));
    absl::StatusOr<Completion> completion = id.ok() ? engine->Wait(*id, timeout) : id.status();
    // Only Wait's timeout ends so: requests do not have deadlines.
    if (absl::IsDeadlineExceeded(completion.status())) continue;
    line.reset();
    begun.pop_front();
    ++num_ended;
    if (!status.ok()) continue;
    status = on_result(std::move(completion));
    if (status.ok()) continue;
    for (const absl::StatusOr<GenerationId>& other : begun) {
      if (other.ok()) engine->Cancel(*other);
    }
  }
}

using Json = SortedJson;

class PromptBatch {
 public:
  PromptBatch(const PromptBatchOptions& options, PromptReader* reader, Engine* engine)
      : options_(options), reader_(reader), engine_(engine) {}

  absl::Status Run();

 private:
  // A prompt that has been read.
  struct Begun {
    int line;
    std::optional<AnswerReader::Options> reading{};  // for a chat
  };
  // A prompt that has ended.
  struct Result {
    int number;  // from 1
    Begun begun;
    absl::StatusOr<Completion> completion;
  };
  // A request and its result, which --compare runs again.
  struct Kept {
    Request request;
    Result result;
  };

  std::optional<absl::StatusOr<Request>> NextRequest();
  absl::Status OnEnd(absl::StatusOr<Completion> completion);
  void Count(const Result& result);
  // `comparison` may be null. `index` is the index of the prompt in it.
  absl::Status PrintResult(const Result& result, const PlainComparison* comparison, size_t index);
  absl::Status Compare();
  absl::Status Finish() const;
  bool prints_at_once() const { return !(options_.json && options_.compare); }

  const PromptBatchOptions& options_;
  PromptReader* const reader_;
  Engine* const engine_;
  const Instant start_ = Instant::Now();
  std::deque<Begun> begun_;       // prompts that have not ended
  std::deque<Request> requests_;  // their requests, for --compare
  std::vector<Kept> kept_;        // prompts that have ended, for --compare
  bool has_text_ = false;         // whether a prompt of text has begun
  uint32_t num_begun_ = 0;
  int num_ended_ = 0;
  int num_failed_ = 0;
  std::string first_error_;
  std::optional<Completion> joint_;  // the sum of all completions
};

std::optional<absl::StatusOr<Request>> PromptBatch::NextRequest() {
  std::optional<absl::StatusOr<Prompt>> prompt = reader_->Next();
  if (!prompt.has_value()) return std::nullopt;
  Request request = options_.base;
  request.sequence = num_begun_++;
  begun_.push_back({.line = reader_->line()});
  if (prompt->ok()) {
    request.prompt = std::move((*prompt)->text);
    request.prompt_ids = std::move((*prompt)->ids);
    const bool is_first_text = request.prompt_ids.empty() && !std::exchange(has_text_, true);
    if (is_first_text && options_.on_first_text != nullptr) options_.on_first_text();
  }
  absl::Status status = prompt->status();
  if (status.ok() && options_.put_turn != nullptr) {
    absl::StatusOr<AnswerReader::Options> reading = options_.put_turn(&request);
    status = reading.status();
    if (reading.ok()) begun_.back().reading = *std::move(reading);
  }
  if (options_.compare) requests_.push_back(request);
  if (!status.ok()) return status;
  return request;
}

absl::Status PromptBatch::OnEnd(absl::StatusOr<Completion> completion) {
  Result result{.number = ++num_ended_,
                .begun = std::move(begun_.front()),
                .completion = std::move(completion)};
  begun_.pop_front();
  if (!result.completion.ok() && options_.in_its_names != nullptr) {
    result.completion = options_.in_its_names(result.completion.status());
  }
  const std::string where = absl::StrCat(options_.file, ":", result.begun.line, ": ");
  if (const absl::Status& status = result.completion.status();
      !status.ok() && !absl::StartsWith(status.message(), where)) {
    result.completion = absl::Status(status.code(), absl::StrCat(where, status.message()));
  }
  Count(result);
  if (prints_at_once()) RETURN_IF_ERROR(PrintResult(result, /*comparison=*/nullptr, 0));
  if (!options_.compare) return absl::OkStatus();
  kept_.push_back({std::move(requests_.front()), std::move(result)});
  requests_.pop_front();
  return absl::OkStatus();
}

void PromptBatch::Count(const Result& result) {
  if (!result.completion.ok()) {
    const std::string error(result.completion.status().message());
    if (num_failed_++ == 0) first_error_ = error;
    std::fprintf(stderr, "tandem: %s\n", error.c_str());
  } else if (joint_.has_value()) {
    Join(*result.completion, &*joint_);
  } else {
    joint_ = *result.completion;
  }
}

absl::Status PromptBatch::PrintResult(const Result& result, const PlainComparison* comparison,
                                      size_t index) {
  const absl::StatusOr<Completion>& completion = result.completion;
  const std::optional<AnswerReader::Options>& reading = result.begun.reading;
  if (!options_.json) {
    if (!completion.ok()) return absl::OkStatus();
    const std::string text =
        reading.has_value() ? AnswerText::Whole(*reading, completion->text) : completion->text;
    return Print(absl::StrCat("--- prompt ", result.number, "\n", text, "\n"));
  }
  Json json;
  if (!completion.ok()) {
    json = {{"error", std::string(completion.status().message())}, {"line", result.begun.line}};
  } else {
    const Completion& shown =
        comparison == nullptr ? *completion : comparison->speculative.completions[index];
    json = CompletionJson(shown, std::string(NameOf(engine_->drafter())));
    if (reading.has_value()) AddToJson(AnswerReader::Read(*reading, shown.text), &json);
    if (comparison != nullptr) AddToJson(*comparison, index, &json);
  }
  return Print(absl::StrCat(result.number == 1 ? "[" : ",", OneLine(json)));
}

absl::Status PromptBatch::Compare() {
  std::vector<Request> requests;
  std::vector<Completion> completions;
  for (const Kept& kept : kept_) {
    if (!kept.result.completion.ok()) continue;
    requests.push_back(kept.request);
    completions.push_back(*kept.result.completion);
  }
  absl::StatusOr<PlainComparison> comparison = absl::NotFoundError("nothing to compare");
  if (!requests.empty()) comparison = CompareWithPlain(engine_, requests, completions);
  size_t index = 0;
  for (const Kept& kept : kept_) {
    if (prints_at_once()) break;
    const PlainComparison* known = comparison.ok() ? &*comparison : nullptr;
    RETURN_IF_ERROR(PrintResult(kept.result, known, index));
    index += kept.result.completion.ok() ? 1 : 0;
  }
  if (requests.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(comparison.status());
  if (options_.json) return absl::OkStatus();
  const PlainComparison::Run& median = comparison->speculative;
  std::fprintf(stderr, "\n%s%s",
               BatchReport(*engine_, JointCompletion(median.completions),
                           static_cast<int>(median.completions.size()), median.time)
                   .c_str(),
               ToText(*comparison).c_str());
  return absl::OkStatus();
}

absl::Status PromptBatch::Finish() const {
  if (num_ended_ == 0) {
    return absl::InvalidArgumentError(absl::StrCat(options_.file, ": has no prompts"));
  }
  if (num_failed_ == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(options_.file, ": ", num_failed_, " of ",
                                                 num_ended_,
                                                 " prompts failed; the first: ", first_error_));
}

absl::Status PromptBatch::Run() {
  RETURN_IF_ERROR(RunInOrder(
      engine_, MostPromptsBegun(options_.batch, options_.compare),
      [&] { return reader_->HasNext(); }, [&] { return NextRequest(); },
      [&](absl::StatusOr<Completion> completion) { return OnEnd(std::move(completion)); }));
  if (joint_.has_value() && !options_.json && !options_.compare) {
    std::fprintf(
        stderr, "\n%s",
        BatchReport(*engine_, *joint_, num_ended_ - num_failed_, Instant::Now() - start_).c_str());
  }
  const absl::Status compared = options_.compare ? Compare() : absl::OkStatus();
  if (options_.json && num_ended_ > 0) RETURN_IF_ERROR(Print("]\n"));
  RETURN_IF_ERROR(compared);
  return Finish();
}

}  // namespace

int MostPromptsBegun(int batch, bool compare) {
  constexpr int kMaxPromptsAhead = 128;
  return compare ? INT_MAX : batch + kMaxPromptsAhead;
}

absl::Status RunPromptBatch(const PromptBatchOptions& options, PromptReader* reader,
                            Engine* engine) {
  return PromptBatch(options, reader, engine).Run();
}

}  // namespace tandem
