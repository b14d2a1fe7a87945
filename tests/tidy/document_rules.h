// Rules of the documents: links, lines, numbers and lengths.
#ifndef TANDEM_TESTS_TIDY_DOCUMENT_RULES_H_
#define TANDEM_TESTS_TIDY_DOCUMENT_RULES_H_

#include "tests/tidy/source_text.h"

namespace tandem::tidy {

// Lines of documents have at most 120 columns, except in tables and code blocks, and unless a URL
// or a command in backquotes makes them longer.
Violations CheckDocumentWidth(const Files& files);

// Numbers in documents have a digit before the point (0.53), except in code.
Violations CheckNumbersHaveZeros(const Files& files);

// A page of docs/ has at most 1,200 words, or those of its entry in kLongPages.
Violations CheckPageLength(const Files& files);

// Relative links in documents point to existing files and headings.
Violations CheckMarkdownLinks(const SourceTree& tree);

}  // namespace tandem::tidy

#endif  // TANDEM_TESTS_TIDY_DOCUMENT_RULES_H_
