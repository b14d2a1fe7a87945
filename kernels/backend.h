// The interface of a device: its memory, and the operations of a transformer.
#ifndef TANDEM_KERNELS_BACKEND_H_
#define TANDEM_KERNELS_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "kernels/matrix.h"
#include "kernels/paged_kv.h"
#include "kernels/row_tasks.h"
#include "tandem/number_formats.h"

namespace tandem {

class Backend;
class ColumnGatherer;
class DeviceMeter;
class Sampler;

// The alignment of packed weights that products require: a cache line.
inline constexpr size_t kPackedAlignment = 64;
// The version of the bytes that the CPU's Pack writes, quantised or not. Files of packed weights
// (model/packed_file.h) record it. Raise it whenever Pack writes other bytes, or loading packs
// other tensors of the same files.
inline constexpr int kPackedVersion = 3;

// Owns a block of a backend's memory. Without a backend it is a view of memory that it does not
// own. Move-only. Must not outlive its backend.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Backend* backend, void* data, size_t bytes)
      : backend_(backend), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer();

  void* data() const { return data_; }
  size_t size_bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) {
    std::swap(backend_, other.backend_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  Backend* backend_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// The layout of the parts of a packed weight.
enum class PartOrder {
  kConcatenated,  // one part after the other: queries, keys and values as one product
  kGateAndUp,     // two parts of the same shape, interleaved for MatMulGated
};

// Some consecutive outputs of a packed weight: a row-major matrix in host memory, and its bias.
struct WeightPart {
  // [outputs, inputs]; rows of blocks (blocks.h) are contiguous
  ConstMatrixView matrix;
  const float* bias = nullptr;  // [outputs], or null
};

// A weight matrix [outputs, inputs] and an optional bias [outputs], in the layout that its
// backend's products read. Made once, by Backend::Pack, PackLater or UsePacked. Move-only. Must not
// outlive its backend.
struct PackedWeight {
  Buffer data;
  Buffer bias;  // f32, in the same order, or empty
  PartOrder order = PartOrder::kConcatenated;
  DType dtype = DType::kF32;
  int outputs = 0;
  int inputs = 0;
  size_t bytes_read = 0;  // by one product, which bounds the speed of decoding
  // The parts that the first product will pack (PackLater); empty afterwards. Products change no
  // other member.
  mutable std::vector<WeightPart> unpacked;
};

// Normalisation of each query and key head (Qwen3): RmsNorm over head_dim, before the rotation.
struct HeadNorms {
  const float* query = nullptr;  // [head_dim], or null: no normalisation
  const float* key = nullptr;    // [head_dim], or null: no normalisation
  float epsilon = 0.0f;
};

// The input rows of a product. If `weight` is set, the product first normalises them as RmsNorm
// does.
struct NormedRows {
  ConstMatrixView x;
  const float* weight = nullptr;  // [x.cols], or null: use x as it is and ignore the other members
  float epsilon = 0.0f;
  MatrixView normed{};  // scratch for the normalised rows: of x's shape, or x itself
};

// The product that reads the result of an operation next, before anything changes that result. A
// device may also write the result as this product reads it.
struct NextProduct {
  const PackedWeight* weight = nullptr;  // null: none is known
  const float* norm = nullptr;           // NormedRows::weight of the product
};

// The experts that each row goes through, and their weights, in the backend's memory.
struct ExpertChoices {
  int32_t* experts = nullptr;  // [rows, per_row], all different within a row
  float* weights = nullptr;    // [rows, per_row], the factors of the experts' outputs
  int per_row = 0;
};

// All or some consecutive experts of a layer: feed-forward networks of the same shape.
struct ExpertWeights {
  int first = 0;                      // the index of the first of them in the layer
  std::vector<PackedWeight> gate_up;  // [experts], each [2 * size, hidden], kGateAndUp
  std::vector<PackedWeight> down;     // [experts], each [hidden, size]
};

// Runs work that is enqueued repeatedly, such as a model's passes. A device that can record and
// replay work needs no host calls for a replay; a pass of 32 layers has about 230 of them, each of
// which takes 2 us or more. Must not outlive its backend. Thread-compatible.
class GraphCache {
 public:
  virtual ~GraphCache() = default;
  // Calls `enqueue`, or replays the operations that it enqueued for the same key before. For one
  // key `enqueue` must always call the same operations on the same memory (whose contents may
  // differ), and must not wait, allocate, or copy to or from the host.
  virtual void Run(absl::Span<const int64_t> /*key*/, absl::FunctionRef<void()> enqueue) {
    enqueue();
  }
  // Whether operations are replayed, so that keys should repeat.
  virtual bool replays() const { return false; }
  // Drops all recordings. Call it whenever memory that recorded operations use is replaced.
  virtual void Forget() {}
};

// A device: its memory and the operations of a transformer, declared in the order of a pass.
//
// Operations are enqueued and run in call order, and may return before the work is done. They do
// not return a Status, because a real device cannot know it yet: the backend remembers the first
// failure, and Synchronize() reports it. Mismatched shapes are programmer errors and abort at once.
//
// Row independence: each row of a result has the same bits for every content and number of the
// other rows in the call. The order of rounding operations depends only on the weights and on the
// row's absolute position (docs/numerics.md).
//
// One virtual call launches one whole operation. Nothing below this interface is virtual.
// Activations, the weights of norms, and biases are f32. `out` must not overlap the inputs unless
// an operation allows it.
//
// Thread-compatible: one thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;         // "cpu", "cuda:0"
  virtual std::string_view description() const = 0;  // for users: threads, instruction set
  // Names everything that determines the bits of an operation besides its inputs
  // (docs/numerics.md).
  virtual std::string arithmetic() const { return std::string(description()); }

  // ---- Memory ----
  // Whether the host can read and write this backend's memory directly.
  virtual bool memory_is_host() const { return false; }
  // The bytes that could be allocated at this moment; nullopt if memory_is_host().
  virtual std::optional<int64_t> free_memory_bytes() { return std::nullopt; }
  // Allocates memory with unspecified contents. RESOURCE_EXHAUSTED if there is not enough.
  virtual absl::StatusOr<Buffer> Allocate(size_t bytes) = 0;
  // Copies `host` before it returns, so the caller can reuse `host` at once.
  virtual void Upload(absl::Span<const std::byte> host, void* device) = 0;
  // Waits for the copy: `host` is valid on return.
  virtual void Download(const void* device, absl::Span<std::byte> host) = 0;
  // Copies within the device. The two ranges must not overlap.
  virtual void Copy(const void* from, void* to, size_t bytes) = 0;

  // Copies pages of a cache to the host. Calls take(i, copy) for each of `pages` in order, until it
  // returns false; copy(into) copies pages[i], of page_words() words, and can be called during the
  // call of `take` only. Returns the first failure of this or an earlier operation, and does not
  // call `take` for pages that could not be read.
  using CopyPage = absl::FunctionRef<void(absl::Span<std::byte> into)>;
  virtual absl::Status ReadPages(const KvPages& cache, absl::Span<const int32_t> pages,
                                 absl::FunctionRef<bool(int index, CopyPage copy)> take);
  // Copies from[i] into pages[i]. The pages are different. The caller can reuse `from` at once.
  // After an error the pages hold anything.
  virtual absl::Status WritePages(absl::Span<const absl::Span<const std::byte>> from,
                                  absl::Span<const int32_t> pages, const KvPages& cache);
  // Copies pages within a cache. No page that is written occurs twice.
  virtual void CopyPages(const KvPages& cache, absl::Span<const PageCopy> copies);
  // Waits for everything enqueued so far. Returns the first failure and clears it, unless health()
  // is an error: then returns that.
  virtual absl::Status Synchronize() = 0;
  // OK, or DATA_LOSS that names the device and its error if the device is lost to this process, as
  // after an illegal access to its memory. Operations then do nothing, and calls that return a
  // status return this one.
  virtual absl::Status health() const { return absl::OkStatus(); }

  // Packs parts, which have the same dtype and number of inputs, as `dtype`. That is the dtype of
  // the parts (the default), or a block format, to which they are quantised (quantize.h).
  // RESOURCE_EXHAUSTED if there is not enough memory.
  virtual absl::StatusOr<PackedWeight> Pack(absl::Span<const WeightPart> parts, PartOrder order,
                                            std::optional<DType> dtype = std::nullopt) = 0;
  // The same as Pack, but may leave the packing to the first product with this weight that has
  // rows, which then multiplies by weights that are still in the processor's caches. The bits are
  // the same. The matrices of the parts must stay valid until PackedWeight::unpacked is empty.
  virtual absl::StatusOr<PackedWeight> PackLater(absl::Span<const WeightPart> parts,
                                                 PartOrder order, std::optional<DType> dtype) {
    return Pack(parts, order, dtype);
  }
  // Returns a weight whose data is `packed`: bytes that Pack made from parts of this shape. The
  // matrices of `parts` are not read. `packed` must be aligned to kPackedAlignment, and must stay
  // valid as long as the weight is used. INVALID_ARGUMENT if its size is not that of Pack's data.
  // REQUIRES: memory_is_host().
  virtual absl::StatusOr<PackedWeight> UsePacked(absl::Span<const WeightPart> /*parts*/,
                                                 PartOrder /*order*/,
                                                 std::optional<DType> /*dtype*/,
                                                 absl::Span<const std::byte> /*packed*/) {
    return absl::UnimplementedError("this backend cannot use packed weights in place");
  }
  // The same as Pack, into `memory` of PackedBytes, aligned to kPackedAlignment, which must stay
  // valid as long as the weight is used.   REQUIRES: memory_is_host().
  virtual absl::StatusOr<PackedWeight> PackInto(absl::Span<const WeightPart> /*parts*/,
                                                PartOrder /*order*/, std::optional<DType> /*dtype*/,
                                                absl::Span<std::byte> /*memory*/) {
    return absl::UnimplementedError("this backend cannot pack weights in place");
  }
  // The size of Pack's data. The matrices of `parts` are not read.   REQUIRES: memory_is_host().
  virtual size_t PackedBytes(absl::Span<const WeightPart> /*parts*/, PartOrder /*order*/,
                             std::optional<DType> /*dtype*/) const {
    return 0;
  }
  // Makes a matrix in host memory readable by the device. Returns `host` itself on the CPU, and
  // elsewhere a copy that `*storage` owns. `host` must stay valid and unchanged as long as this
  // backend lives.
  virtual absl::StatusOr<ConstMatrixView> Import(ConstMatrixView host, Buffer* storage) = 0;

  virtual std::unique_ptr<GraphCache> MakeGraphCache() { return std::make_unique<GraphCache>(); }
  // Samplers of rows of logits on the device, meters of its speed, and gatherers among devices.
  // Null if memory_is_host(). They live as long as this backend.
  virtual Sampler* sampler() { return nullptr; }
  virtual DeviceMeter* meter() { return nullptr; }
  virtual ColumnGatherer* gatherer() { return nullptr; }

  // Chooses among kernels of products with equal bits, for the weights that are packed from now on:
  // "off", the built-in choice; "load", the fastest for each shape; or a file that keeps these
  // choices (kernels/cuda/tuner.h). Does nothing on a CPU.
  virtual absl::Status TuneProducts(const std::string&) { return absl::OkStatus(); }
  // Reports to operators how products are computed and why, in lines of key=value. May be empty.
  virtual std::vector<std::string> product_report() const { return {}; }

  // ---- Operations ----
  // out[r] = table[ids[r]], converted to f32.
  //   ids: [rows], in backend memory; table: [vocab, cols], from Import; out: [rows, cols]
  virtual void Embed(const int32_t* ids, ConstMatrixView table, MatrixView out,
                     const NextProduct& next) = 0;

  // out[r] = x[indices[r]].   indices: [out.rows], in backend memory
  virtual void GatherRows(ConstMatrixView x, const int32_t* indices, MatrixView out) = 0;

  // largest[r] = the index of the largest entry of x[r]; among equals, the lowest. -1 if the row
  // contains a NaN or +inf, or no finite entry.   largest: [x.rows], in backend memory
  virtual void ArgMax(ConstMatrixView x, int32_t* largest) = 0;

  // out[r] = x[r] / sqrt(mean(x[r]^2) + epsilon) * weight.   weight: [cols]; out may be x
  virtual void RmsNorm(ConstMatrixView x, const float* weight, float epsilon, MatrixView out) = 0;

  // out[r] = x[r] - mean(x[r]). RmsNorm of the result is a layer norm.   out may be x
  virtual void SubtractMean(ConstMatrixView x, MatrixView out) = 0;

  // x = scale * x if soft_cap is 0, else soft_cap * tanh(scale * x / soft_cap).
  virtual void ScaleAndCap(float scale, float soft_cap, MatrixView x) = 0;

  // sum += scale * x.   sum: of x's shape
  virtual void AddScaled(ConstMatrixView x, float scale, MatrixView sum) = 0;

  // out = x * transpose(weight) + bias, accumulated in f32. If the weight has a block format, the
  // activations are quantised too, in groups of 32 within a row.
  //   x: [rows, inputs]; out: [rows, outputs]
  void MatMul(ConstMatrixView x, const PackedWeight& weight, MatrixView out) {
    TANDEM_CHECK(weight.order == PartOrder::kConcatenated && weight.outputs == out.cols);
    Product(x, weight, Epilogue::kStore, out, {});
  }
  // The product of normalised rows. A device may scale the sums instead of the rows.
  void MatMul(const NormedRows& rows, const PackedWeight& weight, MatrixView out) {
    TANDEM_CHECK(weight.order == PartOrder::kConcatenated && weight.outputs == out.cols);
    NormedProduct(rows, weight, Epilogue::kStore, out, {});
  }
  // sum += x * transpose(weight) + bias: a product with a residual.   sum: [rows, outputs]
  void MatMulAdd(ConstMatrixView x, const PackedWeight& weight, MatrixView sum,
                 const NextProduct& next = {}) {
    TANDEM_CHECK(weight.order == PartOrder::kConcatenated && weight.outputs == sum.cols);
    Product(x, weight, Epilogue::kAdd, sum, next);
  }
  // out = activation(gate) * up, where gate and up are the halves of a product.
  //   weight: packed as kGateAndUp, outputs = 2 * out.cols
  //   next: if there is one, it has no norm, and only that product may read `out`
  void MatMulGated(ConstMatrixView x, const PackedWeight& weight, Activation activation,
                   MatrixView out, const NextProduct& next = {}) {
    TANDEM_CHECK(weight.order == PartOrder::kGateAndUp && weight.outputs == 2 * out.cols);
    Product(x, weight, GatedEnd(activation), out, next);
  }
  void MatMulGated(const NormedRows& rows, const PackedWeight& weight, Activation activation,
                   MatrixView out, const NextProduct& next = {}) {
    TANDEM_CHECK(weight.order == PartOrder::kGateAndUp && weight.outputs == 2 * out.cols);
    NormedProduct(rows, weight, GatedEnd(activation), out, next);
  }

  // Whether this backend implements the operations on experts below, all of which REQUIRE it.
  virtual bool computes_experts() const { return false; }

  // Chooses the `per_row` largest logits of each row (among equals, the first), in increasing order
  // of their index. Their weights are a softmax over the whole row, or over the chosen ones if
  // `renormalises`. A NaN affects only its row.
  //   logits: [rows, experts]; used as scratch
  virtual void ChooseExperts(MatrixView /*logits*/, bool /*renormalises*/,
                             const ExpertChoices& /*choices*/) {
    TANDEM_CHECK(computes_experts());
  }

  // out[r] = the sum over the row's experts e, in increasing e, of weight *
  // down_e(activation(gate_e x[r]) * up_e x[r]). Rows that chose the same expert may be multiplied
  // with it together, which does not change the bits of any row.
  //   x: [rows, hidden]; out: the same shape
  virtual void MixExperts(ConstMatrixView /*x*/, const ExpertChoices& /*choices*/,
                          const ExpertWeights& /*experts*/, Activation /*activation*/,
                          MatrixView /*out*/) {
    TANDEM_CHECK(computes_experts());
  }

  // MixExperts in two steps, of which the first can be divided among devices by experts.
  // outputs[r * per_row + i] = down_e(activation(gate_e x[r]) * up_e x[r]) for e = expert i of row
  // r, if e is one of `experts`; other rows of `outputs` stay as they are.
  //   outputs: [rows * per_row, hidden]
  virtual void RunExperts(ConstMatrixView /*x*/, const ExpertChoices& /*choices*/,
                          const ExpertWeights& /*experts*/, Activation /*activation*/,
                          MatrixView /*outputs*/) {
    TANDEM_CHECK(computes_experts());
  }
  // out[r] = the sum over i, in increasing order, of weights[r, i] * outputs[r * per_row + i].
  virtual void SumExperts(ConstMatrixView /*outputs*/, const ExpertChoices& /*choices*/,
                          MatrixView /*out*/) {
    TANDEM_CHECK(computes_experts());
  }

  // Returns what the kernels of a pass read instead of searching for the sequence of each row, for
  // RaggedRows::plan; empty if they need nothing. The number of integers depends only on the number
  // of sequences, `num_rows` and `sizes`. Rows from starts.back() on are padding.
  //   starts: [batch + 1], in host memory; num_rows: at least starts.back()
  virtual std::vector<int32_t> PlanRows(absl::Span<const int32_t> /*starts*/, int /*num_rows*/,
                                        const AttentionSizes& /*sizes*/) const {
    return {};
  }

  // out[r] = the cosines and then the sines of position(r) times the inverse frequencies of the
  // row's sequence, each multiplied by its magnitude. Angles are f32 products, as in the reference.
  //   lengths: [rows.batch]; out: [rows, head_dim]
  virtual void RotaryAngles(const RaggedRows& rows, const int32_t* lengths,
                            const RotaryTables& tables, MatrixView out) = 0;

  // Normalises (where `norms` has weights) and rotates the queries and keys of `qkv` in place,
  // pairing element i of a head with element i + head_dim / 2. Writes the keys and values into the
  // cache at each row's position.
  //   qkv: [rows, (num_heads + 2 * num_kv_heads) * head_dim]: query heads, key heads, value heads
  virtual void RotateAndCache(MatrixView qkv, ConstMatrixView angles, const HeadNorms& norms,
                              const RaggedRows& rows, const PagedKvView& kv) = 0;

  // Causal attention of each row to its sequence's cache, which already holds the keys and values
  // of the rows themselves:
  // out[r, h] = sum_t softmax_t(scale * q[r, h] . k[t, g]) v[t, g], g = h / (num_heads /
  // num_kv_heads), where t runs over the positions in (p - window, p] of a row at position p, or in
  // [0, p] without a window, that are at least form.first. A row without such a position is zeros.
  //   q: [rows, num_heads * head_dim], the first columns of qkv; out: the same shape
  //   next: if there is one, it has no norm, and only that product may read `out`
  virtual void Attend(ConstMatrixView q, const RaggedRows& rows, const PagedKvView& kv,
                      const AttentionForm& form, MatrixView out, const NextProduct& next) = 0;

 protected:
  friend class Buffer;
  // REQUIRES: weight.order and weight.outputs match `end` and `out`.
  virtual void Product(ConstMatrixView x, const PackedWeight& weight, Epilogue end, MatrixView out,
                       const NextProduct& next) = 0;
  // REQUIRES: the same as Product.
  virtual void NormedProduct(const NormedRows& rows, const PackedWeight& weight, Epilogue end,
                             MatrixView out, const NextProduct& next) {
    if (rows.weight == nullptr) return Product(rows.x, weight, end, out, next);
    RmsNorm(rows.x, rows.weight, rows.epsilon, rows.normed);
    Product(rows.normed, weight, end, out, next);
  }
  virtual void Free(void* data, size_t bytes) = 0;
};

inline Buffer::~Buffer() {
  if (backend_ != nullptr) backend_->Free(data_, bytes_);
}

struct CpuOptions {
  int num_threads = 0;  // 0: one for each physical core
  CpuCompute compute = CpuCompute::kAuto;
  std::string isa = "";  // one of CpuIsas(); empty: the best
};

// The instruction sets that this build has kernels for and this machine can run, best first:
// "avx512_amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2_vnni", "avx2", "portable".
std::vector<std::string> CpuIsas();
// Whether this instruction set has a dot product of bf16 by bf16.
inline bool HasBf16Products(std::string_view isa) {
  return isa == "avx512_amx" || isa == "avx512_bf16";
}

// INVALID_ARGUMENT if this machine does not support an option. RESOURCE_EXHAUSTED if the threads
// cannot be started.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options);
// UNAVAILABLE if this build has no CUDA or this machine has no such device.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int device);
// Whether this build has the CUDA backend, for --version.
bool BuiltWithCuda();
// Whether this build supports CUDA and this machine has a CUDA driver, working or not.
bool HasCudaDriver();

// Makes the backend of `device`: "cpu", "cuda:<n>", or "auto", which means "cuda:0" if it is
// available and otherwise "cpu". INVALID_ARGUMENT for other names.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view device,
                                                     const CpuOptions& cpu_options);

// Samples rows of logits on a device that is not the host (Backend::sampler). A row of 128 Ki
// tokens, half a megabyte, stays on the device; 32 bytes are copied to the host.
class Sampler {
 public:
  virtual ~Sampler() = default;

  // Copies the tasks for the following calls of Run, in their order, and discards earlier tasks.
  // The rows that tasks point to need not be computed before Run. RESOURCE_EXHAUSTED if there is
  // not enough memory.
  virtual absl::Status Prepare(absl::Span<const RowTask> rows,
                               absl::Span<const SlotTask> slots) = 0;
  // Enqueues the next `num_rows` row tasks, which make distributions, and then the next `num_slots`
  // slot tasks, which may use these distributions. If a row does not have a distribution, its
  // `probs` are not written, and the answers of slots that use it are meaningless.
  virtual void Run(int num_rows, int num_slots) = 0;
  // Enqueues ids[i] = the token that slot sources[i] drew, for each i with sources[i] >= 0.
  //   sources, ids: [count], in backend memory
  virtual void TakeDrawn(const int32_t* sources, int count, int32_t* ids) = 0;
  // Waits for everything enqueued so far, and returns its first failure.
  //   states: one for each row task; answers: one for each slot task
  virtual absl::Status Collect(absl::Span<RowState> states, absl::Span<SlotAnswer> answers) = 0;

  // Prepare, Run and Collect in one call.
  absl::Status Sample(absl::Span<const RowTask> rows, absl::Span<const SlotTask> slots,
                      absl::Span<RowState> states, absl::Span<SlotAnswer> answers) {
    if (absl::Status status = Prepare(rows, slots); !status.ok()) return status;
    Run(static_cast<int>(rows.size()), static_cast<int>(slots.size()));
    return Collect(states, answers);
  }
};

// Measures the speed of a device that is not the host (Backend::meter).
class DeviceMeter {
 public:
  virtual ~DeviceMeter() = default;

  // Reads memory and does little else: its speed is the read bandwidth, which bounds the speed of
  // decoding. The exclusive or of all `sums` equals the exclusive or of all 32-bit words read.
  //   bytes: a multiple of 16; sums: [NumReadSums(bytes)], in backend memory
  virtual void Read(const void* data, size_t bytes, uint32_t* sums) = 0;
  virtual size_t NumReadSums(size_t bytes) const = 0;

  // Returns the seconds that the device takes for the work of `enqueue` without host calls in
  // between, or the first failure: records the work once, then replays it `replays` times in a row.
  // `enqueue` must not upload, download or synchronise. It must have run before, so that its
  // scratch memory is allocated.
  virtual absl::StatusOr<double> SecondsWithoutHost(absl::FunctionRef<void()> enqueue,
                                                    int replays) = 0;

  // out = x * transpose(weight), computed by the vendor's library in whatever order is fastest: an
  // upper bound for the speed of products. UNIMPLEMENTED without that library. The first call waits
  // and allocates.
  //   x: [rows, inputs], bf16; weight: [outputs, inputs], bf16; out: [rows, outputs]; all
  //     contiguous
  virtual absl::Status ReferenceProduct(ConstMatrixView /*x*/, ConstMatrixView /*weight*/,
                                        MatrixView /*out*/) {
    return absl::UnimplementedError("this device has no vendor library for matrix products");
  }
};

// A device's membership in a group of ranks, each of which is a process with its own device. The
// devices exchange columns of matrices without their hosts. Lives as long as its backend, and
// leaves the group when it is destroyed. Thread-compatible.
class ColumnGatherer {
 public:
  virtual ~ColumnGatherer() = default;

  // Loads the library by which the devices communicate. UNAVAILABLE if this machine does not have
  // it, or not in a supported version. Call it before Join.
  virtual absl::Status Open() = 0;
  // Makes the identifier of a new group, which one rank passes to Join on all ranks.
  // REQUIRES: Open() was OK.
  virtual absl::StatusOr<std::string> NewGroup() = 0;

  // Called repeatedly on another thread with the status of this device. Returns the status of the
  // group; after an error the device leaves the group.
  using TellGroup = std::function<absl::Status(const absl::Status& of_device)>;
  // Waits until all ranks have joined. From then on, ranks that make the same calls record, replay
  // and forget work (GraphCache) in the same places. Synchronize reports a failure to do so.
  // REQUIRES: Open() was OK, and this device has not joined a group.
  virtual absl::Status Join(const std::string& group, int rank, int world, TellGroup tell) = 0;

  // Enqueues a copy of columns [bounds[r], bounds[r + 1]) of rank r's `whole`, for each r, to the
  // `whole` of every rank. The bits of the elements do not change.
  //   whole: 32-bit elements, of the same shape on all ranks
  //   bounds: [world + 1], ascending, the same on all ranks
  virtual void GatherColumns(MatrixView whole, absl::Span<const int> bounds) = 0;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_BACKEND_H_
