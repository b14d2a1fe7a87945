#ifndef TANDEM_ENGINE_POOL_IDENTITY_H_
#define TANDEM_ENGINE_POOL_IDENTITY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcache/kv_layout.h"
#include "kvcache/store/page_id.h"
#include "model/transformer.h"

namespace tandem {

// Identifies this build of the program and the C library that it uses.
const std::string& ThisBuild();

// A model whose layers are stored in pages, and the path from which it was loaded.
struct PoolModel {
  const Transformer* model;
  std::string path;
};
// Returns the id of the pages that `models` compute; `models` are a target and perhaps its draft
// head. The id is a hash of every byte of their weight files and config.json, of their
// quantisation, of the cache's layout, of the arithmetic (Backend::arithmetic), and of this build
// of the program, because any change to it may change bits. Names, dates, threads, batches and
// context limits do not matter. Reads the files. Errors name the file.
absl::StatusOr<PoolId> PoolIdOf(absl::Span<const PoolModel> models, const KvLayout& layout,
                                absl::string_view arithmetic);

// The parts that are hashed, for tests.
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
