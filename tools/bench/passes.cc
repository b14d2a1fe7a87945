#include "tools/bench/passes.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "engine/runtime.h"
#include "tools/bench/bench_commands.h"
#include "tools/bench/operation.h"

namespace tandem {
namespace {

using OrderedJson = JsonValue;

// The maximum number of rows for which a pass counts as a verification.
constexpr int kMaxVerified = 16;

std::string LabelOf(const Operation& operation) {
  std::string name = absl::StrCat("measuring ", View(operation.op));
  if (!operation.part.empty()) absl::StrAppend(&name, " ", View(operation.part));
  absl::StrAppend(&name, " ", View(ShortNameOf(operation.dtype)));
  if (operation.rows > 0) absl::StrAppend(&name, ", rows ", operation.rows);
  if (operation.batch > 1) absl::StrAppend(&name, ", batch ", operation.batch);
  if (operation.context > 0) absl::StrAppend(&name, ", context ", operation.context);
  return name;
}

}  // namespace

void ShowIn(Measuring* measuring, OperationOptions* options) {
  options->run.before_sample = [measuring](const Operation& operation) {
    return measuring->BeginNext(LabelOf(operation));
  };
}

absl::Status RunTable(const OperationTable& table, const OperationOptions& options,
                      Measuring* measuring, OnResult on_result) {
  constexpr char kPreparing[] = "preparing the next operations";
  measuring->Expect(int64_t{table.num_operations()} * options.run.repeat);
  RETURN_IF_ERROR(measuring->Begin(kPreparing));
  return table.Run([&](const OperationResult& result) {
    on_result(result);
    (void)measuring->Begin(kPreparing);  // the next sample returns the status
  });
}

absl::Status MeasurePasses(EngineOptions engine, OperationOptions options, MachineLimits* limits,
                           Measuring* measuring, OnRow on_row) {
  RETURN_IF_ERROR(measuring->Begin(absl::StrCat("loading ", engine.target)));
  engine.draft.clear();
  engine.drafter = DrafterKind::kNone;
  engine.device = "cpu";
  ASSIGN_OR_RETURN(const Runtime runtime, Runtime::Load(engine));
  options.bf16_products = UsesBf16Products(engine.compute);
  ShowIn(measuring, &options);
  OperationTable table(options, runtime.backend.get(), limits);
  table.AddPasses(runtime.target.get(), runtime.kv_cache, kMaxVerified);
  OneRow one_row;
  return RunTable(table, options, measuring, [&](const OperationResult& result) {
    const Operation& pass = result.operation;
    OrderedJson row = {{"what", pass.part}, {"rows", pass.rows}};
    if (pass.batch > 1) row["batch"] = pass.batch;
    row.update({{"context", pass.context}, {"of_one_row", one_row.Of(result)}});
    on_row(With(std::move(row), LimitedJson(pass.demand, result.time)));
  });
}

}  // namespace tandem
