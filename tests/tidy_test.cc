// The layout and style rules of this tree that a machine can check. Each rule has cases that see it
// fail. tests/CMakeLists.txt checks that every header compiles alone.
#include <string>
#include <vector>

#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tidy/document_rules.h"
#include "tests/tidy/folder_rules.h"
#include "tests/tidy/source_text.h"
#include "tests/tidy/test_rules.h"
#include "tests/tidy/text_rules.h"

namespace tandem::tidy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Text that the rules forbid is written in two parts here, so that this file follows the rules.
std::string Include(const std::string& path) { return "#include \"" + path + "\"\n"; }

Violations CheckAll(const SourceTree& tree) {
  Violations all = CheckMarkdownLinks(tree);
  for (auto* check : {CheckFolderChain,
                      CheckVerifySeesProposalsOnly,
                      CheckDevicesAreHidden,
                      CheckCudaIncludes,
                      CheckCudaHasTwins,
                      CheckCMakeChain,
                      CheckFolderMaps,
                      CheckLayout,
                      CheckFileLength,
                      CheckIncludeGuards,
                      CheckNoUsingNamespaceInHeaders,
                      CheckNoDeviceMacros,
                      CheckLibrariesDoNotPrint,
                      CheckNoThrow,
                      CheckRandomNumbersArePassedIn,
                      CheckRandomStreamsHaveOneReader,
                      CheckBugCatalogue,
                      CheckTestsNeverGiveUp,
                      CheckHostedLanes,
                      CheckOnlyStampsTellTheTimeOfDay,
                      CheckWakingStoresAreSequential,
                      CheckNoNotes,
                      CheckGlossary,
                      CheckDocumentWidth,
                      CheckNumbersHaveZeros,
                      CheckPageLength,
                      CheckNoMachinePathsOrRegistries,
                      CheckPythonIsIsolated}) {
    const Violations found = check(tree.files);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

TEST(Tidy, ThisTreeFollowsAllRules) {
  const SourceTree tree = ReadSourceTree(SourcePath(""));
  ASSERT_TRUE(tree.files.contains("base/philox.h"));
  ASSERT_TRUE(tree.files.contains("dev"));
  ASSERT_TRUE(tree.files.contains(std::string(kHostedWorkflow)));
  for (const std::string& violation : CheckAll(tree)) ADD_FAILURE() << violation;
}

TEST(SourceText, CodeOnlyBlanksCommentsAndLiteralsAndKeepsLines) {
  EXPECT_EQ(CodeOnly("a // b\nc"), "a     \nc");
  EXPECT_EQ(CodeOnly("a /* b\n */ c"), "a     \n    c");
  EXPECT_EQ(CodeOnly(R"(f("x\"y", 'z', 1'000);)"), R"(f("    ", ' ', 1'000);)");
  EXPECT_EQ(CodeOnly("R\"q(a\")b)q\" c"), std::string(12, ' ') + "c");
  EXPECT_EQ(CodeOnly("\"// no comment\" d"), "\"             \" d");
}

TEST(SourceText, HasWordMatchesWholeWordsOnly) {
  EXPECT_TRUE(HasWord("std::rand()", "rand"));
  EXPECT_TRUE(HasWord("brand rand", "rand"));
  EXPECT_FALSE(HasWord("operand rand_", "rand"));
}

TEST(SourceText, IncludesAreFoundOutsideOfCommentsAndStrings) {
  const auto includes = Includes(
      "// #include \"a.h\"\n#include <b>\n#  include \"c/d.h\"  // x\n"
      "f(\"#include <e>\");\n");
  ASSERT_THAT(includes, SizeIs(2));
  EXPECT_EQ(includes[0].path, "b");
  EXPECT_TRUE(includes[0].angle);
  EXPECT_EQ(includes[0].line, 2);
  EXPECT_EQ(includes[1].path, "c/d.h");
  EXPECT_FALSE(includes[1].angle);
}

TEST(FolderChain, AllowsOwnFolderAndFoldersToTheLeft) {
  EXPECT_THAT(
      CheckFolderChain({{"model/a.cc", Include("model/a.h") + Include("kvcache/b.h") +
                                           Include("absl/status/status.h") + "#include <vector>\n"},
                        {"tools/main.cc", Include("engine/engine.h")},
                        {"tools/bench/a.cc", Include("tools/table.h")},
                        {"text/chat/jinja/a.cc", Include("text/unicode.h")},
                        {"model/a.cc", Include("model/ranks/b.h")},
                        {"tests/a_test.cc", Include("tools/x.h") + Include("tests/y.h")},
                        {"base/a_test.cc", Include("tests/matchers.h")},
                        {"examples/a.cc", "#include <tandem/engine.h>\n"}}),
      IsEmpty());
}

TEST(FolderChain, SeesAnIncludeToTheRight) {
  EXPECT_THAT(
      CheckFolderChain({{"base/a.h", "\n" + Include("kernels/matrix.h")}}),
      ElementsAre(HasSubstr("base/a.h:2: includes kernels/matrix.h: base/ may use itself")));
  EXPECT_THAT(CheckFolderChain({{"engine/a_test.cc", Include("server/b.h")}}), SizeIs(1));
  EXPECT_THAT(CheckFolderChain({{"base/json/a.cc", Include("text/b.h")},
                                {"model/checkpoint/a.cc", Include("model/b.h")},
                                {"engine/a.cc", Include("proof/b.h")},
                                {"base/a.cc", Include("base/json/b.h")},
                                {"kvcache/a.cc", Include("kvcache/store/b.h")},
                                {"tools/a.cc", Include("tools/bench/b.h")}}),
              SizeIs(6));
}

TEST(FolderChain, SeesUnknownFoldersAndPathsNotFromTheRoot) {
  EXPECT_THAT(CheckFolderChain({{"base/a.cc", Include("util/b.h")}}),
              ElementsAre(HasSubstr("neither one of our folders")));
  EXPECT_THAT(CheckFolderChain({{"base/a.cc", Include("b.h")}}), SizeIs(1));
  EXPECT_THAT(CheckFolderChain({{"util/a.cc", Include("base/b.h")}}),
              ElementsAre(HasSubstr("not in the chain")));
}

TEST(FolderChain, KnowsTheFoldersOfPublicHeaders) {
  EXPECT_THAT(CheckFolderChain({{"engine/a.cc", Include("tandem/engine.h")},
                                {"text/a.cc", Include("tandem/types.h")},
                                {"include/tandem/engine.h",
                                 Include("tandem/tokenizer.h") + Include("absl/status/status.h")}}),
              IsEmpty());
  EXPECT_THAT(CheckFolderChain({{"text/a.cc", Include("tandem/engine.h")}}),
              ElementsAre(HasSubstr("text/ may use itself")));
  EXPECT_THAT(CheckFolderChain({{"include/tandem/types.h", Include("tandem/engine.h")}}),
              ElementsAre(HasSubstr("base/ may use itself")));
  EXPECT_THAT(CheckFolderChain({{"include/tandem/engine.h", Include("engine/session.h")}}),
              ElementsAre(HasSubstr("public headers include public headers only")));
  EXPECT_THAT(CheckFolderChain({{"include/tandem/unheard_of.h", Include("tandem/types.h")}}),
              ElementsAre(HasSubstr("in the chain")));
  EXPECT_THAT(CheckFolderChain({{"engine/a.cc", "#include <tandem/engine.h>\n"}}), SizeIs(1));
}

TEST(FolderChain, SeesCodeThatUsesTestsAndOwnHeadersInAngles) {
  EXPECT_THAT(CheckFolderChain({{"engine/a.cc", Include("tests/fake.h")}}),
              ElementsAre(HasSubstr("only tests")));
  EXPECT_THAT(CheckFolderChain({{"engine/a.cc", "#include <base/check.h>\n"}}), SizeIs(1));
}

TEST(FolderChain, LetsThePythonModuleSeePublicHeadersOnly) {
  EXPECT_THAT(
      CheckFolderChain({{"python/a.cc", "#include <tandem/engine.h>\n" + Include("python/b.h") +
                                            Include("absl/status/status.h")}}),
      IsEmpty());
  EXPECT_THAT(CheckFolderChain({{"python/a.cc", Include("engine/engine.h")}}),
              ElementsAre(HasSubstr("python/ includes <tandem/...> only")));
  EXPECT_THAT(CheckFolderChain({{"python/a.cc", Include("tests/b.h")}}), SizeIs(1));
  EXPECT_THAT(CheckFolderChain({{"engine/a.cc", Include("python/b.h")}}), SizeIs(1));
}

TEST(FolderChain, LetsVerifySeeTheProposalOnly) {
  EXPECT_THAT(CheckVerifySeesProposalsOnly({{"verify/a.h", Include("draft/proposal.h")},
                                            {"engine/a.h", Include("draft/drafter.h")}}),
              IsEmpty());
  EXPECT_THAT(CheckVerifySeesProposalsOnly({{"verify/a.h", Include("draft/drafter.h")}}),
              ElementsAre(HasSubstr("verify/a.h:1")));
}

TEST(FolderChain, HidesDevices) {
  EXPECT_THAT(CheckDevicesAreHidden({{"kernels/make_backend.cc", Include("kernels/cpu/a.h")},
                                     {"kernels/cpu/a.cc", Include("kernels/cpu/a.h")},
                                     {"tests/simt/a.cc", Include("kernels/cuda/a.h")},
                                     {"tools/kernel_lab/a.cc", Include("kernels/cuda/a.h")}}),
              IsEmpty());
  EXPECT_THAT(CheckDevicesAreHidden({{"tools/a.cc", Include("kernels/cuda/a.h")}}), SizeIs(1));
  EXPECT_THAT(CheckDevicesAreHidden({{"tests/simt/a.cc", Include("kernels/cpu/a.h")}}), SizeIs(1));
  EXPECT_THAT(CheckDevicesAreHidden({{"model/a.cc", Include("kernels/cpu/a.h")}}), SizeIs(1));
  EXPECT_THAT(CheckDevicesAreHidden({{"tests/a_test.cc", Include("kernels/cuda/a.h")}}), SizeIs(1));
  EXPECT_THAT(CheckDevicesAreHidden({{"kernels/cuda/a.cc", Include("kernels/cpu/a.h")}}),
              SizeIs(1));
}

TEST(Cuda, FilesIncludeOnlyWhatKeepsNvccFast) {
  EXPECT_THAT(CheckCudaIncludes({{"kernels/cuda/norm.cu",
                                  Include("kernels/matrix.h") + Include("kernels/cuda/launch.cuh") +
                                      "#include <cub/block/block_reduce.cuh>\n"
                                      "#include <cuda_bf16.h>\n"
                                      "#include <cuda/std/array>\n"
                                      "#include <cstdint>\n"},
                                 {"tools/lab/probe.cu", Include("tools/lab/probe.h")},
                                 {"kernels/matrix.h", "#include <cstdint>\n"}}),
              IsEmpty());
  EXPECT_THAT(CheckCudaIncludes({{"tools/lab/probe.cu", Include("tools/other.h")}}), SizeIs(1));
  for (const std::string& heavy :
       {Include("absl/types/span.h"), Include("kernels/backend.h"), Include("base/check.h"),
        Include("spdlog/spdlog.h"), std::string("#include <string>\n")}) {
    EXPECT_THAT(CheckCudaIncludes({{"kernels/cuda/norm.cu", heavy}}), SizeIs(1)) << heavy;
  }
  EXPECT_THAT(CheckCudaIncludes({{"kernels/matrix.h", Include("absl/types/span.h")}}), SizeIs(1));
}

TEST(Cuda, FilesHaveTwinsOnTheCpu) {
  EXPECT_THAT(CheckCudaHasTwins({{"kernels/cuda/norm.cu", ""}, {"kernels/cpu/norm.cc", ""}}),
              IsEmpty());
  EXPECT_THAT(CheckCudaHasTwins({{"kernels/cuda/norm.cu", ""}, {"kernels/cpu/norm_avx2.cc", ""}}),
              IsEmpty());
  EXPECT_THAT(CheckCudaHasTwins({{"kernels/cuda/norm_rows.cu", ""}, {"kernels/cpu/norm.cc", ""}}),
              IsEmpty());
  EXPECT_THAT(CheckCudaHasTwins({{"kernels/cuda/norm.cu", ""}, {"kernels/cpu/normal.cc", ""}}),
              ElementsAre(HasSubstr("kernels/cpu/norm")));
  EXPECT_THAT(CheckCudaHasTwins({{"kernels/cpu/norm.cc", ""}}), IsEmpty());
}

TEST(CMake, LinksToTheLeftOnly) {
  EXPECT_THAT(
      CheckCMakeChain({{"draft/CMakeLists.txt",
                        "tandem_folder(draft\n"
                        "  DEPENDS tandem_model)  # tandem_verify\n"},
                       {"tests/CMakeLists.txt", "target_link_libraries(t tandem_engine)\n"}}),
      IsEmpty());
  EXPECT_THAT(CheckCMakeChain({{"draft/CMakeLists.txt",
                                "tandem_folder(draft DEPENDS\n"
                                "  tandem_verify)\n"}}),
              ElementsAre(HasSubstr("draft/CMakeLists.txt:2: links to verify/")));
  EXPECT_THAT(CheckCMakeChain({{"kvcache/CMakeLists.txt",
                                "tandem_folder(kvcache DEPENDS tandem_kvcache_store)\n"}}),
              SizeIs(1));
  EXPECT_THAT(CheckCMakeChain({{"base/CMakeLists.txt",
                                "target_link_libraries(tandem_base PRIVATE tandem::kernels)\n"}}),
              SizeIs(1));
}

TEST(FolderMaps, AreCompared) {
  const Files files = ReadSourceTree(SourcePath("")).files;
  ASSERT_THAT(CheckFolderMaps(files), IsEmpty());
  const auto with = [&](const std::string& path, std::string_view from, std::string_view to) {
    Files changed = files;
    std::string& text = changed.at(path);
    const size_t at = text.find(from);
    if (at == std::string::npos) return Violations{"did not find " + std::string(from)};
    text.replace(at, from.size(), to);
    return CheckFolderMaps(changed);
  };
  EXPECT_THAT(with("CMakeLists.txt", "base/net kernels", "kernels base/net"),
              ElementsAre(HasSubstr("CMakeLists.txt:1: tandem_chain")));
  for (const std::string path : {"docs/design.md", "CONTRIBUTING.md"}) {
    EXPECT_THAT(with(path, "base/net < kernels", "kernels < base/net"),
                ElementsAre(HasSubstr(path + ":1: its chain")));
  }
  EXPECT_THAT(with("docs/design.md", "| `verify/` |", "| `judge/` |"),
              ElementsAre(HasSubstr("docs/design.md:1: its rows")));
  EXPECT_THAT(with("README.md", "| `verify/` |", "| `judge/` |"),
              ElementsAre(HasSubstr("lacks verify/")));
  EXPECT_THAT(with("README.md", "`store/`", "`shop/`"), ElementsAre(HasSubstr("lacks kvcache/")));
}

TEST(Layout, SeesTabsTrailingBlanksMissingNewlinesAndLongLines) {
  EXPECT_THAT(CheckLayout({{"a.cc", "int a;\n"}, {"b.cc", ""}}), IsEmpty());
  EXPECT_THAT(CheckLayout({{"a.md", "a\tb\n"}}), ElementsAre(HasSubstr("a.md:1: has a tab")));
  EXPECT_THAT(CheckLayout({{"dev", "a\nb \n"}}), ElementsAre(HasSubstr("dev:2: ends with")));
  EXPECT_THAT(CheckLayout({{"a.py", "a\r\n"}}), SizeIs(1));
  EXPECT_THAT(CheckLayout({{"a.cc", "int a;"}}), ElementsAre(HasSubstr("no newline")));
  EXPECT_THAT(CheckLayout({{"a.cc", std::string(101, 'x') + "\n"}}),
              ElementsAre(HasSubstr("100 columns")));
}

TEST(Layout, CountsCharactersAndForgivesUrlsAndDocuments) {
  const std::string url =
      "https:"
      "//";
  EXPECT_THAT(CheckLayout({{"a.cc", std::string(100, 'x') + "\n"},
                           {"b.cc", std::string(98, 'x') + "\u00e9\u00e9\n"},
                           {"c.cc", "// " + url + std::string(101, 'x') + "\n"},
                           {"d.md", std::string(101, 'x') + "\n"}}),
              IsEmpty());
}

TEST(Glossary, ForbidsTheWordsThatItReplaces) {
  const std::string glossary =
      "| term | meaning | in code | not |\n|---|---|---|---|\n"
      "| epilogue | `meaning` | `Epilogue` | `ProductTail`, `tail of products` |\n";
  const auto check = [&](const std::string& path, const std::string& text) {
    return CheckGlossary({{"docs/glossary.md", glossary}, {path, text}});
  };
  EXPECT_THAT(check("a.cc", "Epilogue e;  // the meaning\nProductTailOf(e);\n"), IsEmpty());
  EXPECT_THAT(check("a.cc", "\nProductTail e;\n"), ElementsAre(HasSubstr("a.cc:2: ProductTail")));
  EXPECT_THAT(check("docs/a.md", "a tail of products\n"), SizeIs(1));
  EXPECT_THAT(check("a.py", "ProductTail\n"), IsEmpty());
}

TEST(Layout, SeesFilesThatAreTooLong) {
  std::string lines;
  for (int i = 0; i < 600; ++i) lines += "x\n";
  EXPECT_THAT(CheckFileLength({{"a.cc", lines}, {"b.md", lines + lines}}), IsEmpty());
  EXPECT_THAT(CheckFileLength({{"a.cc", lines + "x\n"}}), SizeIs(1));
}

TEST(Headers, AreGuardedByTheirPath) {
  const auto guarded = [](const std::string& name) {
    return "// A header.\n#ifndef " + name + "\n#define " + name + "\n#endif  // " + name + "\n";
  };
  EXPECT_THAT(
      CheckIncludeGuards({{"server/api/a.h", guarded("TANDEM_SERVER_API_A_H_")},
                          {"kernels/cuda/a.cuh", guarded("TANDEM_KERNELS_CUDA_A_CUH_")},
                          {"include/tandem/engine.h", guarded("TANDEM_INCLUDE_TANDEM_ENGINE_H_")},
                          {"base/a.cc", ""}}),
      IsEmpty());
  EXPECT_THAT(CheckIncludeGuards({{"base/a.h", guarded("TANDEM_A_H_")}}),
              ElementsAre(HasSubstr("TANDEM_BASE_A_H_")));
  EXPECT_THAT(CheckIncludeGuards({{"base/a.h", "#pragma once\n"}}), SizeIs(1));
  EXPECT_THAT(CheckIncludeGuards({{"base/a.h", "#ifndef TANDEM_BASE_A_H_\n#endif\n"}}), SizeIs(1));
}

TEST(Headers, DoNotUseNamespaces) {
  EXPECT_THAT(CheckNoUsingNamespaceInHeaders({{"base/a.h", "// using namespace std;\n"},
                                              {"base/a.cc", "using namespace std;\n"}}),
              IsEmpty());
  EXPECT_THAT(CheckNoUsingNamespaceInHeaders({{"base/a.h", "using namespace std;\n"}}), SizeIs(1));
}

TEST(Macros, DoNotAskForDevices) {
  EXPECT_THAT(CheckNoDeviceMacros({{"base/a.h", "#ifndef TANDEM_BASE_A_H_\n// #ifdef __AVX2__\n"},
                                   {"base/a.cc", "#if defined(__linux__)\n#endif\n"}}),
              IsEmpty());
  for (const std::string condition :
       {"#ifdef __AVX512F__\n", "#if defined(__x86_64__)\n", "#if 1\n#elif __ARM_NEON\n",
        "# ifndef TANDEM_CUDA\n", "#if 1 && \\\n  __CUDA_ARCH__ > 800\n"}) {
    EXPECT_THAT(CheckNoDeviceMacros({{"kernels/a.cc", condition}}), SizeIs(1)) << condition;
  }
}

TEST(Libraries, NeverPrint) {
  EXPECT_THAT(CheckLibrariesDoNotPrint({{"base/check.h", "std::fprintf(stderr, x);\n"},
                                        {"base/a.cc", "snprintf(b, 1, f);  // printf\n"},
                                        {"base/a_test.cc", "std::cerr << 1;\n"},
                                        {"tools/a.cc", "#include <iostream>\nstd::cout << 1;\n"}}),
              IsEmpty());
  for (const std::string print :
       {"std::cout << 1;\n", "std::cerr << 1;\n", "printf(f);\n", "std::fprintf(stderr, f);\n",
        "puts(s);\n", "#include <iostream>\n"}) {
    EXPECT_THAT(CheckLibrariesDoNotPrint({{"engine/a.cc", print}}), SizeIs(1)) << print;
  }
}

TEST(Libraries, DoNotThrow) {
  EXPECT_THAT(CheckNoThrow({{"base/a.cc", "// must not throw\nf(\"throw\");\nint rethrown;\n"}}),
              IsEmpty());
  EXPECT_THAT(CheckNoThrow({{"tools/a.cc", "if (x) throw 1;\n"}}), ElementsAre(HasSubstr(":1:")));
}

TEST(RandomNumbers, ComeFromPhilox) {
  EXPECT_THAT(
      CheckRandomNumbersArePassedIn({{"base/philox.cc",
                                      "0xD2511"
                                      "F53 0xCD9E8"
                                      "D57\n"},
                                     {"model/a_test.cc", "std::mt19937 random(1);\n"},
                                     {"kernels/kernel_testing.h", "std::mt19937 random(1);\n"},
                                     {"engine/engine_testing.cc", "std::mt19937 random(1);\n"},
                                     {"engine/new_session.cc", "std::random_device d;\n"},
                                     {"model/a.cc", "float random = Operand(1);\n"}}),
      IsEmpty());
  for (const std::string other :
       {"std::mt19937 g;\n", "std::random_device d;\n", "x = rand();\n"}) {
    EXPECT_THAT(CheckRandomNumbersArePassedIn({{"model/a.cc", other}}), SizeIs(1)) << other;
  }
  EXPECT_THAT(CheckRandomNumbersArePassedIn({{"kernels/cpu/a.cc",
                                              "x *= 0xd2511"
                                              "f53u;\n"}}),
              ElementsAre(HasSubstr("base/philox.cc only")));
}

// Row 2 of the bug catalogue.
TEST(RandomNumbers, EachStreamIsReadByOneFolder) {
  EXPECT_THAT(CheckRandomStreamsHaveOneReader(
                  {{"draft/a_drafter.cc", "RandomPlace{.stream = RandomStream::kDraft};\n"},
                   {"verify/verifier.cc", "f(RandomStream::kAccept, RandomStream::kResidual);\n"},
                   {"model/sampling.cc", "RandomSource::FirstCounter(place);\n"},
                   {"engine/a_test.cc", "RandomStream::kResidual;\n"},
                   {"tools/checkpoints/random_model.cc", "Philox4x32(counter, key);\n"},
                   {"engine/a.cc", "// kDraft\nProvenance::kAccepted;\n"}}),
              IsEmpty());
  for (const auto& [path, code] :
       Files{{"draft/a.cc", "RandomStream::kAccept;\n"},
             {"draft/b.cc", "using enum RandomStream; f(kResidual);\n"},
             {"verify/a.cc", "RandomStream::kDraft;\n"},
             {"engine/a.cc", "RandomPlace place;\n"},
             {"kernels/cpu/a.cc", "RandomSource::FirstCounter(p);\n"},
             {"model/a.cc", "Philox4x32({0, 0, slot, step}, seed);\n"}}) {
    EXPECT_THAT(CheckRandomStreamsHaveOneReader({{path, code}}), SizeIs(1)) << path;
  }
}

// Row 81 of the bug catalogue.
TEST(TimeOfDay, IsForStampsOnly) {
  EXPECT_THAT(CheckOnlyStampsTellTheTimeOfDay(
                  {{"server/api/service.cc", "f(absl::Now());\n"},
                   {"engine/a.cc",
                    "// absl::Now\nInstant::Now();\nstd::chrono::steady_clock::now();\n"
                    "run_time(nullptr);\n"}}),
              IsEmpty());
  for (const std::string clock :
       {"f(absl::Now());\n", "absl::GetCurrentTimeNanos();\n", "gettimeofday(&t, nullptr);\n",
        "std::chrono::system_clock::now();\n", "::time(nullptr);\n", "std::time(&t);\n",
        "std::chrono::high_resolution_clock::now();\n", "clock_gettime(CLOCK_REALTIME, &t);\n"}) {
    EXPECT_THAT(CheckOnlyStampsTellTheTimeOfDay({{"engine/a.cc", clock}}), SizeIs(1)) << clock;
    EXPECT_THAT(CheckOnlyStampsTellTheTimeOfDay({{"tests/a_test.cc", clock}}), SizeIs(1)) << clock;
  }
}

// Row 201 of the bug catalogue.
TEST(Atomics, StoresBeforeWakingAreSequential) {
  const std::string wake = "x.notify_all();\n";
  EXPECT_THAT(CheckWakingStoresAreSequential(
                  {{"base/a.cc", "x.store(1, std::memory_order_seq_cst);\n" + wake},
                   {"base/b.cc", "found_.notify_one();\n"}}),
              IsEmpty());
  EXPECT_THAT(CheckWakingStoresAreSequential(
                  {{"base/a.cc", "x.store(1, std::memory_order_release);\n" + wake}}),
              ElementsAre(HasSubstr("base/a.cc:2:")));
}

// Returns a page with all rows, starting with this one.
Files CataloguePage(const std::string& first_row) {
  std::string page = "| 1 | " + first_row + " |\n";
  for (int row = 2; row <= 80; ++row) page += "| " + std::to_string(row) + " | waits for x |\n";
  return {{"docs/bug_catalogue.md", page},
          {"verify/a_test.cc", "TEST(Judge,\n     Accepts) {\n// TEST(Judge, Sleeps)\n"}};
}

TEST(BugCataloguePage, NamesTestsThatExist) {
  EXPECT_THAT(CheckBugCatalogue(CataloguePage("`verify/a_test.cc: Judge.Accepts`")), IsEmpty());
  EXPECT_THAT(CheckBugCatalogue(CataloguePage("`verify/a_test.cc: Judge.Sleeps`")),
              ElementsAre(HasSubstr("docs/bug_catalogue.md:1: verify/a_test.cc has no test")));
  EXPECT_THAT(CheckBugCatalogue(CataloguePage("`verify/b_test.cc: Judge.Accepts`")), SizeIs(1));
  EXPECT_THAT(CheckBugCatalogue(CataloguePage("nothing")), ElementsAre(HasSubstr("names no test")));
  Files with_python =
      CataloguePage("`tests/c_test.py: Judge.test_it` `tests/c_test.py: Other.test_it`");
  with_python["tests/c_test.py"] =
      "class Judge(unittest.TestCase):\n    def test_it(self):\n        pass\n";
  EXPECT_THAT(CheckBugCatalogue(with_python), ElementsAre(HasSubstr("has no test Other.test_it")));
}

TEST(BugCataloguePage, NamesPythonTestsToo) {
  for (const std::string path : {"tests/a_test.py", "tests/page/a_cases.py"}) {
    Files files = CataloguePage("`" + path + ": test_a`");
    files[path] = "    def test_ab(self):\n";
    EXPECT_THAT(CheckBugCatalogue(files), ElementsAre(HasSubstr("has no test test_a"))) << path;
    files[path] = "    def test_a(self):\n";
    EXPECT_THAT(CheckBugCatalogue(files), IsEmpty()) << path;
  }
}

TEST(BugCataloguePage, HasEveryRowAndEveryTestOfTheCatalogue) {
  EXPECT_THAT(CheckBugCatalogue({}), ElementsAre(HasSubstr("missing")));
  EXPECT_THAT(CheckBugCatalogue({{"docs/bug_catalogue.md", "# Bugs\n"}}), SizeIs(80));
  Files files = CataloguePage("waits for y");
  files["tests/b_test.cc"] = "TEST(KnownFaults, Row1) {\n";
  EXPECT_THAT(CheckBugCatalogue(files), ElementsAre(HasSubstr("KnownFaults.Row1 is not named")));
}

// Row 135 of the bug catalogue.
TEST(Patience, TestsDoNotUseTimeouts) {
  EXPECT_THAT(CheckTestsNeverGiveUp(
                  {{"engine/engine.cc", "mutex_.AwaitWithTimeout(done, timeout);\n"},
                   {"tests/a_test.cc", "mutex.Await(done);  // AwaitWithTimeout\nwait_format();\n"},
                   {"tests/a_test.py", "socket.create_connection(address, timeout=None)\n"},
                   {"benchmarks/a.py", "connection.settimeout(9)\n"},
                   {"tests/soak/soak.py", "connection.settimeout(9)\n"},
                   {"tests/clients/a.py", "urlopen(request, timeout=60)\n"}}),
              IsEmpty());
  for (const std::string impatient :
       {"setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));\n",
        "EXPECT_TRUE(mutex.AwaitWithTimeout(done, absl::Seconds(20)));\n",
        "done.WaitForNotificationWithTimeout(absl::Seconds(20));\n", "future.wait_for(20s);\n"}) {
    EXPECT_THAT(CheckTestsNeverGiveUp({{"server/a_testing.h", impatient}}), SizeIs(1)) << impatient;
  }
  for (const std::string impatient :
       {"connection.settimeout(20)\n", "process.wait(timeout=20)\n"}) {
    EXPECT_THAT(CheckTestsNeverGiveUp({{"python/tests/a_test.py", impatient}}), SizeIs(1));
  }
}

TEST(Tests, RunInTheSameLanesEverywhere) {
  const std::string run = "lane() {\n  ./dev $*\n}\nlane format --check\n# x\nlane test\n";
  const auto check = [&](const std::string& lanes) {
    return CheckHostedLanes(
        {{".ci/run", run}, {std::string(kHostedWorkflow), "x:\n  lane:\n" + lanes + "steps:\n"}});
  };
  EXPECT_THAT(check("    - format --check\n    - test\n"), IsEmpty());
  for (const std::string lanes : {"", "    - format --check\n", "    - format\n    - test\n",
                                  "    - format --check\n    - test\n    - asan\n"}) {
    EXPECT_THAT(check(lanes), ElementsAre(HasSubstr("ci.yml:1: its lanes differ"))) << lanes;
  }
}

TEST(Text, HasNoNotesToOneself) {
  EXPECT_THAT(CheckNoNotes({{"a.sh",
                             "mktemp XXXX"
                             "XX\n"}}),
              IsEmpty());
  EXPECT_THAT(CheckNoNotes({{"a.cc",
                             "// TO"
                             "DO: x\n"},
                            {"b.md",
                             "FIX"
                             "ME\n"},
                            {"c.py",
                             "# XX"
                             "X\n"}}),
              SizeIs(3));
}

TEST(Text, DoesNotNameMachinesOrRegistries) {
  EXPECT_THAT(CheckNoMachinePathsOrRegistries({{"a.md", "see framework/a and build/release\n"}}),
              IsEmpty());
  for (const std::string text : {"cd /wo"
                                 "rk/x\n",
                                 "/ro"
                                 "ot/x\n",
                                 "/ho"
                                 "me/x\n",
                                 "pip install -i pypi"
                                 ".org\n",
                                 "deb.deb"
                                 "ian.org\n"}) {
    EXPECT_THAT(CheckNoMachinePathsOrRegistries({{"a.md", text}}), SizeIs(1)) << text;
  }
}

TEST(Text, StartsPythonIsolatedOnly) {
  EXPECT_THAT(
      CheckPythonIsIsolated({{"a.sh", "python3 -I -m pip list\npython3 tools/a.py -c x\n"},
                             {"a.py", "run([sys.executable, \"-I\", \"-c\", code])\n"},
                             {"tests/b_test.py", "run([sys.executable, \"-m\", \"x\"])\n"}}),
      IsEmpty());
  EXPECT_THAT(CheckPythonIsIsolated({{"cmake/a.sh", "python3 -m pip download x\n"},
                                     {"dev", "  python -c 'import x'\n"},
                                     {"a.py", "run([sys.executable, \"-c\", code])\n"},
                                     {"b.py", "run([python, \"-m\", \"pip\"])\n"},
                                     {"a.cc", "Run({\"python3\", \"-m\", \"pip\"});\n"}}),
              SizeIs(5));
}

TEST(Documents, LinkToWhatExists) {
  const auto check = [](const std::string& text) {
    return CheckMarkdownLinks(
        {.files = {{"docs/a.md", text}}, .paths = {"docs/a.md", "docs", "dev"}});
  };
  EXPECT_THAT(check("# It's _there_: `a`\n## Here\n[x](a.md) [y](../dev) [z](a.md#its-_there_-a) "
                    "[w](#here) [v](http:"
                    "//x.y#z)\n"),
              IsEmpty());
  EXPECT_THAT(check("# Here\n[x](a.md#there)\n[x](#there)\n"),
              ElementsAre(HasSubstr("docs/a.md:2: links to a.md#there"),
                          HasSubstr("docs/a.md:3: links to #there")));
  EXPECT_THAT(check("[d](../docs/) `[x](none.md)`\n```\n[x](none.md)\n```\n"), IsEmpty());
  EXPECT_THAT(check("text\n[x](none.md)\n"),
              ElementsAre(HasSubstr("docs/a.md:2: links to none.md")));
  EXPECT_THAT(check("![picture](a.png)\n"), SizeIs(1));
}

}  // namespace
}  // namespace tandem::tidy
