// The page store on disk, as users of the program see it.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcache/store/store_testing.h"
#include "tandem/json_value.h"
#include "tests/run_program.h"

namespace tandem {
namespace {

using Json = SortedJson;
using Words = std::vector<std::string>;
using testing::HasSubstr;

// About 60 tokens.
constexpr char kPrompt[] =
    "Once upon a time there was a little girl who lived in a house near the forest. One day she "
    "went out to look for her dog, which had run away in the night, and then she met an old man.";

Words Generate(const std::string& folder) {
  return {"generate",
          "--device",
          "cpu",
          "--threads",
          "1",
          "--target",
          ShippedModelPath("storyteller-7m"),
          "--draft",
          ShippedModelPath("storyteller-1m"),
          "-k",
          "4",
          "--temperature",
          "0",
          "-n",
          "20",
          "-p",
          kPrompt,
          "--kv-store",
          folder};
}

TEST(KvStoreProgram, KeepsAPromptForTheNextProcess) {
  const TestFolder folder;
  const std::string store = folder.path() + "/pages";
  const Json first = RunJson(Generate(store));
  EXPECT_EQ(first["store_tokens"], 0);
  // The number of pages from disk depends on the speed of the disk; the answer does not.
  const Json second = RunJson(Generate(store));
  EXPECT_EQ(second["token_ids"], first["token_ids"]);
  EXPECT_LE(second["store_tokens"], second["cached_tokens"]);

  const Json listed = RunJson({"kv-store", store});
  ASSERT_EQ(listed["pools"].size(), 2);
  EXPECT_GE(listed["pools"][0]["pages"], 3);
  EXPECT_THAT(listed["pools"][0]["description"].get<std::string>(), HasSubstr("storyteller"));
  const ProgramRun table = RunProgram({"kv-store", store});
  const std::string pool = listed["pools"][0]["pool"];
  EXPECT_THAT(table.out, HasSubstr(pool.substr(0, 16)));

  const Json removed = RunJson({"kv-store", store, "--remove", pool.substr(0, 12)});
  EXPECT_EQ(removed["removed"], listed["pools"][0]["pages"]);
  EXPECT_EQ(removed["pools"].size(), 1);
  EXPECT_EQ(RunJson({"kv-store", store, "--older-than", "1"})["removed"], 0);
  EXPECT_EQ(RunJson({"kv-store", store, "--older-than", "0"})["pools"].size(), 0);
  EXPECT_THAT(RunProgram({"kv-store", store}).out, HasSubstr("no pages"));
}

TEST(KvStoreProgram, NamesAStoreOfAnEarlierVersionAndRemovesItOnRequest) {
  const TestFolder folder;
  const std::string old = folder.path() + "/pages-1.mdb";
  for (const std::string& path : {old, old + "-lock"}) std::ofstream(path) << "LMDB";
  const ProgramRun run = RunProgram(Generate(folder.path()));
  EXPECT_EQ(run.exit_status, kExitDone);
  EXPECT_THAT(run.err,
              HasSubstr(old + " is of an earlier version and is not used; `tandem kv-store"));
  EXPECT_THAT(RunProgram({"kv-store", folder.path()}).out, HasSubstr(old + " is of an earlier"));
  EXPECT_EQ(RunJson({"kv-store", folder.path()})["old_file"], old);
  EXPECT_TRUE(std::filesystem::exists(old));
  const Json removed = RunJson({"kv-store", folder.path(), "--remove-old"});
  EXPECT_EQ(removed["old_file"], "");
  EXPECT_EQ(removed["pools"].size(), 2);  // the pages that the first process wrote
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_FALSE(std::filesystem::exists(old + "-lock"));
}

// Two processes use one folder at the same time.
TEST(KvStoreProgram, IsSharedByProcesses) {
  const TestFolder folder;
  const std::string store = folder.path() + "/pages";
  Words words = Generate(store);
  words.insert(words.end(), {"--json"});
  const ProgramRun runs = RunScript(
      R"("$0" "$@" > /dev/null 2>&1 & first=$!; "$0" "$@" || exit 3; wait $first || exit 4)",
      words);
  EXPECT_EQ(runs.exit_status, kExitDone) << runs.err;
  EXPECT_EQ(RunJson(Generate(store))["token_ids"], Json::parse(runs.out)["token_ids"]);
}

TEST(KvStoreProgram, NamesTheFault) {
  const TestFolder folder;
  ExpectRefused(RunProgram({"kv-store", folder.path()}), {kExitFailed});
  ExpectRefused(RunProgram({"kv-store"}), {kExitWrongLine});
  const std::string store = folder.path() + "/pages";
  Words words = Generate(store);
  ExpectRefused(RunProgram(Joined(words, {"--kv-store-size", "much"})), {kExitWrongLine});
  ExpectRefused(RunProgram(Joined(words, {"--kv-store-size", "10K"})), {kExitWrongLine});
  ExpectRefused(RunProgram(Joined(words, {"--compare"})), {kExitWrongLine});
  words.resize(words.size() - 2);
  ExpectRefused(RunProgram(Joined(words, {"--kv-store-size", "10G"})), {kExitWrongLine});
  RunJson(Generate(store));
  const ProgramRun run = RunProgram({"kv-store", store, "--remove", "xyz"});
  ExpectRefused(run, {kExitFailed});
  EXPECT_THAT(run.err, HasSubstr("--remove: \"xyz\" is not the beginning of any pool"));
}

}  // namespace
}  // namespace tandem
