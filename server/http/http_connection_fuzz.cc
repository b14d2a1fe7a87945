// The bytes that a client sends on one connection. The first byte sets the size of the writes.
// Depending on the second byte, the rest is either arbitrary bytes after a fixed start, or selects
// a sequence of requests, each well-formed or corrupted. Every answer must be HTTP with an expected
// status, and the connection must end. Well-formed requests must get their expected statuses, in
// order.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/net/beast.h"
#include "engine/stub_engine_testing.h"
#include "server/api/service.h"
#include "server/http/connection.h"
#include "tandem/tokenizer.h"

namespace tandem {
namespace {

constexpr int kMaxBody = 1000;
constexpr int kMaxHead = 600;
// The server must send no other status.
constexpr int kMeant[] = {100, 200, 204, 400, 401, 403, 404, 405, 408, 413, 415, 431, 503};
// Starts that a fuzzer would take long to find.
constexpr absl::string_view kStarts[] = {
    "",
    "GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /metrics HTTP/1.0\r\n",
    "POST /v1/completions HTTP/1.1\r\nHost: a\r\n",
    "POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    "f\r\n{\"prompt\": \"ab\"\r\n",
    "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 15\r\n\r\n{\"prompt\": \"a\"}",
    "OPTIONS /tokenize HTTP/1.1\r\nHost: a\r\nAccess-Control-Request-Method: POST\r\nOrigin: ",
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\nContent-Length: 15\r\n"
    "Content-Type: ",
    "GET /v1/models/%",
    "POST /v1/completions HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 31\r\n\r\n"
    "{\"prompt\": \"a\", \"stream\": true}"};

// Requests and the statuses of their answers.
struct Asked {
  absl::string_view line;  // method and path
  absl::string_view body;
  int status;
};
constexpr Asked kAsked[] = {
    {"GET /health", "", 200},
    {"HEAD /health", "", 200},
    {"GET /v1/models?a=b", "", 200},
    {"GET /nowhere", "", 404},
    {"DELETE /health", "", 405},
    {"POST /tokenize", R"({"prompt": "ab"})", 200},
    {"POST /tokenize", R"({"prompt": ["ab"]})", 400},
    {"POST /detokenize", R"({"tokens": [0, 2]})", 200},
    {"POST /v1/completions", R"({"prompt": "a", "max_tokens": 2})", 200},
    {"POST /v1/completions", R"({"prompt": "a", "n": 2, "stream": true})", 200},
    {"POST /v1/completions", R"({"prompt": "a", "max_tokens": -2})", 400},
    {"POST /v1/completions", R"({"prompt": )", 400},
};
constexpr absl::string_view kHarmless[] = {"Accept: */*\r\n", "User-Agent: a b\r\n", "X-Empty:\r\n",
                                           "accept-encoding:  gzip, br \r\n"};
// Inserted before the end of a head.
constexpr absl::string_view kSpoilers[] = {"Content-Length: 5\r\n",
                                           "Content-Length: -1\r\n",
                                           "Content-Length: 99999999999999999999\r\n",
                                           "Transfer-Encoding: chunked\r\n",
                                           "Transfer-Encoding: gzip, chunked\r\n",
                                           "Transfer-Encoding: identity\r\n",
                                           "Host: evil.example\r\n",
                                           "Origin: http://evil.example\r\n",
                                           "Connection: close\r\n",
                                           "Connection: upgrade\r\nUpgrade: h2c\r\n",
                                           "Expect: 100-continue\r\n",
                                           "Authorization: Bearer x\r\n",
                                           "Content-Type: text/plain\r\n",
                                           " folded: 1\r\n",
                                           "no colon\r\n",
                                           "\r\n",
                                           "\n",
                                           "a\x01: c\r\n"};

// Makes requests that the fuzzer's bytes select.
class RequestMaker {
 public:
  explicit RequestMaker(absl::string_view bytes) : bytes_(bytes) {}

  void MakeAll() {
    for (int i = 0; i < 8 && !bytes_.empty(); ++i) MakeOne();
  }
  const std::string& sent() const { return sent_; }
  bool is_well_formed() const { return is_well_formed_; }
  const std::vector<int>& statuses() const { return statuses_; }

 private:
  size_t Next(size_t end) {
    if (bytes_.empty()) return 0;
    const size_t value = static_cast<unsigned char>(bytes_[0]) % end;
    bytes_.remove_prefix(1);
    return value;
  }
  // Decides, one time in eight, to corrupt the next part of the request.
  bool Spoils() {
    if (Next(8) != 7) return false;
    is_well_formed_ = false;
    return true;
  }

  void MakeOne() {
    const Asked& asked = kAsked[Next(std::size(kAsked))];
    const bool is_chunked = !asked.body.empty() && Next(2) == 1;
    absl::StrAppend(&sent_, asked.line, Spoils() ? " HTTP/1.0" : " HTTP/1.1", "\r\n",
                    "Host: localhost\r\n");
    for (size_t i = Next(3); i > 0; --i) {
      absl::StrAppend(&sent_, kHarmless[Next(std::size(kHarmless))]);
    }
    if (Spoils()) absl::StrAppend(&sent_, kSpoilers[Next(std::size(kSpoilers))]);
    if (!asked.body.empty()) sent_ += "Content-Type: application/json\r\n";
    if (is_chunked) {
      sent_ += "Transfer-Encoding: chunked\r\n\r\n";
      AppendChunks(asked.body);
    } else {
      if (!asked.body.empty())
        absl::StrAppend(&sent_, "Content-Length: ", asked.body.size(), "\r\n");
      absl::StrAppend(&sent_, "\r\n", asked.body);
    }
    if (Spoils()) {
      const size_t wanted = Next(20);
      const size_t size = std::min(bytes_.size(), wanted);
      absl::StrAppend(&sent_, bytes_.substr(0, size));
      bytes_.remove_prefix(size);
    }
    if (Spoils()) sent_.resize(sent_.size() - Next(sent_.size()));
    statuses_.push_back(asked.status);
  }

  void AppendChunks(absl::string_view body) {
    constexpr absl::string_view kExtensions[] = {"", ";a", ";a=b", ";a=\"b c\""};
    constexpr absl::string_view kSizes[] = {"", "x", "-1", "fffffffffffffffff", "0x5", "7ffffff"};
    while (!body.empty()) {
      const absl::string_view part = body.substr(0, 1 + Next(body.size()));
      body.remove_prefix(part.size());
      const std::string size = Spoils() ? std::string(kSizes[Next(std::size(kSizes))])
                                        : absl::StrCat(absl::Hex(part.size()));
      absl::StrAppend(&sent_, size, kExtensions[Next(std::size(kExtensions))], "\r\n", part,
                      "\r\n");
    }
    absl::StrAppend(&sent_, "0\r\n", Next(4) == 3 ? "Trailer: a\r\n" : "", "\r\n");
  }

  absl::string_view bytes_;
  std::string sent_;
  std::vector<int> statuses_;
  bool is_well_formed_ = true;
};

// Ends every generation at once, with one token "a" and the length of the prompt.
class EchoEngine : public StubEngine {
 public:
  EchoEngine() {
    auto tokenizer = Tokenizer::Parse(
        R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})", "",
        "fuzz");
    TANDEM_CHECK(tokenizer.ok());
    tokenizer_ = *std::move(tokenizer);
  }
  absl::StatusOr<GenerationId> Submit(Request request, OnPiece on_piece, OnDone on_done) override {
    const TokenId token = 0;
    Completion completion;
    completion.finish_reason = FinishReason::kLength;
    completion.prompt_tokens = static_cast<int>(request.prompt_ids.size());
    completion.text = "a";
    completion.token_ids = {token};
    completion.provenance = "p";
    on_piece(Piece{.text = "a", .token_ids = {&token, 1}, .provenance = "p"});
    on_done(std::move(completion));
    return ++last_id_;
  }
  absl::StatusOr<Completion> Wait(GenerationId, absl::Duration) override {
    return absl::NotFoundError("");
  }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  ModelInfo target_info() const override {
    ModelInfo info;
    info.context_length = 64;
    info.num_pages = 100;
    info.page_size = 16;
    return info;
  }
  DrafterKind drafter() const override { return DrafterKind::kNone; }
  std::string device_description() const override { return "fuzz"; }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  GenerationId last_id_ = 0;
};

// Appends the bytes that have arrived on `fd` to `answers`.
void Drain(int fd, std::string* answers) {
  char bytes[4096];
  for (;;) {
    const ssize_t size = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (size <= 0) return;
    answers->append(bytes, static_cast<size_t>(size));
  }
}

// Removes `size` bytes from the front of `text` and returns them.
absl::string_view TakeBytes(size_t size, absl::string_view* text) {
  TANDEM_CHECK(size <= text->size());
  const absl::string_view taken = text->substr(0, size);
  text->remove_prefix(size);
  return taken;
}
absl::string_view TakeUntil(absl::string_view mark, absl::string_view* text) {
  const size_t end = text->find(mark);
  TANDEM_CHECK(end != absl::string_view::npos);
  const absl::string_view taken = TakeBytes(end, text);
  text->remove_prefix(mark.size());
  return taken;
}

// Removes the body of an answer with this head. An answer to HEAD does not have one.
void TakeBody(absl::string_view head, absl::string_view* text) {
  if (absl::StrContains(head, "Transfer-Encoding: chunked")) {
    for (int size = -1; size != 0;) {
      TANDEM_CHECK(absl::SimpleHexAtoi(TakeUntil("\r\n", text), &size) && size >= 0);
      TakeBytes(static_cast<size_t>(size), text);
      TANDEM_CHECK(TakeBytes(2, text) == "\r\n");
    }
    return;
  }
  constexpr absl::string_view kLength = "\r\nContent-Length: ";
  const size_t at = head.find(kLength);
  if (at == absl::string_view::npos || text->empty() || absl::StartsWith(*text, "HTTP/1.")) return;
  absl::string_view rest = head.substr(at + kLength.size());
  size_t size = 0;
  TANDEM_CHECK(absl::SimpleAtoi(rest.substr(0, rest.find("\r\n")), &size));
  TakeBytes(size, text);
}

struct Answers {
  std::vector<int> statuses;  // without 100
  bool is_closed = false;     // as the last answer announced
};

// Parses answers, which must follow each other without a gap.
Answers ReadAnswers(absl::string_view text) {
  Answers answers;
  while (!text.empty()) {
    const absl::string_view head = TakeUntil("\r\n\r\n", &text);
    TANDEM_CHECK(absl::StartsWith(head, "HTTP/1.") && head.size() >= 12);
    int status = 0;
    TANDEM_CHECK(absl::SimpleAtoi(head.substr(9, 3), &status));
    TANDEM_CHECK(std::find(std::begin(kMeant), std::end(kMeant), status) != std::end(kMeant));
    if (status != 100) answers.statuses.push_back(status);
    answers.is_closed = absl::StrContains(head, "Connection: close");
    // HTTP/1.0 has no chunks: a stream ends with its connection.
    if (status == 200 && !absl::StrContains(head, "Content-Length") &&
        !absl::StrContains(head, "chunked")) {
      answers.is_closed = true;
      return answers;
    }
    if (status != 100) TakeBody(head, &text);
  }
  return answers;
}

// Returns the server's answers to `bytes` on one connection, sent `step` bytes at a time.
std::string AnswersTo(absl::string_view bytes, size_t step) {
  static EchoEngine& engine = *new EchoEngine;
  static Service& service = *new Service(
      &engine,
      {.model_name = "fuzz",
       .sites = {.is_loopback = true, .allowed_hosts = {"a"}, .cors_origins = {"http://b"}},
       .max_body_bytes = kMaxBody});
  int fds[2];
  TANDEM_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  std::string answers;
  {
    ConnectionSet connections(&service, {.max_header_bytes = kMaxHead});
    net::io_context context;
    net::ip::tcp::socket socket(context, net::ip::tcp::v4(), fds[1]);
    auto connection = std::make_shared<Connection>(std::move(socket), &connections);
    connections.Add(connection);
    connection->Start();
    connection = nullptr;
    while (!bytes.empty()) {
      const absl::string_view part = bytes.substr(0, step);
      // Fails if the server has already closed the connection.
      if (send(fds[0], part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT) <= 0) break;
      bytes.remove_prefix(part.size());
      context.restart();
      context.poll();
      Drain(fds[0], &answers);
    }
    shutdown(fds[0], SHUT_WR);
    // Once the client is known to be gone, the connection must end, and no timer may keep it.
    for (int i = 0; connections.size() > 0; ++i) {
      TANDEM_CHECK(i < 10000);
      context.restart();
      context.poll();
      Drain(fds[0], &answers);
    }
    TANDEM_CHECK(connections.num_exchanges() == 0);
  }
  Drain(fds[0], &answers);
  close(fds[0]);
  TANDEM_CHECK(service.pairs().num_inside() == 0);
  return answers;
}

void FuzzOne(absl::string_view bytes) {
  if (bytes.size() < 2) return;
  const size_t step = 1 + static_cast<unsigned char>(bytes[0]);
  const auto choice = static_cast<unsigned char>(bytes[1]);
  bytes.remove_prefix(2);
  if (choice % 4 == 0) {
    ReadAnswers(AnswersTo(absl::StrCat(kStarts[choice / 4 % std::size(kStarts)], bytes), step));
    return;
  }
  RequestMaker maker(bytes);
  maker.MakeAll();
  const Answers answers = ReadAnswers(AnswersTo(maker.sent(), step));
  if (!maker.is_well_formed()) return;
  const std::vector<int>& expected = maker.statuses();
  TANDEM_CHECK(answers.statuses.size() <= expected.size());
  TANDEM_CHECK(std::equal(answers.statuses.begin(), answers.statuses.end(), expected.begin()));
  TANDEM_CHECK(answers.is_closed || answers.statuses.size() == expected.size());
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
