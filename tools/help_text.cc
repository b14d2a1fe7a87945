#include "tools/help_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/environment.h"

namespace tandem {
namespace {

constexpr int kLeastWidth = 40;
constexpr int kUsualWidth = 80;
// Descriptions start in this column, or below the name if the terminal is narrow.
constexpr size_t kDescriptionColumn = 30;
constexpr size_t kNarrowWidth = 72;
constexpr size_t kNarrowDescriptionColumn = 6;
constexpr char kExamplesHeading[] = "Examples:";
constexpr absl::string_view kBetweenColumns = "  ";

size_t ColumnOf(const std::string& text) { return text.size() - (text.rfind('\n') + 1); }

// Appends the words of `words` to *text, and continues lines after `indent` blanks.
void AppendWrapped(absl::string_view words, size_t indent, size_t width, std::string* text) {
  bool is_first = true;
  for (const absl::string_view word : absl::StrSplit(words, ' ', absl::SkipEmpty())) {
    if (!is_first && ColumnOf(*text) + 1 + word.size() > width) {
      absl::StrAppend(text, "\n", std::string(indent, ' '));
    } else if (!is_first) {
      *text += ' ';
    }
    absl::StrAppend(text, word);
    is_first = false;
  }
}

// A name and its description, in two columns.
std::string TwoColumns(const std::string& name, const std::string& description, size_t width) {
  const size_t column = width < kNarrowWidth ? kNarrowDescriptionColumn : kDescriptionColumn;
  std::string text(kBetweenColumns);
  AppendWrapped(name, kNarrowDescriptionColumn, width, &text);
  if (!description.empty()) {
    if (ColumnOf(text) >= column) text += '\n';
    text.append(column - ColumnOf(text), ' ');
    AppendWrapped(description, column, width, &text);
  }
  return text + '\n';
}

// A line of a footer.
std::string FooterLine(absl::string_view line, size_t width) {
  const size_t first = line.find_first_not_of(' ');
  const size_t gap = line.find(kBetweenColumns, first);
  const size_t second = line.find_first_not_of(' ', gap);
  const bool is_row = second != line.npos && line.find(kBetweenColumns, second) != line.npos;
  if (line.size() <= width || is_row) return std::string(line);
  const size_t indent = second == line.npos ? first : second;
  std::string text(line.substr(0, indent));
  AppendWrapped(line.substr(indent), indent, width, &text);
  return text;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  explicit HelpFormatter(size_t width) : width_(width) {}

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return TwoColumns(make_option_name(option, is_positional) + make_option_opts(option),
                      make_option_desc(option), width_);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string needs = Formatter::make_option_opts(option);
    // The heading says that a group allows one of several.
    return option->get_excludes().size() > 1 ? needs.substr(0, needs.find(" Excludes:")) : needs;
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return TwoColumns(command->get_display_name(true), command->get_description(), width_);
  }
  std::string make_description(const CLI::App* app) const override {
    return Lines(Formatter::make_description(app));
  }
  std::string make_footer(const CLI::App* app) const override {
    return Lines(Formatter::make_footer(app));
  }

 private:
  std::string Lines(const std::string& text) const {
    return absl::StrJoin(
        absl::StrSplit(text, '\n'), "\n",
        [this](std::string* out, absl::string_view line) { *out += FooterLine(line, width_); });
  }

  const size_t width_;
};

}  // namespace

int HelpWidth() {
  int columns = 0;
  winsize size = {};
  if (!absl::SimpleAtoi(EnvironmentVariable("COLUMNS"), &columns) || columns <= 0) {
    const bool is_terminal = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    columns = is_terminal && size.ws_col > 0 ? size.ws_col : kUsualWidth;
  }
  return std::max(columns, kLeastWidth);
}

std::shared_ptr<CLI::FormatterBase> MakeHelpFormatter(int width) {
  return std::make_shared<HelpFormatter>(width);
}

void AddExamples(CLI::App* app, std::initializer_list<absl::string_view> lines) {
  std::string footer = app->get_footer();
  if (!footer.empty()) footer += "\n\n";
  app->footer(absl::StrCat(footer, kExamplesHeading, "\n  ", absl::StrJoin(lines, "\n  ")));
}

std::vector<std::string> ExamplesOf(const CLI::App* app) {
  const std::string footer = app->get_footer();
  const size_t at = footer.find(kExamplesHeading);
  if (at == footer.npos) return {};
  const std::string lines =
      absl::StrReplaceAll(footer.substr(at + sizeof(kExamplesHeading)), {{"\\\n", ""}});
  return absl::StrSplit(absl::StripLeadingAsciiWhitespace(lines), "\n  ");
}

}  // namespace tandem
