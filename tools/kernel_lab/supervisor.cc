#include "tools/kernel_lab/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>

#include "tools/kernel_lab/lab.h"

namespace tandem::kernel_lab {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A worker's message to its supervisor: 5 bytes.
enum class News : char { kOpened = 'o', kBegins = 'b', kDone = 'd', kFailed = 'f', kSkipped = 's' };
struct Message {
  News news = News::kOpened;
  int line = 0;
};

void Tell(int pipe, News news, int line) {
  char bytes[5] = {static_cast<char>(news)};
  std::memcpy(bytes + 1, &line, 4);
  if (write(pipe, bytes, sizeof(bytes)) != sizeof(bytes)) _exit(2);
}

// Returns 1 for a message, 0 at the end of the pipe, and -1 after `seconds`.
int Receive(int pipe, double seconds, Message* message) {
  pollfd waited = {pipe, POLLIN, 0};
  const int ready = poll(&waited, 1, std::max(0, static_cast<int>(seconds * 1e3)));
  if (ready == 0) return -1;
  char bytes[5];
  if (read(pipe, bytes, sizeof(bytes)) != sizeof(bytes)) return 0;
  message->news = static_cast<News>(bytes[0]);
  std::memcpy(&message->line, bytes + 1, 4);
  return 1;
}

// Each line of results is one write to a file that is opened for appending.
bool Append(int file, const std::string& text) {
  return write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::string DriverVersion() {
  std::string version = "unknown";
  if (std::FILE* const file = std::fopen("/proc/driver/nvidia/version", "r")) {
    char text[256] = {};
    if (std::fgets(text, sizeof(text), file) != nullptr) {
      version = text;
      version.resize(std::min(version.find_last_not_of(" \n") + 1, version.size()));
    }
    std::fclose(file);
  }
  return version;
}

JsonLine Facts(const Lab& lab, size_t num_lines, double seconds) {
  const cuda::DeviceProperties& device = lab.properties();
  JsonLine json;
  json.Add("kernel_lab", 1);
  json.Add("machine", device.name);
  json.Add("capability", std::to_string(device.major) + "." + std::to_string(device.minor));
  json.Add("sms", device.num_sms);
  json.Add("memory_bytes", static_cast<int64_t>(device.memory_bytes));
  json.Add("driver", DriverVersion());
  json.Add("quick", lab.quick());
  json.Add("lines", static_cast<int64_t>(num_lines));
  json.Add("seconds", seconds);
  return json;
}

JsonLine Identity(const Line& line) {
  JsonLine json;
  json.Add("line", line.name);
  json.Add("group", NameOf(line.group));
  json.Add("op", line.op);
  if (line.model != nullptr) json.Add("model", line.model->name);
  if (line.group == Group::kProduct || line.group == Group::kPack) {
    const PartShape shape = ShapeOf(*line.model, line.part);
    json.Add("outputs", shape.outputs);
    json.Add("inputs", shape.inputs);
  }
  if (line.group == Group::kProduct || line.group == Group::kPack || line.group == Group::kPass) {
    json.Add("dtype", line.dtype == DType::kBF16 ? "bf16" : NameOf(line.dtype));
  }
  if (line.group == Group::kAttention || line.group == Group::kPass) {
    json.Add("kv", NameOf(line.kv));
  }
  if (line.rows > 0) json.Add("rows", line.rows);
  if (line.group == Group::kAttention || line.group == Group::kPass) {
    json.Add("batch", line.batch);
    json.Add("context", line.context);
  }
  json.Add("variant", line.variant);
  json.Add("never_run", line.never_run);
  return json;
}

void Measure(Lab& lab, const Line& line, JsonLine* json) {
  constexpr void (*kMeasures[])(Lab&, const Line&, JsonLine*) = {
      // [Group]
      MeasureBandwidth, MeasureBits,     MeasureProbe, MeasureProduct, MeasurePack,
      MeasureAttention, MeasureSampling, MeasurePass,  MeasureFault};
  static_assert(std::size(kMeasures) == static_cast<size_t>(Group::kFault) + 1);
  kMeasures[static_cast<size_t>(line.group)](lab, line, json);
}

// Runs the lines from `begin` on. Does not return.
[[noreturn]] void Work(const RunOptions& options, const std::vector<Line>& lines, size_t begin,
                       bool is_first, Clock::time_point start, int file, int pipe) {
  std::string error;
  const std::unique_ptr<Lab> lab = Lab::Open(options.device, options.quick, &error);
  if (lab == nullptr) {
    std::fprintf(stderr, "kernel_lab: error: %s\n", error.c_str());
    _exit(2);
  }
  if (is_first && !Append(file, Facts(*lab, lines.size(), options.seconds).text())) _exit(2);
  Tell(pipe, News::kOpened, 0);
  for (size_t i = begin; i < lines.size(); ++i) {
    const int number = static_cast<int>(i);
    const Line& line = lines[i];
    if (SecondsSince(start) + line.seconds > options.seconds) {
      Tell(pipe, News::kSkipped, number);
      continue;
    }
    Tell(pipe, News::kBegins, number);
    const Clock::time_point began = Clock::now();
    JsonLine json = Identity(line);
    Measure(*lab, line, &json);
    lab->Wait();
    lab->FreeMemory();
    const std::string failure = lab->TakeFailure();
    if (!failure.empty()) {
      json = Identity(line);
      json.Add("error", failure);
    }
    json.Add("seconds", SecondsSince(began));
    if (!Append(file, json.text())) _exit(2);
    Tell(pipe, failure.empty() ? News::kDone : News::kFailed, number);
    if (!failure.empty() && !lab->StillWorks()) _exit(3);
  }
  _exit(0);
}

class Supervisor {
 public:
  Supervisor(const RunOptions& options, const std::vector<Line>& lines)
      : options_(options), lines_(lines), start_(Clock::now()) {}

  int Run() {
    file_ = open(options_.out.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file_ < 0) {
      std::fprintf(stderr, "kernel_lab: error: %s: %s\n", options_.out.c_str(),
                   std::strerror(errno));
      return 2;
    }
    bool is_first = true;
    while (next_ < lines_.size()) {
      const bool is_late = !is_first && SecondsSince(start_) > options_.seconds;
      if (is_late || !RunWorker(is_first)) {
        if (is_first) return 2;
        if (!is_late) ++num_failed_;  // the device can no longer be opened
        for (; next_ < lines_.size(); ++next_) skipped_.push_back(lines_[next_].name);
      }
      is_first = false;
    }
    JsonLine json;
    json.Add("end", true);
    json.Add("measured", num_done_);
    json.Add("errors", num_failed_);
    json.Add("skipped", skipped_);
    json.Add("seconds", SecondsSince(start_));
    if (!Append(file_, json.text())) return 2;
    close(file_);
    std::printf("kernel_lab: %d measured, %d failed, %d skipped, in %.0f s: %s\n", num_done_,
                num_failed_, static_cast<int>(skipped_.size()), SecondsSince(start_),
                options_.out.c_str());
    return num_failed_ > 0 ? 1 : 0;
  }

 private:
  // Runs lines from next_ on until the worker ends or has to be stopped. Returns false if it did
  // not reach a line.
  bool RunWorker(bool is_first) {
    int pipes[2];
    if (pipe(pipes) != 0) return false;
    std::fflush(stdout);
    const pid_t worker = fork();
    if (worker < 0) return false;
    if (worker == 0) {
      close(pipes[0]);
      Work(options_, lines_, next_, is_first, start_, file_, pipes[1]);
    }
    close(pipes[1]);
    const size_t first = next_;
    bool opened = false;
    int running = -1;
    double limit = kOpeningSeconds;
    for (;;) {
      Message message;
      const double left = options_.seconds + kOverrunSeconds - SecondsSince(start_);
      const int received = Receive(pipes[0], std::min(limit, left), &message);
      if (received != 1) {
        if (running >= 0) {
          Lose(running, received == 0 ? "the worker ended" : "stopped: it took too long");
        }
        break;
      }
      opened = true;
      limit = kOpeningSeconds;
      if (message.news == News::kOpened) continue;
      running = message.news == News::kBegins ? message.line : -1;
      if (running >= 0) {
        limit = kGraceFactor * lines_[running].seconds + options_.grace_seconds;
        continue;
      }
      next_ = static_cast<size_t>(message.line) + 1;
      if (message.news == News::kDone) ++num_done_;
      if (message.news == News::kFailed) ++num_failed_;
      if (message.news == News::kSkipped) skipped_.push_back(lines_[message.line].name);
    }
    kill(worker, SIGKILL);
    waitpid(worker, nullptr, 0);
    close(pipes[0]);
    return opened && (next_ > first || first == lines_.size());
  }

  void Lose(int line, const char* why) {
    JsonLine json = Identity(lines_[line]);
    json.Add("error", why);
    Append(file_, json.text());
    ++num_failed_;
    next_ = static_cast<size_t>(line) + 1;
  }

  const RunOptions& options_;
  const std::vector<Line>& lines_;
  const Clock::time_point start_;
  int file_ = -1;
  size_t next_ = 0;
  int num_done_ = 0;
  int num_failed_ = 0;
  std::vector<std::string> skipped_;
};

}  // namespace

int RunLines(const RunOptions& options, const std::vector<Line>& lines) {
  return Supervisor(options, lines).Run();
}

}  // namespace tandem::kernel_lab
