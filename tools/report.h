#ifndef TANDEM_TOOLS_REPORT_H_
#define TANDEM_TOOLS_REPORT_H_

#include <string>

#include "engine/engine.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem {

// The objects of docs/command_line.md.
nlohmann::json TimingsJson(const Completion& completion);
nlohmann::json SpeculationJson(const Completion& completion, const std::string& drafter);
nlohmann::json CompletionJson(const Completion& completion, const std::string& drafter);

// What a person wants to know of a run, in a few lines.
std::string TextReport(const Engine& engine, const Completion& completion);

double TokensPerSecond(const Completion& completion);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_H_
