// Draws charts as SVG for pages: no scripts, and text that stays as large as the page's.
#ifndef TANDEM_TOOLS_BENCH_LAB_CHART_H_
#define TANDEM_TOOLS_BENCH_LAB_CHART_H_

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// Returns `text` for HTML, as content or as a quoted attribute.
std::string EscapeHtml(std::string_view text);

struct ChartPoint {
  double x = 0.0;
  double y = 0.0;
  std::string title = {};  // shown when a pointer rests on the point
  std::string label = {};  // next to the point, where there is room
  bool is_marked = false;  // with a ring, which Chart::mark explains
};

struct ChartSeries {
  enum class Form {
    kDottedLine,  // a line with a dot at each point
    kDashed,      // a line without dots
    kLimit,       // the same in the colour of limits
    kDots,
  };
  Form form = Form::kDottedLine;
  int colour = 0;          // 0 to kNumChartColours - 1; limits have their own
  std::string label = {};  // at the end of the line; lines of text are separated by '\n'
  std::vector<ChartPoint> points = {};
};
inline constexpr int kNumChartColours = 5;

struct ChartAxis {
  std::string title = {};  // with the unit
  bool is_log = false;
  int base = 10;          // of the ticks of a logarithmic axis: 10, or 2 for numbers of tokens
  double low = 0.0;       // a linear axis begins here
  double at_least = 0.0;  // the axis reaches this value
};

struct Chart {
  std::string title = {};  // for screen readers
  ChartAxis x = {}, y = {};
  std::vector<ChartSeries> series = {};
  std::string mark = {};  // the meaning of a ring; shown if a point is marked
};

// Returns an <svg> element of this width. Points that an axis cannot show are left out. From 600
// pixels on, labels of lines are at their ends; narrower charts have a key above. The page's style
// gives colours to the classes c0 to c4, dashed, limit, axis, grid, mark and marked.
std::string ChartSvg(const Chart& chart, int width);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_LAB_CHART_H_
