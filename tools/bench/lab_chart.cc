#include "tools/bench/lab_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/format.h"
#include "base/string_view.h"
#include "tools/report.h"

namespace tandem {
namespace {

using Form = ChartSeries::Form;

constexpr double kLetter = 6.6;  // width of a letter at the size of labels, on average
constexpr double kLine = 15.0;   // height of a line of text
constexpr double kDot = 4.0;     // radius
constexpr size_t kMaxTicks = 6;
constexpr int kWide = 600;

struct Box {
  double left, top, right, bottom;
  bool Overlaps(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
  bool IsIn(const Box& other) const {
    return other.left <= left && right <= other.right && other.top <= top && bottom <= other.bottom;
  }
};

std::vector<std::string> LinesOf(const std::string& label) { return absl::StrSplit(label, '\n'); }

double WidthOf(const std::string& label) {
  size_t most = 0;
  for (const std::string& line : LinesOf(label)) most = std::max(most, line.size());
  return kLetter * static_cast<double>(most);
}

// One axis with its scale: values to pixels.
class Scale {
 public:
  Scale(const ChartAxis& axis, std::vector<double> values, double begin, double end)
      : axis_(axis), begin_(begin), end_(end) {
    if (axis.at_least > 0) values.push_back(axis.at_least);
    std::erase_if(values, [&](double value) { return !Shows(value); });
    if (values.empty()) values.push_back(1.0);
    const auto [low, high] = absl::c_minmax_element(values);
    constexpr double kRoom = 1.2;
    low_ = axis.is_log ? *low / kRoom : axis.low;
    high_ = axis.is_log ? *high * kRoom : std::max(*high * 1.06, axis.low + 1e-9);
    ChooseTicks();
  }

  bool Shows(double value) const {
    return std::isfinite(value) && (axis_.is_log ? value > 0 : value >= axis_.low);
  }
  double Of(double value) const {
    const double share = axis_.is_log ? std::log(value / low_) / std::log(high_ / low_)
                                      : (value - low_) / (high_ - low_);
    return begin_ + share * (end_ - begin_);
  }
  const std::vector<double>& ticks() const { return ticks_; }

 private:
  void ChooseTicks() {
    if (!axis_.is_log) {
      double step = std::pow(10.0, std::floor(std::log10(high_ - low_)) - 1);
      for (const double factor : {2.0, 2.5, 2.0, 2.0, 2.5, 2.0}) {
        if ((high_ - low_) / step < kMaxTicks) break;
        step *= factor;
      }
      for (int i = 0; low_ + i * step <= high_; ++i) ticks_.push_back(low_ + i * step);
      return;
    }
    for (double step = axis_.base;; step *= axis_.base) {
      ticks_.clear();
      const double first = std::ceil(std::log(low_) / std::log(step) - 1e-9);
      for (double tick = std::pow(step, first); tick <= high_; tick *= step) {
        ticks_.push_back(tick);
      }
      if (ticks_.size() <= kMaxTicks) break;
    }
    if (ticks_.size() >= 3 || axis_.base != 10) return;
    // Less than two decades: add the values between.
    const std::vector<double> decades = {std::pow(10.0, std::floor(std::log10(low_))),
                                         std::pow(10.0, std::floor(std::log10(low_)) + 1),
                                         std::pow(10.0, std::floor(std::log10(low_)) + 2)};
    ticks_.clear();
    for (const double decade : decades) {
      for (const int factor : {1, 2, 5}) {
        if (low_ <= factor * decade && factor * decade <= high_) ticks_.push_back(factor * decade);
      }
    }
  }

  const ChartAxis& axis_;
  double begin_, end_, low_ = 0.0, high_ = 1.0;
  std::vector<double> ticks_;
};

std::string Tick(double value) { return value >= 1000 ? ThreeDigits(value) : Format("%g", value); }

class Drawing {
 public:
  Drawing(const Chart& chart, int width)
      : chart_(chart),
        width_(width),
        is_wide_(width >= kWide),
        plot_(Plot()),
        x_(chart.x, Values(&ChartPoint::x), plot_.left, plot_.right),
        y_(chart.y, Values(&ChartPoint::y), plot_.bottom, plot_.top) {}

  std::string Svg() {
    svg_ += Format(
        "<svg viewBox=\"0 0 %d %.0f\" width=\"%d\" role=\"img\" "
        "aria-label=\"%s\">",
        width_, Height(), width_, EscapeHtml(chart_.title));
    DrawAxes();
    if (!is_wide_) DrawKey();
    DrawMark();
    for (const ChartSeries& series : chart_.series) DrawSeries(series);
    if (is_wide_) DrawLabelsOfLines();
    DrawLabelsOfPoints();
    return svg_ + "</svg>";
  }

 private:
  std::vector<const ChartSeries*> Labelled() const {
    std::vector<const ChartSeries*> labelled;
    for (const ChartSeries& series : chart_.series) {
      if (!series.label.empty() && !series.points.empty()) labelled.push_back(&series);
    }
    return labelled;
  }
  bool HasMarks() const {
    return absl::c_any_of(chart_.series, [](const ChartSeries& series) {
      return absl::c_any_of(series.points, [](const ChartPoint& point) { return point.is_marked; });
    });
  }
  // The lines of text above the plot: the title of the y axis, the meaning of rings, and in a
  // narrow chart the key.
  double LinesAbove() const {
    const double key = is_wide_ ? 0.0 : static_cast<double>(Labelled().size());
    return 1.0 + (HasMarks() ? 1.0 : 0.0) + key;
  }
  double Height() const { return (is_wide_ ? 320.0 : 260.0) + kLine * LinesAbove(); }
  Box Plot() const {
    double right = 14.0;
    if (is_wide_) {
      for (const ChartSeries* series : Labelled()) {
        right = std::max(right, WidthOf(series->label) + 16);
      }
    }
    return {.left = 56,
            .top = 12 + kLine * LinesAbove(),
            .right = width_ - right,
            .bottom = Height() - 42};
  }
  std::vector<double> Values(double ChartPoint::*of) const {
    std::vector<double> values;
    for (const ChartSeries& series : chart_.series) {
      for (const ChartPoint& point : series.points) values.push_back(point.*of);
    }
    return values;
  }
  bool Shows(const ChartPoint& point) const { return x_.Shows(point.x) && y_.Shows(point.y); }
  static bool HasDots(const ChartSeries& series) {
    return series.form == Form::kDottedLine || series.form == Form::kDots;
  }
  static std::string ClassOf(const ChartSeries& series) {
    return series.form == Form::kLimit ? "limit" : absl::StrCat("c", series.colour);
  }

  void Text(double x, double y, const char* anchor, const std::string& classes,
            const std::string& text) {
    svg_ += Format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">%s</text>", x, y,
                   anchor, classes, EscapeHtml(text));
  }
  void Line(double x1, double y1, double x2, double y2, const char* classes) {
    svg_ += Format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>", x1, y1,
                   x2, y2, classes);
  }

  void DrawAxes() {
    Text(4, kLine - 2, "start", "axis", chart_.y.title);
    for (const double tick : y_.ticks()) {
      Line(plot_.left, y_.Of(tick), plot_.right, y_.Of(tick), "grid");
      Text(plot_.left - 6, y_.Of(tick) + 4, "end", "axis", Tick(tick));
    }
    for (const double tick : x_.ticks()) {
      Line(x_.Of(tick), plot_.bottom, x_.Of(tick), plot_.bottom + 4, "grid");
      Text(x_.Of(tick), plot_.bottom + 18, "middle", "axis", Tick(tick));
    }
    Line(plot_.left, plot_.bottom, plot_.right, plot_.bottom, "grid");
    Text((plot_.left + plot_.right) / 2, Height() - 6, "middle", "axis", chart_.x.title);
  }

  void DrawKey() {
    double y = 2 * kLine;
    for (const ChartSeries* series : Labelled()) {
      const std::string classes = ClassOf(*series);
      Line(4, y - 4, 22, y - 4,
           absl::StrCat(classes, HasDots(*series) ? "" : " dashed", " line").c_str());
      Text(28, y, "start", classes, absl::StrReplaceAll(series->label, {{"\n", " "}}));
      y += kLine;
    }
  }

  void DrawMark() {
    if (!HasMarks() || chart_.mark.empty()) return;
    const double y = kLine * (LinesAbove() + 0.1);
    svg_ += Format("<circle cx=\"12\" cy=\"%.1f\" r=\"6\" class=\"mark\"/>", y - 4);
    Text(28, y, "start", "marked", chart_.mark);
  }

  void DrawSeries(const ChartSeries& series) {
    const std::string classes = ClassOf(series);
    std::string path;
    for (const ChartPoint& point : series.points) {
      if (!Shows(point)) continue;
      path += Format("%s%.1f %.1f", path.empty() ? "M" : "L", x_.Of(point.x), y_.Of(point.y));
    }
    if (series.form != Form::kDots && !path.empty()) {
      absl::StrAppend(&svg_, "<path d=\"", path, "\" class=\"", classes,
                      HasDots(series) ? "" : " dashed", " line\"/>");
    }
    if (!HasDots(series)) return;
    for (const ChartPoint& point : series.points) {
      if (!Shows(point)) continue;
      const double x = x_.Of(point.x), y = y_.Of(point.y);
      taken_.push_back({x - kDot, y - kDot, x + kDot, y + kDot});
      if (point.is_marked) {
        svg_ +=
            Format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=\"mark\"/>", x, y, 2 * kDot);
      }
      absl::StrAppendFormat(
          &svg_,
          "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=\"%s\"><title>%s</title></circle>", x,
          y, kDot, classes, EscapeHtml(point.title));
    }
  }

  // Moves labels apart that would overlap.
  void DrawLabelsOfLines() {
    struct Label {
      const ChartSeries* series;
      double top, height;
    };
    std::vector<Label> labels;
    for (const ChartSeries* series : Labelled()) {
      const double height = kLine * static_cast<double>(LinesOf(series->label).size());
      labels.push_back({series, y_.Of(series->points.back().y) - height / 2, height});
    }
    absl::c_sort(labels, [](const Label& a, const Label& b) { return a.top < b.top; });
    double free = 0.0;
    for (Label& label : labels) {
      label.top = std::max(label.top, free);
      free = label.top + label.height;
    }
    double end = plot_.bottom + kLine / 2;
    for (auto label = labels.rbegin(); label != labels.rend(); ++label) {
      label->top = std::min(label->top, end - label->height);
      end = label->top;
    }
    for (const Label& label : labels) {
      double y = label.top + 11;
      for (const std::string& line : LinesOf(label.series->label)) {
        Text(plot_.right + 8, y, "start", ClassOf(*label.series), line);
        y += kLine;
      }
    }
  }

  // Puts each label where it covers no dot and no other label; leaves out one that does not fit.
  void DrawLabelsOfPoints() {
    constexpr double kGap = kDot + 4;
    for (const ChartSeries& series : chart_.series) {
      const bool is_limit = series.form == Form::kLimit;
      for (const ChartPoint& point : series.points) {
        if (point.label.empty() || !Shows(point)) continue;
        const double x = x_.Of(point.x), y = y_.Of(point.y), width = WidthOf(point.label);
        struct Place {
          double left, base;
        };
        const std::array<Place, 4> near = {Place{x - width / 2, y - kGap - 2},
                                           Place{x - width / 2, y + kGap + 10},
                                           Place{x + kGap, y + 4}, Place{x - kGap - width, y + 4}};
        // Below the beginning of a limit, above its end.
        const bool is_end = &point == &series.points.back();
        const std::array<Place, 4> along = {
            is_end ? Place{x - width - 2, y - 6} : Place{x + 10, y + 10},
            is_end ? Place{x - width - 8, y + 16} : Place{x + 4, y + 24},
            Place{x - width - 2, y + 24}, Place{x + 4, y - 8}};
        for (const Place& place : is_limit ? along : near) {
          const Box box{place.left, place.base - 11, place.left + width, place.base + 3};
          if (!box.IsIn({plot_.left + 2, plot_.top - 8, plot_.right + 12, plot_.bottom})) continue;
          if (absl::c_any_of(taken_, [&](const Box& other) { return box.Overlaps(other); })) {
            continue;
          }
          taken_.push_back(box);
          Text(place.left, place.base, "start", ClassOf(series), point.label);
          break;
        }
      }
    }
  }

  const Chart& chart_;
  const int width_;
  const bool is_wide_;
  const Box plot_;
  const Scale x_, y_;
  std::vector<Box> taken_;
  std::string svg_;
};

}  // namespace

std::string EscapeHtml(std::string_view text) {
  return absl::StrReplaceAll(
      View(text), {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string ChartSvg(const Chart& chart, int width) { return Drawing(chart, width).Svg(); }

}  // namespace tandem
