"""Stand-ins for the programs of tools/gpu_checks.py on machines without a GPU.

gpu_stand_ins.py NAME ARGUMENT... acts as tandem, gpu_test, kernel_lab, nvidia-smi, compute-sanitizer or torch. Each
adds a line of JSON with its name and arguments to the file CALLS, and answers like the program.
A call with one of the words in STAND_IN_HANGS hangs until the program that
made it ends. A call with one of the words in STAND_IN_FAILS fails.
"""

import json
import os
import pathlib
import sys
import time

REFERENCE = [5, 6, 7]


def option(arguments, name):
    return arguments[arguments.index(name) + 1]


def results(arguments):
    """A result of `bench device` or torch_passes.py for each requested pass."""
    for context in option(arguments, "--contexts").split(","):
        for rows in option(arguments, "--rows").split(","):
            yield {"device": "stand-in", "shape": option(arguments, "--shape"), "op": "pass",
                   "part": "verify", "rows": int(rows), "batch": 1, "context": int(context),
                   "ms": 2.0, "device_ms": 1.0, "bytes": 3e9, "flops": 5e11,
                   "flops_per_second": 5e14, "bytes_per_second": 3e12, "of_read": 0.75,
                   "of_one_row": 1.0, "engine": "stand-in"}


def tandem(arguments):
    if arguments[:2] == ["bench", "device"]:
        if "--contexts" not in arguments:  # the search for the device
            arguments = [*arguments, "--contexts", "0"]
        return results(arguments)
    if arguments[:2] == ["bench", "speculation"]:
        return [{"target": {"path": option(arguments, "--target")},
                 "runs": [{"draft_tokens": 4, "batch": 1, "decode_ratio": 2.5, "identical": True}]}]
    if arguments[0] == "generate":
        return [{"token_ids": REFERENCE}]
    return [{}]  # a configuration, or output that is not read


def gpu_test(arguments):
    report = next(word for word in arguments if word.startswith("--gtest_output=json:"))
    pathlib.Path(report.split(":", 1)[1]).write_text(json.dumps({"testsuites": [
        {"name": "Device", "testsuite": [{"name": "Works", "result": "COMPLETED"}]}]}))
    return []


def kernel_lab(arguments):
    pathlib.Path(option(arguments, "--out")).write_text('{"end": true}\n')
    return ["kernel_lab: 1 measured"]


def main():
    name, *arguments = sys.argv[1:]
    with open(os.environ["CALLS"], "a", encoding="utf-8") as calls:
        calls.write(json.dumps([name, *arguments]) + "\n")
    words = {name, *arguments}
    if words & set(os.environ.get("STAND_IN_FAILS", "").split()):
        print("it went wrong")
        sys.exit(3)
    if words & set(os.environ.get("STAND_IN_HANGS", "").split()):
        print('{"cut": ', flush=True)
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(0.05)
    if name == "compute-sanitizer":
        at = next(i for i, word in enumerate(arguments) if word.endswith("gpu_test"))
        print("========= ERROR SUMMARY: 0 errors", flush=True)
        os.execv(arguments[at], arguments[at:])
    answers = {"tandem": tandem, "gpu_test": gpu_test, "kernel_lab": kernel_lab, "torch": results,
               "nvidia-smi": lambda _: ["stand-in, 1"]}[name](arguments)
    for answer in answers:
        print(answer if isinstance(answer, str) else json.dumps(answer))


if __name__ == "__main__":
    main()
