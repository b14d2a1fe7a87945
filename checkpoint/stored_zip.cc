#include "checkpoint/stored_zip.h"

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "json/json_text.h"

namespace tandem {
namespace {

// Sections by their signatures, and the bytes of their fixed parts.
constexpr uint32_t kLocal = 0x04034b50, kDirectory = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr size_t kLocalBytes = 30, kDirectoryBytes = 46, kEndBytes = 22;
constexpr size_t kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // a number that the extra field has

class ZipReader {
 public:
  ZipReader(absl::Span<const std::byte> file, absl::string_view name) : file_(file), name_(name) {}

  absl::StatusOr<std::vector<ZipEntry>> Read() const {
    if (!IsAt(kEnd, file_.size() - kEndBytes, kEndBytes)) {
      return Wrong("no end of a zip archive", "what torch.save has written since version 1.6");
    }
    const size_t end = file_.size() - kEndBytes;
    uint64_t count = Int<uint16_t>(end + 10), size = Int<uint32_t>(end + 12);
    uint64_t place = Int<uint32_t>(end + 16);
    if (IsAt(kLocator64, end - kLocator64Bytes, kLocator64Bytes)) {
      const uint64_t end64 = Int<uint64_t>(end - kLocator64Bytes + 8);
      if (!IsAt(kEnd64, end64, kEnd64Bytes)) return Wrong("no zip64 end", "one at its offset");
      count = Int<uint64_t>(end64 + 32);
      size = Int<uint64_t>(end64 + 40);
      place = Int<uint64_t>(end64 + 48);
    }
    if (!Holds(place, size)) return Wrong("a directory past the end", "one in the file");
    std::vector<ZipEntry> entries;
    for (const uint64_t stop = place + size; place < stop;) {
      if (!IsAt(kDirectory, place, kDirectoryBytes))
        return Wrong("no entry", "a directory of them");
      const uint64_t name_bytes = Int<uint16_t>(place + 28),
                     extra_bytes = Int<uint16_t>(place + 30);
      const uint64_t entry_bytes =
          kDirectoryBytes + name_bytes + extra_bytes + Int<uint16_t>(place + 32);
      if (entry_bytes > stop - place) return Wrong("an entry past the directory", "one in it");
      ASSIGN_OR_RETURN(entries.emplace_back(), ReadEntry(place, name_bytes, extra_bytes));
      place += entry_bytes;
    }
    if (entries.size() == count) return entries;
    return Wrong(absl::StrCat(entries.size(), " entries"), absl::StrCat(count, ", as it says"));
  }

 private:
  // The entry whose place in the directory is `place`, all of it in the file.
  absl::StatusOr<ZipEntry> ReadEntry(uint64_t place, size_t name_bytes, size_t extra_bytes) const {
    ZipEntry entry;
    entry.name = {reinterpret_cast<const char*>(&file_[place]) + kDirectoryBytes, name_bytes};
    const std::string of_entry = absl::StrCat("entry ", Quoted(entry.name), ": ");
    const int method = Int<uint16_t>(place + 10);
    uint64_t stored = Int<uint32_t>(place + 20), size = Int<uint32_t>(place + 24);
    uint64_t local = Int<uint32_t>(place + 42);
    const absl::Span<const std::byte> extra =
        file_.subspan(place + kDirectoryBytes + name_bytes, extra_bytes);
    for (size_t i = 0; i + 4 <= extra.size();) {
      const size_t at = extra.data() + i - file_.data();
      const uint16_t id = Int<uint16_t>(at), field_bytes = Int<uint16_t>(at + 2);
      if (field_bytes > extra.size() - i - 4) break;
      size_t next = at + 4;
      for (uint64_t* const number : {&size, &stored, &local}) {
        if (id != 1 || *number != kIn64 || next + 8 > at + 4 + field_bytes) continue;
        *number = Int<uint64_t>(next);
        next += 8;
      }
      i += size_t{4} + field_bytes;
    }
    if (method != 0 || stored != size) {
      return Wrong(absl::StrCat(of_entry, "method ", method), "0, not compressed");
    }
    if (!IsAt(kLocal, local, kLocalBytes)) {
      return Wrong(absl::StrCat(of_entry, "no header"), "one at its offset");
    }
    const uint64_t data =
        local + kLocalBytes + Int<uint16_t>(local + 26) + Int<uint16_t>(local + 28);
    if (!Holds(data, size)) {
      return Wrong(absl::StrCat(of_entry, size, " bytes at ", data), "bytes in the file");
    }
    entry.bytes = file_.subspan(data, size);
    return entry;
  }

  bool Holds(uint64_t place, uint64_t size) const {
    return place <= file_.size() && size <= file_.size() - place;
  }
  bool IsAt(uint32_t signature, uint64_t place, uint64_t size) const {
    return Holds(place, size) && Int<uint32_t>(place) == signature;
  }
  template <typename T>
  T Int(size_t place) const {
    T value;
    std::memcpy(&value, &file_[place], sizeof(T));
    return value;
  }
  absl::Status Wrong(absl::string_view found, absl::string_view allowed) const {
    return NotAllowed(name_, found, allowed);
  }

  const absl::Span<const std::byte> file_;
  const absl::string_view name_;
};

}  // namespace

absl::StatusOr<std::vector<ZipEntry>> ReadStoredZip(absl::Span<const std::byte> file,
                                                    absl::string_view file_name) {
  return ZipReader(file, file_name).Read();
}

}  // namespace tandem
