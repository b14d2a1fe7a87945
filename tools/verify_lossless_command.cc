// tandem verify-lossless: runs the proof and prints it as tables or JSON.
#include <cmath>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/status_macros.h"
#include "tandem/json_value.h"
#include "tandem/lossless_proof.h"
#include "tools/command.h"
#include "tools/engine_options.h"
#include "tools/help_text.h"
#include "tools/option_group.h"
#include "tools/prompt_file.h"
#include "tools/standard_streams.h"
#include "tools/table.h"

namespace tandem {
namespace {

using OrderedJson = JsonValue;

// Short prompts of several kinds. Their words repeat, so that lookup drafters propose tokens too.
constexpr const char* kPrompts[] = {
    "Once upon a time there was a king who had a daughter, and the king who had a",
    "The old woman went into the forest, and in the forest the old woman",
    "\"Give me the golden apple,\" said the fox. \"I will not give you the golden apple,\" said",
    "The first brother took bread, the second brother took cheese, the third brother took",
};

struct ProofFlags {
  EngineFlags engine;
  std::string prompts_file;
  double seconds = 75.0;
  bool json = false;
  ProofOptions proof;

  EngineOptions engine_options;  // set by Check

  absl::Status Check();
  absl::Status LoadPrompts();
};

absl::Status ProofFlags::Check() {
  ASSIGN_OR_RETURN(engine_options, engine.ToOptions());
  if (engine_options.drafter == DrafterKind::kNone) {
    return absl::InvalidArgumentError("--drafter: must not be none: the proof needs speculation");
  }
  if (engine_options.verifier != AcceptanceRule::kAuto) {
    return absl::InvalidArgumentError("--verifier: must not be given: the proof covers every rule");
  }
  proof.prompts.assign(std::begin(kPrompts), std::end(kPrompts));
  proof.time = absl::Seconds(seconds);
  if (engine_options.draft_tokens != kAutoDraftTokens) {
    proof.draft_tokens = engine_options.draft_tokens;
  }
  return proof.Validate();
}

absl::Status ProofFlags::LoadPrompts() {
  if (prompts_file.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<Prompt> prompts, ReadPromptFile(prompts_file));
  proof.prompts.clear();
  for (const Prompt& prompt : prompts) {
    if (prompt.ids.empty()) {
      proof.prompts.push_back(prompt.text);
    } else {
      proof.prompt_ids.push_back(prompt.ids);
    }
  }
  return proof.Validate();
}

std::string LawTable(const LosslessProof& proof) {
  Table table({"rule", "k", "sampling", "prompt tokens", "rows", "runs", "accepted", "G", "df", "p",
               "adjusted p", "TV seen"});
  for (const LawCheck& law : proof.laws) {
    table.AddRow({law.rule, absl::StrCat(law.draft_tokens), law.sampling,
                  absl::StrCat(law.prompt_tokens), law.models_ran ? "computed" : "looked up",
                  absl::StrCat(law.runs), Format("%.2f", law.accepted),
                  Format("%.1f", law.statistic), absl::StrCat(law.degrees),
                  Format("%.3g", law.p_value), Format("%.3g", law.adjusted_p),
                  Format("%.4f", law.seen_variation)});
  }
  return table.ToText();
}

std::string FaultTable(const LosslessProof& proof) {
  Table table(
      {"fault", "rule", "seen by", "sampling", "runs", "G", "df", "p", "different", "caught"});
  for (const FaultCheck& f : proof.faults) {
    const bool by_law = f.seen_by == "law";
    table.AddRow({f.fault, f.rule.empty() ? "-" : f.rule, f.applies ? f.seen_by : "-",
                  by_law ? f.sampling : "-", by_law ? absl::StrCat(f.runs) : "-",
                  by_law ? Format("%.1f", f.statistic) : "-",
                  by_law ? absl::StrCat(f.degrees) : "-", by_law ? Format("%.2g", f.p_value) : "-",
                  !by_law && f.applies ? absl::StrCat(f.different, " of ", f.compared) : "-",
                  !f.applies ? "not applicable"
                  : f.caught ? "yes"
                             : "NO"});
  }
  return table.ToText();
}

std::string ExactTable(const LosslessProof& proof) {
  Table table({"", "compared", "different"});
  for (const ExactCheck& check : proof.exact) {
    table.AddRow({check.name, absl::StrCat(check.compared), absl::StrCat(check.different)});
  }
  return table.ToText();
}

std::string ReportText(const ProofFlags& flags, const LosslessProof& proof) {
  std::string text = absl::StrCat("target  ", proof.target, "\n");
  if (!proof.draft.empty()) absl::StrAppend(&text, "draft   ", proof.draft, "\n");
  absl::StrAppend(&text, "drafter ", proof.drafter, "\ndevice  ", proof.device, "\n");
  text += Format("%d prompts, seed %d\n", proof.num_prompts, flags.proof.seed);
  if (!proof.planted.empty()) {
    absl::StrAppend(&text, "planted fault: ", proof.planted, "\n");
  }
  absl::StrAppend(&text, "\nMust be equal, bit for bit:\n", ExactTable(proof));
  for (const ExactCheck& check : proof.exact) {
    if (check.different == 0) continue;
    absl::StrAppend(&text, "  ", check.name, ", the first: ", check.first_difference, "\n");
  }
  text += Format(
      "\nMust follow the target's exact law (G-tests of the first k+1 tokens; "
      "broken if an adjusted "
      "p is below %g):\n",
      proof.error_rate);
  text += LawTable(proof);
  absl::StrAppend(&text,
                  "TV seen: a law at this total variation distance is rejected 99 times in 100, "
                  "whatever its shape\n\nPlanted faults, which the same checks must catch:\n",
                  FaultTable(proof));
  text += Format("\nverdict: %s: %s (%.0f s)\n", std::string(NameOf(proof.verdict)), proof.reason,
                 absl::ToDoubleSeconds(proof.time));
  return text;
}

// JSON does not have infinity: the statistic of an impossible outcome becomes null.
OrderedJson NumberJson(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

OrderedJson ExactJson(const ExactCheck& check) {
  return {{"name", check.name},
          {"what", check.what},
          {"compared", check.compared},
          {"different", check.different},
          {"first_difference", check.first_difference}};
}

OrderedJson LawJson(const LawCheck& law) {
  return {{"rule", law.rule},
          {"sampling", law.sampling},
          {"prompt_tokens", law.prompt_tokens},
          {"draft_tokens", law.draft_tokens},
          {"length", law.length},
          {"rows", law.models_ran ? "computed" : "looked up"},
          {"runs", law.runs},
          {"acceptance_rate", law.accepted},
          {"statistic", NumberJson(law.statistic)},
          {"degrees", law.degrees},
          {"p_value", law.p_value},
          {"adjusted_p", law.adjusted_p},
          {"variation_seen", law.seen_variation}};
}

OrderedJson FaultJson(const FaultCheck& fault) {
  OrderedJson json = {{"fault", fault.fault},
                      {"what", fault.what},
                      {"applies", fault.applies},
                      {"caught", fault.caught}};
  if (!fault.applies) return json;
  json["seen_by"] = fault.seen_by;
  if (fault.seen_by != "law") {
    json["compared"] = fault.compared;
    json["different"] = fault.different;
    return json;
  }
  json["rule"] = fault.rule;
  json["sampling"] = fault.sampling;
  json["draft_tokens"] = fault.draft_tokens;
  json["length"] = fault.length;
  json["runs"] = fault.runs;
  json["statistic"] = NumberJson(fault.statistic);
  json["degrees"] = fault.degrees;
  json["p_value"] = fault.p_value;
  return json;
}

OrderedJson ReportJson(const ProofFlags& flags, const LosslessProof& proof) {
  OrderedJson json = {{"verdict", std::string(NameOf(proof.verdict))},
                      {"reason", proof.reason},
                      {"target", proof.target},
                      {"draft", OrNull(proof.draft)},
                      {"drafter", proof.drafter},
                      {"device", proof.device},
                      {"prompts", proof.num_prompts},
                      {"seed", flags.proof.seed},
                      {"planted", OrNull(proof.planted)},
                      {"error_rate", proof.error_rate},
                      {"seconds", absl::ToDoubleSeconds(proof.time)},
                      {"exact", OrderedJson::array()},
                      {"laws", OrderedJson::array()},
                      {"faults", OrderedJson::array()}};
  for (const ExactCheck& check : proof.exact) json["exact"].push_back(ExactJson(check));
  for (const LawCheck& law : proof.laws) json["laws"].push_back(LawJson(law));
  for (const FaultCheck& fault : proof.faults) json["faults"].push_back(FaultJson(fault));
  return json;
}

absl::Status Run(ProofFlags* flags) {
  RETURN_IF_ERROR(flags->LoadPrompts());
  absl::StatusOr<LosslessProof> proof;
  {
    Progress progress("proving");
    flags->proof.on_progress = [&](double share) { progress.AdvanceToShare(share); };
    proof = ProveLossless(flags->engine_options, flags->proof);
  }
  RETURN_IF_ERROR(proof.status());
  RETURN_IF_ERROR(flags->json ? PrintJson(ReportJson(*flags, *proof))
                              : Print(ReportText(*flags, *proof)));
  if (proof->verdict == ProofVerdict::kLossless) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("verify-lossless: ", proof->reason));
}

}  // namespace

Command AddVerifyLosslessCommand(CLI::App* program) {
  const auto flags = std::make_shared<ProofFlags>();
  CLI::App* app = program->add_subcommand(
      "verify-lossless", "Prove that speculation does not change the output of this pair here");
  OptionGroup group(app, "Proof");
  group.Add("--prompts", "F.jsonl", &flags->prompts_file,
            "JSON lines {\"prompt\": ...} or {\"prompt_ids\": [...]} [4 built-in prompts]");
  group.Add("--seconds", "S", &flags->seconds, "Approximate duration",
            {.low = 1e-3, .high = 86400});
  group.Add("--runs", "N", &flags->proof.runs,
            "Generations per test of a law [as many as the time allows]");
  group.Add("--seed", "N", &flags->proof.seed, "Seed of all random numbers");
  std::vector<std::string> faults;
  for (const FaultName& fault : PlantableFaults()) faults.emplace_back(fault.name);
  group.Add("--plant", "NAME", &flags->proof.plant,
            "Plant this fault, to show that the proof fails", OneOf{faults});
  group.AddFlag("--json", &flags->json, "Print one JSON object instead of tables");
  flags->engine.AddTo(app);
  AddExamples(app, {"tandem verify-lossless --seconds 30",
                    "tandem verify-lossless -m smollm2 --drafter ngram"});
  return {
      .app = app,
      .check = [flags] { return flags->Check(); },
      .run =
          [flags] { return RunOrFollow(flags->engine_options, [&] { return Run(flags.get()); }); }};
}

}  // namespace tandem
