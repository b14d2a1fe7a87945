// tandem serve: serves the models over HTTP.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "engine/fingerprint.h"
#include "engine/generation_config.h"
#include "engine/runtime.h"
#include "server/api/api_error.h"
#include "server/http/http_server.h"
#include "tools/background_log.h"
#include "tools/command.h"
#include "tools/engine_options.h"
#include "tools/help_text.h"
#include "tools/model_list.h"
#include "tools/option_group.h"
#include "tools/secret_file.h"

namespace tandem {
namespace {

struct ServeFlags {
  ServeFlags() { pair.engine.prefers_real_pair = true; }

  ServedPairFlags pair;
  std::string models;         // a file with several pairs
  int64_t models_memory = 0;  // 0: kShareOfModels of the free memory
  ServerOptions server;
  std::string metrics_names = "both";
  std::string reasoning = "auto";
  double drain_seconds = 30;
  std::string on_rank_failure = "exit";
  SecretSource api_key = {
      .option = "--api-key", .file_option = "--api-key-file", .variable = "TANDEM_API_KEY"};

  EngineOptions engine_options;  // of a single pair; set by Check

  // `app` is the parsed command.
  absl::Status Check(const CLI::App* app);

 private:
  absl::Status CheckSingle();
};

// Part of the free memory that models of --models take by default; requests need some of it.
constexpr double kShareOfModels = 0.8;

absl::Status ServeFlags::CheckSingle() {
  ASSIGN_OR_RETURN(engine_options, pair.engine.ToOptions());
  ServiceOptions& service = server.service;
  service.max_sequences = engine_options.max_batch + pair.max_waiting;
  service.prefix_cache = engine_options.prefix_cache;
  if (pair.generation_config == "auto") {
    ASSIGN_OR_RETURN(service.sampling, ReadGenerationConfig(engine_options.target));
  }
  if (service.model_name.empty()) {
    const std::string& typed = pair.engine.options.target;
    service.model_name = ModelNameOf(typed.empty() ? engine_options.target : typed);
  }
  return absl::OkStatus();
}

absl::Status ServeFlags::Check(const CLI::App* app) {
  ServiceOptions& service = server.service;
  ASSIGN_OR_RETURN(service.api_key, api_key.Read());
  RETURN_IF_ERROR(service.sites.Validate());
  service.version = TANDEM_VERSION;
  ASSIGN_OR_RETURN(service.metrics_names, ParseMetricsNames(metrics_names));
  service.splits_reasoning = reasoning == "auto";
  server.drain_timeout = absl::Seconds(drain_seconds);
  if (models.empty()) return CheckSingle();
  service.pair_memory_bytes = models_memory;
  if (models_memory == 0) {
    const auto free = static_cast<double>(AvailableMemoryBytes().value_or(kGuessedMemory));
    service.pair_memory_bytes = static_cast<int64_t>(free * kShareOfModels);
  }
  ASSIGN_OR_RETURN(service.pairs, ReadModelList(models, app, service.pair_memory_bytes));
  return absl::OkStatus();
}

// Handles SIGTERM, SIGINT and, unless it is ignored (nohup), SIGHUP while it exists. Before
// SetServer they end the process as usual; after it the first signal drains the server, and the
// second stops it at once. A thread waits for the signals. They are blocked in the calling thread
// and in all threads that it starts later.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    struct sigaction hangup = {};
    sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&signals_, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    thread_ = std::thread([this] { Hear(); });
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  ~StopSignals() {
    is_over_ = true;
    // NOLINTNEXTLINE(bugprone-bad-signal-to-kill-thread): the signal only ends sigwait.
    pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  // Stops the server at once, for a reason that is not a signal. Running requests fail with it.
  void StopNow(const absl::Status& why) {
    const absl::MutexLock lock(&mutex_);
    if (server_ != nullptr) server_->StopNow(why);
  }

  // Sets the server that signals stop. Null: signals end the process.
  void SetServer(HttpServer* server) {
    const absl::MutexLock lock(&mutex_);
    server_ = server;
  }

 private:
  void Hear() {
    for (int number = 0; sigwait(&signals_, &number) == 0 && !is_over_;) {
      const absl::MutexLock lock(&mutex_);
      if (server_ == nullptr) {
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        kill(getpid(), number);
      } else {
        const auto stop = [&] {
          Log(LogLevel::kInfo,
              absl::StrCat("stopping signal=", number, " now=", is_draining_ ? "true" : "false"));
          is_draining_ ? server_->StopNow(ServerIsStopping()) : server_->Drain();
        };
        while (!Attempt("stopping", stop)) absl::SleepFor(absl::Milliseconds(100));
        is_draining_ = true;
      }
    }
  }

  sigset_t signals_;
  sigset_t before_;
  std::atomic<bool> is_over_ = false;
  absl::Mutex mutex_;
  HttpServer* server_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool is_draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// The failure that ends the server: a rank of tensor parallelism or the device was lost.
// Thread-safe.
class Failure {
 public:
  bool has_served = false;  // whether the server had started; a start that fails is not retried
  void LoseRank(const absl::Status& why) {
    const absl::MutexLock lock(&mutex_);
    has_lost_rank_ = true;
    why_.Update(why);
  }
  void LoseDevice(const absl::Status& why) {
    const absl::MutexLock lock(&mutex_);
    why_.Update(why);
  }
  // OK if nothing was lost.
  absl::Status why() const {
    const absl::MutexLock lock(&mutex_);
    return why_;
  }
  bool has_lost_rank() const {
    const absl::MutexLock lock(&mutex_);
    return has_lost_rank_;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
  bool has_lost_rank_ ABSL_GUARDED_BY(mutex_) = false;
};

// Replaces this process by the same command. Returns only on failure.
absl::Status StartAgain() {
  std::ifstream file("/proc/self/cmdline");
  std::string line{std::istreambuf_iterator<char>(file), {}};
  std::vector<char*> words;
  for (size_t at = 0; at < line.size(); at += std::strlen(&line[at]) + 1) {
    words.push_back(&line[at]);
  }
  words.push_back(nullptr);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  close_range(STDERR_FILENO + 1, ~0U, 0);  // in particular the listening socket
  execv("/proc/self/exe", words.data());
  return absl::ErrnoToStatus(errno, "on_rank_failure: cannot restart");
}

// Runs the server until it ends. The log tells `facts` about its models.
absl::Status RunServer(absl::StatusOr<std::unique_ptr<HttpServer>> started, StopSignals* signals,
                       Failure* failure, const std::string& facts) {
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server, std::move(started));
  signals->SetServer(server.get());
  failure->has_served = true;
  if (!failure->why().ok()) server->StopNow(failure->why());  // it came before SetServer
  Log(LogLevel::kInfo, absl::StrCat("serving address=http://", server->address(), " ", facts));
  server->AwaitEnd();
  signals->SetServer(nullptr);
  return absl::OkStatus();
}

absl::Status ServeOne(const ServeFlags& flags, StopSignals* signals, Failure* failure) {
  EngineOptions options = flags.engine_options;
  options.on_rank_failure = [&](const absl::Status& why) {
    failure->LoseRank(why);
    signals->StopNow(why);
  };
  options.on_device_failure = [&](const absl::Status& why) {
    failure->LoseDevice(why);
    signals->StopNow(why);
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(options));
  ServerOptions server_options = flags.server;
  server_options.service.system_fingerprint =
      FingerprintOf(options, TANDEM_VERSION, engine->target_info().weights_form);
  RETURN_IF_ERROR(RunServer(HttpServer::Start(engine.get(), server_options), signals, failure,
                            absl::StrCat("model=", flags.server.service.model_name,
                                         " drafter=", View(NameOf(engine->drafter())), " device=\"",
                                         engine->device_description(), "\"")));
  const EngineLoad load = engine->load();
  Log(LogLevel::kInfo, absl::StrCat("stopped prompt_tokens=", load.prompt_tokens,
                                    " generated_tokens=", load.stats.emitted, " proposed=",
                                    load.stats.proposed, " accepted=", load.stats.accepted));
  RETURN_IF_ERROR(failure->why());
  // No requests are running, so every page must be free, whatever the clients did.
  return engine->CheckIntegrity();
}

absl::Status ServeSeveral(const ServeFlags& flags, StopSignals* signals, Failure* failure) {
  ServerOptions options = flags.server;
  options.service.on_all_pairs_lost = [&](const absl::Status& why) {
    failure->LoseDevice(why);
    signals->StopNow(why);
  };
  const auto append = [](std::string* out, const PairSource& pair) { *out += pair.name; };
  RETURN_IF_ERROR(
      RunServer(HttpServer::Start(options), signals, failure,
                absl::StrCat("models=\"", absl::StrJoin(options.service.pairs, ", ", append),
                             "\" memory_bytes=", options.service.pair_memory_bytes)));
  Log(LogLevel::kInfo, "stopped");
  return failure->why();
}

absl::Status Serve(const ServeFlags& flags, Failure* failure) {
  // The log's reader may close its end. Sockets suppress the signal themselves.
  std::signal(SIGPIPE, SIG_IGN);
  StopSignals signals;
  const BackgroundLog log(STDERR_FILENO, {});  // requests never wait for the log's reader
  return flags.models.empty() ? ServeOne(flags, &signals, failure)
                              : ServeSeveral(flags, &signals, failure);
}

absl::Status Run(const ServeFlags& flags) {
  Failure failure;
  absl::Status status = Serve(flags, &failure);
  const bool restarts = failure.has_lost_rank() && flags.on_rank_failure == "restart";
  if (!restarts || !failure.has_served) return status;
  Log(LogLevel::kError, absl::StrCat(failure.why().message(), "; restarting"));
  return StartAgain();
}

void AddAccessOptions(CLI::App* app, ServeFlags* flags) {
  OptionGroup group(app, "Access");
  SiteOptions& sites = flags->server.service.sites;
  CLI::Option* key = group.Add("--api-key", "KEY", &flags->api_key.given,
                               "The key that clients must send [$TANDEM_API_KEY, else none]");
  group.Add("--api-key-file", "F", &flags->api_key.file, "A file that holds the key")
      ->excludes(key);
  group.Add("--allowed-hosts", "H,...", &sites.allowed_hosts,
            "Host names that requests may use in addition to those of this machine; * allows any "
            "[any if other machines can connect or a key is set]",
            ',');
  group.Add("--cors-origins", "O,...", &sites.cors_origins,
            "Origins of web pages that may send requests, such as https://app.example; * allows "
            "all [the server's own]",
            ',');
}

void AddLimitOptions(CLI::App* app, ServeFlags* flags) {
  OptionGroup group(app, kLimitGroup);
  ServiceOptions& service = flags->server.service;
  const Limits size = {.low = 1, .is_size = true};
  group.Add("--max-body", "SIZE", &service.max_body_bytes,
            "Maximum size of a request body; larger ones get 413. All bodies above 64K that are "
            "processed "
            "at the same time may have 16 times as much",
            size);
  group.Add("--max-connections", "N", &flags->server.limits.max_connections,
            "Maximum number of connections. One more closes the connection that has been idle the "
            "longest; if all are busy, it is rejected with 503",
            {.low = 1, .high = 1 << 16});
  group.Add("--max-unread", "SIZE", &service.max_unread_bytes,
            "Maximum size of the part of a stream that its client has not read; beyond it the "
            "request is cancelled",
            size);
  group.Add(
      "--max-answer-bytes", "SIZE", &service.max_answer_bytes,
      "Maximum size of an answer, estimated from its tokens and log-probabilities; a request that "
      "may need more is rejected with 400",
      size);
  group.Add("--drain-seconds", "S", &flags->drain_seconds,
            "How long running requests may continue after SIGTERM", {.low = 0, .high = 86400});
}

}  // namespace

Command AddServeCommand(CLI::App* program) {
  const auto flags = std::make_shared<ServeFlags>();
  CLI::App* app = program->add_subcommand("serve", "Serve OpenAI's completions API over HTTP");
  OptionGroup group(app);
  group.Add("--host", "H", &flags->server.host, "Address to listen on");
  group.Add("--port", "N", &flags->server.port, "Port to listen on; 0 for any free one",
            {.low = 0, .high = 65535});
  AddAccessOptions(app, flags.get());
  CLI::Option* const model_name =
      group.Add("--model-name", "NAME", &flags->server.service.model_name,
                "The model's name in requests and answers [the target's folder name]");
  CLI::Option* const models = group.Add(
      "--models", "FILE", &flags->models,
      "Serve several models, which are loaded when requests need them: a file in TOML with a table "
      "[[model]] for each, of options of this command and name, preload and pinned. Options given "
      "here are the defaults of all");
  group
      .Add("--models-memory", "SIZE", &flags->models_memory,
           "Memory of this machine that these models may take together; to load another, the one "
           "that was not used for the longest time is unloaded [four fifths of the free memory]",
           {.low = 1, .unset = 0, .is_size = true})
      ->needs(models);
  group.Add("--reasoning", "NAME", &flags->reasoning,
            "Handling of reasoning between markers such as <think> before the answer: auto "
            "separates it from the content, off leaves it in the content",
            OneOf{{"auto", "off"}});
  group.Add("--metrics-names", "NAME", &flags->metrics_names,
            "Names of the metrics: tandem, vllm or both", OneOf{{"tandem", "vllm", "both"}});
  group.AddFlag("--strict-requests", &flags->server.service.strict_requests,
                "Reject requests with unknown fields instead of ignoring the fields");
  group.Add("--on-rank-failure", "NAME", &flags->on_rank_failure,
            "With --tensor-parallel, if the process of another rank ends: exit with an error, or "
            "restart all ranks; running requests fail in either case",
            OneOf{{"exit", "restart"}});
  group.Add("--io-threads", "N", &flags->server.io_threads,
            "Number of threads that handle connections", {.low = 1, .high = 64});
  AddLimitOptions(app, flags.get());
  flags->pair.AddTo(app);
  models->excludes(model_name, app->get_option("--target"), app->get_option("--draft"));
  app->get_option("--unload-after")->needs(models);
  AddExamples(app, {"tandem serve -m smollm2 --max-batch 16 --port 8080",
                    "tandem serve --api-key-file key.txt --host 0.0.0.0",
                    "tandem serve --models models.toml --models-memory 16G"});
  return {
      .app = app,
      .check = [flags, app] { return flags->Check(app); },
      .run = [flags] { return RunOrFollow(flags->engine_options, [&] { return Run(*flags); }); }};
}

}  // namespace tandem
