// Rules that only tests can keep: that random numbers have one reader each, that the page of
// known failures names tests that exist, and that no test gives up on a busy machine.
#ifndef TANDEM_TESTS_TIDY_TEST_RULES_H_
#define TANDEM_TESTS_TIDY_TEST_RULES_H_

#include "tests/tidy/source_text.h"

namespace tandem::tidy {

// Each stream of random numbers is read in one place: drafts' in draft/, coins and residuals in
// verify/, the target's in both; places are made there only. Counters are formed in base/philox
// alone, and taken from it by the sampler alone. Tests may read everything.
Violations CheckRandomStreamsHaveOneReader(const Files& files);

// docs/bug_catalogue.md has one row for each of the catalogue's 80. Each names tests, as
// `path_test.cc: Suite.Name` or `path_test.py: test_name`, that stand in that file, or says what it
// waits for; and every test of the suite BugCatalogue is named.
Violations CheckBugCatalogue(const Files& files);

// Tests wait as long as it takes: a time-out makes a busy machine fail them, and ctest ends a test
// that hangs. Those of locks with time-outs (tests/sanitizers) are about time-outs.
Violations CheckTestsNeverGiveUp(const Files& files);

}  // namespace tandem::tidy

#endif  // TANDEM_TESTS_TIDY_TEST_RULES_H_
