#include "tools/model_list.h"

#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMemory = int64_t{1} << 30;

class ModelList : public ::testing::Test {
 protected:
  // Reads a file with this text. `words`: the options of the command `serve`, last one first.
  absl::StatusOr<std::vector<PairSource>> Read(const std::string& text,
                                               std::vector<std::string> words = {}) {
    folder_.Write("models.toml", text);
    ServedPairFlags flags;
    CLI::App serve;
    flags.AddTo(&serve);
    serve.parse(std::move(words));
    return ReadModelList(folder_.path() + "/models.toml", &serve, kMemory);
  }
  std::string ErrorOf(const std::string& text) {
    return std::string(Read(text).status().message());
  }
  // A table with the shipped pair, in which `options` are more lines.
  static std::string Table(const std::string& options = "") {
    return absl::StrCat("[[model]]\ntarget = \"", SourcePath("models/storyteller-7m"),
                        "\"\ndraft = \"", SourcePath("models/storyteller-1m"), "\"\n", options);
  }

  const TestFolder folder_;
};

TEST_F(ModelList, HasTheOptionsOfEachModel) {
  const auto models = Read(Table("name = \"a\"\npreload = true\nmax_batch = 3\nmax-waiting = 4\n") +
                           Table("pinned = true\nunload-after = 60\n"));
  ASSERT_TRUE(models.ok()) << models.status();
  ASSERT_EQ(models->size(), 2U);
  const PairSource& a = models->front();
  EXPECT_EQ(a.name, "a");
  EXPECT_TRUE(a.is_preloaded);
  EXPECT_FALSE(a.is_pinned);
  EXPECT_EQ(a.max_sequences, 7);
  EXPECT_EQ(a.idle_timeout, absl::InfiniteDuration());
  EXPECT_EQ(models->back().name, "storyteller-7m");
  EXPECT_TRUE(models->back().is_pinned);
  EXPECT_EQ(models->back().idle_timeout, absl::Minutes(1));
}

// The command line has the defaults of all, and a table has the last word.
TEST_F(ModelList, TakesDefaultsFromTheCommand) {
  const auto models = Read(Table("name = \"a\"\nmax-batch = 3\n") + Table("name = \"b\"\n"),
                           {"--no-prefix-cache", "5", "--max-batch", "0", "--max-waiting"});
  ASSERT_TRUE(models.ok()) << models.status();
  EXPECT_EQ(models->front().max_sequences, 3);
  EXPECT_EQ(models->back().max_sequences, 5);
  EXPECT_FALSE(models->front().prefix_cache);
}

TEST_F(ModelList, PlansAndLoadsAPair) {
  const auto models = Read(Table("device = \"cpu\"\nkv-memory = \"8M\"\nthreads = 1\n"));
  ASSERT_TRUE(models.ok()) << models.status();
  const absl::StatusOr<PairMemory> memory = models->front().plan();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->device, "cpu");
  EXPECT_LE(memory->free_bytes, kMemory);
  // 7.4 and 1 million weights in bf16, an eighth of that, and the caches.
  EXPECT_GT(memory->bytes, (8 << 20) + 8'000'000 * 2);
  EXPECT_LT(memory->bytes, (8 << 20) + 12'000'000 * 2);
  EXPECT_THAT(memory->parts, HasSubstr("8.39 MB of caches"));
  const absl::StatusOr<LoadedPair> loaded = models->front().load({});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const ModelInfo target = loaded->engine->target_info();
  const int64_t of_draft = loaded->engine->draft_info()->kv_bytes_per_token;
  EXPECT_LE((target.kv_bytes_per_token + of_draft) * target.page_size * target.num_pages, 8 << 20);
  EXPECT_THAT(loaded->system_fingerprint, HasSubstr("fp_"));
}

TEST_F(ModelList, ErrorsNameTheFileAndTheModel) {
  const std::string file = folder_.path() + "/models.toml: ";
  EXPECT_EQ(ErrorOf(""), file + "has no table [[model]]");
  EXPECT_EQ(ErrorOf("[model]\ntarget = \"a\"\n"), file + "has no table [[model]]");
  EXPECT_EQ(ErrorOf("threads = 4\n" + Table()),
            file + "\"threads\" is not allowed; a table [[model]] describes a model");
  EXPECT_THAT(ErrorOf("[[model]\n"), HasSubstr("models.toml:1: "));
  EXPECT_EQ(ErrorOf(Table() + "[[model]]\nname = \"b\"\n"), file + "model 2: target: is required");
  EXPECT_THAT(ErrorOf(Table("name = \"a\"\ntreads = 4\n")),
              HasSubstr("model 1: treads: no such option"));
  EXPECT_THAT(ErrorOf(Table("threads = 0\n")),
              HasSubstr("model 1: threads: must be from 1 to 4096, got 0"));
  EXPECT_THAT(ErrorOf(Table("preload = 1\n")),
              HasSubstr("model 1: preload: must be true or false, got 1"));
  EXPECT_THAT(ErrorOf(Table("rank = 1\nrendezvous = \"a:1\"\n")), HasSubstr("model 1: "));
  EXPECT_EQ(ErrorOf(Table() + Table()), file + "model 2: name: \"storyteller-7m\" is taken");
  EXPECT_THAT(std::string(ReadModelList("/nowhere.toml", nullptr, kMemory).status().message()),
              HasSubstr("/nowhere.toml"));
}

TEST(ModelNameOf, IsThatOfTheFolderOrAsTyped) {
  EXPECT_EQ(ModelNameOf(SourcePath("models/storyteller-7m")), "storyteller-7m");
  EXPECT_EQ(ModelNameOf(SourcePath("models/storyteller-7m/")), "storyteller-7m");
  EXPECT_EQ(ModelNameOf("org/name:Q4_K_M"), "org/name");
  EXPECT_EQ(ModelNameOf("smollm2"), "smollm2");
}

}  // namespace
}  // namespace tandem
