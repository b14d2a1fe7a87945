#include "tools/bench/lab_sections.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/format.h"
#include "tools/report.h"

namespace tandem::lab {
namespace {

using Json = JsonValue;
using Form = ChartSeries::Form;

// A measurement within this factor of its limit may be at the limit.
constexpr double kAtLimit = 1.02;
// A cache whose measured speed is at most this factor of memory's is not a limit of its own: on a
// virtual machine other guests may fill it.
constexpr double kFasterThanMemory = 1.1;
// Prompts whose speed is at least this share of the best are on its plateau.
constexpr double kPlateau = 0.75;
}  // namespace

double Number(const Json& row, const char* field) {
  const auto found = row.find(field);
  return found == row.end() || !found->is_number() ? 0.0 : found->get<double>();
}

std::string Text(const Json& row, const char* field) {
  const auto found = row.find(field);
  return found == row.end() || !found->is_string() ? "" : found->get<std::string>();
}

std::vector<Json> RowsOf(const Json& part, const char* field) {
  const auto found = part.find(field);
  if (found == part.end() || !found->is_array()) return {};
  return found->get<std::vector<Json>>();
}

std::string Bytes(double bytes) {
  return bytes >= 1e9 ? absl::StrCat(ThreeDigits(bytes * 1e-9), " GB")
                      : absl::StrCat(ThreeDigits(bytes * 1e-6), " MB");
}
std::string BytesPerSecond(double rate) { return absl::StrCat(ThreeDigits(rate * 1e-9), " GB/s"); }
std::string Percent(double share) { return Format("%.0f\u00a0%%", 100 * share); }

// The last part of a model's path.
std::string NameOfModel(const Json& model) {
  const std::vector<std::string> parts =
      absl::StrSplit(Text(model, "path"), '/', absl::SkipEmpty());
  return parts.empty() ? "the model" : parts.back();
}

Roofs Roofs::Of(const Json& report) {
  const Json& limits = report["limits"];
  Roofs roofs;
  roofs.memory = Number(limits["read_bytes_per_second"], "dram");
  const double cache = Number(limits["read_bytes_per_second"], "cache");
  if (cache > roofs.memory * kFasterThanMemory) roofs.cache = cache;
  roofs.input = Text(report["target"], "products");
  roofs.peak = Number(limits["flops"], roofs.input.c_str());
  roofs.is_cached = Text(report["target"], "weights_in") == "cache";
  return roofs;
}

double Roofs::LeastMs(const Json& row) const {
  const double operations = Number(row, "flops") * Number(row, "ms");
  return std::max(1e3 * Number(row, "bytes") / reading(), operations / peak);
}

namespace {

// ---- Charts ----

// The points of a chart that are better than a limit have rings. Collects why.
class Marks {
 public:
  explicit Marks(const Roofs& roofs) : roofs_(roofs) {}

  // Whether the time of a row is shorter than the limits allow.
  bool Exceeds(const Json& row) {
    const bool exceeds = Number(row, "ms") * kAtLimit < roofs_.LeastMs(row);
    if (exceeds) Note(row);
    return exceeds;
  }
  // Whether a row reads faster than memory or computes faster than the peak.
  bool ExceedsMemory(const Json& row) {
    const bool exceeds = Number(row, "bytes_per_second") > kAtLimit * roofs_.memory ||
                         Number(row, "flops") > kAtLimit * roofs_.peak;
    if (exceeds) Note(row);
    return exceeds;
  }
  std::string Text() const {
    return varies_ ? "above the limit as measured: it varies"
                   : "above the limit of memory: served by cache";
  }

 private:
  void Note(const Json& row) {
    const bool is_over_cache =
        roofs_.cache.has_value() && Number(row, "bytes_per_second") > kAtLimit * *roofs_.cache;
    varies_ |= is_over_cache || Number(row, "flops") > kAtLimit * roofs_.peak;
  }

  const Roofs& roofs_;
  bool varies_ = false;
};

// A curve of times with the least times that the limits allow.
Chart TimeChart(std::string title, const std::vector<Json>& rows, const char* x_field,
                const std::string& unit, const Roofs& roofs) {
  Chart chart{.title = std::move(title)};
  ChartSeries measured{.form = Form::kDottedLine, .colour = 0, .label = "measured"};
  ChartSeries limit{.form = Form::kLimit, .label = "least time that\nthe limits allow"};
  Marks marks(roofs);
  for (const Json& row : rows) {
    const double x = Number(row, x_field), ms = Number(row, "ms");
    measured.points.push_back(
        {.x = x,
         .y = ms,
         .title = absl::StrCat(ThreeDigits(x), " ", unit, ": ", ThreeDigits(ms), " ms, limited by ",
                               Text(row, "bound")),
         .is_marked = marks.Exceeds(row)});
    limit.points.push_back({.x = x, .y = roofs.LeastMs(row)});
  }
  chart.series = {std::move(limit), std::move(measured)};
  chart.mark = marks.Text();
  return chart;
}

// ---- Sections ----

constexpr Column kPromptColumns[] = {{"tokens", "prompt_tokens"},
                                     {"ms", "ms", "%.1f"},
                                     {"tokens/s", "tokens_per_second", "%.1f"},
                                     {"operations per byte", "intensity", "%.1f"},
                                     {"GB/s", "bytes_per_second", "%.2f", 1e-9},
                                     {"Gflop/s", "flops", "%.1f", 1e-9},
                                     {"share of the limit", "of_limit", "%.2f"},
                                     {"limited by", "bound"}};
constexpr Column kTokenColumns[] = {{"position", "position"},
                                    {"ms", "ms", "%.2f"},
                                    {"tokens/s", "tokens_per_second", "%.1f"},
                                    {"MB read", "bytes", "%.1f", 1e-6},
                                    {"operations per byte", "intensity", "%.2f"},
                                    {"GB/s", "bytes_per_second", "%.2f", 1e-9},
                                    {"share of the limit", "of_limit", "%.2f"},
                                    {"limited by", "bound"}};
constexpr Column kPassColumns[] = {{"sequences", "batch"},
                                   {"tokens of each", "rows"},
                                   {"ms", "ms", "%.2f"},
                                   {"times one token", "of_one_row", "%.2f"},
                                   {"operations per byte", "intensity", "%.1f"},
                                   {"GB/s", "bytes_per_second", "%.2f", 1e-9},
                                   {"Gflop/s", "flops", "%.1f", 1e-9},
                                   {"share of the limit", "of_limit", "%.2f"},
                                   {"limited by", "bound"}};
constexpr Column kRoofColumns[] = {{"what", "what"},
                                   {"operations per byte", "intensity", "%.2f"},
                                   {"Gflop/s", "flops", "%.1f", 1e-9},
                                   {"GB/s", "bytes_per_second", "%.2f", 1e-9}};
constexpr Column kGainColumns[] = {{"task", "task"},
                                   {"k", "draft_tokens"},
                                   {"times plain", "gain", "%.2f"},
                                   {"tokens/s", "tokens_per_second", "%.1f"},
                                   {"share kept", "acceptance_rate", "%.2f"},
                                   {"proposed", "proposed"},
                                   {"kept", "accepted"}};

// A part that has no measurements, because Ctrl-C came first.
Section Missing(absl::string_view what) {
  return {.heading = absl::StrCat(what, " was not measured: Ctrl-C came first")};
}

double BestRate(const std::vector<Json>& rows) {
  double best = 0.0;
  for (const Json& row : rows) best = std::max(best, Number(row, "tokens_per_second"));
  return best;
}

// "685 to 888 tokens/s from 64 tokens on".
std::string PlateauText(const std::vector<Json>& rows) {
  const double best = BestRate(rows);
  const auto begin = absl::c_find_if(rows, [best](const Json& row) {
    return Number(row, "tokens_per_second") >= kPlateau * best;
  });
  double least = best;
  for (auto row = begin; row != rows.end(); ++row) {
    least = std::min(least, Number(*row, "tokens_per_second"));
  }
  const std::string low = ThreeDigits(least), high = ThreeDigits(best);
  if (least < kPlateau * best) return absl::StrCat("up to ", high, " tokens/s");
  return absl::StrCat(low == high ? "" : absl::StrCat(low, " to "), high, " tokens/s from ",
                      ThreeDigits(Number(*begin, "prompt_tokens")), " tokens on");
}

Section PromptSection(const Json& report) {
  const Json& part = report["phases"];
  const std::vector<Json> rows = RowsOf(part, "prefill");
  if (rows.empty()) return Missing("Reading a prompt");
  const Roofs roofs = Roofs::Of(report);
  const Json& last = rows.back();
  Section section{.columns = kPromptColumns, .rows = rows, .part = &part};
  if (Text(last, "bound") == "arithmetic") {
    section.heading =
        absl::StrCat("Reading a prompt is limited by arithmetic: ", PlateauText(rows));
    section.paragraphs.push_back(absl::StrCat(
        "A prompt of ", ThreeDigits(Number(last, "prompt_tokens")), " tokens computes ",
        ThreeDigits(Number(last, "flops") * 1e-9), " Gflop/s; this machine's ", roofs.input,
        " multiply-adds could do ", ThreeDigits(roofs.peak * 1e-9), "."));
  } else {
    section.heading =
        absl::StrCat("Reading a prompt of ", ThreeDigits(Number(last, "prompt_tokens")),
                     " tokens is still limited by reading the weights: up to ",
                     ThreeDigits(BestRate(rows)), " tokens/s");
  }
  section.paragraphs.insert(
      section.paragraphs.begin(),
      "Reading (prefill) sends the tokens of the prompt through the model together, so the weights "
      "are read once for hundreds of tokens. Where the curve is flat, reading the weights takes "
      "the time. Where it rises with the length, multiplying does.");
  Chart chart = TimeChart("Time to the first token by the length of the prompt", rows,
                          "prompt_tokens", "tokens", roofs);
  chart.x = {.title = "tokens of the prompt", .is_log = true, .base = 2};
  chart.y = {.title = "time to the first token (ms)", .is_log = true};
  section.charts = {std::move(chart)};
  return section;
}

Section TokenSection(const Json& report) {
  const Json& part = report["phases"];
  const std::vector<Json> rows = RowsOf(part, "decode");
  if (rows.empty()) return Missing("Writing");
  const Roofs roofs = Roofs::Of(report);
  const Json& first = rows.front();
  const Json& last = rows.back();
  const std::string bound = Text(first, "bound");
  const double rate = Number(first, "bytes_per_second");
  Section section{.columns = kTokenColumns, .rows = rows, .part = &part};
  section.heading = absl::StrCat("Writing is limited by ",
                                 bound == "memory"  ? "memory"
                                 : bound == "cache" ? "reading the weights"
                                                    : "arithmetic, too",
                                 ": one token reads ", Bytes(Number(first, "bytes")), ", at ",
                                 BytesPerSecond(rate), " that is ",
                                 ThreeDigits(Number(first, "tokens_per_second")), " tokens/s");
  section.paragraphs.push_back(absl::StrCat(
      "Writing (decode) needs a pass of its own for every token, because each depends "
      "on the one before, and every pass reads all weights. Memory gives ",
      BytesPerSecond(roofs.memory),
      roofs.cache.has_value()
          ? absl::StrCat(", the last-level cache ", BytesPerSecond(*roofs.cache))
          : "",
      roofs.is_cached && roofs.cache.has_value() ? " (it is large enough for these weights)" : "",
      "; the multiply-adds alone would take ",
      Percent(Number(first, "flops") / std::max(roofs.peak, 1.0)), " of the time."));
  if (rows.size() > 1) {
    const double per_token = Number(report["target"], "kv_bytes_per_token");
    section.paragraphs.push_back(absl::StrCat(
        "A pass also reads the keys and values of all tokens before it, ",
        ThreeDigits(per_token * 1e-3), " KB each. At position ",
        ThreeDigits(Number(last, "position")), " these are ",
        Bytes(per_token * Number(last, "position")), ", and a token takes ",
        Format("%.2f", Number(last, "ms") / Number(first, "ms")), " times as long as at position ",
        ThreeDigits(Number(first, "position")), "."));
  }
  Chart chart =
      TimeChart("Time per token by its position", rows, "position", "tokens before", roofs);
  chart.x = {.title = "position of the token"};
  chart.y = {.title = "time per token (ms)"};
  section.charts = {std::move(chart)};
  return section;
}

double SequencesOf(const Json& row) { return row.contains("batch") ? Number(row, "batch") : 1.0; }
double TokensOf(const Json& row) { return Number(row, "rows") * SequencesOf(row); }

// The passes with one sequence, or those with several, and their intensities.
std::vector<Json> PassRows(const Json& report) {
  std::vector<Json> rows = RowsOf(report["passes"], "rows");
  for (Json& row : rows) {
    row["batch"] = static_cast<int>(SequencesOf(row));
    row["intensity"] = Number(row, "flops") / Number(row, "bytes_per_second");
  }
  return rows;
}

Section PassSection(const Json& report) {
  const Json& part = report["passes"];
  const std::vector<Json> rows = PassRows(report);
  if (rows.empty()) return Missing("The size of a pass");
  std::vector<Json> single, several;
  for (const Json& row : rows) (SequencesOf(row) > 1 ? several : single).push_back(row);
  // The best bargain among the sizes of a draft's check.
  constexpr double kLargestCheck = 16;
  const Json* best = &single.front();
  const auto bargain = [](const Json& row) { return TokensOf(row) / Number(row, "of_one_row"); };
  for (const Json& row : single) {
    if (TokensOf(row) <= kLargestCheck && bargain(row) > bargain(*best)) best = &row;
  }
  const Roofs roofs = Roofs::Of(report);
  Section section{.columns = kPassColumns, .rows = rows, .part = &part};
  section.heading = TokensOf(*best) > 1
                        ? Format("%.0f tokens in one pass take only %.2f times as long as one",
                                 TokensOf(*best), Number(*best, "of_one_row"))
                        : "A second token in a pass costs as much as the first";
  section.paragraphs = {
      "A pass reads the weights once, however many tokens it computes. More tokens are almost free "
      "until arithmetic takes longer than reading; from there on the time rises with their number.",
      absl::StrCat("Three things live on this: a prompt, the check of a draft's tokens "
                   "(verification), and a batch, in which a server writes one token for each of "
                   "several requests. A batch gains a little less, because each request has keys "
                   "and values of its own, here of ",
                   ThreeDigits(Number(rows.front(), "context")), " tokens.")};
  Chart chart =
      TimeChart("Time of a pass by its number of tokens", single, "rows", "tokens", roofs);
  chart.series[1].label = "tokens of\none sequence";
  if (several.size() > 1) {
    ChartSeries batch{.form = Form::kDottedLine, .colour = 1};
    for (const Json& row : several) {
      batch.points.push_back({.x = TokensOf(row),
                              .y = Number(row, "ms"),
                              .title = absl::StrCat(ThreeDigits(TokensOf(row)), " sequences: ",
                                                    ThreeDigits(Number(row, "ms")), " ms"),
                              .is_marked = Marks(roofs).Exceeds(row)});
    }
    batch.points.back().label = absl::StrCat("a batch of ", ThreeDigits(TokensOf(several.back())));
    chart.series.push_back(std::move(batch));
  }
  chart.x = {.title = "tokens in the pass", .is_log = true, .base = 2};
  chart.y = {.title = "time of the pass (ms)", .is_log = true};
  section.charts = {std::move(chart)};
  return section;
}

// The points of the roofline.
struct RoofPoints {
  Marks marks;
  std::vector<Json> rows = {};  // all, for the table
  std::vector<ChartSeries> series = {};

  void Add(Form form, int colour, const std::vector<Json>& of, const char* what,
           const char* field) {
    // In a long line every third point, and the last.
    const auto is_labelled = [&of](const Json& row) {
      return (&row - of.data()) % 3 == 0 || &row == &of.back();
    };
    ChartSeries dots{.form = form, .colour = colour};
    for (const Json& row : of) {
      const std::string name = absl::StrCat(what, " ", ThreeDigits(Number(row, field)));
      const double flops = Number(row, "flops"), read = Number(row, "bytes_per_second");
      rows.push_back({{"what", name},
                      {"intensity", row["intensity"]},
                      {"flops", flops},
                      {"bytes_per_second", read}});
      dots.points.push_back({.x = Number(row, "intensity"),
                             .y = flops * 1e-9,
                             .title = absl::StrCat(name, ": ", ThreeDigits(flops * 1e-9),
                                                   " Gflop/s, ", BytesPerSecond(read)),
                             .label = is_labelled(row) ? name : "",
                             .is_marked = marks.ExceedsMemory(row)});
    }
    if (!of.empty()) series.push_back(std::move(dots));
  }
};

// The first and the last row: those between hardly differ in intensity.
std::vector<Json> Ends(const std::vector<Json>& rows) {
  if (rows.size() <= 2) return rows;
  return {rows.front(), rows.back()};
}

Section RooflineSection(const Json& report) {
  const Roofs roofs = Roofs::Of(report);
  const std::vector<Json> decode = RowsOf(report["phases"], "decode");
  std::vector<Json> single;
  for (const Json& row : PassRows(report)) {
    if (SequencesOf(row) == 1) single.push_back(row);
  }
  RoofPoints points{.marks = Marks(roofs)};
  points.Add(Form::kDots, 1, Ends(decode), "token at", "position");
  points.Add(Form::kDottedLine, 0, single, "pass of", "rows");
  points.Add(Form::kDots, 2, Ends(RowsOf(report["phases"], "prefill")), "prompt of",
             "prompt_tokens");
  if (points.rows.empty()) return Missing("The roofline");
  double least = INFINITY, most = 0.0;
  for (const Json& row : points.rows) {
    least = std::min(least, Number(row, "intensity"));
    most = std::max(most, Number(row, "intensity"));
  }
  const double ridge = roofs.peak / roofs.reading();
  least /= 2;
  most = std::max(2 * most, 2 * ridge);
  Chart chart{.title = "Operations per second by operations per byte, under the machine's limits",
              .x = {.title = "operations per byte read", .is_log = true},
              .y = {.title = "Gflop/s", .is_log = true},
              .mark = points.marks.Text()};
  const auto add_slope = [&](const std::string& name, double rate, bool at_end) {
    const std::string label = absl::StrCat(name, " ", BytesPerSecond(rate));
    chart.series.push_back(
        {.form = Form::kLimit,
         .points = {
             {.x = least, .y = least * rate * 1e-9, .label = at_end ? "" : label},
             {.x = roofs.peak / rate, .y = roofs.peak * 1e-9, .label = at_end ? label : ""}}});
  };
  add_slope("memory", roofs.memory, /*at_end=*/false);
  if (roofs.cache.has_value()) add_slope("last-level cache", *roofs.cache, /*at_end=*/true);
  chart.series.push_back(
      {.form = Form::kLimit,

       .points = {{.x = roofs.peak / roofs.cache.value_or(roofs.memory), .y = roofs.peak * 1e-9},
                  {.x = most,
                   .y = roofs.peak * 1e-9,
                   .label = absl::StrCat(roofs.input, " multiply-adds ",
                                         ThreeDigits(roofs.peak * 1e-9), " Gflop/s")}}});
  for (ChartSeries& series : points.series) chart.series.push_back(std::move(series));
  const double token = decode.empty() ? Number(points.rows.front(), "intensity")
                                      : Number(decode.front(), "intensity");
  Section section{.columns = kRoofColumns,
                  .rows = points.rows,
                  .part = &report[single.empty() ? "phases" : "passes"]};
  const auto count = [](double operations) {
    return operations < 10 ? Format("%.1f", operations) : Format("%.0f", operations);
  };
  section.heading = absl::StrCat(
      "A token needs ", count(token), " operations for each byte it reads, ",
      token < ridge ? "and this machine has time for " : "and this machine has time for only ",
      count(ridge));
  section.paragraphs = {
      "This is the roofline. A point's place from left to right is its arithmetic intensity, the "
      "operations that it does for each byte it reads; its height is how many it does in a second. "
      "The roof is what the machine can do: on the left the speed of reading limits, on the right "
      "the peak of multiply-adds. The line is a pass of more and more tokens.",
      "More tokens in a pass do more with the same bytes, so they move a point to the right and, "
      "as long as reading limits it, up. A multiply-add counts as two operations."};
  section.charts = {std::move(chart)};
  return section;
}

std::vector<Json> GainRows(const Json& part) {
  std::vector<Json> rows;
  for (const Json& task : RowsOf(part, "tasks")) {
    for (const Json& run : RowsOf(task, "runs")) {
      rows.push_back({{"task", Text(task, "task")}});
      rows.back().update(run);
    }
  }
  return rows;
}

// Speed-up by draft length, a line for each task.
Chart GainByLength(const Json& part) {
  Chart chart{.title = "Speed-up by the number of tokens that the draft proposes",
              .x = {.title = "draft tokens per pass, k"},
              .y = {.title = "speed of writing, plain = 1"}};
  double longest = 0.0;
  int colour = 0;
  for (const Json& task : RowsOf(part, "tasks")) {
    ChartSeries line{.colour = colour++ % kNumChartColours, .label = Text(task, "task")};
    for (const Json& run : RowsOf(task, "runs")) {
      const double k = Number(run, "draft_tokens");
      longest = std::max(longest, k);
      line.points.push_back(
          {.x = k,
           .y = Number(run, "gain"),
           .title = Format("%s, k = %.0f: %.2f", Text(task, "task"), k, Number(run, "gain"))});
    }
    chart.series.push_back(std::move(line));
  }
  chart.series.insert(chart.series.begin(), {.form = Form::kLimit,
                                             .label = "plain",
                                             .points = {{.x = 0, .y = 1}, {.x = longest, .y = 1}}});
  return chart;
}

// Speed-up by the share of draft tokens kept: the points of all tasks, and for each k the line that
// the measured costs predict, (1 + k share) / (1 + k cost).
Chart GainByShare(const Json& part, double cost) {
  Chart chart{.title = "Speed-up by the share of draft tokens that are kept",
              .x = {.title = "share of the draft's tokens that are kept (%)", .at_least = 95},
              .y = {.title = "speed of writing, plain = 1"}};
  int colour = 0;
  for (const Json& run : RowsOf(part, "all")) {
    const double k = Number(run, "draft_tokens");
    if (k == 0) continue;
    const auto gain = [&](double share) { return (1 + k * share) / (1 + k * cost); };
    chart.series.push_back({.form = Form::kDashed,
                            .colour = colour % kNumChartColours,
                            .label = Format("k = %.0f", k),
                            .points = {{.x = 0, .y = gain(0)}, {.x = 100, .y = gain(1)}}});
    ChartSeries dots{.form = Form::kDots, .colour = colour++ % kNumChartColours, .label = ""};
    for (const Json& row : GainRows(part)) {
      if (Number(row, "draft_tokens") != k) continue;
      const double share = Number(row, "acceptance_rate");
      dots.points.push_back({.x = 100 * share,
                             .y = Number(row, "gain"),
                             .title = Format("%s, k = %.0f: %s kept, %.2f", Text(row, "task"), k,
                                             Percent(share), Number(row, "gain"))});
    }
    chart.series.push_back(std::move(dots));
  }
  return chart;
}

Section SpeculationSection(const Json& report) {
  if (report["draft"].is_null()) {
    return {.heading = "The speed-up of speculation was not measured without a draft",
            .paragraphs = {"A draft is a small model whose tokens the large one checks, several in "
                           "one pass. Give one with -md: tandem lab -m TARGET -md DRAFT."}};
  }
  const Json& part = report["speculation"];
  if (const std::string error = Text(part, "error"); !error.empty()) {
    return {.heading = "The speed-up of speculation was not measured", .paragraphs = {error}};
  }
  const std::vector<Json> all = RowsOf(part, "all");
  if (all.empty()) return Missing("The speed-up of speculation");
  const double gain = Number(part, "gain");
  const double k = Number(part, "best_draft_tokens");
  const double cost = Number(part, "step_cost") + Number(part, "row_cost");
  Section section{.columns = kGainColumns, .rows = GainRows(part), .part = &part};
  section.heading = k > 0 && gain >= kPayingGain
                        ? Format(
                              "A draft makes writing %.2f times as fast: it proposes %.0f token%s, "
                              "and one pass checks %s",
                              gain, k, k == 1 ? "" : "s", k == 1 ? "it" : "them")
                        : "This draft does not make writing faster here";
  section.paragraphs = {
      absl::StrCat("Speculative decoding fills the passes that wait for memory: ",
                   NameOfModel(report["draft"]), " guesses the next k tokens, and one pass of ",
                   NameOfModel(report["target"]),
                   " checks them all. Guesses that it would have written itself are kept, so the "
                   "text stays the same."),
      // The option stays in one line.
      absl::StrReplaceAll(Text(part, "verdict"), {{"-k ", "\u2011k\u00a0"}}),
      Format("A guess costs %.2f of a plain pass: %.2f for the draft's step and %.2f for "
             "the row that checks it. In the second picture the lines are what these "
             "costs predict, (1 + k share) / (1 + %.2f k), and all meet at 1: a draft "
             "pays where more than %s of its tokens are kept.",
             cost, Number(part, "step_cost"), Number(part, "row_cost"), cost, Percent(cost))};
  section.charts = {GainByLength(part), GainByShare(part, cost)};
  return section;
}

}  // namespace

std::vector<Section> SectionsOf(const Json& report) {
  return {PromptSection(report), TokenSection(report), PassSection(report), RooflineSection(report),
          SpeculationSection(report)};
}

}  // namespace tandem::lab
