#include "tools/kv_event_options.h"

#include "CLI/CLI.hpp"

namespace tandem {
namespace {

constexpr char kEventGroup[] = "Events";

}  // namespace

void KvEventFlags::AddTo(CLI::App* app) {
  app->add_option("--kv-events", endpoint,
                  "Where to publish what the prefix cache holds, in vLLM's format, for routers: an "
                  "endpoint of ZeroMQ such as tcp://*:5557 [none]")
      ->type_name("ENDPOINT")
      ->group(kEventGroup);
  app->add_option("--kv-events-replay", replay,
                  "Where subscribers ask for events that they have missed [none]")
      ->type_name("ENDPOINT")
      ->group(kEventGroup);
  app->add_option("--kv-events-topic", topic,
                  "Topic of the events, such as kv@POD@MODEL for llm-d [none]")
      ->type_name("TOPIC")
      ->group(kEventGroup);
}

absl::Status KvEventFlags::Apply(EngineOptions* options) const {
  if (endpoint.empty() && !replay.empty()) {
    return absl::InvalidArgumentError("--kv-events-replay: needs --kv-events");
  }
  if (endpoint.empty() && !topic.empty()) {
    return absl::InvalidArgumentError("--kv-events-topic: needs --kv-events");
  }
  if (endpoint.empty()) return absl::OkStatus();
  if (!options->prefix_cache) {
    return absl::InvalidArgumentError(
        "--kv-events: needs the prefix cache, which --no-prefix-cache turns off");
  }
  options->kv_events = endpoint;
  options->kv_events_replay = replay;
  options->kv_events_topic = topic;
  return options->Validate();
}

}  // namespace tandem
