// The table of lines: what kernel_lab measures, in order, the most useful lines first.
#ifndef TANDEM_TOOLS_KERNEL_LAB_LINES_H_
#define TANDEM_TOOLS_KERNEL_LAB_LINES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/matrix.h"
#include "kernels/paged_kv.h"
#include "tools/kernel_lab/probes.h"

namespace tandem::kernel_lab {

enum class Group {
  kBandwidth,
  kBits,
  kProbe,
  kProduct,
  kPack,
  kAttention,
  kSampling,
  kPass,
  kFault
};
const char* NameOf(Group group);

// The sizes of a model of the Llama family.
struct Model {
  const char* name;
  int num_layers;
  int dim;
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int hidden;
  int vocab;
};
// Llama-8B, Llama-1B, and a model that the host twin computes in seconds.
inline constexpr Model kLlama8b = {"llama-8b", 32, 4096, 32, 8, 128, 14336, 128256};
inline constexpr Model kLlama1b = {"llama-1b", 16, 2048, 32, 8, 64, 8192, 128256};
inline constexpr Model kSmall = {"small", 2, 128, 4, 2, 64, 192, 512};

// A weight of a model's pass.
enum class Part { kQkv, kOut, kGateUp, kDown, kHead };
inline constexpr Part kAllParts[] = {Part::kQkv, Part::kOut, Part::kGateUp, Part::kDown,
                                     Part::kHead};
struct PartShape {
  const char* name;
  int outputs;  // of the weight; those of a gated product are half of them
  int inputs;
  Epilogue end;
  bool has_norm;
};
PartShape ShapeOf(const Model& model, Part part);

struct Line {
  Group group = Group::kBandwidth;
  std::string name = {};  // unique: group/model/operation/type/sizes/variant
  std::string op = {};    // the part of a product, the kind of sampling, the probe, the bit test
  const Model* model = nullptr;
  Part part = Part::kQkv;
  DType dtype = DType::kBF16;
  KvDType kv = KvDType::kBF16;
  int rows = 0;     // in all
  int batch = 1;    // sequences
  int context = 0;  // tokens in the cache before the rows of a sequence
  int variant = 0;
  Probe probe = Probe::kMmaChain;
  // Parameters of a probe (probes.h) or a bit test.
  int first = 0;
  int second = 0;
  // Instructions that only the device has; no committed result has run them.
  bool never_run = false;
  double seconds = 0.0;  // planned
};

// Bytes of copies over which a recording runs, so that L2 does not serve the weights.
inline constexpr int64_t kCopyBytes = int64_t{512} << 20;
inline constexpr int kMaxCopies = 256;
// Returns the number of copies of `bytes` in a recording.
int NumCopies(int64_t bytes, bool quick);

// The same for a line of attention with `bytes` of cache; prompts are bound by arithmetic.
int NumAttentionCopies(const Line& line, int64_t bytes, bool quick);

// A measurement is the median of kSamples samples of replays, each of at least kSampleSeconds.
inline constexpr int kSamples = 7;
inline constexpr double kSampleSeconds = 0.002;

// Returns all lines. `quick` has small shapes, which the host twin computes, no probes, and the bit
// tests of wgmma only if the build has them.
std::vector<Line> AllLines(bool quick);
// Lines that differ, fail, crash and hang, to try how these are reported.
std::vector<Line> FaultLines();
double PlannedSeconds(const std::vector<Line>& lines);

}  // namespace tandem::kernel_lab

#endif  // TANDEM_TOOLS_KERNEL_LAB_LINES_H_
