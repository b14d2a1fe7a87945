// The page of `tandem lab`: the measurements, as sentences, pictures and tables for a reader of
// one introduction to language models.
#ifndef TANDEM_TOOLS_BENCH_LAB_PAGE_H_
#define TANDEM_TOOLS_BENCH_LAB_PAGE_H_

#include <string>
#include <vector>

#include "tandem/json_value.h"

namespace tandem {

// A report has these fields; docs/lab.md names those within them.
//   program, command, date: texts
//   seconds: a number
//   interrupted: whether Ctrl-C ended the measurement
//   machine, limits: MachineJson and MachineLimits::ToJson
//   target, draft: models; the draft is null if there is none
//   phases: {"prefill", "decode"}: rows of phases.h
//   passes: {"rows"}: rows of passes.h
//   speculation: PairFindings::ToJson, or null
// The last three have the fields of LoadJson. A part without measurements has no rows.

// Returns the sentences that say what was found, which are also the headings of the page.
std::vector<std::string> LabFindings(const JsonValue& report);

// Returns a page that needs nothing from elsewhere: lab_page.html, whose script lab_page.js draws
// the report.
std::string LabPage(const JsonValue& report);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_LAB_PAGE_H_
