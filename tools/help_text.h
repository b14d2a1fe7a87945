// The text of --help, wrapped at the width of the terminal.
#ifndef TANDEM_TOOLS_HELP_TEXT_H_
#define TANDEM_TOOLS_HELP_TEXT_H_

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace CLI {
class App;
class FormatterBase;
}  // namespace CLI

namespace tandem {

// The number of columns for a help: $COLUMNS if it is a number, else those of the terminal on
// standard output, else 80.
int HelpWidth();

// Returns a formatter whose lines have at most `width` columns. Longer are only words that do not
// fit into a line, and rows of tables in footers. Footers have one line per paragraph; a line such
// as "/reset   forgets everything" continues below its second part.
std::shared_ptr<CLI::FormatterBase> MakeHelpFormatter(int width);

// Ends the help of `app` with these command lines.
void AddExamples(CLI::App* app, std::initializer_list<absl::string_view> lines);
// Returns the command lines at the end of the help.
std::vector<std::string> ExamplesOf(const CLI::App* app);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HELP_TEXT_H_
