#ifndef TANDEM_ENGINE_POOL_IDENTITY_H_
#define TANDEM_ENGINE_POOL_IDENTITY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcache/kv_layout.h"
#include "kvstore/page_id.h"
#include "model/transformer.h"

namespace tandem {

// A model whose layers pages hold, and where it was loaded from.
struct PoolModel {
  const Transformer* model;
  std::string path;
};
// The id of the pages that `models` compute, a target and perhaps its draft head: a hash of their
// weights' files and config.json, byte by byte, of how they are quantised, of the layout of the
// cache, of what computes (Backend::arithmetic), and of this build of the program, whose every
// change may change bits. Names, dates, threads, batches and context limits decide nothing. Reads
// the files. Errors name one.
absl::StatusOr<PoolId> PoolIdOf(absl::Span<const PoolModel> models, const KvLayout& layout,
                                absl::string_view arithmetic);

// The hashed parts, for tests.
struct PoolParts {
  std::string build;
  std::string weights;    // hashes of the files
  std::string quantized;  // Transformer::weights_form of each model
  std::string arithmetic;
  KvLayout layout;
};
PoolId PoolIdOf(const PoolParts& parts);

}  // namespace tandem

#endif  // TANDEM_ENGINE_POOL_IDENTITY_H_
