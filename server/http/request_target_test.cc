#include "server/http/request_target.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(RequestTarget, DecodesOnceAndDropsQueryAndLastSlash) {
  const struct {
    const char* target;
    const char* path;
  } cases[] = {{"/", "/"},
               {"/health", "/health"},
               {"/health/", "/health"},
               {"/health//", "/health/"},
               {"/health?a=/b%", "/health"},
               {"/health/?", "/health"},
               {"/?", "/"},
               {"//", "/"},
               {"/v1/models/a%2fb%2Fc", "/v1/models/a/b/c"},
               {"/v1/models/a%20b", "/v1/models/a b"},
               {"/v1/models/%C3%A9", "/v1/models/\xC3\xA9"},
               {"/%2525", "/%25"},
               {"/a+b", "/a+b"},
               {"/a%3Fb", "/a?b"},
               {"*", "*"},
               {"", ""}};
  for (const auto& c : cases) EXPECT_EQ(ParseTarget(c.target).path, c.path) << c.target;
}

TEST(RequestTarget, PathIsEmptyIfTheEncodingIsInvalid) {
  for (const char* target : {"/%", "/%4", "/%zz", "/a%4", "/%%41", "/%4g", "/%-1", "/% 1"}) {
    EXPECT_EQ(ParseTarget(target).path, "") << target;
  }
}

TEST(RequestTarget, ParsesTheAbsoluteForm) {
  EXPECT_EQ(ParseTarget("/health").host, std::nullopt);
  for (const char* target : {"http://a:80/health", "HTTP://a:80/health/?x"}) {
    EXPECT_EQ(ParseTarget(target).host, "a:80") << target;
    EXPECT_EQ(ParseTarget(target).path, "/health") << target;
  }
  for (const char* target : {"http://a", "http://a/", "http://a?x", "http://a/?x"}) {
    EXPECT_EQ(ParseTarget(target).host, "a") << target;
    EXPECT_EQ(ParseTarget(target).path, "/") << target;
  }
  EXPECT_EQ(ParseTarget("http:///health").host, "");
}

}  // namespace
}  // namespace tandem
