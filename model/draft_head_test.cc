// Tests draft heads as models: compares them with a reference in float64 (tests/data/README.md),
// and checks that their bits depend neither on the rest of the pass nor on earlier contents of the
// cache.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcache/kv_testing.h"
#include "kvcache/paged_kv_cache.h"
#include "model/checkpoint/safetensors.h"
#include "model/transformer.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

// As for golden models (tests/golden_models_test.cc): f32 sums of these sizes in another order.
constexpr float kHeadTolerance = 2e-4f;
constexpr int kChainSteps = 8;
constexpr int kCachePages = 256;

std::string TargetFolder() { return SourcePath("tests/data/models/llama-mha"); }
std::string HeadFolder(const std::string& name) {
  return absl::StrCat(SourcePath("tests/data/heads/"), name);
}

template <typename T>
std::vector<T> ReadNumbers(const std::string& path, absl::string_view name) {
  const std::string file = *ReadFile(path);
  const auto bytes =
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(file.data()), file.size());
  const std::vector<SafetensorsEntry> entries = *ParseSafetensors(bytes, path);
  for (const SafetensorsEntry& entry : entries) {
    if (entry.name != name) continue;
    std::vector<T> numbers(entry.bytes.size() / sizeof(T));
    std::memcpy(numbers.data(), entry.bytes.data(), entry.bytes.size());
    return numbers;
  }
  return {};
}

// The rows of a pass, in request order.
struct Rows {
  std::vector<float> logits;
  std::vector<float> states;

  void Append(const Rows& other) {
    logits.insert(logits.end(), other.logits.begin(), other.logits.end());
    states.insert(states.end(), other.states.begin(), other.states.end());
  }
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}
bool SameBits(const Rows& a, const Rows& b) {
  return SameBits(a.logits, b.logits) && SameBits(a.states, b.states);
}

float WorstDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float worst = 0.0f;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = std::max(worst, std::abs(a[i] - b[i]));
  }
  return worst;
}

// A target, a head, and the states of a text that the target has read completely.
struct HeadWorld {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Transformer> target;
  std::unique_ptr<Transformer> head;
  std::unique_ptr<PagedKvCache> cache;
  std::vector<TokenId> ids =
      ReadNumbers<TokenId>(TargetFolder() + "/golden.safetensors", "input_ids");
  std::vector<float> states;        // [ids, read_state_size()]
  std::deque<KvSequence> overlays;  // for the next pass

  explicit HeadWorld(const std::string& name, const CpuOptions& options = {.num_threads = 2},
                     int page_size = 4, KvDType dtype = KvDType::kF32) {
    backend = *MakeCpuBackend(options);
    target = *Transformer::Load(TargetFolder(), backend.get());
    auto loaded = Load(HeadFolder(name));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    head = *std::move(loaded);
    target->KeepStates(head->config().target_layers);
    KvLayout layout = target->kv_layout(page_size, dtype);
    ++layout.num_layers;
    cache = *PagedKvCache::Create(backend.get(), layout, kCachePages);
    KvSequence kv = cache->NewSequence();
    const ForwardRequest pass{.tokens = ids, .kv = &kv, .num_logits = 0};
    EXPECT_TRUE(target->Forward({&pass, 1}).ok());
    const auto* data = static_cast<const float*>(target->states().data);
    states.assign(data, data + ids.size() * head->read_state_size());
    kv.Truncate(0);
    FillFreePages(cache.get(), std::nanf(""));
  }

  absl::StatusOr<std::unique_ptr<Transformer>> Load(const std::string& folder,
                                                    Transformer::LoadOptions options = {}) const {
    options.target = target.get();
    options.first_layer = target->config().num_layers;
    return Transformer::Load(folder, backend.get(), options);
  }

  // Returns a sequence with room for the `length` tokens that the target has read.
  KvSequence NewSequence(int length) const {
    KvSequence kv = cache->NewSequence();
    EXPECT_TRUE(kv.Extend(length).ok());
    return kv;
  }

  // Requests rows of the text's tokens [begin, end), with the target's states. Run drops their
  // overlays.
  ForwardRequest Text(const KvSequence& kv, int begin, int end, int late = 0) {
    overlays.push_back(kv.Overlay(begin));
    return Text(&overlays.back(), end, late);
  }
  ForwardRequest Text(KvSequence* overlay, int end, int late = 0) {
    const int begin = overlay->length();
    return {.tokens = absl::MakeConstSpan(ids).subspan(begin, end - begin),
            .kv = overlay,
            .num_logits = end - begin,
            .states = StatesAt(begin - 1 - late, end - begin)};
  }
  ConstMatrixView StatesAt(int first, int count) {
    const int size = head->read_state_size();
    return ConstMatrixView(states.data() + int64_t{first} * size, DType::kF32, count, size, size);
  }

  Rows Run(absl::Span<const ForwardRequest> requests) {
    const absl::StatusOr<MatrixView> logits = head->Forward(requests);
    EXPECT_TRUE(logits.ok()) << logits.status();
    overlays.clear();
    const auto values = [](const ConstMatrixView& x) {
      const auto* data = static_cast<const float*>(x.data);
      return std::vector<float>(data, data + int64_t{x.rows} * x.cols);
    };
    return {values(*logits), values(head->states())};
  }
  Rows Run(const ForwardRequest& request) { return Run({&request, 1}); }

  TokenId TokenOf(int row) const { return head->head_ids().empty() ? row : head->head_ids()[row]; }

  struct Chain {
    Rows rows;  // the last row of each step
    std::vector<TokenId> tokens;
  };
  // Drafts greedily after the `prefix` tokens that the target has read and the next token of the
  // text.
  Chain Draft(const KvSequence& kv, int prefix, int first = 1) {
    Chain chain;
    KvSequence overlay = kv.Overlay(first);
    Rows rows = Run(Text(&overlay, prefix + 1));
    for (int step = 0; step < kChainSteps; ++step) {
      const int width = head->head_tokens();
      const std::vector<float> logits(rows.logits.end() - width, rows.logits.end());
      const std::vector<float> own(rows.states.end() - head->state_size(), rows.states.end());
      chain.rows.Append({logits, own});
      chain.tokens.push_back(TokenOf(
          static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin())));
      const ConstMatrixView all = head->states();
      const ConstMatrixView last(
          static_cast<const float*>(all.data) + int64_t{all.rows - 1} * all.stride, DType::kF32, 1,
          all.cols, all.stride);
      rows = Run({.tokens = absl::MakeConstSpan(&chain.tokens.back(), 1),
                  .kv = &overlay,
                  .num_logits = 1,
                  .states = last,
                  .reads_own_states = true});
    }
    return chain;
  }
};

class DraftHead : public testing::TestWithParam<const char*> {
 protected:
  template <typename T>
  std::vector<T> Golden(absl::string_view name) const {
    return ReadNumbers<T>(HeadFolder(GetParam()) + "/golden.safetensors", name);
  }
};

TEST_P(DraftHead, ChainsMatchTheReferenceOnEveryInstructionSet) {
  const std::vector<int32_t> prefixes = Golden<int32_t>("prefixes");
  ASSERT_THAT(prefixes, testing::SizeIs(6));
  for (const std::string& isa : CpuIsas()) {
    SCOPED_TRACE(isa);
    HeadWorld world(GetParam(), {.num_threads = 2, .compute = CpuCompute::kF32, .isa = isa});
    Rows rows;
    std::vector<TokenId> tokens;
    for (const int prefix : prefixes) {
      KvSequence kv = world.NewSequence(prefix);
      const HeadWorld::Chain chain = world.Draft(kv, prefix);
      EXPECT_EQ(kv.length(), prefix);
      rows.Append(chain.rows);
      tokens.insert(tokens.end(), chain.tokens.begin(), chain.tokens.end());
    }
    EXPECT_EQ(tokens, Golden<TokenId>("tokens"));
    EXPECT_LE(WorstDifference(rows.logits, Golden<float>("logits")), kHeadTolerance);
    EXPECT_LE(WorstDifference(rows.states, Golden<float>("states")), kHeadTolerance);
  }
}

// The comparison with the reference detects the most likely mistake.
TEST_P(DraftHead, DetectsStatesThatAreOnePositionLate) {
  HeadWorld world(GetParam());
  KvSequence kv = world.NewSequence(17);
  world.Run(world.Text(kv, 1, 2));
  const Rows right = world.Run(world.Text(kv, 2, 18));
  const Rows late = world.Run(world.Text(kv, 2, 18, /*late=*/1));
  EXPECT_GE(WorstDifference(right.logits, late.logits), 1000 * kHeadTolerance);
  EXPECT_GE(WorstDifference(right.states, late.states), 1000 * kHeadTolerance);
}

TEST_P(DraftHead, RowsHaveTheSameBitsInEveryChunking) {
  for (const KvDType dtype : kAllKvDTypes) {
    HeadWorld world(GetParam(), {.num_threads = 2}, 4, dtype);
    KvSequence alone = world.NewSequence(30);
    Rows want;
    for (int slot = 1; slot <= 30; ++slot)
      want.Append(world.Run(world.Text(alone, slot, slot + 1)));
    for (const int chunk : {2, 3, 4, 5, 16, 17, 30}) {
      KvSequence kv = world.NewSequence(30);
      Rows got;
      for (int begin = 1; begin <= 30; begin += chunk) {
        got.Append(world.Run(world.Text(kv, begin, std::min(begin + chunk, 31))));
      }
      EXPECT_TRUE(SameBits(got, want)) << NameOf(dtype) << ", chunk " << chunk;
    }
  }
}

// A chain writes rows of drafted tokens. Rows of the text that overwrite them equal those of a
// fresh sequence.
TEST_P(DraftHead, RowsDoNotDependOnEarlierDrafts) {
  HeadWorld world(GetParam());
  for (int length = 1; length <= 12; ++length) {
    KvSequence used = world.NewSequence(length);
    world.Draft(used, length);
    ASSERT_EQ(used.length(), length);
    // The target keeps this many tokens of the chain and reads on.
    for (const int kept : {0, 1, 4}) {
      ASSERT_TRUE(used.Extend(kept + 1).ok());
      const int prefix = length + kept + 1;
      const HeadWorld::Chain again = world.Draft(used, prefix, /*first=*/length);
      KvSequence fresh = world.NewSequence(prefix);
      const HeadWorld::Chain want = world.Draft(fresh, prefix);
      EXPECT_TRUE(SameBits(again.rows, want.rows)) << length << " and " << kept;
      EXPECT_EQ(again.tokens, want.tokens);
      used.Truncate(length);
    }
  }
}

// Sequences of different lengths, with and without earlier rows.
TEST_P(DraftHead, RowsHaveTheSameBitsInEveryBatch) {
  constexpr int kSequences = 5;
  HeadWorld world(GetParam());
  std::vector<Rows> want;
  for (int i = 0; i < kSequences; ++i) {
    KvSequence kv = world.NewSequence(8 + i);
    if (i > 0) world.Run(world.Text(kv, 1, 1 + 2 * i));
    want.push_back(world.Run(world.Text(kv, 1 + 2 * i, 9 + i)));
  }
  for (int rotation = 0; rotation < kSequences; ++rotation) {
    std::vector<KvSequence> sequences(kSequences);
    std::vector<ForwardRequest> requests;
    Rows expected;
    for (int slot = 0; slot < kSequences; ++slot) {
      const int i = (slot + rotation) % kSequences;
      sequences[slot] = world.NewSequence(8 + i);
      if (i > 0) world.Run(world.Text(sequences[slot], 1, 1 + 2 * i));
    }
    for (int slot = 0; slot < kSequences; ++slot) {
      const int i = (slot + rotation) % kSequences;
      requests.push_back(world.Text(sequences[slot], 1 + 2 * i, 9 + i));
      expected.Append(want[i]);
    }
    EXPECT_TRUE(SameBits(world.Run(requests), expected));
  }
}

// A head's rows are in its own layer; the target's layers do not change.
TEST_P(DraftHead, LeavesTheTargetsLayersUnchanged) {
  HeadWorld world(GetParam());
  const auto logits_after = [&](bool drafts) {
    KvSequence kv = world.cache->NewSequence();
    const ForwardRequest prompt{
        .tokens = absl::MakeConstSpan(world.ids).first(17), .kv = &kv, .num_logits = 0};
    EXPECT_TRUE(world.target->Forward({&prompt, 1}).ok());
    if (drafts) world.Draft(kv, 17);
    const ForwardRequest rest{
        .tokens = absl::MakeConstSpan(world.ids).subspan(17), .kv = &kv, .num_logits = 1};
    const MatrixView row = *world.target->Forward({&rest, 1});
    const auto* data = static_cast<const float*>(row.data);
    return std::vector<float>(data, data + row.cols);
  };
  EXPECT_TRUE(SameBits(logits_after(true), logits_after(false)));
}

TEST_P(DraftHead, FailedPassesChangeNothing) {
  HeadWorld world(GetParam());
  EXPECT_EQ(world.head->context_length(), world.target->context_length());
  KvSequence fits = world.NewSequence(3);
  KvSequence longest = world.NewSequence(world.target->context_length());
  const std::vector<ForwardRequest> requests = {world.Text(fits, 3, 7),
                                                {.tokens = absl::MakeConstSpan(world.ids).first(1),
                                                 .kv = &longest,
                                                 .num_logits = 1,
                                                 .states = world.StatesAt(0, 1)}};
  EXPECT_EQ(world.head->Forward(requests).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(world.overlays.front().length(), 3);
  EXPECT_EQ(fits.length(), 3);
  EXPECT_EQ(longest.length(), world.target->context_length());
}

// Packed weights are written by the first load and read from their file by the second.
TEST_P(DraftHead, PackedWeightsHaveTheSameBits) {
  HeadWorld world(GetParam());
  KvSequence kv = world.NewSequence(17);
  const HeadWorld::Chain want = world.Draft(kv, 17);
  const TestFolder folder;
  for (int start = 0; start < 2; ++start) {
    world.head = *world.Load(HeadFolder(GetParam()),
                             {.packed_folder = folder.path(), .min_packed_bytes = 0});
    EXPECT_TRUE(world.head->AwaitPackedFile().ok());
    const HeadWorld::Chain got = world.Draft(kv, 17);
    EXPECT_TRUE(SameBits(got.rows, want.rows));
  }
}

INSTANTIATE_TEST_SUITE_P(All, DraftHead,
                         testing::Values("eagle3-flat", "eagle3-residual", "eagle3-speculators",
                                         "one-layer"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(DraftHeads, ReadTheDefaultLayersIfTheirFilesNameNone) {
  const auto backend = *MakeCpuBackend({.num_threads = 1});
  const auto target = *Transformer::Load(TargetFolder(), backend.get());
  ASSERT_EQ(target->config().num_layers, 4);
  const auto layers = [&](const char* name) {
    EXPECT_THAT(ReadModelConfig(HeadFolder(name))->target_layers, testing::IsEmpty()) << name;
    const auto head = *Transformer::Load(HeadFolder(name), backend.get(), {.target = target.get()});
    return head->config().target_layers;
  };
  EXPECT_THAT(layers("eagle3-flat"), testing::ElementsAre(2, 2, 1));
  EXPECT_THAT(layers("one-layer"), testing::ElementsAre(4));
}

TEST(DraftHeads, NeedATargetAndCannotBeOtherModels) {
  const auto backend = *MakeCpuBackend({.num_threads = 1});
  EXPECT_THAT(
      std::string(Transformer::Load(HeadFolder("eagle3-flat"), backend.get()).status().message()),
      testing::HasSubstr("found a draft head, allowed: a model that reads only tokens"));
  const auto target = *Transformer::Load(TargetFolder(), backend.get());
  const auto refused =
      Transformer::Load(TargetFolder(), backend.get(), {.target = target.get()}).status();
  EXPECT_THAT(std::string(refused.message()),
              testing::HasSubstr("found a llama model, allowed: a draft head"));
}

TEST(DraftHeads, MismatchWithTheTargetNamesTheKey) {
  const auto backend = *MakeCpuBackend({.num_threads = 1});
  const auto message = [&](const std::string& target_name,
                           Transformer::LoadOptions options = {}) -> std::string {
    const auto target =
        *Transformer::Load(SourcePath("tests/data/models/") + target_name, backend.get());
    options.target = target.get();
    const auto head = Transformer::Load(HeadFolder("eagle3-flat"), backend.get(), options);
    return std::string(head.status().message());
  };
  EXPECT_THAT(message("llama-gqa"), testing::HasSubstr("num_key_value_heads: found 3, allowed: 2"));
  EXPECT_THAT(message("llama-mha", {.head_tokens = 8}),
              testing::HasSubstr("draft_head_tokens: found 8"));
}

}  // namespace
}  // namespace tandem
