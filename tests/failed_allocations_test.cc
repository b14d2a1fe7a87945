// Each allocation of a request fails once, in a program with its own operator new. Whatever the
// client gets, the request ends, and returns its place and its pair.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/guard.h"
#include "base/hash_map.h"
#include "gtest/gtest.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

std::atomic<int64_t> num_left{0};  // allocations until one fails; none fails at 0
thread_local bool is_exempt = false;

bool FailsNow() {
  if (is_exempt) return false;
  int64_t left = num_left.load();
  while (left > 0 && !num_left.compare_exchange_weak(left, left - 1)) {
  }
  return left == 1;
}

// GCC must not see that one pair of functions is another.
[[gnu::noinline]] void* Allocated(std::size_t size, std::size_t unit) {
  if (FailsNow()) std::rethrow_exception(std::make_exception_ptr(std::bad_alloc()));
  void* const data = unit == 0 ? std::malloc(std::max<std::size_t>(size, 1))
                               : std::aligned_alloc(unit, (size + unit) / unit * unit);
  if (data == nullptr) std::abort();
  return data;
}

[[gnu::noinline]] void Free(void* data) { std::free(data); }

// Answers each request at once.
class InstantEngine : public ManualEngine {
 public:
  using Engine::Submit;
  absl::StatusOr<GenerationId> Submit(Request, OnPiece on_piece, OnDone on_done) override {
    Completion completion;
    completion.text = "a text that needs memory of its own";
    completion.finish_reason = FinishReason::kStop;
    const absl::Status status = Caught("piece", [&] {
      const TokenId token = 5;
      on_piece({.text = completion.text, .token_ids = {&token, 1}, .provenance = "p"});
    });
    status.ok() ? on_done(std::move(completion)) : on_done(status);
    return 1;
  }
};

PairSource Source(const std::string& name, std::function<absl::StatusOr<LoadedPair>()> load) {
  return {.name = name,
          .plan = [] { return PairMemory{.bytes = 1, .free_bytes = 2, .parts = "weights"}; },
          .load = [load = std::move(load)](const PairFailures&) { return load(); }};
}

class FailedAllocations : public testing::Test {
 protected:
  FailedAllocations() {
    is_exempt = true;
    options_.limits.write_timeout = absl::Milliseconds(100);
    options_.limits.max_connections = 1;  // a request that does not end leaves no room
  }
  ~FailedAllocations() override { num_left = 0; }

  // Fails one allocation after the other, and calls `after` after each request.
  void FailEach(const std::string& target, const std::string& body,
                absl::FunctionRef<void()> after) {
    int64_t number = 0;
    for (bool has_failed = true; has_failed;) {
      num_left = ++number;
      Client client(server_->port(), target, body, "Connection: close\r\n");
      while (!client.ReadSome(64 << 10).empty()) {
      }
      has_failed = num_left.exchange(0) == 0;
      after();
    }
    EXPECT_GT(number, 50);
  }
  // Asks until the last request has ended.
  void Ask(const std::string& method, const std::string& target) {
    Answer answer;
    while ((answer = tandem::Ask(server_.get(), method, target)).error("code") ==
           "too_many_connections") {
      absl::SleepFor(absl::Milliseconds(1));
    }
    EXPECT_EQ(answer.status, 200) << answer.body;
  }

  ServerOptions options_ = TestServerOptions();
  std::unique_ptr<HttpServer> server_;
};

TEST_F(FailedAllocations, LeaveTablesEmpty) {
  absl::flat_hash_map<uint64_t, int> table;
  is_exempt = false;
  num_left = 1;
  EXPECT_THROW(ReserveAll(&table, 1000), std::bad_alloc);
  is_exempt = true;
  EXPECT_TRUE(table.empty());
  ReserveAll(&table, 1000);
  table[1] = 2;
  EXPECT_EQ(table[1], 2);
}

// With streams or with whole answers.
class FailedAllocationsOfRequests : public FailedAllocations,
                                    public testing::WithParamInterface<bool> {
 protected:
  const std::string body_ =
      absl::StrCat(R"({"prompt": "a", "model": "a", "stream": )", GetParam() ? "true}" : "false}");
};

TEST_P(FailedAllocationsOfRequests, KeepNoPlace) {
  InstantEngine engine;
  server_ = StartServer(&engine, options_);
  FailEach("/v1/completions", body_, [&] {
    Ask("GET", "/v1/models");
    EXPECT_EQ(server_->service().pairs().num_inside(), 0);
  });
}

TEST_P(FailedAllocationsOfRequests, KeepNoPair) {
  options_.service.pairs = {
      Source("a", [] { return LoadedPair{.engine = std::make_unique<InstantEngine>()}; })};
  options_.service.pair_memory_bytes = 2;
  server_ = *HttpServer::Start(options_);
  FailEach("/v1/completions", body_, [&] {
    Ask("POST", "/v1/models/a/load");  // also after a failed load
    Ask("POST", "/v1/models/a/unload");
  });
}

INSTANTIATE_TEST_SUITE_P(Forms, FailedAllocationsOfRequests, testing::Bool(),
                         [](const auto& form) { return form.param ? "Stream" : "Whole"; });

TEST_F(FailedAllocations, WhileALoadFailsKeepNoRequest) {
  options_.service.pairs = {
      Source("a", [] { return absl::NotFoundError("the file of the model is not there"); })};
  options_.service.pair_memory_bytes = 2;
  server_ = *HttpServer::Start(options_);
  FailEach("/v1/models/a/load", "{}", [&] { Ask("GET", "/v1/models"); });
}

}  // namespace
}  // namespace tandem

void* operator new(std::size_t size) { return tandem::Allocated(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return tandem::Allocated(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept { tandem::Free(data); }
void operator delete(void* data, std::size_t /*size*/) noexcept { tandem::Free(data); }
void operator delete(void* data, std::align_val_t /*alignment*/) noexcept { tandem::Free(data); }
void operator delete(void* data, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  tandem::Free(data);
}
