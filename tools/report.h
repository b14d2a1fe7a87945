#ifndef TANDEM_TOOLS_REPORT_H_
#define TANDEM_TOOLS_REPORT_H_

#include <string>

#include "engine/engine.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem {

// What a person wants to know of a run, in a few lines.
std::string TextReport(const Engine& engine, const Completion& completion);
// JSON as `generate` prints it: in one line, of ASCII, whatever bytes the strings hold.
std::string OneLine(const nlohmann::json& json);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_H_
