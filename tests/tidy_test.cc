// The rules of folders and includes (docs/design.md, "Folders: one chain"), with cases that see
// each fail. tests/tidy_test.py has the rules of text; tests/CMakeLists.txt checks that every
// header compiles alone.
#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/mapped_file.h"
#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Contents of files by their path from the root, with forward slashes.
using Files = std::map<std::string, std::string>;
// Each as "path:line: message".
using Violations = std::vector<std::string>;
using List = std::vector<std::string>;

List Words(const std::string& text, const std::string& separators = " \n") {
  return absl::StrSplit(text, absl::ByAnyChar(separators), absl::SkipEmpty());
}

List Lines(const std::string& text) { return absl::StrSplit(text, '\n'); }

bool Contains(const List& list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool StartsWithOneOf(std::string_view path, const List& starts) {
  return std::any_of(starts.begin(), starts.end(),
                     [&](const std::string& start) { return path.starts_with(start); });
}

// A folder may use itself and the folders to its left.
const List& Chain() {
  static const List chain = Words(
      "base base/json base/net base/http kernels kvcache kvcache/store kvcache/transfer "
      "kvcache/events model/checkpoint model/ranks model text text/constraint text/chat draft "
      "verify engine proof proof/remote server tools tools/bench");
  return chain;
}

// The headers of include/tandem/, by the folder whose place in the chain they have.
const std::map<std::string, List>& PublicHeaders() {
  static const std::map<std::string, List> headers = {
      {"base", Words("types field_error parameter")},
      {"base/json", Words("json_value")},
      {"kernels", Words("number_formats")},
      {"kvcache/transfer", Words("kv_transfer")},
      {"model", Words("token_constraint logprobs sampling_params")},
      {"text", Words("tokenizer detokenizer")},
      {"text/constraint", Words("output_constraint choice_law")},
      {"text/chat", Words("answer_delta answer_reader chat_answer chat_input chat_template "
                          "generic_tools json_types reasoning tool_calls tool_format")},
      {"draft", Words("draft_source draft_texts draft_tokens drafter_kind")},
      {"verify", Words("acceptance_rule round_stats")},
      {"engine", Words("completion engine engine_load generation_id model_info engine_options "
                       "engine_parameters known_models model_places owned_piece request")},
      {"proof", Words("lossless_proof")}};
  return headers;
}

const List& Libraries() {
  static const List libraries = Words(
      "absl spdlog nlohmann CLI curl gtest gmock boost prometheus benchmark sentencepiece fuzzer");
  return libraries;
}

// Headers that device code can include, because they include only what it can.
const List& PlainViews() {
  static const List views = Words(
      "base/philox_rounds.h kernels/exponential_series.h kernels/matrix.h kernels/paged_kv.h "
      "kernels/row_sums.h kernels/row_tasks.h tests/simt/sort_rows.h");
  return views;
}

const List& StandardForCuda() {
  static const List headers = Words(
      "algorithm array cfloat climits cmath cstddef cstdint cstring limits stdint.h tuple "
      "type_traits utility");
  return headers;
}

bool IsCuda(std::string_view path) { return path.ends_with(".cu") || path.ends_with(".cuh"); }
bool IsCpp(std::string_view path) {
  return path.ends_with(".h") || path.ends_with(".cc") || IsCuda(path);
}
bool IsTest(const std::string& path) {
  static const std::regex test(
      R"(^(tests|benchmarks)/.*|.*(_(test|benchmark|fuzz)\.cc|_testing\.(h|cc))$)");
  return std::regex_match(path, test);
}

// Returns "kernels" for "kernels/cpu/x.cc", and an empty string for a file at the root.
std::string TopFolder(std::string_view path) {
  return std::string(path.substr(0, path.find('/') == path.npos ? 0 : path.find('/')));
}

// Returns a folder's place in the chain, or -1 outside it.
int PlaceInChain(std::string_view folder) {
  const auto at = std::find(Chain().begin(), Chain().end(), folder);
  return at == Chain().end() ? -1 : static_cast<int>(at - Chain().begin());
}

// Returns a file's folder in the chain: the longest one that its path starts with, else the top
// folder. For a public header, given as "tandem/x.h" or by its path, this is the folder in
// PublicHeaders, or none.
std::string FolderInChain(std::string path) {
  if (path.starts_with("include/tandem/")) path.erase(0, std::string_view("include/").size());
  if (TopFolder(path) == "tandem") {
    const std::string name = fs::path(path).stem().string();
    for (const auto& [folder, names] : PublicHeaders()) {
      if (path == "tandem/" + name + ".h" && Contains(names, name)) return folder;
    }
    return "";
  }
  fs::path folder = fs::path(path).parent_path();
  while (folder.has_parent_path() && PlaceInChain(folder.string()) < 0) {
    folder = folder.parent_path();
  }
  return folder.string();
}

std::string At(const std::string& path, size_t line, const std::string& message) {
  return absl::StrCat(path, ":", line, ": ", message);
}

// Returns whether device code of this file can include it: the toolkit, CUB, a few standard
// headers, plain headers and, except in those, its own folder and kernels/cuda/. This keeps nvcc
// fast.
bool IsForCuda(std::string_view path, bool is_angled, std::string_view include) {
  if (is_angled) {
    return StartsWithOneOf(include, {"cuda", "cub/", "cublas"}) ||
           Contains(StandardForCuda(), include);
  }
  const std::string own_folder(path.substr(0, path.rfind('/') + 1));
  return Contains(PlainViews(), include) ||
         (IsCuda(path) && StartsWithOneOf(include, {"kernels/cuda/", own_folder}));
}

// Returns whether the file can include headers of devices' folders: of its own device, in kernels/
// of all, and of CUDA in the device's twin on the host and in the program that measures kernels.
bool SeesDevice(std::string_view path, std::string_view include) {
  for (const std::string_view device : {"kernels/cpu/", "kernels/cuda/"}) {
    if (!include.starts_with(device) || path.starts_with(device)) continue;
    const bool has_other_device = StartsWithOneOf(path, {"kernels/cpu/", "kernels/cuda/"});
    if (path.starts_with("kernels/") && !has_other_device) continue;
    if (device == "kernels/cpu/" || !StartsWithOneOf(path, {"tests/simt/", "tools/kernel_lab/"})) {
      return false;
    }
  }
  return true;
}

// Returns why `path` must not include `include`, or an empty string if it can. Quoted paths start
// at the root of the sources or name a known library.
std::string IncludeFault(const std::string& path, bool is_angled, const std::string& include) {
  if ((IsCuda(path) || Contains(PlainViews(), path)) && !IsForCuda(path, is_angled, include)) {
    return "device code includes the toolkit, CUB, plain headers and small standard headers only";
  }
  const std::string top = TopFolder(path);
  const std::string target = TopFolder(include);
  const int target_place = PlaceInChain(FolderInChain(include));
  if (is_angled) {
    if (target == "tandem" && (top == "python" || top == "examples")) return "";
    if (target_place < 0 && target != "tests") return "";
    return "our own headers are included with quotation marks";
  }
  if (Contains(Libraries(), target)) return "";
  if (top == "python") {
    return target == "python" ? "" : "python/ includes <tandem/...> only, like every user";
  }
  if (target == "tests") return IsTest(path) ? "" : "only tests may include tests/";
  if (target_place < 0) return "starts with neither one of our folders nor a known library";
  if (!SeesDevice(path, include)) return "the folder of a device is private to kernels/";
  if (path.starts_with("include/tandem/") && target != "tandem") {
    return "public headers include public headers only";
  }
  // The judge sees the proposal, not the proposer; its tests can use one.
  if (top == "verify" && !IsTest(path) && target == "draft" && include != "draft/proposal.h") {
    return "verify/ includes only the definition of a proposal from draft/";
  }
  const std::string own = FolderInChain(path);
  if (top == "tests" || top == "benchmarks" || top == "examples") return "";
  if (PlaceInChain(own) < 0) return "this folder or header is not in the chain";
  if (target_place <= PlaceInChain(own)) return "";
  return own + "/ may use itself and folders to its left only";
}

Violations CheckIncludes(const Files& files) {
  static const std::regex directive(R"re(\s*#\s*include\s*([<"])([^>"]*)[>"].*)re");
  Violations violations;
  for (const auto& [path, text] : files) {
    if (!IsCpp(path)) continue;
    size_t number = 0;
    for (const std::string& line : Lines(text)) {
      ++number;
      std::smatch found;
      if (line.find("include") == line.npos) continue;
      if (!std::regex_match(line, found, directive)) continue;
      const std::string why = IncludeFault(path, found[1] == "<", found[2]);
      if (why.empty()) continue;
      violations.push_back(At(path, number, "includes " + found[2].str() + ": " + why));
    }
  }
  return violations;
}

// Each kernels/cuda/x.cu has a twin in kernels/cpu/: its stem up to the first underscore, followed
// by the suffix or an underscore. Sources for one kernel each, such as attention_prompt.cu, share
// one.
Violations CheckCudaHasTwins(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    if (!path.starts_with("kernels/cuda/") || !path.ends_with(".cu")) continue;
    const std::string stem = fs::path(path).stem().string();
    const std::string twin = "kernels/cpu/" + stem.substr(0, stem.find('_'));
    const bool found = std::any_of(files.begin(), files.end(), [&twin](const auto& file) {
      return StartsWithOneOf(file.first, {twin + ".", twin + "_"});
    });
    if (!found) violations.push_back(At(path, 1, "has no twin " + twin + ".cc or .h"));
  }
  return violations;
}

// A folder's CMakeLists.txt names libraries of folders to the left only.
Violations CheckCMakeChain(const Files& files) {
  static const std::regex library(R"(\btandem(?:_|::)(\w+))");
  Violations violations;
  for (const auto& [path, text] : files) {
    const int own = PlaceInChain(FolderInChain(path));
    if (own < 0 || !path.ends_with("CMakeLists.txt")) continue;
    size_t number = 0;
    for (const std::string& line : Lines(text)) {
      ++number;
      const std::string code = line.substr(0, line.find('#'));
      for (std::sregex_iterator it(code.begin(), code.end(), library), end; it != end; ++it) {
        for (size_t right = own + 1; right < Chain().size(); ++right) {
          if ((*it)[1] != absl::StrReplaceAll(Chain()[right], {{"/", "_"}})) continue;
          violations.push_back(
              At(path, number, "links to " + Chain()[right] + "/, which is to the right"));
        }
      }
    }
  }
  return violations;
}

// Returns the part of `text` from `begin`, which is left out, to `end`; empty if there is none.
std::string Between(std::string text, const std::string& begin, const std::string& end) {
  const size_t at = text.find(begin);
  if (at == text.npos) return "";
  text.erase(0, at + begin.size());
  return text.substr(0, text.find(end));
}

// Returns the rows "| `folder/` |" of folders of the chain, in their order.
std::vector<std::pair<std::string, std::string>> FolderRows(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const std::string& line : Lines(text)) {
    const std::string folder = Between(line, "| `", "/` |");
    if (line.starts_with("| `") && Contains(Chain(), folder)) rows.emplace_back(folder, line);
  }
  return rows;
}

// CMakeLists.txt, CONTRIBUTING.md and docs/design.md state the chain, the table of docs/design.md
// has a row for each folder, and README.md's map one for each top folder that names its parts.
Violations CheckFolderMaps(const Files& files) {
  Violations violations;
  const auto compare = [&](const std::string& path, const std::string& what, const List& found,
                           const List& expected) {
    if (found == expected) return;
    violations.push_back(At(path, 1, what + " should be " + absl::StrJoin(expected, " ")));
  };
  compare("CMakeLists.txt", "tandem_chain",
          Words(Between(files.at("CMakeLists.txt"), "set(tandem_chain", ")")), Chain());
  for (const std::string path : {"docs/design.md", "CONTRIBUTING.md"}) {
    compare(path, "its chain", Words(Between(files.at(path), "```\nbase <", "```"), " <\n"),
            List(Chain().begin() + 1, Chain().end()));
  }
  List described;
  for (const auto& [folder, row] : FolderRows(files.at("docs/design.md"))) {
    described.push_back(folder);
  }
  compare("docs/design.md", "its rows", described, Chain());
  List named;
  List expected;
  for (const auto& [room, row] : FolderRows(files.at("README.md"))) {
    named.push_back(room);
    for (const std::string& folder : Chain()) {
      const std::string part = TopFolder(folder) == room ? folder.substr(room.size() + 1) : "";
      if (row.find("`" + part + "/`") != row.npos) named.push_back(folder);
    }
  }
  for (const std::string& room : Chain()) {
    if (room.find('/') != room.npos) continue;
    expected.push_back(room);
    for (const std::string& folder : Chain()) {
      if (TopFolder(folder) == room) expected.push_back(folder);
    }
  }
  compare("README.md", "its map", named, expected);
  return violations;
}

// Reads the sources, build files and documents, except build/, hidden folders and test data.
Files ReadTree() {
  const fs::path root = SourcePath("");
  Files files;
  for (auto at = fs::recursive_directory_iterator(root); at != fs::end(at); ++at) {
    const std::string path = fs::relative(at->path(), root).generic_string();
    const bool is_hidden = at->path().filename().string().starts_with('.');
    if (at->is_directory() && (is_hidden || path == "build" || path == "tests/data")) {
      at.disable_recursion_pending();
    } else if (IsCpp(path) || path.ends_with("CMakeLists.txt") || path.ends_with(".md")) {
      files[path] = ReadFile(at->path().string()).value();
    }
  }
  return files;
}

TEST(Tidy, ThisTreeFollowsAllRules) {
  const Files files = ReadTree();
  ASSERT_TRUE(files.contains("base/philox.h"));
  for (auto* check : {CheckIncludes, CheckCudaHasTwins, CheckCMakeChain, CheckFolderMaps}) {
    for (const std::string& violation : check(files)) ADD_FAILURE() << violation;
  }
}

// Returns a source whose second line includes this, which is in angles or quoted.
std::string Source(const std::string& include) {
  const bool is_angled = include.starts_with('<');
  return "// A source.\n#  include " + (is_angled ? include : "\"" + include + "\"") + "  // x\n";
}

TEST(Includes, FollowTheRules) {
  const std::map<std::string, std::string> right = {
      {"model/a.cc", "model/a.h kvcache/b.h absl/status/status.h <vector> model/ranks/b.h"},
      {"tools/main.cc", "engine/engine.h"},
      {"tools/bench/a.cc", "tools/table.h"},
      {"text/chat/jinja/a.cc", "text/unicode.h"},
      {"tests/a_test.cc", "tools/x.h tests/y.h"},
      {"base/a_test.cc", "tests/matchers.h"},
      {"examples/a.cc", "<tandem/engine.h>"},
      {"engine/a.cc", "tandem/engine.h"},
      {"text/a.cc", "tandem/types.h"},
      {"include/tandem/engine.h", "tandem/tokenizer.h absl/status/status.h"},
      {"python/a.cc", "<tandem/engine.h> python/b.h absl/status/status.h"},
      {"verify/a.h", "draft/proposal.h"},
      {"verify/a_test.cc", "draft/drafter.h"},
      {"engine/a.h", "draft/drafter.h"},
      {"kernels/make_backend.cc", "kernels/cpu/a.h"},
      {"kernels/cpu/a.cc", "kernels/cpu/a.h"},
      {"tests/simt/a.cc", "kernels/cuda/a.h"},
      {"tools/kernel_lab/a.cc", "kernels/cuda/a.h"},
      {"kernels/cuda/norm.cu",
       "kernels/matrix.h kernels/cuda/launch.cuh <cuda_bf16.h> <cstdint> "
       "<cub/block/block_reduce.cuh> <cuda/std/array>"},
      {"tools/lab/probe.cu", "tools/lab/probe.h"},
      {"kernels/matrix.h", "<cstdint>"}};
  for (const auto& [path, includes] : right) {
    for (const std::string& include : Words(includes)) {
      EXPECT_THAT(CheckIncludes({{path, Source(include)}}), IsEmpty());
    }
  }
  EXPECT_THAT(CheckIncludes({{"base/a.cc", "// #include \"b.h\"\nf(\"#include <base/e.h>\");\n"}}),
              IsEmpty());
}

TEST(Includes, AgainstTheRulesAreSeen) {
  struct Wrong {
    std::string path;
    std::string includes;
    std::string message;
  };
  const std::vector<Wrong> all_wrong = {
      {"base/a.h", "kernels/matrix.h base/json/b.h", "base/ may use itself"},
      {"engine/a_test.cc", "server/b.h proof/b.h", "engine/ may use itself"},
      {"base/json/a.cc", "text/b.h", "base/json/ may use itself"},
      {"model/checkpoint/a.cc", "model/b.h", "model/checkpoint/ may use itself"},
      {"kvcache/a.cc", "kvcache/store/b.h", "kvcache/ may use itself"},
      {"tools/a.cc", "tools/bench/b.h", "tools/ may use itself"},
      {"text/a.cc", "tandem/engine.h", "text/ may use itself"},
      {"include/tandem/types.h", "tandem/engine.h", "base/ may use itself"},
      {"base/a.cc", "util/b.h b.h tandem/unheard_of.h", "neither one of our folders"},
      {"util/a.cc", "base/b.h", "not in the chain"},
      {"include/tandem/unheard_of.h", "tandem/types.h", "not in the chain"},
      {"include/tandem/engine.h", "engine/session.h", "public headers only"},
      {"engine/a.cc", "tests/fake.h", "only tests"},
      {"engine/a.cc", "<tandem/engine.h> <base/check.h> <tests/a.h>", "quotation marks"},
      {"engine/a.cc", "python/b.h", "neither one of our folders"},
      {"python/a.cc", "engine/engine.h tests/b.h", "python/ includes <tandem/...> only"},
      {"verify/a.h", "draft/drafter.h", "verify/ includes only"},
      {"tools/a.cc", "kernels/cpu/a.h kernels/cuda/a.h", "private to kernels/"},
      {"tests/a_test.cc", "kernels/cpu/a.h kernels/cuda/a.h", "private to kernels/"},
      {"tests/simt/a.cc", "kernels/cpu/a.h", "private to kernels/"},
      {"kernels/cuda/a.cc", "kernels/cpu/a.h", "private to kernels/"},
      {"kernels/cuda/norm.cu", "absl/types/span.h kernels/backend.h base/check.h <string>",
       "device code includes"},
      {"kernels/matrix.h", "absl/types/span.h kernels/cuda/a.cuh kernels/a.h",
       "device code includes"},
      {"tools/lab/probe.cu", "tools/other.h", "device code includes"}};
  for (const Wrong& wrong : all_wrong) {
    for (const std::string& include : Words(wrong.includes)) {
      EXPECT_THAT(CheckIncludes({{wrong.path, Source(include)}}),
                  ElementsAre(HasSubstr(wrong.message)))
          << wrong.path << " " << include;
    }
  }
  EXPECT_THAT(CheckIncludes({{"base/a.h", Source("kernels/matrix.h")}}),
              ElementsAre(HasSubstr("base/a.h:2: includes kernels/matrix.h: base/")));
}

TEST(Cuda, FilesHaveTwinsOnTheCpu) {
  const auto check = [](const std::string& device, const std::string& twin) {
    return CheckCudaHasTwins({{"kernels/cuda/" + device, ""}, {"kernels/cpu/" + twin, ""}});
  };
  EXPECT_THAT(check("norm.cu", "norm.cc"), IsEmpty());
  EXPECT_THAT(check("norm.cu", "norm_avx2.cc"), IsEmpty());
  EXPECT_THAT(check("norm_rows.cu", "norm.cc"), IsEmpty());
  EXPECT_THAT(check("norm.cuh", "other.cc"), IsEmpty());
  EXPECT_THAT(check("norm.cu", "normal.cc"), ElementsAre(HasSubstr("kernels/cpu/norm")));
}

TEST(CMake, LinksToTheLeftOnly) {
  const auto check = [](const std::string& folder, const std::string& text) {
    return CheckCMakeChain({{folder + "/CMakeLists.txt", text}});
  };
  EXPECT_THAT(check("draft", "tandem_folder(draft\n DEPENDS tandem_model)  # tandem_verify\n"),
              IsEmpty());
  EXPECT_THAT(check("tests", "target_link_libraries(t tandem_engine)\n"), IsEmpty());
  EXPECT_THAT(check("draft", "tandem_folder(draft DEPENDS\n  tandem_verify)\n"),
              ElementsAre(HasSubstr("draft/CMakeLists.txt:2: links to verify/")));
  EXPECT_THAT(check("kvcache", "tandem_folder(kvcache DEPENDS tandem_kvcache_store)\n"),
              ElementsAre(HasSubstr("links to kvcache/store/")));
  EXPECT_THAT(check("base", "target_link_libraries(tandem_base PRIVATE tandem::kernels)\n"),
              ElementsAre(HasSubstr("links to kernels/")));
}

TEST(FolderMaps, AreCompared) {
  const Files files = ReadTree();
  const auto with = [&](const std::string& path, const std::string& from, const std::string& to) {
    Files changed = files;
    EXPECT_NE(absl::StrReplaceAll({{from, to}}, &changed.at(path)), 0) << from;
    return CheckFolderMaps(changed);
  };
  EXPECT_THAT(with("CMakeLists.txt", "base/http kernels", "kernels base/http"),
              ElementsAre(HasSubstr("CMakeLists.txt:1: tandem_chain")));
  for (const std::string path : {"docs/design.md", "CONTRIBUTING.md"}) {
    EXPECT_THAT(with(path, "base/http < kernels", "kernels < base/http"),
                ElementsAre(HasSubstr(path + ":1: its chain")));
  }
  EXPECT_THAT(with("docs/design.md", "| `verify/` |", "| `judge/` |"),
              ElementsAre(HasSubstr("docs/design.md:1: its rows")));
  for (const std::string name : {"| `verify/` |", "`store/`"}) {
    EXPECT_THAT(with("README.md", name, "| `judge/` |"),
                ElementsAre(HasSubstr("README.md:1: its map")));
  }
}

}  // namespace
}  // namespace tandem
