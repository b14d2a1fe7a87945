// Speed of a link and of a plain TCP connection over loopback, in one run: bytes a second, round
// trips of 8 and 64 KiB, and new connections. One line of JSON for each.
//
//   ninja -C build/release link_benchmark && build/release/net/link_benchmark [REPEAT]
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/instant.h"
#include "base/machine_load.h"
#include "base/net/link.h"
#include "base/net/secret_testing.h"

namespace tandem {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr int kNumBlocks = 512;
constexpr int kBlocksAhead = 8;  // as two windows of 4 MiB
constexpr int kNumTrips = 1000;
constexpr int kSpins = 50;  // as RankLink: polls before the thread sleeps

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Result {
  double gb_per_second = 0;
  double writer_gb_per_cpu_second = 0, reader_gb_per_cpu_second = 0;
  double us_8k = 0, us_64k = 0;
};

void Print(const char* name, const Result& r) {
  std::printf(
      "{\"wire\": \"%s\", \"gb_per_second\": %.3f, \"writer_gb_per_cpu_second\": %.2f, "
      "\"reader_gb_per_cpu_second\": %.2f, \"us_8k\": %.0f, \"us_64k\": %.0f}\n",
      name, r.gb_per_second, r.writer_gb_per_cpu_second, r.reader_gb_per_cpu_second, r.us_8k,
      r.us_64k);
  std::fflush(stdout);
}

// ---- Plain TCP ----

void Move(int file, char* bytes, size_t size, bool writes) {
  while (size > 0) {
    const ssize_t moved =
        writes ? send(file, bytes, size, MSG_NOSIGNAL) : recv(file, bytes, size, 0);
    if (moved > 0) {
      bytes += moved;
      size -= moved;
    } else {
      TANDEM_CHECK(moved < 0 && errno == EAGAIN);
      pollfd wait = {file, static_cast<short>(writes ? POLLOUT : POLLIN), 0};
      poll(&wait, 1, -1);
    }
  }
}

Result MeasurePlain() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  Address at = *ParseAddress("127.0.0.1", 0, Names::kRefused, "address");
  TANDEM_CHECK(bind(listener, at.data(), at.size()) == 0 && listen(listener, 1) == 0);
  socklen_t at_size = at.capacity();
  getsockname(listener, at.data(), &at_size);
  Result result;
  const double gb = 1e-9 * static_cast<double>(kBlockBytes) * kNumBlocks;
  const auto set_up = [](int file) {
    const int on = 1;
    setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  };
  std::thread reads([&] {
    const int file = accept(listener, nullptr, nullptr);
    set_up(file);
    std::vector<char> block(kBlockBytes);
    const absl::Duration start = ThreadProcessorTime();
    for (int i = 0; i < kNumBlocks; ++i) Move(file, block.data(), kBlockBytes, false);
    result.reader_gb_per_cpu_second = gb / absl::ToDoubleSeconds(ThreadProcessorTime() - start);
    Move(file, block.data(), 1, true);
    for (const size_t size : {8 << 10, 64 << 10}) {
      for (int i = 0; i < kNumTrips; ++i) {
        Move(file, block.data(), size, false);
        Move(file, block.data(), size, true);
      }
    }
    close(file);
  });
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  TANDEM_CHECK(connect(file, at.data(), at.size()) == 0);
  set_up(file);
  std::vector<char> block(kBlockBytes, 'x');
  const Instant start = Instant::Now();
  const absl::Duration cpu = ThreadProcessorTime();
  for (int i = 0; i < kNumBlocks; ++i) Move(file, block.data(), kBlockBytes, true);
  result.writer_gb_per_cpu_second = gb / absl::ToDoubleSeconds(ThreadProcessorTime() - cpu);
  Move(file, block.data(), 1, false);
  result.gb_per_second = gb / absl::ToDoubleSeconds(Instant::Now() - start);
  for (const size_t size : {8 << 10, 64 << 10}) {
    std::vector<double> times;
    for (int i = 0; i < kNumTrips; ++i) {
      const Instant began = Instant::Now();
      Move(file, block.data(), size, true);
      Move(file, block.data(), size, false);
      times.push_back(absl::ToDoubleMicroseconds(Instant::Now() - began));
    }
    (size == 8 << 10 ? result.us_8k : result.us_64k) = Median(times);
  }
  reads.join();
  close(file);
  close(listener);
  return result;
}

// ---- Links ----

struct Side final : LinkEvents {
  explicit Side(bool listens) {
    LinkOptions options{.service = "benchmark", .secrets = {kTestSecret}};
    if (listens) {
      options.address = *ParseAddress("127.0.0.1", 0, Names::kRefused, "address");
      options.accepts = [](absl::string_view) { return true; };
    }
    link = *Link::Open(options, this);
  }
  void OnOpened(LinkId id, const std::string&, absl::string_view) override {
    peer = id;
    link->SendMessage(id, "hello");
  }
  void OnRefused(const std::string&, const absl::Status&) override {}
  void OnMessage(LinkId id, absl::Span<const std::byte> bytes) override {
    if (bytes.size() == 5) link->Admit(id);
    ++num_messages;
  }
  BlockBuffer OnBlock(LinkId, const BlockHeader&, size_t size) override {
    if (buffer == nullptr || buffer->size() != size) {
      buffer = std::make_shared<std::vector<std::byte>>(size);
    }
    return buffer;
  }
  void OnBlockReceived(LinkId, const BlockHeader&) override { ++num_received; }
  void OnBlockSent(LinkId, size_t) override { ++num_sent; }
  void OnClosed(LinkId, const absl::Status&, bool) override { is_closed = true; }

  template <typename Condition>
  void Until(Condition condition) {
    int num_idle = 0;
    while (!condition()) {
      num_idle = link->Progress() ? 0 : num_idle + 1;
      if (num_idle > kSpins) link->Wait(absl::Milliseconds(100));
    }
  }
  void Send(size_t size) {
    link->SendBlock(peer, {}, absl::MakeConstSpan(*block).first(size), block);
  }

  std::unique_ptr<Link> link;
  LinkId peer = 0;
  BlockBuffer buffer;
  std::shared_ptr<std::vector<std::byte>> block =
      std::make_shared<std::vector<std::byte>>(kBlockBytes, std::byte{'x'});
  int num_messages = 0, num_received = 0, num_sent = 0;
  bool is_closed = false;
};

Result MeasureLink() {
  Result result;
  const double gb = 1e-9 * static_cast<double>(kBlockBytes) * kNumBlocks;
  Side listens(true);
  const Address address = listens.link->address();
  std::thread reads([&] {
    listens.Until([&] { return listens.num_messages == 1; });
    const absl::Duration start = ThreadProcessorTime();
    listens.Until([&] { return listens.num_received == kNumBlocks; });
    result.reader_gb_per_cpu_second = gb / absl::ToDoubleSeconds(ThreadProcessorTime() - start);
    listens.link->SendMessage(listens.peer, "end");
    for (const size_t size : {8 << 10, 64 << 10}) {
      for (int i = 0; i < kNumTrips; ++i) {
        const int seen = listens.num_received;
        listens.Until([&] { return listens.num_received > seen; });
        listens.Send(size);
      }
    }
    listens.Until([&] { return listens.is_closed; });
  });
  {
    Side connects(false);
    connects.link->Connect(address, "any");
    connects.Until([&] { return connects.num_messages == 1; });
    const Instant start = Instant::Now();
    const absl::Duration cpu = ThreadProcessorTime();
    for (int i = 0; i < kNumBlocks; ++i) {
      connects.Send(kBlockBytes);
      connects.Until([&] { return i - connects.num_sent < kBlocksAhead; });
    }
    connects.Until([&] { return connects.num_sent == kNumBlocks; });
    result.writer_gb_per_cpu_second = gb / absl::ToDoubleSeconds(ThreadProcessorTime() - cpu);
    connects.Until([&] { return connects.num_messages == 2; });
    result.gb_per_second = gb / absl::ToDoubleSeconds(Instant::Now() - start);
    for (const size_t size : {8 << 10, 64 << 10}) {
      std::vector<double> times;
      for (int i = 0; i < kNumTrips; ++i) {
        const int seen = connects.num_received;
        const Instant began = Instant::Now();
        connects.Send(size);
        connects.Until([&] { return connects.num_received > seen; });
        times.push_back(absl::ToDoubleMicroseconds(Instant::Now() - began));
      }
      (size == 8 << 10 ? result.us_8k : result.us_64k) = Median(times);
    }
  }
  reads.join();
  return result;
}

void MeasureConnections() {
  Side listens(true);
  const Address address = listens.link->address();
  std::atomic<bool> is_over = false;
  std::thread accepts([&] { listens.Until([&] { return is_over.load(); }); });
  constexpr int kNum = 30;  // fewer than a listening side takes between two ticks
  std::vector<double> times;
  for (int i = 0; i < kNum; ++i) {
    Side connects(false);
    const Instant start = Instant::Now();
    connects.link->Connect(address, "any");
    connects.Until([&] { return connects.num_messages == 1; });
    times.push_back(absl::ToDoubleMicroseconds(Instant::Now() - start));
  }
  is_over = true;
  accepts.join();
  std::printf("{\"wire\": \"link\", \"us_connect\": %.0f}\n", Median(times));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const int repeat = argc > 1 ? std::atoi(argv[1]) : 5;
  for (int i = 0; i < repeat; ++i) {
    tandem::Print("tcp", tandem::MeasurePlain());
    tandem::Print("link", tandem::MeasureLink());
  }
  tandem::MeasureConnections();
}
