// A draft in one pass on a device: the host's tokens, from one graph and one wait.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "draft/model_drafter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/device_sampling.h"
#include "model/transformer.h"
#include "tests/golden_file.h"
#include "tests/simt/launches.h"
#include "tests/simt/runtime_calls.h"

namespace tandem {
namespace {

using simt::RuntimeCalls;
using testing::SizeIs;

// A golden parallel draft on a backend, and the sequences that it drafts for.
struct ParallelWorld {
  explicit ParallelWorld(std::unique_ptr<Backend> on)
      : backend(std::move(on)),
        model(*Transformer::Load(ParallelGoldenPath("llama-parallel"), backend.get(),
                                 {.has_exact_activations = true})),
        cache(*PagedKvCache::Create(backend.get(), model->kv_layout(16, KvDType::kF32), 64)),
        drafter(model.get(), cache.get(), model->vocab_size(), /*chunk_tokens=*/64,
                /*vocabulary=*/nullptr, model->config().mask_token) {}

  void Add(std::vector<TokenId> tokens) {
    states.push_back(drafter.NewState(tokens));
    texts.push_back(std::move(tokens));
  }
  // Drafts `k` tokens for each sequence, the second one greedily.
  std::vector<std::vector<TokenId>> Draft(int k) {
    static const SamplingParams kSampled = {.temperature = 0.8f, .top_p = 0.95f};
    static const SamplingParams kGreedy = {.temperature = 0.0f};
    std::vector<DraftRequest> requests;
    std::vector<Proposal> proposals(texts.size());
    std::vector<Proposal*> into;
    for (size_t i = 0; i < texts.size(); ++i) {
      requests.push_back({.context = texts[i],
                          .granted = k,
                          .sampling = i == 1 ? &kGreedy : &kSampled,
                          .random = RandomSource(5 + i),
                          .state = states[i].get()});
      into.push_back(&proposals[i]);
    }
    EXPECT_TRUE(drafter.Propose(requests, into).ok());
    std::vector<std::vector<TokenId>> drafts;
    for (const Proposal& proposal : proposals) drafts.push_back(proposal.tokens);
    return drafts;
  }
  // Keeps the first `accepted` tokens of each draft, and one more.
  void Commit(const std::vector<std::vector<TokenId>>& drafts, int accepted) {
    for (size_t i = 0; i < texts.size(); ++i) {
      texts[i].insert(texts[i].end(), drafts[i].begin(), drafts[i].begin() + accepted);
      texts[i].push_back(7);
      drafter.Rollback(states[i].get(), static_cast<int>(texts[i].size()) - 1);
    }
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Transformer> model;
  std::unique_ptr<PagedKvCache> cache;
  ModelDrafter drafter;
  std::vector<std::vector<TokenId>> texts;
  std::vector<std::unique_ptr<DraftState>> states;
};

TEST(ParallelDraftOnADevice, TakesOneGraphAndOneWait) {
  for (const int num_sequences : {1, 3}) {
    SCOPED_TRACE(num_sequences);
    ParallelWorld device(*MakeCudaBackend(0));
    for (int i = 0; i < num_sequences; ++i) device.Add({9, 8, static_cast<TokenId>(i)});
    constexpr int kTokens = 4;
    // The same shapes twice record their graphs.
    for (int round = 0; round < 6; ++round) device.Commit(device.Draft(kTokens), /*accepted=*/2);
    RuntimeCalls::Get().counts.clear();
    const auto drafts = device.Draft(kTokens);
    for (const std::vector<TokenId>& draft : drafts) EXPECT_THAT(draft, SizeIs(kTokens));
    const auto& counts = RuntimeCalls::Get().counts;
    const auto count = [&](const std::string& name) {
      const auto it = counts.find(name);
      return it == counts.end() ? 0 : it->second;
    };
    EXPECT_EQ(count("cudaGraphLaunch"), 1);
    EXPECT_EQ(count("cudaStreamSynchronize"), 1);
    EXPECT_EQ(count("cudaStreamBeginCapture"), 0);
  }
}

// Tokens may differ only where rounding decides: the draft is f32 on both sides.
TEST(ParallelDraftOnADevice, DrawsTheTokensOfTheHost) {
  ParallelWorld host(*MakeBackend("cpu", {.num_threads = 1}));
  ParallelWorld device(*MakeCudaBackend(0));
  for (ParallelWorld* const world : {&host, &device}) {
    for (int i = 0; i < 3; ++i) world->Add({211, 105, static_cast<TokenId>(97 + i)});
  }
  for (int round = 0; round < 8; ++round) {
    const int k = 1 + round % 5;
    const auto drafts = host.Draft(k);
    EXPECT_EQ(device.Draft(k), drafts) << round;
    for (ParallelWorld* const world : {&host, &device}) world->Commit(drafts, round % (k + 1));
  }
}

}  // namespace
}  // namespace tandem
