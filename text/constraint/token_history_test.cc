#include "model/token_history.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "base/source_path_testing.h"
#include "gtest/gtest.h"
#include "tandem/tokenizer.h"
#include "text/constraint/constraint_compiler.h"
#include "text/constraint/grammar_engine.h"

namespace tandem {
namespace {

// Row 119 of the bug catalogue: a draft whose constraint takes too long is undone, and the output
// continues without drafts.
TEST(TokenHistory, DraftsNeverEndAnOutput) {
  if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  const auto tokenizer = *Tokenizer::Load(SourcePath("models/storyteller-7m"));
  const TokenId end = tokenizer->IdOf("<|endoftext|>");
  ConstraintCompiler compiler(tokenizer.get(), tokenizer->vocab_size(), {});
  const OutputConstraint ambiguous{.kind = OutputConstraint::Kind::kRegex,
                                   .text = "((a{1,100}){1,100}){1,100}"};
  const auto constraint = compiler.Compile(ambiguous, {{end}});
  ASSERT_TRUE(constraint.ok()) << constraint.status();
  TokenHistory history(constraint->get());
  const TokenId a = tokenizer->Encode("a", SpecialTokens::kPlain)->front();
  history.AddOutput(a);
  history.Commit();
  const std::vector<uint32_t> allowed(history.Allowed().begin(), history.Allowed().end());
  {
    DraftWalk walk(&history);
    for (int i = 0; i < 3000 && history.is_followed(); ++i) {
      walk.Add(a);
      history.Allowed();
    }
    EXPECT_FALSE(history.constraint_status().ok());
    EXPECT_EQ(history.Forced(), "");
    walk.Add(a);  // breaks the constraint
  }
  EXPECT_TRUE(history.constraint_status().ok());
  EXPECT_FALSE(history.may_draft());
  EXPECT_EQ(history.Allowed(), absl::MakeConstSpan(allowed));
  for (int i = 0; i < 3; ++i) {
    history.AddOutput(a);
    history.Commit();
    history.Allowed();
  }
  EXPECT_TRUE(history.is_followed());
}

}  // namespace
}  // namespace tandem
