// Rules of the documents: links and lines.
#ifndef TANDEM_TESTS_TIDY_DOCUMENT_RULES_H_
#define TANDEM_TESTS_TIDY_DOCUMENT_RULES_H_

#include "tests/tidy/source_text.h"

namespace tandem::tidy {

// Lines of documents have at most 120 columns, except in tables and code blocks, and unless a URL
// or a command in backquotes makes them longer.
Violations CheckDocumentWidth(const Files& files);

// Relative links in documents point to existing files and headings.
Violations CheckMarkdownLinks(const SourceTree& tree);

}  // namespace tandem::tidy

#endif  // TANDEM_TESTS_TIDY_DOCUMENT_RULES_H_
