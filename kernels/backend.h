// The seam between devices: memory, and the operations of a transformer.
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

namespace tandem {

class Backend;
class ColumnGatherer;
class DeviceMeter;
class Sampler;

// What products want of packed weights' addresses: a cache line.
inline constexpr size_t kPackedAlignment = 64;
// The version of the bits that the CPU's Pack makes, quantised or not, and of the files that keep
// them (model/packed_file.h).
inline constexpr int kPackedVersion = 2;

// Owns a block of a backend's memory; without a backend, a view of memory that is not its own.
// Move-only. Must not outlive its backend.
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

// How the parts of a packed weight lie in it.
enum class PartOrder {
  kConcatenated,  // part after part: queries, keys and values as one product
  kGateAndUp,     // two parts of one shape, laid out for MatMulGated
};

// One stretch of a packed weight's outputs: a row-major matrix in host memory and its bias.
struct WeightPart {
  // [outputs, inputs]; rows of blocks (blocks.h) lie next to each other
  ConstMatrixView matrix;
  const float* bias = nullptr;  // [outputs], or none
};

// A weight matrix [outputs, inputs], and perhaps a bias [outputs], in the layout that its backend's
// products want. Made once by Backend::Pack or PackLater. Move-only. Must not outlive its backend.
struct PackedWeight {
  Buffer data;
  Buffer bias;  // f32, in the same layout, or nothing
  PartOrder order = PartOrder::kConcatenated;
  DType dtype = DType::kF32;
  int outputs = 0;
  int inputs = 0;
  size_t bytes_read = 0;  // by one product: what bounds decoding
  // What the first product is to pack (PackLater): the one thing that products change. Then
  // nothing.
  mutable std::vector<WeightPart> unpacked;
};

// A query/key head's normalisation (Qwen3): RmsNorm over head_dim before the rotation.
struct HeadNorms {
  const float* query = nullptr;  // [head_dim], or none
  const float* key = nullptr;    // [head_dim], or none
  float epsilon = 0.0f;
};

// Rows that a product is to normalise first, as RmsNorm does, or to take as they are.
struct NormedRows {
  ConstMatrixView x;
  const float* weight = nullptr;  // [x.cols], or none: then nothing else is looked at
  float epsilon = 0.0f;
  MatrixView normed{};  // of x's shape, or x itself: where they may be left
};

// Which experts rows go through, and what their outputs count for; the backend's.
struct ExpertChoices {
  int32_t* experts = nullptr;  // [rows, per_row], no expert twice in a row
  float* weights = nullptr;    // [rows, per_row]
  int per_row = 0;
};

// The experts of a layer, or some of them: feed-forwards of one shape.
struct ExpertWeights {
  int first = 0;                      // the number of the first one
  std::vector<PackedWeight> gate_up;  // [experts], each [2 * size, hidden], kGateAndUp
  std::vector<PackedWeight> down;     // [experts], each [hidden, size]
};

// Work that is enqueued again and again, such as a model's passes. Where the device can repeat work
// by itself, it is spared the host's calls: a pass of 32 layers has some 230, of 2 us or more each.
// Must not outlive its backend. Thread-compatible.
class GraphCache {
 public:
  virtual ~GraphCache() = default;
  // Enqueues what `enqueue` does, or what it did when this key was seen before. So with one key
  // `enqueue` calls the same operations on the same memory, whose contents may differ, and nothing
  // that waits, allocates or copies to or from the host.
  virtual void Run(absl::Span<const int64_t> /*key*/, absl::FunctionRef<void()> enqueue) {
    enqueue();
  }
  // What was seen before may be about memory that is there no longer.
  virtual void Forget() {}
};

// A device: its memory and the operations a transformer needs, in the order they are called.
//
// Operations are enqueued and run in call order; they return before the work is done. They do not
// return a Status because on a real device they cannot know it yet: the first failure is remembered
// and Synchronize() reports it. Mismatched shapes are programmer errors and abort at once.
//
// Row independence: every row of an operation's result has the same bits whatever the other rows of
// the call are and however many. The order of rounding operations depends on the weights and the
// row's absolute position only (docs/numerics.md).
//
// One virtual call launches one whole operation. Nothing below this interface is virtual.
// Activations, norms' weights and biases are f32. Unless said otherwise `out` may not overlap
// inputs.
//
// Thread-compatible: one thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;         // "cpu", "cuda:0"
  virtual std::string_view description() const = 0;  // for people: threads, instruction set
  // Everything but its inputs that decides the bits of an operation (docs/numerics.md).
  virtual std::string arithmetic() const { return std::string(description()); }

  // ---- Memory ----
  // Whether the host may read and write this backend's memory directly.
  virtual bool memory_is_host() const { return false; }
  // Bytes that could be allocated now; nothing where memory is the host's.
  virtual std::optional<int64_t> free_memory_bytes() { return std::nullopt; }
  // Contents are unspecified. RESOURCE_EXHAUSTED if there is not that much.
  virtual absl::StatusOr<Buffer> Allocate(size_t bytes) = 0;
  // Copies `host` before returning, so the caller may reuse it at once.
  virtual void Upload(absl::Span<const std::byte> host, void* device) = 0;
  // Waits for the copy; `host` is valid on return.
  virtual void Download(const void* device, absl::Span<std::byte> host) = 0;
  // Within the device; the two may not overlap.
  virtual void Copy(const void* from, void* to, size_t bytes) = 0;
  // Waits for everything enqueued so far. Returns, and forgets, the first failure.
  virtual absl::Status Synchronize() = 0;

  // Packs parts of one dtype and one number of inputs as `dtype`: their own, or a block format, to
  // which they are quantised (quantize.h). RESOURCE_EXHAUSTED if memory is short.
  virtual absl::StatusOr<PackedWeight> Pack(absl::Span<const WeightPart> parts, PartOrder order,
                                            std::optional<DType> dtype = std::nullopt) = 0;
  // As Pack, but the matrices may be packed by the first product with them that has rows, which
  // then multiplies by what the processor's caches still hold. The bits are the same. The parts'
  // matrices must stay valid until PackedWeight::unpacked is empty.
  virtual absl::StatusOr<PackedWeight> PackLater(absl::Span<const WeightPart> parts,
                                                 PartOrder order, std::optional<DType> dtype) {
    return Pack(parts, order, dtype);
  }
  // The weight that Pack made of such parts, whose matrices are not read, from its `data` as bytes.
  // They lie at a multiple of kPackedAlignment, and stay valid as long as the weight is used.
  // INVALID_ARGUMENT if there are not as many as Pack makes. REQUIRES: memory_is_host().
  virtual absl::StatusOr<PackedWeight> UsePacked(absl::Span<const WeightPart> /*parts*/,
                                                 PartOrder /*order*/,
                                                 std::optional<DType> /*dtype*/,
                                                 absl::Span<const std::byte> /*packed*/) {
    return absl::UnimplementedError("packed weights are not read in place here");
  }
  // A view of host memory that stays valid and unchanged as long as this backend, as the device may
  // read it: itself on the CPU, a copy held by `*storage` elsewhere.
  virtual absl::StatusOr<ConstMatrixView> Import(ConstMatrixView host, Buffer* storage) = 0;

  virtual std::unique_ptr<GraphCache> MakeGraphCache() { return std::make_unique<GraphCache>(); }
  // What samples rows of logits where they are, what measures the device without the host, and what
  // gathers among devices; null where memory is the host's. They live as long as this.
  virtual Sampler* sampler() { return nullptr; }
  virtual DeviceMeter* meter() { return nullptr; }
  virtual ColumnGatherer* gatherer() { return nullptr; }

  // How products of many rows are computed and why, for operators: lines of key=value; perhaps
  // none.
  virtual std::vector<std::string> product_report() const { return {}; }

  // ---- Operations ----
  // out[r] = table[ids[r]], converted to f32.
  //   ids: [rows], the backend's; table: [vocab, cols] from Import; out: [rows, cols]
  virtual void Embed(const int32_t* ids, ConstMatrixView table, MatrixView out) = 0;

  // out[r] = x[indices[r]].   indices: [out.rows], the backend's
  virtual void GatherRows(ConstMatrixView x, const int32_t* indices, MatrixView out) = 0;

  // largest[r] = the index of the largest of x[r], of equals the lowest; -1 if there is a NaN or
  // +inf, or nothing finite.   largest: [x.rows], the backend's
  virtual void ArgMax(ConstMatrixView x, int32_t* largest) = 0;

  // out[r] = x[r] / sqrt(mean(x[r]^2) + epsilon) * weight.   weight: [cols]; out may be x
  virtual void RmsNorm(ConstMatrixView x, const float* weight, float epsilon, MatrixView out) = 0;

  // out[r] = x[r] - mean(x[r]): what RmsNorm makes a layer norm of.   out may be x
  virtual void SubtractMean(ConstMatrixView x, MatrixView out) = 0;

  // x = scale * x, or with a cap c > 0 c * tanh(scale * x / c).
  virtual void ScaleAndCap(float scale, float soft_cap, MatrixView x) = 0;

  // sum += scale * x.   sum: of x's shape
  virtual void AddScaled(ConstMatrixView x, float scale, MatrixView sum) = 0;

  // out = x * transpose(weight) + bias, accumulated in f32. With weights of blocks the activations
  // are quantised too, by groups of 32 of a row.
  //   x: [rows, inputs]; out: [rows, outputs]
  void MatMul(ConstMatrixView x, const PackedWeight& weight, MatrixView out) {
    TANDEM_CHECK(weight.order == PartOrder::kConcatenated && weight.outputs == out.cols);
    Product(x, weight, Epilogue::kStore, out);
  }
  // The product of normalised rows. A device may scale sums in place of rows.
  void MatMul(const NormedRows& rows, const PackedWeight& weight, MatrixView out) {
    TANDEM_CHECK(weight.order == PartOrder::kConcatenated && weight.outputs == out.cols);
    NormedProduct(rows, weight, Epilogue::kStore, out);
  }
  // sum += x * transpose(weight) + bias: a product and its residual.   sum: [rows, outputs]
  void MatMulAdd(ConstMatrixView x, const PackedWeight& weight, MatrixView sum) {
    TANDEM_CHECK(weight.order == PartOrder::kConcatenated && weight.outputs == sum.cols);
    Product(x, weight, Epilogue::kAdd, sum);
  }
  // out = activation(gate) * up with gate, up = the halves of a product.
  //   weight: packed kGateAndUp, outputs = 2 * out.cols
  void MatMulGated(ConstMatrixView x, const PackedWeight& weight, Activation activation,
                   MatrixView out) {
    TANDEM_CHECK(weight.order == PartOrder::kGateAndUp && weight.outputs == 2 * out.cols);
    Product(x, weight, GatedEnd(activation), out);
  }
  void MatMulGated(const NormedRows& rows, const PackedWeight& weight, Activation activation,
                   MatrixView out) {
    TANDEM_CHECK(weight.order == PartOrder::kGateAndUp && weight.outputs == 2 * out.cols);
    NormedProduct(rows, weight, GatedEnd(activation), out);
  }

  // Whether the two operations on experts are there. They require it.
  virtual bool computes_experts() const { return false; }

  // The `per_row` largest of each row's logits, of equals the first, and their softmax over the
  // whole row, or, if `renormalises`, over themselves. NaN stays in its row.
  //   logits: [rows, experts], which may be written to
  virtual void ChooseExperts(MatrixView /*logits*/, bool /*renormalises*/,
                             const ExpertChoices& /*choices*/) {
    TANDEM_CHECK(computes_experts());
  }

  // out[r] = the sum over the row's experts e, in increasing e, of weight *
  // down_e(activation(gate_e x[r]) * up_e x[r]). A row's experts are multiplied with it alone or
  // with others that chose them, which changes no bit.
  //   x: [rows, hidden]; out: the same shape
  virtual void MixExperts(ConstMatrixView /*x*/, const ExpertChoices& /*choices*/,
                          const ExpertWeights& /*experts*/, Activation /*activation*/,
                          MatrixView /*out*/) {
    TANDEM_CHECK(computes_experts());
  }

  // MixExperts in two steps, of which the first can be shared out by experts.
  // outputs[r * per_row + i] = down_e(activation(gate_e x[r]) * up_e x[r]) of e = expert i of row
  // r, if it is one of `experts`; other rows stay.   outputs: [rows * per_row, hidden]
  virtual void RunExperts(ConstMatrixView /*x*/, const ExpertChoices& /*choices*/,
                          const ExpertWeights& /*experts*/, Activation /*activation*/,
                          MatrixView /*outputs*/) {
    TANDEM_CHECK(computes_experts());
  }
  // out[r] = the sum over i of the weight of its expert i times outputs[r * per_row + i].
  virtual void SumExperts(ConstMatrixView /*outputs*/, const ExpertChoices& /*choices*/,
                          MatrixView /*out*/) {
    TANDEM_CHECK(computes_experts());
  }

  // out[r] = the cosines, then the sines, of position(r) times the inverse frequencies of the row's
  // sequence, each times its magnitude. Angles are products in f32, as the reference computes them.
  //   lengths: [rows.batch]; out: [rows, head_dim]
  virtual void RotaryAngles(const RaggedRows& rows, const int32_t* lengths,
                            const RotaryTables& tables, MatrixView out) = 0;

  // Normalises (if asked) and rotates the queries and keys of `qkv` in place, pairing element i of
  // a head with i + head_dim / 2, and writes the keys and values into the cache at each row's
  // position.
  //   qkv: [rows, (num_heads + 2 * num_kv_heads) * head_dim]: query heads, key heads, value heads
  virtual void RotateAndCache(MatrixView qkv, ConstMatrixView angles, const HeadNorms& norms,
                              const RaggedRows& rows, const PagedKvView& kv) = 0;

  // Causal attention of each row to its sequence's cache (which holds the rows' own keys already):
  // out[r, h] = sum_t softmax_t(scale * q[r, h] . k[t, g]) v[t, g], g = h / (num_heads /
  // num_kv_heads), over positions t in (p - window, p] of row position p, or all of [0, p], from
  // form.first on; zeros where these are none.
  //   q: [rows, num_heads * head_dim], the head of qkv; out: the same shape
  virtual void Attend(ConstMatrixView q, const RaggedRows& rows, const PagedKvView& kv,
                      const AttentionForm& form, MatrixView out) = 0;

 protected:
  friend class Buffer;
  // REQUIRES: weight.order and weight.outputs are those of `end` and `out`.
  virtual void Product(ConstMatrixView x, const PackedWeight& weight, Epilogue end,
                       MatrixView out) = 0;
  // Likewise.
  virtual void NormedProduct(const NormedRows& rows, const PackedWeight& weight, Epilogue end,
                             MatrixView out) {
    if (rows.weight == nullptr) return Product(rows.x, weight, end, out);
    RmsNorm(rows.x, rows.weight, rows.epsilon, rows.normed);
    Product(rows.normed, weight, end, out);
  }
  virtual void Free(void* data, size_t bytes) = 0;
};

inline Buffer::~Buffer() {
  if (backend_ != nullptr) backend_->Free(data_, bytes_);
}

// How the CPU computes products with bf16 weights, and attention over caches of bf16 and int8,
// whose queries and weights are activations too.
enum class CpuCompute {
  kAuto,  // rounded as the CPU has instructions for: bf16, and 16 bits beside caches of int8
  kF32,   // activations exact
  kBF16,  // activations rounded to bf16, products by the CPU's bf16 dot product
};

struct CpuOptions {
  int num_threads = 0;  // 0: the physical cores
  CpuCompute compute = CpuCompute::kAuto;
  std::string isa = "";  // one of CpuIsas(); empty: the best
};

// The instruction sets whose kernels this build has and this machine can run, best first:
// "avx512_amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2_vnni", "avx2", "portable".
std::vector<std::string> CpuIsas();
// Whether one of them multiplies bf16 by bf16.
inline bool HasBf16Products(std::string_view isa) {
  return isa == "avx512_amx" || isa == "avx512_bf16";
}

// INVALID_ARGUMENT for an option this machine cannot honour.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options);
// UNAVAILABLE if this build has no CUDA or this machine has no such device.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int device);
// Whether this build has the CUDA backend, for --version.
bool BuiltWithCuda();
// Whether this build and this machine have what devices of CUDA need, whatever its state.
bool HasCudaDriver();

// "cpu", "cuda:<n>", or "auto": CUDA if present, else the CPU. INVALID_ARGUMENT for other names.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view device,
                                                     const CpuOptions& cpu_options);

// Samples rows where they are, for Backend::sampler where the device is not the host: half a
// megabyte for each row of 128 Ki tokens stays on the device, and 32 bytes come to the host.
class Sampler {
 public:
  virtual ~Sampler() = default;

  // Copies the questions of the following calls of Run, in their order; what they point to may be
  // computed until then. Forgets earlier questions. RESOURCE_EXHAUSTED if memory is short.
  virtual absl::Status Prepare(absl::Span<const RowTask> rows,
                               absl::Span<const SlotTask> slots) = 0;
  // Enqueues the next so many rows, of which distributions are made, and after them slots, which
  // may use these. Nothing is written for a row that is not a distribution, and slots that use it
  // have no meaning.
  virtual void Run(int num_rows, int num_slots) = 0;
  // Enqueues ids[i] = what slot sources[i] drew, or nothing where sources[i] < 0.
  //   sources, ids: [count], the backend's
  virtual void TakeDrawn(const int32_t* sources, int count, int32_t* ids) = 0;
  // Waits. The first failure of anything enqueued so far.
  //   states: of all rows; answers: of all slots
  virtual absl::Status Collect(absl::Span<RowState> states, absl::Span<SlotAnswer> answers) = 0;

  // All of it.
  absl::Status Sample(absl::Span<const RowTask> rows, absl::Span<const SlotTask> slots,
                      absl::Span<RowState> states, absl::Span<SlotAnswer> answers) {
    if (absl::Status status = Prepare(rows, slots); !status.ok()) return status;
    Run(static_cast<int>(rows.size()), static_cast<int>(slots.size()));
    return Collect(states, answers);
  }
};

// Measures a device's speed, apart from the operations. Backends whose device is not the host have
// one: Backend::meter.
class DeviceMeter {
 public:
  virtual ~DeviceMeter() = default;

  // Reads memory and does little else: how fast that is bounds decoding. The exclusive or of all
  // `sums` is that of all 32-bit words read.
  //   bytes: a multiple of 16; sums: [NumReadSums(bytes)], the backend's
  virtual void Read(const void* data, size_t bytes, uint32_t* sums) = 0;
  virtual size_t NumReadSums(size_t bytes) const = 0;

  // Seconds that the device takes for what `enqueue` enqueues, with no host in between: records it
  // once, then replays the recording `replays` times in a row. `enqueue` must not upload, download
  // or synchronise, and must have run before, so that scratch memory is there. The first failure.
  virtual absl::StatusOr<double> SecondsWithoutHost(absl::FunctionRef<void()> enqueue,
                                                    int replays) = 0;

  // out = x * transpose(weight), of bf16 in plain rows, by the library of the device's maker, in
  // whatever order is fastest: a product's ceiling. UNIMPLEMENTED without that library. The first
  // call waits and allocates.
  //   x: [rows, inputs]; weight: [outputs, inputs]; out: [rows, outputs], none with gaps
  virtual absl::Status ReferenceProduct(ConstMatrixView /*x*/, ConstMatrixView /*weight*/,
                                        MatrixView /*out*/) {
    return absl::UnimplementedError("this device has no library of products");
  }
};

// A device of a group, each of whose ranks is a process with a device of its own. The devices bring
// each other columns of matrices without their hosts. Lives as long as its backend, which has left
// the group when it ends. Thread-compatible.
class ColumnGatherer {
 public:
  virtual ~ColumnGatherer() = default;

  // Finds what devices meet by. UNAVAILABLE if this machine has nothing, or nothing that fits.
  // REQUIRES: before Join.
  virtual absl::Status Open() = 0;
  // Words for Join that one rank makes for all.   REQUIRES: Open() was OK.
  virtual absl::StatusOr<std::string> NewGroup() = 0;

  // Is told how this device fares, again and again and on another thread, and returns how the group
  // fares: after an error the device leaves.
  using TellGroup = std::function<absl::Status(const absl::Status& of_device)>;
  // Waits until all ranks have joined. From here on work that is recorded (GraphCache) is recorded,
  // repeated and forgotten on all ranks alike, as long as they make the same calls; where that
  // fails, Synchronize says so.   REQUIRES: Open() was OK, and this device has joined no group.
  virtual absl::Status Join(const std::string& group, int rank, int world, TellGroup tell) = 0;

  // Enqueues: columns [bounds[r], bounds[r + 1]) of rank r's `whole` come to every rank's. Elements
  // are moved as they are.
  //   whole: of 32 bits, of one shape on all ranks; bounds: [world + 1], ascending, the same on all
  virtual void GatherColumns(MatrixView whole, absl::Span<const int> bounds) = 0;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_BACKEND_H_
