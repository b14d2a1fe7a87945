// Access control: keys, host names, and the origins of pages in browsers.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/http/http_server.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPrompt[] = R"({"prompt": "A"})";
constexpr char kJson[] = "Content-Type: application/json\r\n";
constexpr char kForm[] = "Content-Type: application/x-www-form-urlencoded\r\n";
constexpr char kKey[] = "Authorization: Bearer secret\r\n";

std::string Origin(const std::string& origin) { return absl::StrCat("Origin: ", origin, "\r\n"); }

class Access : public ServerTest {
 protected:
  // Sends one request with this Host, on a new connection.
  Answer AskFor(const std::string& host, const std::string& headers = "",
                const std::string& method = "POST", const std::string& target = "/tokenize") {
    Client client(server_->port());
    const std::string body = method == "POST" ? kPrompt : "";
    client.Send(absl::StrCat(method, " ", target, " HTTP/1.1\r\nHost: ", host, "\r\n", headers,
                             "Content-Length: ", body.size(), "\r\n\r\n", body));
    return client.Read(method == "HEAD");
  }
};

TEST_F(Access, RequiresTheKey) {
  options_.service.api_key = "secret";
  Start();
  EXPECT_EQ(Ask("GET", "/health").status, 200);
  const Answer without = Ask("GET", "/v1/models");
  EXPECT_EQ(without.status, 401);
  EXPECT_EQ(without.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(without.error("code"), "invalid_api_key");
  for (const char* wrong : {"Bearer other1", "Bearer secre", "Bearer secrets",
                            "Bearer secretsecret", "Bearer ", "Bearer", "secret", "Basic secret"}) {
    EXPECT_EQ(Ask("GET", "/v1/models", "", absl::StrCat("Authorization: ", wrong, "\r\n")).status,
              401)
        << wrong;
  }
  EXPECT_EQ(Ask("GET", "/v1/models", "", "Authorization: Bearer secret\r\n").status, 200);
}

// A page whose domain is pointed at this machine after it has loaded (DNS rebinding).
TEST_F(Access, AcceptsOnlyHostNamesOfThisMachine) {
  Start();
  for (const char* host : {"localhost", "localhost:1", "LOCALHOST.:80", "a.localhost", "127.0.0.1",
                           "127.9.9.9:80", "[::1]", "[::1]:80"}) {
    EXPECT_EQ(AskFor(host).status, 200) << host;
  }
  for (const char* host :
       {"evil.example", "evil.example:80", "localhost.evil.example", "evillocalhost", "0.0.0.0",
        "192.168.0.1", "127.1", "localhost:80x", "localhost:80@evil.example", "[::1", "[::1]x",
        "[::2]", ":80", ".", "[]"}) {
    for (const char* target : {"/tokenize", "/detokenize", "/nowhere"}) {
      const Answer answer = AskFor(host, "", "POST", target);
      EXPECT_EQ(answer.status, 403) << host;
      EXPECT_EQ(answer.error("code"), "host_not_allowed") << host;
      EXPECT_THAT(answer.error("message"), HasSubstr(host)) << host;
    }
    for (const char* target : {"/", "/docs", "/health", "/metrics"}) {
      EXPECT_EQ(AskFor(host, "", "GET", target).status, 403) << host;
      EXPECT_EQ(AskFor(host, "", "HEAD", target).status, 403) << host;
    }
  }
  // The host of an absolute target takes precedence.
  EXPECT_EQ(AskFor("localhost", "", "GET", "http://evil.example/health").status, 403);
  EXPECT_EQ(AskFor("evil.example", "", "GET", "http://localhost/health").status, 200);
}

TEST_F(Access, AcceptsConfiguredHostNames) {
  options_.service.sites.allowed_hosts = {"box.example", "::2"};
  Start();
  for (const char* host : {"localhost", "box.example", "BOX.example.:80", "[::2]:80"}) {
    EXPECT_EQ(AskFor(host).status, 200) << host;
  }
  EXPECT_EQ(AskFor("a.box.example").status, 403);
  // Configured names are then the only ones, even with a key.
  options_.service.api_key = "secret";
  Start();
  EXPECT_EQ(AskFor("box.example", kKey).status, 200);
  EXPECT_EQ(AskFor("evil.example", kKey).status, 403);
  options_.service.sites.allowed_hosts = {"*"};
  Start();
  EXPECT_EQ(AskFor("evil.example", kKey).status, 200);
}

TEST_F(Access, AcceptsAnyHostNameWithAKeyOrBeyondLoopback) {
  options_.service.api_key = "secret";
  Start();
  EXPECT_EQ(AskFor("box.example", kKey).status, 200);
  EXPECT_EQ(AskFor("box.example").status, 401);
  options_.service.api_key = "";
  options_.host = "0.0.0.0";
  Start();
  EXPECT_EQ(AskFor("box.example").status, 200);
}

TEST_F(Access, RefusesPagesOfOtherOrigins) {
  Start();
  const std::string own = absl::StrCat("localhost:", server_->port());
  EXPECT_EQ(AskFor(own, kJson + Origin("http://" + own)).status, 200);
  for (const std::string& origin :
       {std::string("http://evil.example"), std::string("null"), std::string("http://localhost"),
        std::string("http://localhost:1"), "http://" + own + ".evil.example", own}) {
    for (const char* type : {kJson, kForm, "Content-Type: text/plain\r\n", ""}) {
      const Answer answer = AskFor(own, type + Origin(origin));
      EXPECT_EQ(answer.status, 403) << origin;
      EXPECT_EQ(answer.error("code"), "origin_not_allowed") << origin;
      EXPECT_FALSE(answer.headers.contains("access-control-allow-origin")) << origin;
    }
    // Cheap requests are answered; the browser hides the answer from the page.
    const Answer read = AskFor(own, Origin(origin), "GET", "/health");
    EXPECT_EQ(read.status, 200) << origin;
    EXPECT_FALSE(read.headers.contains("access-control-allow-origin")) << origin;
  }
  // Pages do not know the key.
  options_.service.api_key = "secret";
  Start();
  const std::string headers = Origin("http://evil.example") + kJson;
  EXPECT_EQ(AskFor(own, headers).status, 401);
  EXPECT_EQ(AskFor(own, headers + kKey).status, 200);
}

TEST_F(Access, RequiresJsonBodies) {
  Start();
  const std::string own = absl::StrCat("127.0.0.1:", server_->port());
  const std::string of_own_page = Origin("http://" + own);
  const std::string of_browser = "Sec-Fetch-Site: none\r\n";
  for (const char* type : {"application/json", "Application/JSON; charset=utf-8",
                           "application/json;charset=utf-8", "application/json ; a=b"}) {
    const std::string header = absl::StrCat("Content-Type: ", type, "\r\n");
    for (const std::string& sender : {std::string(), of_own_page, of_browser}) {
      EXPECT_EQ(AskFor(own, header + sender).status, 200) << type;
    }
  }
  // The type that curl -d sends, or no type, is accepted, but not from browsers.
  for (const char* header : {kForm, ""}) {
    EXPECT_EQ(AskFor(own, header).status, 200) << header;
    EXPECT_EQ(AskFor(own, header + of_own_page).status, 415) << header;
    EXPECT_EQ(AskFor(own, header + of_browser).status, 415) << header;
  }
  for (const char* type : {"text/plain", "multipart/form-data; boundary=a", "application/jsonp",
                           "text/json", "application", "text/plain;application/json"}) {
    const Answer answer = AskFor(own, absl::StrCat("Content-Type: ", type, "\r\n"));
    EXPECT_EQ(answer.status, 415) << type;
    EXPECT_EQ(answer.error("code"), "unsupported_media_type") << type;
    EXPECT_THAT(answer.error("message"), HasSubstr(type)) << type;
  }
}

TEST_F(Access, AcceptsConfiguredOrigins) {
  options_.service.sites.cors_origins = {"https://app.example", "http://localhost:3000"};
  Start();
  const std::string app = Origin("https://app.example");
  const Answer answer = AskFor("localhost", kJson + app);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(answer.headers.at("access-control-expose-headers"),
            "Retry-After, X-Tandem-Tool-Format, x-tandem-cache");
  EXPECT_EQ(answer.headers.at("vary"), "Origin");
  // Errors and streams have the headers too, and requests without an origin get Vary.
  EXPECT_TRUE(
      AskFor("localhost", app, "GET", "/nowhere").headers.contains("access-control-allow-origin"));
  EXPECT_EQ(AskFor("localhost").headers.at("vary"), "Origin");
  EXPECT_EQ(AskFor("localhost", kJson + Origin("https://evil.example")).status, 403);
  Client client(server_->port(), "/v1/completions", R"({"prompt": "A", "stream": true})",
                kJson + app);
  engine_.Emit(1, "once");
  EXPECT_THAT(client.ReadUntil("once"),
              HasSubstr("Access-Control-Allow-Origin: https://app.example\r\n"));
  engine_.End(1);
}

TEST_F(Access, AnswersPreflightRequests) {
  options_.service.api_key = "secret";
  options_.service.sites.cors_origins = {"https://app.example"};
  Start();
  const std::string question =
      "Access-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n";
  const auto ask = [&](const std::string& origin) {
    return AskFor("localhost", Origin(origin) + question, "OPTIONS", "/v1/completions");
  };
  const Answer answer = ask("https://app.example");
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(answer.headers.at("access-control-allow-methods"), "POST, OPTIONS");
  EXPECT_EQ(answer.headers.at("access-control-allow-headers"),
            "authorization,content-type,x-stainless-os");
  EXPECT_EQ(answer.headers.at("vary"), "Origin");
  const Answer refused = ask("https://evil.example");
  EXPECT_EQ(refused.status, 403);
  EXPECT_FALSE(refused.headers.contains("access-control-allow-origin"));
  options_.service.sites.cors_origins = {"*"};
  Start();
  EXPECT_EQ(ask("https://evil.example").headers.at("access-control-allow-origin"), "*");
  EXPECT_EQ(ask("null").status, 204);
}

TEST_F(Access, RefusesInvalidHostsAndOrigins) {
  for (const char* host : {"", "a:80", "http://a", "a/b", "[::1]:80", "a:b:c"}) {
    ServerOptions options = TestServerOptions();
    options.service.sites.allowed_hosts = {"good", host};
    const auto server = HttpServer::Start(&engine_, options);
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument) << host;
    EXPECT_THAT(std::string(server.status().message()), HasSubstr("--allowed-hosts: \"")) << host;
  }
  for (const char* origin : {"", "a", "https://", "https://a/", "https://a/b", "null", "a:80"}) {
    ServerOptions options = TestServerOptions();
    options.service.sites.cors_origins = {"https://good", origin};
    const auto server = HttpServer::Start(&engine_, options);
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument) << origin;
    EXPECT_THAT(std::string(server.status().message()), HasSubstr("--cors-origins: \"")) << origin;
  }
}

}  // namespace
}  // namespace tandem
