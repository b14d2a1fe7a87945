#ifndef TANDEM_BASE_NET_SEALED_STREAM_H_
#define TANDEM_BASE_NET_SEALED_STREAM_H_

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/net/byte_stream.h"

namespace tandem {

// Encrypts and authenticates the bytes of a connection with AES-128-GCM (NIST SP 800-38D), in
// records:
//   length of the text (4 bytes, little-endian), tag (16), text
// The length is authenticated too. The nonce is the number of the record in its direction, and each
// direction has a key of its own, so that no record can be repeated, reordered or reflected. A
// record without text ends the stream; an end without it is a failure.
//
// Records may be 16 times as long as those of TLS, and a record that fits into the buffer of its
// reader is decrypted there. Thread-compatible.
class SealedStream final : public ByteStream {
 public:
  using Key = std::array<uint8_t, 16>;
  struct Keys {
    Key to_peer;
    Key from_peer;
  };
  static constexpr size_t kMaxRecordBytes = size_t{256} << 10;
  // Records after which a direction's key is replaced: 64 GiB, 2^32 blocks, at most.
  static constexpr uint64_t kRecordsPerKey = uint64_t{1} << 18;

  SealedStream(ByteStream* wire, const Keys& keys, uint64_t records_per_key = kRecordsPerKey);

  // After kWaits, the next call must pass the same buffer. No byte is to be used before kSome: it
  // may hold text that is not authenticated.
  Moved Read(absl::Span<std::byte> into) override;
  // Seals at most kMaxRecordBytes, as one record, and keeps it back for Flush or for a later Write.
  Moved Write(absl::Span<const std::byte> bytes) override;
  Moved Flush() override;
  // Tells the peer that nothing more will be written, if the wire takes that at once.
  void End();
  absl::Status failure() const override { return failure_; }

 private:
  static constexpr size_t kTagBytes = 16;
  static constexpr size_t kHeadBytes = 4 + kTagBytes;
  class Direction {
   public:
    Direction(const Key& key, bool seals, uint64_t records_per_key);
    // Seals or opens the next record. `tag` is written or checked. Returns false if it is wrong.
    bool Convert(absl::Span<const std::byte> head, absl::Span<const std::byte> from, std::byte* to,
                 std::byte* tag);

   private:
    std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> context_;
    Key key_;
    const bool seals_;
    const uint64_t records_per_key_;
    uint64_t number_ = 0;  // of the next record
  };

  Moved Fail(const absl::Status& why);
  Moved::State Fill(std::byte* bytes, size_t size, size_t* filled);

  ByteStream& wire_;
  Direction seals_, opens_;
  absl::Status failure_;

  // ---- A record from the peer ----
  std::array<std::byte, size_t{32} << 10> ahead_;  // read before it was asked for
  absl::Span<const std::byte> ahead_left_;
  std::array<std::byte, kHeadBytes> head_;
  size_t head_filled_ = 0;
  size_t size_ = 0;
  size_t filled_ = 0;              // of `size_`
  std::vector<std::byte> opened_;  // text that did not fit into a reader's buffer
  size_t num_read_ = 0;            // of `opened_`
  bool is_direct_ = false;         // the record is received into the reader's buffer

  // ---- A record to the peer ----
  std::vector<std::byte> sealed_;
  size_t sealed_end_ = 0;  // of the records in `sealed_`, which never shrinks: clearing costs time
  size_t num_sent_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_BASE_NET_SEALED_STREAM_H_
