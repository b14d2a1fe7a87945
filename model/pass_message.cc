#include "model/pass_message.h"

#include <cstring>

#include "absl/status/status.h"

namespace tandem {
namespace {

// The model, batch size, rows, logit rows, pages per table, page copies, and finds_argmax.
constexpr int kHeaderWords = 7;
static_assert(sizeof(PageCopy) == 2 * sizeof(int32_t));

}  // namespace

std::vector<std::byte> PassMessage::Encode() const {
  const int32_t header[kHeaderWords] = {model,
                                        tables.batch,
                                        tables.rows,
                                        tables.logit_rows,
                                        tables.max_pages,
                                        static_cast<int32_t>(copies.size()),
                                        finds_argmax ? 1 : 0};
  const size_t copy_bytes = copies.size() * sizeof(PageCopy);
  std::vector<std::byte> bytes(sizeof(header) + copy_bytes + integers.size() * sizeof(int32_t));
  std::byte* to = bytes.data();
  const auto add = [&](const void* from, size_t size) {
    if (size > 0) std::memcpy(to, from, size);
    to += size;
  };
  add(header, sizeof(header));
  add(copies.data(), copy_bytes);
  add(integers.data(), integers.size() * sizeof(int32_t));
  return bytes;
}

absl::StatusOr<PassMessage> PassMessage::Decode(absl::Span<const std::byte> bytes) {
  const auto bad = [] {
    return absl::InvalidArgumentError("tensor_parallel: rank 0 sent a message that is not a pass");
  };
  if (bytes.size() % sizeof(int32_t) != 0 || bytes.size() < kHeaderWords * sizeof(int32_t)) {
    return bad();
  }
  const auto* const words = reinterpret_cast<const int32_t*>(bytes.data());
  const size_t num_words = bytes.size() / sizeof(int32_t);
  PassMessage pass;
  pass.model = words[0];
  for (int i = 1; i < kHeaderWords; ++i) {
    if (words[i] < 0) return bad();
  }
  pass.tables = PassTables(words[1], words[2], words[3], words[4]);
  const size_t copy_words = size_t{2} * words[5];
  if (num_words != kHeaderWords + copy_words + pass.tables.size) return bad();
  pass.finds_argmax = words[6] != 0;
  pass.copies = {reinterpret_cast<const PageCopy*>(words + kHeaderWords),
                 static_cast<size_t>(words[5])};
  pass.integers = {words + kHeaderWords + copy_words, pass.tables.size};
  return pass;
}

}  // namespace tandem
