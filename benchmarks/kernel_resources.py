#!/usr/bin/env python3
"""Reads the machine code of the CUDA kernels, and compares it with the recorded limits.

Reads the object files that `./dev cuda` has compiled; that command runs this script. Needs nvcc, but no device:

    benchmarks/kernel_resources.py [BUILD_FOLDER]           compares with tests/data/kernel_resources.json
    benchmarks/kernel_resources.py [BUILD_FOLDER] --write   writes that file and the table of docs/benchmarks/cuda.md
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from machine_code import TENSOR, Code

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXPECTED = ROOT / "tests" / "data" / "kernel_resources.json"
PAGE = ROOT / "docs" / "benchmarks" / "cuda.md"
BEGIN, END = "<!-- kernel_resources: begin -->", "<!-- kernel_resources: end -->"

# Threads, blocks and bytes of shared memory of a processor. Each block takes 1 KB of shared memory in addition to its own.
PROCESSORS = {"sm_80": (2048, 32, 164 << 10), "sm_89": (1536, 24, 100 << 10), "sm_90a": (2048, 32, 228 << 10)}
REGISTERS = 65536
# The figures of a kernel for an architecture. `local`: bytes that instructions move to and from local
# memory, which holds spills and arrays outside of registers. `loop`: instructions of the main loop.
# `blocks`: the number of blocks that fit on a processor.
COLUMNS = ["registers", "local", "HMMA", "IMMA", "HGMMA", "loop", "blocks"]
# Instructions that let the next kernel begin, and that wait for earlier kernels (kernels/cuda/simt.h); only on Hopper.
WAITS = {"PREEXIT", "ACQBULK"}

# The blocks per processor of Hopper that the comments of launch_shapes.h and docs/benchmarks/cuda.md assume.
ASSUMED_BLOCKS = {r"AttendKernel<TensorTile<(64|128)>>": 2, r"FewRowsKernel<1, 2>": 2,
                  r"BlockProductKernel<.*, [12], 2, 3>": 2, r"WarpgroupProductKernel<.*>": 1}

# The most of a figure for Hopper that docs/cuda_products.md allows.
LIMITS = {r"FewRowsKernel<1, 2>": {"registers": 64, "local": 0}, r"FewRowsKernel<.*>": {"registers": 128, "local": 0},
          r"WarpgroupProductKernel<.*>": {"registers": 168, "local": 0}}


def by_function(text, title):
    """Returns the lines that belong to each function, by its symbol."""
    functions, lines = {}, []
    for line in text.splitlines():
        if match := re.search(title, line):
            lines = functions.setdefault(match[1], [])
        else:
            lines.append(line)
    return functions


def local_bytes(opcode):
    if not opcode.startswith(("LDL", "STL")):
        return 0
    width = re.search(r"\.(64|128|[US]8|[US]16)\b", opcode)
    return 4 if width is None else int(width[1].lstrip("US")) // 8


def blocks_on_processor(arch, registers, threads, shared):
    most_threads, most_blocks, most_shared = PROCESSORS[arch]
    of_warp = -(-registers // 8) * 8 * 32
    warps = min(REGISTERS // of_warp // 4 * 4, most_threads // 32)
    return min(warps // (threads // 32), most_blocks, most_shared // (shared + 1024))


def measure(arch, dump, shared_of):
    """Returns the figures of every kernel, and errors that the recorded figures cannot excuse. `dump(option)` returns
    the text of cuobjdump, `shared_of(kernel)` the shared memory of a block."""
    registers = by_function(dump("-res-usage"), r"Function (\w+):")
    threads = by_function(dump("-elf"), r"^\.nv\.info\.(\w+)")
    numbers, wrong = {}, []
    for symbol, lines in by_function(dump("-sass"), r"Function : (\w+)").items():
        kernel = readable(symbol)
        code = Code(lines)
        opcodes = [i.opcode for i in code.instructions]
        stems = [i.stem for i in code.instructions]
        num_registers = int(re.search(r"REG:(\d+)", " ".join(registers[symbol]))[1])
        num_threads = int(re.search(r"EIATTR_MAX_THREADS.*?Value:\s*0x([0-9a-f]+)",
                                    " ".join(threads[symbol]))[1], 16)
        numbers[kernel] = dict(zip(COLUMNS, [
            num_registers, sum(map(local_bytes, opcodes)), *map(stems.count, TENSOR),
            len(code.within(code.main_loop())),
            blocks_on_processor(arch, num_registers, num_threads, shared_of(kernel))]))
        missing = WAITS - set(stems) if arch == "sm_90a" else WAITS & set(stems)
        if missing:
            wrong.append(f"{arch} {kernel}: {', '.join(sorted(missing))} should be there for sm_90a alone")
        wrong += [f"{arch} {kernel}: {load} is loaded ahead of a barrier, but {use} reads it before that barrier"
                  for load, use in code.defeated_loads()]
        wrong += [f"{arch} {kernel}: {read} is in the main loop" for read in code.special_registers()]
        wrong += [f"{arch} {kernel}: {wait} in the main loop waits for every product" for wait in code.serial_waits()]
    return numbers, wrong


def beyond_limits(numbers):
    """Returns a line for each kernel for sm_90a of which fewer blocks fit than assumed, or that has more of a figure than
    allowed. Recorded figures do not excuse these."""
    return ([f"sm_90a {kernel}: {of['blocks']} fit on a processor, {blocks} are assumed"
             for pattern, blocks in ASSUMED_BLOCKS.items() for kernel, of in numbers.items()
             if re.fullmatch(pattern, kernel) and of["blocks"] < blocks] +
            [f"sm_90a {kernel}: {column} is {of[column]}, at most {most} is allowed"
             for pattern, limits in LIMITS.items() for kernel, of in numbers.items() if re.fullmatch(pattern, kernel)
             for column, most in limits.items() if of[column] > most])


def compare(arch, found, expected, same_compiler):
    """Returns the differences, as lines. With another compiler, returns only those beyond a limit."""
    wrong = []
    for kernel in sorted(found.keys() | expected.keys()):
        if kernel not in found or kernel not in expected:
            wrong.append(f"{arch} {kernel}: {'is new' if kernel in found else 'is gone'}")
            continue
        for column in COLUMNS:
            got, want = found[kernel][column], expected[kernel][column]
            other = {"local": got <= want, "blocks": got >= want, **dict.fromkeys(TENSOR, (got > 0) == (want > 0))}
            if not (got == want if same_compiler else other.get(column, True)):
                wrong.append(f"{arch} {kernel}: {column} is {got}, expected {want}")
    return wrong


# A program that prints the shared memory of the blocks that launch_shapes.h launches.
SHARED = """
#include <cstdio>
#include <initializer_list>
#include <utility>
#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/warpgroup_shapes.h"
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
    int most[8] = {};
    for (int i = 0; i < NumVariantsOfChoice(kBf16, choice); ++i)
      for (const int tiles : {64, 128, 256, 384, 1024, 1792, 8016}) {
        const FewRowsPlan plan = FewRowsPlanOf(kRowTileChoices[choice] * kTileRows, tiles, 132, i);
        int& bytes = most[kFewRowsVariants[choice][i].stage_steps];
        if (bytes < plan.num_bytes) bytes = plan.num_bytes;
      }
    for (int steps = 1; steps < 8; ++steps)
      if (most[steps] > 0)
        std::printf("FewRowsKernel<%d, %d> %d\\n", kRowTileChoices[choice], steps, most[steps]);
  }
  std::printf("ManyRowsProductKernel %d\\n", ManyRowsShape(kBf16, 1, 1).shared_bytes);
  for (const WideVariant& of : kWideVariants)
    std::printf("WarpgroupProductKernel<%d, %d> %d\\n", of.row_tiles, of.cluster,
                WideSharedOf(of.row_tiles).num_bytes);
  for (int i = 0; i < 32; ++i) {
    const auto dtype = static_cast<tandem::DType>(i);
    if (!IsBlocks(dtype) || BlockTilesOf(dtype).bits == 0) continue;
    for (int choice = 0; choice < kNumBlocksRowTileChoices; ++choice)
      for (int j = 0; j < NumVariantsOfChoice(dtype, choice); ++j) {
        const ProductTiles tiles = FewBlockRowsTiles(choice, j);
        std::printf("BlockProductKernel<BlockWeight<(DType)%d>, %d, %d, %d> %d\\n", i, tiles.rows,
                    tiles.outputs, kBlocksVariants[choice][j].stages, FewBlockRowsBytes(dtype, choice, j));
      }
    std::printf("ManyRowsBlockProductKernel<BlockWeight<(DType)%d>> %d\\n", i,
                ManyRowsShape(dtype, 1, 1).shared_bytes);
  }
  std::printf("ArgMaxKernel %d\\n", ArgMaxShape(1).shared_bytes);
  for (const DistributionVariant& of : kDistributionVariants)
    std::printf("DistributionKernel<%d, %d> %d\\n", of.copies, of.groups,
                DistributionShape(1, of).shared_bytes);
  std::printf("SlotKernel %d\\n", SlotShape(1).shared_bytes);
  std::printf("RmsNormKernel %d\\n", RowShape(1).shared_bytes);
  std::printf("RotateAndCacheKernel %d\\n", HeadShape(1, 1, 128).shared_bytes);
}
"""


def shared_bytes():
    """Returns the bytes of shared memory by kernel; for heads of 128 where the size depends on them."""
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


def table(numbers, shared):
    """Returns the table of docs/benchmarks/cuda.md: the kernels with tensor cores, shared or local memory. Forms of a
    kernel share a row with the smallest and the largest figure."""
    rows = {}
    for kernel, of in sorted(numbers.items()):
        shared_size = int(shared.get(kernel, 0))
        if not (shared_size or of["local"] or any(of[column] for column in TENSOR)):
            continue
        name = re.sub(r"<(\w+Tile<)?.*", lambda match: f"<{match[1][:-1]}>" if match[1] else "", kernel)
        rows.setdefault(name, []).append([of["registers"], of["local"], shared_size, of["blocks"]])
    lines = ["| kernel | registers | local memory, bytes | shared memory, bytes | blocks on a processor |",
             "|---|---|---|---|---|"]
    for name, found in rows.items():
        ranges = [(min(column), max(column)) for column in zip(*found)]
        cells = [f"{low} to {high}" if low < high else str(low) for low, high in ranges]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def with_table(page, text):
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"


def write(version, found, shared):
    # One kernel per line, so that diffs show single kernels.
    kernels = sorted({kernel for of in found.values() for kernel in of})
    lines = ",\n  ".join(f"{json.dumps(kernel)}: " + json.dumps({
        arch: list(of[kernel].values()) for arch, of in found.items() if kernel in of}) for kernel in kernels)
    EXPECTED.write_text(f'{{\n"nvcc": "{version}",\n"columns": {json.dumps(COLUMNS)},\n"kernels": {{\n  {lines}\n}}}}\n')
    PAGE.write_text(with_table(PAGE.read_text(), table(found["sm_90a"], shared)))


def of_architecture(document, arch):
    return {kernel: dict(zip(document["columns"], of[arch]))
            for kernel, of in document["kernels"].items() if arch in of}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?", default="build/cuda")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--tools", default="build/cuda_disassembler/bin", help="folder of cuobjdump")
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    arguments = parser.parse_args()
    objects = sorted((pathlib.Path(arguments.build) / "kernels").rglob("*.cu.o"))
    if not objects:
        sys.exit(f"{arguments.build}: the kernels' object files are missing; ./dev cuda compiles them")
    text = subprocess.run([arguments.nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"release ([\d.]+)", text)[1]
    shared = shared_bytes()
    found, wrong = {}, []
    for arch in PROCESSORS:
        found[arch] = {}
        for path in objects:
            def dump(option):
                return subprocess.run([f"{arguments.tools}/cuobjdump", "-arch", arch, option, str(path)],
                                      env={"PATH": arguments.tools}, capture_output=True, text=True,
                                      check=False).stdout
            numbers, broken = measure(arch, dump, lambda kernel: int(shared.get(kernel, 0)))
            found[arch].update(numbers)
            wrong += broken
    wrong += beyond_limits(found["sm_90a"])
    missing = [arch for arch in PROCESSORS if not found[arch]]
    if arguments.write and not missing:
        write(version, found, shared)
        print(f"wrote {EXPECTED.relative_to(ROOT)} and the table of {PAGE.relative_to(ROOT)}")
    document = json.loads(EXPECTED.read_text())
    same_compiler = version == document["nvcc"]
    for arch in PROCESSORS:
        if arch not in missing:
            wrong += compare(arch, found[arch], of_architecture(document, arch), same_compiler)
    compared = ("equal to the record" if same_compiler else
                f"within the limits of nvcc {document['nvcc']}: only local memory, blocks and tensor cores are compared")
    for arch in missing:
        print(f"skipped: nothing was compiled for {arch}")
    print("\n".join(wrong) or f"{sum(map(len, found.values()))} kernels by nvcc {version}: {compared}")
    if wrong:
        sys.exit("if these differences from tests/data/kernel_resources.json are intended, record them with "
                 "./dev cuda --write")


if __name__ == "__main__":
    main()
