// Uploads through pinned memory, and the calls of the runtime that a pass takes.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cuda/pinned_uploads.h"
#include "kvcache/paged_kv_cache.h"
#include "model/transformer.h"
#include "tests/golden_file.h"
#include "tests/simt/devices.h"
#include "tests/simt/runtime_calls.h"

namespace tandem {
namespace {

using cuda::PinnedUploads;
using simt::RuntimeCalls;
using testing::Pair;
using testing::UnorderedElementsAre;

std::vector<std::byte> BytesOf(size_t count, int seed) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  return bytes;
}

std::vector<std::byte> Downloaded(Backend* backend, const Buffer& buffer) {
  std::vector<std::byte> bytes(buffer.size_bytes());
  backend->Download(buffer.data(), absl::MakeSpan(bytes));
  return bytes;
}

// The simulated device copies from pinned memory as late as it may.
TEST(PinnedUploads, ReuseMemoryThatWasCopied) {
  const std::unique_ptr<Backend> backend = *MakeCudaBackend(0);
  std::vector<std::vector<std::byte>> sources;
  std::vector<Buffer> buffers;
  for (int i = 0; i < 2 * PinnedUploads::kNumSlots + 1; ++i) {
    sources.push_back(BytesOf(1000 + i, i));
    buffers.push_back(*backend->Allocate(sources.back().size()));
    std::vector<std::byte> reused = sources.back();
    backend->Upload(reused, buffers.back().data());
    std::fill(reused.begin(), reused.end(), std::byte{0});
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(Downloaded(backend.get(), buffers[i]), sources[i]) << i;
  }
  EXPECT_TRUE(backend->Synchronize().ok());
}

TEST(PinnedUploads, CopyMoreThanTheirMemory) {
  const std::unique_ptr<Backend> backend = *MakeCudaBackend(0);
  const auto source =
      BytesOf((PinnedUploads::kNumSlots + 2) * PinnedUploads::kSlotBytes + 12, /*seed=*/3);
  const Buffer buffer = *backend->Allocate(source.size());
  backend->Upload(source, buffer.data());
  EXPECT_TRUE(Downloaded(backend.get(), buffer) == source);
}

TEST(PinnedUploads, WorkWithoutPinnedMemory) {
  const std::unique_ptr<Backend> backend = *MakeCudaBackend(0);
  const auto source = BytesOf(1000, /*seed=*/3);
  const Buffer buffer = *backend->Allocate(source.size());
  RuntimeCalls::Get().refuses_pinned = true;
  backend->Upload(source, buffer.data());
  RuntimeCalls::Get().refuses_pinned = false;
  EXPECT_EQ(Downloaded(backend.get(), buffer), source);
  EXPECT_TRUE(backend->Synchronize().ok());
}

// The tables of a pass are one upload; everything else is in the graph.
TEST(PassCalls, AreOneUploadAndOneGraph) {
  const std::unique_ptr<Backend> backend = *MakeCudaBackend(0);
  const auto model = *Transformer::Load(GoldenModelPath("mistral-full"), backend.get());
  const auto cache = *PagedKvCache::Create(backend.get(), model->kv_layout(16, KvDType::kBF16), 8);
  KvSequence one = cache->NewSequence();
  KvSequence other = cache->NewSequence();
  const std::vector<TokenId> tokens = {5, 6};
  for (int pass = 0; pass < 6; ++pass) {
    RuntimeCalls::Get().counts.clear();
    const ForwardRequest requests[] = {
        {.tokens = tokens, .kv = &one, .num_logits = 1, .to_host = LogitsToHost::kNothing},
        {.tokens = tokens, .kv = &other, .num_logits = 1, .to_host = LogitsToHost::kNothing}};
    ASSERT_TRUE(model->Forward(requests).ok());
  }
  // The second is for the upload before last, which had the same memory.
  EXPECT_THAT(RuntimeCalls::Get().counts,
              UnorderedElementsAre(Pair("cudaMemcpyAsync", 1), Pair("cudaEventSynchronize", 1),
                                   Pair("cudaEventRecord", 1), Pair("cudaGraphLaunch", 1)));
  EXPECT_TRUE(backend->Synchronize().ok());
}

// The error of a device that cannot be selected is kept.
TEST(SelectedDevice, ReportsWhyItCannotBe) {
  const std::unique_ptr<Backend> backend = *MakeCudaBackend(0);
  const Buffer from = *backend->Allocate(4);
  Buffer to = *backend->Allocate(4);
  const auto without_driver = [](auto work) {
    simt::Devices::Get().has_driver = false;
    work();
    simt::Devices::Get().has_driver = true;
  };
  without_driver([&] { backend->Copy(from.data(), to.data(), 4); });
  EXPECT_THAT(std::string(backend->Synchronize().message()),
              testing::HasSubstr("cuda:0: copying: "));
  without_driver([&] { to = Buffer(); });
  EXPECT_THAT(std::string(backend->Synchronize().message()),
              testing::HasSubstr("cuda:0: freeing memory: "));
  EXPECT_TRUE(backend->Synchronize().ok());
}

}  // namespace
}  // namespace tandem
