// Helpers for the server's tests: an engine that the test controls, and a client on a socket.
#ifndef TANDEM_SERVER_SERVER_TESTING_H_
#define TANDEM_SERVER_SERVER_TESTING_H_

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/net/beast.h"
#include "base/source_path_testing.h"
#include "engine/stub_engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/api_error.h"
#include "server/api/api_request.h"
#include "server/http/http_server.h"
#include "tandem/engine.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"
#include "tests/folder_testing.h"

namespace tandem {

inline std::string TestModel(const std::string& name) {
  return absl::StrCat(SourcePath("models/"), name);
}

// Creates an engine with the shipped pair on one thread in f32, as tests of the engine use it.
inline std::unique_ptr<Engine> MakeTestEngine(bool all_drafters = false) {
  EngineOptions options;
  options.target = TestModel("storyteller-7m");
  options.draft = TestModel("storyteller-1m");
  // Fixed, because with lookups measured times would choose the drafts, and two answers would
  // report different ones.
  options.drafter = DrafterKind::kModel;
  options.device = "cpu";
  options.threads = 1;
  options.compute = CpuCompute::kF32;
  options.kv_memory_bytes = 64 << 20;
  options.all_drafters = all_drafters;
  auto engine = Engine::Create(options);
  TANDEM_CHECK(engine.ok());
  return *std::move(engine);
}

// An engine whose generations advance when the test says so. Ids count from 1. Thread-safe.
class ManualEngine : public StubEngine {
 private:
  struct Generation {
    Request request;
    OnPiece on_piece;
    OnDone on_done;
    std::string text{};
  };
  // Waits, without a limit, until `id` has been submitted, and returns take(generation).
  template <typename Take>
  auto Await(GenerationId id, Take take) {
    absl::MutexLock lock(&mutex_);
    const auto is_there = [&] {
      mutex_.AssertReaderHeld();
      return running_.contains(id);
    };
    mutex_.Await(absl::Condition(&is_there));
    return take(running_[id]);
  }

 public:
  ManualEngine() {
    auto loaded = Tokenizer::Load(TestModel("storyteller-7m"));
    TANDEM_CHECK(loaded.ok());
    tokenizer_ = *std::move(loaded);
  }

  using Engine::Submit;
  absl::StatusOr<GenerationId> Submit(Request request, OnPiece on_piece, OnDone on_done) override {
    absl::MutexLock lock(&mutex_);
    if (request.sampling.top_k == kRefusedTopK) return FieldError("top_k", "refused");
    running_[++last_id_] = {std::move(request), std::move(on_piece), std::move(on_done)};
    return last_id_;
  }
  void Cancel(GenerationId id) override {
    absl::MutexLock lock(&mutex_);
    cancelled_.insert(id);
  }
  absl::Status health() const override {
    absl::MutexLock lock(&mutex_);
    return health_;
  }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  ModelInfo target_info() const override {
    ModelInfo info;
    if (throws_) info.path.at(0) = 'x';  // out of range
    info.path = model_path_;
    info.context_length = 1024;
    info.num_pages = 1000;
    info.page_size = 16;
    return info;
  }
  DrafterKind drafter() const override { return DrafterKind::kNone; }
  std::string device_description() const override { return "manual"; }

  // ---- Control by the test ----

  static constexpr int kRefusedTopK = 666;
  // Sets whether target_info() throws, as a library may.
  void set_throws(bool throws) { throws_ = throws; }
  // Sets whether the device is lost.
  void set_health(const absl::Status& health) {
    absl::MutexLock lock(&mutex_);
    health_ = health;
  }
  // Sets the model's folder. Call before a server starts.
  void set_model_path(std::string path) { model_path_ = std::move(path); }
  // Sends one token with this text. Returns what OnPiece returned.
  bool Emit(GenerationId id, const std::string& text) {
    const TokenId token = 5;
    return Send(id, {.text = text, .token_ids = {&token, 1}, .provenance = "p"});
  }
  // Sends the progress of the prompt.
  void EmitProgress(GenerationId id, const PromptProgress& progress) {
    Send(id, {.text = "", .token_ids = {}, .provenance = "", .prompt_progress = progress});
  }
  void End(GenerationId id, FinishReason reason = FinishReason::kStop) {
    Completion completion;
    completion.finish_reason = reason;
    completion.text = Await(id, [](Generation& g) { return g.text; });
    completion.prompt_tokens = 1;
    Finish(id, std::move(completion));
  }
  void Fail(GenerationId id, absl::Status status) { Finish(id, std::move(status)); }
  // Waits until the generation is cancelled. The test must then end it, as a round would.
  void AwaitCancel(GenerationId id) {
    absl::MutexLock lock(&mutex_);
    const auto is_cancelled = [&] {
      mutex_.AssertReaderHeld();
      return cancelled_.contains(id);
    };
    mutex_.Await(absl::Condition(&is_cancelled));
  }
  Request RequestOf(GenerationId id) {
    return Await(id, [](Generation& g) { return g.request; });
  }

 private:
  bool Send(GenerationId id, const Piece& piece) {
    OnPiece on_piece = Await(id, [](Generation& g) { return std::move(g.on_piece); });
    const bool goes_on = on_piece(piece);
    absl::MutexLock lock(&mutex_);
    running_[id].on_piece = std::move(on_piece);
    running_[id].text += piece.text;
    return goes_on;
  }
  void Finish(GenerationId id, absl::StatusOr<Completion> result) {
    Generation generation = Await(id, [](Generation& g) { return std::move(g); });
    {
      absl::MutexLock lock(&mutex_);
      running_.erase(id);
    }
    generation.on_done(std::move(result));
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::atomic<bool> throws_{false};
  std::string model_path_ = TestModel("storyteller-7m");
  mutable absl::Mutex mutex_;
  GenerationId last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<GenerationId, Generation> running_ ABSL_GUARDED_BY(mutex_);
  std::set<GenerationId> cancelled_ ABSL_GUARDED_BY(mutex_);
  absl::Status health_ ABSL_GUARDED_BY(mutex_);
};

inline ServerOptions TestServerOptions() {
  ServerOptions options;
  options.port = 0;
  options.service.model_name = "story";
  return options;
}

inline std::unique_ptr<HttpServer> StartServer(Engine* engine, const ServerOptions& options) {
  auto server = HttpServer::Start(engine, options);
  TANDEM_CHECK(server.ok());
  return *std::move(server);
}

// Returns a pair for ServedRequests without a server. `metrics` must outlive it.
inline PairLease TestPair(Engine* engine, Metrics* metrics, int max_sequences = 4) {
  auto pair = std::make_shared<ServedPair>(engine, metrics, max_sequences);
  pair->model = ServedModel::Of(*engine, "story", max_sequences);
  return pair;
}

// Returns the metrics of a single pair named "story", with an engine or without.
inline std::string TextOf(const Metrics& metrics, const Engine* engine = nullptr,
                          MetricsNames names = MetricsNames::kTandem) {
  const PairMetrics pair = {.name = "story", .metrics = &metrics, .engine = engine};
  return MetricsText({&pair, 1}, AnswerCounts(), {.names = names});
}

struct Answer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;

  SortedJson json() const { return SortedJson::parse(body, nullptr, false); }
  std::string error(const char* member) const {
    const SortedJson value = json()["error"][member];
    return value.is_string() ? value.get<std::string>() : "null";
  }
};

// One client connection. It waits without a limit, so that tests do not fail on a busy machine;
// ctest ends a test that hangs.
class Client {
 public:
  // Only opens a socket, for Connect.
  Client() : stream_(context_) { stream_.socket().open(net::ip::tcp::v4()); }
  explicit Client(int port) : Client() { Connect(port); }
  // Connects from another address of this machine.
  Client(int port, const std::string& from) : Client() {
    stream_.socket().bind({net::ip::make_address(from), 0});
    Connect(port);
  }
  // Connects and sends a POST.
  Client(int port, const std::string& target, const std::string& body,
         const std::string& headers = "")
      : Client(port) {
    SendRequest("POST", target, body, headers);
  }

  void Connect(int port) { ASSERT_TRUE(TryToConnect(port)); }
  // Returns whether the system accepted the connection.
  bool TryToConnect(int port) {
    beast::error_code error;
    stream_.connect({net::ip::make_address("127.0.0.1"), static_cast<unsigned short>(port)}, error);
    return !error;
  }
  void Send(const std::string& bytes) {
    beast::error_code error;
    net::write(stream_, net::buffer(bytes), error);
  }
  void SendRequest(const std::string& method, const std::string& target,
                   const std::string& body = "", const std::string& headers = "") {
    const std::string length =
        body.empty() ? "" : absl::StrCat("Content-Length: ", body.size(), "\r\n");
    Send(absl::StrCat(method, " ", target, " HTTP/1.1\r\nHost: localhost\r\n", headers, length,
                      "\r\n", body));
  }
  // Reads the next whole answer; status 0 if there is none.
  Answer Read(bool is_head = false) {
    http::response_parser<http::string_body> parser;
    parser.skip(is_head);
    parser.eager(true);
    beast::error_code error;
    while (!parser.is_done()) {
      unread_.erase(0, parser.put(net::buffer(unread_), error));
      if (parser.is_done()) break;
      if (error && error != http::error::need_more) return {};
      const std::string part = ReadSome(64 << 10);
      if (part.empty()) return {};
      unread_ += part;
    }
    Answer answer;
    answer.status = static_cast<int>(parser.get().result_int());
    for (const auto& field : parser.get()) {
      std::string name(field.name_string().data(), field.name_string().size());
      for (char& c : name) c = static_cast<char>(tolower(c));
      answer.headers[name] = std::string(field.value().data(), field.value().size());
    }
    answer.body = parser.get().body();
    return answer;
  }
  Answer Ask(const std::string& method, const std::string& target, const std::string& body = "",
             const std::string& headers = "") {
    SendRequest(method, target, body, headers);
    return Read(method == "HEAD");
  }
  // Reads until `text` has arrived, or the connection ends. Returns everything read.
  std::string ReadUntil(const std::string& text) {
    std::string all;
    for (;;) {
      const std::string part = ReadSome(64 << 10);
      const size_t seen = all.size() < text.size() ? 0 : all.size() - text.size();
      all += part;
      if (part.empty() || all.find(text, seen) != std::string::npos) return all;
    }
  }
  // Returns the next bytes, at most `size`. Empty if the connection has ended.
  std::string ReadSome(size_t size) {
    std::string bytes(size, '\0');
    const ssize_t count = recv(stream_.socket().native_handle(), bytes.data(), size, 0);
    bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return bytes;
  }
  // Waits for the next event. Returns whether the server closed the connection without another
  // answer.
  bool AwaitClose() {
    char byte = 0;
    return recv(stream_.socket().native_handle(), &byte, 1, 0) == 0;
  }
  void EndSending() { shutdown(stream_.socket().native_handle(), SHUT_WR); }
  void Close() { stream_.close(); }

 private:
  net::io_context context_;
  beast::tcp_stream stream_;
  std::string unread_;
};

inline Answer Ask(HttpServer* server, const std::string& method, const std::string& target,
                  const std::string& body = "", const std::string& headers = "") {
  return Client(server->port()).Ask(method, target, body, headers);
}

// A server whose engine the test controls.
class ServerTest : public testing::Test {
 protected:
  void Start() { server_ = StartServer(&engine_, options_); }
  Answer Ask(const std::string& method, const std::string& target, const std::string& body = "",
             const std::string& headers = "") {
    return tandem::Ask(server_.get(), method, target, body, headers);
  }

  // Returns the answer to a POST for which the model writes `pieces` in each of `n` sequences.
  std::string AnswerTo(const std::string& target, const std::string& body,
                       const std::vector<std::string>& pieces,
                       FinishReason reason = FinishReason::kStop, int n = 1) {
    Client client(server_->port(), target, body);
    for (int i = 0; i < n; ++i) {
      ++last_id_;
      for (const std::string& piece : pieces) engine_.Emit(last_id_, piece);
      engine_.End(last_id_, reason);
    }
    return client.Read().body;
  }
  // Starts a server for a model with this chat template.
  void StartWithTemplate(const std::string& jinja) {
    folder_.Write("chat_template.jinja", jinja);
    engine_.set_model_path(folder_.path());
    Start();
  }

  const TestFolder folder_;
  ManualEngine engine_;
  ServerOptions options_ = TestServerOptions();
  std::unique_ptr<HttpServer> server_;

 private:
  GenerationId last_id_ = 0;
};

// ---- Requests ----

// Returns a model to check requests against, with this chat template if it is not empty.
inline ServedModel TestServedModel(const std::string& jinja = "") {
  static const ManualEngine& engine = *new ManualEngine;
  ServedModel model = ServedModel::Of(engine, "story", 8);
  if (jinja.empty()) return model;
  model.chat_template = ChatTemplate::Parse(jinja, "", "");
  model.tool_format = ToolFormat::Of(*model.chat_template);
  model.reasoning = ReasoningFormat::Of(*model.chat_template, *model.tokenizer);
  return model;
}

// Parses a chat with the message "A", or with these messages, and further fields, such as R"(, "n":
// 2)".
inline absl::StatusOr<ApiRequest> ChatWith(
    const std::string& fields, const ServedModel& model,
    const std::string& messages = R"([{"role": "user", "content": "A"}])") {
  return ParseChatRequest("{\"messages\": " + messages + fields + "}", model, absl::UnixEpoch());
}

// Expects an error that names `param` and contains `part`.
inline void ExpectRefusal(const absl::StatusOr<ApiRequest>& request, const std::string& param,
                          const std::string& part) {
  ASSERT_FALSE(request.ok()) << param << " " << part;
  const SortedJson error = ErrorJson(request.status())["error"];
  EXPECT_EQ(error["param"], param) << error;
  EXPECT_THAT(error["message"].get<std::string>(), testing::HasSubstr(part));
}

// Returns the JSON of each event of a stream, without the closing [DONE], which is required.
inline std::vector<SortedJson> EventsOf(const std::string& body) {
  std::vector<SortedJson> events;
  std::vector<std::string> lines = absl::StrSplit(body, "\n\n", absl::SkipEmpty());
  EXPECT_FALSE(lines.empty());
  if (lines.empty()) return events;
  EXPECT_EQ(lines.back(), "data: [DONE]");
  lines.pop_back();
  for (absl::string_view line : lines) {
    EXPECT_TRUE(absl::ConsumePrefix(&line, "data: ")) << line;
    events.push_back(SortedJson::parse(line.begin(), line.end(), nullptr, false));
  }
  return events;
}

// Returns {type, data} for each event of a stream whose events have names.
inline std::vector<std::pair<std::string, SortedJson>> NamedEventsOf(const std::string& stream) {
  std::vector<std::pair<std::string, SortedJson>> events;
  for (absl::string_view event : absl::StrSplit(stream, "\n\n", absl::SkipEmpty())) {
    const size_t end = event.find("\ndata: ");
    if (!absl::ConsumePrefix(&event, "event: ") || end == absl::string_view::npos) continue;
    events.emplace_back(std::string(event.substr(0, end - 7)),
                        SortedJson::parse(event.substr(end).data(), event.data() + event.size()));
  }
  return events;
}

}  // namespace tandem

#endif  // TANDEM_SERVER_SERVER_TESTING_H_
