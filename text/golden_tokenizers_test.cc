// Compares with every golden line and stream of the reference: tests/data/README.md. The
// vocabularies of third parties are not in the repository; their tests skip if the folder next to
// the checkout is missing.
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/mapped_file.h"
#include "base/source_path_testing.h"
#include "gtest/gtest.h"
#include "tandem/detokenizer.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"
#include "tests/golden_lines.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = SortedJson;

// Returns the folder of a golden tokenizer; empty if there is none.
std::string FolderOf(const std::string& name) {
  for (const char* root : {"/tests/data/tokenizers/", "/../shared/golden/tokenizers/"}) {
    const std::string folder = absl::StrCat(SourcePath(""), root, name);
    if (fs::is_directory(folder)) return folder;
  }
  return "";
}

std::unique_ptr<Tokenizer> LoadGolden(const std::string& folder) {
  const std::string plain = folder + "/tokenizer.json";
  if (fs::exists(plain)) return *Tokenizer::Load(plain);
  const std::string contents = ReadXz(plain + ".xz");
  if (contents.empty()) return nullptr;  // no xz
  return *Tokenizer::Parse(contents, "", plain);
}

class GoldenTokenizer : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = FolderOf(GetParam());
    if (folder_.empty()) GTEST_SKIP() << GetParam() << " is not next to this checkout";
    tokenizer_ = LoadGolden(folder_);
    if (tokenizer_ == nullptr) GTEST_SKIP() << "no xz on this machine";
  }
  std::string folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(GoldenTokenizer, EncodesAndDecodesEveryLineAsTheReference) {
  const std::vector<Json> lines = ReadGoldenLines(folder_ + "/encode.jsonl");
  ASSERT_GT(lines.size(), 100u);
  for (const Json& line : lines) {
    SCOPED_TRACE(line.dump().substr(0, 300));
    const auto special = line["special"] == "plain" ? SpecialTokens::kPlain : SpecialTokens::kParse;
    const auto ids = tokenizer_->Encode(line["text"].get<std::string>(), special).value();
    EXPECT_EQ(ids, line["ids"].get<std::vector<TokenId>>());
    const auto golden_ids = line["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer_->Decode(golden_ids), line["decoded"].get<std::string>());
    const Json& skipped =
        line.contains("decoded_skip_special") ? line["decoded_skip_special"] : line["decoded"];
    EXPECT_EQ(tokenizer_->Decode(golden_ids, true), skipped.get<std::string>());
    if (line.contains("ids_template")) {
      EXPECT_EQ(tokenizer_->WithTemplate(golden_ids),
                line["ids_template"].get<std::vector<TokenId>>());
    }
  }
}

TEST_P(GoldenTokenizer, StreamsEveryPieceAsTheReference) {
  const std::vector<Json> lines = ReadGoldenLines(folder_ + "/stream.jsonl");
  ASSERT_GT(lines.size(), 10u);
  for (const Json& line : lines) {
    SCOPED_TRACE(line.dump().substr(0, 600));
    const auto context = line["context_ids"].get<std::vector<TokenId>>();
    const auto detokenizer = Detokenizer::New(tokenizer_.get(), context, line["skip_special"]);
    std::vector<std::string> pieces;
    for (const Json& id : line["ids"]) pieces.push_back(detokenizer->Push(id.get<TokenId>()));
    EXPECT_EQ(pieces, line["pieces"].get<std::vector<std::string>>());
    EXPECT_EQ(detokenizer->Flush(), line["flush"].get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTokenizer,
                         testing::Values("llama3-small", "gpt2", "qwen2", "minimind", "tok512",
                                         "tok512-legacy"),
                         [](const auto& info) {
                           return absl::StrReplaceAll(info.param, {{"-", "_"}});
                         });

}  // namespace
}  // namespace tandem
