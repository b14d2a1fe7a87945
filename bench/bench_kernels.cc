#include "bench/bench_kernels.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/check.h"
#include "base/philox.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "bench/fill_cache.h"
#include "kernels/blocks.h"
#include "kvcache/paged_kv_cache.h"
#include "model/sampling.h"
#include "tools/checkpoints/random_model.h"

namespace tandem {
namespace {

constexpr int kPageSize = 16;

DType DTypeOf(KvDType dtype) {
  switch (dtype) {
    case KvDType::kF32:
      return DType::kF32;
    case KvDType::kBF16:
      return DType::kBF16;
    case KvDType::kInt8:
      return DType::kInt8;
  }
  return DType::kF32;
}

constexpr uint64_t kSeed = 5;
// Copies of something small, beyond which it is left to the caches as it would be in a model.
constexpr int64_t kMostCopies = 1024;
constexpr int kExpertTables = 16;  // that experts are chosen by, in turns

// Numbers between -1 and 1.
std::vector<float> RandomFloats(int64_t count) {
  std::vector<float> values(count);
  FillRandom(kSeed, 0, 0, 0.0f, 1.0f, DType::kF32,
             {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)});
  return values;
}

// A matrix in the backend's memory.
struct DeviceMatrix {
  Buffer buffer;
  MatrixView view;

  static absl::StatusOr<DeviceMatrix> Random(Backend* backend, int rows, int cols) {
    const std::vector<float> values = RandomFloats(int64_t{rows} * cols);
    const size_t bytes = values.size() * sizeof(float);
    DeviceMatrix matrix;
    ASSIGN_OR_RETURN(matrix.buffer, backend->Allocate(bytes));
    backend->Upload({reinterpret_cast<const std::byte*>(values.data()), bytes},
                    matrix.buffer.data());
    matrix.view = {matrix.buffer.data(), DType::kF32, rows, cols, cols};
    return matrix;
  }
  MatrixView first(int rows) const {
    MatrixView part = view;
    part.rows = rows;
    return part;
  }
};

absl::StatusOr<Buffer> UploadInts(const std::vector<int32_t>& values, Backend* backend) {
  const size_t bytes = values.size() * sizeof(int32_t);
  ASSIGN_OR_RETURN(Buffer buffer, backend->Allocate(bytes));
  backend->Upload({reinterpret_cast<const std::byte*>(values.data()), bytes}, buffer.data());
  return buffer;
}

// How a weight is multiplied with.
enum class Product { kStore, kAdd, kSwiGlu };

struct WeightShape {
  std::string_view part;
  int outputs = 0;
  int inputs = 0;
  Product product = Product::kStore;
};

std::vector<WeightShape> WeightShapesOf(const KernelShapes& s) {
  const int query_size = s.heads * s.head_dim;
  const int kv_size = s.kv_heads * s.head_dim;
  return {{"qkv", query_size + 2 * kv_size, s.hidden, Product::kStore},
          {"attention_out", s.hidden, query_size, Product::kAdd},
          {"gate_up", 2 * s.ffn, s.hidden, Product::kSwiGlu},
          {"down", s.hidden, s.ffn, Product::kAdd},
          {"head", s.vocab, s.hidden, Product::kStore}};
}

// The same random weight, so often that they fill `bytes`.
absl::StatusOr<std::vector<PackedWeight>> PackCopies(const WeightShape& shape, DType dtype,
                                                     int64_t bytes, Backend* backend) {
  const auto row_bytes = static_cast<int64_t>(RowBytes(dtype, shape.inputs));
  // Blocks of these bytes have scales of about .01.
  std::vector<std::byte> host(shape.outputs * row_bytes, std::byte{0x21});
  if (!IsBlocks(dtype))
    FillRandom(kSeed, 1, 0, 0.0f, 1.0f / std::sqrt(static_cast<float>(shape.inputs)), dtype,
               absl::MakeSpan(host));
  const auto rows = [&](int first, int count) {
    WeightPart part;
    part.matrix = {host.data() + first * row_bytes, dtype, count, shape.inputs, shape.inputs};
    return part;
  };
  std::vector<WeightPart> parts = {rows(0, shape.outputs)};
  PartOrder order = PartOrder::kConcatenated;
  if (shape.product == Product::kSwiGlu) {
    parts = {rows(0, shape.outputs / 2), rows(shape.outputs / 2, shape.outputs / 2)};
    order = PartOrder::kGateAndUp;
  }
  std::vector<PackedWeight> copies;
  do {
    ASSIGN_OR_RETURN(PackedWeight copy, backend->Pack(parts, order));
    copies.push_back(std::move(copy));
  } while (static_cast<int64_t>(copies.size() * copies[0].bytes_read) < bytes &&
           static_cast<int64_t>(copies.size()) < kMostCopies);
  return copies;
}

bool HasExperts(const KernelBenchmarkOptions& options) {
  return options.shapes.experts > 0 && absl::c_linear_search(options.ops, "experts");
}

// What layers see: all, and a window if some do.
std::vector<int> WindowsOf(const KernelShapes& shapes) {
  if (shapes.window == 0) return {0};
  return {0, shapes.window};
}

// One line of the report in the making.
struct Case {
  KernelResult result;
  std::function<void(int turn)> run;
  MachineLimits::Series series = {};
};

class Benchmark {
 public:
  Benchmark(const KernelBenchmarkOptions& options, Backend* backend, MachineLimits* limits,
            absl::FunctionRef<void()> on_sample)
      : options_(options), backend_(*backend), limits_(*limits), on_sample_(on_sample) {}

  absl::StatusOr<std::vector<KernelResult>> Run() {
    if (Wants("matmul")) {
      for (const DType dtype : options_.dtypes) {
        for (const WeightShape& shape : WeightShapesOf(options_.shapes)) {
          if (IsBlocks(dtype) && shape.inputs % kBlockGroup != 0) {
            return absl::InvalidArgumentError(absl::StrCat(
                "--dtypes: found ", NameOf(dtype), ", allowed: floats, because ", View(shape.part),
                " has ", shape.inputs, " inputs, no multiple of ", kBlockGroup));
          }
          RETURN_IF_ERROR(RunProducts(shape, dtype));
        }
      }
    }
    if (HasExperts(options_)) {
      for (const DType dtype : options_.dtypes) RETURN_IF_ERROR(RunExperts(dtype));
    }
    if (Wants("attention")) {
      for (const int window : WindowsOf(options_.shapes)) {
        for (const int context : options_.contexts) {
          for (const KvDType dtype : kAllKvDTypes) {
            RETURN_IF_ERROR(RunAttention(context, window, dtype));
          }
        }
      }
    }
    if (Wants("rms_norm")) RETURN_IF_ERROR(RunNorms());
    if (Wants("sample")) RETURN_IF_ERROR(RunSampling());
    return std::move(results_);
  }

 private:
  bool Wants(std::string_view op) const { return absl::c_linear_search(options_.ops, op); }
  int max_rows() const { return *absl::c_max_element(options_.rows); }

  // Takes turns among the cases.
  absl::Status RunCases(std::vector<Case> cases) {
    for (int i = 0; i < options_.repeat; ++i) {
      for (Case& each : cases) {
        limits_.Sample(each.result.demand, each.run, &each.series);
        RETURN_IF_ERROR(backend_.Synchronize());
        on_sample_();
      }
    }
    for (Case& each : cases) {
      each.result.time = each.series.Result();
      results_.push_back(std::move(each.result));
    }
    return absl::OkStatus();
  }

  absl::Status RunProducts(const WeightShape& shape, DType dtype) {
    ASSIGN_OR_RETURN(const std::vector<PackedWeight> copies,
                     PackCopies(shape, dtype, options_.working_set_bytes, &backend_));
    ASSIGN_OR_RETURN(const DeviceMatrix x,
                     DeviceMatrix::Random(&backend_, max_rows(), shape.inputs));
    const bool halves = shape.product == Product::kSwiGlu;
    ASSIGN_OR_RETURN(
        const DeviceMatrix out,
        DeviceMatrix::Random(&backend_, max_rows(), halves ? shape.outputs / 2 : shape.outputs));
    std::vector<Case> cases;
    for (const int rows : options_.rows) {
      Case each;
      each.result = {.op = "matmul",
                     .part = shape.part,
                     .dtype = dtype,
                     .rows = rows,
                     .shape = {shape.outputs, shape.inputs},
                     .demand = {.bytes = static_cast<double>(copies[0].bytes_read),
                                .place = MachineLimits::PlaceOf(
                                    static_cast<int64_t>(copies.size() * copies[0].bytes_read)),
                                .flops = 2.0 * rows * shape.outputs * shape.inputs,
                                .input = DotInputOf(dtype, options_.bf16_products)},
                     .time = {}};
      each.run = [&, rows](int turn) {
        const PackedWeight& weight = copies[turn % copies.size()];
        if (shape.product == Product::kStore) {
          backend_.MatMul(x.first(rows), weight, out.first(rows));
        } else if (shape.product == Product::kAdd) {
          backend_.MatMulAdd(x.first(rows), weight, out.first(rows));
        } else {
          backend_.MatMulGated(x.first(rows), weight, Activation::kSilu, out.first(rows));
        }
        TANDEM_CHECK(backend_.Synchronize().ok());
      };
      cases.push_back(std::move(each));
    }
    return RunCases(std::move(cases));
  }

  // Each row chooses at random. What is read are the weights of all experts that some row chose.
  absl::Status RunExperts(DType dtype) {
    const KernelShapes& s = options_.shapes;
    const WeightShape gate_up{"gate_up", 2 * s.expert_ffn, s.hidden, Product::kSwiGlu};
    const WeightShape down{"down", s.hidden, s.expert_ffn, Product::kStore};
    ExpertWeights experts;
    for (int e = 0; e < s.experts; ++e) {
      ASSIGN_OR_RETURN(std::vector<PackedWeight> first, PackCopies(gate_up, dtype, 0, &backend_));
      ASSIGN_OR_RETURN(std::vector<PackedWeight> second, PackCopies(down, dtype, 0, &backend_));
      experts.gate_up.push_back(std::move(first[0]));
      experts.down.push_back(std::move(second[0]));
    }
    const auto bytes_of_one = static_cast<double>(experts.gate_up[0].bytes_read) +
                              static_cast<double>(experts.down[0].bytes_read);
    ASSIGN_OR_RETURN(const DeviceMatrix x, DeviceMatrix::Random(&backend_, max_rows(), s.hidden));
    ASSIGN_OR_RETURN(const DeviceMatrix out, DeviceMatrix::Random(&backend_, max_rows(), s.hidden));
    std::vector<float> weights(static_cast<size_t>(max_rows()) * s.experts_per_row, 0.125f);
    std::vector<std::vector<int32_t>> choices;  // of cases
    std::vector<Case> cases;
    for (const int rows : options_.rows) {
      double mean_union = 0.0;
      choices.push_back(RandomChoices(rows, &mean_union));
      Case each;
      each.result = {.op = "experts",
                     .part = "",
                     .dtype = dtype,
                     .rows = rows,
                     .shape = {s.experts, s.experts_per_row, s.hidden, s.expert_ffn},
                     .demand = {.bytes = mean_union * bytes_of_one,
                                .place = MachineLimits::PlaceOf(
                                    static_cast<int64_t>(bytes_of_one * s.experts)),
                                .flops = 6.0 * rows * s.experts_per_row * s.hidden * s.expert_ffn,
                                .input = DotInputOf(dtype, options_.bf16_products)},
                     .time = {}};
      each.run = [&, rows, at = choices.size() - 1](int turn) {
        const size_t of_table = choices[at].size() / kExpertTables;
        const ExpertChoices chosen{.experts = choices[at].data() + turn % kExpertTables * of_table,
                                   .weights = weights.data(),
                                   .per_row = s.experts_per_row};
        backend_.MixExperts(x.first(rows), chosen, experts, Activation::kSilu, out.first(rows));
        TANDEM_CHECK(backend_.Synchronize().ok());
      };
      cases.push_back(std::move(each));
    }
    return RunCases(std::move(cases));
  }

  // What rows choose by random logits, [kExpertTables, rows, experts_per_row], and how many experts
  // a table has on average.
  std::vector<int32_t> RandomChoices(int rows, double* mean_union) {
    const KernelShapes& s = options_.shapes;
    std::vector<float> logits = RandomFloats(int64_t{kExpertTables} * rows * s.experts);
    std::vector<int32_t> chosen(size_t{kExpertTables} * rows * s.experts_per_row);
    std::vector<float> weights(chosen.size());
    backend_.ChooseExperts(
        {logits.data(), DType::kF32, kExpertTables * rows, s.experts, s.experts}, true,
        {.experts = chosen.data(), .weights = weights.data(), .per_row = s.experts_per_row});
    const size_t of_table = chosen.size() / kExpertTables;
    for (int table = 0; table < kExpertTables; ++table) {
      const std::set<int32_t> seen(chosen.begin() + table * of_table,
                                   chosen.begin() + (table + 1) * of_table);
      *mean_union += static_cast<double>(seen.size()) / kExpertTables;
    }
    return chosen;
  }

  // The layers of a cache in turns are caches that have not been read for long.
  absl::Status RunAttention(int context, int window, KvDType dtype) {
    const KernelShapes& s = options_.shapes;
    KvLayout layout{.num_layers = 1,
                    .num_kv_heads = s.kv_heads,
                    .head_dim = s.head_dim,
                    .page_size = kPageSize,
                    .dtype = dtype};
    const int num_pages = (context + layout.page_size - 1) / layout.page_size;
    const int64_t layer_bytes = static_cast<int64_t>(layout.page_bytes()) * num_pages;
    layout.num_layers =
        static_cast<int>(std::min(options_.working_set_bytes / layer_bytes + 1, kMostCopies));
    ASSIGN_OR_RETURN(const std::unique_ptr<PagedKvCache> cache,
                     PagedKvCache::Create(&backend_, layout, num_pages));
    FillCache(&backend_, cache.get());
    KvSequence sequence = cache->NewSequence();
    RETURN_IF_ERROR(sequence.Extend(context));
    ASSIGN_OR_RETURN(const Buffer pages,
                     UploadInts({sequence.pages().begin(), sequence.pages().end()}, &backend_));
    ASSIGN_OR_RETURN(const Buffer length, UploadInts({context}, &backend_));
    ASSIGN_OR_RETURN(const DeviceMatrix queries,
                     DeviceMatrix::Random(&backend_, max_rows(), s.heads * s.head_dim));
    ASSIGN_OR_RETURN(const DeviceMatrix out,
                     DeviceMatrix::Random(&backend_, max_rows(), s.heads * s.head_dim));
    std::vector<Buffer> starts(options_.rows.size());
    std::vector<Case> cases;
    for (size_t i = 0; i < starts.size(); ++i) {
      const int rows = options_.rows[i];
      if (rows > context) continue;
      ASSIGN_OR_RETURN(starts[i], UploadInts({0, rows}, &backend_));
      Case each;
      // Row r of the last `rows` sees context - rows + r + 1 positions, or a window of them; scores
      // and sums.
      const bool slides = 0 < window && window < context;
      const double seen =
          slides ? static_cast<double>(rows) * window : rows * (context - 0.5 * (rows - 1));
      const int read = slides ? std::min(context, window + rows - 1) : context;
      // Rounded queries and weights are two bytes each beside a cache of int8.
      const bool rounds = options_.bf16_products && dtype != KvDType::kF32;
      const int planes = rounds && dtype == KvDType::kInt8 ? 2 : 1;
      each.result = {
          .op = "attention",
          .part = slides ? "windowed" : "",
          .dtype = DTypeOf(dtype),
          .rows = rows,
          .context = context,
          .shape = {s.heads, s.kv_heads, s.head_dim},
          .demand = {.bytes = 2.0 * read * s.kv_heads * 4.0 * KvRowWords(dtype, s.head_dim),
                     .place = MachineLimits::PlaceOf(layer_bytes * layout.num_layers),
                     .flops = 4.0 * planes * seen * s.heads * s.head_dim,
                     .input = rounds ? DotInputOf(DTypeOf(dtype), true) : DotInput::kF32},
          .time = {}};
      each.run = [&, rows, i, window](int turn) {
        PagedKvView kv = cache->LayerView(turn % layout.num_layers);
        kv.page_tables = static_cast<const int32_t*>(pages.data());
        kv.lengths = static_cast<const int32_t*>(length.data());
        kv.batch = 1;
        kv.max_pages = num_pages;
        const RaggedRows ragged{
            .starts = static_cast<const int32_t*>(starts[i].data()), .batch = 1, .num_rows = rows};
        backend_.Attend(
            queries.first(rows), ragged, kv,
            {.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim)), .window = window},
            out.first(rows));
        TANDEM_CHECK(backend_.Synchronize().ok());
      };
      cases.push_back(std::move(each));
    }
    return RunCases(std::move(cases));
  }

  // Read and written by the operations before and after, so they are in a cache.
  absl::Status RunNorms() {
    const int hidden = options_.shapes.hidden;
    ASSIGN_OR_RETURN(const DeviceMatrix x, DeviceMatrix::Random(&backend_, max_rows(), hidden));
    ASSIGN_OR_RETURN(const DeviceMatrix out, DeviceMatrix::Random(&backend_, max_rows(), hidden));
    ASSIGN_OR_RETURN(const DeviceMatrix weight, DeviceMatrix::Random(&backend_, 1, hidden));
    std::vector<Case> cases;
    for (const int rows : options_.rows) {
      Case each;
      each.result = {.op = "rms_norm",
                     .part = "",
                     .rows = rows,
                     .shape = {hidden},
                     .demand = {.bytes = 4.0 * rows * hidden,
                                .place = Place::kCache,
                                .flops = 4.0 * rows * hidden},
                     .time = {}};
      each.run = [&, rows](int) {
        backend_.RmsNorm(x.first(rows), static_cast<const float*>(weight.buffer.data()), 1e-5f,
                         out.first(rows));
        TANDEM_CHECK(backend_.Synchronize().ok());
      };
      cases.push_back(std::move(each));
    }
    return RunCases(std::move(cases));
  }

  // From a row of logits to a token: the most likely, a drawn one, and one drawn of the likeliest.
  absl::Status RunSampling() {
    const std::vector<float> logits = RandomFloats(options_.shapes.vocab);
    const SamplingParams greedy{.temperature = 0.0f};
    const SamplingParams drawn{.temperature = 1.0f};
    const SamplingParams filtered{.temperature = 1.0f, .top_k = 50, .top_p = 0.9f};
    const std::pair<std::string_view, const SamplingParams*> kinds[] = {
        {"greedy", &greedy}, {"drawn", &drawn}, {"top_k,top_p", &filtered}};
    Distribution distribution;
    std::vector<Case> cases;
    for (const auto& [name, params] : kinds) {
      Case each;
      each.result = {.op = "sample",
                     .part = name,
                     .rows = 1,
                     .shape = {options_.shapes.vocab},
                     .demand = {.bytes = 4.0 * options_.shapes.vocab, .place = Place::kCache},
                     .time = {}};
      each.run = [&logits, &distribution, params](int turn) {
        TANDEM_CHECK(MakeDistribution(logits, *params, nullptr, &distribution).ok());
        const TokenId token =
            Draw(distribution, RandomSource(kSeed),
                 {.stream = RandomStream::kTarget, .position = static_cast<uint32_t>(turn)});
        TANDEM_CHECK(token >= 0);
      };
      cases.push_back(std::move(each));
    }
    return RunCases(std::move(cases));
  }

  const KernelBenchmarkOptions& options_;
  Backend& backend_;
  MachineLimits& limits_;
  absl::FunctionRef<void()> on_sample_;
  std::vector<KernelResult> results_;
};

}  // namespace

std::string_view ShortNameOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    default:
      return NameOf(dtype);
  }
}

DotInput DotInputOf(DType weight, bool bf16_products) {
  if (weight == DType::kBF16 && bf16_products) return DotInput::kBF16;
  return IsBlocks(weight) && MachineLimits::Has(DotInput::kInt8) ? DotInput::kInt8 : DotInput::kF32;
}

bool UsesBf16Products(CpuCompute compute) {
  return compute != CpuCompute::kF32 && HasBf16Products(CpuIsas().front());
}

int NumKernelSamples(const KernelBenchmarkOptions& options) {
  const auto wants = [&](std::string_view op) { return absl::c_linear_search(options.ops, op); };
  const int num_rows = static_cast<int>(options.rows.size());
  int count = 0;
  if (wants("matmul")) {
    count +=
        static_cast<int>(options.dtypes.size() * WeightShapesOf(options.shapes).size()) * num_rows;
  }
  if (HasExperts(options)) count += static_cast<int>(options.dtypes.size()) * num_rows;
  if (wants("attention")) {
    for (const int context : options.contexts) {
      count += static_cast<int>(WindowsOf(options.shapes).size()) * kNumKvDTypes *
               static_cast<int>(
                   absl::c_count_if(options.rows, [context](int rows) { return rows <= context; }));
    }
  }
  if (wants("rms_norm")) count += num_rows;
  if (wants("sample")) count += 3;
  return count * options.repeat;
}

absl::StatusOr<std::vector<KernelResult>> RunKernelBenchmark(const KernelBenchmarkOptions& options,
                                                             Backend* backend,
                                                             MachineLimits* limits,
                                                             absl::FunctionRef<void()> on_sample) {
  return Benchmark(options, backend, limits, on_sample).Run();
}

}  // namespace tandem
