#!/usr/bin/env python3
"""Golden models of every family as GGUF files: compares the logits of the reference, of llama.cpp and of Tandem for the same files.

  check_gguf_families.py                     all of tests/data/models that a GGUF file can hold
  check_gguf_families.py --models gemma2     some of them

Each model is written as F32 by safetensors_to_gguf.py, an independent converter, and as q8_0 by `tandem quantize`. Prints the
largest differences of log-probabilities: of llama.cpp and Tandem with the F32 file from the reference's stored logits (made by
transformers from the folder), and between the two with the q8_0 file, where llama.cpp rounds activations to 8 bits: 0.02
to 0.08 on average, while a single wrong operation gives 0.5 or more. Exits with 1 beyond the tolerances. llama.cpp
computes GELU with a table of 16 bits, so gemma's logits differ more. This check of layouts is run by hand. Its first run builds
llama.cpp, like that of compare_llama_cpp.py.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # Do not write into the repository.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../benchmarks"))
import comparison as lib  # noqa: E402

MODELS = os.path.join(lib.ROOT, "tests", "data", "models")
GELU = ("gemma",)
# llama.cpp ignores phi3's window, so only rows up to the window agree. Its contexts have at least
# 256 positions, and it uses longrope's factors for contexts above the original one, here 128.
ROWS_OF_LLAMA_CPP = {"phi3-window": 13, "phi3-short": 0}
# Models that a GGUF file cannot hold.
NO_FILE = {"mistral-window": "a sliding window in an architecture without one",
           "qwen3-moe-mixed": "layers without experts, and weights of experts that do not add up to 1"}


def compare(ours, theirs, rows):
    """The largest and mean difference of the log-probabilities that both have, in the first `rows` rows."""
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
    """The folder. For gemma, a copy with the scale of scores that GGUF files imply."""
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
    """A row of the table, and whether it is within the tolerances."""
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
    parser.add_argument("--tolerance", type=float, default=4e-4, help="for F32 files")
    parser.add_argument("--gelu-tolerance", type=float, default=0.05, help="for llama.cpp if it computes GELU with its table")
    parser.add_argument("--blocks-tolerance", type=float, default=0.1, help="for the mean with q8_0 files")
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
    print(lib.table(["model", "llama.cpp from the reference", "Tandem", "q8_0 of `quantize`, Tandem from llama.cpp", ""], rows))
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
