#include "engine/fingerprint.h"

#include <filesystem>
#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

using ::testing::MatchesRegex;

TEST(Fingerprint, CoversWhatDeterminesTheTargetsBits) {
  const TestFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("model.safetensors", std::string(300 << 10, 'w'));
  const EngineOptions options = {.target = folder.path()};
  const std::string print = FingerprintOf(options, "1");
  EXPECT_THAT(print, MatchesRegex("fp_[0-9a-f]{16}"));
  const auto with = [&](const std::function<void(EngineOptions*)>& change) {
    EngineOptions changed = options;
    change(&changed);
    return FingerprintOf(changed, "1");
  };
  EXPECT_EQ(with([](EngineOptions* o) { o->threads = 3; }), print);
  EXPECT_EQ(with([](EngineOptions* o) { o->draft = "self"; }), print);
  EXPECT_EQ(with([](EngineOptions* o) { o->verifier = AcceptanceRule::kToken; }), print);
  EXPECT_NE(with([](EngineOptions* o) { o->quantize = Quantization::kInt8; }), print);
  EXPECT_NE(with([](EngineOptions* o) { o->compute = CpuCompute::kF32; }), print);
  EXPECT_NE(with([](EngineOptions* o) { o->kv_cache = KvCacheType::kBF16; }), print);
  EXPECT_NE(with([](EngineOptions* o) { o->device = "cuda:0"; }), print);
  EXPECT_NE(FingerprintOf(options, "2"), print);
  EXPECT_NE(FingerprintOf(options, "1", "own head"), FingerprintOf(options, "1", "tied head"));
  // Other files in the folder do not count; the last byte of the weights does.
  folder.Write("README.md", "x");
  EXPECT_EQ(FingerprintOf(options, "1"), print);
  folder.Write("pytorch_model.bin", "w");
  EXPECT_NE(FingerprintOf(options, "1"), print);
  std::filesystem::remove(folder.Path("pytorch_model.bin"));
  folder.Write("model.safetensors", std::string((300 << 10) - 1, 'w') + "x");
  EXPECT_NE(FingerprintOf(options, "1"), print);
}

}  // namespace
}  // namespace tandem
