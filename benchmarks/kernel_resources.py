#!/usr/bin/env python3
"""Registers, spills and shared memory of every CUDA kernel, as the compiler reports them.

Needs nvcc and no device. Prints the table of docs/cuda.md:

    benchmarks/kernel_resources.py [--arch 90] [--nvcc PATH]
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# As kernels/CMakeLists.txt compiles them.
FLAGS = ["-std=c++17", "-O3", "--fmad=false", "--expt-relaxed-constexpr", "-Xptxas", "-v"]


def compile_and_report(nvcc, source, arch):
    """Returns (kernel, registers, spilled bytes) of every kernel of a file."""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [nvcc, *FLAGS, f"-I{ROOT}", f"-gencode=arch=compute_{arch},code=sm_{arch}", "-cubin",
             "-o", f"{folder}/kernels.cubin", str(source)],
            capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{source}: {run.stderr}")
    name, spilled = None, 0
    for line in run.stderr.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            name = match[1]
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = int(match[1]) + int(match[2])
        elif match := re.search(r"Used (\d+) registers", line):
            yield name, int(match[1]), spilled


# What blocks get when they are launched, by launch_shapes.h.
SHARED = """
#include <cstdio>
#include <initializer_list>
#include <utility>
#include "kernels/cuda/launch_shapes.h"
using namespace tandem::cuda;
int main() {
  for (const char* caps : {"false", "true"}) {
    for (const AttendSize s : kAttendSizes)
      if (s.tensor)
        std::printf("AttendKernel<TensorTile<%d, %s>> %d\\n", s.head_dim, caps,
                    AttendSharedOf(s).num_words * 4);
      else
        for (const char* cache : {"F32", "Int8"})
          std::printf("AttendKernel<PlainTile<%d, %d, %sCache, %s>> %d\\n", s.vectors, s.head_dim,
                      cache, caps, AttendSharedOf(s).num_words * 4);
    for (const int head_dim : {64, 128})
      std::printf("PromptAttendKernel<%d, %s> %d\\n", head_dim, caps,
                  PromptSharedOf(head_dim).num_words * 4);
  }
  constexpr tandem::DType kBf16 = tandem::DType::kBF16;
  for (int choice = 0; choice < kNumRowTileChoices; ++choice) {
    const ProductTiles tiles = FewRowsTiles(kBf16, choice);
    std::printf("TileProductKernel<%d, %d> %d\\n", tiles.rows, tiles.outputs,
                ProductSharedBytes(kBf16, tiles));
  }
  std::printf("ManyRowsProductKernel %d\\n", ManyRowsShape(kBf16, 1, 1).shared_bytes);
  for (int i = 0; i < 32; ++i) {
    const auto dtype = static_cast<tandem::DType>(i);
    if (!IsBlocks(dtype) || BlockTilesOf(dtype).bits == 0) continue;
    for (int choice = 0; choice < 3; ++choice) {
      const ProductTiles tiles = FewRowsTiles(dtype, choice);
      std::printf("BlockProductKernel<BlockWeight<(DType)%d>, %d> %d\\n", i, tiles.rows,
                  ProductSharedBytes(dtype, tiles));
    }
    std::printf("ManyRowsBlockProductKernel<BlockWeight<(DType)%d>> %d\\n", i,
                ManyRowsShape(dtype, 1, 1).shared_bytes);
  }
  std::printf("FindLargestKernel %d\\n", LargestShape(1).shared_bytes);
  std::printf("DistributionKernel %d\\n", SamplingShape(1).shared_bytes);
  std::printf("SlotKernel %d\\n", SamplingShape(1).shared_bytes);
  std::printf("RmsNormKernel %d\\n", RowShape(1).shared_bytes);
  std::printf("RotateAndCacheKernel %d\\n", HeadShape(1, 1, 128).shared_bytes);
}
"""


def shared_bytes():
    """Returns the bytes of shared memory by kernel; of heads of 128 where they count."""
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/shared"
        subprocess.run(["c++", "-std=c++20", f"-I{ROOT}", "-x", "c++", "-", "-o", program],
                       input=SHARED, text=True, check=True)
        lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return dict(line.rsplit(" ", 1) for line in lines.splitlines())


def readable(symbol):
    text = subprocess.run(["c++filt", symbol], capture_output=True, text=True, check=True).stdout
    text = re.search(r"Enter<(.*)>\(", text)[1].strip()
    text = text.replace("(bool)0", "false").replace("(bool)1", "true")
    return re.sub(r"tandem::cuda::|tandem::", "", text).replace("> >", ">>")


def over_formats(rows):
    """Kernels of block formats, which differ in the format alone, as one: the least and the most."""
    merged = {}
    for name, *numbers in rows:
        name = re.sub(r"BlockWeight<\(DType\)\d+>", "BlockWeight", name)
        merged.setdefault(name, []).append([int(number) for number in numbers])
    for name, numbers in merged.items():
        ranges = [(min(column), max(column)) for column in zip(*numbers)]
        yield name, *(f"{low} to {high}" if low < high else str(low) for low, high in ranges)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="90")
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    arguments = parser.parse_args()
    shared = shared_bytes()
    print("| kernel | registers | bytes spilled | bytes of shared memory |")
    print("|---|---|---|---|")
    for source in sorted((ROOT / "kernels" / "cuda").glob("*.cu")):
        rows = []
        for symbol, registers, spilled in compile_and_report(arguments.nvcc, source, arguments.arch):
            name = readable(symbol)
            rows.append((name, registers, spilled, shared.get(name, "0")))
        for name, *numbers in over_formats(sorted(rows)):
            print(f"| `{name}` | {' | '.join(numbers)} |")


if __name__ == "__main__":
    main()
