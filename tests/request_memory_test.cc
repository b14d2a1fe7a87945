// The memory that requests hold at once, in a program with its own operator new, which counts
// bytes.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "server/api/service.h"
#include "server/server_testing.h"
#include "tandem/engine.h"

namespace tandem {
namespace {

std::atomic<int64_t> bytes_held{0};
std::atomic<int64_t> max_bytes_held{0};

void* Counted(void* data) {
  if (data == nullptr) std::abort();
  const int64_t now = bytes_held += static_cast<int64_t>(malloc_usable_size(data));
  int64_t max = max_bytes_held.load();
  while (now > max && !max_bytes_held.compare_exchange_weak(max, now)) {
  }
  return data;
}

void Free(void* data) {
  bytes_held -= static_cast<int64_t>(malloc_usable_size(data));
  std::free(data);
}

TEST(RequestMemory, CountsBytesHeldAtOnce) {
  const int64_t before = max_bytes_held = bytes_held.load();
  for (int i = 0; i < 3; ++i) std::make_unique<std::vector<char>>(1 << 20)->at(5) = 'a';
  EXPECT_GE(max_bytes_held - before, 1 << 20);
  EXPECT_LT(max_bytes_held - before, 2 << 20);
}

// A request holds at most 64 times the bytes of its body at once.
TEST(RequestMemory, IsBoundedByTheSizeOfTheBody) {
  constexpr size_t kBytes = 400'000;
  const auto engine = Engine::Create({.target = TestModel("storyteller-7m"),
                                      .device = "cpu",
                                      .threads = 1,
                                      .kv_memory_bytes = 8 << 20});
  ASSERT_TRUE(engine.ok()) << engine.status();
  Service service(engine->get(), {.model_name = "story"});
  std::string mixed;
  for (size_t i = 0; mixed.size() < kBytes; ++i) mixed += "!a$ 7.b;Q"[i * i % 9];
  std::string numbers = "1";
  while (numbers.size() < kBytes) numbers += ",1";
  for (const auto& [path, body] : std::vector<std::pair<std::string, std::string>>{
           {"/tokenize", R"({"prompt": ")" + mixed + "\"}"},
           {"/tokenize", R"({"prompt": ")" + std::string(kBytes, 'a') + "\"}"},
           {"/tokenize", R"({"messages": [{"role": "user", "content": ")" + mixed + "\"}]}"},
           {"/detokenize", R"({"tokens": [)" + numbers + "]}"}}) {
    HttpRequest request;
    request.method = "POST";
    request.target = request.path = path;
    request.host = "localhost";
    request.content_type = "application/json";
    request.body = body;
    request.received = Instant::Now();
    request.route = Service::RouteOf(request);
    const int64_t before = max_bytes_held = bytes_held.load();
    const Service::Reply reply = service.Handle(request);
    ASSERT_TRUE(std::holds_alternative<HttpResponse>(reply)) << path;
    EXPECT_EQ(std::get<HttpResponse>(reply).status, 200) << path;
    // For each byte: 7 bytes of the answer's text, in a string that doubles; 4 bytes for its token,
    // in a vector that doubles; and 32 bytes to merge it.
    EXPECT_LT(max_bytes_held - before, 64 * static_cast<int64_t>(kBytes)) << path;
  }
}

}  // namespace
}  // namespace tandem

void* operator new(std::size_t size) {
  return tandem::Counted(std::malloc(std::max<std::size_t>(size, 1)));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return tandem::Counted(std::aligned_alloc(unit, (size + unit) / unit * unit));
}
void operator delete(void* data) noexcept { tandem::Free(data); }
void operator delete(void* data, std::size_t /*size*/) noexcept { tandem::Free(data); }
void operator delete(void* data, std::align_val_t /*alignment*/) noexcept { tandem::Free(data); }
void operator delete(void* data, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  tandem::Free(data);
}
