// Models whose parts are on devices of several processes have the bits of one device. This program
// also runs as the other ranks: `simt_ranks_test rank N`.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/tensor_parallel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/pass_message.h"
#include "model/transformer.h"
#include "tandem/engine.h"
#include "tests/golden_file.h"
#include "tests/simt/devices.h"
#include "tests/simt/nccl_testing.h"

namespace tandem {
namespace {

using simt::DeviceRank;
using simt::OtherRanks;
using testing::HasSubstr;

constexpr const char* kUnlike = "TANDEM_TEST_UNLIKE_DEVICES";

// A model, or a rank's part of one, and its cache.
struct Loaded {
  std::unique_ptr<Transformer> model;
  std::unique_ptr<PagedKvCache> cache;  // null without heads

  Loaded(const std::string& name, Backend* backend, KvDType dtype,
         Transformer::LoadOptions options) {
    auto loaded = Transformer::Load(GoldenModelPath(name), backend, options);
    TANDEM_CHECK(loaded.ok());
    model = *std::move(loaded);
    const KvLayout layout = model->kv_layout(/*page_size=*/4, dtype);
    if (layout.num_kv_heads > 0) cache = *PagedKvCache::Create(backend, layout, /*num_pages=*/32);
  }
};

// Records a pass, and returns the logits of a prompt, of a draft that is rolled back, of a fork
// whose page is copied, and of single tokens, whose passes are recorded and repeated.
std::vector<float> LogitsOf(const Loaded& loaded) {
  std::vector<float> all;
  const auto pass = [&](std::vector<ForwardRequest> requests) {
    const auto logits = loaded.model->Forward(requests);
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    const auto* const data = static_cast<const float*>(logits->data);
    all.insert(all.end(), data, data + int64_t{logits->rows} * logits->cols);
  };
  std::vector<TokenId> prompt;
  for (int i = 0; i < 20; ++i) prompt.push_back((i * 37 + 5) % loaded.model->vocab_size());
  const auto tokens = absl::MakeConstSpan(prompt);
  const PassSize size{.batch = 1, .rows = 1, .logit_rows = 1, .pages = 1};
  EXPECT_TRUE(loaded.model->RecordPass(size, false, loaded.cache.get()).ok());
  KvSequence one = loaded.cache->NewSequence();
  pass({{.tokens = tokens.first(10), .kv = &one, .num_logits = 3}});
  one.Truncate(one.length() - 3);
  KvSequence fork = one.Fork();
  pass({{.tokens = tokens.subspan(7, 1), .kv = &one},
        {.tokens = tokens.subspan(15, 2), .kv = &fork, .num_logits = 2}});
  for (int i = 10; i < 14; ++i) pass({{.tokens = tokens.subspan(i, 1), .kv = &one}});
  return all;
}

struct Case {
  std::string model;
  int world = 2;
  KvDType kv_dtype = KvDType::kF32;
  std::optional<DType> quantized{};
};

class DeviceRankModels : public testing::TestWithParam<Case> {};

TEST_P(DeviceRankModels, HaveTheBitsOfOneDevice) {
  const Case& c = GetParam();
  Transformer::LoadOptions options{.quantized = c.quantized};
  const auto memory = *SharedMemory::Create(c.world);
  OtherRanks others(memory, [&](DeviceRank& rank) -> absl::Status {
    options.group = rank.group.get();
    const Loaded part(c.model, rank.backend.get(), c.kv_dtype, options);
    for (;;) {
      const auto message = rank.group->Receive();
      if (!message.ok()) return message.status();
      const absl::Status status =
          part.model->Follow(*PassMessage::Decode(*message), part.cache.get());
      if (!status.ok()) return status;
    }
  });
  std::vector<float> together, alone;
  const int repeated_before = simt::CountsOfNcclStandIn().repeated;
  {
    DeviceRank rank(memory, 0);
    options.group = rank.group.get();
    const Loaded part(c.model, rank.backend.get(), c.kv_dtype, options);
    part.model->Lead(part.cache.get());
    together = LogitsOf(part);
  }
  EXPECT_TRUE(others.Wait());
  EXPECT_GT(simt::CountsOfNcclStandIn().repeated, repeated_before);
  options.group = nullptr;
  const auto backend = *MakeCudaBackend(0);
  {
    const Loaded whole(c.model, backend.get(), c.kv_dtype, options);
    alone = LogitsOf(whole);
  }
  ASSERT_EQ(together.size(), alone.size());
  ASSERT_FALSE(alone.empty());
  EXPECT_EQ(std::memcmp(together.data(), alone.data(), alone.size() * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(All, DeviceRankModels,
                         testing::Values(Case{"llama-bf16"}, Case{"llama-bf16", 2, KvDType::kBF16},
                                         Case{"llama-bf16", 3, KvDType::kInt8},
                                         Case{"llama-gqa", 2, KvDType::kF32, DType::kQ4K},
                                         Case{"gemma2", 2, KvDType::kBF16}, Case{"qwen2-fp16"},
                                         Case{"qwen3-norm", 3}, Case{"cohere2"}),
                         [](const auto& info) {
                           std::string name = absl::StrCat(info.param.model, "_", info.param.world,
                                                           "_", NameOf(info.param.kv_dtype));
                           if (info.param.quantized.has_value())
                             absl::StrAppend(&name, "_", NameOf(*info.param.quantized));
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); },
                               '_');
                           return name;
                         });

TEST(DeviceRankModels, ModelsThatNeedOtherExchangesAreRefused) {
  const DeviceRank rank(*SharedMemory::Create(1), 0);
  const auto refusal = [&](const char* name) {
    const auto loaded =
        Transformer::Load(GoldenModelPath(name), rank.backend.get(), {.group = rank.group.get()});
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kUnimplemented);
    return std::string(loaded.status().message());
  };
  EXPECT_EQ(refusal("olmo2"),
            GoldenModelPath("olmo2") +
                ": found norms over all heads, allowed where ranks have devices: norms of each "
                "head, or none");
  EXPECT_THAT(refusal("mixtral"), HasSubstr("found a model with experts, allowed on cuda:0"));
}

// ---- Engines ----

EngineOptions Options(int ranks) {
  EngineOptions options;
  options.target = GoldenModelPath("llama-bf16");
  options.draft = GoldenModelPath("llama-bf16");
  options.device = "auto";
  options.tensor_parallel = ranks;
  options.rank_program = "/proc/self/exe";
  return options;
}

std::string Refusal(const EngineOptions& options) {
  const auto engine = Engine::Create(options);
  EXPECT_FALSE(engine.ok());
  return std::string(engine.status().message());
}

// The draft can be split between ranks too: its passes read ids that rank 0 drew on its device.
TEST(DeviceRankEngine, WritesTheTextOfOneDevice) {
  for (const float temperature : {0.0f, 0.8f}) {
    std::vector<TokenId> alone;
    for (const auto& [ranks, shares_draft] : {std::pair{1, false}, {2, false}, {2, true}}) {
      EngineOptions options = Options(ranks);
      options.draft_tensor_parallel = shares_draft;
      auto engine = Engine::Create(options);
      ASSERT_TRUE(engine.ok()) << engine.status().message();
      const auto got = (*engine)->Generate({.prompt_ids = {9, 8, 7, 6, 5},
                                            .max_tokens = 12,
                                            .sampling = {.temperature = temperature},
                                            .seed = 3,
                                            .ignore_eos = true,
                                            .draft_tokens = 3});
      ASSERT_TRUE(got.ok()) << got.status().message();
      EXPECT_GT(got->stats.accepted, 0);
      if (ranks == 1) alone = got->token_ids;
      EXPECT_EQ(got->token_ids, alone) << ranks << " " << shares_draft << " " << temperature;
    }
  }
}

TEST(DeviceRankEngine, NamesTheRankWithoutADevice) {
  EXPECT_EQ(Refusal(Options(5)), "tensor_parallel: rank 4: cuda:4: invalid device ordinal");
}

TEST(DeviceRankEngine, RefusesDevicesThatRoundDifferently) {
  setenv(kUnlike, "1", 1);
  const std::string refusal = Refusal(Options(2));
  unsetenv(kUnlike);
  EXPECT_THAT(refusal, HasSubstr("tensor_parallel: rank 1 computes with this host, sm_80"));
}

TEST(DeviceRankEngine, ReportsThatNcclIsMissing) {
  setenv("TANDEM_NCCL", "none", 1);
  EXPECT_EQ(Refusal(Options(2)), "tensor_parallel: cuda:0: NCCL: TANDEM_NCCL is none");
  setenv("TANDEM_NCCL", NCCL_STAND_IN, 1);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  setenv("TANDEM_NCCL", NCCL_STAND_IN, 0);
  setenv("TANDEM_CUBLAS_LT", "none", 1);
  auto& devices = tandem::simt::Devices::Get().all;
  if (std::getenv(tandem::kUnlike) == nullptr) devices.assign(4, {9, 0});
  if (argc == 3 && std::strcmp(argv[1], "rank") == 0) {
    const absl::Status status = tandem::FollowRankZero(std::atoi(argv[2]));
    if (!status.ok()) std::cerr << status.message() << std::endl;
    return status.ok() ? 0 : 1;
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
