#include <gtest/gtest.h>

#include "tandem/engine_options.h"

namespace tandem {
namespace {

TEST(KvEventOptions, ErrorsNameTheField) {
  EngineOptions options{.target = "target"};
  options.kv_events_replay = "tcp://*:5558";
  EXPECT_EQ(options.Validate().message(), "kv_events_replay: needs kv_events");
  options.kv_events_replay.clear();
  options.kv_events_topic = "topic";
  EXPECT_EQ(options.Validate().message(), "kv_events_topic: needs kv_events");
  options.kv_events = "5557";
  EXPECT_EQ(
      options.Validate().message(),
      "kv_events: must be an endpoint such as tcp://*:5557 or ipc:///run/tandem.events, got 5557");
  options.kv_events = "tcp://*:5557";
  EXPECT_TRUE(options.Validate().ok()) << options.Validate();
  options.kv_events_replay = "*:5558";
  EXPECT_EQ(options.Validate().message(),
            "kv_events_replay: must be an endpoint such as tcp://*:5557 or "
            "ipc:///run/tandem.events, got *:5558");
  options.kv_events_replay = "ipc:///run/replay";
  options.prefix_cache = false;
  EXPECT_EQ(options.Validate().message(), "kv_events: needs the prefix cache, which is off");
}

}  // namespace
}  // namespace tandem
