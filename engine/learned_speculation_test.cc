#include "engine/learned_speculation.h"

#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <iterator>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

using LearnedSpeculationFiles = FolderTest;

SpeculationPolicy Taught() {
  SpeculationPolicy policy;
  policy.unsalted().ObserveAcceptance(0.0f, {.source = DraftSource::kModel}, 4, 3);
  for (int i = 0; i < 2; ++i) {
    policy.costs().Observe({.num_rows = 1, .verify_time = absl::Milliseconds(7)});
  }
  return policy;
}

double FirstSurvival(const SpeculationPolicy& policy) {
  double survival = 0.0;
  policy.unsalted().AcceptanceAt(0.0f).Survival({.source = DraftSource::kModel}, nullptr,
                                                absl::MakeSpan(&survival, 1));
  return survival;
}

TEST_F(LearnedSpeculationFiles, ReadsBackWhatWasWritten) {
  const std::string file = folder_ + "/made/file.txt";  // creates folders
  EXPECT_EQ(LoadLearnedSpeculation(file).status().code(), absl::StatusCode::kNotFound);
  SpeculationPolicy policy = Taught();
  for (int i = 0; i < 2; ++i) {  // the second replaces the first
    ASSERT_TRUE(SaveLearnedSpeculation(&policy, file).ok());
    const absl::StatusOr<SpeculationPolicy> learned = LoadLearnedSpeculation(file);
    ASSERT_TRUE(learned.ok()) << learned.status();
    EXPECT_EQ(FirstSurvival(*learned), FirstSurvival(policy));
    EXPECT_NE(FirstSurvival(*learned), FirstSurvival(SpeculationPolicy()));
    EXPECT_TRUE(learned->costs().knows_pass(1));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ + "/made"), {}),
            1);  // no temporary files are left
  EXPECT_LT(fs::file_size(file), 32u << 10);
}

TEST_F(LearnedSpeculationFiles, DamagedFilesAreRefused) {
  const std::string file = folder_ + "/file.txt";
  SpeculationPolicy policy = Taught();
  ASSERT_TRUE(SaveLearnedSpeculation(&policy, file).ok());
  const std::string good = Read("file.txt");
  const auto expect_refused = [&](const std::string& text) {
    Write("file.txt", text);
    const absl::Status status = LoadLearnedSpeculation(file).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(status.message().find(file), std::string::npos);
  };
  expect_refused("");
  expect_refused("tandem learned speculation 0\n" + good.substr(good.find('\n') + 1));
  expect_refused(good + "0\n");
  expect_refused(good + "x");
  for (const size_t size : {good.size() - 1, good.size() / 2, size_t{40}}) {
    expect_refused(good.substr(0, size));
  }
  for (const char* const number : {"nan", "inf", "-1", "1e300", "word"}) {
    const size_t line = good.find('\n') + 1;
    expect_refused(good.substr(0, line) + number + good.substr(good.find('\n', line)));
  }
}

TEST_F(LearnedSpeculationFiles, AreListedByNameAndContents) {
  EXPECT_TRUE(LearnedFilesIn(Path("no such folder")).empty());
  const char kText[] = "tandem learned speculation 1\n7\n";
  const std::string file = Write("speculation-0123456789abcdef.txt", kText);
  const std::string head = Write("head-0123456789abcdef.txt", kText);
  for (const char* const other : {"speculation-notes.txt", "head-0123456789abcdef.md", "a.txt"}) {
    Write(other, kText);
  }
  Write("speculation-0000000000000000.txt", "Speculation is not financial advice.\n");
  const std::vector<CachedFile> files = LearnedFilesIn(folder_);
  ASSERT_EQ(files.size(), 2);
  EXPECT_EQ((std::set{files[0].path, files[1].path}), (std::set{file, head}));
  EXPECT_EQ(files[0].bytes, sizeof(kText) - 1);
}

TEST_F(LearnedSpeculationFiles, PipesAndEndlessFilesAreRefused) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string large = Write("large.txt", "");
  fs::resize_file(large, size_t{100} << 20);
  for (const std::string& file : {pipe, large, std::string("/dev/zero")}) {
    const absl::Status status = LoadLearnedSpeculation(file).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(file), std::string::npos);
  }
}

TEST_F(LearnedSpeculationFiles, EveryPairAndMachineHasItsOwnFile) {
  const EngineOptions options = {.target = Write("models/a.gguf", "a.gguf"),
                                 .draft = Write("models/b.gguf", "b.gguf"),
                                 .packed_weights = folder_};
  const auto file_of = [&](const std::function<void(EngineOptions*)>& change,
                           DrafterKind kind = DrafterKind::kModel, const char* device = "d") {
    EngineOptions changed = options;
    change(&changed);
    return LearnedSpeculationFile(changed, kind, device);
  };
  const auto nothing = [](EngineOptions* /*options*/) {};
  const std::string file = file_of(nothing);
  EXPECT_EQ(file.rfind(folder_ + "/speculation-", 0), 0u) << file;
  EXPECT_EQ(file_of([](EngineOptions* o) { o->max_batch = 3; }), file);
  EXPECT_NE(file_of([](EngineOptions* o) { o->draft = o->target; }), file);
  EXPECT_NE(file_of([](EngineOptions* o) { o->draft = "self:int8"; }), file);
  EXPECT_NE(file_of([](EngineOptions* o) { o->target = o->draft; }), file);
  EXPECT_NE(file_of([](EngineOptions* o) { o->draft_quantize = Quantization::kInt8; }), file);
  EXPECT_NE(file_of([](EngineOptions* o) { o->draft_head_tokens = 7; }), file);
  EXPECT_NE(file_of([](EngineOptions* o) { o->draft_kv_cache = KvCacheType::kInt8; }), file);
  EXPECT_NE(file_of([](EngineOptions* o) { o->draft_window = 0; }), file);
  EXPECT_EQ(file_of([](EngineOptions* o) { o->draft_kv_cache = o->kv_cache; }), file);
  EXPECT_NE(file_of(nothing, DrafterKind::kModelAndNgram), file);
  EXPECT_NE(file_of(nothing, DrafterKind::kModel, "e"), file);
  EXPECT_EQ(file_of(nothing, DrafterKind::kNone), "");
  EXPECT_EQ(file_of([](EngineOptions* o) { o->packed_weights.clear(); }), "");
}

TEST_F(LearnedSpeculationFiles, AreWrittenAfterNewRoundsAndTheMinimumTime) {
  const std::string file = folder_ + "/file.txt";
  SpeculationPolicy policy = Taught();
  LearnedSpeculation learned(file);
  learned.Keep(&policy, absl::ZeroDuration());  // no rounds yet
  EXPECT_FALSE(fs::exists(file));
  policy.EndRound({.num_tokens = 1});
  learned.Keep(&policy, absl::Hours(1));  // too early
  EXPECT_FALSE(fs::exists(file));
  learned.Keep(&policy, absl::ZeroDuration());
  EXPECT_TRUE(fs::exists(file));
  SpeculationPolicy recalled;
  learned.Recall(&recalled);
  EXPECT_EQ(FirstSurvival(recalled), FirstSurvival(policy));

  LearnedSpeculation("").Keep(&policy, absl::ZeroDuration());  // saves nothing, without a warning
  Write("file.txt", "damaged");
  SpeculationPolicy untouched = Taught();
  learned.Recall(&untouched);
  EXPECT_EQ(FirstSurvival(untouched), FirstSurvival(policy));
}

}  // namespace
}  // namespace tandem
