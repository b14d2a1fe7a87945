#include "kernels/cuda/cublas_products.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/split_mix.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "kernels/cuda/launch_shapes.h"

namespace tandem::cuda {
namespace {

constexpr uint64_t kSeed = 38;

int InputsOf(int num_steps) { return num_steps * kStepInputs; }

int MostRows(int outputs) {
  const int most = static_cast<int>(CublasProducts::kMaxSumBytes / sizeof(float) / outputs);
  return std::clamp(most / CublasProducts::kRowsUnit * CublasProducts::kRowsUnit,
                    CublasProducts::kRowsUnit, CublasProducts::kMaxRows);
}

// Returns random f32 numbers of magnitudes 2^-8 to 2, so that different orders of summation give
// different bits. At most a prime number of them, which the caller repeats so that rows differ.
std::vector<uint32_t> RandomFloats(size_t wanted, uint64_t* random) {
  std::vector<uint32_t> bits(std::min<size_t>(wanted, 1048573));
  for (uint32_t& one : bits) {
    *random = SplitMix64(*random);
    one = (*random & 0x807FFFFF) | (119 + (*random >> 32) % 9) << 23;
  }
  return bits;
}

size_t CopyBytes(const std::pair<int, int>& tiles_and_steps) {
  const auto& [num_tiles, num_steps] = tiles_and_steps;
  return sizeof(uint16_t) * num_tiles * kTileOutputs * InputsOf(num_steps);
}

// Uploads `values` once, and repeats them on the device until there are `wanted`.
template <typename T>
void Repeat(const std::vector<T>& values, size_t wanted, void* to, Backend* backend) {
  const auto bytes = reinterpret_cast<const std::byte*>(values.data());
  size_t done = std::min(values.size(), wanted);
  backend->Upload({bytes, done * sizeof(T)}, to);
  while (done < wanted) {
    const size_t count = std::min(done, wanted - done);
    backend->Copy(to, static_cast<T*>(to) + done, count * sizeof(T));
    done += count;
  }
}

}  // namespace

bool CublasProducts::Open() {
  if (library_ != nullptr || !unavailable_reason_.empty()) return library_ != nullptr;
  absl::StatusOr<std::unique_ptr<CublasLt>> library = CublasLt::Open();
  if (library.ok()) {
    library_ = *std::move(library);
  } else {
    unavailable_reason_ = std::string(library.status().message());
  }
  Log(LogLevel::kInfo, absl::StrCat("device=", View(backend_.name()), " ", Report()[0]));
  return library_ != nullptr;
}

absl::Status CublasProducts::Check(Error error, absl::string_view what) const {
  if (error == kNoError) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(View(backend_.name()), ": ", what, ": ", ErrorText(error)));
}

absl::Status CublasProducts::Reserve(Buffer* scratch, size_t bytes) {
  if (scratch->size_bytes() >= bytes) return absl::OkStatus();
  *scratch = Buffer();
  ASSIGN_OR_RETURN(*scratch, backend_.Allocate(bytes));
  return absl::OkStatus();
}

absl::Status CublasProducts::ReserveScratch(const LtShape& most) {
  RETURN_IF_ERROR(Reserve(&workspace_, kWorkspaceBytes));
  RETURN_IF_ERROR(Reserve(&rows_, sizeof(uint16_t) * most.rows * most.inputs));
  return Reserve(&sums_, sizeof(float) * most.rows * most.outputs);
}

// ---- At load ----

void CublasProducts::Add(const void* packed, int num_tiles, int inputs) {
  if (!Open()) return;
  const WeightShape shape(num_tiles, NumSteps(inputs));
  is_adding_ = true;  // allocations for this must not release the copies of other weights
  const absl::Cleanup added = [&] { is_adding_ = false; };
  auto found = verdicts_.find(shape);
  if (found == verdicts_.end()) {
    absl::StatusOr<Verdict> verdict = Compare(shape);
    if (!verdict.ok()) {
      verdict = Verdict{.plans = {}, .refusal = std::string(verdict.status().message())};
    }
    found = verdicts_.emplace(shape, *std::move(verdict)).first;
    Log(LogLevel::kInfo,
        absl::StrCat("device=", View(backend_.name()), " ", Line(shape, found->second)));
  }
  if (found->second.plans.empty()) return;
  weights_[packed] = shape;
  fits_ = false;
}

void CublasProducts::Remove(const void* packed) {
  weights_.erase(packed);
  copies_.extract(packed);
}

absl::Status CublasProducts::Unpack(const void* packed, const WeightShape& shape, void* out) {
  const UnpackTilesTask task{
      .packed = packed, .num_tiles = shape.first, .num_steps = shape.second, .out = out};
  return Check(Launch(task, stream_), "unpacking weights");
}

absl::Status CublasProducts::CopyRows(const TileProductTask& product, int first, int rows,
                                      int plain_rows) {
  const PlainRowsTask task{.image = product.rows,
                           .image_rows = product.out.rows,
                           .first_row = first,
                           .num_rows = rows,
                           .plain_rows = plain_rows,
                           .num_steps = NumSteps(product.x.cols),
                           .out = rows_.data()};
  return Check(Launch(task, stream_), "copying rows");
}

absl::StatusOr<CublasProducts::Verdict> CublasProducts::Compare(const WeightShape& shape) {
  const int outputs = shape.first * kTileOutputs, inputs = InputsOf(shape.second);
  const LtShape most{.rows = MostRows(outputs), .outputs = outputs, .inputs = inputs};
  const size_t num_sums = size_t(most.rows) * outputs, num_weights = size_t(outputs) * inputs;
  RETURN_IF_ERROR(ReserveScratch(most));
  ASSIGN_OR_RETURN(const Buffer packed, backend_.Allocate(num_weights * sizeof(uint16_t)));
  ASSIGN_OR_RETURN(const Buffer weight, backend_.Allocate(num_weights * sizeof(uint16_t)));
  ASSIGN_OR_RETURN(const Buffer x, backend_.Allocate(sizeof(float) * most.rows * inputs));
  ASSIGN_OR_RETURN(const Buffer rows, backend_.Allocate(RowsImageBytes(most.rows, inputs)));
  uint64_t random = kSeed;
  const std::vector<uint32_t> bits = RandomFloats(num_weights, &random);
  std::vector<uint16_t> halves(bits.size());
  std::transform(bits.begin(), bits.end(), halves.begin(), [](uint32_t b) { return b >> 16; });
  Repeat(halves, num_weights, packed.data(), &backend_);
  const size_t num_x = size_t(most.rows) * inputs;
  Repeat(RandomFloats(num_x, &random), num_x, x.data(), &backend_);
  RETURN_IF_ERROR(Unpack(packed.data(), shape, weight.data()));

  const MatrixView sums{sums_.data(), DType::kF32, most.rows, outputs, outputs};
  const ConstMatrixView x_view(x.data(), DType::kF32, most.rows, inputs, inputs);
  const PackRowsTask pack{.x = x_view, .out = rows.data(), .norm = {}};
  RETURN_IF_ERROR(Check(Launch(pack, stream_), "rounding activations"));
  const TileProductTask ours{.x = x_view,
                             .rows = rows.data(),
                             .norm = {},
                             .weight = packed.data(),
                             .num_tiles = shape.first,
                             .num_sms = num_sms_,
                             .out = sums};
  RETURN_IF_ERROR(Check(Launch(ours, stream_), "multiplying"));
  ASSIGN_OR_RETURN(const Buffer want, backend_.Allocate(num_sums * sizeof(float)));
  ASSIGN_OR_RETURN(const Buffer counts,
                   backend_.Allocate(sizeof(uint32_t) * NumDifferenceCounts(num_sums)));
  backend_.Copy(sums_.data(), want.data(), want.size_bytes());
  RETURN_IF_ERROR(CopyRows(ours, 0, most.rows, most.rows));

  Verdict verdict;
  for (Plan plan{.shape = most, .algorithm = {}}; plan.shape.rows > 0;
       plan.shape.rows -= kRowsUnit) {
    ASSIGN_OR_RETURN(const std::vector<LtAlgorithm> algorithms,
                     library_->AlgorithmsFor(plan.shape, kWorkspaceBytes, false));
    if (algorithms.empty()) verdict.refusal = "no algorithm";
    for (const LtAlgorithm& algorithm : algorithms) {
      plan.algorithm = algorithm;
      const int64_t count = int64_t{plan.shape.rows} * outputs;
      Repeat(std::vector<uint32_t>{0xFFFFFFFF}, count, sums_.data(), &backend_);
      const absl::Status status = Multiply(plan, weight.data());
      ASSIGN_OR_RETURN(const bool are_equal,
                       AreEqual(sums_.data(), want.data(), count,
                                static_cast<uint32_t*>(counts.data()), &backend_, stream_));
      if (status.ok() && are_equal) {
        verdict.plans.insert(verdict.plans.begin(), plan);
        break;
      }
      ++verdict.num_refused;
      verdict.refusal = status.ok() ? "bits differ" : std::string(status.message());
    }
  }
  RETURN_IF_ERROR(backend_.Synchronize());
  return verdict;
}

bool CublasProducts::Release() {
  if (library_ == nullptr || is_adding_) return false;
  Release(absl::StrCat("memory was needed elsewhere; copies took ", copy_bytes(), " bytes"));
  return true;
}

void CublasProducts::Release(std::string reason) {
  unavailable_reason_ = std::move(reason);
  library_.reset();
  weights_.clear();
  std::exchange(copies_, {}).clear();
  for (Buffer* scratch : {&rows_, &sums_, &workspace_}) *scratch = Buffer();
  Log(LogLevel::kInfo, absl::StrCat("device=", View(backend_.name()), " ", Report()[0]));
}

int64_t CublasProducts::copy_bytes() const {
  int64_t bytes = 0;
  for (const auto& [packed, copy] : copies_) bytes += static_cast<int64_t>(copy.size_bytes());
  return bytes;
}

int64_t CublasProducts::wanted_bytes() const {
  int64_t bytes = 0;
  for (const auto& [packed, shape] : weights_) bytes += static_cast<int64_t>(CopyBytes(shape));
  return bytes;
}

std::string CublasProducts::Line(const WeightShape& shape, const Verdict& verdict) {
  std::string line = absl::StrCat("product=", shape.first * kTileOutputs, "x",
                                  InputsOf(shape.second), " many_rows=");
  if (verdict.plans.empty()) return absl::StrCat(line, "own reason=\"", verdict.refusal, "\"");
  absl::StrAppend(&line, "cublas rows=");
  const char* separator = "";
  for (const Plan& plan : verdict.plans) {
    absl::StrAppend(&line, std::exchange(separator, ","), plan.shape.rows);
  }
  return absl::StrCat(line, " refused_algorithms=", verdict.num_refused);
}

std::vector<std::string> CublasProducts::Report() const {
  if (library_ == nullptr && unavailable_reason_.empty()) return {};
  if (library_ == nullptr)
    return {absl::StrCat("cublas=none reason=\"", unavailable_reason_, "\"")};
  std::vector<std::string> lines = {absl::StrCat("cublas=", library_->version(),
                                                 " copy_bytes=", copy_bytes(),
                                                 " wanted_copy_bytes=", wanted_bytes())};
  if (!stop_reason_.empty()) absl::StrAppend(&lines[0], " reason=\"", stop_reason_, "\"");
  for (const auto& [shape, verdict] : verdicts_) lines.push_back(Line(shape, verdict));
  return lines;
}

// ---- In passes ----

bool CublasProducts::HasManyRows(const TileProductTask& product) const {
  return product.dtype == DType::kBF16 && product.out.rows > kMostFewRows;
}

bool CublasProducts::Has(const TileProductTask& product) const {
  return HasManyRows(product) && copies_.contains(product.weight);
}

void CublasProducts::MakeCopy(const TileProductTask& product) {
  if (!HasManyRows(product) || copies_.contains(product.weight) || !stop_reason_.empty()) return;
  const auto found = weights_.find(product.weight);
  if (found == weights_.end()) return;
  const WeightShape shape = found->second;
  if (!fits_) {
    // Includes the memory of existing copies.
    const int64_t available = backend_.free_memory_bytes().value_or(0);
    fits_ = wanted_bytes() + kSpareBytes <= available;
    if (!fits_) {
      return Stop(absl::StrCat("copies would take ", wanted_bytes(), " of ", available,
                               " free bytes, of which ", kSpareBytes, " are kept"));
    }
  }
  absl::StatusOr<Buffer> copy = backend_.Allocate(CopyBytes(shape));
  if (library_ == nullptr) return;  // released by this allocation
  if (!copy.ok()) return Stop(copy.status().message());
  if (Unpack(product.weight, shape, copy->data()).ok()) copies_[product.weight] = *std::move(copy);
}

// Either all weights have a copy or none, unless recordings may use those that exist.
void CublasProducts::Stop(absl::string_view reason) {
  if (copies_.empty()) return Release(std::string(reason));
  stop_reason_ = std::string(reason);
  Log(LogLevel::kInfo, absl::StrCat("device=", View(backend_.name()), " ", Report()[0]));
}

absl::Status CublasProducts::Multiply(const Plan& plan, const void* weight) {
  return library_->Multiply(plan.shape, plan.algorithm, rows_.data(), weight,
                            static_cast<float*>(sums_.data()), workspace_.data(), kWorkspaceBytes,
                            StreamOfToolkit(stream_));
}

absl::Status CublasProducts::Multiply(const TileProductTask& product) {
  const WeightShape shape(product.num_tiles, NumSteps(product.x.cols));
  const std::vector<Plan>& plans = verdicts_.at(shape).plans;
  const void* const weight = copies_.at(product.weight).data();
  for (int first = 0; first < product.out.rows;) {
    const int left = product.out.rows - first;
    auto plan = plans.begin();
    while (plan->shape.rows < left && plan + 1 != plans.end()) ++plan;
    const int rows = std::min(left, plan->shape.rows);
    const EndSumsTask end{
        .product = product,
        .first_row = first,
        .sums = {sums_.data(), DType::kF32, rows, plan->shape.outputs, plan->shape.outputs}};
    RETURN_IF_ERROR(CopyRows(product, first, rows, plan->shape.rows));
    RETURN_IF_ERROR(Multiply(*plan, weight));
    RETURN_IF_ERROR(Check(Launch(end, stream_), "finishing a product"));
    first += rows;
  }
  return absl::OkStatus();
}

}  // namespace tandem::cuda
