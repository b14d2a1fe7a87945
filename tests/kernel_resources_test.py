"""The reader of the kernels' machine code, benchmarks/kernel_resources.py: kernel_resources_test.py [unittest's arguments]

It reads the recorded output of compiler and disassembler for a small kernel (data/kernel_code/, with its source), and must see each
planted regression. Does not need a compiler.
"""
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True  # Do not write into the repository.
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))
import kernel_resources as resources  # noqa: E402
from machine_code import Code  # noqa: E402

NUMBERS = {"registers": 20, "local": 0, "HMMA": 1, "IMMA": 0, "HGMMA": 0, "loop": 15, "blocks": 8}
TILE = "HMMA.16816.F32.BF16 R4, R8, R12, R4 ;"


def measure(arch="sm_90a", shared=0, **changes):
    """The numbers of the recorded text; sass=(old, new) replaces a piece of it first."""
    def dump(option):
        name = option[1:].replace("-", "_")
        text = (HERE / "data/kernel_code" / f"{option[1:]}.txt").read_text()
        old, new = changes.get(name, ("", ""))
        assert old in text, old
        return text.replace(old, new, 1)
    return resources.measure(arch, dump, lambda kernel: shared)


class KernelResources(unittest.TestCase):
    def differences(self, same_compiler=True, **changes):
        found, wrong = measure(**changes)
        self.assertEqual(wrong, [])
        return resources.compare("sm_90a", found, {"SmallKernel": NUMBERS}, same_compiler)

    def test_reads_a_kernel(self):
        self.assertEqual(measure(), ({"SmallKernel": NUMBERS}, []))
        self.assertEqual(self.differences(), [])
        self.assertEqual(self.differences(same_compiler=False), [])

    def test_sees_one_more_register(self):
        more = {"res_usage": ("REG:20", "REG:21")}
        self.assertEqual(self.differences(**more), ["sm_90a SmallKernel: registers is 21, expected 20"])
        # Another compiler may use more registers, as long as the same number of blocks fit.
        self.assertEqual(self.differences(same_compiler=False, **more), [])
        many = {"res_usage": ("REG:20", "REG:33")}
        self.assertEqual(self.differences(same_compiler=False, **many),
                         ["sm_90a SmallKernel: blocks is 6, expected 8"])

    def test_sees_a_spill(self):
        for spill, size in [("STL [R1], R4 ;", 4), ("LDL.64 R4, [R1] ;", 8), ("STL.128 [R1], R4 ;", 16),
                            ("LDL.LU R4, [R1+0x4] ;", 4), ("STL.U8 [R1], R4 ;", 1)]:
            planted = {"sass": ("STG.E desc[UR4][R2.64], R4 ;", spill)}
            for same_compiler in (True, False):
                self.assertEqual(self.differences(same_compiler, **planted),
                                 [f"sm_90a SmallKernel: local is {size}, expected 0"])

    def test_sees_a_missing_tensor_core(self):
        planted = {"sass": (TILE, "FFMA R4, R8, R12, R4 ;")}
        for same_compiler in (True, False):
            self.assertEqual(self.differences(same_compiler, **planted),
                             ["sm_90a SmallKernel: HMMA is 0, expected 1"])

    def test_sees_a_longer_loop(self):
        planted = {"sass": ("@!P0 BRA 0x190", "@!P0 BRA 0x180")}
        self.assertEqual(self.differences(**planted), ["sm_90a SmallKernel: loop is 16, expected 15"])
        self.assertEqual(self.differences(same_compiler=False, **planted), [])

    def test_sees_new_and_removed_kernels(self):
        self.assertEqual(resources.compare("sm_80", {"A": NUMBERS}, {"B": NUMBERS}, True),
                         ["sm_80 A: is new", "sm_80 B: is gone"])

    def test_sees_a_kernel_that_does_not_wait_for_earlier_ones(self):
        wrong = "sm_90a SmallKernel: ACQBULK should be there for sm_90a alone"
        self.assertEqual(measure(sass=("ACQBULK ;", "NOP ;"))[1], [wrong])
        self.assertIn("PREEXIT", measure(arch="sm_80")[1][0])

    def test_finds_only_the_loop_with_tensor_cores(self):
        tile, add, multiply = (0x40, "HMMA.16816.F32"), (0x130, "FADD"), (0x140, "FMUL")

        def branch(address, target, condition="@P0 "):
            return (address, f"{condition}BRA 0x{target:x}")

        def loop(*instructions):
            found = Code([f"/*{address:04x}*/ {text} ;" for address, text in sorted(instructions)])
            return len(found.within(found.main_loop()))

        self.assertEqual(loop(tile, branch(0x50, 0x40), add, multiply, branch(0x150, 0x130)), 2)
        self.assertEqual(loop(add, multiply, branch(0x150, 0x130)), 3)
        # An outer loop, and a loop that is left in its middle.
        self.assertEqual(loop((0x10, "NOP"), (0x20, "NOP"), (0x30, "NOP"), tile, branch(0x50, 0x40), branch(0x60, 0x10)), 2)
        self.assertEqual(loop((0x30, "FADD"), tile, branch(0x50, 0x70), branch(0x60, 0x30, ""), (0x70, "EXIT")), 4)
        # A branch out of line and back, a forward branch, and a branch to itself.
        self.assertEqual(loop(branch(0x20, 0x60), (0x30, "FADD"), tile, (0x50, "EXIT"), (0x60, "FMUL"),
                              branch(0x70, 0x30, "")), 0)
        self.assertEqual(loop(tile, branch(0x60, 0x90), branch(0x70, 0x70)), 0)
        self.assertEqual(loop(tile, (0x50, "BRA.U UP0, 0x40")), 2)

    def test_sees_a_special_register_in_the_main_loop(self):
        planted = {"sass": ("NOP ;", "S2UR UR5, SR_CgaCtaId ;")}
        self.assertEqual(measure(**planted)[1],
                         ["sm_90a SmallKernel: S2UR UR5, SR_CgaCtaId at 0x260 is in the main loop"])
        # Zeros come from an instruction of the same name, and outside of the loop the cost is paid once.
        self.assertEqual(measure(sass=("NOP ;", "CS2R R20, SRZ ;"))[1], [])
        self.assertEqual(measure(sass=("IADD3 R0, R0, 0x1, RZ ;", "CS2R R20, SR_CLOCKLO ;"))[1],
                         ["sm_90a SmallKernel: CS2R R20, SR_CLOCKLO at 0x1f0 is in the main loop"])

    def test_sees_serial_products_of_warpgroups(self):
        def waits(groups_left):
            text = ["WARPGROUP.ARRIVE", "HGMMA.64x64x16.F32.BF16 R24, R8, gdesc[UR4], R24, gsb0",
                    f"WARPGROUP.DEPBAR.LE gsb0, {groups_left}", "@P0 BRA 0x0", "WARPGROUP.DEPBAR.LE gsb0, 0x0"]
            found = Code([f"/*{16 * i:04x}*/ {instruction} ;" for i, instruction in enumerate(text)])
            return [wait.address for wait in found.serial_waits()]

        self.assertEqual(waits("0x1"), [])
        self.assertEqual(waits("0x0"), [0x20])

    def test_sees_a_defeated_load(self):
        # R2 is loaded before the loop and again in each round, ahead of the barrier, for the next round. One branch of
        # the loop skips the load.
        ahead = ["LDG.E R2, desc[UR4][R8.64]", "FADD R3, R2, R3", "@P1 BRA 0x40", "LDG.E R2, desc[UR4][R8.64+0x20]",
                 "STS [R6], R3", "NOP", "BAR.SYNC.DEFER_BLOCKING 0x0", "@P0 BRA 0x10", "EXIT"]

        def wrong(**changes):
            text = [changes.get(f"at_{i:x}", instruction) for i, instruction in enumerate(ahead)]
            found = Code([f"/*{16 * i:04x}*/ {instruction} ;" for i, instruction in enumerate(text)])
            return [(load.address, use.address) for load, use in found.defeated_loads()]

        self.assertEqual(wrong(), [])
        self.assertEqual(wrong(at_5="FMUL R7, R2, R2"), [(0x30, 0x50)])
        self.assertEqual(wrong(at_4="STS [R6], R2"), [(0x30, 0x40)])
        # The compiler had loaded another register and copied it in front of the barrier.
        self.assertEqual(wrong(at_3="LDG.E R5, desc[UR4][R8.64]", at_5="IMAD.MOV.U32 R2, RZ, RZ, R5"), [(0x30, 0x50)])
        self.assertEqual(wrong(at_3="LDG.E R5, desc[UR4][R8.64]", at_5="MOV R7, R5"), [])
        # A round uses its own loads at once, and a store of 16 bytes reads four registers.
        self.assertEqual(wrong(at_1="LDG.E R2, desc[UR4][R8.64]", at_3="NOP", at_5="FADD R3, R2, R3"), [])
        self.assertEqual(wrong(at_4="STS.128 [R6], R0"), [(0x30, 0x40)])
        self.assertEqual(wrong(at_4="STS.64 [R6], R0"), [])

    def test_counts_blocks_on_a_processor(self):
        def blocks(arch, registers, shared):
            return resources.blocks_on_processor(arch, registers, 256, shared)
        self.assertEqual([blocks("sm_90a", r, 0) for r in (32, 64, 65, 128, 153, 255)], [8, 4, 3, 2, 1, 1])
        self.assertEqual([blocks(a, 32, 60000) for a in ("sm_80", "sm_89", "sm_90a")], [2, 1, 3])
        self.assertEqual(blocks("sm_89", 16, 0), 6)

    def test_sees_registers_that_halve_the_blocks(self):
        def lines(registers):
            blocks = resources.blocks_on_processor("sm_90a", registers, 256, 83712)
            return resources.beyond_limits({"AttendKernel<TensorTile<128>>": {"blocks": blocks},
                                            "AttendKernel<TensorTile<256>>": {"blocks": 1}})
        self.assertEqual(lines(128), [])
        # With the soft cap's tanh in every kernel, kernels used this many registers.
        self.assertEqual(lines(153), ["sm_90a AttendKernel<TensorTile<128>>: 1 fit on a processor, 2 are assumed"])

    def test_sees_spills_and_too_many_registers(self):
        def lines(registers, local, kernel="FewRowsKernel<1, 2>"):
            return resources.beyond_limits({kernel: {"registers": registers, "local": local, "blocks": 2}})
        self.assertEqual(lines(64, 0), [])
        self.assertIn("sm_90a FewRowsKernel<1, 2>: registers is 65, at most 64 is allowed", lines(65, 0))
        self.assertIn("sm_90a FewRowsKernel<1, 2>: local is 4, at most 0 is allowed", lines(64, 4))
        wide = "WarpgroupProductKernel<32>"
        self.assertEqual(lines(168, 0, wide), [])
        self.assertEqual(lines(169, 4, wide), [f"sm_90a {wide}: registers is 169, at most 168 is allowed",
                                               f"sm_90a {wide}: local is 4, at most 0 is allowed"])

    def test_writes_the_table_between_its_marks(self):
        page = f"a\n{resources.BEGIN}\nold\n{resources.END}\nb\n"
        formats = {f"P<BlockWeight<(DType){i}>, 1>": {**NUMBERS, "registers": 50 + i} for i in (2, 3)}
        written = resources.with_table(page, resources.table(formats, {"P<BlockWeight<(DType)2>, 1>": "7"}))
        self.assertTrue(written.startswith(f"a\n{resources.BEGIN}\n| kernel |"), written)
        self.assertIn("| `P` | 52 to 53 | 0 | 0 to 7 | 8 |\n", written)
        self.assertTrue(written.endswith(f"{resources.END}\nb\n"), written)


if __name__ == "__main__":
    unittest.main()
