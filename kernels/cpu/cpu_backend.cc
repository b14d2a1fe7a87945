#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/environment.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "kernels/blocks.h"
#include "kernels/built_backends.h"
#include "kernels/cpu/block_layout.h"
#include "kernels/cpu/isa/cpu_isa.h"
#include "kernels/cpu/kv_rows.h"
#include "kernels/cpu/packing.h"
#include "kernels/row_math.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

// Smaller operations stay on one thread, because starting the team and transferring data that other
// cores wrote costs 1.5 to 3 us. The sizes are the elements of a product's weights, and the
// elements of attention's keys times the query heads that read them.
//
// The size does not count rows, so that the same thread always multiplies with a given weight or
// attends to a given part of a cache: data that one core has read is slow to reach from another.
// When the rows counted, a plain pass of the shipped target between passes of several rows took 348
// us instead of 219 us.
constexpr int64_t kSmallWeight = 32 * 1024;
constexpr int64_t kSmallAttention = 32 * 1024;
// Up to this size of activations, every thread packs all of them for itself. It then waits for the
// cache lines that other cores wrote all at once, instead of one by one during the product.
constexpr size_t kOwnActivationBytes = 128 * 1024;
// Query vectors (rows times heads) of a unit of attention: enough of them to make reading the keys
// cheap, and few enough for their sums to stay in the L2 cache. If no sequence has more than
// kFixedVectors, each sequence and key/value head is one unit, whose chunks have fixed threads
// (PlanFewRows).
constexpr int kUnitVectors = 64;
constexpr int kFixedVectors = 2 * kUnitVectors;

void CheckF32(const ConstMatrixView& x) {
  TANDEM_CHECK(x.dtype == DType::kF32 && x.stride >= x.cols);
}

ProductFormat FormatOf(DType weight, bool bf16_products) {
  switch (weight) {
    case DType::kF32:
      return ProductFormat::kF32;
    case DType::kF16:
      return ProductFormat::kF16;
    case DType::kBF16:
      break;
    default:
      return BlockProductFormat(weight);
  }
  return bf16_products ? ProductFormat::kBF16Dot : ProductFormat::kBF16;
}

size_t PackedActivationBytes(int rows, int inputs, DType weight, ProductFormat format) {
  if (IsBlocks(weight)) {
    const int unit = BlockLayoutOf(weight).unit_groups();
    const int groups = inputs / kGroupOfBlock;
    return static_cast<size_t>((groups + unit - 1) / unit * unit) * rows * sizeof(ActivationGroup);
  }
  const size_t block_inputs = size_t{kFloatBlockSteps} * (format == ProductFormat::kF32 ? 1 : 2);
  const size_t block_bytes = block_inputs * (format == ProductFormat::kBF16Dot ? 2 : 4);
  return (inputs + block_inputs - 1) / block_inputs * rows * block_bytes;
}

IndexRange RangeOf(int count, int parts, int index) {
  const Share share = ShareOf(count, parts, index);
  return {static_cast<int>(share.begin), static_cast<int>(share.end)};
}

// Returns the sequence of `row`. Searches from `sequence` on.
int SequenceOf(const RaggedRows& rows, int row, int sequence) {
  while (row >= rows.starts[sequence + 1]) ++sequence;
  return sequence;
}
int PositionOf(const RaggedRows& rows, const int32_t* lengths, int sequence, int row) {
  return lengths[sequence] - (rows.starts[sequence + 1] - row);
}

void CheckRagged(const RaggedRows& rows) {
  TANDEM_CHECK(rows.batch == 0 ? rows.num_rows == 0 : rows.starts[rows.batch] == rows.num_rows);
}

void CheckCache(const PagedKvView& kv, const RaggedRows& rows) {
  TANDEM_CHECK(kv.batch == rows.batch && kv.page_size >= 1 && kv.num_kv_heads >= 1 &&
               kv.head_dim >= 1);
}

bool HasBf16Products(const CpuKernels& kernels) {
  return kernels.multiply[static_cast<int>(ProductFormat::kBF16Dot)] != nullptr;
}

}  // namespace

CpuBackend::CpuBackend(const CpuKernels& kernels, int num_threads, bool rounds)
    : kernels_(kernels),
      rounds_(rounds),
      bf16_products_(rounds && HasBf16Products(kernels)),
      pool_(num_threads),
      description_(absl::StrCat(num_threads, num_threads == 1 ? " thread, " : " threads, ",
                                kernels.name, bf16_products_ ? ", bf16 products" : "")),
      thread_scratch_(new Scratch[num_threads]) {}

std::string CpuBackend::arithmetic() const {
  return absl::StrCat(kernels_.name, bf16_products_ ? ", bf16 products" : "",
                      rounds_ ? ", rounded activations" : "");
}

// ---- Memory ----

absl::StatusOr<Buffer> CpuBackend::Allocate(size_t bytes) {
  void* data = AllocateAligned(bytes);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("cpu: no memory for ", bytes, " bytes"));
  }
  return Buffer(this, data, bytes);
}

void CpuBackend::Upload(absl::Span<const std::byte> host, void* device) {
  if (!host.empty()) std::memcpy(device, host.data(), host.size());
}

void CpuBackend::Download(const void* device, absl::Span<std::byte> host) {
  if (!host.empty()) std::memcpy(host.data(), device, host.size());
}

void CpuBackend::Copy(const void* from, void* to, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

absl::StatusOr<ConstMatrixView> CpuBackend::Import(ConstMatrixView host, Buffer*) { return host; }

// ---- Rows ----

void CpuBackend::Embed(const int32_t* ids, ConstMatrixView table, MatrixView out,
                       const NextProduct&) {
  CheckF32(out);
  TANDEM_CHECK(table.cols == out.cols);
  ForShares(out.rows, static_cast<int64_t>(out.rows) * out.cols, [&](int begin, int end) {
    for (int r = begin; r < end; ++r) {
      TANDEM_CHECK(ids[r] >= 0 && ids[r] < table.rows);
      const auto* row =
          static_cast<const std::byte*>(table.data) + ids[r] * RowBytes(table.dtype, table.stride);
      WidenRow(row, table.dtype, out.cols, RowOf(out, r));
    }
  });
}

void CpuBackend::GatherRows(ConstMatrixView x, const int32_t* indices, MatrixView out) {
  CheckF32(x);
  CheckF32(out);
  TANDEM_CHECK(x.cols == out.cols);
  for (int r = 0; r < out.rows; ++r) {
    TANDEM_CHECK(indices[r] >= 0 && indices[r] < x.rows);
    std::memcpy(RowOf(out, r), RowOf(x, indices[r]), out.cols * sizeof(float));
  }
}

void CpuBackend::ArgMax(ConstMatrixView x, int32_t* largest) {
  CheckF32(x);
  for (int r = 0; r < x.rows; ++r) {
    largest[r] = ArgMaxOf({RowOf(x, r), static_cast<size_t>(x.cols)});
  }
}

void CpuBackend::RmsNorm(ConstMatrixView x, const float* weight, float epsilon, MatrixView out) {
  CheckF32(x);
  CheckF32(out);
  TANDEM_CHECK(x.rows == out.rows && x.cols == out.cols);
  ForShares(x.rows, static_cast<int64_t>(x.rows) * x.cols, [&](int begin, int end) {
    for (int r = begin; r < end; ++r) {
      kernels_.rms_norm(RowOf(x, r), weight, x.cols, epsilon, RowOf(out, r));
    }
  });
}

void CpuBackend::SubtractMean(ConstMatrixView x, MatrixView out) {
  CheckF32(x);
  CheckF32(out);
  TANDEM_CHECK(x.rows == out.rows && x.cols == out.cols);
  ForShares(x.rows, static_cast<int64_t>(x.rows) * x.cols, [&](int begin, int end) {
    for (int r = begin; r < end; ++r) kernels_.subtract_mean(RowOf(x, r), x.cols, RowOf(out, r));
  });
}

void CpuBackend::ScaleAndCap(float scale, float soft_cap, MatrixView x) {
  CheckF32(x);
  TANDEM_CHECK(soft_cap >= 0.0f);
  ForShares(x.rows, static_cast<int64_t>(x.rows) * x.cols, [&](int begin, int end) {
    for (int r = begin; r < end; ++r) {
      kernels_.scale_and_cap(scale, soft_cap, x.cols, RowOf(x, r));
    }
  });
}

void CpuBackend::AddScaled(ConstMatrixView x, float scale, MatrixView sum) {
  CheckF32(x);
  CheckF32(sum);
  TANDEM_CHECK(x.rows == sum.rows && x.cols == sum.cols);
  ForShares(x.rows, static_cast<int64_t>(x.rows) * x.cols, [&](int begin, int end) {
    for (int r = begin; r < end; ++r) {
      kernels_.add_scaled(RowOf(x, r), scale, x.cols, RowOf(sum, r));
    }
  });
}

// ---- Products ----

void CpuBackend::Product(ConstMatrixView x, const PackedWeight& weight, Epilogue end,
                         MatrixView out, const NextProduct&) {
  CheckF32(x);
  CheckF32(out);
  TANDEM_CHECK(x.rows == out.rows && x.cols == weight.inputs);
  if (x.rows == 0) return;
  const ProductFormat format = FormatOf(weight.dtype, bf16_products_);
  const auto multiply = kernels_.multiply[static_cast<int>(format)];
  const auto pack = kernels_.pack_activations[static_cast<int>(format)];
  const size_t packed_bytes = PackedActivationBytes(x.rows, x.cols, weight.dtype, format);
  ProductTask task;
  task.panels = static_cast<const std::byte*>(weight.data.data());
  const PanelShape shape = PanelShapeOf(weight.dtype, weight.inputs);
  task.num_steps = shape.num_steps;
  task.panel_bytes = shape.bytes;
  task.bias = static_cast<const float*>(weight.bias.data());
  task.num_rows = x.rows;
  task.end = end;
  task.out = RowOf(out, 0);
  task.out_stride = out.stride;
  task.out_cols = out.cols;
  const bool share_activations = packed_bytes > kOwnActivationBytes;
  if (share_activations) {
    void* packed = activations_.Reserve(packed_bytes);
    ForShares(x.rows, static_cast<int64_t>(x.rows) * x.cols, [&](int begin, int end_row) {
      pack(RowOf(x, 0), x.stride, x.cols, x.rows, {begin, end_row}, packed);
    });
    task.activations = packed;
  }

  const int units = (out.cols + kPanelOutputs - 1) / kPanelOutputs;
  const int64_t size = static_cast<int64_t>(x.cols) * weight.outputs;
  const int threads = size < kSmallWeight ? 1 : pool_.num_threads();
  // If there are fewer panels than threads, threads share rows too.
  const int row_parts = std::min(x.rows, (threads + units - 1) / units);
  const int unit_parts = threads / row_parts;
  // If only one thread reads each panel, it packs the panel just before. Otherwise pack all now.
  if (row_parts > 1) PackWhole(weight);
  const bool packs = !weight.unpacked.empty();
  const int panels_per_unit = IsGated(end) ? 2 : 1;
  const auto multiply_share = [&](int thread) {
    if (thread >= unit_parts * row_parts) return;
    const IndexRange my_units = RangeOf(units, unit_parts, thread / row_parts);
    const IndexRange my_rows = RangeOf(x.rows, row_parts, thread % row_parts);
    const int tile_rows = std::min(kMaxTileRows, my_rows.end - my_rows.begin);
    if (my_units.begin == my_units.end || tile_rows == 0) return;
    const size_t sums_bytes = sizeof(float) * 2 * tile_rows * kPanelOutputs;
    auto* scratch = static_cast<std::byte*>(
        thread_scratch_[thread].Reserve(sums_bytes + (share_activations ? 0 : packed_bytes)));
    auto* sums = reinterpret_cast<float*>(scratch);
    std::byte* const own_activations = scratch + sums_bytes;
    ProductTask mine = task;
    if (!share_activations) {
      mine.activations = own_activations;
      pack(RowOf(x, 0), x.stride, x.cols, x.rows, my_rows, own_activations);
    }
    const int at_once = packs ? 1 : my_units.end - my_units.begin;
    for (int unit = my_units.begin; unit < my_units.end; unit += at_once) {
      if (packs) PackPanels(weight, {unit * panels_per_unit, (unit + 1) * panels_per_unit});
      for (int row = my_rows.begin; row < my_rows.end; row += tile_rows) {
        multiply(mine, {unit, unit + at_once}, {row, std::min(row + tile_rows, my_rows.end)}, sums);
      }
    }
  };
  if (threads == 1) {
    multiply_share(0);
  } else {
    pool_.Run(multiply_share);
  }
  weight.unpacked.clear();
}

// ---- Attention ----

void CpuBackend::RotaryAngles(const RaggedRows& rows, const int32_t* lengths,
                              const RotaryTables& tables, MatrixView out) {
  CheckF32(out);
  CheckRagged(rows);
  TANDEM_CHECK(out.rows == rows.num_rows && out.cols % 2 == 0);
  const int half = out.cols / 2;
  // A cosine takes as long as about 16 elements of other work.
  ForShares(out.rows, int64_t{16} * out.rows * out.cols, [&](int begin, int end) {
    int sequence = 0;
    for (int r = begin; r < end; ++r) {
      sequence = SequenceOf(rows, r, sequence);
      const float position = static_cast<float>(PositionOf(rows, lengths, sequence, r));
      const float* frequencies =
          tables.inverse_frequencies + int64_t{half} * tables.of_sequence[sequence];
      float* angles = RowOf(out, r);
      for (int i = 0; i < half; ++i) {
        const float angle = position * frequencies[i];
        angles[i] = std::cos(angle) * tables.magnitudes[i];
        angles[half + i] = std::sin(angle) * tables.magnitudes[i];
      }
    }
  });
}

void CpuBackend::RotateAndCache(MatrixView qkv, ConstMatrixView angles, const HeadNorms& norms,
                                const RaggedRows& rows, const PagedKvView& kv) {
  CheckF32(qkv);
  CheckF32(angles);
  CheckRagged(rows);
  CheckCache(kv, rows);
  const int head_dim = kv.head_dim;
  const int num_heads = qkv.cols / head_dim - 2 * kv.num_kv_heads;
  TANDEM_CHECK(qkv.rows == rows.num_rows && angles.rows == rows.num_rows &&
               angles.cols == head_dim && head_dim % 2 == 0 && num_heads >= 1 &&
               qkv.cols % head_dim == 0);
  ForShares(qkv.rows, static_cast<int64_t>(qkv.rows) * qkv.cols, [&](int begin, int end) {
    int sequence = 0;
    for (int r = begin; r < end; ++r) {
      sequence = SequenceOf(rows, r, sequence);
      const int position = PositionOf(rows, kv.lengths, sequence, r);
      const int64_t page =
          kv.page_tables[static_cast<int64_t>(sequence) * kv.max_pages + position / kv.page_size];
      float* head = RowOf(qkv, r);
      for (int h = 0; h < num_heads + kv.num_kv_heads; ++h, head += head_dim) {
        const float* norm = h < num_heads ? norms.query : norms.key;
        if (norm != nullptr) kernels_.rms_norm(head, norm, head_dim, norms.epsilon, head);
        kernels_.rotate(RowOf(angles, r), head_dim, head);
      }
      const float* keys = head - static_cast<int64_t>(kv.num_kv_heads) * head_dim;
      const float* values = head;
      for (int h = 0; h < kv.num_kv_heads; ++h) {
        StoreKvRow(kv, page, h, position % kv.page_size, keys + h * head_dim,
                   values + h * head_dim);
      }
    }
  });
}

// The chunks that rows at positions [first, end) see. There is at least one chunk, so that rows
// that see no position still get their zeros.
IndexRange VisibleChunks(int first, int end, const AttentionForm& form) {
  const int seen = std::max(form.window > 0 ? first - form.window + 1 : 0, form.first);
  return {std::min(seen, end - 1) / kAttendChunk, (end + kAttendChunk - 1) / kAttendChunk};
}

// For many rows: makes units of about kUnitVectors vectors, which threads take when they are free.
// Later rows come first, because they take longest.
void CpuBackend::PlanManyRows(const AttendTask& task, const RaggedRows& rows) {
  const int block = std::max(1, kUnitVectors / task.heads_per_kv_head);
  for (int s = 0; s < rows.batch; ++s) {
    for (int end = rows.starts[s + 1]; end > rows.starts[s]; end -= block) {
      const int begin = std::max(rows.starts[s], end - block);
      const int first = PositionOf(rows, task.kv.lengths, s, begin);
      for (int g = 0; g < task.kv.num_kv_heads; ++g) {
        units_.push_back({.sequence = s,
                          .kv_head = g,
                          .rows = {begin, end},
                          .first_position = first,
                          .chunks = VisibleChunks(first, first + end - begin, task.form),
                          .states = nullptr});
      }
    }
  }
}

// For few rows: puts the chunks of all sequences and key/value heads in a row and cuts it into one
// part for each thread. Heads that are in several parts are merged afterwards.
void CpuBackend::PlanFewRows(const AttendTask& task, const RaggedRows& rows) {
  std::vector<AttendUnit> whole;
  int64_t num_chunks = 0;
  for (int s = 0; s < rows.batch; ++s) {
    const IndexRange range = {rows.starts[s], rows.starts[s + 1]};
    if (range.begin == range.end) continue;
    const int first = PositionOf(rows, task.kv.lengths, s, range.begin);
    for (int g = 0; g < task.kv.num_kv_heads; ++g) {
      whole.push_back({.sequence = s,
                       .kv_head = g,
                       .rows = range,
                       .first_position = first,
                       .chunks = VisibleChunks(first, first + range.end - range.begin, task.form),
                       .states = nullptr});
      num_chunks += whole.back().chunks.end - whole.back().chunks.begin;
    }
  }
  int64_t done = 0;  // chunks
  for (const AttendUnit& unit : whole) {
    const bool is_cut = CutUnit(unit, num_chunks, &done);
    if (is_cut) cut_units_.push_back(unit);
  }
  while (static_cast<int>(thread_units_.size()) <= pool_.num_threads()) {
    thread_units_.push_back(units_.size());
  }
  PlaceStates(task);
}

// Cuts `unit`, whose first chunk is number `*done` of `num_chunks`, into the parts of its threads,
// and adds them to units_. Returns whether there are several parts. Advances `*done`.
bool CpuBackend::CutUnit(const AttendUnit& unit, int64_t num_chunks, int64_t* done) {
  const auto end_of_share = [&] {
    return ShareOf(num_chunks, pool_.num_threads(), static_cast<int>(thread_units_.size()) - 1).end;
  };
  AttendUnit part = unit;
  while (part.chunks.begin < unit.chunks.end) {
    while (end_of_share() <= *done) thread_units_.push_back(units_.size());
    part.chunks.end = static_cast<int>(
        std::min<int64_t>(unit.chunks.end, part.chunks.begin + (end_of_share() - *done)));
    units_.push_back(part);
    *done += part.chunks.end - part.chunks.begin;
    part.chunks.begin = part.chunks.end;
  }
  return units_.back().chunks.begin != unit.chunks.begin;
}

// Allocates the states of the parts of cut units. The parts are in the order of cut_units_.
void CpuBackend::PlaceStates(const AttendTask& task) {
  const auto floats_of = [&](const AttendUnit& unit) {
    return AttendStateFloats(unit.num_vectors(task.heads_per_kv_head), task.kv.head_dim);
  };
  size_t total = 0;
  for (const AttendUnit& cut : cut_units_) {
    total += floats_of(cut) * (cut.chunks.end - cut.chunks.begin);
  }
  if (total == 0) return;
  auto* states = static_cast<float*>(chunk_states_.Reserve(total * sizeof(float)));
  auto part = units_.begin();
  for (AttendUnit& cut : cut_units_) {
    while (part->sequence != cut.sequence || part->kv_head != cut.kv_head) ++part;
    cut.states = states;
    for (; part != units_.end() && part->sequence == cut.sequence && part->kv_head == cut.kv_head;
         ++part) {
      part->states = states;
      states += floats_of(cut) * (part->chunks.end - part->chunks.begin);
    }
  }
}

void CpuBackend::Attend(ConstMatrixView q, const RaggedRows& rows, const PagedKvView& kv,
                        const AttentionForm& form, MatrixView out, const NextProduct&) {
  CheckF32(q);
  CheckF32(out);
  CheckRagged(rows);
  CheckCache(kv, rows);
  const int num_heads = q.cols / kv.head_dim;
  TANDEM_CHECK(q.rows == rows.num_rows && out.rows == q.rows && out.cols == q.cols &&
               q.cols % kv.head_dim == 0 && num_heads % kv.num_kv_heads == 0 && form.window >= 0 &&
               form.first >= 0 && form.soft_cap >= 0.0f);
  if (q.rows == 0) return;
  AttendTask task;
  task.queries = RowOf(q, 0);
  task.query_stride = q.stride;
  task.out = RowOf(out, 0);
  task.out_stride = out.stride;
  task.kv = kv;
  task.heads_per_kv_head = num_heads / kv.num_kv_heads;
  task.form = form;
  AttendAll(task, rows);
}

void CpuBackend::AttendAll(const AttendTask& task, const RaggedRows& rows) {
  units_.clear();
  cut_units_.clear();
  thread_units_.assign(1, 0);
  int max_rows = 0;
  int64_t work = 0;  // with one row for each sequence
  for (int s = 0; s < rows.batch; ++s) {
    const int count = rows.starts[s + 1] - rows.starts[s];
    const int length = task.kv.lengths[s];
    max_rows = std::max(max_rows, count);
    if (count == 0) continue;
    work += int64_t{task.form.window > 0 ? std::min(task.form.window, length) : length} *
            task.kv.num_kv_heads * task.heads_per_kv_head * task.kv.head_dim;
  }
  const bool few_rows = int64_t{max_rows} * task.heads_per_kv_head <= kFixedVectors;
  const bool one_thread = pool_.num_threads() == 1 || (few_rows && work < kSmallAttention);
  if (few_rows && !one_thread) {
    PlanFewRows(task, rows);
    pool_.Run([&](int thread) {
      for (size_t i = thread_units_[thread]; i < thread_units_[thread + 1]; ++i) {
        AttendUnitOn(thread, task, units_[i]);
      }
    });
    for (const AttendUnit& unit : cut_units_) {
      kernels_.merge_chunks(task, unit, AttendScratch(0, task, unit));
    }
    return;
  }
  PlanManyRows(task, rows);
  std::atomic<size_t> next{0};
  const auto attend_units = [&](int thread) {
    for (size_t i = next.fetch_add(1, std::memory_order_relaxed); i < units_.size();
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      AttendUnitOn(thread, task, units_[i]);
    }
  };
  if (one_thread) {
    attend_units(0);
  } else {
    pool_.Run(attend_units);
  }
}

float* CpuBackend::AttendScratch(int thread, const AttendTask& task, const AttendUnit& unit) {
  const int vectors = unit.num_vectors(task.heads_per_kv_head);
  return static_cast<float*>(thread_scratch_[thread].Reserve(
      sizeof(float) * AttendScratchFloats(vectors, task.kv.head_dim)));
}

void CpuBackend::AttendUnitOn(int thread, const AttendTask& task, const AttendUnit& unit) {
  const int dtype = static_cast<int>(task.kv.dtype);
  const auto rounded = rounds_ ? kernels_.attend_rounded[dtype] : nullptr;
  const auto attend = rounded != nullptr ? rounded : kernels_.attend[dtype];
  attend(task, unit, AttendScratch(thread, task, unit));
}

// ---- Construction ----

std::string AllowedIsas() { return absl::StrJoin(CpuIsas(), ", ") + HintAtOtherIsas(); }

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options) {
  const std::vector<const CpuKernels*> runnable = RunnableCpuKernels();
  const std::string best = EnvironmentVariable(kMaxCpuIsa);
  if (!best.empty() && runnable.front()->name != best) {
    return FieldError(kMaxCpuIsa, absl::StrCat("found ", best, ", allowed: ", AllowedIsas()));
  }
  const auto chosen =
      std::find_if(runnable.begin(), runnable.end(), [&](const CpuKernels* kernels) {
        return options.isa.empty() || options.isa == kernels->name;
      });
  if (chosen == runnable.end()) {
    return absl::InvalidArgumentError(absl::StrCat("cpu: cannot run instruction set \"",
                                                   options.isa, "\"; allowed: ", AllowedIsas()));
  }
  const CpuKernels& kernels = **chosen;
  if (options.compute == CpuCompute::kBF16 && !HasBf16Products(kernels)) {
    return FieldError("compute",
                      absl::StrCat("bf16 is not possible: instruction set \"", kernels.name,
                                   "\" has no bf16 dot product; allowed: auto, f32"));
  }
  if (options.num_threads < 0 || options.num_threads > 4096) {
    return absl::InvalidArgumentError(absl::StrCat("cpu: num_threads: found ", options.num_threads,
                                                   ", allowed: 0 to 4096 (0: all usable cores)"));
  }
  const int num_threads = options.num_threads == 0 ? NumUsableCores() : options.num_threads;
  try {
    return std::make_unique<CpuBackend>(kernels, num_threads, options.compute != CpuCompute::kF32);
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cpu: cannot start ", num_threads, " threads: ", error.what()));
  }
}

}  // namespace tandem
