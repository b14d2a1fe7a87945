#include "tools/kernel_lab/lines.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/product_layout.h"
#include "tools/kernel_lab/product_tasks.h"

namespace tandem::kernel_lab {
namespace {

// The least speed of a device, for planned times.
constexpr double kBytesPerSecond = 1e12;
constexpr double kFlopsPerSecond = 1e14;
constexpr double kBlockFlopsPerSecond = 3e13;
constexpr double kPromptFlopsPerSecond = 2e13;
constexpr double kPlainAttentionFlopsPerSecond = 1e12;
constexpr double kLaunchSeconds = 5e-6;
constexpr double kLineSeconds = 0.03;  // inputs, comparisons, the recording

// Replays of a recording that takes `seconds` (Lab::Time), and as much again for comparisons.
double MeasuringSeconds(double seconds) {
  const double replays = 3 + kSamples * std::max(1.0, kSampleSeconds / seconds);
  return kLineSeconds + replays * seconds;
}

std::string ShortName(DType dtype) { return dtype == DType::kBF16 ? "bf16" : NameOf(dtype); }

class Table {
 public:
  explicit Table(bool quick) : quick_(quick) {}
  std::vector<Line> Take() { return std::move(lines_); }

  void Add(Line line, const std::vector<std::string>& name) {
    line.name = NameOf(line.group);
    for (const std::string& part : name) line.name += "/" + part;
    lines_.push_back(std::move(line));
  }

  void AddBandwidth() {
    // It also fills the first pool.
    Add({.group = Group::kBandwidth, .op = "read", .seconds = 1.5}, {"read"});
  }

  void AddProduct(const Model& model, Part part, DType dtype, int rows) {
    const PartShape shape = ShapeOf(model, part);
    const auto bytes = static_cast<int64_t>(WeightBytes(dtype, shape.outputs, shape.inputs));
    const double flops = 2.0 * shape.outputs * shape.inputs * rows;
    const double launch =
        std::max({static_cast<double>(bytes) / kBytesPerSecond, kLaunchSeconds,
                  flops / (IsBlocks(dtype) ? kBlockFlopsPerSecond : kFlopsPerSecond)});
    const int num_variants = NumProductVariants(dtype, rows, shape.outputs / cuda::kTileOutputs);
    for (int variant = 0; variant < num_variants; ++variant) {
      Add({.group = Group::kProduct,
           .op = shape.name,
           .model = &model,
           .part = part,
           .dtype = dtype,
           .rows = rows,
           .variant = variant,
           .seconds = MeasuringSeconds(launch * NumCopies(bytes, quick_))},
          {model.name, shape.name, ShortName(dtype), "rows=" + std::to_string(rows),
           "variant=" + std::to_string(variant)});
    }
  }

  void AddPack(const Model& model, Part part, DType dtype, int rows) {
    const char* const name = ShapeOf(model, part).name;
    Add({.group = Group::kPack,
         .op = name,
         .model = &model,
         .part = part,
         .dtype = dtype,
         .rows = rows,
         .seconds = MeasuringSeconds(16 * (kLaunchSeconds + rows * 1e-7))},
        {model.name, name, ShortName(dtype), "rows=" + std::to_string(rows)});
  }

  void AddAttention(const Model& model, KvDType kv, int rows, int batch, int context) {
    Line line = {.group = Group::kAttention,
                 .op = rows / batch >= 64 ? "prompt" : "decode",
                 .model = &model,
                 .kv = kv,
                 .rows = rows,
                 .batch = batch,
                 .context = context};
    const int64_t tokens = int64_t{batch} * (context + rows / batch);
    const double bytes =
        8.0 * static_cast<double>(tokens) * model.num_kv_heads * KvRowWords(kv, model.head_dim);
    const double flops = 4.0 * rows * model.num_heads * model.head_dim *
                         (context + static_cast<double>(rows) / batch);
    const double launch =
        kLaunchSeconds + bytes / kBytesPerSecond +
        flops / (kv == KvDType::kBF16 ? kPromptFlopsPerSecond : kPlainAttentionFlopsPerSecond);
    line.seconds =
        MeasuringSeconds(launch * NumAttentionCopies(line, static_cast<int64_t>(bytes), quick_)) +
        0.1;
    Add(line, {model.name, line.op, NameOf(kv), "rows=" + std::to_string(rows),
               "batch=" + std::to_string(batch), "context=" + std::to_string(context)});
  }

  // Only cuts have variants.
  void AddSampling(const Model& model, const std::string& op, int rows) {
    const int num_variants = op == "top_k" || op == "top_p" ? cuda::kNumDistributionVariants : 1;
    for (int variant = 0; variant < num_variants; ++variant) {
      Add({.group = Group::kSampling,
           .op = op,
           .model = &model,
           .rows = rows,
           .variant = variant,
           .seconds = MeasuringSeconds(8 * 4e-4) + 0.1},
          {op, "vocab=" + std::to_string(model.vocab), "rows=" + std::to_string(rows),
           "variant=" + std::to_string(variant)});
    }
  }

  void AddPass(const Model& model, DType dtype, int rows, int batch, int context) {
    Add({.group = Group::kPass,
         .op = "pass",
         .model = &model,
         .dtype = dtype,
         .rows = rows,
         .batch = batch,
         .context = context,
         .seconds = MeasuringSeconds(model.num_layers * 1e-3) + 0.2},
        {model.name, ShortName(dtype), "rows=" + std::to_string(rows),
         "batch=" + std::to_string(batch), "context=" + std::to_string(context)});
  }

  void AddBits(const std::string& op, int first, int second, bool never_run,
               std::vector<std::string> more = {}) {
    more.insert(more.begin(), op);
    Add({.group = Group::kBits,
         .op = op,
         .model = quick_ ? &kSmall : &kLlama1b,  // of whole products
         .first = first,
         .second = second,
         .never_run = never_run,
         .seconds = op == "products" ? 3.0 : 0.3},
        more);
  }

  void AddProbe(const char* op, Probe probe, int first, int second,
                std::vector<std::string> more = {}) {
    more.insert(more.begin(), op);
    Add({.group = Group::kProbe,
         .op = op,
         .probe = probe,
         .first = first,
         .second = second,
         .never_run = true,
         .seconds = probe == Probe::kL2Latency ? 0.6 : 0.15},
        more);
  }

 private:
  const bool quick_;
  std::vector<Line> lines_;
};

// The seven tests of bits.cc, in their order. Tests of wgmma need a device.
void AddBitTests(bool has_wgmma, Table* table) {
  for (const char* const op : {"wgmma", "first_step"}) {
    for (const int rows : {8, 64, 128, 256}) {
      for (const bool from_registers : {true, false}) {
        if (!has_wgmma) continue;
        table->AddBits(op, rows, from_registers ? 1 : 0, true,
                       {"n=" + std::to_string(rows), from_registers ? "registers" : "shared"});
      }
    }
  }
  for (const char* const op :
       {"exchanged", "other_columns", "scaled", "zero_times_large", "products"}) {
    table->AddBits(op, 0, 0, false);
  }
}

void AddProbes(Table* table) {
  for (const int chains : {1, 2, 4}) {
    table->AddProbe("mma_chain", Probe::kMmaChain, chains, 0, {"chains=" + std::to_string(chains)});
  }
  for (const int rows : {8, 64, 128, 256}) {
    table->AddProbe("wgmma_chain", Probe::kWideChain, rows, 0, {"n=" + std::to_string(rows)});
  }
  table->AddProbe("shared_latency", Probe::kSharedLatency, 0, 0);
  for (const bool loaded : {false, true}) {
    table->AddProbe("l2_latency", Probe::kL2Latency, loaded ? 1 : 0, 0,
                    {loaded ? "loaded" : "idle"});
  }
  struct Ring {
    int stages;
    int bytes;
  };
  for (const auto& [stages, bytes] : {Ring{2, 1024}, Ring{4, 1024}, Ring{8, 1024}, Ring{16, 1024},
                                      Ring{4, 2048}, Ring{8, 2048}, Ring{2, 4096}, Ring{4, 4096}}) {
    const std::vector<std::string> sizes = {"stages=" + std::to_string(stages),
                                            "bytes=" + std::to_string(bytes)};
    table->AddProbe("copy_ring", Probe::kCopyRing, stages, bytes, sizes);
    table->AddProbe("bulk_ring", Probe::kBulkRing, stages, bytes, sizes);
  }
  for (const bool early : {false, true}) {
    table->AddProbe("boundary", Probe::kMmaChain, early ? 1 : 0, 0, {early ? "early" : "plain"});
  }
  for (const int blocks : {2, 4, 8}) {
    table->AddProbe("cluster_barrier", Probe::kClusterBarrier, blocks, 0,
                    {"blocks=" + std::to_string(blocks)});
  }
  for (const int bits : {32, 64}) {
    for (const bool contended : {false, true}) {
      table->AddProbe("shared_atomic", Probe::kSharedAtomic, bits, contended ? 1 : 0,
                      {"bits=" + std::to_string(bits), contended ? "contended" : "apart"});
    }
  }
}

void AddProducts(const std::vector<const Model*>& models, const std::vector<DType>& dtypes,
                 const std::vector<int>& rows, Table* table) {
  for (const Model* const model : models) {
    for (const DType dtype : dtypes) {
      for (const int count : rows) {
        for (const Part part : kAllParts) table->AddProduct(*model, part, dtype, count);
      }
    }
  }
}

void AddAttention(Table* table) {
  const Model& model = kLlama8b;
  for (const KvDType kv : {KvDType::kBF16, KvDType::kInt8}) {
    for (const int context : {0, 1024, 4096, 32768}) {
      for (const int rows : {1, 5, 16}) table->AddAttention(model, kv, rows, 1, context);
      for (const int rows : {512, 2048}) {
        if (kv == KvDType::kInt8 && rows + context > 4608) continue;  // takes a second
        table->AddAttention(model, kv, rows, 1, context);
      }
    }
    for (const int each : {1, 5}) {
      table->AddAttention(model, kv, 16 * each, 16, 4096);
      table->AddAttention(model, kv, 64 * each, 64, 4096);
    }
  }
}

constexpr const char* kSamplingOps[] = {"argmax", "softmax",     "top_k",
                                        "top_p",  "draw_target", "draw_residual"};

void AddPasses(const std::vector<const Model*>& models, Table* table) {
  for (const int context : {0, 4096}) {
    for (const Model* const model : models) {
      for (const int rows : {1, 5, 16, 64}) {
        table->AddPass(*model, DType::kBF16, rows, 1, context);
      }
      for (const DType dtype : {DType::kQ8_0, DType::kQ4K}) {
        for (const int rows : {1, 5}) table->AddPass(*model, dtype, rows, 1, context);
      }
    }
  }
  for (const int batch : {16, 64}) table->AddPass(kLlama8b, DType::kBF16, batch, batch, 4096);
}

}  // namespace

const char* NameOf(Group group) {
  constexpr const char* kNames[] = {"bandwidth", "bits",     "probe", "product", "pack",
                                    "attention", "sampling", "pass",  "fault"};
  return kNames[static_cast<int>(group)];
}

PartShape ShapeOf(const Model& model, Part part) {
  const int attended = model.num_heads * model.head_dim;
  const int qkv = attended + 2 * model.num_kv_heads * model.head_dim;
  switch (part) {
    case Part::kQkv:
      return {"qkv", qkv, model.dim, Epilogue::kStore, true};
    case Part::kOut:
      return {"out", model.dim, attended, Epilogue::kAdd, false};
    case Part::kGateUp:
      return {"gate_up", 2 * model.hidden, model.dim, Epilogue::kSwiGlu, true};
    case Part::kDown:
      return {"down", model.dim, model.hidden, Epilogue::kAdd, false};
    case Part::kHead:
      break;
  }
  return {"head", model.vocab, model.dim, Epilogue::kStore, true};
}

int NumCopies(int64_t bytes, bool quick) {
  if (quick) return 2;
  return static_cast<int>(std::clamp<int64_t>((kCopyBytes + bytes - 1) / bytes, 1, kMaxCopies));
}

int NumAttentionCopies(const Line& line, int64_t bytes, bool quick) {
  return std::min(NumCopies(bytes, quick), line.op == "prompt" ? 4 : 64);
}

std::vector<Line> AllLines(bool quick) {
  Table table(quick);
  table.AddBandwidth();
  AddBitTests(!quick || HasProbes(), &table);
  if (!quick) AddProbes(&table);  // which read more than small pools have
  if (quick) {
    AddProducts({&kSmall}, {DType::kBF16, DType::kQ8_0, DType::kQ4K}, {1, 9}, &table);
    table.AddPack(kSmall, Part::kQkv, DType::kBF16, 9);
    table.AddPack(kSmall, Part::kDown, DType::kQ8_0, 1);
    for (const KvDType kv : {KvDType::kBF16, KvDType::kInt8}) {
      for (const int context : {0, 300}) table.AddAttention(kSmall, kv, 3, 1, context);
      table.AddAttention(kSmall, kv, 4, 2, 270);
      table.AddAttention(kSmall, kv, 64, 1, 20);
    }
    for (const char* const op : kSamplingOps) table.AddSampling(kSmall, op, 2);
    for (const int rows : {1, 9}) table.AddPass(kSmall, DType::kBF16, rows, 1, 20);
    table.AddPass(kSmall, DType::kQ8_0, 2, 2, 0);
    return table.Take();
  }
  const std::vector<const Model*> models = {&kLlama8b, &kLlama1b};
  const std::vector<DType> dtypes = {DType::kBF16, DType::kQ8_0, DType::kQ4K};
  AddProducts(models, dtypes, {1, 5, 16, 64}, &table);
  AddAttention(&table);
  for (const int rows : {1, 5}) {
    for (const char* const op : kSamplingOps) table.AddSampling(kLlama8b, op, rows);
  }
  AddProducts(models, dtypes, {2, 3, 4, 6, 8, 32, 128, 512, 2048}, &table);
  for (const Model* const model : models) {
    for (const DType dtype : {DType::kBF16, DType::kQ8_0}) {
      for (const int rows : {1, 5, 16, 64, 512, 2048}) {
        if (rows <= 8 && dtype == DType::kBF16) continue;  // rounded by the product
        table.AddPack(*model, Part::kQkv, dtype, rows);
        table.AddPack(*model, Part::kDown, dtype, rows);
      }
    }
  }
  AddPasses(models, &table);
  return table.Take();
}

std::vector<Line> FaultLines() {
  Table table(true);
  for (const char* const op : {"differs", "fails", "crashes", "hangs", "lasts"}) {
    const double seconds = std::string(op) == "lasts" ? 1e5 : 0.0;
    table.Add({.group = Group::kFault, .op = op, .seconds = seconds}, {op});
  }
  return table.Take();
}

double PlannedSeconds(const std::vector<Line>& lines) {
  double seconds = 0.0;
  for (const Line& line : lines) seconds += line.seconds;
  return seconds;
}

}  // namespace tandem::kernel_lab
