// Clients take turns, whatever one of them asks for at once.
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

// Row 212 of the bug catalogue: neither the prompts of a request nor its salt are more turns.
TEST(ClientTurns, ARequestOfManyPromptsDelaysAnotherAddressByOneTurn) {
  const std::unique_ptr<Engine> engine = MakeTestEngine();
  const std::unique_ptr<HttpServer> server = StartServer(engine.get(), TestServerOptions());
  const std::string fields = R"(, "ignore_eos": true, "temperature": 0, "max_tokens": )";
  std::string prompts = "\"A\"";
  for (int i = 1; i < 15; ++i) prompts += ", \"A\"";
  Client first(server->port(), "/v1/completions",
               "{\"prompt\": [" + prompts + "]" + fields + "40}");
  Client second(server->port(), "/v1/completions",
                "{\"cache_salt\": \"a\", \"prompt\": [" + prompts + "]" + fields + "40}");
  while (engine->load().num_waiting < 15) absl::SleepFor(absl::Milliseconds(1));
  Client other(server->port(), "127.0.0.2");
  EXPECT_EQ(other.Ask("POST", "/v1/completions", R"({"prompt": "A")" + fields + "1}").status, 200);
  EXPECT_GT(engine->load().num_waiting, 5);
}

}  // namespace
}  // namespace tandem
