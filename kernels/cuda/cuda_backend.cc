#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "kernels/cuda/cuda_graph_cache.h"
#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/packing.h"
#include "kernels/cuda/row_plan.h"

namespace tandem::cuda {
namespace {

// The minimum compute capability: Ampere introduced products of bf16 and asynchronous copies.
constexpr int kMinMajor = 8;

// The bytes from the first to the last element.
size_t SpanBytes(const ConstMatrixView& x) {
  if (x.rows == 0) return 0;
  return sizeof(float) * (static_cast<size_t>(x.stride) * (x.rows - 1) + x.cols);
}

std::string Description(const DeviceProperties& device) {
  return absl::StrCat(device.name, ", sm_", device.major, device.minor, ", ", device.num_sms,
                      " SMs, ", device.memory_bytes >> 30, " GiB");
}

}  // namespace

CudaBackend::CudaBackend(int device, const DeviceProperties& properties, Stream stream,
                         const CudaOptions& options)
    : stream_(stream),
      num_sms_(properties.num_sms),
      name_(absl::StrCat("cuda:", device)),
      description_(Description(properties)),
      errors_(name_, stream),
      page_mover_(std::make_unique<PageMover>(stream, &errors_)),
      uploads_(std::make_unique<PinnedUploads>(stream)),
      packer_(this, stream, options.keeps_f16),
      products_(std::make_unique<CublasProducts>(this, stream, num_sms_)),
      reference_(std::make_unique<CublasReference>(this, stream)),
      tuner_(this, properties, stream),
      prepared_rows_([this](Buffer* buffer, size_t bytes) { return Reserve(buffer, bytes); }) {}

CudaBackend::~CudaBackend() {
  page_mover_.reset();
  uploads_.reset();
  nccl_.reset();
  products_.reset();
  reference_.reset();
  gathered_parts_ = Buffer();
  kept_scratch_.clear();
  prepared_rows_.FreeMemory();
  split_parts_ = Buffer();
  sampling_tables_ = Buffer();
  const Error error = CloseDevice(stream_);
  if (error == kNoError || !errors_.lost().ok()) return;
  Log(LogLevel::kWarning, StdView(errors_.StatusOf(error, "closing the device").message()));
}

void CudaBackend::Note(absl::Status status) {
  if (failure_.ok()) failure_ = std::move(status);
}

void CudaBackend::Note(Error error, absl::string_view operation) {
  if (error != kNoError) Note(errors_.StatusOf(error, operation));
}

// ---- Memory ----

std::optional<int64_t> CudaBackend::free_memory_bytes() {
  size_t bytes = 0;
  Note(FreeMemory(stream_, &bytes), "querying free memory");
  return static_cast<int64_t>(bytes) + products_->copy_bytes();  // released on demand
}

absl::StatusOr<Buffer> CudaBackend::Allocate(size_t bytes) {
  void* data = nullptr;
  Error error = cuda::Allocate(stream_, bytes, &data);
  const bool can_forget = !is_recording_ && !(has_ranks_ && has_recorded_);
  if (IsOutOfMemory(error) && can_forget && products_->Release()) {
    ++scratch_generation_;
    error = cuda::Allocate(stream_, bytes, &data);
  }
  if (error == kNoError) return Buffer(this, data, bytes);
  if (!IsOutOfMemory(error)) return errors_.StatusOf(error, "allocating memory");
  return absl::ResourceExhaustedError(
      absl::StrCat(name_, ": no memory for ", bytes, " bytes: ", ErrorText(error)));
}

void CudaBackend::Free(void* data, size_t bytes) {
  prepared_rows_.Overwrite(data, bytes);
  if (products_ != nullptr) products_->Remove(data);
  Note(cuda::Free(stream_, data), "freeing memory");
}

void CudaBackend::Upload(absl::Span<const std::byte> host, void* device) {
  if (host.empty()) return;
  prepared_rows_.Overwrite(device, host.size());
  Note(uploads_->Upload(host, device), "copying to the device");
}

void CudaBackend::Download(const void* device, absl::Span<std::byte> host) {
  if (host.empty()) return;
  TANDEM_CHECK(!prepared_rows_.IsUnwritten(device, host.size()));
  Note(CopyOut(device, host.data(), host.size(), stream_), "copying from the device");
}

void CudaBackend::Copy(const void* from, void* to, size_t bytes) {
  if (bytes == 0) return;
  TANDEM_CHECK(!prepared_rows_.IsUnwritten(from, bytes));
  prepared_rows_.Overwrite(to, bytes);
  Note(CopyWithin(from, to, bytes, stream_), "copying");
}

absl::Status CudaBackend::Synchronize() {
  Note(Wait(stream_), "waiting");
  return TakeFailure();
}
absl::Status CudaBackend::TakeFailure() {
  if (has_ranks_) Note(nccl_->status());
  absl::Status failure = std::exchange(failure_, absl::OkStatus());
  return errors_.lost().ok() ? failure : errors_.lost();
}

void* CudaBackend::Reserve(Buffer* scratch, size_t bytes) {
  if (scratch->size_bytes() < bytes) {
    const bool keeps = has_ranks_ && scratch->size_bytes() > 0;
    if (keeps) kept_scratch_.push_back(std::move(*scratch));
    *scratch = Buffer();
    absl::StatusOr<Buffer> larger = Allocate(bytes);
    if (!larger.ok()) {
      Note(larger.status());
      return nullptr;
    }
    *scratch = *std::move(larger);
    if (!keeps) ++scratch_generation_;
  }
  return scratch->data();
}

absl::StatusOr<PackedWeight> CudaBackend::Pack(absl::Span<const WeightPart> parts, PartOrder order,
                                               std::optional<DType> dtype) {
  ASSIGN_OR_RETURN(PackedWeight weight, packer_.Pack(parts, order, dtype));
  const int num_tiles = TileLayout(parts, order).num_tiles();
  if (IsInTiles(weight.dtype)) {
    tuner_.Add({weight.dtype, num_tiles, NumSteps(weight.inputs)}, order, weight.data.data(),
               weight.bytes_read);
  }
  if (weight.dtype == DType::kBF16) {
    products_->Add(weight.data.data(), num_tiles, weight.inputs);
    ++scratch_generation_;
  }
  return weight;
}

absl::StatusOr<ConstMatrixView> CudaBackend::Import(ConstMatrixView host, Buffer* storage) {
  return packer_.Import(host, storage);
}

std::unique_ptr<GraphCache> CudaBackend::MakeGraphCache() {
  return std::make_unique<CudaGraphCache>(this);
}

absl::StatusOr<Recording> CudaBackend::Record(absl::FunctionRef<void()> enqueue) {
  absl::Status before = std::exchange(failure_, absl::OkStatus());
  Recording recording = nullptr;
  Note(BeginRecording(stream_), "recording");
  if (failure_.ok()) {
    is_recording_ = has_recorded_ = true;
    ForgetRows();
    enqueue();
    ForgetRows();
    is_recording_ = false;
    Note(EndRecording(stream_, &recording), "recording");
  }
  absl::Status failure = std::exchange(failure_, std::move(before));
  if (failure.ok()) return recording;
  Forget(recording);
  return failure;
}

void CudaBackend::WillRead(const ConstMatrixView& x) const {
  TANDEM_CHECK(x.dtype == DType::kF32 && x.stride >= x.cols);
  TANDEM_CHECK(!prepared_rows_.IsUnwritten(x.data, SpanBytes(x)));
}

void CudaBackend::WillWrite(const MatrixView& out) {
  TANDEM_CHECK(out.dtype == DType::kF32 && out.stride >= out.cols);
  prepared_rows_.Overwrite(out.data, SpanBytes(out));
}

// ---- Rows ----

void CudaBackend::Embed(const int32_t* ids, ConstMatrixView table, MatrixView out,
                        const NextProduct& next) {
  WillWrite(out);
  TANDEM_CHECK(table.cols == out.cols);
  const EmbedTask task{.ids = ids,
                       .table = table,
                       .out = out,
                       .next = prepared_rows_.Make(out, next, /*is_only=*/false)};
  Note(Launch(task, stream_), "embedding");
}

void CudaBackend::GatherRows(ConstMatrixView x, const int32_t* indices, MatrixView out) {
  WillRead(x);
  WillWrite(out);
  TANDEM_CHECK(x.cols == out.cols);
  Note(Launch(GatherRowsTask{.x = x, .indices = indices, .out = out}, stream_), "gathering rows");
}

void CudaBackend::ArgMax(ConstMatrixView x, int32_t* largest) {
  WillRead(x);
  Note(Launch(ArgMaxTask{.x = x, .largest = largest}, stream_), "argmax");
}

void CudaBackend::RmsNorm(ConstMatrixView x, const float* weight, float epsilon, MatrixView out) {
  WillRead(x);
  WillWrite(out);
  TANDEM_CHECK(x.rows == out.rows && x.cols == out.cols);
  Note(Launch(RmsNormTask{.x = x, .weight = weight, .epsilon = epsilon, .out = out}, stream_),
       "normalising");
}

void CudaBackend::SubtractMean(ConstMatrixView x, MatrixView out) {
  WillRead(x);
  WillWrite(out);
  TANDEM_CHECK(x.rows == out.rows && x.cols == out.cols);
  Note(Launch(SubtractMeanTask{.x = x, .out = out}, stream_), "subtracting means");
}

void CudaBackend::ScaleAndCap(float scale, float soft_cap, MatrixView x) {
  WillRead(x);
  WillWrite(x);
  TANDEM_CHECK(soft_cap >= 0.0f);
  Note(Launch(ScaleAndCapTask{.scale = scale, .soft_cap = soft_cap, .x = x}, stream_), "scaling");
}

void CudaBackend::AddScaled(ConstMatrixView x, float scale, MatrixView sum) {
  WillRead(x);
  WillRead(sum);
  WillWrite(sum);
  TANDEM_CHECK(x.rows == sum.rows && x.cols == sum.cols);
  Note(Launch(AddScaledTask{.x = x, .scale = scale, .sum = sum}, stream_), "adding");
}

// ---- Products ----

void CudaBackend::Product(ConstMatrixView x, const PackedWeight& weight, Epilogue end,
                          MatrixView out, const NextProduct& next) {
  TANDEM_CHECK(x.rows == out.rows && x.cols == weight.inputs);
  if (x.rows == 0) return;
  if (IsInTiles(weight.dtype)) return MultiplyTiles(x, {}, weight, end, out, next);
  WillRead(x);
  WillWrite(out);
  const ConstMatrixView matrix(weight.data.data(), weight.dtype, weight.outputs, weight.inputs,
                               weight.inputs);
  const FloatProductTask task{.x = x,
                              .weight = matrix,
                              .bias = static_cast<const float*>(weight.bias.data()),
                              .end = end,
                              .out = out};
  Note(Launch(task, stream_), "multiplying");
}

void CudaBackend::NormedProduct(const NormedRows& rows, const PackedWeight& weight, Epilogue end,
                                MatrixView out, const NextProduct& next) {
  if (!IsInTiles(weight.dtype) || rows.weight == nullptr) {
    return Backend::NormedProduct(rows, weight, end, out, next);
  }
  TANDEM_CHECK(rows.x.rows == out.rows && rows.x.cols == weight.inputs);
  if (out.rows == 0) return;
  MultiplyTiles(rows.x, {.weight = rows.weight, .epsilon = rows.epsilon}, weight, end, out, next);
}

PreparedRows::Rows CudaBackend::RowsFor(const ConstMatrixView& x, const NormTask& norm,
                                        bool quantizes) {
  PreparedRows::Rows rows;
  if (!quantizes) rows = prepared_rows_.Find(x, norm.weight);
  if (rows.data != nullptr) return rows;
  WillRead(x);
  const size_t num_squares =
      norm.weight == nullptr ? 0 : static_cast<size_t>(x.rows) * NumSquares(x.cols);
  rows = prepared_rows_.Scratch(
      quantizes ? PackedWholeRowsBytes(x.rows, x.cols) : RowsImageBytes(x.rows, x.cols),
      num_squares);
  if (rows.data == nullptr) return rows;
  const PackRowsTask pack{
      .x = x, .out = rows.data, .quantizes = quantizes, .norm = norm, .squares = rows.squares};
  Note(Launch(pack, stream_), "rounding activations");
  return rows;
}

void CudaBackend::MultiplyTiles(ConstMatrixView x, const NormTask& norm, const PackedWeight& weight,
                                Epilogue end, MatrixView out, const NextProduct& next) {
  TANDEM_CHECK(!IsGated(end) || next.norm == nullptr);
  if (!errors_.lost().ok()) return;
  const PreparedRows::Rows rows = RowsFor(x, norm, IsBlocks(weight.dtype));
  WillWrite(out);
  const int tile_outputs = IsGated(end) ? kTileOutputs / 2 : kTileOutputs;
  TileProductTask task{.x = x,
                       .rows = rows.data,
                       .norm = norm,
                       .squares = rows.squares,
                       .weight = weight.data.data(),
                       .dtype = weight.dtype,
                       .bias = static_cast<const float*>(weight.bias.data()),
                       .num_tiles = CeilDiv(out.cols, tile_outputs),
                       .num_sms = num_sms_,
                       .end = end,
                       .out = out};
  if (weight.dtype == DType::kBF16) task.next = prepared_rows_.Make(out, next, IsGated(end));
  if (IsGated(end) && task.next.image != nullptr) task.out.data = nullptr;
  prepared_rows_.Done();
  if (rows.data == nullptr) return;
  // Called after all memory is reserved, so that later recordings work without the library once it
  // has been released.
  if (!is_recording_) products_->MakeCopy(task);
  if (products_->Has(task)) return Note(products_->Multiply(task));
  Note(tuner_.Launch(task), "multiplying");
}

std::vector<std::string> CudaBackend::product_report() const {
  std::vector<std::string> lines = products_->Report();
  for (std::string& line : packer_.Report()) lines.push_back(std::move(line));
  for (std::string& line : tuner_.Report()) lines.push_back(std::move(line));
  return lines;
}

// ---- Attention ----

std::vector<int32_t> CudaBackend::PlanRows(absl::Span<const int32_t> starts, int num_rows,
                                           const AttentionSizes& sizes) const {
  TANDEM_CHECK(starts.size() > 1 && starts.back() <= num_rows);
  return RowPlanOf({starts.begin(), starts.end()}, num_rows, sizes, num_sms_);
}

void CudaBackend::RotaryAngles(const RaggedRows& rows, const int32_t* lengths,
                               const RotaryTables& tables, MatrixView out) {
  WillWrite(out);
  TANDEM_CHECK(out.rows == rows.num_rows && out.cols % 2 == 0 && rows.plan != nullptr);
  const RotaryAnglesTask task{.rows = rows, .lengths = lengths, .tables = tables, .out = out};
  Note(Launch(task, stream_), "rotary angles");
}

bool CudaBackend::CanCache(const PagedKvView& kv) {
  if (kv.head_dim <= kMaxHeadDim) return true;
  Note(absl::UnimplementedError(absl::StrCat(name_, ": key-value cache with heads of ", kv.head_dim,
                                             ", but this device supports at most ", kMaxHeadDim)));
  return false;
}

void CudaBackend::RotateAndCache(MatrixView qkv, ConstMatrixView angles, const HeadNorms& norms,
                                 const RaggedRows& rows, const PagedKvView& kv) {
  WillRead(qkv);
  WillRead(angles);
  WillWrite(qkv);
  const int num_heads = qkv.cols / kv.head_dim - 2 * kv.num_kv_heads;
  TANDEM_CHECK(kv.batch == rows.batch && kv.page_size >= 1 && qkv.rows == rows.num_rows &&
               angles.rows == rows.num_rows && angles.cols == kv.head_dim && kv.head_dim % 2 == 0 &&
               num_heads >= 1 && qkv.cols % kv.head_dim == 0);
  if (!CanCache(kv)) return;
  TANDEM_CHECK(rows.plan != nullptr);
  const RotateAndCacheTask task{.qkv = qkv,
                                .angles = angles,
                                .query_norm = norms.query,
                                .key_norm = norms.key,
                                .epsilon = norms.epsilon,
                                .rows = rows,
                                .kv = kv,
                                .num_heads = num_heads};
  Note(Launch(task, stream_), "rotating and caching");
}

void CudaBackend::Attend(ConstMatrixView q, const RaggedRows& rows, const PagedKvView& kv,
                         const AttentionForm& form, MatrixView out, const NextProduct& next) {
  WillRead(q);
  WillWrite(out);
  const int num_heads = q.cols / kv.head_dim;
  TANDEM_CHECK(kv.batch == rows.batch && kv.page_size >= 1 && q.rows == rows.num_rows &&
               out.rows == q.rows && out.cols == q.cols && q.cols % kv.head_dim == 0 &&
               num_heads >= 1 && num_heads % kv.num_kv_heads == 0 && form.window >= 0 &&
               form.first >= 0 && form.soft_cap >= 0.0f && next.norm == nullptr);
  if (rows.num_rows == 0 || !CanCache(kv)) return;
  TANDEM_CHECK(rows.plan != nullptr);
  AttendTask task{.q = q,
                  .rows = rows,
                  .kv = kv,
                  .form = form,
                  .num_heads = num_heads,
                  .out = out,
                  .parts = nullptr,
                  .num_splits = CeilDiv(kv.max_pages * kv.page_size, kSplitPositions),
                  .num_sms = num_sms_};
  if (form.window == 0) task.form.window = std::numeric_limits<int>::max();
  task.decode_rows = DecodeRowsBesidePrompts(task);
  task.part_splits = PartSplitsFor(task, most_split_parts_bytes_);
  if (task.part_splits > 0) {
    // Rounded, so that recordings are not dropped whenever a table of pages grows.
    const auto bytes = static_cast<uint64_t>(SplitPartsBytes(task, NumPartSlots(task)));
    task.parts = static_cast<float*>(Reserve(&split_parts_, std::bit_ceil(bytes)));
    if (task.parts == nullptr) return;
  }
  if (kv.head_dim % 2 == 0) task.next = prepared_rows_.Make(out, next, /*is_only=*/true);
  if (task.next.image != nullptr) task.out.data = nullptr;
  Note(Launch(task, stream_), "attending");
}

// ---- Sampling ----

// Uses one table: rows and slots, then answers and states, which are copied back.
absl::Status CudaBackend::Prepare(absl::Span<const RowTask> rows,
                                  absl::Span<const SlotTask> slots) {
  std::vector<std::byte> asked(rows.size() * sizeof(RowTask) + slots.size() * sizeof(SlotTask));
  auto* const slot_bytes = asked.data() + rows.size() * sizeof(RowTask);
  if (!rows.empty()) std::memcpy(asked.data(), rows.data(), rows.size() * sizeof(RowTask));
  if (!slots.empty()) std::memcpy(slot_bytes, slots.data(), slots.size() * sizeof(SlotTask));
  const size_t told = slots.size() * sizeof(SlotAnswer) + rows.size() * sizeof(RowState);
  // Does not use Reserve: recordings do not use the table, so none is invalid when it grows.
  if (sampling_tables_.size_bytes() < asked.size() + told) {
    ASSIGN_OR_RETURN(sampling_tables_, Allocate(asked.size() + told));
  }
  auto* const table = static_cast<std::byte*>(sampling_tables_.data());
  Upload(asked, table);
  int cut_size = 0;
  for (const RowTask& row : rows) {
    if (row.enough > 0 || row.top_k > 0) cut_size = std::max(cut_size, row.size);
  }
  next_rows_ = {.rows = reinterpret_cast<const RowTask*>(table),
                .variant = tuner_.VariantOfRows(cut_size)};
  next_slots_ = {.slots = reinterpret_cast<const SlotTask*>(table + rows.size() * sizeof(RowTask)),
                 .answers = reinterpret_cast<SlotAnswer*>(table + asked.size())};
  answers_ = next_slots_.answers;
  next_rows_.states = reinterpret_cast<RowState*>(answers_ + slots.size());
  return absl::OkStatus();
}

void CudaBackend::Run(int num_rows, int num_slots) {
  next_rows_.num_rows = num_rows;
  Note(Launch(next_rows_, stream_), "making distributions");
  next_rows_.rows += num_rows;
  next_rows_.states += num_rows;
  next_slots_.num_slots = num_slots;
  Note(Launch(next_slots_, stream_), "judging slots");
  next_slots_.begin += num_slots;
}

void CudaBackend::TakeDrawn(const int32_t* sources, int count, int32_t* ids) {
  const TakeDrawnTask task{.answers = answers_, .sources = sources, .ids = ids, .count = count};
  Note(Launch(task, stream_), "copying drawn tokens");
}

absl::Status CudaBackend::Collect(absl::Span<RowState> states, absl::Span<SlotAnswer> answers) {
  const size_t answer_bytes = answers.size() * sizeof(SlotAnswer);
  std::vector<std::byte> told(answer_bytes + states.size() * sizeof(RowState));
  Download(answers_, absl::MakeSpan(told));
  RETURN_IF_ERROR(TakeFailure());  // the copy waited
  if (!answers.empty()) std::memcpy(answers.data(), told.data(), answer_bytes);
  if (!states.empty()) {
    std::memcpy(states.data(), told.data() + answer_bytes, told.size() - answer_bytes);
  }
  return absl::OkStatus();
}

// ---- Ranks ----

absl::Status CudaBackend::Open() {
  ASSIGN_OR_RETURN(nccl_, Nccl::Open());
  return absl::OkStatus();
}

absl::StatusOr<std::string> CudaBackend::NewGroup() {
  TANDEM_CHECK(nccl_ != nullptr);
  StreamOfToolkit(stream_);  // sets the current device of the thread
  return nccl_->NewGroup();
}

absl::Status CudaBackend::Join(const std::string& group, int rank, int world, TellGroup tell) {
  TANDEM_CHECK(nccl_ != nullptr && !has_ranks_ && 0 <= rank && rank < world);
  StreamOfToolkit(stream_);
  RETURN_IF_ERROR(nccl_->Join(group, rank, world, std::move(tell)));
  has_ranks_ = true;
  return absl::OkStatus();
}

// NCCL's parts are adjacent and have one size: that of the widest rank's columns.
void CudaBackend::GatherColumns(MatrixView whole, absl::Span<const int> bounds) {
  WillRead(whole);
  WillWrite(whole);
  const int world = static_cast<int>(bounds.size()) - 1;
  TANDEM_CHECK(has_ranks_ && bounds[0] >= 0 && bounds[world] <= whole.cols);
  int most = 0;
  for (int r = 0; r < world; ++r) most = std::max(most, bounds[r + 1] - bounds[r]);
  const size_t part_bytes = sizeof(float) * most * whole.rows;
  if (part_bytes == 0 || !errors_.lost().ok()) return;
  auto* const parts = static_cast<std::byte*>(Reserve(&gathered_parts_, world * part_bytes));
  if (parts == nullptr) return;
  const auto copy = [&](int rank, bool into_part) {
    const size_t cols = bounds[rank + 1] - bounds[rank];
    const StridedRows part{.data = parts + rank * part_bytes, .stride_bytes = cols * sizeof(float)};
    const StridedRows place{.data = static_cast<float*>(whole.data) + bounds[rank],
                            .stride_bytes = static_cast<size_t>(whole.stride) * sizeof(float)};
    if (cols == 0) return;
    Note(CopyRows(into_part ? place : part, into_part ? part : place, cols * sizeof(float),
                  whole.rows, stream_),
         "copying columns");
  };
  copy(nccl_->rank(), /*into_part=*/true);
  Note(nccl_->Gather(parts, part_bytes, StreamOfToolkit(stream_)));
  for (int r = 0; r < world; ++r) {
    if (r != nccl_->rank()) copy(r, /*into_part=*/false);
  }
}

// ---- Measuring ----

void CudaBackend::Read(const void* data, size_t bytes, uint32_t* sums) {
  TANDEM_CHECK(bytes % 16 == 0);
  const ReadTask task{.data = data, .num_words4 = static_cast<int64_t>(bytes / 16), .sums = sums};
  Note(Launch(task, stream_), "reading");
}

size_t CudaBackend::NumReadSums(size_t bytes) const {
  return static_cast<size_t>(ReadShape(static_cast<int64_t>(bytes / 16)).x) * kReadSumsOfBlock;
}

absl::StatusOr<double> CudaBackend::SecondsWithoutHost(absl::FunctionRef<void()> enqueue,
                                                       int replays) {
  using Clock = std::chrono::steady_clock;
  TANDEM_CHECK(replays > 0);
  RETURN_IF_ERROR(Synchronize());
  ASSIGN_OR_RETURN(const Recording recording, Record(enqueue));
  Repeat(recording);  // the first replay also uploads the recording to the device
  Note(Wait(stream_), "waiting");
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < replays; ++i) Repeat(recording);
  Note(Wait(stream_), "waiting");
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count() / replays;
  Forget(recording);
  RETURN_IF_ERROR(Synchronize());
  return seconds;
}

absl::Status CudaBackend::ReferenceProduct(ConstMatrixView x, ConstMatrixView weight,
                                           MatrixView out) {
  TANDEM_CHECK(x.stride == x.cols && weight.stride == x.cols && out.stride == weight.rows);
  WillWrite(out);
  return reference_->Multiply({.rows = x.rows, .outputs = weight.rows, .inputs = x.cols}, x.data,
                              weight.data, static_cast<float*>(out.data));
}

}  // namespace tandem::cuda

namespace tandem {

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int device) {
  return MakeCudaBackend(device, {});
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int device, const CudaOptions& options) {
  cuda::DeviceProperties properties;
  cuda::Stream stream = nullptr;
  const cuda::Error error = cuda::OpenDevice(device, &properties, &stream);
  if (error != cuda::kNoError) {
    return absl::UnavailableError(absl::StrCat("cuda:", device, ": ", cuda::ErrorText(error)));
  }
  if (properties.major < cuda::kMinMajor) {
    cuda::CloseDevice(stream);
    return absl::UnavailableError(absl::StrCat(
        "cuda:", device, ": ", properties.name, " has compute capability ", properties.major, ".",
        properties.minor, ", but ", cuda::kMinMajor, ".0 or later is required"));
  }
  return std::make_unique<cuda::CudaBackend>(device, properties, stream, options);
}

bool BuiltWithCuda() { return true; }

bool HasCudaDriver() { return cuda::HasDriver(); }

int NumCudaDevices() { return cuda::NumDevices(); }

}  // namespace tandem
