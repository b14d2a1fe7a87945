#include "tools/bench/lab_chart.h"

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

Chart TwoLines(bool is_log) {
  return {.title = "A chart",
          .x = {.title = "tokens", .is_log = is_log, .base = 2},
          .y = {.title = "ms", .is_log = is_log},
          .series = {{.colour = 0, .label = "first", .points = {{.x = 16, .y = 10}, {512, 900}}},
                     {.colour = 1, .label = "second", .points = {{.x = 16, .y = 11}, {512, 901}}}},
          .mark = "above"};
}

// The y coordinates of the texts of this class.
std::vector<double> HeightsOf(const std::string& svg, const std::string& classes) {
  const std::regex text("<text x=\"[0-9.]+\" y=\"([0-9.]+)\"[^>]*class=\"" + classes + "\"");
  std::vector<double> heights;
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), text); it != std::sregex_iterator();
       ++it) {
    heights.push_back(std::stod((*it)[1]));
  }
  return heights;
}

TEST(LabChart, HasFewTicksOnEveryAxis) {
  for (const bool is_log : {false, true}) {
    for (const int width : {360, 720}) {
      const std::string svg = ChartSvg(TwoLines(is_log), width);
      // Both axes and their titles.
      EXPECT_GE(HeightsOf(svg, "axis").size(), 2u + 2 + 2);
      EXPECT_LE(HeightsOf(svg, "axis").size(), 2u + 7 + 7);
      EXPECT_THAT(svg, HasSubstr(">tokens</text>"));
    }
  }
  EXPECT_THAT(ChartSvg(TwoLines(true), 720), HasSubstr(">64</text>"));
}

TEST(LabChart, LabelsOfLinesDoNotOverlap) {
  const std::string svg = ChartSvg(TwoLines(false), 720);
  const double first = HeightsOf(svg, "c0").at(0), second = HeightsOf(svg, "c1").at(0);
  EXPECT_GE(std::abs(first - second), 14.0);
  EXPECT_THAT(ChartSvg(TwoLines(false), 360), HasSubstr(">second</text>"));  // the key
}

TEST(LabChart, PointsThatALogarithmicAxisLacksAreLeftOut) {
  Chart chart = TwoLines(true);
  chart.series[0].points[0].y = 0;
  const std::string svg = ChartSvg(chart, 720);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(LabChart, RingsMarkPointsAndAreExplained) {
  Chart chart = TwoLines(true);
  EXPECT_THAT(ChartSvg(chart, 720), Not(HasSubstr("above")));
  chart.series[0].points[1].is_marked = true;
  const std::string svg = ChartSvg(chart, 720);
  EXPECT_THAT(svg, HasSubstr("class=\"marked\">above</text>"));
  EXPECT_THAT(svg, HasSubstr("r=\"8.0\" class=\"mark\""));
}

TEST(LabChart, LabelsOfPointsCoverNeitherDotsNorLabels) {
  Chart chart{.title = "", .x = {}, .y = {}, .series = {{.form = ChartSeries::Form::kDots}}};
  for (int i = 0; i < 40; ++i) {
    chart.series[0].points.push_back(
        {.x = 100.0 + i, .y = 100.0, .label = "a long label of a point"});
  }
  const std::string svg = ChartSvg(chart, 720);
  const size_t num_labels = HeightsOf(svg, "c0").size();
  EXPECT_GE(num_labels, 2u);
  EXPECT_LE(num_labels, 12u);
}

TEST(EscapeHtml, EscapesWhatHtmlWouldRead) {
  EXPECT_EQ(EscapeHtml("<a href=\"x\">'&'"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;");
}

}  // namespace
}  // namespace tandem
