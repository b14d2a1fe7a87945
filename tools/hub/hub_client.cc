#include "tools/hub/hub_client.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/environment.h"
#include "base/format.h"
#include "base/instant.h"
#include "base/json/json_fields.h"
#include "base/json/json_text.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "engine/hub_cache.h"
#include "proof/remote/http_client.h"
#include "tools/interrupt_flag.h"

namespace tandem {
namespace {

constexpr char kDefaultEndpoint[] = "https://huggingface.co";
constexpr int kMaxAttempts = 5;
constexpr absl::Duration kLongestWait = absl::Minutes(1);
constexpr absl::Duration kSilenceLimit = absl::Seconds(30);
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(50);

// Replaces all bytes but letters, digits and those of `kept` by %XX.
std::string UrlEncoded(absl::string_view text, absl::string_view kept) {
  std::string encoded;
  for (const char c : text) {
    const bool is_kept = absl::ascii_isalnum(c) || absl::StrContains(kept, c);
    is_kept ? encoded.push_back(c)
            : absl::StrAppend(&encoded, Format("%%%02X", static_cast<unsigned char>(c)));
  }
  return encoded;
}

std::string HostOf(absl::string_view url) {
  const size_t scheme = url.find("://");
  if (scheme != url.npos) url.remove_prefix(scheme + 3);
  return std::string(url.substr(0, url.find('/')));
}

absl::StatusOr<HubFile> ReadEntry(const JsonField& field) {
  HubFile file;
  ASSIGN_OR_RETURN(const JsonField name, field.Member("rfilename"));
  ASSIGN_OR_RETURN(file.name, name.String());
  ASSIGN_OR_RETURN(const JsonField size, field.Member("size"));
  ASSIGN_OR_RETURN(file.bytes, size.Integer(0, int64_t{1} << 50));
  // Large files are known by the SHA-256 of their bytes, others by git's SHA-1.
  ASSIGN_OR_RETURN(const JsonField large, field.Member("lfs"));
  const bool is_large = !large.is_null();
  ASSIGN_OR_RETURN(const JsonField hash,
                   is_large ? large.Member("sha256") : field.Member("blobId"));
  ASSIGN_OR_RETURN(file.hash, hash.String());
  const bool is_hash = absl::c_all_of(file.hash, [](char c) { return absl::ascii_isxdigit(c); });
  if (is_hash && file.hash.size() == (is_large ? 64 : 40)) return file;
  return hash.Error(absl::StrCat("must have ", is_large ? 64 : 40, " hexadecimal digits"));
}

absl::StatusOr<HubListing> ReadListing(const std::string& body, const std::string& where) {
  ASSIGN_OR_RETURN(const SortedJson json, ParseJsonObject(body, where));
  const JsonField root(&json, where);
  HubListing listing;
  ASSIGN_OR_RETURN(const JsonField commit, root.Member("sha"));
  ASSIGN_OR_RETURN(listing.commit, commit.String());
  if (!IsCommit(listing.commit)) return commit.Error("must be a commit");
  ASSIGN_OR_RETURN(const JsonField files, root.Member("siblings"));
  RETURN_IF_ERROR(files.CheckArray());
  for (size_t i = 0; i < files.value().size(); ++i) {
    ASSIGN_OR_RETURN(const JsonField file, files.Element(i));
    ASSIGN_OR_RETURN(listing.files.emplace_back(), ReadEntry(file));
  }
  return listing;
}

// Waits, unless Ctrl-C ends it.
void Wait(absl::Duration time) {
  const Instant end = Instant::Now() + time;
  while (!InterruptFlag::is_set() && Instant::Now() < end) {
    absl::SleepFor(std::min(kBetweenLooks, end - Instant::Now()));
  }
}

}  // namespace

HubOptions HubOptions::FromEnvironment() {
  HubOptions options;
  options.endpoint = EnvironmentVariable("HF_ENDPOINT");
  if (options.endpoint.empty()) options.endpoint = kDefaultEndpoint;
  while (absl::EndsWith(options.endpoint, "/")) options.endpoint.pop_back();
  options.token = EnvironmentVariable("HF_TOKEN");
  if (options.token.empty()) {
    std::string path = EnvironmentVariable("HF_TOKEN_PATH");
    const absl::StatusOr<std::string> home = HubHome();
    if (path.empty() && home.ok()) path = absl::StrCat(*home, "/token");
    options.token = ReadFile(path).value_or("");
  }
  absl::StripAsciiWhitespace(&options.token);
  return options;
}

bool IsHubOffline() {
  const std::string value = absl::AsciiStrToLower(EnvironmentVariable("HF_HUB_OFFLINE"));
  return value == "1" || value == "true" || value == "yes" || value == "on";
}

std::string HubClient::Host() const { return HostOf(options_.endpoint); }

std::string HubClient::PathOf(const HubName& name, const std::string& commit,
                              const std::string& file) {
  return absl::StrCat("/", name.repository, "/resolve/", commit, "/", UrlEncoded(file, "-_.~/"));
}

absl::Status HubClient::ErrorOf(const HubName& name, const HttpAnswer& answer) const {
  const std::string code = answer.Header("x-error-code");
  const auto error = [&](absl::StatusCode kind, const auto&... why) {
    return absl::Status(kind, absl::StrCat(name.repository, ": ", why...));
  };
  std::string text = absl::StrCat(HostOf(answer.url), ": ", answer.ErrorText());
  if (answer.retry_after() > absl::ZeroDuration()) {
    absl::StrAppend(&text, "; try again in ", absl::FormatDuration(answer.retry_after()));
  }
  // The hub sends to other servers with links that expire.
  const bool is_elsewhere = !absl::StartsWith(answer.url, options_.endpoint + "/");
  if (answer.status == 429 || answer.status == 408 || answer.status >= 500 || is_elsewhere) {
    return error(absl::StatusCode::kUnavailable, text);
  }
  if (code == "RevisionNotFound") {
    return error(absl::StatusCode::kNotFound, "has no revision \"", name.revision, "\"");
  }
  if (absl::StrContains(answer.Header("x-error-message"), "Invalid credentials")) {
    return absl::PermissionDeniedError(absl::StrCat("HF_TOKEN: ", Host(), " does not know it"));
  }
  if (code == "GatedRepo" || answer.status == 403) {
    return error(absl::StatusCode::kPermissionDenied, "its licence must be accepted at ",
                 options_.endpoint, "/", name.repository,
                 options_.token.empty() ? ", and HF_TOKEN set to a token of that account"
                                        : " by the account of HF_TOKEN");
  }
  if (answer.status == 401 || answer.status == 404) {
    return error(absl::StatusCode::kNotFound, "there is no such file or folder, and ", Host(),
                 " has no such repository, or it is private",
                 options_.token.empty() ? " (set HF_TOKEN)" : " to others than you");
  }
  return error(absl::StatusCode::kInternal, text);
}

HubReply HubClient::Get(const HubName& name, OutgoingRequest request,
                        HttpTransfer* transfer) const {
  request.url = absl::StrCat(options_.endpoint, request.url);
  request.headers.push_back("User-Agent: tandem/" TANDEM_VERSION);
  if (!options_.token.empty()) {
    request.headers.push_back(absl::StrCat("Authorization: Bearer ", options_.token));
  }
  request.follows_redirects = true;
  request.silence_limit = kSilenceLimit;
  const auto others = std::move(request.is_cancelled);
  request.is_cancelled = [&] { return InterruptFlag::is_set() || (others && others()); };
  HubReply reply;
  absl::StatusOr<HttpAnswer> answer = transfer->Run(request);
  if (answer.ok()) {
    reply.answer = *std::move(answer);
    if (reply.answer.status >= 300) reply.status = ErrorOf(name, reply.answer);
  } else {
    reply.status = InterruptFlag::is_set() ? Interrupted() : answer.status();
  }
  return reply;
}

absl::Status HubClient::WithRetries(absl::FunctionRef<HubReply()> attempt) const {
  absl::Duration wait = options_.first_wait;
  for (int failures = 1;; ++failures) {
    const HubReply reply = attempt();
    if (reply.has_progressed) {
      failures = 1;
      wait = options_.first_wait;
    }
    const absl::Duration asked = reply.answer.retry_after();
    const bool is_last = failures == kMaxAttempts || asked > kLongestWait;
    if (!absl::IsUnavailable(reply.status) || is_last) return reply.status;
    Wait(std::max(wait, asked));
    if (InterruptFlag::is_set()) return Interrupted();
    wait *= 2;
  }
}

absl::StatusOr<HubListing> HubClient::List(const HubName& name) const {
  RETURN_IF_ERROR(HttpUrl::Parse(options_.endpoint, "HF_ENDPOINT").status());
  HttpTransfer transfer;
  std::string body;
  const OutgoingRequest request = {
      .url = absl::StrCat("/api/models/", name.repository, "/revision/",
                          UrlEncoded(name.revision, "-_.~"), "?blobs=true")};
  RETURN_IF_ERROR(WithRetries([&] {
    HubReply reply = Get(name, request, &transfer);
    // Without a network every attempt would end so.
    if (reply.answer.status == 0 && absl::IsUnavailable(reply.status)) {
      reply.status = absl::FailedPreconditionError(absl::StrCat(
          name.Text(),
          ": is not here, and the hub cannot be asked for it: ", reply.status.message()));
    }
    body = std::move(reply.answer.body);
    return reply;
  }));
  return ReadListing(body, absl::StrCat(Host(), ": files of ", name.repository));
}

}  // namespace tandem
