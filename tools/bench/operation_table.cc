#include "tools/bench/operation_table.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/philox.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/thread_pool.h"
#include "kernels/backend.h"
#include "kernels/blocks.h"
#include "kernels/quantize.h"
#include "kernels/row_sums.h"
#include "kvcache/paged_kv_cache.h"
#include "model/sampling.h"
#include "tools/bench/machine_limits.h"
#include "tools/checkpoints/random_model.h"

namespace tandem {
namespace {

constexpr int kExpertTables = 16;  // number of tables of expert choices, used in rotation
constexpr float kEpsilon = 1e-5f;

}  // namespace

struct OperationTable::WeightShape {
  std::string_view part;
  int outputs = 0;
  int inputs = 0;
  // Whether the product is stored, added, or gated by its other half. A model normalises the input
  // rows of products that it does not add.
  enum class Use { kStore, kAdd, kSwiGlu } use = Use::kStore;
};

int OperationTable::num_operations() const {
  size_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.num_operations;
  return static_cast<int>(sum);
}

absl::Status OperationTable::Run(OnResult on_result) const {
  for (const Entry& entry : entries_) RETURN_IF_ERROR(entry.run(on_result));
  return absl::OkStatus();
}

int OperationTable::max_rows() const { return *absl::c_max_element(options_.rows); }

void OperationTable::AddMemory(int64_t bytes) {
  Add(2, [this, bytes](OnResult on_result) -> absl::Status {
    DeviceMeter* const meter = backend_.meter();
    const size_t size = bytes / 256 * 256;
    ASSIGN_OR_RETURN(const Buffer buffer, backend_.Allocate(size));
    auto* const data = static_cast<std::byte*>(buffer.data());
    // Write every page first: pages that were never written may not be mapped yet.
    backend_.Copy(data, data + size / 2, size / 2);
    backend_.Copy(data + size / 2, data, size / 2);
    Operation read{.op = "read", .demand = {.bytes = static_cast<double>(size)}};
    ThreadPool pool(NumUsableCores());
    std::unique_ptr<ReadBuffer> host;
    Buffer sums;
    if (meter != nullptr) {
      ASSIGN_OR_RETURN(sums, backend_.Allocate(meter->NumReadSums(size) * sizeof(uint32_t)));
    } else {
      ASSIGN_OR_RETURN(host, ReadBuffer::Create(bytes, 1, &pool));
      read.demand.bytes = static_cast<double>(host->bytes());
    }
    const auto enqueue_read = [&](int) {
      if (meter == nullptr) {
        host->ReadPart();
      } else {
        meter->Read(data, size, static_cast<uint32_t*>(sums.data()));
      }
    };
    const auto enqueue_copy = [&](int) { backend_.Copy(data, data + size / 2, size / 2); };
    return RunAll(
        {Enqueued(read, enqueue_read),
         Enqueued({.op = "copy", .demand = {.bytes = static_cast<double>(size)}}, enqueue_copy)},
        on_result);
  });
}

absl::Status OperationTable::AddProducts(std::string_view op, std::string_view option) {
  using Use = WeightShape::Use;
  const ModelConfig& c = options_.config;
  const int query_size = c.num_heads * c.head_dim;
  const int kv_size = c.num_kv_heads * c.head_dim;
  const WeightShape shapes[] = {{"qkv", query_size + 2 * kv_size, c.hidden_size, Use::kStore},
                                {"attention_out", c.hidden_size, query_size, Use::kAdd},
                                {"gate_up", 2 * c.intermediate_size, c.hidden_size, Use::kSwiGlu},
                                {"down", c.hidden_size, c.intermediate_size, Use::kAdd},
                                {"head", c.vocab_size, c.hidden_size, Use::kStore}};
  for (const DType dtype : options_.dtypes) {
    const DType packed = options_.quantized.value_or(dtype);
    for (const WeightShape& shape : shapes) {
      if (IsBlocks(packed) && shape.inputs % kBlockGroup != 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            View(option), ": found ", NameOf(packed), ", allowed: floats, because ",
            View(shape.part), " has ", shape.inputs, " inputs, not a multiple of ", kBlockGroup));
      }
      Add(options_.rows.size(),
          [=, this](OnResult on_result) { return RunProducts(op, shape, dtype, on_result); });
    }
  }
  return absl::OkStatus();
}

// Packs copies of one random weight until they fill `bytes`.
absl::StatusOr<std::vector<PackedWeight>> OperationTable::PackCopies(const WeightShape& shape,
                                                                     DType dtype,
                                                                     int64_t bytes) const {
  const int inputs = shape.inputs;
  // Blocks of these bytes have scales of about .01.
  std::vector<std::byte> host(shape.outputs * RowBytes(dtype, inputs), std::byte{0x21});
  ThreadPool pool(NumUsableCores());
  if (!IsBlocks(dtype)) {
    const TensorSpec tensor{.name = "", .shape = {shape.outputs, inputs}};
    FillTensor(tensor, kBenchSeed, 1, 0, dtype, &pool, absl::MakeSpan(host));
  }
  if (options_.quantized.has_value()) {
    host = QuantizeMatrix({host.data(), dtype, shape.outputs, inputs, inputs}, *options_.quantized,
                          &pool);
    dtype = *options_.quantized;
  }
  const bool is_gated = shape.use == WeightShape::Use::kSwiGlu;
  const int outputs = is_gated ? shape.outputs / 2 : shape.outputs;
  const size_t part_bytes = outputs * RowBytes(dtype, inputs);
  std::vector<WeightPart> parts(is_gated ? 2 : 1);
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].matrix = {host.data() + i * part_bytes, dtype, outputs, inputs, inputs};
  }
  const PartOrder order = is_gated ? PartOrder::kGateAndUp : PartOrder::kConcatenated;
  std::vector<PackedWeight> copies;
  do {
    ASSIGN_OR_RETURN(PackedWeight copy, backend_.Pack(parts, order));
    copies.push_back(std::move(copy));
  } while (static_cast<int64_t>(copies.size() * copies[0].bytes_read) < bytes &&
           static_cast<int64_t>(copies.size()) < kMaxCopies);
  return copies;
}

// Returns the milliseconds of the reference product, rotating through the copies; NaN without one.
absl::StatusOr<double> OperationTable::ReferenceMs(const std::vector<PackedWeight>& copies,
                                                   int rows) const {
  DeviceMeter* const meter = backend_.meter();
  const auto& [outputs, inputs] = std::pair(copies[0].outputs, copies[0].inputs);
  if (meter == nullptr || copies[0].dtype != DType::kBF16) return NAN;
  ASSIGN_OR_RETURN(const Buffer x, Uploaded(RandomBf16(int64_t{rows} * inputs), &backend_));
  ASSIGN_OR_RETURN(const Buffer out,
                   backend_.Allocate(sizeof(float) * rows * static_cast<size_t>(outputs)));
  absl::Status failure;
  const auto enqueue = [&, outputs = outputs, inputs = inputs] {
    for (const PackedWeight& weight : copies) {
      failure.Update(
          meter->ReferenceProduct({x.data(), DType::kBF16, rows, inputs, inputs},
                                  {weight.data.data(), DType::kBF16, outputs, inputs, inputs},
                                  {out.data(), DType::kF32, rows, outputs, outputs}));
    }
  };
  enqueue();
  if (absl::IsUnimplemented(failure)) return NAN;
  RETURN_IF_ERROR(failure);
  ASSIGN_OR_RETURN(const double seconds, meter->SecondsWithoutHost(enqueue, options_.run.repeat));
  RETURN_IF_ERROR(failure);
  return 1e3 * seconds / static_cast<double>(copies.size());
}

absl::Status OperationTable::RunProducts(std::string_view op, const WeightShape& shape, DType dtype,
                                         OnResult on_result) const {
  using Use = WeightShape::Use;
  ASSIGN_OR_RETURN(const std::vector<PackedWeight> copies,
                   PackCopies(shape, dtype, options_.working_set_bytes));
  const int outputs = shape.use == Use::kSwiGlu ? shape.outputs / 2 : shape.outputs;
  const bool norms = options_.norms_rows && shape.use != Use::kAdd;
  ASSIGN_OR_RETURN(const DeviceMatrix x, Random(max_rows(), shape.inputs));
  ASSIGN_OR_RETURN(const DeviceMatrix normed, Random(norms ? max_rows() : 0, shape.inputs));
  ASSIGN_OR_RETURN(const DeviceMatrix norm, Random(1, shape.inputs));
  ASSIGN_OR_RETURN(const DeviceMatrix out, Random(max_rows(), outputs));
  const PackedWeight& first = copies[0];
  std::vector<Operation> operations;
  for (const int rows : options_.rows) {
    const auto enqueue = [&, rows](int turn) {
      const PackedWeight& weight = copies[turn % copies.size()];
      NormedRows input{.x = x.first(rows)};
      if (norms) input = {input.x, norm.row(0), kEpsilon, normed.first(rows)};
      if (shape.use == Use::kStore) return backend_.MatMul(input, weight, out.first(rows));
      if (shape.use == Use::kAdd) return backend_.MatMulAdd(input.x, weight, out.first(rows));
      backend_.MatMulGated(input, weight, Activation::kSilu, out.first(rows));
    };
    operations.push_back(
        Enqueued({.op = op,
                  .part = shape.part,
                  .dtype = first.dtype,
                  .rows = rows,
                  .shape = {shape.outputs, shape.inputs},
                  .demand = {.bytes = static_cast<double>(first.bytes_read),
                             .place = MachineLimits::PlaceOf(
                                 static_cast<int64_t>(copies.size() * first.bytes_read)),
                             .flops = 2.0 * rows * shape.outputs * shape.inputs,
                             .input = DotInputOf(first.dtype, options_.bf16_products)}},
                 enqueue, copies.size()));
    ASSIGN_OR_RETURN(operations.back().reference_ms, ReferenceMs(copies, rows));
  }
  return RunAll(std::move(operations), on_result);
}

// Returns the experts that rows choose by random logits, [kExpertTables, rows, experts_per_row].
// Adds to *mean_union how many different experts a table has on average.
std::vector<int32_t> OperationTable::RandomChoices(int rows, double* mean_union) const {
  const ModelConfig& c = options_.config;
  std::vector<float> logits = RandomFloats(int64_t{kExpertTables} * rows * c.num_experts);
  std::vector<int32_t> chosen(size_t{kExpertTables} * rows * c.experts_per_row);
  std::vector<float> weights(chosen.size());
  backend_.ChooseExperts(
      {logits.data(), DType::kF32, kExpertTables * rows, c.num_experts, c.num_experts}, true,
      {.experts = chosen.data(), .weights = weights.data(), .per_row = c.experts_per_row});
  const size_t of_table = chosen.size() / kExpertTables;
  for (int table = 0; table < kExpertTables; ++table) {
    const std::set<int32_t> seen(chosen.begin() + table * of_table,
                                 chosen.begin() + (table + 1) * of_table);
    *mean_union += static_cast<double>(seen.size()) / kExpertTables;
  }
  return chosen;
}

// A call reads the weights of every expert that at least one row chose.
void OperationTable::AddExperts() {
  if (options_.config.num_experts == 0) return;
  const auto run = [this](DType dtype, OnResult on_result) -> absl::Status {
    const ModelConfig& c = options_.config;
    const WeightShape gate_up{"", 2 * c.expert_size, c.hidden_size, WeightShape::Use::kSwiGlu};
    const WeightShape down{"", c.hidden_size, c.expert_size, WeightShape::Use::kStore};
    ExpertWeights experts;
    for (int e = 0; e < c.num_experts; ++e) {
      ASSIGN_OR_RETURN(std::vector<PackedWeight> first, PackCopies(gate_up, dtype, 0));
      ASSIGN_OR_RETURN(std::vector<PackedWeight> second, PackCopies(down, dtype, 0));
      experts.gate_up.push_back(std::move(first[0]));
      experts.down.push_back(std::move(second[0]));
    }
    const auto bytes_of_one =
        static_cast<double>(experts.gate_up[0].bytes_read + experts.down[0].bytes_read);
    ASSIGN_OR_RETURN(const DeviceMatrix x, Random(max_rows(), c.hidden_size));
    ASSIGN_OR_RETURN(const DeviceMatrix out, Random(max_rows(), c.hidden_size));
    std::vector<float> weights(static_cast<size_t>(max_rows()) * c.experts_per_row, 0.125f);
    std::vector<Operation> operations;
    for (const int rows : options_.rows) {
      double mean_union = 0.0;
      const auto enqueue = [&, rows, choices = RandomChoices(rows, &mean_union)](int turn) mutable {
        const size_t of_table = choices.size() / kExpertTables;
        const ExpertChoices chosen{.experts = choices.data() + turn % kExpertTables * of_table,
                                   .weights = weights.data(),
                                   .per_row = c.experts_per_row};
        backend_.MixExperts(x.first(rows), chosen, experts, Activation::kSilu, out.first(rows));
      };
      operations.push_back(Enqueued(
          {.op = "experts",
           .dtype = dtype,
           .rows = rows,
           .shape = {c.num_experts, c.experts_per_row, c.hidden_size, c.expert_size},
           .demand = {.bytes = mean_union * bytes_of_one,
                      .place = MachineLimits::PlaceOf(
                          static_cast<int64_t>(bytes_of_one * c.num_experts)),
                      .flops = 6.0 * rows * c.experts_per_row * c.hidden_size * c.expert_size,
                      .input = DotInputOf(dtype, options_.bf16_products)}},
          enqueue));
    }
    return RunAll(std::move(operations), on_result);
  };
  for (const DType dtype : options_.dtypes) {
    Add(options_.rows.size(), [=](OnResult on_result) { return run(dtype, on_result); });
  }
}

// The rows are in a cache, because the operations before and after read and write them.
void OperationTable::AddNorms() {
  Add(options_.rows.size(), [this](OnResult on_result) -> absl::Status {
    const int hidden = options_.config.hidden_size;
    ASSIGN_OR_RETURN(const DeviceMatrix x, Random(max_rows(), hidden));
    ASSIGN_OR_RETURN(const DeviceMatrix out, Random(max_rows(), hidden));
    ASSIGN_OR_RETURN(const DeviceMatrix weight, Random(1, hidden));
    std::vector<Operation> operations;
    for (const int rows : options_.rows) {
      const double size = static_cast<double>(rows) * hidden;
      operations.push_back(
          Enqueued({.op = "rms_norm",
                    .rows = rows,
                    .shape = {hidden},
                    .demand = {.bytes = 4.0 * size, .place = Place::kCache, .flops = 4.0 * size}},
                   [&, rows](int) {
                     backend_.RmsNorm(x.first(rows), weight.row(0), kEpsilon, out.first(rows));
                   }));
    }
    return RunAll(std::move(operations), on_result);
  });
}

void OperationTable::AddHostSampling() {
  static const std::pair<std::string_view, SamplingParams> kinds[] = {
      {"greedy", {.temperature = 0.0f}},
      {"drawn", {.temperature = 1.0f}},
      {"top_k,top_p", {.temperature = 1.0f, .top_k = 50, .top_p = 0.9f}}};
  Add(std::size(kinds), [this](OnResult on_result) {
    const int vocab = options_.config.vocab_size;
    const std::vector<float> logits = RandomFloats(vocab);
    Distribution distribution;
    std::vector<Operation> operations;
    for (const auto& [name, params] : kinds) {
      operations.push_back(
          {.op = "sample",
           .part = name,
           .rows = 1,
           .shape = {vocab},
           .demand = {.bytes = 4.0 * vocab, .place = Place::kCache},
           .run = [&, params = params](int turn) -> absl::Status {
             RETURN_IF_ERROR(MakeDistribution(logits, params, nullptr, &distribution));
             const TokenId token =
                 Draw(distribution, RandomSource(kBenchSeed),
                      {.stream = RandomStream::kTarget, .position = static_cast<uint32_t>(turn)});
             TANDEM_CHECK(token >= 0);
             return absl::OkStatus();
           }});
    }
    return RunAll(std::move(operations), on_result);
  });
}

// Samples `rows` rows at once, the same as for the verification of a draft.
void OperationTable::AddDeviceSampling() {
  Sampler* const sampler = backend_.sampler();
  if (sampler == nullptr) return;
  const auto run = [this, sampler](int rows, OnResult on_result) -> absl::Status {
    const int size = options_.config.vocab_size;
    DeviceMatrix logits, target, draft, filtered;
    for (DeviceMatrix* each : {&logits, &target, &draft, &filtered}) {
      ASSIGN_OR_RETURN(*each, DeviceMatrix::Repeat(&backend_, rows, size));
    }
    std::vector<RowState> states(rows);
    std::vector<SlotAnswer> answers(rows);
    const auto make = [&](const DeviceMatrix& to, float inverse_temperature, float top_p) {
      std::vector<RowTask> tasks;
      for (int i = 0; i < rows; ++i) {
        tasks.push_back({.logits = logits.row(i),
                         .probs = to.row(i),
                         .size = size,
                         .inverse_temperature = inverse_temperature,
                         .enough = top_p < 1.0f ? UnitsToReach(top_p) : 0});
      }
      return sampler->Sample(tasks, {}, absl::MakeSpan(states), {});
    };
    const auto ask = [&](SlotDraw draw) {
      std::vector<SlotTask> tasks;
      for (int i = 0; i < rows; ++i) {
        tasks.push_back({.target = target.row(i),
                         .draft = draft.row(i),
                         .target_size = size,
                         .draft_size = size,
                         .token = 0,
                         .draw = draw});
      }
      return sampler->Sample({}, tasks, {}, absl::MakeSpan(answers));
    };
    const double bytes = sizeof(float) * static_cast<double>(size) * rows;
    const auto operation = [&](std::string_view part, double bytes,
                               std::function<absl::Status(int)> run) {
      return Operation{.op = "sampling",
                       .part = part,
                       .rows = rows,
                       .demand = {.bytes = bytes},
                       .run = std::move(run)};
    };
    // The logits are within +-1. Dividing by these temperatures gives them the spread of a language
    // model's logits.
    RETURN_IF_ERROR(make(draft, 9.0f, 1.0f));
    return RunAll(
        {operation("top_p", bytes, [&](int) { return make(filtered, 10.0f, 0.95f); }),
         operation("softmax", bytes, [&](int) { return make(target, 10.0f, 1.0f); }),
         operation("draw", bytes, [&](int) { return ask(SlotDraw::kTarget); }),
         operation("residual", 2 * bytes, [&](int) { return ask(SlotDraw::kTokenResidual); })},
        on_result);
  };
  for (const int rows : options_.rows) {
    Add(4, [=](OnResult on_result) { return run(rows, on_result); });
  }
}

}  // namespace tandem
