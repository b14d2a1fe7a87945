#ifndef TANDEM_TOOLS_REPORT_H_
#define TANDEM_TOOLS_REPORT_H_

#include <string>

#include "engine/engine.h"

namespace tandem {

// What a person wants to know of a run, in a few lines.
std::string TextReport(const Engine& engine, const Completion& completion);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_H_
