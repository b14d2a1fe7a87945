// Requests for which there is no memory: whatever the server asks for from some moment on is
// refused, until it has answered or thrown. No request may end the process, keep a place, or spoil
// the next one.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <variant>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "constraint/grammar_engine.h"
#include "gtest/gtest.h"
#include "server/api/service.h"
#include "server/server_testing.h"
#include "tandem/engine.h"
#include "tests/allocation/failing_new.h"

// For the address sanitizer: values of nlohmann's JSON that are half made when memory runs out lose
// what they have, some bytes each.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:nlohmann::";
}

namespace tandem {
namespace {

// Row 108 of the bug catalogue, here and below.
class RequestAllocation : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    spdlog::set_level(spdlog::level::off);
    folder_ = absl::StrCat(testing::TempDir(), "/tandem_request_allocation_", getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(TestModel("storyteller-7m"), folder_);
    std::ofstream(folder_ + "/chat_template.jinja")
        << "{% for m in messages %}{{ m.role }}: {{ m.content }}"
           "{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}"
           "{% endfor %}{{ tools | tojson }}{{ given }}{{ '<|endoftext|>' }}";
    auto engine = Engine::Create(
        {.target = folder_, .device = "cpu", .threads = 1, .kv_memory_bytes = 8 << 20});
    TANDEM_CHECK(engine.ok());
    engine_ = engine->release();
    service_ = new Service(engine_, {.model_name = "story"});
  }
  static void TearDownTestSuite() {
    delete service_;
    delete engine_;
    std::filesystem::remove_all(folder_);
  }

  static HttpRequest RequestOf(const std::string& path, const std::string& body) {
    HttpRequest request;
    request.method = body.empty() ? "GET" : "POST";
    request.target = request.path = path;
    request.host = "localhost";
    request.content_type = "application/json";
    request.body = body;
    request.received = Instant::Now();
    request.route = Service::RouteOf(request);
    return request;
  }

  // The status of the answer; 0 if memory ran out. Of a generation, which it ends, 200.
  static int Ask(const HttpRequest& request, int64_t failing, int64_t* num_allocations) {
    std::unique_ptr<Service::Reply> reply;
    {
      const FailingNew failing_new(failing, FailingNew::Span::kAllBehind);
      try {
        reply = std::make_unique<Service::Reply>(service_->Handle(request));
      } catch (const std::bad_alloc&) {
      }
      *num_allocations = FailingNew::num_allocations();
    }
    if (reply == nullptr) return 0;
    if (const auto* response = std::get_if<HttpResponse>(reply.get())) return response->status;
    std::get<std::shared_ptr<ServedRequest>>(*reply)->Cancel();
    return 200;
  }

  // Of one request: 2,000, or as many as TANDEM_MOST_FAILURES says.
  static int MostFailures() {
    const char* const asked = std::getenv("TANDEM_MOST_FAILURES");
    return asked != nullptr ? std::max(1, std::atoi(asked)) : 2000;
  }

  // Asks until the memory is enough for `status`, which it then gives.
  static void AskWithLess(const std::string& path, const std::string& body, int status) {
    SCOPED_TRACE(absl::StrCat(path, " ", body.substr(0, 100)));
    const HttpRequest request = RequestOf(path, body);
    int64_t total = 0;
    EXPECT_EQ(Ask(request, FailingNew::kNone, &total), status);
    const int64_t step = 1 + total / MostFailures();
    int num_failed = 0;
    for (int64_t failing = 0; failing < total; failing += step) {
      int64_t num_made = 0;
      num_failed += Ask(request, failing, &num_made) == status ? 0 : 1;
      service_->admission().AwaitEmpty(absl::InfiniteDuration());
    }
    EXPECT_GT(num_failed, 0);
    EXPECT_EQ(Ask(request, FailingNew::kNone, &total), status);
    service_->admission().AwaitEmpty(absl::InfiniteDuration());
    const absl::Status books = engine_->CheckIntegrity();
    EXPECT_TRUE(books.ok()) << books;
  }

  static std::string folder_;
  static Engine* engine_;
  static Service* service_;
};

std::string RequestAllocation::folder_;
Engine* RequestAllocation::engine_ = nullptr;
Service* RequestAllocation::service_ = nullptr;

// Values within values, which a library may want memory to destroy.
constexpr char kNested[] =
    R"({"z": [1, [2, {"b": [[3], {}], "a": "x"}]], "a": {"b": [{"c": []}]}})";

TEST_F(RequestAllocation, OfChats) {
  const std::string nested = kNested;
  const std::string user = R"({"role": "user", "content": [{"type": "text", "text": "Hi"}]})";
  const auto chat = [&](const std::string& fields) {
    return R"({"max_tokens": 1, "messages": [)" + user + "]" + fields + "}";
  };
  const std::string path = "/v1/chat/completions";
  AskWithLess(path, chat(""), 200);
  AskWithLess(path, chat(", \"chat_template_kwargs\": {\"given\": " + nested + "}"), 200);
  AskWithLess(path, chat(", \"nobody_knows\": " + nested), 200);
  AskWithLess(path, chat(", \"stop\": " + nested), 400);
  AskWithLess(path,
              chat(R"(, "tools": [{"type": "function", "function": {"name": "f",
      "parameters": {"type": "object", "properties": )" +
                   nested + "}}}]"),
              200);
  AskWithLess(path,
              R"({"max_tokens": 1, "messages": [)" + user + R"(, {"role": "assistant",
      "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": )" +
                  nested + "}}]}]}",
              200);
  AskWithLess(
      "/tokenize",
      R"({"messages": [)" + user + "], \"chat_template_kwargs\": {\"given\": " + nested + "}}",
      200);
}

TEST_F(RequestAllocation, OfCompletionsAndResponses) {
  const std::string nested = kNested;
  AskWithLess("/v1/completions",
              R"({"prompt": ["A", "B"], "n": 2, "max_tokens": 1, "logit_bias": {"5": 1},
                  "stop": ["x", "y"], "stream": true, "logprobs": 2, "user": )" +
                  nested + "}",
              200);
  AskWithLess("/v1/completions", R"({"prompt": )" + nested + "}", 400);
  AskWithLess("/v1/responses",
              R"({"input": [{"type": "function_call", "call_id": "1", "name": "f",
      "arguments": "{\"a\": [[1], {}]}"}, {"role": "user", "content": "A"}], "metadata": )" +
                  nested + ", \"max_output_tokens\": 1}",
              200);
  AskWithLess("/tokenize", R"({"prompt": "Once upon a time"})", 200);
  AskWithLess("/detokenize", R"({"tokens": [5, 6, 7]})", 200);
  for (const char* path : {"/v1/models", "/metrics", "/openapi.json", "/version", "/", "/ready"}) {
    AskWithLess(path, "", 200);
  }
}

// From a client's side: each allocation of the server's fails once, on whatever thread.
TEST_F(RequestAllocation, OfConnections) {
  FailingNew::ExemptThisThread(true);
  const absl::Cleanup be_counted_again = [] { FailingNew::ExemptThisThread(false); };
  ServerOptions options = TestServerOptions();
  options.limits.comment_interval = absl::Milliseconds(50);
  const auto server = StartServer(engine_, options);
  spdlog::set_level(spdlog::level::off);
  const std::string large(100'000, 'x');
  for (const std::string& body :
       {R"({"prompt": "A", "max_tokens": 2})" + std::string(),
        R"({"prompt": "A", "max_tokens": 2, "stream": true, "user": ")" + large + "\"}"}) {
    const auto ask = [&](int64_t failing) {
      const FailingNew failing_new(failing);
      const int status = Client(server->port()).Ask("POST", "/v1/completions", body).status;
      server->service().admission().AwaitEmpty(absl::InfiniteDuration());
      return status;
    };
    ASSERT_EQ(ask(FailingNew::kNone), 200);
    const int64_t total = FailingNew::num_allocations();
    const int64_t step = 1 + total / MostFailures();
    int num_failed = 0;
    for (int64_t failing = 0; failing < total && !HasFailure(); failing += step) {
      SCOPED_TRACE(failing);
      const int status = ask(failing);
      // Answered, told that it failed, or the connection is closed.
      EXPECT_TRUE(status == 200 || status == 500 || status == 0) << status;
      num_failed += status != 200 ? 1 : 0;
    }
    EXPECT_GT(num_failed, 0);
    EXPECT_GT(total, 50);
    EXPECT_EQ(Client(server->port()).Ask("POST", "/v1/completions", body).status, 200);
  }
  const absl::Status books = engine_->CheckIntegrity();
  EXPECT_TRUE(books.ok()) << books;
}

// A request holds at most 64 times the bytes of its body at once.
TEST_F(RequestAllocation, IsBoundedByTheBytesOfABody) {
  constexpr size_t kBytes = 400'000;
  std::string mixed;
  for (size_t i = 0; mixed.size() < kBytes; ++i) mixed += "!a$ 7.b;Q"[i * i % 9];
  std::string numbers = "1";
  while (numbers.size() < kBytes) numbers += ",1";
  for (const auto& [path, body] : std::vector<std::pair<std::string, std::string>>{
           {"/tokenize", R"({"prompt": ")" + mixed + "\"}"},
           {"/tokenize", R"({"prompt": ")" + std::string(kBytes, 'a') + "\"}"},
           {"/tokenize", R"({"messages": [{"role": "user", "content": ")" + mixed + "\"}]}"},
           {"/detokenize", R"({"tokens": [)" + numbers + "]}"}}) {
    int64_t num_allocations = 0;
    EXPECT_EQ(Ask(RequestOf(path, body), FailingNew::kNone, &num_allocations), 200);
    // 7 for each byte of an answer's text in a string that doubles, 4 for its token in a vector
    // that doubles, and 32 to merge it.
    EXPECT_LT(FailingNew::most_bytes(), 64 * static_cast<int64_t>(kBytes)) << path;
  }
}

TEST_F(RequestAllocation, OfConstraints) {
  if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  const auto schema = [](int i) {
    return absl::StrCat(R"({"type": "object", "properties": {"n)", i,
                        R"(": {"type": "string", "maxLength": 3}}, "required": ["n)", i, "\"]}");
  };
  AskWithLess("/v1/completions",
              R"({"prompt": "A", "max_tokens": 1, "guided_json": )" + schema(1) + "}", 200);
  AskWithLess("/v1/chat/completions",
              R"({"messages": [{"role": "user", "content": "A"}],
      "max_tokens": 1, "tool_choice": "required", "tools": [{"type": "function", "function":
      {"name": "f", "strict": true, "parameters": )" +
                  schema(2) + "}}]}",
              200);
  AskWithLess("/v1/responses",
              R"({"input": "A", "max_output_tokens": 1, "tools": [{"type": "function", "name": "f",
      "strict": true, "parameters": )" +
                  schema(3) + "}]}",
              200);
  AskWithLess("/v1/completions", R"({"prompt": "A", "guided_json": {"not": {"a": [[1], {}]}}})",
              400);
}

}  // namespace
}  // namespace tandem
