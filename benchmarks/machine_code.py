"""Follows the control flow of a kernel's machine code, as cuobjdump prints it.

Two mistakes that no test of results can see are found here:
- A loop loads a register ahead of the block's barrier, but copies or uses it before the barrier. Each round then waits
  for memory.
- A main loop reads a special register, which takes as long as several multiplications.
"""

import re

INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
REGISTER = re.compile(r"(?<!U)\bR(\d+)\b(\.64)?")
TENSOR = ["HMMA", "IMMA", "HGMMA"]
# Registers of the operands of a tensor-core instruction: result, a, b and first sums.
TILES = {"HMMA.16816": (4, 4, 2, 4), "HMMA.1688": (4, 2, 1, 4), "IMMA.16832": (4, 4, 2, 4), "IMMA.16816": (4, 2, 1, 4)}


class Instruction:
    """An instruction: address, condition (or None), opcode, operands, and the registers that it reads and writes."""

    def __init__(self, match):
        self.address = int(match[1], 16)
        self.condition, self.opcode, self.operands = match[2], match[3], match[4]
        self.stem = self.opcode.split(".")[0]
        self.writes, self.reads = self._registers()

    def __str__(self):
        return f"{self.opcode} {self.operands.strip()} at 0x{self.address:x}"

    def _width(self):
        """Registers that a load or a store moves."""
        size = re.search(r"\.(64|128)\b", self.opcode)
        return int(size[1]) // 32 if size else 1

    def _registers(self):
        writes, reads = set(), set()
        tiles = next((sizes for name, sizes in TILES.items() if self.opcode.startswith(name)), None)
        stores = self.stem in ("ST", "STG", "STS", "STL", "LDGSTS", "RED", "BAR", "BRA", "EXIT")
        for place, operand in enumerate(self.operands.split(",")):
            for match in REGISTER.finditer(operand):
                is_result = place == 0 and not stores and "[" not in operand
                in_address = "[" in operand
                if tiles:
                    count = tiles[place] if place < 4 else 1
                elif in_address:
                    count = 2 if match[2] else 1
                elif is_result and self.stem in ("LDG", "LDS", "LDL", "LD", "LDC") or stores and place > 0:
                    count = self._width()
                elif is_result and (".WIDE" in self.opcode or self.stem == "CS2R"):
                    count = 2
                else:
                    count = 1
                registers = range(int(match[1]), int(match[1]) + count)
                (writes if is_result else reads).update(registers)
        return writes, reads

    def target(self):
        match = re.search(r"\b0x([0-9a-f]+)\b", self.operands) if self.stem == "BRA" else None
        return int(match[1], 16) if match else None

    def may_fall_through(self):
        return self.stem not in ("BRA", "EXIT") or bool(self.condition) or "P" in self.operands or "DIV" in self.opcode

    def is_copy(self):
        return self.stem == "MOV" or self.opcode.startswith("IMAD.MOV")


class Code:
    def __init__(self, lines):
        self.instructions = [Instruction(match) for match in map(INSTRUCTION.match, lines) if match]
        self._at = {instruction.address: i for i, instruction in enumerate(self.instructions)}

    def loops(self):
        """(first, last address) of every loop. A branch back ends it, and can be reached from its target. (Code out of
        line also ends with a branch back, but is entered before its target.)"""
        back = [(i.target(), i.address) for i in self.instructions
                if i.target() in self._at and i.target() < i.address]
        return [loop for loop in back if self._at[loop[1]] in self._reachable(self._at[loop[0]], loop)]

    def _reachable(self, start, loop):
        seen, left = set(), [start]
        while left:
            index = left.pop()
            if index not in seen:
                seen.add(index)
                left += self._next(index, loop)
        return seen

    def within(self, loop):
        return [] if loop is None else [i for i in self.instructions if loop[0] <= i.address <= loop[1]]

    def main_loop(self):
        """The innermost loop with the most tensor-core instructions; among equals, the longest. None without loops."""
        loops = self.loops()
        inner = [loop for loop in loops if not any(loop != other and loop[0] <= other[0] and other[1] <= loop[1]
                                                   for other in loops)]
        def size(loop):
            stems = [i.stem for i in self.within(loop)]
            return sum(stem in TENSOR for stem in stems), len(stems)
        return max(inner, key=size, default=None)

    def _next(self, index, loop):
        """Indices of the instructions that may follow within the loop."""
        instruction = self.instructions[index]
        addresses = [instruction.target()]
        if instruction.may_fall_through() and index + 1 < len(self.instructions):
            addresses.append(self.instructions[index + 1].address)
        return [self._at[a] for a in addresses if a in self._at and loop[0] <= a <= loop[1]]

    def _uses(self, start, register, loop, ends):
        """Follows all paths from after instruction `start` until the register is written or `ends` holds. Returns the
        instructions that read it, and the indices at which `ends` held."""
        found, ended, seen = [], set(), set()
        left = self._next(start, loop)
        while left:
            index = left.pop()
            if index in seen:
                continue
            seen.add(index)
            instruction = self.instructions[index]
            if register in instruction.reads:
                found.append((index, instruction))
            if ends(instruction):
                ended.add(index)
                continue
            if register in instruction.writes:  # conditional writes come in pairs, for a condition and its opposite
                continue
            left += self._next(index, loop)
        return found, ended

    def _is_carried(self, barriers, register, loop):
        """Whether the value that `register` has at one of `barriers` is read after it, and the register was loaded
        before the loop too, as one that is loaded ahead must be."""
        return (any(i.stem == "LDG" and register in i.writes for i in self.instructions if i.address < loop[0]) and
                any(self._uses(barrier, register, loop, lambda i: False)[0] for barrier in barriers))

    def defeated_loads(self):
        """Returns (load, use) for each register that a loop loads ahead, before a block's barrier, but copies or uses
        in front of that barrier."""
        def is_barrier(instruction):
            return instruction.opcode.startswith("BAR.SYNC")

        wrong = {}
        for loop in self.loops():
            if not any(map(is_barrier, self.within(loop))):
                continue
            loads = [(index, i) for index, i in enumerate(self.instructions)
                     if i.stem == "LDG" and loop[0] <= i.address <= loop[1]]
            for index, load, register in ((index, i, r) for index, i in loads for r in i.writes):
                uses, barriers = self._uses(index, register, loop, is_barrier)
                for at, use in uses:
                    carried = self._is_carried(barriers, register, loop)
                    if not carried and use.is_copy() and use.writes:
                        (copy,) = use.writes
                        carried = self._is_carried(self._uses(at, copy, loop, is_barrier)[1], copy, loop)
                    if carried:
                        wrong.setdefault(load.address, (load, use))
        return list(wrong.values())

    def special_registers(self):
        """The instructions of the main loop that read a special register."""
        return [i for i in self.within(self.main_loop()) if i.stem in ("S2R", "S2UR", "CS2R") and "SR_" in i.operands]

    def serial_waits(self):
        """The waits of the main loop for all products by warpgroups. The compiler adds them where it cannot let products
        run while the loop goes on."""
        return [i for i in self.within(self.main_loop())
                if i.opcode.startswith("WARPGROUP.DEPBAR") and i.operands.strip().endswith(", 0x0")]
