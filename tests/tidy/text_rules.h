// The mechanical part of the style, and text that sources must not contain.
#ifndef TANDEM_TESTS_TIDY_TEXT_RULES_H_
#define TANDEM_TESTS_TIDY_TEXT_RULES_H_

#include "tests/tidy/source_text.h"

namespace tandem::tidy {

// No tabs, no blanks at the end of a line, a newline at the end of the file, and in C++ at most 100
// columns per line, unless a URL makes it longer.
Violations CheckLayout(const Files& files);

// Files have at most 600 lines: a longer one has more than one subject.
Violations CheckFileLength(const Files& files);

// Headers are guarded by TANDEM_<PATH>_H_.
Violations CheckIncludeGuards(const Files& files);

// No `using namespace` in headers.
Violations CheckNoUsingNamespaceInHeaders(const Files& files);

// A missing feature is another file, not a macro: no #if for instruction sets or CUDA.
Violations CheckNoDeviceMacros(const Files& files);

// Libraries never print and do not include <iostream>; base/check.h prints before it aborts.
Violations CheckLibrariesDoNotPrint(const Files& files);

// Our code does not throw exceptions.
Violations CheckNoThrow(const Files& files);

// Random numbers come from base/philox, the only file with Philox's constants. Only
// engine/new_session.cc and tools/ ask the system for entropy, for the seed of a request without
// one. Tests can use other generators.
Violations CheckRandomNumbersArePassedIn(const Files& files);

// The time of day is only for time stamps that people read, in the few files that make them.
// Durations and deadlines use base/instant.h. Tests follow this rule too.
Violations CheckOnlyStampsTellTheTimeOfDay(const Files& files);

// A store before a call of std::atomic's notify is sequentially consistent. Otherwise libstdc++ can
// read its count of waiting threads before the store is visible, and a waiting thread never wakes.
Violations CheckWakingStoresAreSequential(const Files& files);

// No notes about later work: they belong in the issue tracker.
Violations CheckNoNotes(const Files& files);

// No paths of a particular machine, and no hosts of package registries.
Violations CheckNoMachinePathsOrRegistries(const Files& files);

// Python that is started with a module or a piece of code is isolated (-I). Otherwise it prefers
// modules in the current folder to its own. Tests are exempt.
Violations CheckPythonIsIsolated(const Files& files);

// Words in backquotes in the last column of the table in docs/glossary.md do not occur in any
// source or other document. The glossary has the term to use instead.
Violations CheckGlossary(const Files& files);

}  // namespace tandem::tidy

#endif  // TANDEM_TESTS_TIDY_TEXT_RULES_H_
