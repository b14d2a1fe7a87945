// A header that does not compile alone, to see that check fail.
#ifndef TANDEM_TESTS_DATA_HEADERS_NOT_ALONE_H_
#define TANDEM_TESTS_DATA_HEADERS_NOT_ALONE_H_

namespace tandem {

TokenId FirstToken();

}  // namespace tandem

#endif  // TANDEM_TESTS_DATA_HEADERS_NOT_ALONE_H_
