#include "tools/secret_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr char kFirst[] = "0123456789abcdef0123456789abcdef";
constexpr char kSecond[] = "fedcba9876543210fedcba9876543210";

class SecretFile : public testing::Test {
 protected:
  SecretFile() {
    source_.file = path_;
    chmod(folder_.path().c_str(), 0755);  // another user reads the file in it
  }

  void Write(const std::string& text, mode_t mode = 0600) {
    std::filesystem::remove(path_);
    folder_.Write("secret", text);
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  std::string Error() const { return std::string(source_.Read().status().message()); }

  const TestFolder folder_;
  const std::string path_ = folder_.Path("secret");
  SecretSource source_ = {.option = nullptr,
                          .file_option = "--secret-file",
                          .variable = "TANDEM_SECRET_FILE_TEST",
                          .needed_by = "--wire"};
};

TEST_F(SecretFile, HoldsOneSecretOrTwo) {
  Write(absl::StrCat(kFirst, "\n"));
  EXPECT_EQ(source_.Read().value(), kFirst);
  const std::string two = absl::StrCat(kFirst, "\n", kSecond);
  Write(absl::StrCat(two, " \n\n"));
  EXPECT_EQ(source_.Read().value(), two);
  Write("hunter2\n");
  EXPECT_THAT(Error(), HasSubstr("--secret-file: the secret must have from 32 to"));
  EXPECT_THAT(Error(), HasSubstr("openssl rand -hex 32"));
  EXPECT_THAT(Error(), testing::Not(HasSubstr("hunter2")));
  Write(absl::StrCat(two, "\n", kFirst));
  EXPECT_THAT(Error(), HasSubstr("must have at most two lines"));
}

TEST_F(SecretFile, IsRequired) {
  source_.file.clear();
  EXPECT_EQ(Error(),
            "--secret-file: is required by --wire, unless TANDEM_SECRET_FILE_TEST holds the "
            "secret; `openssl rand -hex 32` makes one");
  setenv(source_.variable, "short", 1);
  EXPECT_THAT(Error(), HasSubstr("TANDEM_SECRET_FILE_TEST: the secret must have from 32 to"));
  setenv(source_.variable, kFirst, 1);
  EXPECT_EQ(source_.Read().value(), kFirst);
  unsetenv(source_.variable);
  source_.file = path_;
  EXPECT_EQ(Error(), absl::StrCat("--secret-file: cannot read ", path_));
}

TEST_F(SecretFile, MustBeHiddenFromOthers) {
  for (const mode_t mode : {0400, 0600, 0440, 0640, 0700}) {
    Write(kFirst, mode);
    EXPECT_TRUE(source_.Read().ok()) << mode;
  }
  for (const mode_t mode : {0604, 0644, 0602, 0601, 0460, 0620, 0666}) {
    Write(kFirst, mode);
    EXPECT_THAT(Error(), HasSubstr(absl::StrCat("--secret-file: ", path_, " must be a regular")));
    char octal[8];
    snprintf(octal, sizeof(octal), "%04o", static_cast<unsigned>(mode));
    EXPECT_THAT(Error(), testing::EndsWith(absl::StrCat("with mode ", octal)));
  }
  // Keys of clients have no such rule.
  source_.needed_by = nullptr;
  Write("key\n", 0666);
  EXPECT_EQ(source_.Read().value(), "key");
}

TEST_F(SecretFile, MustBelongToThisUserOrRoot) {
  Write(kFirst, 0440);
  constexpr uid_t kOther = 12345;
  if (chown(path_.c_str(), kOther, getgid()) != 0) GTEST_SKIP() << "needs root";
  EXPECT_THAT(Error(), HasSubstr("got a regular file of user 12345 with mode 0440"));
  // As another user, root's file is accepted: so Kubernetes mounts it.
  ASSERT_EQ(chown(path_.c_str(), 0, getgid()), 0);
  ASSERT_EQ(seteuid(kOther), 0);
  const absl::Status status = source_.Read().status();
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_TRUE(status.ok()) << status;
}

// As Kubernetes mounts it: a link to a file in a folder that is replaced at once.
TEST_F(SecretFile, MayBeALink) {
  const std::string target = folder_.Write("target", kFirst);
  ASSERT_EQ(chmod(target.c_str(), 0440), 0);
  std::filesystem::create_symlink(target, path_);
  EXPECT_EQ(source_.Read().value(), kFirst);
  std::filesystem::remove(path_);
  std::filesystem::create_symlink(folder_.path(), path_);
  EXPECT_THAT(Error(), HasSubstr("got another kind of file"));
}

}  // namespace
}  // namespace tandem
