// The program's errors for invalid constraints.
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"
#include "tests/run_program.h"
#include "text/constraint/grammar_engine.h"

namespace tandem {
namespace {

using Words = std::vector<std::string>;
using testing::HasSubstr;

TEST(ProgramConstraints, InvalidConstraintsAreNamed) {
  const TestFolder folder;
  const std::string no_json = folder.Write("no.json", "{");
  const std::string refused =
      folder.Write("refused.json", R"({"type": "array", "uniqueItems": true})");
  const std::string no_type = folder.Write("no_type.json", R"({"type": "thing"})");
  const std::string rules = folder.Write("rules.ebnf", "root ::= nothing");
  const std::string empty = folder.Write("empty.ebnf", "");
  struct Case {
    Words words;
    std::vector<int> exit_statuses;
    std::vector<std::string> parts;
  };
  const std::vector<int> wrong = {kExitWrongLine};
  std::vector<Case> cases = {
      {{"--json-schema", "/nonexistent/schema"}, wrong, {"--json-schema: ", "/nonexistent/schema"}},
      {{"--grammar", "/nonexistent/rules"}, wrong, {"--grammar: ", "/nonexistent/rules"}},
      {{"--json-schema", no_json}, wrong, {"--json-schema " + no_json + ": schema"}},
      {{"--json-schema", refused},
       wrong,
       {"--json-schema " + refused + ": schema.uniqueItems: is not supported"}},
      {{"--json-schema", " {\"type\": [3]}"}, wrong, {"--json-schema: schema.type"}},
      {{"--grammar", empty}, wrong, {"--grammar " + empty + ": found nothing, allowed: "}},
      {{"--regex", ""}, wrong, {"--regex: found nothing, allowed: an expression"}},
      {{"--choice-law", "conditional"}, wrong, {"--choice-law: conditional needs --choice"}},
      {{"--choice-law", "conditional", "--regex", "a"},
       wrong,
       {"--choice-law: conditional needs --choice"}},
      {{"--choice-law", "conditional", "--choice", "a,a"},
       {kExitFailed},
       {"--choice: the choices 0 and 1 are both \"a\""}},
      {{"--choice-law", "conditional", "--json-schema", R"({"type": "object"})"},
       {kExitFailed},
       {"--choice-law: found \"conditional\" with another schema"}},
      {{"--regex", "a", "--grammar", rules}, wrong, {"--regex excludes --grammar"}}};
  if (HasGrammarEngine()) {
    const std::vector<int> failed = {kExitFailed};
    cases.push_back(
        {{"--json-schema", no_type}, wrong, {"--json-schema " + no_type + ": ", "thing"}});
    cases.push_back({{"--grammar", rules}, failed, {"--grammar " + rules + ": ", "nothing"}});
    cases.push_back({{"--regex", "(a"}, wrong, {"--regex: at offset 0"}});
  } else {
    cases.push_back({{"--regex", "a"}, {kExitFailed}, {"--regex: this build has no grammar"}});
  }
  const Words words = {"generate",  "--target", ShippedModelPath("storyteller-7m"),
                       "--drafter", "none",     "--threads",
                       "1"};
  for (const auto& [extra, exit_statuses, parts] : cases) {
    SCOPED_TRACE(absl::StrJoin(extra, " "));
    const ProgramRun result = RunProgram(Joined(Joined(words, {"--prompt", "a"}), extra));
    ExpectRefused(result, exit_statuses);
    for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
  }
  const std::string prompts = folder.Write("prompts.jsonl", "{\"prompt\": \"a\"}\n");
  const ProgramRun batch = RunProgram(Joined(words, {"--prompts", prompts, "--grammar", rules}));
  EXPECT_THAT(batch.err, HasSubstr(prompts + ":1: --grammar " + rules + ": "));
}

}  // namespace
}  // namespace tandem
