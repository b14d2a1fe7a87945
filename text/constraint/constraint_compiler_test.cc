// Tests of the compiler's limits: no constraint takes more time, memory or stack than allowed.
#include "text/constraint/constraint_compiler.h"

#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/constraint/grammar_engine.h"

namespace tandem {
namespace {

using Kind = OutputConstraint::Kind;
using Limits = ConstraintCompiler::Limits;
using testing::HasSubstr;

std::string Repeated(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// Returns a constraint that takes minutes to compile.
OutputConstraint Hopeless(int number = 0) {
  return {.kind = Kind::kRegex, .text = absl::StrCat("x", number, Repeated(20'000, "a?"))};
}

OutputConstraint ManyWords(int count) {
  OutputConstraint words{.kind = Kind::kRegex, .text = "x"};
  for (int i = 0; i < count; ++i) absl::StrAppend(&words.text, "|w", i, "z");
  return words;
}

// Returns a schema in which each definition has a property that refers to the next definition.
OutputConstraint ChainOfReferences(int length) {
  OutputConstraint schema{.kind = Kind::kJsonSchema, .text = R"({"$ref":"#/$defs/0","$defs":{)"};
  for (int i = 0; i < length; ++i) {
    absl::StrAppend(&schema.text, "\"", i, R"(":{"properties":{"a":{"$ref":"#/$defs/)", i + 1,
                    "\"}}},");
  }
  absl::StrAppend(&schema.text, "\"", length, R"(":{"type":"null"}}})");
  return schema;
}

class Compiling : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
    tokenizer_ = *Tokenizer::Load(SourcePath("models/storyteller-7m"));
    end_ = tokenizer_->IdOf("<|endoftext|>");
  }
  std::unique_ptr<ConstraintCompiler> Within(const Limits& limits) const {
    return std::make_unique<ConstraintCompiler>(tokenizer_.get(), tokenizer_->vocab_size(), limits);
  }
  absl::Status Compile(const OutputConstraint& constraint, ConstraintCompiler* compiler) const {
    return compiler->Compile(constraint, {{end_}}).status();
  }
  // Waits without a timeout: ctest ends tests that hang.
  static void Await(const std::function<bool()>& condition) {
    while (!condition()) absl::SleepFor(absl::Milliseconds(1));
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  TokenId end_ = -1;
};

// Row 113 of the bug catalogue, as is all of this file.
TEST_F(Compiling, EndsAtTheTimeLimit) {
  const auto compiler = Within({.time = absl::Milliseconds(100)});
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = Compile(Hopeless(), compiler.get());
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(status.message(), "constraint: cannot be compiled: it takes more than 100ms");
    EXPECT_EQ(compiler->load().num_kept, 0);
  }
  EXPECT_TRUE(Compile({.kind = Kind::kRegex, .text = "yes|no"}, compiler.get()).ok());
}

TEST_F(Compiling, RejectsGrammarsAboveTheSizeLimit) {
  const auto compiler = Within({.max_grammar_bytes = 20'000});
  EXPECT_THAT(std::string(Compile(ManyWords(2'000), compiler.get()).message()),
              HasSubstr("bytes, allowed: 20000"));
  EXPECT_EQ(compiler->load().num_kept, 0);
  EXPECT_TRUE(Compile(ManyWords(2), compiler.get()).ok());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Returns the largest amount by which `work` raised the memory of this process.
int64_t PeakOf(const std::function<void()>& work) {
  const auto peak = [] {
    std::ifstream file("/proc/self/status");
    std::string word;
    int64_t kilobytes = 0;
    while (file >> word && word != "VmHWM:") {
    }
    file >> kilobytes;
    return kilobytes << 10;
  };
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak becomes what is in use
  const int64_t before = peak();
  work();
  return peak() - before;
}

// Row 211 of the bug catalogue.
TEST_F(Compiling, TakesBoundedMemory) {
  constexpr int64_t kLimit = 24 << 20;
  const auto compiler = Within({.time = absl::InfiniteDuration(),
                                .max_work_bytes = kLimit,
                                .patience = absl::InfiniteDuration()});
  EXPECT_TRUE(Compile(ManyWords(2), compiler.get()).ok());
  const std::vector<OutputConstraint> all = {
      {.kind = Kind::kChoice, .choices = {std::string(250'000, 'a')}},
      {.kind = Kind::kRegex, .text = Repeated(16'000, R"([\u0100-\uffee])")},
      Hopeless(),
      ManyWords(30'000)};
  for (const OutputConstraint& constraint : all) {
    absl::Status status;
    const int64_t peak = PeakOf([&] { status = Compile(constraint, compiler.get()); });
    EXPECT_EQ(status.message(), absl::StrCat("constraint: cannot be compiled: it takes more than ",
                                             kLimit, " bytes"));
    // Tables that grow leave gaps, most in a small heap.
    EXPECT_LT(peak, 3 * kLimit) << constraint.text.substr(0, 20);
  }
}
#endif

// The stack of a thread has room for a few thousand levels.
TEST_F(Compiling, EndsBeforeTheStackOverflows) {
  const auto compiler =
      Within({.time = absl::InfiniteDuration(), .patience = absl::InfiniteDuration()});
  EXPECT_TRUE(Compile(ChainOfReferences(100), compiler.get()).ok());
  const absl::Status status = Compile(ChainOfReferences(5'000), compiler.get());
  if (status.ok()) GTEST_SKIP() << "stacks are large here";
  EXPECT_EQ(status.message(), "constraint: cannot be compiled: it is nested too deeply");
}

// A grammar of the largest size allowed, in which each rule refers only to the next.
TEST_F(Compiling, SurvivesLongChainsOfRules) {
  const auto compiler = Within({.patience = absl::InfiniteDuration()});
  std::string text = "root ::= r0\n";
  int last = 0;
  for (; text.size() < (size_t{256} << 10) - 50; ++last) {
    absl::StrAppend(&text, "r", last, " ::= r", last + 1, "\n");
  }
  absl::StrAppend(&text, "r", last, " ::= \"a\"\n");
  const absl::Status status = Compile({.kind = Kind::kGrammar, .text = text}, compiler.get());
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
}

TEST_F(Compiling, EndsWhenNoCallerWaits) {
  const auto compiler =
      Within({.time = absl::InfiniteDuration(), .patience = absl::Milliseconds(50)});
  const absl::Status status = Compile(Hopeless(), compiler.get());
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("constraint: was not compiled within 50ms"));
  EXPECT_EQ(compiler->load().num_kept, 0);
  Await([&] { return compiler->load().num_threads == 0; });
}

TEST_F(Compiling, EndsWithTheCompiler) {
  auto compiler = Within({.time = absl::InfiniteDuration(), .patience = absl::Milliseconds(50)});
  std::thread waits([&] { EXPECT_FALSE(Compile(Hopeless(), compiler.get()).ok()); });
  waits.join();
  compiler.reset();
}

// Two slow constraints occupy both threads. A constraint that is already compiled stays available,
// one new constraint waits, and the next is rejected at once.
TEST_F(Compiling, RejectsConstraintsThatWouldWaitLong) {
  const auto compiler = Within({.time = absl::Seconds(1),
                                .patience = absl::InfiniteDuration(),
                                .max_waiting = 1,
                                .short_wait = absl::ZeroDuration()});
  const OutputConstraint choice{.kind = Kind::kChoice, .choices = {"yes", "no"}};
  ASSERT_TRUE(Compile(choice, compiler.get()).ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] { EXPECT_FALSE(Compile(Hopeless(i), compiler.get()).ok()); });
    Await([&] { return compiler->load().num_kept == i + 2 && compiler->load().num_waiting == 0; });
  }
  threads.emplace_back([&] { EXPECT_TRUE(Compile(ManyWords(3), compiler.get()).ok()); });
  Await([&] { return compiler->load().num_kept == 4; });
  const absl::Status status = Compile(ManyWords(4), compiler.get());
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("(1 waiting)"));
  EXPECT_TRUE(Compile(choice, compiler.get()).ok());
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(Compile(ManyWords(4), compiler.get()).ok());
}

TEST_F(Compiling, KeepsErrorsOfConstraintsWithinItsLimit) {
  const auto compiler = Within({.max_kept_bytes = 400 << 10});
  const OutputConstraint wrong{.kind = Kind::kRegex, .text = "(a"};
  EXPECT_TRUE(absl::IsInvalidArgument(Compile(wrong, compiler.get())));
  EXPECT_EQ(compiler->load().num_kept, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(Compile(wrong, compiler.get())));
  EXPECT_EQ(compiler->load().num_kept, 1);
  for (int i = 0; i < 20; ++i) {
    const OutputConstraint other{.kind = Kind::kRegex, .text = absl::StrCat("(", i)};
    EXPECT_TRUE(absl::IsInvalidArgument(Compile(other, compiler.get())));
  }
  EXPECT_GE(compiler->load().num_kept, 2);
  EXPECT_LE(compiler->load().num_kept, 6);
  // A text that takes up all the bytes that may be kept.
  const OutputConstraint large{.kind = Kind::kRegex, .text = "(" + std::string(250 << 10, 'a')};
  EXPECT_TRUE(absl::IsInvalidArgument(Compile(large, compiler.get())));
  EXPECT_LE(compiler->load().num_kept, 2);
}

// Interrupting the library at any point must not affect the next compilation.
// Row 214 of the bug catalogue.
TEST_F(Compiling, KeepsGrammarsOfEachTenant) {
  const auto compiler = Within({});
  const OutputConstraint words = ManyWords(20);
  for (const std::string salt : {"", "a", "b"}) {
    const int num_kept = compiler->load().num_kept;
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(compiler->Compile(words, {{end_}}, salt).ok());
      EXPECT_EQ(compiler->load().num_kept, num_kept + 1);
    }
  }
}

TEST_F(Compiling, CanBeInterruptedAnywhere) {
  const auto engine = *GrammarEngine::Make(*tokenizer_, tokenizer_->vocab_size());
  const OutputConstraint schema{
      .kind = Kind::kJsonSchema,
      .text = R"({"type": "object", "properties": {"a": {"type": "array", "maxItems": 3,
                  "items": {"type": "string", "pattern": "^(ab|c){2,5}$"}},
                  "b": {"$ref": "#/$defs/b"}},
                  "$defs": {"b": {"anyOf": [{"type": "integer", "maximum": 12},
                                            {"const": "x"}]}}})"};
  const OutputConstraint tag{
      .kind = Kind::kStructuralTag,
      .text = R"({"type": "triggered_tags", "triggers": ["<f>"], "tags": [{"type": "tag",
                  "begin": "<f>", "content": {"type": "json_schema", "json_schema":
                  {"type": "integer"}}, "end": "</f>"}]})"};
  const OutputConstraint sum{.kind = Kind::kGrammar, .text = "root ::= \"1\" (\"+\" [2-9]){2,3}"};
  for (const OutputConstraint& constraint : {schema, tag, sum}) {
    int num_refused = 0;
    for (int64_t loops = 0;; loops += 1 + loops / 50) {
      const auto grammar = engine->Compile(constraint, {.loops = loops});
      if (grammar.ok()) break;
      ASSERT_TRUE(absl::IsOutOfRange(grammar.status())) << grammar.status();
      ++num_refused;
    }
    EXPECT_GT(num_refused, 100);
  }
}

// Finding the allowed tokens takes longer and longer: each text has a huge number of derivations.
TEST_F(Compiling, LimitsTheTimeOfFollowingAnOutput) {
  const auto compiler = Within({});
  const OutputConstraint ambiguous{.kind = Kind::kGrammar,
                                   .text = "root ::= root root root | root root | \"a\" | \"\""};
  const auto constraint = compiler->Compile(ambiguous, {{end_}}).value();
  const std::unique_ptr<ConstraintState> state = constraint->Begin();
  const TokenId a = tokenizer_->Encode("a", SpecialTokens::kPlain)->front();
  int num_tokens = 0;
  for (; num_tokens < 3000 && state->status().ok(); ++num_tokens) {
    if (state->Accept(a)) state->Commit();
    state->Allowed();
  }
  EXPECT_EQ(state->status().message(),
            "constraint: cannot be followed: it takes more than 50ms for each token");
  EXPECT_GT(num_tokens, 5);
  const std::unique_ptr<ConstraintState> copy = state->Clone();
  for (ConstraintState* one : {state.get(), copy.get()}) {
    EXPECT_FALSE(one->Accept(a));
    EXPECT_EQ(one->Forced(), "");
    for (const uint32_t word : one->Allowed()) EXPECT_EQ(word, 0u);
    EXPECT_FALSE(one->status().ok());
  }
  const std::unique_ptr<ConstraintState> next = constraint->Begin();
  EXPECT_TRUE(next->Accept(a));
  EXPECT_TRUE(next->status().ok());
}

}  // namespace
}  // namespace tandem
