// A hub on this machine, with one repository, and the server to which it sends for large files.
#ifndef TANDEM_TOOLS_HUB_STAND_IN_HUB_TESTING_H_
#define TANDEM_TOOLS_HUB_STAND_IN_HUB_TESTING_H_

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/http/http_server_testing.h"
#include "tandem/json_value.h"

namespace tandem {

class StandInHub {
 public:
  static constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";
  // Answers a request in place of the hub, and returns true, or leaves it to the hub.
  using Fault = std::function<bool(const TestRequest& request, TestResponse* response)>;

  // `files`: of the repository Org/Model; those of 100 bytes and more are large.
  explicit StandInHub(std::map<std::string, std::string> files)
      : files_(std::move(files)),
        store_([this](const auto& request, auto* response) { Serve("store", request, response); }),
        hub_([this](const auto& request, auto* response) { Serve("hub", request, response); }) {}

  std::string Url() const { return hub_.Url(); }
  const std::string& Contents(const std::string& name) const { return files_.at(name); }

  // What requests asked for since the last call: "hub /api/... key", with the value of
  // Authorization, and for a range "store /x bytes=0-5".
  std::vector<std::string> TakeRequests() {
    const absl::MutexLock lock(&mutex_);
    return std::exchange(requests_, {});
  }
  void SetFault(Fault fault) {
    const absl::MutexLock lock(&mutex_);
    fault_ = std::move(fault);
  }
  void SetContents(const std::string& name, std::string contents) {
    files_[name] = std::move(contents);
  }

  static std::string HashOf(const std::string& contents) {
    const bool is_large = contents.size() >= kLarge;
    const std::string all =
        is_large ? contents
                 : absl::StrCat("blob ", contents.size(), std::string(1, '\0'), contents);
    std::array<char, EVP_MAX_MD_SIZE> digest;
    unsigned size = 0;
    EVP_Digest(all.data(), all.size(), reinterpret_cast<unsigned char*>(digest.data()), &size,
               is_large ? EVP_sha256() : EVP_sha1(), nullptr);
    return absl::BytesToHexString({digest.data(), size});
  }

 private:
  static constexpr size_t kLarge = 100;

  void Serve(const char* server, const TestRequest& request, TestResponse* response) {
    const std::string target(request.target());
    {
      const absl::MutexLock lock(&mutex_);
      std::string line = absl::StrCat(server, " ", target);
      for (const http::field field : {http::field::range, http::field::authorization}) {
        if (request.count(field) > 0) absl::StrAppend(&line, " ", std::string(request[field]));
      }
      requests_.push_back(std::move(line));
      if (fault_ && fault_(request, response)) return;
    }
    const std::string resolve = absl::StrCat("/Org/Model/resolve/", kCommit, "/");
    if (target == "/api/models/Org/Model/revision/main?blobs=true") {
      response->body() = Listing().dump();
    } else if (server == std::string("store")) {
      SendRange(request, files_.at(target.substr(1)), response);
    } else if (const auto file = absl::StartsWith(target, resolve)
                                     ? files_.find(target.substr(resolve.size()))
                                     : files_.end();
               file == files_.end()) {
      response->result(http::status::not_found);
      response->set("X-Error-Code", absl::StrContains(target, "/revision/") &&
                                            absl::StrContains(target, "Org/Model")
                                        ? "RevisionNotFound"
                                        : "RepoNotFound");
    } else if (file->second.size() < kLarge) {
      response->body() = file->second;
    } else {
      response->result(http::status::found);
      response->set(http::field::location, absl::StrCat(store_.Url(), "/", file->first));
    }
  }

  JsonValue Listing() const {
    JsonValue files = JsonValue::array();
    for (const auto& [name, contents] : files_) {
      JsonValue file = {{"rfilename", name}, {"size", contents.size()}, {"blobId", HashOf("")}};
      if (contents.size() >= kLarge) {
        file["lfs"] = {{"sha256", HashOf(contents)}, {"size", contents.size()}};
      } else {
        file["blobId"] = HashOf(contents);
      }
      files.push_back(std::move(file));
    }
    return {{"id", "Org/Model"}, {"sha", kCommit}, {"gated", false}, {"siblings", files}};
  }

  static void SendRange(const TestRequest& request, const std::string& contents,
                        TestResponse* response) {
    size_t first = 0;
    size_t last = 0;
    if (std::sscanf(std::string(request["Range"]).c_str(), "bytes=%zu-%zu", &first, &last) != 2) {
      response->body() = contents;
      return;
    }
    response->result(first < contents.size() ? http::status::partial_content
                                             : http::status::range_not_satisfiable);
    if (first < contents.size()) response->body() = contents.substr(first, last - first + 1);
  }

  std::map<std::string, std::string> files_;
  absl::Mutex mutex_;
  std::vector<std::string> requests_ ABSL_GUARDED_BY(mutex_);
  Fault fault_ ABSL_GUARDED_BY(mutex_);
  TestHttpServer store_;
  TestHttpServer hub_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_HUB_STAND_IN_HUB_TESTING_H_
