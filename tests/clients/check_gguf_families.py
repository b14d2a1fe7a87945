#!/usr/bin/env python3
"""Golden models of every family as GGUF files: the reference's logits, llama.cpp's and Tandem's, of the same files.

  check_gguf_families.py                     all of tests/data/models that a GGUF file can hold
  check_gguf_families.py --models gemma2     some of them

Each is written as F32 by safetensors_to_gguf.py, an independent converter, and as q8_0 by `tandem quantize`. Printed are
largest differences of log-probabilities: llama.cpp and Tandem on the F32 file from the reference's stored logits (made by
transformers of the folder), and the two from each other on the q8_0 file, where llama.cpp rounds activations to 8 bits: 0.02
to 0.08 on average, where one part done in another way makes 0.5 and more. Ends with status 1 beyond the tolerances. llama.cpp
makes GELU from a table of 16 bits, so gemma's differ more. A check of layouts, to be run by hand: llama.cpp is built by the
first run, as that of compare_llama_cpp.py is.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # Nothing is written into the repository.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../benchmarks"))
import comparison as lib  # noqa: E402

MODELS = os.path.join(lib.ROOT, "tests", "data", "models")
GELU = ("gemma",)
# llama.cpp leaves out phi3's window, so that rows up to it agree. Its contexts have at least 256 positions, and take the
# factors of longrope for contexts above the original one, here 128.
ROWS_OF_LLAMA_CPP = {"phi3-window": 13, "phi3-short": 0}
# Which no GGUF file can hold.
NO_FILE = {"mistral-window": "a sliding window of an architecture that has none there",
           "qwen3-moe-mixed": "layers without experts, and weights of experts that do not add up to 1"}


def compare(ours, theirs, rows):
    """The largest and mean difference of log-probabilities that both have, in the first `rows` rows."""
    if rows == 0:
        return 0.0, 0.0
    differences = [abs(a[key] - b[key]) for a, b in list(zip(ours, theirs))[:rows] for key in a if key in b]
    return max(differences), sum(differences) / len(differences)


def tandem_rows(tandem, path, ids, compute):
    """For each position the 100 most likely next ids with their log-probabilities."""
    answer, error = tandem.try_json("generate", "--target", path, "--drafter", "none", "--prompt-ids", ",".join(map(str, ids)),
                                    "--max-tokens", "1", "--ignore-eos", "--temperature", "0", "--compute", compute,
                                    "--prompt-logprobs", "100", "--logprobs", "100")
    if answer is None:
        return None, error.splitlines()[-1]
    tops = [entry["top"] for entry in answer["prompt_logprobs"][1:]] + [answer["logprobs"][0]["top"]]
    return [dict(map(tuple, top)) for top in tops], ""


def sayable(folder, work):
    """The folder, but of gemma with the scale of scores that files imply."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    text = config.get("text_config", config)
    if "query_pre_attn_scalar" not in text:
        return folder
    text["query_pre_attn_scalar"] = text["head_dim"]
    copy = os.path.join(work, "folder")
    shutil.copytree(folder, copy)
    with open(os.path.join(copy, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    return copy


def quantized(tandem, folder, path):
    done = subprocess.run([tandem.path, "quantize", folder, "--to", "q8_0", "--out", path], capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def check(name, args, tandem, worker):
    """A row of the table, and whether all is well."""
    folder = os.path.join(MODELS, name)
    with tempfile.TemporaryDirectory() as work:
        file = os.path.join(work, f"{name}.gguf")
        worker.ask("write", folder=folder, path=file, dtype="F32", has_tokens=True)
        golden = worker.ask("golden", folder=folder)
        settings = {"threads": args.threads, "flash_attention": False, "repack": False, "load_mode": "mmap", "context": 128,
                    "cache": "f32"}
        worker.ask("load", path=file, settings=settings)
        theirs = [dict(enumerate(row)) for row in worker.ask("logprobs", ids=golden["ids"])["rows"]]
        reference = [dict(enumerate(row)) for row in golden["rows"]]
        rows = ROWS_OF_LLAMA_CPP.get(name, len(reference))
        ours, error = tandem_rows(tandem, file, golden["ids"], "f32")
        if ours is None:
            return [name, "-", error, "", ""], False
        tolerance = args.gelu_tolerance if name.startswith(GELU) else args.tolerance
        theirs_off, ours_off = compare(theirs, reference, rows)[0], compare(ours, reference, len(reference))[0]
        is_well = theirs_off <= tolerance and ours_off <= args.tolerance
        cells = [name, f"{theirs_off:.1e}" + (f" ({rows} rows)" if rows < len(reference) else ""), f"{ours_off:.1e}"]
        blocks = os.path.join(work, f"{name}-q8_0.gguf")
        refusal = quantized(tandem, sayable(folder, work), blocks)
        if refusal:
            return cells + [refusal.split("config.json: ")[-1].split(";")[0]], is_well
        worker.ask("load", path=blocks, settings=settings)
        theirs = [dict(enumerate(row)) for row in worker.ask("logprobs", ids=golden["ids"])["rows"]]
        ours, error = tandem_rows(tandem, blocks, golden["ids"], "f32")
        if ours is None:
            return cells + [error], False
        most, mean = compare(ours, theirs, rows)
        return cells + [f"{most:.3f} (mean {mean:.4f})"], is_well and mean <= args.blocks_tolerance


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(lib.ROOT, "build", "release", "tandem"))
    parser.add_argument("--venv", default=lib.default_folder("tandem_llama_cpp"), help="environment of llama.cpp, made if missing")
    parser.add_argument("--models", help="names of folders in tests/data/models")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tolerance", type=float, default=4e-4, help="of F32 files")
    parser.add_argument("--gelu-tolerance", type=float, default=0.05, help="of llama.cpp where it makes GELU from its table")
    parser.add_argument("--blocks-tolerance", type=float, default=0.1, help="of the mean on q8_0 files")
    parser.add_argument("--verbose", action="store_true", help="show what llama.cpp's process writes to its standard error")
    args = parser.parse_args()
    names = args.models.split(",") if args.models else sorted(name for name in os.listdir(MODELS) if name not in NO_FILE)
    python = lib.environment(args.venv, ["llama-cpp-python", "gguf", "numpy"], "llama_cpp, gguf, numpy",
                             ["--no-binary", "llama-cpp-python"], {"CMAKE_ARGS": "-DGGML_NATIVE=ON"})
    tandem = lib.Tandem(args.bin, args.threads)
    rows, is_well = [], True
    with lib.Worker(python, "llama_cpp_worker.py", {"OMP_NUM_THREADS": str(args.threads)}, not args.verbose) as worker:
        print(f"llama-cpp-python {worker.ask('about')['version']}, {tandem.version().splitlines()[0]}", flush=True)
        for name in names:
            row, good = check(name, args, tandem, worker)
            lib.say(" ".join(row) + ("" if good else "  FAILED"))
            rows.append(row + ["" if good else "FAILED"])
            is_well = is_well and good
    print(lib.table(["model", "llama.cpp off the reference", "Tandem", "q8_0 of `quantize`, Tandem off llama.cpp", ""], rows))
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
