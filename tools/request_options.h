// Options of commands that make requests: sampling, constraints and tools, as typed.
#ifndef TANDEM_TOOLS_REQUEST_OPTIONS_H_
#define TANDEM_TOOLS_REQUEST_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/choice_law.h"
#include "tandem/json_value.h"
#include "tandem/output_constraint.h"
#include "tandem/sampling_params.h"
#include "tools/option_group.h"

namespace tandem {

// The sampling options.
struct SamplingFlags {
  SamplingParams params;
  std::vector<std::string> logit_bias;
  std::optional<uint64_t> seed;

  // Adds the options to `app`, which must not outlive this object. The current values are the
  // defaults.
  void AddTo(CLI::App* app);
  // Parses the biases into `params` and validates it. An error means that the command line is
  // wrong.
  absl::Status Check();
};

// The options that constrain the output.
struct ConstraintFlags {
  std::optional<std::string> json_schema;  // file, or the schema itself
  std::optional<std::string> regex;
  std::optional<std::string> grammar;  // file
  std::vector<std::string> choices;
  std::string law_name = "masked";

  // Adds the options to `app`, which must not outlive this object.
  void AddTo(CLI::App* app);
  // Returns the constraint, reading its file if it has one; nullopt if no option is given. Errors
  // name the option and the file.
  absl::StatusOr<std::optional<OutputConstraint>> Read() const;
  // How one of the choices is chosen.
  ChoiceLaw law() const { return *ParseChoiceLaw(law_name); }
  // Returns `status` with a leading "constraint" field replaced by the option's name.
  absl::Status WithOptionNames(const absl::Status& status) const;

 private:
  // The option that is given, with its file: "--grammar sums.ebnf".
  std::string Name() const;
};

// --tools: the functions that the model may call.
struct ToolsOption {
  std::string file;

  // Adds the option to `group`, whose command must not outlive this object.
  void AddTo(OptionGroup* group);
  bool is_given() const { return !file.empty(); }
  // Returns the file's list in the form of ChatInput::tools; null without the option. Errors name
  // the option, the file, the member, the value found and the values allowed.
  absl::StatusOr<JsonValue> Read() const;
  // Returns `status` with the option and its file in front, if it is about a member of `tools`.
  absl::Status WithOptionNames(const absl::Status& status) const;
};

// --max-thinking-tokens: the limit on the reasoning of an answer.
struct ThinkingOption {
  std::optional<int> max_tokens;

  // Adds the option to `group`, whose command must not outlive this object.
  void AddTo(OptionGroup* group);
  // Returns `status` with the option in place of the field `max_thinking_tokens`.
  static absl::Status WithOptionNames(const absl::Status& status);
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_REQUEST_OPTIONS_H_
