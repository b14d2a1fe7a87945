#include "base/net/frame_channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

constexpr size_t kStagedBytes = size_t{16} << 10;  // of messages, written together
constexpr size_t kSmallBlock = size_t{4} << 10;    // copied, to share a record with its header
constexpr size_t kChunkBytes = size_t{256} << 10;  // of a block, without a copy
constexpr size_t kTurnBytes = size_t{1} << 20;     // of one Flush or Receive; then others' turn
constexpr size_t kMaxReasonBytes = 1024;
constexpr size_t kCodeBytes = 4;
// The whole of a block may take this many times the time between two of its bytes, and as long as
// its bytes take at this speed.
constexpr int kTimeoutsPerBlock = 6;
constexpr double kLeastBytesPerSecond = 1 << 20;

template <typename Int>
Int Load(const std::byte* bytes) {
  Int value = 0;
  for (size_t i = 0; i < sizeof(Int); ++i) value |= static_cast<Int>(bytes[i]) << (8 * i);
  return value;
}
template <typename Int>
void Append(Int value, std::string* text) {
  for (size_t i = 0; i < sizeof(Int); ++i) *text += static_cast<char>(value >> (8 * i) & 255);
}

absl::Status Malformed() { return absl::InvalidArgumentError("it sent a malformed message"); }

}  // namespace

FrameChannel::FrameChannel(ByteStream* stream, FrameEvents* events, absl::Duration timeout)
    : stream_(*stream),
      events_(*events),
      timeout_(timeout),
      began_(Instant::Now()),
      heard_(began_) {}

// ---- To the peer ----

absl::Status FrameChannel::Queue(Type type, absl::string_view bytes) {
  if (messages_.size() + bytes.size() > kMaxUnsentMessages) {
    return absl::UnavailableError("it does not read messages");
  }
  if (!has_unsent()) accepted_ = Instant::Now();
  Append(static_cast<uint32_t>(bytes.size()), &messages_);
  Append(static_cast<uint32_t>(type), &messages_);
  absl::StrAppend(&messages_, bytes);
  return absl::OkStatus();
}

absl::Status FrameChannel::SendMessage(absl::string_view bytes) { return Queue(kMessage, bytes); }

absl::Status FrameChannel::SendBeat() { return Queue(kBeat, ""); }

absl::Status FrameChannel::SendPath(uint64_t token, absl::string_view address) {
  std::string bytes;
  Append(token, &bytes);
  absl::StrAppend(&bytes, address);
  return Queue(kPath, bytes);
}

absl::Status FrameChannel::SendEnd(const absl::Status& why) {
  std::string bytes;
  Append(static_cast<uint32_t>(why.raw_code()), &bytes);
  absl::StrAppend(&bytes, why.message().substr(0, kMaxReasonBytes));
  // Blocks that have not begun do not matter any more.
  while (!blocks_.empty() && !blocks_.back().has_begun) blocks_.pop_back();
  return Queue(kEnd, bytes);
}

void FrameChannel::SendBlock(const BlockHeader& header, absl::Span<const std::byte> bytes,
                             std::shared_ptr<const void> owner) {
  if (!has_unsent()) accepted_ = Instant::Now();
  blocks_.push_back({.header = header, .bytes = bytes, .owner = std::move(owner)});
}

// Puts the next bytes together, so that small frames, and the header of a block, do not need
// records of their own.
void FrameChannel::Stage() {
  num_staged_written_ = 0;
  if (!messages_.empty()) {
    staged_ = messages_.substr(0, kStagedBytes);
    messages_.erase(0, staged_.size());
    // A message may be in several records; blocks wait for its end.
    return;
  }
  if (blocks_.empty()) return;
  Unsent& block = blocks_.front();
  block.has_begun = true;
  Append(static_cast<uint32_t>(kBlockHeaderBytes + block.bytes.size()), &staged_);
  Append(static_cast<uint32_t>(kBlock), &staged_);
  for (const uint64_t number : {block.header.tag, block.header.index, block.header.checksum}) {
    Append(number, &staged_);
  }
  const size_t first = block.bytes.size() <= kSmallBlock ? block.bytes.size() : 0;
  staged_.append(reinterpret_cast<const char*>(block.bytes.data()), first);
  block.num_written = first;
}

absl::Status FrameChannel::Flush() {
  const absl::Status status = WriteFrames();
  const Moved flushed = stream_.Flush();
  has_kept_back_ = flushed.state == Moved::kWaits;
  return !status.ok() || flushed.state != Moved::kFailed ? status : stream_.failure();
}

// Writes frames until the stream accepts no more, or up to a limit.
absl::Status FrameChannel::WriteFrames() {
  size_t budget = kTurnBytes;
  can_flush_ = false;
  while (has_frames()) {
    const bool is_within_block = !blocks_.empty() && blocks_.front().has_begun;
    if (staged_.empty() && !is_within_block) Stage();
    absl::Span<const std::byte> next;
    if (!staged_.empty()) {
      next = {reinterpret_cast<const std::byte*>(staged_.data()), staged_.size()};
      next.remove_prefix(num_staged_written_);
    } else {
      next = blocks_.front().bytes.subspan(blocks_.front().num_written, kChunkBytes);
    }
    size_t written = 0;
    if (!next.empty()) {
      const Moved moved = stream_.Write(next);
      if (moved.state == Moved::kWaits) return absl::OkStatus();
      if (moved.state != Moved::kSome) return stream_.failure();
      written = moved.size;
      accepted_ = Instant::Now();
    }
    if (!staged_.empty()) {
      num_staged_written_ += written;
      if (num_staged_written_ == staged_.size()) staged_.clear();
    } else {
      blocks_.front().num_written += written;
    }
    if (staged_.empty() && !blocks_.empty() && blocks_.front().has_begun &&
        blocks_.front().num_written == blocks_.front().bytes.size()) {
      const size_t size = blocks_.front().bytes.size();
      blocks_.pop_front();
      events_.OnBlockSent(size);
    }
    if (written >= budget) {
      can_flush_ = has_frames();
      return absl::OkStatus();
    }
    budget -= written;
  }
  return absl::OkStatus();
}

// ---- From the peer ----

void FrameChannel::Expect(Part part, size_t num_bytes) {
  part_ = part;
  wanted_ = num_bytes;
  received_ = 0;
}

absl::Span<std::byte> FrameChannel::Target() {
  static thread_local std::array<std::byte, kStagedBytes> unwanted;
  if (part_ != Part::kRest) return absl::MakeSpan(head_).subspan(received_, wanted_ - received_);
  if (type_ != kBlock) return absl::MakeSpan(message_).subspan(received_, wanted_ - received_);
  if (buffer_ == nullptr)
    return absl::MakeSpan(unwanted).first(std::min(unwanted.size(), wanted_ - received_));
  if (received_ == buffer_->size()) buffer_->resize(std::min(wanted_, received_ + kGrowth));
  return absl::MakeSpan(*buffer_).subspan(received_, wanted_ - received_);
}

absl::Status FrameChannel::Receive() {
  size_t budget = kTurnBytes;
  can_receive_ = false;
  has_received_ = false;
  while (!has_stopped_) {
    if (received_ < wanted_) {
      const absl::Span<std::byte> into = Target();
      const Moved moved = stream_.Read(into.subspan(0, std::max(budget, kChunkBytes)));
      if (moved.state == Moved::kWaits) return absl::OkStatus();
      if (moved.state == Moved::kFailed) return stream_.failure();
      if (moved.state == Moved::kEnded) {
        return absl::UnavailableError("it has closed the connection");
      }
      heard_ = Instant::Now();
      has_received_ = true;
      if (part_ == Part::kHeader && received_ == 0) began_ = heard_;
      received_ += moved.size;
      budget -= std::min(budget, moved.size);
    }
    if (received_ == wanted_) RETURN_IF_ERROR(TakePart());
    if (budget == 0) {
      can_receive_ = !has_stopped_;
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

absl::Status FrameChannel::TakePart() {
  if (part_ == Part::kHeader) return TakeHeader();
  if (part_ == Part::kBlockHeader) return TakeBlockHeader();
  Expect(Part::kHeader, kHeaderBytes);
  return TakeFrame();
}

// Returns the limit of a frame that is not a block, without its header.
size_t FrameChannel::MostBytes(uint32_t type) const {
  if (type == kMessage) return is_admitted_ ? kMaxMessageBytes : kMaxGreetingBytes;
  if (type == kPath) return sizeof(uint64_t) + kMaxPathBytes;
  return type == kEnd ? kCodeBytes + kMaxReasonBytes : 0;
}

absl::Status FrameChannel::TakeHeader() {
  rest_ = Load<uint32_t>(head_.data());
  const auto type = Load<uint32_t>(head_.data() + 4);
  type_ = static_cast<Type>(type);
  if (type == kBlock && is_admitted_ && rest_ >= kBlockHeaderBytes) {
    Expect(Part::kBlockHeader, kBlockHeaderBytes);
    return absl::OkStatus();
  }
  const bool is_known =
      type == kMessage || type == kEnd || type == kBeat || (type == kPath && is_admitted_);
  if (!is_known || rest_ > MostBytes(type)) return Malformed();
  Expect(Part::kRest, rest_);
  message_.resize(rest_);
  return absl::OkStatus();
}

absl::Status FrameChannel::TakeBlockHeader() {
  block_ = {.tag = Load<uint64_t>(head_.data()),
            .index = Load<uint64_t>(head_.data() + 8),
            .checksum = Load<uint64_t>(head_.data() + 16)};
  const size_t size = rest_ - kBlockHeaderBytes;
  buffer_ = events_.OnBlock(block_, size);
  if (buffer_ == nullptr && num_unwanted_ >= kMaxUnwantedBlocks) {
    return absl::InvalidArgumentError("it sent blocks that were not asked for");
  }
  num_unwanted_ = buffer_ == nullptr ? num_unwanted_ + size : 0;
  Expect(Part::kRest, size);
  return absl::OkStatus();
}

absl::Status FrameChannel::TakeFrame() {
  if (type_ == kMessage) {
    events_.OnMessage(message_);
  } else if (type_ == kBlock && std::exchange(buffer_, nullptr) != nullptr) {
    events_.OnBlockReceived(block_);
  } else if (type_ == kPath) {
    if (message_.size() <= sizeof(uint64_t)) return Malformed();
    events_.OnPath(
        Load<uint64_t>(message_.data()),
        absl::string_view(reinterpret_cast<const char*>(message_.data()), message_.size())
            .substr(sizeof(uint64_t)));
  } else if (type_ == kEnd) {
    if (message_.size() < kCodeBytes) return Malformed();
    const auto code = Load<uint32_t>(message_.data());
    if (code == 0 || code > 16) return Malformed();  // absl::StatusCode
    has_ended_ = true;
    return absl::Status(static_cast<absl::StatusCode>(code),
                        {reinterpret_cast<const char*>(message_.data()) + kCodeBytes,
                         message_.size() - kCodeBytes});
  }
  return absl::OkStatus();
}

absl::Status FrameChannel::CheckDeadlines(Instant now) const {
  const auto late = [](absl::string_view what, absl::Duration limit) {
    return absl::UnavailableError(absl::StrCat(what, " ", absl::FormatDuration(limit)));
  };
  if (has_unsent() && now - accepted_ > timeout_) return late("it accepted nothing for", timeout_);
  const bool is_within_frame = part_ != Part::kHeader || received_ > 0;
  if (!is_within_frame) return absl::OkStatus();
  if (part_ == Part::kRest && type_ == kBlock) {
    if (now - heard_ > timeout_) return late("it sent no byte of a block for", timeout_);
    const absl::Duration most = kTimeoutsPerBlock * timeout_ +
                                absl::Seconds(static_cast<double>(rest_) / kLeastBytesPerSecond);
    return now - began_ > most ? late("it sent a block for more than", most) : absl::OkStatus();
  }
  return now - began_ > timeout_ ? late("it sent a message for more than", timeout_)
                                 : absl::OkStatus();
}

}  // namespace tandem
