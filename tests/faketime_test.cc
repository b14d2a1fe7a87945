// The program while the time of day goes back, under libfaketime (Debian's package of that name).
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/source_path_testing.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "tests/run_program.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Returns the path at which Debian and Ubuntu install libfaketime, or an empty string if it is
// missing.
std::string FakeTimeLibrary() {
  for (const auto& folder : fs::directory_iterator("/usr/lib")) {
    const fs::path library = folder.path() / "faketime" / "libfaketimeMT.so.1";
    std::error_code error;
    if (fs::exists(library, error)) return library;
  }
  return "";
}

// An environment variable of the programs that run during its lifetime.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    setenv(name_.c_str(), value.c_str(), /*overwrite=*/1);
  }
  ~Variable() { unsetenv(name_.c_str()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const std::string name_;
};

// Row 81 of the bug catalogue. Each read of the time of day returns a time two seconds earlier than
// the last.
TEST(Program, MeasuresTimesWhileTheTimeOfDayGoesBackwards) {
  const std::string library = FakeTimeLibrary();
  if (library.empty()) GTEST_SKIP() << "libfaketime is not installed";
  const std::string pair = SourcePath("models/");
  ProgramRun run;
  {
    const Variable preload("LD_PRELOAD", library);
    const Variable time("FAKETIME", "-0 i-2.0");
    const Variable keeps_monotonic("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    const Variable keeps_monotonic_of_old("DONT_FAKE_MONOTONIC", "1");
    run = RunProgram({"generate", "--device", "cpu", "--target", pair + "storyteller-7m", "--draft",
                      pair + "storyteller-1m", "--prompt", "Once upon a time", "--max-tokens", "60",
                      "--temperature", "0", "--json"});
  }
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const auto json = SortedJson::parse(run.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(json.is_object()) << run.out;
  for (const char* name : {"ttft_ms", "e2e_ms", "draft_ms", "verify_ms"}) {
    EXPECT_GT(json["timings"][name], 0) << run.out;
  }
}

}  // namespace
}  // namespace tandem
