// tandem serve: the models behind an HTTP endpoint.
#include <csignal>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/asio.h"
#include "server/http_server.h"
#include "spdlog/spdlog.h"
#include "tools/command.h"
#include "tools/engine_options.h"

namespace tandem {
namespace {

struct ServeFlags {
  EngineFlags engine;
  ServerOptions server;
  int max_batch = 8;
  int max_waiting = 64;
  int chunk_tokens = 256;
  bool no_prefix_cache = false;
  std::string max_body = "4M";
  std::string max_unread = "1M";
  double drain_seconds = 30;

  EngineOptions engine_options;  // set by Check

  absl::Status Check();
};

absl::Status ServeFlags::Check() {
  ASSIGN_OR_RETURN(engine_options, engine.ToOptions());
  engine_options.max_batch = max_batch;
  engine_options.chunk_tokens = chunk_tokens;
  engine_options.prefix_cache = !no_prefix_cache;
  engine_options.warm_up = true;
  engine_options.callback_thread = CallbackThread::kEngine;  // the server waits in none
  ServiceOptions& service = server.service;
  ASSIGN_OR_RETURN(service.max_body_bytes, ParseSize("--max-body", max_body));
  ASSIGN_OR_RETURN(service.max_unread_bytes, ParseSize("--max-unread", max_unread));
  service.max_sequences = max_batch + max_waiting;
  if (service.model_name.empty()) {
    const std::filesystem::path path = engine_options.target;
    const std::string name = path.lexically_normal().filename().string();
    service.model_name =
        name.empty() ? path.lexically_normal().parent_path().filename().string() : name;
  }
  server.drain_timeout = absl::Seconds(drain_seconds);
  return absl::OkStatus();
}

// Ends with the first SIGTERM or SIGINT; a second does not wait for what runs. Calls `on_ready`
// once signals are heard.
void ServeUntilSignal(HttpServer* server, const std::function<void()>& on_ready) {
  net::io_context context;
  net::signal_set signals(context, SIGTERM, SIGINT);
  std::function<void(beast::error_code, int)> on_signal;
  bool is_draining = false;
  on_signal = [&](beast::error_code error, int number) {
    if (error) return;
    spdlog::info("stopping signal={} now={}", number, is_draining);
    is_draining ? server->StopNow() : server->Drain();
    is_draining = true;
    signals.async_wait(on_signal);
  };
  signals.async_wait(on_signal);
  on_ready();
  std::thread waiter([&] {
    server->AwaitEnd();
    net::post(context, [&] { signals.cancel(); });
  });
  context.run();
  waiter.join();
}

absl::Status Run(const ServeFlags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(flags.engine_options));
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server,
                   HttpServer::Start(engine.get(), flags.server));
  ServeUntilSignal(server.get(), [&] {
    spdlog::info("serving address=http://{} model={} drafter={} device=\"{}\"", server->address(),
                 flags.server.service.model_name, NameOf(engine->drafter()),
                 engine->device_description());
  });
  const EngineLoad load = engine->load();
  spdlog::info("stopped prompt_tokens={} generated_tokens={} proposed={} accepted={}",
               load.prompt_tokens, load.stats.emitted, load.stats.proposed, load.stats.accepted);
  // Nothing runs any more: whatever clients did, every page must be back.
  return engine->CheckIntegrity();
}

void AddLimitOptions(CLI::App* app, ServeFlags* flags) {
  const std::string group = "Limits";
  ConnectionLimits& limits = flags->server.limits;
  app->add_option("--max-batch", flags->max_batch, "Sequences generated together [8]")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->group(group);
  app->add_option("--max-waiting", flags->max_waiting,
                  "Sequences that may wait for a place; more are refused with 429 [64]")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 20))
      ->group(group);
  app->add_option("--chunk-tokens", flags->chunk_tokens, "Prompt tokens read per pass [256]")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20))
      ->group(group);
  app->add_flag("--no-prefix-cache", flags->no_prefix_cache,
                "Forget prompts instead of keeping them for later requests")
      ->group(group);
  app->add_option("--max-body", flags->max_body, "Of a request; more is refused with 413 [4M]")
      ->type_name("SIZE")
      ->group(group);
  app->add_option("--max-connections", limits.max_connections,
                  "More clients are refused with 503 [256]")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 16))
      ->group(group);
  app->add_option("--max-unread", flags->max_unread,
                  "Of a stream, waiting for a client that does not read; beyond it the request is "
                  "cancelled [1M]")
      ->type_name("SIZE")
      ->group(group);
  app->add_option("--drain-seconds", flags->drain_seconds,
                  "On SIGTERM, how long running requests may go on [30]")
      ->type_name("S")
      ->check(CLI::Range(0.0, 86400.0))
      ->group(group);
}

}  // namespace

Command AddServeCommand(CLI::App* program) {
  const auto flags = std::make_shared<ServeFlags>();
  CLI::App* app =
      program->add_subcommand("serve", "Answer HTTP requests as OpenAI's completions do");
  app->add_option("--host", flags->server.host, "Address to listen at [127.0.0.1]")->type_name("H");
  app->add_option("--port", flags->server.port, "Port to listen at; 0 for any free one [8080]")
      ->type_name("N")
      ->check(CLI::Range(0, 65535));
  app->add_option("--api-key", flags->server.service.api_key,
                  "Clients must send it; none is asked for without")
      ->type_name("KEY")
      ->envname("TANDEM_API_KEY");
  app->add_option("--model-name", flags->server.service.model_name,
                  "What clients call the model [the target's folder name]")
      ->type_name("NAME");
  app->add_option("--io-threads", flags->server.io_threads, "Threads that talk to clients [2]")
      ->type_name("N")
      ->check(CLI::Range(1, 64));
  AddLimitOptions(app, flags.get());
  flags->engine.AddTo(app);
  return {.app = app,
          .check = [flags] { return flags->Check(); },
          .run = [flags] { return Run(*flags); }};
}

}  // namespace tandem
