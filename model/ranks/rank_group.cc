#include "model/ranks/rank_group.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"
#include "tandem/parameter.h"

namespace tandem {
namespace {

class DeviceRanks final : public RankGroup {
 public:
  DeviceRanks(RankGroup* host, ColumnGatherer* gatherer)
      : RankGroup(host->rank(), host->world()), host_(*host), gatherer_(*gatherer) {}

  absl::StatusOr<Buffer> Memory(int slot, size_t bytes, Backend* backend) override {
    TANDEM_CHECK(0 <= slot && slot < kNumSlots && backend->gatherer() == &gatherer_);
    return backend->Allocate(bytes);
  }

  void FillReplicated(absl::FunctionRef<void()> fill) override { fill(); }

  void AllGather(absl::FunctionRef<void(int, UsePiece)> /*for_each_piece*/) override {
    TANDEM_CHECK(!gathers_pieces());
  }
  bool gathers_pieces() const override { return false; }

  void GatherColumns(MatrixView whole, absl::FunctionRef<RankShare(int)> columns) override {
    std::array<int, kMaxRanks + 1> bounds;
    for (int r = 0; r < world(); ++r) {
      const RankShare share = columns(r);
      TANDEM_CHECK(r == 0 || share.begin == bounds[r]);
      bounds[r] = share.begin;
      bounds[r + 1] = share.end;
    }
    gatherer_.GatherColumns(whole, absl::MakeConstSpan(bounds).first(world() + 1));
  }

  absl::Status Send(absl::Span<const std::byte> message) override { return host_.Send(message); }
  absl::StatusOr<absl::Span<const std::byte>> Receive() override { return host_.Receive(); }
  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& words) override {
    return host_.Exchange(words);
  }
  absl::Status status() const override { return host_.status(); }
  void Fail(absl::Status why) override { host_.Fail(std::move(why)); }

 private:
  RankGroup& host_;
  ColumnGatherer& gatherer_;
};

}  // namespace

absl::Status CheckRank(int rank, int least, int world) {
  if (least <= rank && rank < world) return absl::OkStatus();
  return FieldError("rank",
                    absl::StrCat("must be from ", least, " to ", world - 1, ", got ", rank));
}

void RankGroup::GatherColumns(MatrixView whole, absl::FunctionRef<RankShare(int rank)> columns) {
  AllGather([&](int rank, UsePiece use) {
    const RankShare share = columns(rank);
    if (share.size() == 0) return;
    for (int64_t r = 0; r < whole.rows; ++r) {
      use(static_cast<float*>(whole.data) + r * whole.stride + share.begin,
          sizeof(float) * share.size());
    }
  });
}

absl::StatusOr<std::unique_ptr<RankGroup>> JoinDeviceRanks(RankGroup* host, Backend* backend,
                                                           const std::string& devices) {
  ColumnGatherer* const gatherer = backend->gatherer();
  TANDEM_CHECK(gatherer != nullptr);
  RETURN_IF_ERROR(
      gatherer->Join(devices, host->rank(), host->world(), [host](const absl::Status& of_device) {
        if (!of_device.ok()) host->Fail(of_device);
        return host->status();
      }));
  return std::make_unique<DeviceRanks>(host, gatherer);
}

}  // namespace tandem
