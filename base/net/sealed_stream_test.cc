#include "base/net/sealed_stream.h"

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/net/stream_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr SealedStream::Key kUp = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
constexpr SealedStream::Key kDown = {9};

// Both sides of a connection whose bytes can be looked at and changed.
struct SealedPair {
  explicit SealedPair(uint64_t records_per_key = SealedStream::kRecordsPerKey)
      : a(&a_wire, {.to_peer = kUp, .from_peer = kDown}, records_per_key),
        b(&b_wire, {.to_peer = kDown, .from_peer = kUp}, records_per_key) {}
  // Returns what arrives at `b`, read into buffers of this size, and how it ends.
  std::string ReadAll(Moved::State* end = nullptr, size_t buffer_bytes = 1000) {
    std::string text;
    buffer.resize(buffer_bytes);
    for (;;) {
      const Moved moved = b.Read(absl::MakeSpan(buffer));
      if (moved.state != Moved::kSome) {
        if (end != nullptr) *end = moved.state;
        return text;
      }
      text += AsText(absl::MakeConstSpan(buffer).first(moved.size));
    }
  }
  std::string Seal(absl::string_view text) {
    const size_t before = up.bytes.size();
    EXPECT_EQ(a.Write(AsBytes(text)).state, Moved::kSome);
    EXPECT_EQ(a.Flush().state, Moved::kSome);
    return up.bytes.substr(before);
  }

  std::vector<std::byte> buffer;  // the same for every call
  Pipe up, down;
  PipeStream a_wire{&down, &up}, b_wire{&up, &down};
  SealedStream a, b;
};

// Against an independent implementation, Python's cryptography 48.0 (AESGCM): key 0102..10, nonce
// 0, associated data 05000000, text "hello"; then nonce 1 and "world".
TEST(SealedStream, HasTheBytesOfAnotherImplementation) {
  SealedPair pair;
  EXPECT_EQ(absl::BytesToHexString(pair.Seal("hello")),
            "05000000b68f4733fa2327e99e7633dbc9433d767c493da5c0");
  EXPECT_EQ(absl::BytesToHexString(pair.Seal("world")),
            "05000000a74e5e46571d04291ea06598aeb50ebf5e1135ee02");
}

TEST(SealedStream, CarriesBytesOfAnySizeInPiecesOfAnySize) {
  for (const size_t buffer : {1, 1000, 1 << 20}) {
    for (const size_t most : {1, 7, 100'000}) {
      SealedPair pair;
      pair.a_wire.most_at_once = pair.b_wire.most_at_once = most;
      std::string all;
      for (const size_t size : {1, 20, 1000, 20'000, 256 << 10}) {
        if (most == 1 && size > 1000) continue;
        const std::string text(size, static_cast<char>('a' + size % 26));
        pair.Seal(text);
        all += text;
      }
      EXPECT_EQ(pair.up.bytes.find("aaaaaaaa"), std::string::npos);
      EXPECT_EQ(pair.ReadAll(nullptr, buffer), all);
    }
  }
}

TEST(SealedStream, WaitsAndGoesOn) {
  for (const size_t buffer : {10, 100'000}) {
    SealedPair pair;
    pair.up.capacity = 100;
    const std::string text(70'000, 'x');
    std::string read;
    for (int i = 0; i < 3; ++i) {
      while (pair.a.Write(AsBytes(text)).state == Moved::kWaits)
        read += pair.ReadAll(nullptr, buffer);
    }
    while (pair.a.Flush().state == Moved::kWaits) read += pair.ReadAll(nullptr, buffer);
    read += pair.ReadAll(nullptr, buffer);
    EXPECT_EQ(read, text + text + text);
  }
}

TEST(SealedStream, EachDirectionHasAKeyOfItsOwn) {
  SealedPair pair;
  const std::string sealed = pair.Seal("text");
  // A reflected record is not opened by its own writer.
  pair.down.bytes = sealed;
  std::byte bytes[10];
  EXPECT_EQ(pair.a.Read(bytes).state, Moved::kFailed);
}

TEST(SealedStream, NoByteOfARecordCanBeChanged) {
  SealedPair clean;
  const std::string sealed = clean.Seal("text");
  for (size_t i = 0; i < sealed.size(); ++i) {
    for (const int bit : {1, 128}) {
      SealedPair pair;
      pair.up.bytes = sealed;
      pair.up.bytes[i] = static_cast<char>(pair.up.bytes[i] ^ bit);
      pair.up.is_ended = true;
      Moved::State end = Moved::kSome;
      EXPECT_EQ(pair.ReadAll(&end), "") << i;
      EXPECT_EQ(end, Moved::kFailed) << i;
      EXPECT_EQ(pair.ReadAll(&end), "") << i;  // and remains so
      EXPECT_EQ(end, Moved::kFailed) << i;
    }
  }
}

TEST(SealedStream, NoRecordCanBeRepeatedLeftOutOrReordered) {
  for (const int fault : {0, 1, 2, 3}) {
    SealedPair pair;
    const std::string one = pair.Seal("one"), two = pair.Seal("two");
    if (fault == 0) pair.up.bytes = one + one;
    if (fault == 1) pair.up.bytes = two;
    if (fault == 2) pair.up.bytes = two + one;
    if (fault == 3) pair.up.bytes.pop_back();
    pair.up.is_ended = true;
    Moved::State end = Moved::kSome;
    EXPECT_EQ(pair.ReadAll(&end), fault == 0 || fault == 3 ? "one" : "") << fault;
    EXPECT_EQ(end, Moved::kFailed) << fault;
  }
}

TEST(SealedStream, AnEndIsToldFromACut) {
  for (const bool is_told : {false, true}) {
    SealedPair pair;
    pair.Seal("text");
    if (is_told) pair.a.End();
    pair.up.is_ended = true;
    Moved::State end = Moved::kSome;
    EXPECT_EQ(pair.ReadAll(&end), "text");
    EXPECT_EQ(end, is_told ? Moved::kEnded : Moved::kFailed);
  }
}

TEST(SealedStream, ALengthIsCheckedBeforeMemoryIsTaken) {
  SealedPair pair;
  pair.up.bytes = std::string("\x01\0\x04\0", 4) + std::string(16, 'x');  // 256 KiB and a byte
  Moved::State end = Moved::kSome;
  pair.ReadAll(&end);
  EXPECT_EQ(end, Moved::kFailed);
  EXPECT_EQ(pair.b.failure(), absl::InvalidArgumentError("it sent a record that is too long"));
}

TEST(SealedStream, KeysAreReplaced) {
  SealedPair often(/*records_per_key=*/3), never;
  std::string all, before, after;
  for (int i = 0; i < 10; ++i) {
    const std::string text(10, static_cast<char>('0' + i));
    const bool is_same = often.Seal(text) == never.Seal(text);
    EXPECT_EQ(is_same, i < 3) << i;
    all += text;
  }
  EXPECT_EQ(often.ReadAll(), all);
}

}  // namespace
}  // namespace tandem
