// Guarantees for a program that embeds the engine: slow, failing and submitting callbacks, waiting
// for results, limits, deadlines, and destruction while threads wait.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/instant.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/engine.h"
#include "tandem/field_error.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

// All pieces of a generation, joined.
struct Joined {
  std::string text;
  std::vector<TokenId> token_ids;
  std::string provenance;
  int num_pieces = 0;
  int64_t proposed = 0;

  void Add(const Piece& piece) {
    text += piece.text;
    token_ids.insert(token_ids.end(), piece.token_ids.begin(), piece.token_ids.end());
    provenance += piece.provenance;
    proposed += piece.round.proposed;
    ++num_pieces;
  }
  void ExpectIs(const Completion& completion) const {
    EXPECT_EQ(text, completion.text);
    EXPECT_EQ(token_ids, completion.token_ids);
    EXPECT_EQ(provenance, completion.provenance);
  }
};

class Embedding : public testing::Test {
 protected:
  std::unique_ptr<Engine> Make(CallbackThread thread = CallbackThread::kOwn) {
    options_.callback_thread = thread;
    return MakeEngine(options_);
  }

  const GoldenPair pair_{"perturbed"};
  EngineOptions options_ = CpuOptionsFor(pair_.target, pair_.draft);
  const Request request_{.prompt_ids = pair_.prompt_ids,
                         .max_tokens = 40,
                         .sampling = kGreedy,
                         .ignore_eos = true,
                         .draft_tokens = 2};
};

class EitherThread : public Embedding, public testing::WithParamInterface<CallbackThread> {};
INSTANTIATE_TEST_SUITE_P(Callbacks, EitherThread,
                         testing::Values(CallbackThread::kOwn, CallbackThread::kEngine),
                         [](const auto& info) {
                           return info.param == CallbackThread::kOwn ? "own" : "engine";
                         });

// ---- Callbacks ----

TEST_F(Embedding, ASlowCallbackDoesNotDelayOtherGenerations) {
  const std::unique_ptr<Engine> engine = Make();
  absl::Notification may_go_on;
  std::vector<Joined> slow(4);
  std::vector<GenerationId> ids;
  for (Joined& joined : slow) {
    const auto id = engine->Submit(request_, [&](const Piece& piece) {
      may_go_on.WaitForNotification();
      joined.Add(piece);
      return true;
    });
    ASSERT_TRUE(id.ok()) << id.status();
    ids.push_back(*id);
  }
  Joined quick;
  const auto other = engine->Generate(request_, [&](const Piece& piece) {
    quick.Add(piece);
    return true;
  });
  ASSERT_TRUE(other.ok()) << other.status();
  quick.ExpectIs(*other);
  EXPECT_EQ(engine->Wait(ids[0], absl::ZeroDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  while (engine->load().num_running > 0) std::this_thread::yield();  // only their callbacks remain
  may_go_on.Notify();
  for (size_t i = 0; i < slow.size(); ++i) {
    const auto got = engine->Wait(ids[i]);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectSameOutput(*got, *other);
    slow[i].ExpectIs(*got);
    EXPECT_EQ(slow[i].proposed, got->stats.proposed);
    EXPECT_LE(slow[i].num_pieces, 2);  // the first, and all tokens that came while it waited
  }
}

TEST_P(EitherThread, ACallbackThatReturnsFalseEndsTheTextAtItsPiece) {
  const std::unique_ptr<Engine> engine = Make(GetParam());
  const Completion whole = Generate(engine.get(), request_);
  for (int most = 1; most <= 5; ++most) {
    Joined joined;
    const auto got = engine->Generate(request_, [&](const Piece& piece) {
      joined.Add(piece);
      return joined.num_pieces < most;
    });
    ASSERT_TRUE(got.ok()) << got.status();
    joined.ExpectIs(*got);
    EXPECT_LE(joined.num_pieces, most);
    EXPECT_EQ(whole.text.substr(0, got->text.size()), got->text);
    if (got->token_ids.size() < whole.token_ids.size()) {
      EXPECT_EQ(got->finish_reason, FinishReason::kCancelled);
    }
  }
  EXPECT_TRUE(engine->CheckIntegrity().ok());
}

// Text that is held back because a stop string could begin there is not in any piece, so it is not
// in the completion either.
TEST_F(Embedding, ACancelledCompletionHasTheTextOfItsPieces) {
  const std::unique_ptr<Engine> engine = Make(CallbackThread::kEngine);
  const Completion whole = Generate(engine.get(), request_);
  Request request = request_;
  request.draft_tokens = 0;
  request.stop = {whole.text + "?"};  // every prefix of the text could begin it
  for (int most = 1; most <= 4; ++most) {
    Joined joined;
    GenerationId id = 0;
    absl::Notification is_known;
    const auto submitted = engine->Submit(request, [&](const Piece& piece) {
      is_known.WaitForNotification();
      joined.Add(piece);
      if (joined.num_pieces == most) engine->Cancel(id);
      return true;
    });
    ASSERT_TRUE(submitted.ok()) << submitted.status();
    id = *submitted;
    is_known.Notify();
    const auto got = engine->Wait(id);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->finish_reason, FinishReason::kCancelled);
    EXPECT_EQ(got->token_ids.size(), static_cast<size_t>(most));
    joined.ExpectIs(*got);
    EXPECT_EQ(got->text, "");
  }
}

TEST_P(EitherThread, ACallbackThatThrowsFailsOnlyItsGeneration) {
  const std::unique_ptr<Engine> engine = Make(GetParam());
  const Completion alone = Generate(engine.get(), request_);
  for (int at = 1; at <= 3; ++at) {
    int num_pieces = 0;
    const auto failing = engine->Submit(request_, [&](const Piece&) {
      if (++num_pieces == std::min(at, 2)) std::vector<int>().at(at);
      return true;
    });
    ASSERT_TRUE(failing.ok()) << failing.status();
    const auto other = engine->Submit(request_);
    ASSERT_TRUE(other.ok()) << other.status();
    const absl::Status status = engine->Wait(*failing).status();
    if (num_pieces >= std::min(at, 2)) {  // all tokens can come in one piece
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("on_piece: "));
    }
    const auto got = engine->Wait(*other);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectSameOutput(*got, alone);
    EXPECT_TRUE(engine->CheckIntegrity().ok());
  }
  absl::Notification is_done;
  ASSERT_TRUE(engine
                  ->Submit(request_, nullptr,
                           [&](absl::StatusOr<Completion>) {
                             is_done.Notify();
                             std::vector<int>().at(1);
                           })
                  .ok());
  is_done.WaitForNotification();
  ExpectSameOutput(Generate(engine.get(), request_), alone);
}

TEST_P(EitherThread, OnDoneCanSubmitTheNextRequest) {
  options_.max_generations = 1;
  const std::unique_ptr<Engine> engine = Make(GetParam());
  const Completion alone = Generate(engine.get(), request_);
  absl::Notification all_done;
  int left = 5;
  std::function<void(absl::StatusOr<Completion>)> next = [&](absl::StatusOr<Completion> got) {
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectSameOutput(*got, alone);
    if (--left == 0) return all_done.Notify();
    const auto id = engine->Submit(request_, nullptr, next);
    EXPECT_TRUE(id.ok()) << id.status();
  };
  ASSERT_TRUE(engine->Submit(request_, nullptr, next).ok());
  all_done.WaitForNotification();
}

// ---- Processes ----

TEST_F(Embedding, AForkedChildIsRefusedAndDoesNotHang) {
  std::unique_ptr<Engine> engine = Make();
  absl::Notification may_go_on;
  const auto id = engine->Submit(request_, [&](const Piece&) {
    may_go_on.WaitForNotification();
    return true;
  });
  ASSERT_TRUE(id.ok()) << id.status();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto refused = absl::StatusCode::kFailedPrecondition;
    engine->Cancel(*id);
    bool is_right = engine->Submit(request_).status().code() == refused &&
                    engine->Wait(*id).status().code() == refused &&
                    engine->Generate(request_).status().code() == refused &&
                    engine->CheckIntegrity().code() == refused && engine->load().num_running == 0 &&
                    engine->stats().rounds == 0 && engine->target_info().vocab_size > 0;
    engine.reset();
    _exit(is_right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  may_go_on.Notify();
  EXPECT_TRUE(engine->Wait(*id).ok());
}

// ---- Waiting, and limits ----

TEST_F(Embedding, WaitTimesOutAndCanBeRepeated) {
  const std::unique_ptr<Engine> engine = Make();
  absl::Notification may_go_on;
  const auto id = engine->Submit(request_, [&](const Piece&) {
    may_go_on.WaitForNotification();
    return true;
  });
  ASSERT_TRUE(id.ok()) << id.status();
  for (int time = 0; time < 3; ++time) {
    EXPECT_EQ(engine->Wait(*id, time * absl::Milliseconds(1)).status().code(),
              absl::StatusCode::kDeadlineExceeded);
  }
  may_go_on.Notify();
  const auto got = engine->Wait(*id, absl::InfiniteDuration());
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->token_ids.size(), 40u);
  EXPECT_EQ(engine->Wait(*id, absl::ZeroDuration()).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(Embedding, RefusesMoreThanMaxGenerations) {
  options_.max_generations = 3;
  const std::unique_ptr<Engine> engine = Make();
  std::vector<GenerationId> ids;
  for (int i = 0; i < 3; ++i) {
    const auto id = engine->Submit(request_);
    ASSERT_TRUE(id.ok()) << id.status();
    ids.push_back(*id);
  }
  while (engine->load().num_running > 0 || engine->load().num_waiting > 0) {
    std::this_thread::yield();
  }
  // They have ended, but their results have not been fetched yet.
  const absl::Status refused = engine->Submit(request_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("max_generations: 3"));
  EXPECT_TRUE(engine->Wait(ids[1]).ok());
  const auto id = engine->Submit(request_);
  EXPECT_TRUE(id.ok()) << id.status();
  EXPECT_FALSE(engine->Submit(request_).ok());
  for (const GenerationId each : {ids[0], ids[2], *id}) EXPECT_TRUE(engine->Wait(each).ok());
}

// ---- The end of an engine ----

TEST_F(Embedding, DestructionEndsEveryWait) {
  for (int time = 0; time < 5; ++time) {
    std::unique_ptr<Engine> engine = Make(CallbackThread::kEngine);
    Engine* const raw = engine.get();
    absl::Notification may_go_on;
    std::atomic<bool> is_refused = false;
    // No round ends before `may_go_on`.
    const auto first = engine->Submit(
        request_,
        [&](const Piece&) {
          may_go_on.WaitForNotification();
          return true;
        },
        [&](const absl::StatusOr<Completion>& got) {
          EXPECT_TRUE(got.ok()) << got.status();
          const absl::Status again = raw->Submit(request_).status();
          is_refused = absl::IsCancelled(again) || got->finish_reason == FinishReason::kLength;
        });
    ASSERT_TRUE(first.ok()) << first.status();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      const auto id = engine->Submit(request_);
      ASSERT_TRUE(id.ok()) << id.status();
      threads.emplace_back([&, id = *id] {
        absl::StatusOr<Completion> got = raw->Wait(id);
        while (absl::IsNotFound(got.status()))
          got = raw->Wait(id);  // the main thread's poll held the result for an instant
        EXPECT_TRUE(got.ok()) << got.status();
      });
      while (!absl::IsNotFound(engine->Wait(*id, absl::ZeroDuration()).status())) {
        std::this_thread::yield();
      }
    }
    threads.emplace_back([&] { may_go_on.Notify(); });
    delete engine.release();
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(is_refused);
  }
}

// ---- Deadlines ----

TEST_F(Embedding, ADeadlineEndsRunningAndWaitingRequests) {
  options_.max_batch = 1;
  const std::unique_ptr<Engine> engine = Make(CallbackThread::kEngine);
  const Completion whole = Generate(engine.get(), request_);
  FakeClock clock;
  Request request = request_;
  request.time_limit = absl::Seconds(10);
  request.stop = {whole.text + "?"};  // holds back all text
  Joined joined;
  absl::Notification all_are_submitted;  // before the clock first advances
  const auto running = engine->Submit(request, [&](const Piece& piece) {
    all_are_submitted.WaitForNotification();
    joined.Add(piece);
    clock.Advance(absl::Seconds(4));
    return true;
  });
  ASSERT_TRUE(running.ok()) << running.status();
  const auto waiting = engine->Submit(request);
  ASSERT_TRUE(waiting.ok()) << waiting.status();
  const auto without = engine->Submit(request_);
  all_are_submitted.Notify();
  ASSERT_TRUE(without.ok()) << without.status();
  const auto got = engine->Wait(*running);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->finish_reason, FinishReason::kDeadline);
  EXPECT_EQ(got->stats.rounds, 3);
  EXPECT_TRUE(std::equal(got->token_ids.begin(), got->token_ids.end(), whole.token_ids.begin()));
  EXPECT_EQ(got->text, whole.text.substr(0, got->text.size()));
  EXPECT_NE(got->text, "");  // the last piece has the text that was held back
  joined.ExpectIs(*got);
  EXPECT_EQ(joined.num_pieces, 4);
  const auto never_run = engine->Wait(*waiting);
  ASSERT_TRUE(never_run.ok()) << never_run.status();
  EXPECT_EQ(never_run->finish_reason, FinishReason::kDeadline);
  EXPECT_TRUE(never_run->token_ids.empty());
  ExpectSameOutput(*engine->Wait(*without), whole);
  const absl::Status refused =
      engine->Submit({.prompt_ids = {1}, .time_limit = absl::ZeroDuration()}).status();
  EXPECT_EQ(FieldOf(refused), "time_limit") << refused;
}

// ---- Prompts ----

TEST_F(Embedding, MaxTokensOfZeroScoresThePrompt) {
  for (const int chunk_tokens : {1, 3, 256}) {
    options_.chunk_tokens = chunk_tokens;
    const std::unique_ptr<Engine> engine = Make();
    for (const int length : {1, 2, 3, 16, 17, static_cast<int>(pair_.prompt_ids.size())}) {
      SCOPED_TRACE(absl::StrCat(length, " tokens in chunks of ", chunk_tokens));
      Request request{.prompt_ids = pair_.prompt_ids,
                      .max_tokens = 1,
                      .sampling = kGreedy,
                      .prompt_logprobs = {.num_top = 2}};
      request.prompt_ids.resize(length, 5);
      Completion want = Generate(engine.get(), request);
      request.max_tokens = 0;
      for (int time = 0; time < 2; ++time) {  // the second run hits the first one's pages
        const Completion got = Generate(engine.get(), request);
        want.token_ids.clear();
        want.text.clear();
        want.finish_reason = FinishReason::kLength;
        ExpectSameOutput(got, want);
        EXPECT_EQ(got.provenance, "");
        EXPECT_EQ(got.stats.emitted, 0);
        request.prompt_logprobs = {};
        want.prompt_logprobs.clear();
      }
      EXPECT_TRUE(engine->CheckIntegrity().ok());
    }
  }
}

TEST_F(Embedding, ScoresPromptsNextToGenerations) {
  const std::unique_ptr<Engine> engine = Make();
  const Completion alone = Generate(engine.get(), request_);
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(request_);
    if (i % 3 != 0) requests.back().max_tokens = 0;
    if (i % 3 == 1) requests.back().prompt_logprobs.num_top = 0;
  }
  const std::vector<Completion> got = GenerateAll(engine.get(), requests);
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(got[i].prompt_logprobs.size(), i % 3 == 1 ? pair_.prompt_ids.size() : 0);
    if (i % 3 == 0) {
      ExpectSameOutput(got[i], alone);
    } else {
      EXPECT_TRUE(got[i].token_ids.empty());
    }
  }
  EXPECT_TRUE(engine->CheckIntegrity().ok());
}

TEST(EmbeddedPrompt, ParsesSpecialTokensOnlyIfAsked) {
  const std::unique_ptr<Engine> engine =
      MakeEngine(CpuOptionsFor(GoldenModelPath("llama-gqa"), ""));
  const Tokenizer& tokenizer = engine->tokenizer();
  const std::string text = "<s>";
  const auto parsed = tokenizer.Encode(text, SpecialTokens::kParse);
  const auto plain = tokenizer.Encode(text, SpecialTokens::kPlain);
  ASSERT_TRUE(parsed.ok() && plain.ok());
  ASSERT_LT(parsed->size(), plain->size());
  for (const SpecialTokens special : {SpecialTokens::kParse, SpecialTokens::kPlain}) {
    const auto& ids = special == SpecialTokens::kParse ? *parsed : *plain;
    EXPECT_EQ(
        Generate(engine.get(), {.prompt = text, .special = special, .max_tokens = 1}).prompt_tokens,
        static_cast<int>(tokenizer.WithTemplate(ids).size()));
  }
}

TEST_F(Embedding, ErrorsNameTheirField) {
  const std::unique_ptr<Engine> engine = Make();
  const auto field_of = [&](auto change) {
    Request request = request_;
    change(request);
    return FieldOf(engine->Submit(request).status());
  };
  EXPECT_EQ(field_of([](Request& r) { r.prompt_ids = {}; }), "prompt");
  EXPECT_EQ(field_of([](Request& r) { r.prompt_ids = {-1}; }), "prompt_ids");
  EXPECT_EQ(field_of([](Request& r) { r.max_tokens = -1; }), "max_tokens");
  EXPECT_EQ(field_of([](Request& r) { r.sampling.min_tokens = 99; }), "min_tokens");
  EXPECT_EQ(field_of([](Request& r) { r.draft_tokens = 99; }), "draft_tokens");
  EXPECT_EQ(field_of([](Request& r) { r.stop = {""}; }), "stop");
  EXPECT_EQ(field_of([](Request& r) { r.stop_tokens = {-1}; }), "stop_tokens");
  EXPECT_EQ(field_of([](Request& r) { r.logprobs.num_top = 999; }), "logprobs");
  options_.max_generations = 0;
  EXPECT_EQ(FieldOf(Engine::Create(options_).status()), "max_generations");
}

}  // namespace
}  // namespace tandem
