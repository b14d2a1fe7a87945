#include "tools/npz_file.h"

#include <zip.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

// The header of an .npy file, whose size is a multiple of 64 bytes.
std::string HeaderOf(const NpyArray& array) {
  constexpr size_t kFixed = 10;  // magic, version, length
  std::string text =
      absl::StrCat("{'descr': '", array.type, "', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(array.shape, ","), ",), }");
  text.append(64 - (kFixed + text.size() + 1) % 64, ' ');
  text.push_back('\n');
  std::string header("\x93NUMPY\x01\x00", 8);
  header.push_back(static_cast<char>(text.size() & 0xff));
  header.push_back(static_cast<char>(text.size() >> 8));
  return header + text;
}

// The source from which libzip reads an entry.
struct Entry {
  NpyArray array;
  std::string header;
  uint64_t left = 0;  // bytes of values not yet read from `array`
  absl::Span<const std::byte> at_hand = {};
  absl::Status status = {};
  zip_error_t error = {};

  explicit Entry(NpyArray described) : array(std::move(described)), header(HeaderOf(array)) {
    left = array.item_bytes;
    for (const int64_t size : array.shape) left *= size;
    at_hand = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(header.data()), header.size());
    zip_error_init(&error);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  ~Entry() { zip_error_fini(&error); }

  // Fills `into` and returns the number of bytes, which is smaller only at the end of the entry; -1
  // after an error.
  zip_int64_t Read(absl::Span<std::byte> into) {
    size_t filled = 0;
    while (filled < into.size()) {
      if (at_hand.empty()) {
        if (left == 0) break;
        absl::StatusOr<absl::Span<const std::byte>> next = array.next();
        if (next.ok() && (next->empty() || next->size() > left)) {
          next = absl::InternalError(
              absl::StrCat(array.name, ": the number of bytes differs from the shape's"));
        }
        if (!next.ok()) {
          status = next.status();
          zip_error_set(&error, ZIP_ER_READ, 0);
          return -1;
        }
        at_hand = *next;
        left -= at_hand.size();
      }
      const size_t count = std::min(at_hand.size(), into.size() - filled);
      std::memcpy(into.data() + filled, at_hand.data(), count);
      at_hand.remove_prefix(count);
      filled += count;
    }
    return static_cast<zip_int64_t>(filled);
  }

  static zip_int64_t Callback(void* self, void* data, zip_uint64_t size, zip_source_cmd_t command) {
    Entry& entry = *static_cast<Entry*>(self);
    switch (command) {
      case ZIP_SOURCE_OPEN:
      case ZIP_SOURCE_CLOSE:
      case ZIP_SOURCE_FREE:
        return 0;
      case ZIP_SOURCE_READ:
        return entry.Read({static_cast<std::byte*>(data), size});
      case ZIP_SOURCE_STAT: {
        auto* const stat = static_cast<zip_stat_t*>(data);
        zip_stat_init(stat);
        stat->size = entry.left + entry.at_hand.size();
        stat->valid |= ZIP_STAT_SIZE;
        return sizeof(*stat);
      }
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&entry.error, data, size);
      case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              -1);
      default:
        zip_error_set(&entry.error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
  }
};

absl::Status ZipError(const std::string& path, const char* why) {
  return absl::UnavailableError(absl::StrCat(path, ": cannot be written: ", why));
}

}  // namespace

absl::Status WriteNpz(const std::string& path, std::vector<NpyArray> arrays) {
  int code = 0;
  zip_t* const archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
  if (archive == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    absl::Status status = ZipError(path, zip_error_strerror(&error));
    zip_error_fini(&error);
    return status;
  }
  std::vector<std::unique_ptr<Entry>> entries;
  absl::Status status;
  for (NpyArray& array : arrays) {
    const std::string name = absl::StrCat(array.name, ".npy");
    entries.push_back(std::make_unique<Entry>(std::move(array)));
    zip_source_t* const source =
        zip_source_function(archive, Entry::Callback, entries.back().get());
    const zip_int64_t index =
        source == nullptr ? -1 : zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0 || zip_set_file_compression(archive, index, ZIP_CM_STORE, 0) != 0) {
      if (index < 0 && source != nullptr) zip_source_free(source);
      status = ZipError(path, zip_strerror(archive));
      break;
    }
  }
  if (status.ok() && zip_close(archive) == 0) return absl::OkStatus();
  if (status.ok()) status = ZipError(path, zip_strerror(archive));
  zip_discard(archive);
  for (const auto& entry : entries) {
    if (!entry->status.ok()) return entry->status;
  }
  return status;
}

}  // namespace tandem
