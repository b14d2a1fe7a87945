// The mechanical part of the style, and what may not stand in the text of the sources.
#ifndef TANDEM_TESTS_TIDY_TEXT_RULES_H_
#define TANDEM_TESTS_TIDY_TEXT_RULES_H_

#include "tests/tidy/source_text.h"

namespace tandem::tidy {

// No tab, no blank at the end of a line, a newline at the end of the file, and in C++ at most 100
// columns a line unless a URL makes it longer.
Violations CheckLayout(const Files& files);

// A file of more than 600 lines tells more than one story.
Violations CheckFileLength(const Files& files);

// A header is guarded by TANDEM_<PATH>_H_.
Violations CheckIncludeGuards(const Files& files);

// No `using namespace` in headers.
Violations CheckNoUsingNamespaceInHeaders(const Files& files);

// Absence is a file, not a macro: no #if about instruction sets or CUDA.
Violations CheckNoDeviceMacros(const Files& files);

// Libraries never print and do not include <iostream>; base/check.h prints before it aborts.
Violations CheckLibrariesDoNotPrint(const Files& files);

// No exceptions of our own.
Violations CheckNoThrow(const Files& files);

// Random numbers come from base/philox, which alone knows Philox's constants; only
// engine/new_session.cc and tools/ ask the system, for the seed of a request that has none. Tests
// may use other generators.
Violations CheckRandomNumbersArePassedIn(const Files& files);

// The time of day is for stamps that people read, in the few files that make them: what lasts or
// expires is told by base/instant.h. Tests ask for it no more than the rest.
Violations CheckOnlyStampsTellTheTimeOfDay(const Files& files);

// A store before a call of std::atomic's notify is sequentially consistent. Otherwise libstdc++ may
// read its count of waiting threads before the store is visible, and a waiting thread never wakes.
Violations CheckWakingStoresAreSequential(const Files& files);

// No notes to oneself: they belong to the issue tracker.
Violations CheckNoNotes(const Files& files);

// No path of somebody's machine and no host of a package registry.
Violations CheckNoMachinePathsOrRegistries(const Files& files);

// A Python that is started for a module or a piece of code is isolated (-I), because it prefers
// modules of the current folder to its own otherwise. Tests may do as they like.
Violations CheckPythonIsIsolated(const Files& files);

// What the last column of the table in docs/glossary.md has in backquotes stands in no source and
// no other document: the glossary names the field's word for it.
Violations CheckGlossary(const Files& files);

// A line of a document has at most 120 columns, unless it is of a table or of a block of code, or a
// URL or a command in backquotes makes it longer.
Violations CheckDocumentWidth(const Files& files);

// Relative links of documents point to what exists: to files, and to headings of documents.
Violations CheckMarkdownLinks(const SourceTree& tree);

}  // namespace tandem::tidy

#endif  // TANDEM_TESTS_TIDY_TEXT_RULES_H_
