#include "tools/kernel_lab/lines.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/product_layout.h"
#include "tools/kernel_lab/product_tasks.h"

namespace tandem::kernel_lab {
namespace {

// For planned times: what a device is assumed to do at least.
constexpr double kBytesPerSecond = 1e12;
constexpr double kFlopsPerSecond = 1e14;
constexpr double kBlockFlopsPerSecond = 3e13;
constexpr double kLaunchSeconds = 5e-6;
constexpr double kLineSeconds = 0.03;  // inputs, comparisons, the recording

// Replays of a recording that takes `seconds` (Lab::Time), and as much again for comparisons.
double MeasuringSeconds(double seconds) {
  const double replays = 3 + kSamples * std::max(1.0, kSampleSeconds / seconds);
  return kLineSeconds + replays * seconds;
}

std::string Joined(const std::vector<std::string>& parts) {
  std::string name;
  for (const std::string& part : parts) name += (name.empty() ? "" : "/") + part;
  return name;
}

std::string ShortName(DType dtype) { return dtype == DType::kBF16 ? "bf16" : NameOf(dtype); }

class Table {
 public:
  explicit Table(bool quick) : quick_(quick) {}
  std::vector<Line> Take() { return std::move(lines_); }

  void Add(Line line, const std::vector<std::string>& name) {
    std::vector<std::string> parts = {NameOf(line.group)};
    parts.insert(parts.end(), name.begin(), name.end());
    line.name = Joined(parts);
    lines_.push_back(std::move(line));
  }

  void AddBandwidth() {
    Line line;
    line.group = Group::kBandwidth;
    line.op = "read";
    line.seconds = 1.5;  // also fills the first pool
    Add(line, {"read"});
  }

  void AddProduct(const Model& model, Part part, DType dtype, int rows) {
    const PartShape shape = ShapeOf(model, part);
    const auto bytes = static_cast<int64_t>(WeightBytes(dtype, shape.outputs, shape.inputs));
    const double flops = 2.0 * shape.outputs * shape.inputs * rows;
    const double launch =
        std::max({static_cast<double>(bytes) / kBytesPerSecond, kLaunchSeconds,
                  flops / (IsBlocks(dtype) ? kBlockFlopsPerSecond : kFlopsPerSecond)});
    for (int variant = 0; variant < NumVariants(dtype, rows, shape.outputs); ++variant) {
      Line line;
      line.group = Group::kProduct;
      line.op = shape.name;
      line.model = &model;
      line.part = part;
      line.dtype = dtype;
      line.rows = rows;
      line.variant = variant;
      line.seconds = MeasuringSeconds(launch * NumCopies(bytes, quick_));
      Add(line, {model.name, shape.name, ShortName(dtype), "rows=" + std::to_string(rows),
                 "variant=" + std::to_string(variant)});
    }
  }

  void AddPack(const Model& model, Part part, DType dtype, int rows) {
    Line line;
    line.group = Group::kPack;
    line.op = ShapeOf(model, part).name;
    line.model = &model;
    line.part = part;
    line.dtype = dtype;
    line.rows = rows;
    line.seconds = MeasuringSeconds(16 * (kLaunchSeconds + rows * 1e-7));
    Add(line, {model.name, line.op, ShortName(dtype), "rows=" + std::to_string(rows)});
  }

 private:
  const bool quick_;
  std::vector<Line> lines_;
};

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

}  // namespace

const char* NameOf(Group group) {
  switch (group) {
    case Group::kBandwidth:
      return "bandwidth";
    case Group::kBits:
      return "bits";
    case Group::kProbe:
      return "probe";
    case Group::kProduct:
      return "product";
    case Group::kPack:
      return "pack";
    case Group::kAttention:
      return "attention";
    case Group::kSampling:
      return "sampling";
    case Group::kPass:
      return "pass";
    case Group::kFault:
      return "fault";
  }
  return "";
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

std::vector<Line> AllLines(bool quick) {
  Table table(quick);
  table.AddBandwidth();
  if (quick) {
    AddProducts({&kSmall}, {DType::kBF16, DType::kQ8_0, DType::kQ4K}, {1, 9}, &table);
    table.AddPack(kSmall, Part::kQkv, DType::kBF16, 9);
    table.AddPack(kSmall, Part::kDown, DType::kQ8_0, 1);
    return table.Take();
  }
  const std::vector<const Model*> models = {&kLlama8b, &kLlama1b};
  const std::vector<DType> dtypes = {DType::kBF16, DType::kQ8_0, DType::kQ4K};
  AddProducts(models, dtypes, {1, 5, 16, 64}, &table);
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
  return table.Take();
}

std::vector<Line> FaultLines() {
  Table table(true);
  for (const char* const op : {"differs", "fails", "crashes", "hangs", "lasts"}) {
    Line line;
    line.group = Group::kFault;
    line.op = op;
    line.seconds = line.op == "lasts" ? 1e5 : 0.0;
    table.Add(line, {op});
  }
  return table.Take();
}

double PlannedSeconds(const std::vector<Line>& lines) {
  double seconds = 0.0;
  for (const Line& line : lines) seconds += line.seconds;
  return seconds;
}

}  // namespace tandem::kernel_lab
