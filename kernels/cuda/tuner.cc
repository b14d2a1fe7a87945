#include "kernels/cuda/tuner.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/json/json_fields.h"
#include "base/json/json_text.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "base/output_folder.h"
#include "base/split_mix.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "kernels/cuda/comparison.h"
#include "kernels/cuda/launch_shapes.h"
#include "kernels/row_sums.h"

namespace tandem::cuda {
namespace {

constexpr int kMostRows = kRowTileChoices[kNumRowTileChoices - 1] * kTileRows;
constexpr int kRounds = 3;   // variants take turns, so that a disturbance does not hit one alone
constexpr int kRepeats = 2;  // launches that are timed together

// A number that changes with the table of variants.
uint64_t FingerprintOfVariants() {
  uint64_t hash = 0;
  const auto add = [&](std::initializer_list<int> numbers) {
    for (const int number : numbers) hash = SplitMix64(hash ^ static_cast<uint64_t>(number));
  };
  for (const auto& of_class : kFewRowsVariants) {
    for (const auto& v : of_class) add({v.stage_steps, v.most_warps, v.blocks});
  }
  for (const auto& of_class : kBlocksVariants) {
    for (const auto& v : of_class) add({v.output_tiles, v.stages});
  }
  for (const auto& v : kDistributionVariants) add({v.copies, v.groups});
  return hash;
}

std::string KeyOf(const DeviceProperties& device) {
  return absl::StrCat(device.name, ", sm_", device.major, device.minor, ", ", device.num_sms,
                      " SMs, driver ", DriverVersion(), ", variants ",
                      absl::StrFormat("%016x", FingerprintOfVariants()));
}

absl::Status StatusOf(Error error, absl::string_view what) {
  if (error == kNoError) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", ErrorText(error)));
}

double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Random numbers between -most and most.
std::vector<float> RandomNumbers(size_t count, float most) {
  std::vector<float> numbers(count);
  uint64_t random = 55;
  for (float& number : numbers) {
    random = SplitMix64(random);
    number = static_cast<float>(static_cast<int32_t>(random >> 32)) * 0x1p-31f * most;
  }
  return numbers;
}

template <typename T>
absl::Span<const std::byte> BytesOf(const T* values, size_t count) {
  return {reinterpret_cast<const std::byte*>(values), count * sizeof(T)};
}

std::string ShapeText(const Tuner::WeightShape& shape) {
  return absl::StrCat("product=", shape.num_tiles * kTileOutputs, "x",
                      shape.num_steps * kStepInputs, " weights=", NameOf(shape.dtype));
}
std::string ChoiceText(const Tuner::WeightShape& shape, const Tuner::Choice& choice) {
  return absl::StrCat(ShapeText(shape), " few_rows_variants=", absl::StrJoin(choice, ","));
}
std::string ChoiceText(int row_size, int variant) {
  return absl::StrCat("distribution=", row_size, " variant=", variant);
}

// ---- Files ----

absl::StatusOr<DType> ReadDType(const JsonField& field) {
  ASSIGN_OR_RETURN(const std::string name, field.String());
  for (int i = 0; i <= static_cast<int>(DType::kIq4Xs); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (name == NameOf(dtype) && (dtype == DType::kBF16 || IsBlocks(dtype))) return dtype;
  }
  return field.Error("is not a type of packed weights");
}

absl::StatusOr<int> ReadInteger(const JsonField& object, const char* name, int low, int high) {
  ASSIGN_OR_RETURN(const JsonField field, object.Member(name));
  ASSIGN_OR_RETURN(const int64_t number, field.Integer(low, high));
  return static_cast<int>(number);
}

absl::Status ReadProduct(const JsonField& entry,
                         std::map<Tuner::WeightShape, Tuner::Choice>* choices) {
  constexpr int kMost = 1 << 26;
  Tuner::WeightShape shape;
  ASSIGN_OR_RETURN(const JsonField weights, entry.Member("weights"));
  ASSIGN_OR_RETURN(shape.dtype, ReadDType(weights));
  ASSIGN_OR_RETURN(shape.num_tiles, ReadInteger(entry, "tiles", 1, kMost));
  ASSIGN_OR_RETURN(shape.num_steps, ReadInteger(entry, "steps", 1, kMost));
  ASSIGN_OR_RETURN(const JsonField variants, entry.Member("variants"));
  RETURN_IF_ERROR(variants.CheckArray());
  Tuner::Choice& choice = (*choices)[shape];
  if (variants.value().size() != choice.size()) {
    return variants.Error(absl::StrCat("does not have ", choice.size(), " numbers"));
  }
  for (int i = 0; i < kNumRowTileChoices; ++i) {
    ASSIGN_OR_RETURN(const JsonField variant, variants.Element(i));
    ASSIGN_OR_RETURN(choice[i], variant.Integer(0, NumVariantsOfChoice(shape.dtype, i) - 1));
  }
  return absl::OkStatus();
}

absl::Status ReadRows(const JsonField& entry, std::map<int, int>* choices) {
  ASSIGN_OR_RETURN(const int size,
                   ReadInteger(entry, "entries", 1, std::numeric_limits<int>::max()));
  ASSIGN_OR_RETURN((*choices)[size],
                   ReadInteger(entry, "variant", 0, kNumDistributionVariants - 1));
  return absl::OkStatus();
}

// Calls read(element) for each element of the list `name`.
absl::Status ReadList(const JsonField& object, const char* name,
                      absl::FunctionRef<absl::Status(const JsonField&)> read) {
  ASSIGN_OR_RETURN(const JsonField list, object.Member(name));
  RETURN_IF_ERROR(list.CheckArray());
  for (size_t i = 0; i < list.value().size(); ++i) {
    ASSIGN_OR_RETURN(const JsonField entry, list.Element(i));
    RETURN_IF_ERROR(read(entry));
  }
  return absl::OkStatus();
}

}  // namespace

Tuner::Tuner(Backend* backend, const DeviceProperties& properties, Stream stream)
    : backend_(*backend),
      stream_(stream),
      num_sms_(properties.num_sms),
      flush_bytes_(properties.l2_bytes / 16 * 16),
      key_(KeyOf(properties)),
      hooks_{
          .seconds = SecondsNow,
          .launch = [](const TileProductTask& task, Stream on) { return cuda::Launch(task, on); },
          .launch_rows = [](const DistributionsTask& task,
                            Stream on) { return cuda::Launch(task, on); }} {}

std::string Tuner::device_name() const { return absl::StrCat("device=", View(backend_.name())); }

absl::Status Tuner::Open(const std::string& how) {
  choices_.clear();
  row_choices_.clear();
  measures_ = how != "off";
  file_ = measures_ && how != "load" ? how : "";
  return file_.empty() ? absl::OkStatus() : Read(file_);
}

absl::Status Tuner::Read(const std::string& file) {
  const absl::StatusOr<std::string> text = ReadFile(file);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  RETURN_IF_ERROR(text.status());
  ASSIGN_OR_RETURN(const SortedJson document, ParseJsonObject(*text, file));
  const JsonField all(&document, file);
  ASSIGN_OR_RETURN(const JsonField measured_on, all.Member("measured_on"));
  ASSIGN_OR_RETURN(const std::string key, measured_on.String());
  if (key != key_) {
    Log(LogLevel::kInfo, absl::StrCat(device_name(), " cuda_tune=", file,
                                      " measures_again=true reason=\"it was written for ", key,
                                      "; this is ", key_, "\""));
    return absl::OkStatus();
  }
  std::map<WeightShape, Choice> choices;
  std::map<int, int> row_choices;
  RETURN_IF_ERROR(ReadList(all, "products",
                           [&](const JsonField& entry) { return ReadProduct(entry, &choices); }));
  RETURN_IF_ERROR(ReadList(all, "distributions",
                           [&](const JsonField& entry) { return ReadRows(entry, &row_choices); }));
  choices_ = std::move(choices);
  row_choices_ = std::move(row_choices);
  return absl::OkStatus();
}

void Tuner::Write() {
  if (file_.empty()) return;
  auto products = SortedJson::array(), rows = SortedJson::array();
  for (const auto& [shape, choice] : choices_) {
    products.push_back({{"weights", NameOf(shape.dtype)},
                        {"tiles", shape.num_tiles},
                        {"steps", shape.num_steps},
                        {"variants", choice}});
  }
  for (const auto& [size, variant] : row_choices_) {
    rows.push_back({{"entries", size}, {"variant", variant}});
  }
  const SortedJson document{{"measured_on", key_}, {"products", products}, {"distributions", rows}};
  const absl::Status written = ReplaceFile(file_, absl::StrCat(document.dump(1), "\n"));
  if (written.ok()) return;
  Log(LogLevel::kWarning, absl::StrCat(device_name(), " cuda_tune=", file_,
                                       " is_written=false reason=\"", written.message(), "\""));
  file_.clear();
}

// ---- Measuring ----

// Memory that is freed at the end. The backend's own allocation would release other memory to make
// room.
class Tuner::Memory {
 public:
  explicit Memory(Stream stream) : stream_(stream) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    for (void* const data : all_) cuda::Free(stream_, data);
  }
  template <typename T>
  absl::Status Add(size_t bytes, T** data) {
    void* made = nullptr;
    RETURN_IF_ERROR(StatusOf(cuda::Allocate(stream_, bytes, &made), "allocating"));
    all_.push_back(made);
    *data = static_cast<T*>(made);
    return absl::OkStatus();
  }

 private:
  const Stream stream_;
  std::vector<void*> all_;
};

// Multiplies random rows with one weight.
class Tuner::ProductTrial {
 public:
  ProductTrial(const Tuner& tuner, const WeightShape& shape, PartOrder order, const void* packed,
               size_t bytes)
      : tuner_(tuner),
        shape_(shape),
        is_gated_(order == PartOrder::kGateAndUp),
        packed_(packed),
        packed_bytes_(bytes),
        memory_(tuner.stream_) {}

  absl::Status Prepare() {
    const std::vector<float> numbers = RandomNumbers(size_t{kMostRows} * num_inputs(), 1.0f);
    RETURN_IF_ERROR(memory_.Add(numbers.size() * sizeof(float), &x_));
    RETURN_IF_ERROR(memory_.Add(IsBlocks(shape_.dtype)
                                    ? PackedWholeRowsBytes(kMostRows, num_inputs())
                                    : RowsImageBytes(kMostRows, num_inputs()),
                                &rows_));
    const int64_t most = int64_t{kMostRows} * num_outputs();
    RETURN_IF_ERROR(memory_.Add(sizeof(float) * most, &sums_));
    RETURN_IF_ERROR(memory_.Add(sizeof(float) * most, &want_));
    RETURN_IF_ERROR(memory_.Add(sizeof(uint32_t) * NumDifferenceCounts(most), &counts_));
    tuner_.backend_.Upload(BytesOf(numbers.data(), numbers.size()), x_);
    // Weights that are much larger than the cache leave it by themselves.
    if (tuner_.flush_bytes_ == 0 || packed_bytes_ >= 4 * tuner_.flush_bytes_) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(memory_.Add(tuner_.flush_bytes_, &other_));
    const int64_t blocks = ReadShape(Flush().num_words4).num_blocks();
    return memory_.Add(sizeof(uint32_t) * kReadSumsOfBlock * blocks, &read_sums_);
  }
  // Packs as many rows as the class of rows has, and multiplies them by variant 0.
  absl::Status Begin(int choice) {
    num_rows_ = kRowTileChoices[choice] * kTileRows;
    const PackRowsTask pack{
        .x = x(), .out = rows_, .quantizes = IsBlocks(shape_.dtype), .norm = {}};
    RETURN_IF_ERROR(StatusOf(cuda::Launch(pack, tuner_.stream_), "rounding rows"));
    return MultiplyAnew(0, want_);
  }
  // Whether the variant has the bits of variant 0.
  absl::StatusOr<bool> IsEqual(int variant) const {
    RETURN_IF_ERROR(MultiplyAnew(variant, sums_));
    return AreEqual(sums_, want_, num_sums(), counts_, &tuner_.backend_, tuner_.stream_);
  }
  absl::Status Enqueue(int variant) const {
    if (other_ != nullptr) {
      RETURN_IF_ERROR(StatusOf(cuda::Launch(Flush(), tuner_.stream_), "reading"));
    }
    return Multiply(variant, sums_);
  }

 private:
  int num_inputs() const { return shape_.num_steps * kStepInputs; }
  int num_outputs() const { return shape_.num_tiles * kTileOutputs / (is_gated_ ? 2 : 1); }
  int64_t num_sums() const { return int64_t{num_rows_} * num_outputs(); }
  ConstMatrixView x() const { return {x_, DType::kF32, num_rows_, num_inputs(), num_inputs()}; }
  ReadTask Flush() const {
    return {.data = other_,
            .num_words4 = static_cast<int64_t>(tuner_.flush_bytes_ / 16),
            .sums = read_sums_};
  }
  // Sums that the variant does not write are numbers of the weight.
  absl::Status MultiplyAnew(int variant, float* sums) const {
    const size_t bytes = std::min(sizeof(float) * num_sums(), packed_bytes_);
    RETURN_IF_ERROR(StatusOf(CopyWithin(packed_, sums, bytes, tuner_.stream_), "copying"));
    return Multiply(variant, sums);
  }
  absl::Status Multiply(int variant, float* sums) const {
    const TileProductTask task{.x = x(),
                               .rows = rows_,
                               .norm = {},
                               .weight = packed_,
                               .dtype = shape_.dtype,
                               .num_tiles = shape_.num_tiles,
                               .num_sms = tuner_.num_sms_,
                               .variant = variant,
                               .end = is_gated_ ? Epilogue::kSwiGlu : Epilogue::kStore,
                               .out = {sums, DType::kF32, num_rows_, num_outputs(), num_outputs()}};
    return StatusOf(tuner_.hooks_.launch(task, tuner_.stream_), "multiplying");
  }

  const Tuner& tuner_;
  const WeightShape shape_;
  const bool is_gated_;
  const void* const packed_;
  const size_t packed_bytes_;
  Memory memory_;
  int num_rows_ = 0;
  float* x_ = nullptr;             // [kMostRows, inputs]
  void* rows_ = nullptr;           // the same, packed
  float* sums_ = nullptr;          // [kMostRows, outputs]
  float* want_ = nullptr;          // the same, of variant 0
  uint32_t* counts_ = nullptr;     // of differences
  void* other_ = nullptr;          // [flush bytes]; null if nothing is read before products
  uint32_t* read_sums_ = nullptr;  // of `other_`
};

// Makes the distribution of a row of random logits.
class Tuner::RowTrial {
 public:
  RowTrial(const Tuner& tuner, int size) : tuner_(tuner), size_(size), memory_(tuner.stream_) {}

  absl::Status Prepare() {
    const std::vector<float> logits = RandomNumbers(size_, 12.0f);
    RETURN_IF_ERROR(memory_.Add(logits.size() * sizeof(float), &logits_));
    RETURN_IF_ERROR(memory_.Add(logits.size() * sizeof(float), &probs_));
    RETURN_IF_ERROR(memory_.Add(logits.size() * sizeof(float), &want_));
    RETURN_IF_ERROR(memory_.Add(sizeof(uint32_t) * NumDifferenceCounts(size_), &counts_));
    RETURN_IF_ERROR(memory_.Add(sizeof(RowTask), &row_));
    RETURN_IF_ERROR(memory_.Add(sizeof(RowState), &state_));
    RowTask row{.logits = logits_,
                .probs = want_,
                .size = size_,
                .inverse_temperature = 1.0f,
                .enough = UnitsToReach(0.9f)};
    tuner_.backend_.Upload(BytesOf(logits.data(), logits.size()), logits_);
    tuner_.backend_.Upload(BytesOf(&row, 1), row_);
    RETURN_IF_ERROR(EnqueueAnew(0, want_));
    row.probs = probs_;
    tuner_.backend_.Upload(BytesOf(&row, 1), row_);
    return absl::OkStatus();
  }
  // Whether the variant has the bits of variant 0.
  absl::StatusOr<bool> IsEqual(int variant) const {
    RETURN_IF_ERROR(EnqueueAnew(variant, probs_));
    return AreEqual(probs_, want_, size_, counts_, &tuner_.backend_, tuner_.stream_);
  }
  absl::Status Enqueue(int variant) const {
    const DistributionsTask task{.rows = row_, .states = state_, .num_rows = 1, .variant = variant};
    return StatusOf(tuner_.hooks_.launch_rows(task, tuner_.stream_), "making distributions");
  }

 private:
  // Entries that the variant does not write are logits.   probs: those of row_
  absl::Status EnqueueAnew(int variant, float* probs) const {
    const size_t bytes = sizeof(float) * size_;
    RETURN_IF_ERROR(StatusOf(CopyWithin(logits_, probs, bytes, tuner_.stream_), "copying"));
    return Enqueue(variant);
  }

  const Tuner& tuner_;
  const int size_;
  Memory memory_;
  float* logits_ = nullptr;
  float* probs_ = nullptr;
  float* want_ = nullptr;       // of variant 0
  uint32_t* counts_ = nullptr;  // of differences
  RowTask* row_ = nullptr;
  RowState* state_ = nullptr;
};

absl::StatusOr<int> Tuner::Fastest(int count, const std::string& what, IsEqual is_equal,
                                   Enqueue enqueue) const {
  std::vector<int> equal = {0};
  for (int variant = 1; variant < count; ++variant) {
    const absl::StatusOr<bool> got = is_equal(variant);
    if (got.ok() && *got) {
      equal.push_back(variant);
      continue;
    }
    Log(LogLevel::kWarning,
        absl::StrCat(device_name(), " ", what, " refused_variant=", variant, " reason=\"",
                     got.ok() ? "bits differ" : got.status().message(), "\""));
  }
  std::vector<double> best(count, std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds && equal.size() > 1; ++round) {
    for (const int variant : equal) {
      RETURN_IF_ERROR(StatusOf(Wait(stream_), "waiting"));
      const double start = hooks_.seconds();
      for (int i = 0; i < kRepeats; ++i) RETURN_IF_ERROR(enqueue(variant));
      RETURN_IF_ERROR(StatusOf(Wait(stream_), "waiting"));
      best[variant] = std::min(best[variant], hooks_.seconds() - start);
    }
  }
  return static_cast<int>(std::min_element(best.begin(), best.end()) - best.begin());
}

absl::StatusOr<Tuner::Choice> Tuner::Measure(const WeightShape& shape, PartOrder order,
                                             const void* packed, size_t bytes) const {
  ProductTrial trial(*this, shape, order, packed, bytes);
  RETURN_IF_ERROR(trial.Prepare());
  Choice choice = {};
  for (int of_class = 0; of_class < kNumRowTileChoices; ++of_class) {
    const int count = NumVariantsOfChoice(shape.dtype, of_class);
    if (count == 1) continue;
    RETURN_IF_ERROR(trial.Begin(of_class));
    const std::string what =
        absl::StrCat(ShapeText(shape), " rows=", kRowTileChoices[of_class] * kTileRows);
    ASSIGN_OR_RETURN(choice[of_class],
                     Fastest(
                         count, what, [&](int variant) { return trial.IsEqual(variant); },
                         [&](int variant) { return trial.Enqueue(variant); }));
  }
  return choice;
}

absl::StatusOr<int> Tuner::MeasureRows(int size) const {
  RowTrial trial(*this, size);
  RETURN_IF_ERROR(trial.Prepare());
  return Fastest(
      kNumDistributionVariants, absl::StrCat("distribution=", size),
      [&](int variant) { return trial.IsEqual(variant); },
      [&](int variant) { return trial.Enqueue(variant); });
}

void Tuner::Tell(const std::string& line, const absl::Status& status) {
  if (status.ok()) {
    Log(LogLevel::kInfo, absl::StrCat(device_name(), " ", line));
    Write();
  } else {  // for example without the memory
    Log(LogLevel::kWarning,
        absl::StrCat(device_name(), " ", line, " reason=\"", status.message(), "\""));
  }
}

// ---- At load and in passes ----

void Tuner::Add(const WeightShape& shape, PartOrder order, const void* packed, size_t bytes) {
  if (!measures_ || bytes < hooks_.min_weight_bytes || choices_.contains(shape)) return;
  const absl::StatusOr<Choice> choice = Measure(shape, order, packed, bytes);
  choices_[shape] = choice.value_or(Choice());
  Tell(ChoiceText(shape, choices_[shape]), choice.status());
}

int Tuner::VariantOfRows(int size) {
  const auto found = row_choices_.find(size);
  if (found != row_choices_.end()) return found->second;
  if (!measures_ || size < hooks_.min_row) return 0;
  const absl::StatusOr<int> choice = MeasureRows(size);
  row_choices_[size] = choice.value_or(0);
  Tell(ChoiceText(size, row_choices_[size]), choice.status());
  return row_choices_[size];
}

Error Tuner::Launch(TileProductTask task) const {
  const auto found = choices_.find({task.dtype, task.num_tiles, NumSteps(task.x.cols)});
  task.variant = found == choices_.end() ? 0 : found->second[RowTilesFor(task.out.rows)];
  return hooks_.launch(task, stream_);
}

std::vector<std::string> Tuner::Report() const {
  std::vector<std::string> lines;
  for (const auto& [shape, choice] : choices_) lines.push_back(ChoiceText(shape, choice));
  for (const auto& [size, variant] : row_choices_) lines.push_back(ChoiceText(size, variant));
  return lines;
}

}  // namespace tandem::cuda
