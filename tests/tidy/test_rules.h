// Rules that need the tests' sources: each random stream has one reader, the page of known failures
// names tests that exist, no test gives up on a busy machine, and hosted CI runs the same lanes.
#ifndef TANDEM_TESTS_TIDY_TEST_RULES_H_
#define TANDEM_TESTS_TIDY_TEST_RULES_H_

#include "tests/tidy/source_text.h"

namespace tandem::tidy {

// Each stream of random numbers is read in one folder: the drafts' in draft/, coins and residuals
// in verify/, and the target's in both. Only these folders choose places. Only base/philox forms
// counters, and only the sampler uses them. Tests can read everything.
Violations CheckRandomStreamsHaveOneReader(const Files& files);

// docs/bug_catalogue.md has one row for each of the catalogue's 80. Each names tests, as
// `path_test.cc: Suite.Name` or `path_test.py: test_name`, that are in that file, or says what it
// waits for; and every test of the suite BugCatalogue is named.
Violations CheckBugCatalogue(const Files& files);

// Tests wait as long as necessary: a timeout would make them fail on a busy machine, and ctest ends
// a test that hangs. Exempt are folders such as tests/sanitizers, whose programs test timeouts.
Violations CheckTestsNeverGiveUp(const Files& files);

// The jobs of the hosted workflow are the lanes of .ci/run, in their order.
Violations CheckHostedLanes(const Files& files);

}  // namespace tandem::tidy

#endif  // TANDEM_TESTS_TIDY_TEST_RULES_H_
