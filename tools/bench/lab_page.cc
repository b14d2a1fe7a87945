#include "tools/bench/lab_page.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "tandem/json_value.h"
#include "tools/bench/lab_chart.h"
#include "tools/bench/lab_sections.h"
#include "tools/bench/lab_style.h"
#include "tools/report.h"

namespace tandem {
namespace lab {
namespace {

using Json = JsonValue;

constexpr int kWideChart = 720;
constexpr int kNarrowChart = 360;

std::string Element(const char* tag, const std::string& text) {
  return absl::StrCat("<", tag, ">", EscapeHtml(text), "</", tag, ">");
}

std::string TableOf(const Section& section) {
  std::string html =
      "<details><summary>The figures</summary><div class=\"scroll\"><table><thead><tr>";
  for (const Column& column : section.columns) {
    absl::StrAppend(&html, "<th scope=\"col\">", EscapeHtml(column.heading), "</th>");
  }
  absl::StrAppend(&html, "</tr></thead><tbody>");
  for (const Json& row : section.rows) {
    absl::StrAppend(&html, "<tr>");
    for (const Column& column : section.columns) {
      absl::StrAppend(&html, Element("td", CellOf(row, column)));
    }
    absl::StrAppend(&html, "</tr>");
  }
  return absl::StrCat(html, "</tbody></table></div></details>");
}

std::string HtmlOf(const Section& section) {
  std::string html = absl::StrCat("<section><div class=\"text\">", Element("h2", section.heading));
  for (const std::string& paragraph : section.paragraphs) {
    absl::StrAppend(&html, Element("p", paragraph));
  }
  if (section.part != nullptr && section.part->value("disturbed", false)) {
    absl::StrAppend(&html, "<p class=\"busy\">Disturbed: other programs took ",
                    Percent(Number(*section.part, "share_of_others")),
                    " of the processors' time while this was measured. Measure again when the "
                    "machine is idle.</p>");
  }
  absl::StrAppend(&html, "</div><figure>");
  for (const Chart& chart : section.charts) {
    absl::StrAppend(&html, "<div class=\"wide\">", ChartSvg(chart, kWideChart),
                    "</div><div class=\"narrow\">", ChartSvg(chart, kNarrowChart), "</div>");
  }
  if (!section.rows.empty()) html += TableOf(section);
  return absl::StrCat(html, "</figure></section>");
}

// The four figures to remember.
std::string TilesOf(const Json& report) {
  std::string html;
  const auto add = [&html](const std::string& value, const std::string& what) {
    absl::StrAppend(&html, "<li><b>", EscapeHtml(value), "</b> ", EscapeHtml(what), "</li>");
  };
  const std::vector<Json> prefill = RowsOf(report["phases"], "prefill");
  const std::vector<Json> decode = RowsOf(report["phases"], "decode");
  if (!prefill.empty() && !decode.empty()) {
    double read = 0.0;
    for (const Json& row : prefill) read = std::max(read, Number(row, "tokens_per_second"));
    const double written = Number(decode.front(), "tokens_per_second");
    add(ThreeDigits(read), "tokens read in a second");
    add(ThreeDigits(written), "tokens written in a second");
    add(Format("%.1f", read / written), "times faster to read than to write");
  }
  if (report["speculation"].is_object() && Number(report["speculation"], "gain") >= kPayingGain) {
    add(Format("%.2f", Number(report["speculation"], "gain")),
        "times faster to write with a draft");
  }
  return html.empty() ? "" : absl::StrCat("<ul class=\"tiles\">", html, "</ul>");
}

std::string ModelText(const Json& model) {
  if (model.is_null()) return "none";
  return absl::StrCat(Text(model, "path"), ": ", ThreeDigits(Number(model, "parameters") * 1e-6),
                      " million parameters, ", Text(model, "dtype"), ", ",
                      Bytes(Number(model, "bytes_read_per_pass")), " of matrices read by a pass");
}

std::string AboutOf(const Json& report) {
  const Roofs roofs = Roofs::Of(report);
  const Json& machine = report["machine"];
  std::string html = "<section class=\"about\"><h2>How this was measured</h2><dl>";
  const auto add = [&html](const char* term, const std::string& text) {
    absl::StrAppend(&html, Element("dt", term), Element("dd", text));
  };
  add("Machine", absl::StrCat(Text(machine, "cpu"), ", ", Text(machine, "device")));
  add("Limits", absl::StrCat("memory ", BytesPerSecond(roofs.memory),
                             roofs.cache.has_value()
                                 ? absl::StrCat(", last-level cache ", BytesPerSecond(*roofs.cache))
                                 : "; the last-level cache reads no faster for this process",
                             ", ", roofs.input, " multiply-adds ", ThreeDigits(roofs.peak * 1e-9),
                             " Gflop/s, measured between the runs"));
  add("Target", ModelText(report["target"]));
  add("Draft", ModelText(report["draft"]));
  add("Method",
      "Medians of interleaved samples with random prompts; the speed-up from answers to "
      "five tasks at temperature 0, plain and with drafts in turn");
  add("Command", Text(report, "command"));
  add("Date", absl::StrCat(Text(report, "date"), ", ", Format("%.0f s", Number(report, "seconds")),
                           report.value("interrupted", false) ? ", ended by Ctrl-C" : ""));
  add("Program", Text(report, "program"));
  return absl::StrCat(
      html,
      "</dl><h2>Try next</h2><ul><li><code>tandem lab --threads 1 -o one.html</code>: half the "
      "arithmetic or less, and what happens to writing?</li><li><code>tandem lab --kv-cache int8 "
      "-o "
      "int8.html</code>: smaller keys and values, so how does the time per token rise now?</li>"
      "<li><code>tandem generate --compare</code>: one answer with and without the draft, and "
      "whether the text is the same.</li></ul></section>");
}

std::string Page(const Json& report) {
  const std::string name = NameOfModel(report["target"]);
  std::string html = absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" "
      "content=\"light dark\"><title>tandem lab: ",
      EscapeHtml(name), "</title><style>", kLabStyle, "</style></head><body><main><header><h1>",
      EscapeHtml(absl::StrCat("What limits ", name, " on this machine")),
      "</h1><p>A language model answers in two phases. It reads the prompt, all tokens together "
      "(prefill), and then writes the answer token by token (decode). Each phase has a limit of "
      "its "
      "own.</p>",
      TilesOf(report), "</header>");
  for (const Section& section : SectionsOf(report)) absl::StrAppend(&html, HtmlOf(section), "\n");
  return absl::StrCat(html, AboutOf(report), "</main></body></html>\n");
}

}  // namespace
}  // namespace lab

std::vector<std::string> LabFindings(const JsonValue& report) {
  std::vector<std::string> findings;
  for (const lab::Section& section : lab::SectionsOf(report)) findings.push_back(section.heading);
  return findings;
}

std::string LabPage(const JsonValue& report) { return lab::Page(report); }

}  // namespace tandem
