#include "kernels/cuda/cuda_graph_cache.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/string_view.h"

namespace tandem::cuda {

void CudaGraphCache::Run(absl::Span<const int64_t> key, absl::FunctionRef<void()> enqueue) {
  if (!backend_.health().ok()) return;
  // Operations must be the same each time, whatever came before.
  backend_.ForgetRows();
  if (backend_.is_recording()) return enqueue();  // part of an outer recording
  if (scratch_generation_ != backend_.scratch_generation()) Forget();
  std::vector<int64_t> words(key.begin(), key.end());
  const auto found = entries_.find(words);
  if (found == entries_.end()) {
    MakeRoom();
    entries_[std::move(words)].last_use = ++num_uses_;
    return enqueue();
  }
  Entry& entry = found->second;
  entry.last_use = ++num_uses_;
  if (entry.recording == nullptr && !entry.cannot_be_recorded) {
    const absl::StatusOr<Recording> recording = backend_.Record(enqueue);
    if (recording.ok()) {
      entry.recording = *recording;
    } else if (backend_.has_ranks()) {
      return backend_.Note(recording.status());  // the other ranks replay their recordings
    } else {
      entry.cannot_be_recorded = true;
      Log(LogLevel::kWarning,
          absl::StrCat("device=", View(backend_.name()), " repeats=false reason=\"",
                       recording.status().message(), "\""));
    }
  }
  if (entry.recording == nullptr) return enqueue();
  backend_.Repeat(entry.recording);
}

void CudaGraphCache::Forget() {
  for (auto& [key, entry] : entries_) cuda::Forget(std::exchange(entry.recording, nullptr));
  scratch_generation_ = backend_.scratch_generation();
}

void CudaGraphCache::MakeRoom() {
  if (static_cast<int>(entries_.size()) < kMaxKeys) return;
  const auto oldest = std::min_element(
      entries_.begin(), entries_.end(),
      [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
  cuda::Forget(oldest->second.recording);
  entries_.erase(oldest);
}

int CudaGraphCache::num_recordings() const {
  return static_cast<int>(std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry.second.recording != nullptr;
  }));
}

}  // namespace tandem::cuda
