#include "tools/hub/hub_fetch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/model_places.h"
#include "tests/folder_testing.h"
#include "tools/command.h"
#include "tools/hub/stand_in_hub_testing.h"
#include "tools/interrupt_flag.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// 1,000 bytes that differ from place to place.
std::string LargeContents() {
  std::string contents;
  while (contents.size() < 1000) absl::StrAppend(&contents, contents.size(), " ");
  return contents.substr(0, 1000);
}

class HubFetch : public FolderTest {
 protected:
  HubFetch() { setenv("HF_HUB_CACHE", Path("hub").c_str(), 1); }
  ~HubFetch() override { unsetenv("HF_HUB_CACHE"); }

  // A client without long waits, for which files of 400 bytes are large.
  HubOptions Options() const {
    return {.endpoint = hub_.Url(),
            .token = token_,
            .first_wait = absl::Milliseconds(1),
            .max_single_bytes = 400};
  }
  absl::StatusOr<std::string> Fetch(const std::string& name) const {
    return FetchFromHub(HubClient(Options()), *HubName::Parse(name));
  }
  std::string Refusal(absl::StatusCode code, const std::string& name = "Org/Model:Q8_0") const {
    const absl::Status status = Fetch(name).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_FALSE(ModelNamed(name).ok());
    return absl::StrReplaceAll(status.message(),
                               {{hub_.Url(), "URL"}, {hub_.Url().substr(7), "HOST"}});
  }
  // Answers every request of `server` with this status.
  void FailWith(int status, const std::string& code = "", const std::string& body = "") {
    hub_.SetFault([=](const TestRequest&, TestResponse* response) {
      response->result(status);
      if (!code.empty()) response->set("X-Error-Code", code);
      response->body() = body;
      return true;
    });
  }
  std::string Blob(const std::string& name) const {
    return Path(
        absl::StrCat("hub/models--Org--Model/blobs/", StandInHub::HashOf(hub_.Contents(name))));
  }
  std::string Partial() const { return Blob("x-Q8_0.gguf") + ".tandem.incomplete"; }

  std::string token_;
  StandInHub hub_{{{"x-Q8_0.gguf", LargeContents()},
                   {"x-Q4_0.gguf", LargeContents().substr(0, 300)},
                   {"README.md", "Read me."}}};
};

TEST_F(HubFetch, BringsAFileInPartsWhereEverythingFindsIt) {
  token_ = "hf_secret";
  const absl::StatusOr<std::string> path = Fetch("Org/Model:q8_0");
  ASSERT_TRUE(path.ok()) << path.status();
  const std::string folder = Path("hub/models--Org--Model");
  EXPECT_EQ(*path, absl::StrCat(folder, "/snapshots/", StandInHub::kCommit, "/x-Q8_0.gguf"));
  EXPECT_EQ(fs::read_symlink(*path), "../../blobs/" + StandInHub::HashOf(LargeContents()));
  EXPECT_EQ(*ReadFile(*path), LargeContents());
  EXPECT_EQ(*ReadFile(folder + "/refs/main"), StandInHub::kCommit);
  EXPECT_EQ(*ModelNamed("Org/Model"), *path);
  EXPECT_FALSE(fs::exists(Partial()));
  // The token stays at the hub.
  const std::vector<std::string> requests = hub_.TakeRequests();
  EXPECT_THAT(requests, SizeIs(9));
  EXPECT_EQ(requests[0], "hub /api/models/Org/Model/revision/main?blobs=true Bearer hf_secret");
  const std::string resolve =
      absl::StrCat("hub /Org/Model/resolve/", StandInHub::kCommit, "/x-Q8_0.gguf bytes=");
  for (const std::string range : {"0-249", "250-499", "500-749", "750-999"}) {
    EXPECT_THAT(requests, Contains(absl::StrCat(resolve, range, " Bearer hf_secret")));
    EXPECT_THAT(requests, Contains(absl::StrCat("store /x-Q8_0.gguf bytes=", range)));
  }
  // A second time only the list is asked for.
  EXPECT_EQ(*Fetch("Org/Model:Q8_0"), *path);
  EXPECT_THAT(hub_.TakeRequests(), SizeIs(1));
}

TEST_F(HubFetch, BringsAFolderWithItsSmallFiles) {
  hub_.SetContents("config.json", "{}");
  hub_.SetContents("tokenizer.json", "{\"a\": 1}");
  hub_.SetContents("model.safetensors", LargeContents());
  const absl::StatusOr<std::string> path = Fetch("Org/Model");
  ASSERT_TRUE(path.ok()) << path.status();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(*path)) names.push_back(entry.path().filename());
  EXPECT_THAT(names, UnorderedElementsAre("config.json", "tokenizer.json", "model.safetensors"));
  EXPECT_EQ(*ReadFile(*path + "/tokenizer.json"), "{\"a\": 1}");
  EXPECT_EQ(*ModelNamed("Org/Model"), *path);
  // A newer file replaces the older one under the same commit.
  hub_.SetContents("tokenizer.json", "{\"a\": 2}");
  ASSERT_TRUE(Fetch("Org/Model").ok());
  EXPECT_EQ(*ReadFile(*path + "/tokenizer.json"), "{\"a\": 2}");
}

TEST_F(HubFetch, PlansWithoutBringingAnything) {
  const HubClient client(Options());
  EXPECT_THAT(*FetchPlan(client, *HubName::Parse("Org/Model:Q8_0")),
              AllOf(HasSubstr("x-Q8_0.gguf"), HasSubstr("1.00 kB"), HasSubstr("no\n")));
  EXPECT_FALSE(fs::exists(Path("hub")));
  ASSERT_TRUE(Fetch("Org/Model:Q8_0").ok());
  EXPECT_THAT(*FetchPlan(client, *HubName::Parse("Org/Model:Q8_0")), HasSubstr("yes\n"));
}

TEST_F(HubFetch, BringsAConfigurationAlone) {
  hub_.SetContents("config.json", "{}");
  hub_.SetContents("model.safetensors", LargeContents());
  const HubClient client(Options());
  const absl::StatusOr<std::string> folder = FetchConfig(client, *HubName::Parse("Org/Model"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(*folder)) {
    names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names, ElementsAre("config.json"));
  // The model is not here yet.
  EXPECT_EQ(ModelNamed("Org/Model").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(*Fetch("Org/Model"), *folder);
  EXPECT_EQ(*ModelNamed("Org/Model"), *folder);
  const absl::Status gguf = FetchConfig(client, *HubName::Parse("Org/Model:Q8_0")).status();
  EXPECT_EQ(gguf.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(gguf.message()), AllOf(HasSubstr("in a GGUF file of 1.00 kB"),
                                                 HasSubstr("run `tandem fetch Org/Model:Q8_0`")));
}

// ---- Failures that pass ----

TEST_F(HubFetch, GoesOnAfterCutConnections) {
  std::atomic<int> num_cut = 0;
  hub_.SetFault([&](const TestRequest& request, TestResponse* response) {
    const bool is_store = request.target() == "/x-Q8_0.gguf";
    if (!is_store || num_cut >= 12) return false;
    size_t first = 0;
    std::sscanf(std::string(request["Range"]).c_str(), "bytes=%zu-", &first);
    response->result(http::status::partial_content);
    response->body() = LargeContents().substr(first, 10);
    response->set("X-Cut", "yes");
    ++num_cut;
    return true;
  });
  ASSERT_TRUE(Fetch("Org/Model:Q8_0").ok());
  EXPECT_EQ(num_cut, 12);
}

TEST_F(HubFetch, ResumesWhatAnInterruptedFetchHasLeft) {
  hub_.SetFault([&](const TestRequest& request, TestResponse* response) {
    if (!absl::StartsWith(std::string(request.target()), "/x-Q8_0")) return false;
    const bool is_second = request["Range"] == "bytes=250-499";
    if (is_second) return false;
    response->result(503);
    return true;
  });
  EXPECT_THAT(Refusal(absl::StatusCode::kUnavailable), HasSubstr("503 Service Unavailable"));
  EXPECT_TRUE(fs::exists(Partial()));
  hub_.SetFault(nullptr);
  hub_.TakeRequests();
  ASSERT_TRUE(Fetch("Org/Model:Q8_0").ok());
  EXPECT_THAT(hub_.TakeRequests(), Not(Contains(HasSubstr("bytes=250-499"))));
}

TEST_F(HubFetch, BeginsAgainIfWhatIsLeftIsOfNoUse) {
  Write(absl::StrReplaceAll(Partial(), {{path() + "/", ""}}), std::string(1040, 'x'));
  ASSERT_TRUE(Fetch("Org/Model:Q8_0").ok());
}

TEST_F(HubFetch, BringsTheWholeFileFromAServerWithoutRanges) {
  std::atomic<int> num_cut = 0;
  hub_.SetFault([&](const TestRequest& request, TestResponse* response) {
    if (request.target() != "/x-Q8_0.gguf") return false;
    response->body() = LargeContents();
    if (request.count("Range") == 0 && ++num_cut == 1) {
      response->body().resize(500);
      response->set("X-Cut", "yes");
    }
    return true;
  });
  ASSERT_TRUE(Fetch("Org/Model:Q8_0").ok());
  EXPECT_EQ(num_cut, 2);
}

TEST_F(HubFetch, WaitsAsLongAsItIsAsked) {
  std::atomic<int> num_asked = 0;
  hub_.SetFault([&](const TestRequest&, TestResponse* response) {
    if (++num_asked >= 3) return false;
    response->result(429);
    response->set(http::field::retry_after, "0");
    return true;
  });
  ASSERT_TRUE(Fetch("Org/Model:Q8_0").ok());
  hub_.SetFault([&](const TestRequest&, TestResponse* response) {
    response->result(429);
    response->set(http::field::retry_after, "3000");
    response->body() = R"({"error": "You are too fast"})";
    return true;
  });
  EXPECT_EQ(Refusal(absl::StatusCode::kUnavailable, "Org/Model:Q4_0"),
            "Org/Model: HOST: 429 Too Many Requests: You are too fast; try again in 50m");
}

// Links that the hub gives expire; a new one comes with the next attempt.
TEST_F(HubFetch, AsksForANewLinkIfTheOldOneIsRefused) {
  std::atomic<int> num_refused = 0;
  hub_.SetFault([&](const TestRequest& request, TestResponse* response) {
    if (request.target() != "/x-Q4_0.gguf" || ++num_refused >= 3) return false;
    response->result(403);
    return true;
  });
  ASSERT_TRUE(Fetch("Org/Model:Q4_0").ok());
}

TEST_F(HubFetch, WaitsForAnotherProcessWithTheSameFile) {
  const std::string lock = Write(
      absl::StrCat("hub/.locks/models--Org--Model/", StandInHub::HashOf(LargeContents()), ".lock"),
      "");
  const int descriptor = open(lock.c_str(), O_RDWR);
  ASSERT_EQ(flock(descriptor, LOCK_EX), 0);
  std::atomic<bool> is_done = false;
  std::thread other([&] {
    EXPECT_TRUE(Fetch("Org/Model:Q8_0").ok());
    is_done = true;
  });
  while (hub_.TakeRequests().empty()) std::this_thread::yield();
  EXPECT_FALSE(is_done);
  const std::string blob = absl::StrReplaceAll(Blob("x-Q8_0.gguf"), {{path() + "/", ""}});
  Write(blob, LargeContents());  // the other process has brought it
  close(descriptor);
  other.join();
  EXPECT_THAT(hub_.TakeRequests(), IsEmpty());
}

// ---- Failures that stay ----

TEST_F(HubFetch, SaysWhichModelIsMissingOrClosed) {
  EXPECT_EQ(Refusal(absl::StatusCode::kNotFound, "Org/Nothing"),
            "Org/Nothing: there is no such file or folder, and HOST has no such repository, or it "
            "is private (set HF_TOKEN)");
  EXPECT_EQ(Refusal(absl::StatusCode::kNotFound, "Org/Model@v9"),
            "Org/Model: has no revision \"v9\"");
  EXPECT_THAT(Refusal(absl::StatusCode::kNotFound, "Org/Model:Q5_0"),
              HasSubstr("\"Q5_0\" is in the name of no GGUF file, found: Q4_0 ("));
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument, "Org/Model"),
              HasSubstr("has several GGUF files"));
  FailWith(401);
  EXPECT_THAT(Refusal(absl::StatusCode::kNotFound), HasSubstr("(set HF_TOKEN)"));
  FailWith(403, "GatedRepo");
  EXPECT_EQ(Refusal(absl::StatusCode::kPermissionDenied),
            "Org/Model: its licence must be accepted at URL/Org/Model, and HF_TOKEN set to a token "
            "of that account");
  token_ = "hf_secret";
  EXPECT_EQ(Refusal(absl::StatusCode::kPermissionDenied),
            "Org/Model: its licence must be accepted at URL/Org/Model by the account of HF_TOKEN");
  FailWith(404, "RepoNotFound");
  EXPECT_THAT(Refusal(absl::StatusCode::kNotFound), HasSubstr("or it is private to others"));
  hub_.SetFault([](const TestRequest&, TestResponse* response) {
    response->result(401);
    response->set("X-Error-Message", "Invalid credentials in Authorization header");
    return true;
  });
  EXPECT_EQ(Refusal(absl::StatusCode::kPermissionDenied), "HF_TOKEN: HOST does not know it");
}

TEST_F(HubFetch, SaysWhatTheHubAnswered) {
  FailWith(500, "", R"({"error": "out of order"})");
  EXPECT_EQ(Refusal(absl::StatusCode::kUnavailable),
            "Org/Model: HOST: 500 Internal Server Error: out of order");
  EXPECT_THAT(hub_.TakeRequests(), SizeIs(5));
  FailWith(418, "", "tea");
  EXPECT_THAT(Refusal(absl::StatusCode::kInternal), HasSubstr("418"));
  EXPECT_THAT(hub_.TakeRequests(), SizeIs(1));
  FailWith(200, "", "<html>");
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument), HasSubstr("HOST: files of Org/Model"));
  for (const auto& [old, replaced, field] : std::vector<std::array<std::string, 3>>{
           {StandInHub::kCommit, "main", "sha: "},
           {"\"size\":1000", "\"size\":-1", "size: "},
           {StandInHub::HashOf(LargeContents()), "../x", "sha256: "},
           {"x-Q8_0.gguf", "../x-Q8_0.gguf", "\"../x"}}) {
    hub_.SetFault(nullptr);
    HttpTransfer transfer;
    const std::string listing =
        transfer.Run({.url = hub_.Url() + "/api/models/Org/Model/revision/main?blobs=true"})->body;
    FailWith(200, "", absl::StrReplaceAll(listing, {{old, replaced}}));
    EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument), HasSubstr(field));
  }
}

TEST_F(HubFetch, RefusesAnotherFileThanTheListNames) {
  const auto send = [&](const std::string& contents) {
    hub_.SetFault([=](const TestRequest& request, TestResponse* response) {
      response->body() = contents;
      return request.target() == "/x-Q4_0.gguf";
    });
  };
  std::string wrong = hub_.Contents("x-Q4_0.gguf");
  wrong[7] ^= 1;
  send(wrong);
  EXPECT_EQ(Refusal(absl::StatusCode::kDataLoss, "Org/Model:Q4_0"),
            absl::StrCat("Org/Model: x-Q4_0.gguf: hash: found ", StandInHub::HashOf(wrong),
                         ", allowed: ", StandInHub::HashOf(hub_.Contents("x-Q4_0.gguf"))));
  EXPECT_TRUE(fs::is_empty(Path("hub/models--Org--Model/blobs")));  // it would be as wrong again
  send(hub_.Contents("x-Q4_0.gguf") + "more");
  EXPECT_EQ(Refusal(absl::StatusCode::kDataLoss, "Org/Model:Q4_0"),
            "Org/Model: x-Q4_0.gguf: it has another size than 300 bytes, which HOST names");
  hub_.SetFault(nullptr);
  ASSERT_TRUE(Fetch("Org/Model:Q4_0").ok());
  // A smaller one: its rest is not there.
  hub_.SetFault([](const TestRequest& request, TestResponse* response) {
    if (request.target() != "/x-Q8_0.gguf") return false;
    response->result(416);
    return true;
  });
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr("another size"));
}

TEST_F(HubFetch, SaysThatTheHubCannotBeReached) {
  HubOptions options = Options();
  options.first_wait = absl::InfiniteDuration();  // a second attempt would never end
  options.endpoint = "http://127.0.0.1:1";
  absl::Status status = HubClient(options).List(*HubName::Parse("Org/Model")).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("Org/Model: is not here, and the hub cannot be asked for it"),
                    HasSubstr("refused")));
  options.endpoint = "http://no-such-host.invalid";
  status = HubClient(options).List(*HubName::Parse("Org/Model")).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("resolve"));
  options.endpoint = "mirror.example";
  status = HubClient(options).List(*HubName::Parse("Org/Model")).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("HF_ENDPOINT: found \"mirror.example\""));
}

TEST_F(HubFetch, NeedsADiskThatHoldsTheFile) {
  HttpTransfer transfer;
  const std::string listing =
      transfer.Run({.url = hub_.Url() + "/api/models/Org/Model/revision/main?blobs=true"})->body;
  FailWith(200, "", absl::StrReplaceAll(listing, {{"\"size\":1000", "\"size\":1000000000000000"}}));
  EXPECT_THAT(Refusal(absl::StatusCode::kResourceExhausted),
              AllOf(HasSubstr("bytes free"), HasSubstr("1000000000000000 are needed")));
  hub_.SetFault(nullptr);
  setenv("HF_HUB_CACHE", Write("file", "no folder").c_str(), 1);
  EXPECT_THAT(Refusal(absl::StatusCode::kFailedPrecondition), HasSubstr(Path("file")));
}

TEST_F(HubFetch, CtrlCLeavesWhatCanBeResumed) {
  std::atomic<bool> was_raised = false;
  hub_.SetFault([&](const TestRequest& request, TestResponse* response) {
    if (request.target() != "/x-Q8_0.gguf") return false;
    if (request["Range"] == "bytes=0-249") {
      response->result(http::status::partial_content);
      response->body() = LargeContents().substr(0, 100);
      response->set("X-Cut", "yes");
      return true;
    }
    response->result(503);
    if (!was_raised.exchange(true)) std::raise(SIGINT);  // a second one would end the test
    return true;
  });
  const absl::Status status = Fetch("Org/Model:Q8_0").status();
  EXPECT_TRUE(IsInterrupted(status)) << status;
  EXPECT_TRUE(fs::exists(Partial()));
  hub_.SetFault(nullptr);
  ASSERT_TRUE(Fetch("Org/Model:Q8_0").ok());
}

// ---- Names ----

TEST_F(HubFetch, ModelsThatAreMissingAreFetchedByName) {
  setenv("HF_ENDPOINT", (hub_.Url() + "/").c_str(), 1);
  setenv("HF_HUB_OFFLINE", "1", 1);
  EXPECT_THAT(std::string(BringModel("Org/Model:Q4_0").status().message()),
              HasSubstr("run `tandem fetch Org/Model:Q4_0`"));
  EXPECT_THAT(hub_.TakeRequests(), IsEmpty());
  unsetenv("HF_HUB_OFFLINE");
  const absl::StatusOr<std::string> path = BringModel("Org/Model:Q4_0");
  ASSERT_TRUE(path.ok()) << path.status();
  hub_.TakeRequests();
  EXPECT_EQ(*BringModel("Org/Model:Q4_0"), *path);
  EXPECT_EQ(*BringModel(*path), *path);
  EXPECT_THAT(hub_.TakeRequests(), IsEmpty());
  const absl::Status missing = BringModel("Org/Nothing").status();
  EXPECT_EQ(ExitStatusOf(missing, 7), 1);
  EXPECT_EQ(ExitStatusOf(BringModel("nothing").status(), 7), 7);
  unsetenv("HF_ENDPOINT");
}

TEST_F(HubFetch, TheEnvironmentNamesTheHubAndTheAccount) {
  EXPECT_EQ(HubOptions::FromEnvironment().endpoint, "https://huggingface.co");
  setenv("HF_HOME", path().c_str(), 1);
  EXPECT_EQ(HubOptions::FromEnvironment().token, "");
  Write("token", "hf_of_login\n");
  EXPECT_EQ(HubOptions::FromEnvironment().token, "hf_of_login");
  setenv("HF_TOKEN_PATH", Write("other", "hf_of_path").c_str(), 1);
  EXPECT_EQ(HubOptions::FromEnvironment().token, "hf_of_path");
  setenv("HF_TOKEN", " hf_given ", 1);
  EXPECT_EQ(HubOptions::FromEnvironment().token, "hf_given");
  for (const char* name : {"HF_HOME", "HF_TOKEN_PATH", "HF_TOKEN"}) unsetenv(name);
}

}  // namespace
}  // namespace tandem
