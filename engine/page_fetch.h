#ifndef TANDEM_ENGINE_PAGE_FETCH_H_
#define TANDEM_ENGINE_PAGE_FETCH_H_

#include <memory>
#include <utility>

#include "base/instant.h"
#include "kvcache/store/fetch.h"

namespace tandem {

class SessionTransfer;

// A fetch of the pages that a prompt lacks, from the store or another worker. Sessions whose
// prompts lack the same first page share one.
class PromptFetch {
 public:
  PromptFetch(std::shared_ptr<Fetch> fetch, bool is_transfer)
      : fetch_(std::move(fetch)), is_transfer_(is_transfer) {}
  ~PromptFetch() { fetch_->Cancel(); }
  PromptFetch(const PromptFetch&) = delete;
  PromptFetch& operator=(const PromptFetch&) = delete;

  Fetch& fetch() const { return *fetch_; }
  bool is_transfer() const { return is_transfer_; }  // from another worker, not from the store
  // Number of pages inserted into a cache so far.
  int num_inserted() const { return num_inserted_; }
  void CountInserted(int num_pages) { num_inserted_ += num_pages; }

 private:
  const std::shared_ptr<Fetch> fetch_;
  const bool is_transfer_;
  int num_inserted_ = 0;
};

// The pages that a session fetches, and those that it hands over to other workers. PromptStore
// uses it.
struct PageFetch {
  std::shared_ptr<SessionTransfer> transfer{};  // null unless its prompt's pages are transferred
  std::shared_ptr<PromptFetch> pages{};         // being fetched; null if none
  Instant begun{};                              // when the fetch began
  int first_token = 0;                          // tokens in the target's cache at that time
  int num_seen = 0;                             // pages of both caches, seen by this session
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_PAGE_FETCH_H_
