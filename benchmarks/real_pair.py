#!/usr/bin/env python3
"""Measures the real pair on public prompt sets: the speed-up of speculation by task, and llama.cpp on the same two files.

  real_pair.py                                     the fetched model and its shipped draft, T = 0 and 0.7
  real_pair.py --drafters model,model+ngram --temperatures 0 --count 5 --tasks qa,math
  real_pair.py --target bf16.gguf --draft self:q4_1 --drafters model
  real_pair.py --llama-cpp V                       also llama.cpp of the environment V (which compare_llama_cpp.py creates)

Needs the prompt sets next to the checkout (../shared/prompts). Each prompt is a message in the model's chat format, and
an answer ends where the model ends it or at --max-tokens. For every task `tandem bench speculation` runs pairs of plain
and speculative passes over the prompts, alternating between draft lengths; figures are medians over pairs of the ratio of tokens
per second, prompts included. llama.cpp decodes greedily in a loop over its C functions that drafts up to k tokens and checks
them in one batch. It gets Tandem's token ids, without using its own chat template. This is a measurement, not a test.
"""
import json
import os
import sys

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402

SPEC_BENCH = ["translation", "summarization", "qa", "math_reasoning", "rag"]


def lines(name):
    return map(json.loads, lib.lines_of(name))


def tasks(count):
    """Returns, by task, the first messages of `count` conversations, spread over the prompt set."""
    def spread(items):
        return [items[i * len(items) // count] for i in range(min(count, len(items)))]

    found = {}
    for task in SPEC_BENCH:
        found[task] = spread([q["turns"][0] for q in lines("spec_bench_question.jsonl") if q["category"] == task])
    found["mt_bench"] = spread([q["turns"][0] for q in lines("mt_bench_question.jsonl")])
    found["human_eval"] = spread(["Complete this function.\n\n" + q["prompt"] for q in lines("HumanEval.jsonl")])
    found["gsm8k"] = spread([q["question"] for q in lines("gsm8k_test.jsonl")])
    return found


def bench(tandem, args, prompts, drafter, temperature):
    """Returns the paths of both models, and the runs of one task by draft length."""
    chat = [] if args.no_chat else ["--chat"]
    report = tandem.json("bench", "speculation", *chat, "--prompts", prompts, "--drafter", drafter, "-k", args.lengths,
                         "--temperature", str(temperature), "--max-tokens", str(args.max_tokens),
                         "--repeat", str(args.repeat), "--target", args.target, "--draft", args.draft)
    return (report["target"]["path"], (report["draft"] or {}).get("path")), report["runs"]


def row(task, temperature, drafter, runs):
    """Returns a task's row: acceptance, tokens per round and ratio of its auto run, and the best fixed length."""
    auto = next((run for run in runs if run["draft_tokens"] == "auto"), None)
    fixed = [run for run in runs if run["draft_tokens"] != "auto"]
    best = max(fixed, key=lambda run: run["ratio_to_plain"], default=None)
    told = auto or best
    share = auto and best and auto["ratio_to_plain"] / max(best["ratio_to_plain"], 1.0)
    return [task, f"{temperature:g}", drafter, lib.number(told["plain_tokens_per_second"], "%.1f"),
            lib.number(told["acceptance_rate"]), lib.number(told["tokens_per_round"]),
            lib.spread((told["ratio_to_plain"], *told["ratio_spread"])),
            f"{best['ratio_to_plain']:.2f} at {best['draft_tokens']}" if best else "-", lib.number(share)]


class LlamaCpp:
    """Runs llama.cpp greedily on the same two files, at each draft length."""

    def __init__(self, args, worker):
        settings = {"threads": args.threads, "flash_attention": True, "repack": True, "load_mode": "mmap", "context": 4096, "cache": "f16"}
        self.worker, self.lengths = worker, [0, *(int(k) for k in args.lengths.split(",") if k != "auto")]
        worker.ask("load", path=args.llama_cpp_target, settings=settings)
        worker.ask("load_draft", path=args.llama_cpp_draft, settings=settings)

    def speeds(self, prompts, args):
        """Returns the tokens per second, prompts included, by draft length: medians over turns."""
        def run(length):
            done = self.worker.ask("answers", prompts=prompts, tokens=args.max_tokens, ends=args.ends, draft_tokens=length)
            return sum(len(a["ids"]) for a in done["answers"]) / sum(a["ms"] for a in done["answers"]) * 1e3

        turns = lib.alternate(args.repeat, {length: lambda turn, length=length: run(length) for length in self.lengths})
        return {length: lib.median(speeds) for length, speeds in turns.items()}


def main():
    parser = lib.parser(__doc__, os.cpu_count(), max_tokens=128)
    parser.add_argument("--target", default="smollm2")
    parser.add_argument("--draft", default=os.path.join(lib.ROOT, "models", "smollm2-draft"))
    parser.add_argument("--no-chat", action="store_true", help="do not format prompts as messages, for base models, which continue them")
    parser.add_argument("--drafters", default="model,ngram,model+ngram")
    parser.add_argument("--temperatures", default="0,0.7")
    parser.add_argument("--lengths", default="1,2,4,8,auto", help="draft lengths")
    parser.add_argument("--tasks", help="any of the tasks")
    parser.add_argument("--count", type=int, default=20, help="prompts per task")
    parser.add_argument("--repeat", type=int, default=2, help="pairs of passes")
    parser.add_argument("--llama-cpp", metavar="VENV", help="also run llama.cpp of this environment (which compare_llama_cpp.py creates)")
    parser.add_argument("--llama-cpp-target", metavar="F.gguf", help="the target's file")
    parser.add_argument("--llama-cpp-draft", metavar="F.gguf", help="the draft's file")
    parser.add_argument("--ends", type=lib.whole_numbers, default=[2], help="ids that end an answer, for llama.cpp")
    args = parser.parse_args()
    if args.llama_cpp and not (args.llama_cpp_target and args.llama_cpp_draft):
        parser.error("--llama-cpp needs --llama-cpp-target and --llama-cpp-draft")
    everything = tasks(args.count)
    tandem = lib.Tandem(args.bin, args.threads, timeout=7200)
    rows, figures, others, models = [], [], [], None
    for task in lib.some_of(parser, "--tasks", args.tasks, everything) if args.tasks else everything:
        with lib.prompts_file(everything[task]) as prompts:
            for temperature in map(float, args.temperatures.split(",")):
                for drafter in args.drafters.split(","):
                    models, runs = bench(tandem, args, prompts, drafter, temperature)
                    rows.append(row(task, temperature, drafter, runs))
                    figures.append({"task": task, "temperature": temperature, "drafter": drafter, "runs": runs})
                    lib.say(" ".join(rows[-1]))
        if args.llama_cpp:
            with lib.Worker(os.path.join(args.llama_cpp, "bin", "python3"), "llama_cpp_worker.py") as worker:
                speeds = LlamaCpp(args, worker).speeds(tandem.chat_ids(args.target, everything[task]), args)
            best = max(speeds, key=speeds.get)
            others.append([task, f"{speeds[0]:.1f}", f"{speeds[best]:.1f} at {best}"])
            figures.append({"task": task, "llama_cpp": speeds})
    print(lib.machine_line(args, f"{models[0]} with {models[1]}", f"{args.count} prompts of a task", f"up to {args.max_tokens} tokens",
                           f"{args.repeat} pairs of passes"))
    print(lib.table(["task", "T", "drafter", "plain tok/s", "accepted", "tokens a round", "auto / plain", "best fixed k",
                     "auto / best"], rows))
    if others:
        print("\nllama.cpp, T = 0\n\n" + lib.table(["task", "plain tok/s", "best tok/s at k"], others))
    lib.write_json(args, models=models, figures=figures)


if __name__ == "__main__":
    main()
