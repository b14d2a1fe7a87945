#include <string>

#include "base/mapped_file.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

std::string Source(const std::string& path) {
  return *ReadFile(std::string(TANDEM_SOURCE_DIR "/") + path);
}

// The package test builds and runs the example.
TEST(Readme, ShowsTheExampleThatIsBuilt) {
  const std::string example = Source("examples/story.cc");
  EXPECT_NE(Source("README.md").find("```cpp\n" + example + "```"), std::string::npos);
  EXPECT_NE(Source("examples/CMakeLists.txt").find("story.cc"), std::string::npos);
}

}  // namespace
}  // namespace tandem
