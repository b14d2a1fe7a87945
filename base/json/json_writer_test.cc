#include "base/json/json_writer.h"

#include <cmath>
#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = SortedJson;

TEST(JsonWriter, SeparatesValuesWithCommas) {
  std::string text;
  JsonWriter json(&text);
  json.BeginObject().Key("a").BeginArray().EndArray().Key("b").BeginArray();
  json.BeginObject().EndObject().Integer(-1).Null().BeginArray().String("x").EndArray();
  json.EndArray().Key("c").Value({{"d", {1, 2}}}).Key("e").Number(0.5).EndObject();
  EXPECT_EQ(text, R"({"a":[],"b":[{},-1,null,["x"]],"c":{"d":[1,2]},"e":0.5})");
}

TEST(JsonWriter, WritesStringsThatReadBackTheSame) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  for (const std::string& given :
       {std::string(), std::string("plain"), all, std::string("\xc3\xa4 \xf0\x9f\x98\x80"),
        std::string(1, '\0')}) {
    std::string text;
    JsonWriter(&text).BeginObject().Key(given).String(given).EndObject();
    EXPECT_EQ(Json::parse(text), Json({{given, given}}));
  }
  std::string text;
  JsonWriter(&text).String("a\xff");
  EXPECT_EQ(Json::parse(text), "a\xef\xbf\xbd");
}

TEST(JsonWriter, WritesNumbersThatReadBackTheSame) {
  for (const double number :
       {0.0, -0.0, 1.0, -9999.0, 0.1, -1.2345678806304932, 1e-300, 5e-324, 1e300,
        std::numeric_limits<double>::max(), -std::numeric_limits<double>::max()}) {
    std::string text;
    JsonWriter(&text).Number(number);
    EXPECT_EQ(Json::parse(text).get<double>(), number) << text;
  }
  for (const double none : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    std::string text;
    JsonWriter(&text).Number(none);
    EXPECT_EQ(text, "null");
  }
}

}  // namespace
}  // namespace tandem
