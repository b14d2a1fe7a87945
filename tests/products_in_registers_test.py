#!/usr/bin/env python3
"""Checks that products of block formats keep their sums in registers.

    products_in_registers_test.py [--list] OBJECT...

The sums of a group fit the vector registers only if the compiler keeps the order of the source
(block_kernels.h, MultiplyHalf). Without pinned sums GCC 12 moves 2.2 vectors to or from the stack
for each multiplication in q4_0 on AVX2. This counts these instructions in the machine code of
kernels/cpu/isa/kernels_*.cc.
"""
import argparse
import collections
import os
import re
import subprocess
import sys
import unittest

FORMATS = ("q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs").split()
FIRST_FORMAT = 4  # DType::kQ8_0
ROWS = 5  # a verification of four drafts
# The most that is allowed for each multiplication. With 16 registers, formats of more than four bits,
# with scales for halves of a group, or with a table, need more registers for unpacking than are left.
# With 32, the totals of all outputs of a panel count too: GCC keeps them on the stack.
LIMITS = {
    16: {"q4_0": 0.1, "q4_1": 0.1, "q4_k": 0.1, "q8_0": 0.5, "q5_0": 0.75, "q5_1": 0.75,
         "q5_k": 0.75, "q2_k": 0.55, "q3_k": 0.55, "iq4_nl": 0.6, "iq4_xs": 0.6, "q6_k": 0.9},
    32: {form: 0.9 if form in ("q2_k", "q3_k", "q6_k") else 0.5 for form in FORMATS},
}
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
PRODUCT = re.compile(r"(?:MultiplyUnit|AddHalf)<.*\(tandem::DType\)(\d+)>, (\d+)[,>]")
MULTIPLICATION = re.compile(r"\b(vpmaddubsw|vpdpbusd)\b")
ON_STACK = re.compile(r"\(%r[sb]p.*%[xyz]mm|%[xyz]mm.*\(%r[sb]p")


class Count:
    def __init__(self):
        self.instructions = 0
        self.multiplications = 0
        self.on_stack = 0

    def ratio(self):
        return self.on_stack / max(1, self.multiplications)


def count(disassembly):
    """Returns the counts of each format's product of ROWS rows."""
    counts = collections.defaultdict(Count)
    current = None
    for line in disassembly.splitlines():
        function = FUNCTION.match(line)
        if function:
            product = PRODUCT.search(function.group(1))
            wanted = product and int(product.group(2)) == ROWS
            current = counts[FORMATS[int(product.group(1)) - FIRST_FORMAT]] if wanted else None
        elif current is not None and "\t" in line:
            current.instructions += 1
            current.multiplications += bool(MULTIPLICATION.search(line))
            current.on_stack += bool(ON_STACK.search(line))
    return counts


def problems(name, counts):
    """Returns what is wrong with the counts of an object."""
    found = []
    limits = LIMITS[16 if "avx2" in name else 32]
    for form in FORMATS:
        if form not in counts:
            found.append(f"{name}: {form}: no product of {ROWS} rows was found")
            continue
        ratio = counts[form].ratio()
        # Some products widen bytes first, so that they have none of these multiplications.
        if counts[form].multiplications > 0 and ratio > limits[form]:
            found.append(f"{name}: {form}: {ratio:.2f} vectors on the stack for each "
                         f"multiplication, allowed: at most {limits[form]}")
    return found


def disassemble(path):
    return subprocess.run(["objdump", "-dC", "--no-show-raw-insn", path], check=True,
                          capture_output=True, text=True).stdout


class Objects(unittest.TestCase):
    paths = []

    def test_sums_stay_in_registers(self):
        for path in self.paths:
            name = os.path.basename(path)
            self.assertEqual(problems(name, count(disassemble(path))), [])

    def test_sums_on_the_stack_are_seen(self):
        code = ("0 <MultiplyUnit<BlockFormat<PlainDot, (tandem::DType)5>, 5>(int)>:\n"
                "  0:\tvpmaddubsw %ymm1,%ymm2,%ymm3\n"
                "  4:\tvpaddw -0x20(%rsp),%ymm3,%ymm3\n"
                "  8:\tvmovdqa %ymm3,-0x20(%rsp)\n"
                "  c:\tmov %rax,-0x8(%rsp)\n")
        counts = count(code)
        self.assertEqual((counts["q4_0"].multiplications, counts["q4_0"].on_stack), (1, 2))
        found = problems("kernels_avx2.cc.o", counts)
        self.assertEqual(len(found), len(FORMATS))
        self.assertIn("q4_0: 2.00 vectors on the stack", "\n".join(found))
        self.assertIn("q6_k: no product of 5 rows was found", "\n".join(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the counts")
    parser.add_argument("objects", nargs="+", metavar="OBJECT")
    args = parser.parse_args()
    if args.list:
        for path in args.objects:
            for form, found in count(disassemble(path)).items():
                per = found.instructions / max(1, found.multiplications)
                print(f"{os.path.basename(path):28} {form:7} {per:6.2f} instructions and "
                      f"{found.ratio():.2f} vectors on the stack for each multiplication")
        return
    Objects.paths = args.objects
    unittest.main(argv=[sys.argv[0], "-q"])


if __name__ == "__main__":
    main()
