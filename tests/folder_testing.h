// For tests that write files.
#ifndef TANDEM_TESTS_FOLDER_TESTING_H_
#define TANDEM_TESTS_FOLDER_TESTING_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/mapped_file.h"

namespace tandem {

// An empty folder, which the destructor removes.
class TestFolder {
 public:
  TestFolder() : path_((std::filesystem::path(::testing::TempDir()) / "tandem_XXXXXX").string()) {
    TANDEM_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~TestFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(absl::string_view name) const { return absl::StrCat(path_, "/", name); }
  // Writes a file, in a folder that it creates if necessary. Returns the file's path.
  std::string Write(absl::string_view name, absl::string_view contents) const {
    std::string path = Path(name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    TANDEM_CHECK((std::ofstream(path, std::ios::binary) << contents).good());
    return path;
  }
  std::string Read(absl::string_view name) const {
    const auto contents = ReadFile(Path(name));
    TANDEM_CHECK(contents.ok());
    return *contents;
  }

 private:
  std::string path_;
};

// A test with its own folder.
class FolderTest : public ::testing::Test, protected TestFolder {
 protected:
  const std::string folder_ = path();
};

}  // namespace tandem

#endif  // TANDEM_TESTS_FOLDER_TESTING_H_
