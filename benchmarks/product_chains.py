#!/usr/bin/env python3
"""Computes the bandwidth at which a device can read bf16 weights if each output is one chain of sums. Not a measurement.

A warp has 16 outputs. Each instruction needs the sum of the previous one, and 512 bytes of the
weight. Prints the table of docs/decisions.md:

    benchmarks/product_chains.py [--memory 4.4] [--clock 1.755] [--cycles 33]
"""

import argparse

OUTPUTS = (1024, 2048, 3072, 4096, 6144, 14336, 28672)
INSTRUCTION_BYTES = 16 * 16 * 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memory", type=float, default=4.4, help="memory bandwidth in TB/s")
    parser.add_argument("--clock", type=float, default=1.755, help="clock in GHz")
    parser.add_argument("--cycles", type=float, default=33, help="cycles from one instruction to the next")
    arguments = parser.parse_args()
    of_a_warp = INSTRUCTION_BYTES / arguments.cycles * arguments.clock  # GB/s
    print("| outputs | warps | chains allow, TB/s | share of memory's |")
    print("|---|---|---|---|")
    for outputs in OUTPUTS:
        warps = outputs // 16
        allowed = warps * of_a_warp / 1000
        share = min(1.0, allowed / arguments.memory)
        print(f"| {outputs:,} | {warps:,} | {allowed:.1f} | {share:.0%} |")


if __name__ == "__main__":
    main()
