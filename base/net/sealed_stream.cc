#include "base/net/sealed_stream.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/net/secret.h"

namespace tandem {
namespace {

constexpr size_t kMostKeptBack = size_t{64} << 10;  // bytes of records, before another one

}  // namespace

// ---- Directions ----

SealedStream::Direction::Direction(const Key& key, bool seals, uint64_t records_per_key)
    : context_(EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free),
      key_(key),
      seals_(seals),
      records_per_key_(records_per_key) {
  TANDEM_CHECK(context_ != nullptr && EVP_CipherInit_ex(context_.get(), EVP_aes_128_gcm(), nullptr,
                                                        key_.data(), nullptr, seals_ ? 1 : 0) == 1);
}

bool SealedStream::Direction::Convert(absl::Span<const std::byte> head,
                                      absl::Span<const std::byte> from, std::byte* to,
                                      std::byte* tag) {
  EVP_CIPHER_CTX* const context = context_.get();
  if (number_ > 0 && number_ % records_per_key_ == 0) {
    DeriveKey({reinterpret_cast<const char*>(key_.data()), key_.size()}, "next",
              absl::MakeSpan(key_));
    TANDEM_CHECK(EVP_CipherInit_ex(context, nullptr, nullptr, key_.data(), nullptr, -1) == 1);
  }
  std::array<uint8_t, 12> nonce = {};
  for (size_t i = 0; i < sizeof(number_); ++i) nonce[i] = number_ >> (8 * i) & 255;
  ++number_;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(from.data());
  auto* const result = reinterpret_cast<unsigned char*>(to);
  int size = 0;
  const bool is_converted =
      EVP_CipherInit_ex(context, nullptr, nullptr, nullptr, nonce.data(), -1) == 1 &&
      EVP_CipherUpdate(context, nullptr, &size, reinterpret_cast<const unsigned char*>(head.data()),
                       static_cast<int>(head.size())) == 1 &&
      EVP_CipherUpdate(context, result, &size, bytes, static_cast<int>(from.size())) == 1;
  TANDEM_CHECK(is_converted);
  if (seals_) {
    return EVP_CipherFinal_ex(context, result, &size) == 1 &&
           EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag) == 1;
  }
  return EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag) == 1 &&
         EVP_CipherFinal_ex(context, result, &size) == 1;
}

// ---- Streams ----

SealedStream::SealedStream(ByteStream* wire, const Keys& keys, uint64_t records_per_key)
    : wire_(*wire),
      seals_(keys.to_peer, /*seals=*/true, records_per_key),
      opens_(keys.from_peer, /*seals=*/false, records_per_key) {}

Moved SealedStream::Fail(const absl::Status& why) {
  failure_ = why;
  return {.state = Moved::kFailed};
}

// Reads up to `size` bytes in all. kSome: all are there. Small reads get what follows, too.
Moved::State SealedStream::Fill(std::byte* bytes, size_t size, size_t* filled) {
  while (*filled < size) {
    if (!ahead_left_.empty()) {
      const size_t some = std::min(ahead_left_.size(), size - *filled);
      std::copy_n(ahead_left_.begin(), some, bytes + *filled);
      ahead_left_.remove_prefix(some);
      *filled += some;
      continue;
    }
    const bool is_small = size - *filled < ahead_.size();
    const Moved moved = wire_.Read(
        is_small ? absl::MakeSpan(ahead_) : absl::Span<std::byte>(bytes + *filled, size - *filled));
    if (moved.state == Moved::kEnded) failure_ = absl::UnavailableError("the connection was cut");
    if (moved.state == Moved::kFailed) failure_ = wire_.failure();
    if (!failure_.ok()) return Moved::kFailed;
    if (moved.state != Moved::kSome) return moved.state;
    if (is_small) {
      ahead_left_ = absl::MakeConstSpan(ahead_).first(moved.size);
    } else {
      *filled += moved.size;
    }
  }
  return Moved::kSome;
}

Moved SealedStream::Read(absl::Span<std::byte> into) {
  if (!failure_.ok()) return {.state = Moved::kFailed};
  if (num_read_ == opened_.size()) {
    if (head_filled_ < kHeadBytes) {
      const Moved::State state = Fill(head_.data(), kHeadBytes, &head_filled_);
      if (state != Moved::kSome) return {.state = state};
      size_ = 0;
      for (size_t i = 0; i < 4; ++i) size_ |= std::to_integer<size_t>(head_[i]) << (8 * i);
      if (size_ > kMaxRecordBytes) {
        return Fail(absl::InvalidArgumentError("it sent a record that is too long"));
      }
      filled_ = 0;
      is_direct_ = size_ <= into.size();
    }
    if (!is_direct_ && opened_.size() != size_) opened_.resize(size_), num_read_ = size_;
    std::byte* const text = is_direct_ ? into.data() : opened_.data();
    const Moved::State state = Fill(text, size_, &filled_);
    if (state != Moved::kSome) return {.state = state};
    head_filled_ = 0;
    if (!opens_.Convert(absl::MakeConstSpan(head_).first(4), {text, size_}, text,
                        head_.data() + 4)) {
      return Fail(absl::InvalidArgumentError("it sent a record with a wrong tag"));
    }
    if (size_ == 0) return {.state = Moved::kEnded};
    if (is_direct_) return {.state = Moved::kSome, .size = size_};
    num_read_ = 0;
  }
  const size_t size = std::min(into.size(), opened_.size() - num_read_);
  std::copy_n(opened_.begin() + static_cast<ptrdiff_t>(num_read_), size, into.begin());
  num_read_ += size;
  return {.state = Moved::kSome, .size = size};
}

Moved SealedStream::Write(absl::Span<const std::byte> bytes) {
  if (sealed_end_ - num_sent_ >= kMostKeptBack) {
    const Moved flushed = Flush();
    if (flushed.state != Moved::kSome) return flushed;
  }
  bytes = bytes.subspan(0, kMaxRecordBytes);
  const size_t record_bytes = kHeadBytes + bytes.size();
  if (sealed_.size() < sealed_end_ + record_bytes) sealed_.resize(sealed_end_ + record_bytes);
  const absl::Span<std::byte> record = absl::MakeSpan(sealed_).subspan(sealed_end_, record_bytes);
  sealed_end_ += record_bytes;
  for (size_t i = 0; i < 4; ++i) record[i] = static_cast<std::byte>(bytes.size() >> (8 * i));
  TANDEM_CHECK(
      seals_.Convert(record.first(4), bytes, record.data() + kHeadBytes, record.data() + 4));
  return {.state = Moved::kSome, .size = bytes.size()};
}

Moved SealedStream::Flush() {
  while (num_sent_ < sealed_end_) {
    const Moved moved =
        wire_.Write(absl::MakeConstSpan(sealed_).subspan(num_sent_, sealed_end_ - num_sent_));
    if (moved.state == Moved::kFailed) failure_ = wire_.failure();
    if (moved.state != Moved::kSome) return moved;
    num_sent_ += moved.size;
  }
  sealed_end_ = num_sent_ = 0;
  return {.state = Moved::kSome};
}

void SealedStream::End() {
  if (failure_.ok() && Write({}).state == Moved::kSome) Flush();
}

}  // namespace tandem
