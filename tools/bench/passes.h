// Runs the table of operations (operation_table.h) with a line of progress, and on the CPU the
// passes of a model.
#ifndef TANDEM_TOOLS_BENCH_PASSES_H_
#define TANDEM_TOOLS_BENCH_PASSES_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tandem/engine_options.h"
#include "tandem/json_value.h"
#include "tools/bench/machine_limits.h"
#include "tools/bench/measuring.h"
#include "tools/bench/operation_table.h"

namespace tandem {

using OnResult = absl::FunctionRef<void(const OperationResult&)>;
using OnRow = absl::FunctionRef<void(const JsonValue&)>;

// Sets what `options` does before each sample: `measuring` says which.
void ShowIn(Measuring* measuring, OperationOptions* options);

// `options`: those of the table, on which ShowIn was called.
absl::Status RunTable(const OperationTable& table, const OperationOptions& options,
                      Measuring* measuring, OnResult on_result);

// Loads the target of `engine` without a draft on the CPU, and measures its passes with the rows,
// batches and contexts of `options`. Passes of up to 16 rows have the logits of all rows, longer
// ones those of the last row.
absl::Status MeasurePasses(EngineOptions engine, OperationOptions options, MachineLimits* limits,
                           Measuring* measuring, OnRow on_row);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PASSES_H_
