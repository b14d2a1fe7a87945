#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/mapped_file.h"
#include "base/source_path_testing.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

std::string Source(const std::string& path) { return *ReadFile(SourcePath(path)); }

// The package test builds and runs the example. README.md shows a part of its main().
TEST(Readme, ShowsAPartOfTheExampleThatIsBuilt) {
  const std::string readme = Source("README.md");
  const std::string fence = "```cpp\n";
  const size_t begin = readme.find(fence);
  ASSERT_NE(begin, std::string::npos);
  const size_t end = readme.find("```", begin + fence.size());
  const absl::string_view shown =
      absl::string_view(readme).substr(begin + fence.size(), end - begin - fence.size());
  std::string part;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(shown, "\n"), '\n')) {
    absl::StrAppend(&part, line.empty() ? "" : "  ", line, "\n");
  }
  EXPECT_GT(absl::c_count(part, '\n'), 5);
  EXPECT_NE(Source("examples/story.cc").find(part), std::string::npos) << part;
  EXPECT_NE(Source("examples/CMakeLists.txt").find("story.cc"), std::string::npos);
}

}  // namespace
}  // namespace tandem
