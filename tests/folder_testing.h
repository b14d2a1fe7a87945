// For tests that write files.
#ifndef TANDEM_TESTS_FOLDER_TESTING_H_
#define TANDEM_TESTS_FOLDER_TESTING_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace tandem {

// A test with its own empty folder, which is removed afterwards.
class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return absl::StrCat(folder_, "/", name); }
  void Write(const std::string& name, const std::string& contents) const {
    std::ofstream(Path(name), std::ios::binary) << contents;
  }

  const std::string folder_ =
      absl::StrCat(::testing::TempDir(), "/tandem_", getpid(), "_",
                   ::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name(), "_",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

}  // namespace tandem

#endif  // TANDEM_TESTS_FOLDER_TESTING_H_
