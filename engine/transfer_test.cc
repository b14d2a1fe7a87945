// Engines that read prompts for other engines, which write the answers.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/instant.h"
#include "base/string_view.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden_file.h"
#include "tests/store_world.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

EngineOptions WorkerOptions(const GoldenPair& pair) {
  EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
  options.page_size = 4;
  options.kv_transfer = "127.0.0.1:0";
  options.kv_transfer_secret = kTransferSecret;
  return options;
}

void ExpectSame(const Completion& got, const Completion& want) {
  ExpectSameOutput(got, want);
  ExpectSameCounts(got.stats, want.stats);
}

// Row 187 of the bug catalogue: the pages of both models are transferred, so text,
// log-probabilities and acceptance equal those of one worker, and of plain decoding.
TEST(EngineTransfer, EqualsOneWorker) {
  const FakeClock clock;
  for (const KvCacheType kv_cache : kCacheTypes) {
    for (const std::string name : {"shallow", "perturbed", "parallel/qwen2-parallel"}) {
      const GoldenPair pair(name);
      EngineOptions options = WorkerOptions(pair);
      options.kv_cache = kv_cache;
      for (const int page_size : {4, 16}) {
        options.page_size = page_size;
        const auto reference = MakeEngine(options);
        const auto prefill = MakeEngine(options);
        const auto decode = MakeEngine(options);
        int num_pages = 0;
        for (const int length : {1, page_size - 1, page_size, page_size + 1, 3 * page_size - 1,
                                 3 * page_size, 3 * page_size + 1}) {
          for (const bool is_seeded : {false, true}) {
            SCOPED_TRACE(absl::StrCat(View(NameOf(kv_cache)), " ", name, " page ", page_size,
                                      " of ", length, is_seeded ? " seeded" : " greedy"));
            std::vector<TokenId> prompt = PromptOf(pair, length);
            prompt[0] = 2 * length + (is_seeded ? 1 : 0);  // starts differently from all others
            Request request = RequestFor(prompt);
            if (is_seeded) {
              request.sampling = {.temperature = 0.8F, .top_p = 0.9F};
              request.seed = 7;
            }
            const Completion got = Generate(decode.get(), DecodeAfter(prefill.get(), request));
            const int whole = WholePages(length, page_size);
            num_pages += 2 * whole / page_size;
            EXPECT_EQ(got.transfer_tokens, whole);
            EXPECT_EQ(got.cached_tokens, whole);
            ExpectSame(got, Generate(reference.get(), request));
            Request plain = request;
            plain.draft_tokens = 0;
            ExpectSameOutput(got, Generate(reference.get(), plain));
          }
        }
        for (Engine* engine : {prefill.get(), decode.get()}) {
          EXPECT_TRUE(engine->CheckIntegrity().ok());
        }
        const EngineLoad load = decode->load();
        EXPECT_EQ(load.transfer.pages_hit, num_pages);
        EXPECT_EQ(load.transfer.pages_damaged, 0);
        EXPECT_EQ(load.draft_prefix_hits, load.prefix_hits);
      }
    }
  }
}

// Transfers also work with a constraint, a draft with a window, and a tenant's salt.
TEST(EngineTransfer, KeepsConstraintsWindowsAndTenants) {
  const FakeClock clock;
  const GoldenPair pair("shallow");
  EngineOptions options = WorkerOptions(pair);
  options.draft_window = 16;
  options.draft_kv_cache = KvCacheType::kBF16;
  const auto reference = MakeEngine(options);
  const auto prefill = MakeEngine(options);
  const auto decode = MakeEngine(options);
  Request request = RequestFor(PromptOf(pair, 41));
  request.ignore_eos = false;
  request.constraint = OutputConstraint{.kind = OutputConstraint::Kind::kJsonObject, .text = {}};
  request.cache_salt = "one";
  const Completion got = Generate(decode.get(), DecodeAfter(prefill.get(), request));
  EXPECT_EQ(got.transfer_tokens, 40);
  EXPECT_TRUE(decode->CheckIntegrity().ok());  // waits until the load is that of the last round
  EXPECT_GT(decode->load().draft_prefix_hits, 8);
  EXPECT_LT(decode->load().draft_prefix_hits, 40);
  ExpectSame(got, Generate(reference.get(), request));
  // Another tenant does not find these pages.
  request.cache_salt = "other";
  EXPECT_EQ(Generate(decode.get(), request).cached_tokens, 0);
}

// The decode request can be sent before the prompt is read: it fetches pages as they are computed.
TEST(EngineTransfer, FetchesWhileThePromptIsRead) {
  const FakeClock clock;
  const GoldenPair pair("shallow");
  EngineOptions options = WorkerOptions(pair);
  options.chunk_tokens = 8;
  const auto reference = MakeEngine(options);
  const auto prefill = MakeEngine(options);
  const auto decode = MakeEngine(options);
  const Request request = RequestFor(PromptOf(pair, 41));
  // Any response of the worker contains its address.
  Request later = DecodeAfter(prefill.get(), RequestFor({1, 2, 3}));
  KvTransferParams params = later.kv_transfer_params;
  params.remote_request_id = "chosen by the router";
  Request first = PrefillOf(request);
  first.kv_transfer_params.remote_request_id = params.remote_request_id;
  later = request;
  later.kv_transfer_params = params;
  const auto read = prefill->Submit(first);
  ASSERT_TRUE(read.ok());
  const Completion got = Generate(decode.get(), later);
  ASSERT_TRUE(prefill->Wait(*read).ok());
  EXPECT_EQ(got.transfer_tokens, 40);
  ExpectSame(got, Generate(reference.get(), request));
}

// Row 188: pages that do not arrive are computed, with the same bits.
TEST(EngineTransfer, ComputesPagesThatDoNotArrive) {
  FakeClock clock;
  const GoldenPair pair("shallow");
  const EngineOptions options = WorkerOptions(pair);
  const Request request = RequestFor(PromptOf(pair, 41));
  auto prefill = MakeEngine(options);
  const Completion want = Generate(MakeEngine(options).get(), request);
  {
    SCOPED_TRACE("half of the pages");
    const auto decode = MakeEngine(options);
    Request half = request;
    half.prompt_ids.resize(21);
    Request got = DecodeAfter(prefill.get(), half);
    got.prompt_ids = request.prompt_ids;
    got.max_tokens = request.max_tokens;
    const Completion completion = Generate(decode.get(), got);
    EXPECT_EQ(completion.transfer_tokens, 20);
    ExpectSameOutput(completion, want);
  }
  {
    SCOPED_TRACE("no such lease");
    const auto decode = MakeEngine(options);
    Request got = DecodeAfter(prefill.get(), request);
    got.kv_transfer_params.remote_request_id = "another";
    const Completion completion = Generate(decode.get(), got);
    EXPECT_EQ(completion.transfer_tokens, 0);
    ExpectSame(completion, want);
  }
  {
    SCOPED_TRACE("the lease has expired");
    const auto decode = MakeEngine(options);
    const Request got = DecodeAfter(prefill.get(), request);
    clock.Advance(absl::Seconds(options.kv_transfer_lease_seconds + 1));
    const Completion completion = Generate(decode.get(), got);
    EXPECT_EQ(completion.transfer_tokens, 0);
    ExpectSame(completion, want);
    EXPECT_GT(prefill->load().transfer.leases_expired, 0);
  }
  {
    SCOPED_TRACE("another model");
    const GoldenPair other("perturbed");
    const auto decode = MakeEngine(WorkerOptions(other));
    const Completion completion = Generate(decode.get(), DecodeAfter(prefill.get(), request));
    EXPECT_EQ(completion.transfer_tokens, 0);
    EXPECT_GT(decode->load().transfer.peers_refused, 0);
  }
  {
    SCOPED_TRACE("another secret");
    EngineOptions suspicious = options;
    suspicious.kv_transfer_secret = "fedcba9876543210fedcba9876543210";
    const auto decode = MakeEngine(suspicious);
    const Completion completion = Generate(decode.get(), DecodeAfter(prefill.get(), request));
    EXPECT_EQ(completion.transfer_tokens, 0);
    ExpectSame(completion, want);
  }
  {
    SCOPED_TRACE("the worker is gone");
    const auto decode = MakeEngine(options);
    const Request got = DecodeAfter(prefill.get(), request);
    prefill.reset();
    const Completion completion = Generate(decode.get(), got);
    EXPECT_EQ(completion.transfer_tokens, 0);
    ExpectSame(completion, want);
    EXPECT_TRUE(decode->CheckIntegrity().ok());
  }
}

// Workers can have different drafts. Only the target's pages are transferred then.
TEST(EngineTransfer, FetchesTheTargetsPagesIfDraftsDiffer) {
  const FakeClock clock;
  const GoldenPair pair("shallow");
  EngineOptions options = WorkerOptions(pair);
  const auto prefill = MakeEngine(options);
  options.draft_kv_cache = KvCacheType::kBF16;
  const auto decode = MakeEngine(options);
  const Request request = RequestFor(PromptOf(pair, 41));
  const Completion got = Generate(decode.get(), DecodeAfter(prefill.get(), request));
  EXPECT_EQ(got.transfer_tokens, 40);
  EXPECT_TRUE(decode->CheckIntegrity().ok());
  EXPECT_EQ(decode->load().draft_prefix_hits, 0);
  ExpectSameOutput(got, Generate(MakeEngine(options).get(), request));
}

// Cancelling a request that waits for pages that never arrive, and destroying the engine meanwhile,
// take effect at once.
TEST(EngineTransfer, CancelsAndEndsWithoutWaitingForPages) {
  const FakeClock clock;
  const GoldenPair pair("shallow");
  const EngineOptions options = WorkerOptions(pair);
  const auto prefill = MakeEngine(options);
  auto decode = MakeEngine(options);
  Request request = DecodeAfter(prefill.get(), RequestFor(PromptOf(pair, 41)));
  const auto id = decode->Submit(request);
  ASSERT_TRUE(id.ok());
  decode->Cancel(*id);
  EXPECT_TRUE(decode->Wait(*id).ok());
  ASSERT_TRUE(decode->Submit(DecodeAfter(prefill.get(), RequestFor(PromptOf(pair, 45)))).ok());
  decode.reset();
  EXPECT_TRUE(prefill->CheckIntegrity().ok());
}

TEST(EngineTransfer, NamesTheFaultOfAnAddress) {
  const GoldenPair pair("shallow");
  EngineOptions options = WorkerOptions(pair);
  const auto refusal = [&](const std::string& address) {
    options.kv_transfer = address;
    return std::string(Engine::Create(options).status().message());
  };
  for (const std::string address : {"9000", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", ":1"}) {
    EXPECT_THAT(refusal(address), HasSubstr(absl::StrCat("kv_transfer: must be HOST:PORT with a "
                                                         "port from 0 to 65535, got \"",
                                                         address, "\"")));
  }
  EXPECT_THAT(refusal("0.0.0.0:0"), HasSubstr("kv_transfer: "));
  options.kv_transfer_peers = "10.0.0.0/8,near";
  EXPECT_THAT(refusal("127.0.0.1:0"), HasSubstr("kv_transfer_peers: must be networks"));
  options.kv_transfer_secret = "hunter2";
  EXPECT_THAT(refusal("127.0.0.1:0"),
              HasSubstr("kv_transfer_secret: the secret must have from 32"));
  options.kv_transfer_secret = "";
  EXPECT_THAT(refusal("127.0.0.1:0"),
              HasSubstr("kv_transfer_secret: is required by kv_transfer; `openssl rand -hex 32`"));
  options.prefix_cache = false;
  EXPECT_THAT(refusal("127.0.0.1:0"), HasSubstr("kv_transfer: needs the prefix cache"));
}

// Tenants may choose the same names, and find only their own pages by them.
TEST(EngineTransfer, NamesOfLeasesBelongToATenant) {
  const FakeClock clock;
  const GoldenPair pair("shallow");
  const EngineOptions options = WorkerOptions(pair);
  const auto prefill = MakeEngine(options);
  const auto decode = MakeEngine(options);
  KvTransferParams params;
  const auto request_of = [&](const std::string& tenant) {
    Request request = RequestFor(PromptOf(pair, 41));
    request.cache_salt = tenant;
    return request;
  };
  for (const std::string tenant : {"one", "other"}) {
    Request request = PrefillOf(request_of(tenant));
    request.kv_transfer_params.remote_request_id = "mine";
    params = *Generate(prefill.get(), request).kv_transfer_params;
    EXPECT_EQ(params.remote_request_id, "mine");
  }
  params.tokens_per_second = StoreWorld::kTokensPerSecond;
  for (const auto& [tenant, num_tokens] : {std::pair("third", 0), std::pair("one", 40)}) {
    Request request = request_of(tenant);
    request.kv_transfer_params = params;
    EXPECT_EQ(Generate(decode.get(), request).transfer_tokens, num_tokens) << tenant;
  }
}

// A request at the worker itself does not end a lease: it may be another client's.
TEST(EngineTransfer, KeepsALeaseThatIsAskedForAtItsOwnWorker) {
  const FakeClock clock;
  const GoldenPair pair("shallow");
  const EngineOptions options = WorkerOptions(pair);
  const auto prefill = MakeEngine(options);
  const auto decode = MakeEngine(options);
  const Request request = DecodeAfter(prefill.get(), RequestFor(PromptOf(pair, 41)));
  EXPECT_EQ(Generate(prefill.get(), request).cached_tokens, 40);
  EXPECT_EQ(Generate(decode.get(), request).transfer_tokens, 40);
}

TEST(EngineTransfer, NamesTheFaultOfARequest) {
  const GoldenPair pair("shallow");
  EngineOptions options = WorkerOptions(pair);
  const auto engine = MakeEngine(options);
  const auto refusal = [](Engine* asked, const KvTransferParams& params) {
    Request request = RequestFor({1, 2, 3});
    request.kv_transfer_params = params;
    return std::string(asked->Submit(request).status().message());
  };
  EXPECT_THAT(refusal(engine.get(), {.do_remote_decode = true, .do_remote_prefill = true}),
              HasSubstr("kv_transfer_params: do_remote_decode and do_remote_prefill"));
  const KvTransferParams right = {.do_remote_prefill = true,
                                  .remote_engine_id = "0123456789abcdef0123456789abcdef",
                                  .remote_request_id = "b",
                                  .remote_host = "127.0.0.1",
                                  .remote_port = 1};
  KvTransferParams params = right;
  params.remote_port = 0;
  EXPECT_THAT(refusal(engine.get(), params), HasSubstr("kv_transfer_params.remote_port"));
  params = right;
  params.remote_request_id = "";
  EXPECT_THAT(refusal(engine.get(), params), HasSubstr("kv_transfer_params.remote_request_id"));
  // The engine's id is sent in clear text.
  for (const std::string id :
       {"", "a", "0123456789ABCDEF0123456789ABCDEF", "0123456789abcdef0123456789abcde\n"}) {
    params = right;
    params.remote_engine_id = id;
    EXPECT_EQ(refusal(engine.get(), params),
              "kv_transfer_params.remote_engine_id: must be 32 hexadecimal digits in lower case");
  }
  for (const auto& [host, said] :
       {std::pair("10.9.9.9", "10.9.9.9:1"), std::pair("::ffff:10.9.9.9", "10.9.9.9:1"),
        std::pair("::1", "[::1]:1"), std::pair("localhost", "localhost:1"),
        std::pair("a\n\x1b[1m", "a\\n\\x1b[1m:1")}) {
    params = right;
    params.remote_host = host;
    EXPECT_EQ(refusal(engine.get(), params),
              absl::StrCat("kv_transfer_params.remote_host: ", said,
                           " is not a peer of this worker (--kv-transfer-peers)"));
  }
  // Names of workers' own leases are theirs.
  params = {.do_remote_decode = true,
            .remote_request_id = absl::StrCat("w-", right.remote_engine_id)};
  EXPECT_THAT(refusal(engine.get(), params),
              HasSubstr("kv_transfer_params.remote_request_id: must not be w- and 32"));
  // A lease has one owner.
  KvTransferParams mine = {.do_remote_decode = true, .remote_request_id = "mine\n"};
  Generate(engine.get(), [&] {
    Request request = RequestFor({1, 2, 3});
    request.kv_transfer_params = mine;
    return request;
  }());
  EXPECT_THAT(refusal(engine.get(), mine), HasSubstr("\"mine\\n\" is in use"));
  options.kv_transfer = "";
  EXPECT_THAT(refusal(MakeEngine(options).get(), mine),
              HasSubstr("kv_transfer_params: asks for a transfer"));
}

}  // namespace
}  // namespace tandem
