#include "proof/remote/http_client.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/http/http_server_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proof/remote/remote_engine.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

HttpClient ClientOf(const std::string& url, HttpClient::Options options = {}) {
  options.url = HttpUrl::Parse(url, "url").value();
  return HttpClient(options);
}

TEST(HttpUrl, HasItsParts) {
  const HttpUrl plain = HttpUrl::Parse("http://a.example/", "--plain").value();
  EXPECT_FALSE(plain.is_secure);
  EXPECT_EQ(plain.Authority(), "a.example:80");
  EXPECT_EQ(plain.path, "");
  const HttpUrl secure = HttpUrl::Parse("https://[::1]:8443/x/v3", "--plain").value();
  EXPECT_TRUE(secure.is_secure);
  EXPECT_EQ(secure.Authority(), "[::1]:8443");
  EXPECT_EQ(secure.path, "/x/v3");
  EXPECT_EQ(HttpUrl::Parse("https://[::1]", "--plain")->port, 443);
  for (const char* wrong : {"a:8000", "ftp://a", "http://", "http://a:b", "http://a:99999"}) {
    EXPECT_THAT(HttpUrl::Parse(wrong, "--plain").status().message(), HasSubstr("--plain"));
  }
}

TEST(HttpClient, SendsTheBodyAndTheKeyOverOneConnection) {
  TestHttpServer server([](const TestRequest& request, TestResponse* response) {
    response->body() =
        absl::StrCat(std::string(request.method_string()), " ", std::string(request.target()), " ",
                     std::string(request["Authorization"]), " ", request.body());
  });
  HttpClient client = ClientOf(server.Url(), {.api_key = "key"});
  EXPECT_EQ(client.Send("POST", "/a", "{}").value(), "POST /a Bearer key {}");
  EXPECT_EQ(client.Send("GET", "/b", "").value(), "GET /b Bearer key ");
  EXPECT_EQ(server.num_connections(), 1);
}

TEST(HttpClient, UsesAConnectionPerRequestAtTheSameTime) {
  std::atomic<int> num_there = 0;
  absl::Notification all_there;
  TestHttpServer server([&](const TestRequest&, TestResponse* response) {
    if (++num_there == 3) all_there.Notify();
    all_there.WaitForNotification();
    response->body() = "x";
  });
  HttpClient client = ClientOf(server.Url());
  ForAll(3, 3, [&](size_t) { EXPECT_EQ(client.Send("GET", "/", "").value(), "x"); });
  EXPECT_EQ(server.num_connections(), 3);
}

TEST(HttpClient, OpensAnotherConnectionIfTheServerHasClosedOne) {
  TestHttpServer server([](const TestRequest&, TestResponse* response) {
    response->body() = "x";
    response->set("X-Close", "yes");
  });
  HttpClient client = ClientOf(server.Url());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.Send("GET", "/", "").value(), "x");
  EXPECT_EQ(server.num_connections(), 3);
}

TEST(HttpClient, ErrorsNameTheUrlAndTheStatus) {
  std::atomic<int> status = 400;
  std::string body = R"({"error": {"message": "top_k: is too large"}})";
  TestHttpServer server([&](const TestRequest&, TestResponse* response) {
    response->result(status);
    response->body() = body;
  });
  HttpClient client = ClientOf(server.Url(), {.patience = absl::ZeroDuration()});
  const auto sent = [&] { return client.Send("POST", "/v1/x", "{}").status(); };
  EXPECT_EQ(sent(), absl::InvalidArgumentError(
                        absl::StrCat(server.Url(), "/v1/x: 400 Bad Request: top_k: is too large")));
  body = R"({"detail": [1]})";
  status = 500;
  EXPECT_TRUE(absl::IsInternal(sent()));
  EXPECT_THAT(sent().message(), HasSubstr("500 Internal Server Error: [1]"));
  body = "plain text";
  status = 401;
  EXPECT_TRUE(absl::IsPermissionDenied(sent()));
  EXPECT_THAT(sent().message(), HasSubstr("401 Unauthorized: plain text"));
}

TEST(HttpClient, WaitsForABusyServer) {
  std::atomic<int> num_requests = 0;
  TestHttpServer server([&](const TestRequest&, TestResponse* response) {
    response->set(http::field::retry_after, "0");
    response->result(++num_requests < 3 ? 429 : 200);
  });
  HttpClient client = ClientOf(server.Url());
  EXPECT_TRUE(client.Send("POST", "/", "{}").ok());
  EXPECT_EQ(num_requests, 3);
  HttpClient impatient = ClientOf(server.Url(), {.patience = absl::ZeroDuration()});
  num_requests = 0;
  const absl::Status busy = impatient.Send("POST", "/", "{}").status();
  EXPECT_TRUE(absl::IsUnavailable(busy));
  EXPECT_THAT(busy.message(), HasSubstr("429"));
}

TEST(HttpClient, TellsWhichServerDoesNotAnswer) {
  absl::Notification end;
  std::string url;
  {
    TestHttpServer server([&](const TestRequest&, TestResponse*) { end.WaitForNotification(); });
    url = server.Url();
    HttpClient client = ClientOf(url, {.time_limit = absl::Milliseconds(50)});
    const absl::Status late = client.Send("GET", "/x", "").status();
    EXPECT_TRUE(absl::IsUnavailable(late));
    EXPECT_THAT(late.message(), AllOf(HasSubstr(url + "/x"), HasSubstr("within 50ms")));
    end.Notify();
  }
  const absl::Status gone = ClientOf(url).Send("GET", "/x", "").status();
  EXPECT_TRUE(absl::IsUnavailable(gone));
  EXPECT_THAT(gone.message(), AllOf(HasSubstr(url + "/x"), HasSubstr("refused")));
}

// A key and a certificate for 127.0.0.1 that certifies itself, as one PEM file.
void WriteCertificate(const std::string& path) {
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  X509_EXTENSION* const address =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
  X509_add_ext(certificate.get(), address, -1);
  X509_EXTENSION_free(address);
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  std::FILE* const file = std::fopen(path.c_str(), "w");
  PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  PEM_write_X509(file, certificate.get());
  std::fclose(file);
}

TEST(HttpClient, SpeaksTlsWithServersThatItTrusts) {
  const TestFolder folder;
  const std::string path = folder.path() + "/server.pem";
  WriteCertificate(path);
  net::ssl::context tls(net::ssl::context::tls_server);
  tls.use_private_key_file(path, net::ssl::context::pem);
  tls.use_certificate_chain_file(path);
  TestHttpServer server(
      [](const TestRequest&, TestResponse* response) { response->body() = "secret"; }, &tls);
  const std::string url = server.Url("https");
  const absl::Status stranger = ClientOf(url).Send("GET", "/x", "").status();
  EXPECT_TRUE(absl::IsUnavailable(stranger));
  EXPECT_THAT(stranger.message(), AllOf(HasSubstr(url), HasSubstr("certificate problem")));
  setenv("SSL_CERT_FILE", path.c_str(), 1);
  HttpClient client = ClientOf(url);
  EXPECT_EQ(client.Send("GET", "/x", "").value(), "secret");
  EXPECT_EQ(client.Send("GET", "/x", "").value(), "secret");
  EXPECT_EQ(server.num_connections(), 2);
  // The certificate does not name this host.
  const std::string other = absl::StrCat("https://localhost", url.substr(url.rfind(':')));
  EXPECT_THAT(ClientOf(other).Send("GET", "/x", "").status().message(), HasSubstr("certificate"));
  unsetenv("SSL_CERT_FILE");
}

}  // namespace
}  // namespace tandem
