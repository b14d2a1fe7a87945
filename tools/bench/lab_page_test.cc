#include "tools/bench/lab_page.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = JsonValue;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A row whose demand is `bytes` and `operations` in `ms`, for `tokens`.
Json Row(Json fields, double ms, double tokens, double bytes, double operations,
         const char* bound) {
  fields.update({{"ms", ms},
                 {"tokens_per_second", tokens / ms * 1e3},
                 {"bytes", bytes},
                 {"bytes_per_second", bytes / ms * 1e3},
                 {"flops", operations / ms * 1e3},
                 {"bound", bound}});
  return fields;
}

// 100 MB of weights on a machine that reads 10 GB/s and computes 200 Gflop/s.
Json Report() {
  const Json prefill = {Row({{"prompt_tokens", 16}}, 40, 16, 100e6, 3.2e9, "memory"),
                        Row({{"prompt_tokens", 128}}, 160, 128, 100e6, 25.6e9, "arithmetic"),
                        Row({{"prompt_tokens", 256}}, 320, 256, 100e6, 51.2e9, "arithmetic")};
  const Json decode = {Row({{"position", 24}}, 20, 1, 101e6, 0.2e9, "memory"),
                       Row({{"position", 264}}, 22, 1, 110e6, 0.21e9, "memory")};
  const Json passes = {
      Row({{"rows", 1}, {"of_one_row", 1.0}}, 22, 1, 110e6, 0.2e9, "memory"),
      Row({{"rows", 8}, {"of_one_row", 1.25}}, 27.5, 8, 110e6, 1.6e9, "memory"),
      Row({{"rows", 64}, {"of_one_row", 4.0}}, 88, 64, 110e6, 12.8e9, "arithmetic"),
      Row({{"rows", 1}, {"batch", 2}, {"of_one_row", 1.1}}, 24.2, 2, 120e6, 0.4e9, "memory")};
  return {{"limits",
           {{"read_bytes_per_second", {{"dram", 10e9}, {"cache", 30e9}}},
            {"flops", {{"f32", 200e9}, {"bf16", nullptr}, {"int8", nullptr}}}}},
          {"target", {{"path", "large"}, {"weights_in", "memory"}, {"products", "f32"}}},
          {"draft", {{"path", "small"}}},
          {"phases", {{"prefill", prefill}, {"decode", decode}}},
          {"passes", {{"rows", passes}}},
          {"speculation", {{"all", {{{"gain", 1.5}}}}, {"best_draft_tokens", 3}, {"gain", 1.5}}}};
}

TEST(LabPage, SaysWhatLimitsEachPhaseWithTheMachinesNumbers) {
  EXPECT_THAT(
      LabFindings(Report()),
      ElementsAre("Reading a prompt is limited by arithmetic: 800 tokens/s from 128 tokens on",
                  "Writing is limited by memory: one token reads 101 MB, at 5.05 GB/s that is 50 "
                  "tokens/s",
                  "8 tokens in one pass take only 1.25 times as long as one",
                  "A token needs 2.0 operations for each byte it reads, and this machine has time "
                  "for 20",
                  "A draft makes writing 1.50 times as fast: it proposes 3 tokens, and one pass "
                  "checks them"));
}

// The data of the page's script.
Json ContentsOf(const std::string& page) {
  const std::pair<std::string, absl::string_view> after =
      absl::StrSplit(page, absl::MaxSplits("id=\"report\">", 1));
  return Json::parse(std::string(after.second.substr(0, after.second.find("</script>"))));
}

TEST(LabPage, HoldsTheReportForItsScript) {
  Json report = Report();
  report["target"]["path"] = "models/<script>alert('x')&\"</script>";
  const std::string page = LabPage(report);
  const Json contents = ContentsOf(page);
  EXPECT_EQ(contents["report"], report);
  EXPECT_EQ(contents["findings"], Json(LabFindings(report)));
  EXPECT_EQ(contents["roofs"], Json({{"memory", 10e9},
                                     {"cache", 30e9},
                                     {"peak", 200e9},
                                     {"reading", 10e9},
                                     {"is_cached", false}}));
  EXPECT_EQ(contents["pays"], true);
  for (const char* part : {"--paper: ", "--c0: ", "function drawing("}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
}

TEST(LabPage, NeedsNothingFromElsewhere) {
  const std::string page = LabPage(Report());
  for (const char* outside : {"src=", "href=", "@import", "import ", "http", "url(", "fetch("}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
}

TEST(LabPage, KnowsWhetherADraftPays) {
  Json report = Report();
  report["speculation"].update({{"gain", 0.9}, {"best_draft_tokens", 0}});
  EXPECT_EQ(LabFindings(report).back(), "This draft does not make writing faster here");
  EXPECT_EQ(ContentsOf(LabPage(report))["pays"], false);
  report["speculation"] = {{"error", "prompt: has 85 tokens"}};
  EXPECT_EQ(LabFindings(report).back(), "The speed-up of speculation was not measured");
  report["draft"] = nullptr;
  report["speculation"] = nullptr;
  EXPECT_EQ(LabFindings(report).back(),
            "The speed-up of speculation was not measured without a draft");
  EXPECT_EQ(ContentsOf(LabPage(report))["pays"], false);
}

TEST(LabPage, KeepsWhatWasMeasuredBeforeCtrlC) {
  Json report = Report();
  report["passes"] = Json::object();
  report["speculation"] = nullptr;
  EXPECT_THAT(LabFindings(report),
              ElementsAre(HasSubstr("800 tokens/s"), HasSubstr("101 MB"),
                          "The size of a pass was not measured: Ctrl-C came first",
                          HasSubstr("2.0 operations"),
                          "The speed-up of speculation was not measured: Ctrl-C came first"));
  report["phases"] = {{"prefill", Json::array()}, {"decode", Json::array()}};
  EXPECT_THAT(LabFindings(report), Each(HasSubstr("was not measured: Ctrl-C came first")));
}

TEST(LabPage, HandlesOtherLimits) {
  Json report = Report();
  Json& longest = report["phases"]["prefill"][2]["tokens_per_second"];
  longest = 700;
  EXPECT_THAT(LabFindings(report)[0], HasSubstr("arithmetic: 700 to 800 tokens/s from 128 tokens"));
  longest = 500;
  EXPECT_THAT(LabFindings(report)[0], HasSubstr("arithmetic: up to 800 tokens/s"));
  for (Json& row : report["phases"]["prefill"]) row["bound"] = "memory";
  for (Json& row : report["phases"]["decode"]) row["bound"] = "cache";
  report["limits"]["read_bytes_per_second"]["cache"] = 9e9;  // slower than memory: no limit
  const std::vector<std::string> findings = LabFindings(report);
  EXPECT_THAT(findings[0],
              HasSubstr("is still limited by reading the weights: up to 800 tokens/s"));
  EXPECT_THAT(findings[1], HasSubstr("Writing is limited by reading the weights"));
  EXPECT_EQ(ContentsOf(LabPage(report))["roofs"]["cache"], nullptr);
}

}  // namespace
}  // namespace tandem
