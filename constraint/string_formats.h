#ifndef TANDEM_CONSTRAINT_STRING_FORMATS_H_
#define TANDEM_CONSTRAINT_STRING_FORMATS_H_

#include "absl/strings/string_view.h"

namespace tandem {

// The expression (ParseRegex, RegexMode::kWhole) of a `format` of JSON Schema, section 7.3 of its
// validation vocabulary; nullptr for others. Every match is valid for strict readers; some valid
// texts are left out:
//   date, time, date-time  RFC 3339: real days from the year 1 on, `T` and `Z` in capitals, no
//                          second 60, at most 6 digits of fraction
//   duration               RFC 3339 appendix A, numbers of at most 6 digits
//   hostname               RFC 1123 section 2.1: labels of at most 63 characters, the last of
//                          which begins with a letter; no two hyphens together, as in xn--
//   email                  RFC 5321: a dot-string of at most 64 characters, and a host name with a
//                          dot, which ends in letters
//   ipv4, ipv6             RFC 2673 section 3.2 and RFC 4291 section 2.2, without a zone
//   uri, uri-reference     RFC 3986, with a host name, an address in its own form or no host
//   iri, iri-reference, idn-hostname, idn-email
//                          the same in ASCII
//   uuid                   RFC 4122
//   json-pointer           RFC 6901
//   relative-json-pointer  draft-bhutton 00, an index of at most 9 digits; no zero before other
//                          digits, which Python's jsonschema refuses
const char* PatternOfFormat(absl::string_view format);

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_STRING_FORMATS_H_
