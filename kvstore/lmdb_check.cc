#include "kvstore/lmdb_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

// ---- The format, as mdb.c of LMDB 0.9 declares it ----

constexpr uint64_t kNoPage = ~uint64_t{0};
constexpr uint32_t kMagic = 0xBEEFC0DE;
constexpr uint32_t kFormat = 1;
constexpr int kNumRoots = 2;
constexpr int kDeepest = 32;
constexpr size_t kLongestKey = 511;

enum PageFlags : uint16_t { kBranch = 0x01, kLeaf = 0x02, kOverflow = 0x04, kMeta = 0x08 };
enum NodeFlags : uint16_t { kBigData = 0x01, kSubData = 0x02 };

struct PageHeader {
  uint64_t number;
  uint16_t pad;
  uint16_t flags;
  uint16_t lower;  // of an overflow page these two are the number of its pages
  uint16_t upper;
  uint32_t num_pages() const { return lower | uint32_t{upper} << 16; }
};
struct NodeHeader {
  uint16_t low;
  uint16_t high;
  uint16_t flags;
  uint16_t key_size;
  uint32_t data_size() const { return low | uint32_t{high} << 16; }
  uint64_t child() const { return data_size() | uint64_t{flags} << 32; }
};
struct Table {
  uint32_t pad;  // of the free pages' table in a root: the size of pages
  uint16_t flags;
  uint16_t depth;
  uint64_t branch_pages, leaf_pages, overflow_pages, entries;
  uint64_t root;
};
struct Root {
  uint32_t magic;
  uint32_t format;
  uint64_t address, map_size;
  Table free, main;
  uint64_t last_page;
  uint64_t transaction;
};
static_assert(sizeof(PageHeader) == 16 && sizeof(NodeHeader) == 8 && sizeof(Table) == 48 &&
              sizeof(Root) == 136);

constexpr uint16_t kIntegerKeys = MDB_INTEGERKEY;
// Of the environment, kept in a root with those of the free pages' table.
constexpr uint16_t kMayBeSet = MDB_NOSUBDIR;

absl::Status Damaged(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, ": is damaged: ", what));
}

// A file that is read piece by piece: mapped, what was cut off would end the process.
class File {
 public:
  File(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  absl::Status Read(uint64_t at, void* into, size_t size) const {
    if (pread(descriptor_, into, size, static_cast<off_t>(at)) == static_cast<ssize_t>(size)) {
      return absl::OkStatus();
    }
    return Damaged(path_, absl::StrCat("cut off before byte ", at + size));
  }

  // One of the two roots.
  absl::StatusOr<Root> ReadRoot(int index, uint32_t page_size) const {
    struct {
      PageHeader header;
      Root root;
    } page;
    RETURN_IF_ERROR(Read(index * uint64_t{page_size}, &page, sizeof(page)));
    const Root& root = page.root;
    struct stat info = {};
    const uint64_t size = fstat(descriptor_, &info) == 0 ? info.st_size : 0;
    const bool is_right = page.header.number == static_cast<uint64_t>(index) &&
                          page.header.flags == kMeta && root.magic == kMagic &&
                          root.format == kFormat && root.free.pad == page_size &&
                          (root.free.flags & ~kMayBeSet) == kIntegerKeys && root.main.flags == 0 &&
                          root.main.pad == 0 && root.last_page < size / page_size;
    if (!is_right) return Damaged(path_, absl::StrCat("root ", index));
    return root;
  }

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const int descriptor_;
};

// A snapshot's pages, each of which may be used once.
class Walk {
 public:
  Walk(const File& file, const Root& root)
      : file_(file), page_size_(root.free.pad), used_(root.last_page + 1) {}

  absl::Status CheckAll(const Root& root) {
    for (uint64_t page = 0; page < kNumRoots && page < used_.size(); ++page) used_[page] = true;
    RETURN_IF_ERROR(CheckTable(root.main, [&](const NodeHeader& node, absl::string_view data) {
      return CheckNamedTable(node, data);
    }));
    RETURN_IF_ERROR(CheckTable(root.free, [&](const NodeHeader& node, absl::string_view data) {
      return CheckFreePages(node, data);
    }));
    for (const auto& [page, num_pages] : overflows_) {
      PageHeader header;
      RETURN_IF_ERROR(file_.Read(page * page_size_, &header, sizeof(header)));
      if (header.number != page || header.flags != kOverflow || header.num_pages() != num_pages) {
        return Broken(page);
      }
    }
    return absl::OkStatus();
  }

 private:
  using OnNode = absl::FunctionRef<absl::Status(const NodeHeader&, absl::string_view data)>;

  absl::Status Broken(uint64_t page) const {
    return Damaged(file_.path(), absl::StrCat("page ", page));
  }

  absl::Status Claim(uint64_t page, uint64_t count = 1) {
    if (page >= used_.size() || count > used_.size() - page) return Broken(page);
    for (uint64_t i = page; i < page + count; ++i) {
      if (used_[i]) return Broken(i);
      used_[i] = true;
    }
    return absl::OkStatus();
  }

  absl::Status CheckTable(const Table& table, OnNode on_leaf) {
    if (table.root == kNoPage) return absl::OkStatus();
    if (table.depth == 0 || table.depth >= kDeepest) return Broken(table.root);
    return CheckPage(table.root, table.depth, on_leaf);
  }

  // `height`: of the tree from this page on; 1 for a leaf.
  absl::Status CheckPage(uint64_t page, int height, OnNode on_leaf) {
    RETURN_IF_ERROR(Claim(page));
    std::vector<char> bytes(page_size_);
    RETURN_IF_ERROR(file_.Read(page * page_size_, bytes.data(), bytes.size()));
    PageHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    const bool is_leaf = height == 1;
    if (header.number != page || header.flags != (is_leaf ? kLeaf : kBranch) ||
        header.lower <= sizeof(header) || header.lower % 2 != 0 || header.lower > header.upper ||
        header.upper > page_size_) {
      return Broken(page);
    }
    size_t num_bytes = 0;  // of nodes, which fill the page's end without a gap
    for (size_t at = sizeof(header); at < header.lower; at += sizeof(uint16_t)) {
      uint16_t offset = 0;
      std::memcpy(&offset, bytes.data() + at, sizeof(offset));
      NodeHeader node;
      if (offset < header.upper || offset % 2 != 0 || offset + sizeof(node) > page_size_) {
        return Broken(page);
      }
      std::memcpy(&node, bytes.data() + offset, sizeof(node));
      const bool is_far = is_leaf && (node.flags & kBigData) != 0;
      const size_t data_size = !is_leaf ? 0 : is_far ? sizeof(uint64_t) : node.data_size();
      const size_t size = sizeof(node) + node.key_size + data_size;
      if (node.key_size > kLongestKey || offset + size > page_size_) return Broken(page);
      num_bytes += size + size % 2;
      if (!is_leaf) {
        RETURN_IF_ERROR(CheckPage(node.child(), height - 1, on_leaf));
        continue;
      }
      const char* data = bytes.data() + offset + sizeof(node) + node.key_size;
      if (is_far) RETURN_IF_ERROR(ClaimOverflow(node, data));
      RETURN_IF_ERROR(on_leaf(node, {data, data_size}));
    }
    return num_bytes == page_size_ - header.upper ? absl::OkStatus() : Broken(page);
  }

  // The pages of a value that lies elsewhere: the first is written at `data`.
  absl::Status ClaimOverflow(const NodeHeader& node, const char* data) {
    uint64_t first = 0;
    std::memcpy(&first, data, sizeof(first));
    const uint64_t count =
        (sizeof(PageHeader) + uint64_t{node.data_size()} + page_size_ - 1) / page_size_;
    overflows_.emplace_back(first, count);
    return Claim(first, count);
  }

  absl::Status CheckNamedTable(const NodeHeader& node, absl::string_view data) {
    Table table;
    if (node.flags != kSubData || data.size() != sizeof(table)) {
      return Damaged(file_.path(), "the list of tables");
    }
    std::memcpy(&table, data.data(), sizeof(table));
    if (table.flags != 0 || table.pad != 0) return Broken(table.root);
    return CheckTable(table, [this](const NodeHeader& entry, absl::string_view /*data*/) {
      return (entry.flags & ~kBigData) == 0 ? absl::OkStatus()
                                            : Damaged(file_.path(), "an entry of a table");
    });
  }

  // A list of pages that may be used again: their count, then they, in descending order.
  absl::Status CheckFreePages(const NodeHeader& node, absl::string_view data) {
    std::vector<uint64_t> pages(node.data_size() / sizeof(uint64_t));
    const size_t num_bytes = pages.size() * sizeof(uint64_t);
    if ((node.flags & kBigData) != 0) {
      const uint64_t first = overflows_.back().first;
      RETURN_IF_ERROR(file_.Read(first * page_size_ + sizeof(PageHeader), pages.data(), num_bytes));
    } else if (num_bytes > 0) {
      std::memcpy(pages.data(), data.data(), num_bytes);
    }
    if ((node.flags & ~kBigData) != 0 || node.key_size != sizeof(uint64_t) || pages.empty() ||
        pages[0] >= pages.size()) {
      return Damaged(file_.path(), "the list of free pages");
    }
    for (uint64_t i = 1; i <= pages[0]; ++i) {
      if (i > 1 && pages[i] >= pages[i - 1]) return Broken(pages[i]);
      RETURN_IF_ERROR(Claim(pages[i]));
    }
    return absl::OkStatus();
  }

  const File& file_;
  const size_t page_size_;
  std::vector<bool> used_;                                // [pages of the file]
  std::vector<std::pair<uint64_t, uint64_t>> overflows_;  // first page, number of pages
};

}  // namespace

absl::Status CheckLmdbRoots(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return absl::OkStatus();  // who opens it learns why
  absl::Cleanup closing = [descriptor] { close(descriptor); };
  struct stat info = {};
  if (fstat(descriptor, &info) != 0 || info.st_size == 0) return absl::OkStatus();
  const File file(path, descriptor);
  const auto page_size = static_cast<uint32_t>(sysconf(_SC_PAGESIZE));
  for (int i = 0; i < kNumRoots; ++i) RETURN_IF_ERROR(file.ReadRoot(i, page_size).status());
  return absl::OkStatus();
}

absl::Status CheckLmdbPages(MDB_env* env, const std::string& path) {
  int descriptor = -1;
  MDB_txn* txn = nullptr;
  if (mdb_env_get_fd(env, &descriptor) != 0 || mdb_txn_begin(env, nullptr, MDB_RDONLY, &txn) != 0) {
    return Damaged(path, "cannot be read");
  }
  absl::Cleanup abort = [txn] { mdb_txn_abort(txn); };
  const File file(path, descriptor);
  const auto page_size = static_cast<uint32_t>(sysconf(_SC_PAGESIZE));
  // Transactions write the two roots by turns: another process may have come to this one again.
  constexpr int kMostTries = 100;
  for (int i = 0; i < kMostTries; ++i) {
    const uint64_t transaction = mdb_txn_id(txn);
    ASSIGN_OR_RETURN(const Root root, file.ReadRoot(transaction % kNumRoots, page_size));
    if (root.transaction == transaction) return Walk(file, root).CheckAll(root);
    mdb_txn_reset(txn);
    if (mdb_txn_renew(txn) != 0) break;
  }
  return Damaged(path, "no root is that of its last transaction");
}

}  // namespace tandem
