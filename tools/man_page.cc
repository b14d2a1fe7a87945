#include "tools/man_page.h"

#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tools/command_line.h"
#include "tools/help_text.h"

namespace tandem {
namespace {

// Returns one line of text in roff. A dash stays a dash, which can be copied to a command line.
std::string Escaped(absl::string_view text) {
  std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
  const bool is_request = absl::StartsWith(escaped, ".") || absl::StartsWith(escaped, "'");
  return is_request ? absl::StrCat("\\&", escaped) : escaped;
}

std::string PageName(const CLI::App* app) {
  return absl::StrReplaceAll(FullName(app), {{" ", "-"}});
}

std::string Tagged(absl::string_view head, absl::string_view text) {
  return absl::StrCat(".TP\n", head, "\n", Escaped(text), "\n");
}

std::string TaggedOption(const CLI::Option* option, bool is_positional,
                         const CLI::Formatter& help) {
  const std::string needs = help.make_option_opts(option);
  return Tagged(
      absl::StrCat("\\fB", Escaped(help.make_option_name(option, is_positional)), "\\fR",
                   needs.empty() ? "" : " \\fI", Escaped(needs.empty() ? "" : needs.substr(1)),
                   needs.empty() ? "" : "\\fR"),
      help.make_option_desc(option));
}

void AppendOptions(const CLI::App* app, const CLI::Formatter& help, std::string* page) {
  const std::vector<const CLI::Option*> arguments =
      app->get_options([](const CLI::Option* option) { return option->get_positional(); });
  if (!arguments.empty()) absl::StrAppend(page, ".SH ARGUMENTS\n");
  for (const CLI::Option* each : arguments) absl::StrAppend(page, TaggedOption(each, true, help));
  absl::StrAppend(page, ".SH OPTIONS\n");
  for (const std::string& group : app->get_groups()) {
    const std::vector<const CLI::Option*> options =
        app->get_options([&](const CLI::Option* option) {
          return option->get_group() == group && option->nonpositional();
        });
    if (group.empty() || options.empty()) continue;
    if (group != "Options") absl::StrAppend(page, ".SS ", Escaped(group), "\n");
    for (const CLI::Option* each : options) absl::StrAppend(page, TaggedOption(each, false, help));
  }
}

// Appends the paragraphs of a footer; rows of tables stay lines.
void AppendNotes(const CLI::App* app, std::string* page) {
  std::string notes = app->get_footer();
  notes = std::string(absl::StripAsciiWhitespace(notes.substr(0, notes.find("Examples:\n"))));
  if (!notes.empty()) absl::StrAppend(page, ".SH NOTES\n");
  bool is_table = false;
  bool is_first = true;
  for (const absl::string_view line : absl::StrSplit(notes, '\n', absl::SkipWhitespace())) {
    const bool is_row = absl::StrContains(absl::StripAsciiWhitespace(line), "  ");
    if (is_row != is_table) absl::StrAppend(page, is_row ? ".PP\n.nf\n" : ".fi\n");
    if (!is_row && !is_first) absl::StrAppend(page, ".PP\n");
    absl::StrAppend(page, Escaped(line), "\n");
    is_table = is_row;
    is_first = false;
  }
  if (is_table) absl::StrAppend(page, ".fi\n");
  const std::vector<std::string> examples = ExamplesOf(app);
  if (examples.empty()) return;
  absl::StrAppend(page, ".SH EXAMPLES\n.nf\n");
  for (const std::string& example : examples) absl::StrAppend(page, Escaped(example), "\n");
  absl::StrAppend(page, ".fi\n");
}

std::string PageOf(const CLI::App* app, const std::vector<const CLI::App*>& commands,
                   absl::string_view version) {
  // MakeHelpFormatter's, or CLI11's own, both of which are this.
  const auto& help = dynamic_cast<const CLI::Formatter&>(*app->get_formatter());
  const std::string name = PageName(app);
  std::string brief = Escaped(absl::StripSuffix(app->get_description(), "."));
  std::string page =
      absl::StrCat(".TH ", absl::AsciiStrToUpper(Escaped(name)), " 1 \"\" \"tandem ", version,
                   "\" \"User Commands\"\n.SH NAME\n", Escaped(name), " \\- ", brief,
                   "\n.SH SYNOPSIS\n\\fB", Escaped(FullName(app)), "\\fR [\\fIOPTIONS\\fR]");
  for (const CLI::Option* each : app->get_options()) {
    if (each->get_positional()) absl::StrAppend(&page, " ", Escaped(help.make_option_usage(each)));
  }
  absl::StrAppend(&page, commands.empty() ? "\n" : " \\fICOMMAND\\fR\n");
  if (!commands.empty()) absl::StrAppend(&page, ".SH COMMANDS\n");
  for (const CLI::App* each : commands) {
    absl::StrAppend(&page, Tagged(absl::StrCat("\\fB", Escaped(PageName(each)), "\\fR(1)"),
                                  each->get_description()));
  }
  AppendOptions(app, help, &page);
  AppendNotes(app, &page);
  if (app->get_parent() != nullptr) {
    absl::StrAppend(&page, ".SH SEE ALSO\n\\fB", Escaped(PageName(app->get_parent())), "\\fR(1)\n");
  }
  return page;
}

}  // namespace

std::map<std::string, std::string> ManPagesOf(const CLI::App* app, absl::string_view version) {
  const std::vector<const CLI::App*> commands =
      app->get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
  std::map<std::string, std::string> pages = {{PageName(app), PageOf(app, commands, version)}};
  for (const CLI::App* each : commands) pages.merge(ManPagesOf(each, version));
  return pages;
}

}  // namespace tandem
