// Models whose packed weights are kept in a file: packed once, mapped by later starts, with the
// same bits.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log_testing.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/quantize.h"
#include "model/packed_cache.h"
#include "model/transformer.h"
#include "tandem/engine.h"
#include "tests/folder_testing.h"
#include "tests/golden_file.h"
#include "tests/model_testing.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class PackedWeights : public FolderTest {
 protected:
  std::unique_ptr<Transformer> Load(const std::string& path, std::optional<DType> quantized = {},
                                    const std::string& folder = "", int64_t max_bytes = 0) const {
    auto model = Transformer::Load(path, backend_.get(),
                                   {.quantized = quantized,
                                    .packed_folder = folder,
                                    .min_packed_bytes = 0,
                                    .max_packed_bytes = max_bytes});
    EXPECT_TRUE(model.ok()) << model.status();
    const absl::Status written = (*model)->AwaitPackedFile();
    EXPECT_TRUE(written.ok() || absl::IsResourceExhausted(written)) << written;
    return *std::move(model);
  }
  // Loads a model with several chunks of packed weights, without waiting for its file.
  std::unique_ptr<Transformer> LoadLarge(Backend* backend, const std::string& folder) const {
    auto model = Transformer::Load(ShippedModelPath("storyteller-7m"), backend,
                                   {.packed_folder = folder, .min_packed_bytes = 0});
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  std::vector<float> Logits(Transformer& model) const {
    const auto cache = *PagedKvCache::Create(backend_.get(), model.kv_layout(16), 1);
    KvSequence kv = cache->NewSequence();
    return Feed(model, &kv, {5, 100, 17});
  }
  void ExpectSameLogits(Transformer& a, Transformer& b) const {
    const std::vector<float> of_a = Logits(a);
    const std::vector<float> of_b = Logits(b);
    ASSERT_EQ(of_a.size(), of_b.size());
    EXPECT_EQ(std::memcmp(of_a.data(), of_b.data(), of_a.size() * sizeof(float)), 0);
  }
  // Loads a golden model and returns the reported progress of packing its weights.
  std::vector<std::pair<int64_t, int64_t>> PackingProgress() const {
    std::vector<std::pair<int64_t, int64_t>> told;
    const auto model = Transformer::Load(
        GoldenModelPath("llama-gqa"), backend_.get(),
        {.packed_folder = folder_,
         .min_packed_bytes = 0,
         .on_packing = [&](int64_t packed, int64_t total) { told.emplace_back(packed, total); }});
    EXPECT_TRUE(model.ok()) << model.status();
    EXPECT_TRUE((*model)->AwaitPackedFile().ok());
    EXPECT_TRUE(told.empty() || told.back().second == (*model)->num_parameters());
    return told;
  }
  // Returns the only file in the folder.
  fs::path Kept() const {
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
    return fs::directory_iterator(folder_)->path();
  }
  // A file that replaces another has another id.
  static ino_t IdOf(const fs::path& file) {
    struct stat info = {};
    EXPECT_EQ(stat(file.c_str(), &info), 0);
    return info.st_ino;
  }

  const std::string folder_ = Path("packed");  // does not exist at first
  const std::unique_ptr<Backend> backend_ = *MakeCpuBackend({.num_threads = 2});
};

TEST_F(PackedWeights, MappedWeightsHaveTheBitsOfPackedOnes) {
  for (const fs::directory_entry& golden : fs::directory_iterator(GoldenModelPath(""))) {
    if (!golden.is_directory()) continue;
    SCOPED_TRACE(golden.path());
    for (const std::optional<DType> quantized :
         {std::optional<DType>(), std::optional(DType::kQ8_0), std::optional(DType::kQ4K)}) {
      const auto packed_anew = Load(golden.path(), quantized);
      EXPECT_GT(packed_anew->bytes_to_pack(), 0);
      for (int start = 0; start < 2; ++start) {
        const auto mapped = Load(golden.path(), quantized, folder_);
        EXPECT_EQ(mapped->bytes_to_pack(), 0);
        EXPECT_EQ(mapped->bytes_read_per_pass(), packed_anew->bytes_read_per_pass());
        EXPECT_EQ(mapped->num_unpacked(), start);  // a first pass loads the file's pages
        ExpectSameLogits(*mapped, *packed_anew);
        EXPECT_EQ(mapped->num_unpacked(), 0);
      }
    }
  }
}

TEST_F(PackedWeights, GgufFilesAreKeptToo) {
  for (const char* name : {"F32", "Q8_0", "Q4_K_M"}) {
    SCOPED_TRACE(name);
    const std::string path = GoldenGgufPath(absl::StrCat("llama-small.", name, ".gguf"));
    const auto packed_anew = Load(path);
    Load(path, {}, folder_);
    const auto mapped = Load(path, {}, folder_);
    EXPECT_EQ(mapped->bytes_to_pack(), 0);
    ExpectSameLogits(*mapped, *packed_anew);
  }
}

TEST_F(PackedWeights, ArePackedOnceAndAgainIfTheModelChanges) {
  const std::string model = folder_ + "_model";
  fs::remove_all(model);
  fs::copy(GoldenModelPath("llama-bf16"), model);
  const auto packed_anew = Load(model);
  Load(model, {}, folder_);
  const fs::path kept = Kept();
  const auto made = IdOf(kept);
  Load(model, {}, folder_);
  EXPECT_EQ(IdOf(kept), made);

  fs::resize_file(kept, fs::file_size(kept) - 1);
  ExpectSameLogits(*Load(model, {}, folder_), *packed_anew);
  EXPECT_NE(IdOf(Kept()), made);

  // Write other weights of the same shape to the same path.
  std::fstream weights(model + "/model.safetensors", std::ios::in | std::ios::out);
  weights.seekp(-64, std::ios::end);
  weights << std::string(64, '\x3c');
  weights.close();
  fs::last_write_time(model + "/model.safetensors",
                      fs::last_write_time(kept) + std::chrono::seconds(2));
  const auto others = Load(model);
  ExpectSameLogits(*Load(model, {}, folder_), *others);
  EXPECT_NE(Logits(*others), Logits(*packed_anew));
  Kept();
  fs::remove_all(model);
}

TEST_F(PackedWeights, ArePackedAgainWithAWarningIfTheFileIsDamaged) {
  const std::string model = GoldenModelPath("llama-bf16");
  const auto packed_anew = Load(model);
  Load(model, {}, folder_);
  std::fstream kept(Kept(), std::ios::in | std::ios::out | std::ios::binary);
  kept.seekp(-static_cast<int64_t>(fs::file_size(Kept()) / 2), std::ios::end);
  kept << "XXXX";
  kept.close();
  LogCapture log;
  ExpectSameLogits(*Load(model, {}, folder_), *packed_anew);
  EXPECT_THAT(log.text(), HasSubstr("warning " + Kept().string() + ": the bytes from "));
  EXPECT_THAT(log.text(), HasSubstr(" on are damaged; packing the weights again"));
  log.Clear();
  ExpectSameLogits(*Load(model, {}, folder_), *packed_anew);
  EXPECT_EQ(log.text(), "");
}

TEST_F(PackedWeights, TheModelRunsIfTheyCannotBeKept) {
  std::ofstream(folder_) << "a file, not a folder";
  const auto model = Load(GoldenModelPath("llama-bf16"), {}, folder_);
  EXPECT_GT(model->bytes_to_pack(), 0);
  ExpectSameLogits(*model, *Load(GoldenModelPath("llama-bf16")));
}

TEST_F(PackedWeights, AreMarkedAsUsedByEachStart) {
  const std::string model = GoldenModelPath("llama-bf16");
  Load(model, {}, folder_);
  const fs::path kept = Kept();
  const auto made = IdOf(kept);
  const auto hour_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(kept, hour_ago);
  Load(model, {}, folder_);
  EXPECT_GT(fs::last_write_time(kept), hour_ago);
  EXPECT_EQ(IdOf(Kept()), made);  // the file's own time is not a part of its identity
  const std::vector<CachedFile> files = PackedFilesIn(folder_);
  ASSERT_EQ(files.size(), 1);
  EXPECT_EQ(files.front().model, fs::canonical(model));
}

TEST_F(PackedWeights, ReplaceTheLeastRecentlyUsedIfTheFolderHasALimit) {
  const std::string model = GoldenModelPath("llama-bf16");
  Load(model, {}, folder_);
  const fs::path first = Kept();
  const auto bytes = static_cast<int64_t>(fs::file_size(first));
  Load(model, DType::kQ8_0, folder_, bytes);
  EXPECT_NE(Kept(), first);
  // A file larger than the limit is not kept, and leaves the others.
  const fs::path second = Kept();
  LogCapture log;
  ExpectSameLogits(*Load(model, {}, folder_, 1000), *Load(model));
  EXPECT_EQ(Kept(), second);
  EXPECT_THAT(log.text(), HasSubstr("warning packed weights are not cached: packed_weights_size: "
                                    "must be at least "));
  EXPECT_THAT(log.text(), HasSubstr(absl::StrCat(" to keep ", first.string(), ", got 1000")));
}

TEST_F(PackedWeights, SmallModelsAreNotKept) {
  const auto model =
      *Transformer::Load(GoldenModelPath("llama-bf16"), backend_.get(), {.packed_folder = folder_});
  EXPECT_GT(model->bytes_to_pack(), 0);
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(PackedWeights, KeepTheirBitsWhileTheirFileTakesTheirPlace) {
  const auto model = LoadLarge(backend_.get(), folder_);
  const std::vector<float> wanted = Logits(*LoadLarge(backend_.get(), ""));
  std::atomic<bool> is_complete = false;
  std::thread waiter([&] {
    EXPECT_TRUE(model->AwaitPackedFile().ok());
    is_complete = true;
  });
  bool is_last = false;
  do {
    is_last = is_complete;
    EXPECT_EQ(Logits(*model), wanted);
  } while (!is_last);
  waiter.join();
  std::stringstream maps;
  maps << std::ifstream("/proc/self/maps").rdbuf();
  EXPECT_THAT(maps.str(), HasSubstr(Kept().string()));
}

TEST_F(PackedWeights, ArePackedOnceByModelsThatLoadAtOnce) {
  LogCapture log;
  const std::vector<float> wanted = Logits(*LoadLarge(backend_.get(), ""));
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      const auto backend = *MakeCpuBackend({.num_threads = 1});
      const auto model = LoadLarge(backend.get(), folder_);
      EXPECT_TRUE(model->AwaitPackedFile().ok());
      EXPECT_EQ(Logits(*model), wanted);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> parts = absl::StrSplit(log.text(), "packing the weights of ");
  EXPECT_EQ(parts.size(), 2) << log.text();
  Kept();
}

// The system refuses to let the file grow, as on a full disk.
TEST_F(PackedWeights, StayInMemoryWhenTheDiskIsFull) {
  LogCapture log;
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit = {.rlim_cur = 9 << 20, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  const auto model = LoadLarge(backend_.get(), folder_);
  EXPECT_FALSE(model->AwaitPackedFile().ok());
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(log.text(), HasSubstr("warning packed weights are not cached: "));
  EXPECT_THAT(log.text(), HasSubstr("File too large"));
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_EQ(Logits(*model), Logits(*LoadLarge(backend_.get(), "")));
}

TEST_F(PackedWeights, StayInMemoryWhenTheFolderIsReadOnly) {
  fs::copy(GoldenModelPath("llama-bf16"), Path("model"));
  fs::create_directory(folder_);
  for (const std::string& open : {path(), Path("model"), folder_}) chmod(open.c_str(), 0555);
  const pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0 && setuid(65534) != 0) _exit(1);  // root may write anything
    LogCapture log;
    const auto backend = *MakeCpuBackend({.num_threads = 1});
    auto model = Transformer::Load(Path("model"), backend.get(),
                                   {.packed_folder = folder_, .min_packed_bytes = 0});
    if (!model.ok()) _exit(2);
    const bool is_warned = absl::StrContains(
        log.text(), absl::StrCat("warning packed weights are not cached: ", folder_));
    _exit(is_warned && (*model)->bytes_to_pack() > 0 ? 0 : 3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (const std::string& open : {path(), Path("model"), folder_}) chmod(open.c_str(), 0755);
}

TEST_F(PackedWeights, AreDiscardedWithTheirModelOrComplete) {
  LoadLarge(backend_.get(), folder_);
  if (!fs::is_empty(folder_)) Kept();
  const auto model = LoadLarge(backend_.get(), folder_);
  EXPECT_TRUE(model->AwaitPackedFile().ok());
  EXPECT_EQ(LoadLarge(backend_.get(), folder_)->num_unpacked(), 1);  // mapped
}

// Packing reports its progress; mapping packed weights does not.
TEST_F(PackedWeights, ReportProgressOfPacking) {
  const auto told = PackingProgress();
  ASSERT_GT(told.size(), 3u);
  for (size_t i = 1; i < told.size(); ++i) {
    EXPECT_GE(told[i].first, told[i - 1].first);
    EXPECT_EQ(told[i].second, told[0].second);
  }
  EXPECT_LT(told.front().first, told.front().second);
  EXPECT_EQ(told.back().first, told.back().second);
  EXPECT_EQ(PackingProgress().size(), 0u);  // the weights are mapped
}

TEST_F(PackedWeights, AreNotAnnouncedForAModelThatIsRefused) {
  LogCapture log;
  const auto load = [&](const std::string& path, Transformer::LoadOptions options) {
    options.packed_folder = folder_;
    options.min_packed_bytes = 0;
    return Transformer::Load(path, backend_.get(), options).status();
  };
  const absl::Status is_quantized =
      load(GoldenGgufPath("llama-small.Q8_0.gguf"), {.quantized = DType::kQ8_0});
  EXPECT_THAT(is_quantized.message(), testing::HasSubstr("quantize: found q8_0, allowed: none"));
  const absl::Status has_less_tokens = load(GoldenModelPath("llama-bf16"), {.head_tokens = 100000});
  EXPECT_THAT(has_less_tokens.message(), testing::HasSubstr("draft_head_tokens: found 100000"));
  EXPECT_THAT(log.text(), testing::Not(testing::HasSubstr("packing")));
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_TRUE(load(GoldenModelPath("llama-bf16"), {}).ok());
  EXPECT_THAT(log.text(), testing::HasSubstr("packing"));
}

TEST_F(PackedWeights, AMissingModelFailsTheSameWay) {
  const std::string path = folder_ + "/no";
  const auto plainly = Transformer::Load(path, backend_.get());
  const auto packed = Transformer::Load(path, backend_.get(), {.packed_folder = folder_});
  EXPECT_EQ(packed.status(), plainly.status());
}

}  // namespace
}  // namespace tandem
