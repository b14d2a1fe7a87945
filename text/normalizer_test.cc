#include "text/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <string>

#include "base/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = SortedJson;
using ::testing::HasSubstr;

absl::StatusOr<Normalizer> MakeNormalizer(const std::string& text) {
  const Json json = Json::parse(text);
  return Normalizer::FromJson(JsonField(&json, "normalizer"));
}

std::string Apply(const std::string& normalizer, const std::string& text) {
  const auto made = MakeNormalizer(normalizer);
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return "";
  return made->Apply(text).value();
}

std::string Form(const std::string& form, const std::string& text) {
  return Apply(R"({"type": ")" + form + R"("})", text);
}

// The library's own normalisation of a whole text, which is quadratic on runs of marks.
std::string LibraryForm(int options, const std::string& text) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                 static_cast<utf8proc_option_t>(options));
  EXPECT_GE(size, 0);
  const std::string result(reinterpret_cast<const char*>(mapped), size);
  std::free(mapped);
  return result;
}

TEST(Normalizer, NullChangesNothing) { EXPECT_EQ(Apply("null", " A\u0301 "), " A\u0301 "); }

TEST(Normalizer, Forms) {
  EXPECT_EQ(Form("NFC", "cafe\u0301 e\u0302\u0323 \u212b"), "caf\u00e9 \u1ec7 \u00c5");
  EXPECT_EQ(Form("NFD", "caf\u00e9 \u1ec7"), "cafe\u0301 e\u0323\u0302");
  EXPECT_EQ(Form("NFKC", "\ufb01 \u2167 \u00bd"), "fi VIII 1\u20442");
  EXPECT_EQ(Form("NFKD", "\ufb01\u00e9"), "fie\u0301");
  EXPECT_EQ(Form("NFC", "\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(Form("NFD", "\ud55c"), "\u1112\u1161\u11ab");
  EXPECT_EQ(Form("NFC", "\u0958"), "\u0915\u093c");  // excluded from composition
  EXPECT_EQ(Form("NFKD", "\ufdfa").size(), 33u);     // the longest expansion
  EXPECT_EQ(Form("NFC", std::string("a\0\u00e9", 4)), std::string("a\0\u00e9", 4));
}

TEST(Normalizer, FormsMatchTheLibrary) {
  std::mt19937 random(1);
  const std::u32string alphabet =
      U"aeo\u00e9\u0301\u0302\u0323\u0327\u0345\u093c\u0915\u1ec7\u1100\u1161\u11a8\uac00\uac01"
      U"\u212b\ufb01\u00bd\u30ab\u3099\U0001d15e\U0001f600";
  const std::pair<const char*, int> forms[] = {
      {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
      {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
      {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
      {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
  for (const auto& [name, options] : forms) {
    const auto normalizer = MakeNormalizer(std::string(R"({"type": ")") + name + R"("})").value();
    for (int i = 0; i < 2000; ++i) {
      std::string text;
      for (int length = random() % 12; length > 0; --length) {
        AppendUtf8(alphabet[random() % alphabet.size()], &text);
      }
      ASSERT_EQ(*normalizer.Apply(text), LibraryForm(options, text)) << name << " of " << text;
    }
  }
}

TEST(Normalizer, PrependLeavesEmptyTextsEmpty) {
  const std::string prepend = R"({"type": "Prepend", "prepend": "_"})";
  EXPECT_EQ(Apply(prepend, "a"), "_a");
  EXPECT_EQ(Apply(prepend, ""), "");
}

TEST(Normalizer, Replace) {
  EXPECT_EQ(Apply(R"({"type": "Replace", "pattern": {"String": "a."}, "content": "-"})", "a.aba."),
            "-ab-");
  EXPECT_EQ(Apply(R"({"type": "Replace", "pattern": {"Regex": "\\s{2,}"}, "content": " "})",
                  "a  b \n c d"),
            "a b c d");
}

TEST(Normalizer, LowercaseAndStrip) {
  EXPECT_EQ(Apply(R"({"type": "Lowercase"})", "\u00c4\u0130\u03a3Z1"), "\u00e4i\u0307\u03c3z1");
  const std::string text = "\u3000\t a b \u0085";
  EXPECT_EQ(Apply(R"({"type": "Strip", "strip_left": true, "strip_right": true})", text), "a b");
  EXPECT_EQ(Apply(R"({"type": "Strip", "strip_left": false, "strip_right": true})", text),
            "\u3000\t a b");
  EXPECT_EQ(Apply(R"({"type": "Strip", "strip_left": true, "strip_right": false})", text),
            "a b \u0085");
  EXPECT_EQ(Apply(R"({"type": "Strip", "strip_left": true, "strip_right": false})", " \n"), "");
}

TEST(Normalizer, SequencesApplyInOrder) {
  EXPECT_EQ(Apply(R"({"type": "Sequence", "normalizers": [
                        {"type": "Prepend", "prepend": "A "}, {"type": "Lowercase"},
                        {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]})",
                  "B C"),
            "a_b_c");
}

TEST(Normalizer, ErrorsNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "Nmt"})", "type"},
      {R"({"type": 3})", "type"},
      {"[]", "object"},
      {R"({"type": "Prepend"})", "prepend"},
      {R"({"type": "Strip", "strip_left": 1, "strip_right": true})", "strip_left"},
      {R"({"type": "Replace", "pattern": {"Regex": "("}, "content": ""})", "pattern.Regex"},
      {R"({"type": "Replace", "pattern": {"String": ""}, "content": ""})", "pattern.String"},
      {R"({"type": "Replace", "pattern": {}, "content": ""})", "pattern"},
      {R"({"type": "Replace", "pattern": {"String": "a"}})", "content"},
      {R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Precompiled"}]})",
       "normalizers[1].type"},
      {R"({"type": "Sequence"})", "normalizers"}};
  for (const auto& [json, field] : cases) {
    const auto normalizer = MakeNormalizer(json);
    EXPECT_EQ(normalizer.status().code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(normalizer.status().message(), HasSubstr(field)) << json;
  }
}

}  // namespace
}  // namespace tandem
