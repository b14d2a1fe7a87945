#ifndef TANDEM_INCLUDE_TANDEM_GENERATION_ID_H_
#define TANDEM_INCLUDE_TANDEM_GENERATION_ID_H_

#include <cstdint>

namespace tandem {

// Identifies a generation of an engine.
using GenerationId = int64_t;

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_GENERATION_ID_H_
