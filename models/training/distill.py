"""Makes a draft for any target that Tandem reads (docs/drafting/distillation.md): a small separate model, which may
write several tokens in one pass, or a head that reads the target's states.

  python distill.py --target DIR|F.gguf --out DRAFT --tokens 10000000 --minutes 120
  python distill.py --target DIR|F.gguf --out DRAFT --kind parallel --from SMALL_MODEL --tokens 10000000 --minutes 120
  python distill.py --target DIR|F.gguf --out HEAD --kind one_layer --tokens 10000000 --minutes 120

`--only` selects from these steps: `write` (the target writes text; for a draft model also its largest log-probabilities), `features` (for a
head: the target's states for this text), `train` (the student learns the target's predictions), `export` (a folder without a tokenizer, or
with --to q8_0 a GGUF file), `measure` (the draft in use, compared with plain decoding). All files except the draft are in WORK, where the
same command continues an interrupted step.

Needs a built `tandem` and Python 3.11 or later with torch, numpy and safetensors, and with gguf if the target is a GGUF file; `write`
and `measure` need only numpy.
"""
import argparse
import json
import os
import shlex
import sys
import distill_text
from distill_program import Form, Program
from distill_text import Writer, run_files

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STEPS = ("write", "features", "train", "export", "measure")
HEADS = ("one_layer", "eagle3")
KINDS = ("model", "parallel", *HEADS)


def whole_numbers(text):
    return [int(part) for part in text.split(",")]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", required=True, help="a Hugging Face folder, a GGUF file, or the name of a fetched model")
    add("--out", required=True, help="folder of the draft")
    add("--work", help="folder of all other files [OUT.work]")
    add("--kind", choices=KINDS, default="model", help="a draft model, one that writes several tokens in one pass, or a head of one of two forms [%(default)s]")
    add("--only", default=",".join(STEPS), help="steps to run, separated by commas")
    add("--tandem", default=os.path.join(ROOT, "build", "release", "tandem"), help="the program [build/release/tandem]")
    add("--engine", default="", help='further options for running the target, such as "--threads 8 --quantize q8_0"')
    add("--seed", type=int, default=1)
    add = parser.add_argument_group("write").add_argument
    add("--tokens", type=int, default=5_000_000, help="number of tokens to write [%(default)s]")
    add("--write-minutes", type=float, default=1e9, help="maximum time for writing")
    add("--prompts", help='JSON lines {"prompt": ...}: typical questions of users, which the target answers')
    add("--text", help="plain text, also as .xz, that the target continues")
    add("--length", type=int, default=384, help="tokens written after each prompt [%(default)s]")
    add("--prompt-tokens", type=whole_numbers, default=[24, 96, 384], help="lengths of the text to continue, alternating [24,96,384]")
    add("--top", type=int, help="number of log-probabilities kept at each position [16; 0 for a head, which does not use them]")
    add("--sequences", type=int, default=96, help="sequences per run [%(default)s]")
    add("--at-once", type=int, default=64, help="sequences written together [%(default)s]")
    add = parser.add_argument_group("train").add_argument
    add("--minutes", type=float, default=60, help="length of the schedule, at whose end the learning rate is zero [%(default)s]")
    add("--steps", type=int, help="length of the schedule in steps, in place of --minutes")
    add("--resume", action="store_true", help="train a finished student for another schedule")
    add("--batch", type=int, help="sequences per step [12, on a GPU 48]")
    add("--tell", type=float, default=2, help="minutes between reports, each with a checkpoint [%(default)s]")
    add("--train-device", help="a device name of torch [cuda if available]")
    for name in ("layers", "hidden", "heads", "kv-heads", "head-dim", "ffn"):
        add(f"--{name}", type=int, help="size of the student [depends on the target's size]")
    add("--rope-theta", type=float, default=1e5, help="rope theta of the student [%(default)s]")
    add("--unroll", type=int, default=4, help="for a head: number of draft steps to train [%(default)s]")
    add("--coverage", type=float, default=.995, help="for a head: share of the text that its tokens must cover [%(default)s]")
    add("--head-tokens", type=int, default=16384, help="for a head: maximum number of tokens that it can propose [%(default)s]")
    add("--batch-tokens", type=int, default=6144, help="for a head: positions per step [%(default)s]")
    add = parser.add_argument_group("train --kind parallel").add_argument
    add("--from", dest="start", metavar="DRAFT", help="a Llama, Qwen2 or Qwen3 folder or GGUF file with the target's tokens [the student of "
        "--kind model in the same WORK]")
    add("--rate", type=float, default=2e-5, help="learning rate with --from; small models need more, such as 1e-3 for 1 million parameters "
        "[%(default)s]")
    add("--mask-token", type=int, metavar="ID", help="the mask [that of DRAFT, else the first row that no token has, else a new row]")
    add("--depths", type=int, default=8, help="number of tokens in one pass to train [%(default)s]")
    add("--keep", type=float, default=.7, help="share of the places with one mask that also have the next [%(default)s]")
    add("--keep-least", type=float, default=.2, help="least share of all places with each mask [%(default)s]")
    add("--by-depth", choices=("kept", "even"), default="kept", help="weigh a mask by the target's probabilities of the tokens at the masks "
        "up to it, which suits T = 0, or all alike, which suits T = 1 [%(default)s]")
    add = parser.add_argument_group("export").add_argument
    add("--to", help="quantise the draft: a format of `tandem quantize`, such as q8_0")
    add = parser.add_argument_group("measure").add_argument
    add("--measure", help="a file of prompts, in the form of --prompts [held-out prompts]")
    add("--measure-prompts", type=int, default=24, help="number of prompts [%(default)s]")
    add("--measure-tokens", type=int, default=96, help="tokens per answer [%(default)s]")
    parsed = parser.parse_args()
    parsed.only = parsed.only.split(",")
    for step in parsed.only:
        if step not in STEPS:
            parser.error(f"--only: found {step}, allowed: {', '.join(STEPS)}")
    if parsed.depths < 2 or not 0 < parsed.keep <= 1 or not 0 <= parsed.keep_least <= 1:
        parser.error("--depths: at least 2; --keep: above 0, at most 1; --keep-least: 0 to 1")
    if parsed.top is None:
        parsed.top = 0 if parsed.kind in HEADS else 16
    parsed.work = parsed.work or parsed.out.rstrip("/") + ".work"
    return parsed


class Recipe:
    def __init__(self, chosen):
        self.options = chosen
        self.program = Program(chosen.tandem, chosen.target, shlex.split(chosen.engine))
        self.target = self.program.inspect()
        if not os.path.exists(chosen.target):  # the name of a fetched model
            self.target["path"] = self.program.run("fetch", chosen.target).strip()
        self.data = os.path.join(chosen.work, "data")
        self.is_head = chosen.kind in HEADS
        self.own_student = os.path.join(chosen.work, "student.pt")
        self.checkpoint = self.own_student if chosen.kind == "model" else os.path.join(chosen.work, f"{chosen.kind}.pt")
        self.known = os.path.join(chosen.work, "facts.json")  # the facts for the card

    def keep(self, **facts):
        facts = {**self.facts(), **facts}
        with open(self.known, "w", encoding="utf-8") as file:
            json.dump(facts, file, indent=1)

    def facts(self):
        if not os.path.exists(self.known):
            return {}
        with open(self.known, encoding="utf-8") as file:
            return json.load(file)

    def write(self):
        form = Form(self.program)
        if form.opening is None:
            print(f"writing only plain text: {form.why_plain}")
        writer = Writer(form, self.data, self.options, self.target["context_length"])
        writer.write(self.options.tokens, 60 * self.options.write_minutes)
        self.keep(data=distill_text.summary(self.data), chat=form.opening is not None)

    def layers(self):
        """Returns the layers whose inputs are kept: those that the head reads, and the last state, which teaches it."""
        import distill_head
        read = distill_head.layers_read(self.target["architecture"], self.options.kind)
        last = self.target["architecture"]["num_layers"]
        return read if read[-1] == last else [*read, last]

    def features(self):
        if self.is_head:
            distill_text.write_states(self.program, self.data, self.layers())

    def train_head(self):
        import distill_head
        import distill_train
        architecture = {"rope_theta": self.options.rope_theta, **self.target["architecture"]}
        shape = distill_head.head_shape(architecture, self.options)
        embedding = distill_train.embedding_of(self.target["path"])
        output = distill_train.table_of(self.target["path"], distill_train.OUTPUT)
        told = distill_head.train(self.data, shape, embedding, output if output is not None else embedding, self.checkpoint, self.options)
        self.keep(shape=shape, training=told)

    def train(self):
        if self.is_head:
            self.train_head()
            return
        import distill_train
        files = run_files(self.data)
        if not files:
            sys.exit(f"{self.data}: the text is missing; `--only write` makes it")
        text = distill_train.Text(files)
        if self.options.kind == "parallel":
            import distill_parallel
            make = distill_parallel.maker(self.checkpoint, self.own_student, self.target["tokenizer_size"] or 0, text, self.options)
        else:
            shape, table = distill_train.shape_for(self.target["architecture"], self.target["context_length"], self.options), None
            if not os.path.exists(self.checkpoint):
                table = distill_train.embedding_of(self.target["path"])
                known = [self.target["architecture"][name] for name in ("vocab_size", "hidden_size")]
                if list(table.shape) != known:
                    sys.exit(f"{self.target['path']}: the embedding is {list(table.shape)}, not {known}: use a folder of floats or a GGUF file")
            make = lambda device: distill_train.Student(shape, device, text.longest(), table)
        self.keep(training=distill_train.train(text, make, self.checkpoint, self.options))

    def export(self):
        import distill_head
        import distill_train
        if not os.path.exists(self.checkpoint):
            sys.exit(f"{self.checkpoint} is missing; `--only train` makes it")
        self.clear_out()
        write = distill_head.export if self.is_head else distill_train.export
        if not self.options.to:
            facts = write(self.checkpoint, self.options.out)
        else:
            floats = os.path.join(self.options.work, "floats")
            facts = write(self.checkpoint, floats)
            name = os.path.basename(os.path.abspath(self.options.out))
            made = os.path.join(self.options.out, f"{name}.{self.options.to}.gguf")
            self.program.run("quantize", floats, "--to", self.options.to, "--out", made)
        self.keep(format=self.options.to or "bfloat16", measured=None, **facts)
        self.write_card()

    def clear_out(self):
        """Removes the previously exported draft, in any format, and no other files."""
        out = self.options.out
        os.makedirs(out, exist_ok=True)
        ours = [name for name in os.listdir(out) if name in ("README.md", "config.json", "model.safetensors") or name.endswith(".gguf")]
        if os.listdir(out) and (self.facts().get("exported") != os.path.abspath(out) or len(ours) < len(os.listdir(out))):
            sys.exit(f"{out}: contains files that this recipe did not export; remove them, or choose another folder with --out")
        for name in ours:
            os.remove(os.path.join(out, name))
        self.keep(exported=os.path.abspath(out))

    def measure(self):
        chosen, how = self.options, []
        if chosen.measure:
            prompts = [{"prompt": text} for text in distill_text.questions_of(chosen.measure)[:chosen.measure_prompts]]
            how = ["--chat"] if self.facts().get("chat") else []
        else:
            prompts = [{"prompt_ids": ids} for ids in distill_text.held_prompts(self.data, chosen.measure_prompts)]
        answers = self.program.generate(prompts, "--draft", chosen.out, "--drafter", "eagle3" if self.is_head else "model", "-k", 4, "--temperature", 0, "--batch", 1,
                                        "--max-tokens", chosen.measure_tokens, "--compare", *how)
        measured = distill_text.measured(answers)
        measured["prompts"] = os.path.basename(chosen.measure) if chosen.measure else "that were held back"
        print(json.dumps(measured))
        self.keep(measured=measured)
        self.write_card()

    def write_card(self):
        with open(os.path.join(self.options.out, "README.md"), "w", encoding="utf-8") as file:
            file.write(card(os.path.basename(os.path.abspath(self.options.out)), self.target, self.facts(),
                            "distill.py " + shlex.join(sys.argv[1:])))


def card(name, target, facts, command):
    """Returns the draft's README.md, with the steps and their results."""
    by_step = lambda name: distill_text.figures(told[name])
    shape, told, data = facts.get("shape"), facts.get("training"), facts.get("data")
    rows = [("target", f"{os.path.basename(target['path'].rstrip('/'))}: {target['parameters']:,} parameters, "
                       f"vocabulary {target['architecture']['vocab_size']:,}")]
    if shape and "kind" in shape:
        kind = "EAGLE-3, reads the inputs of layers " + ", ".join(map(str, shape["layers"])) if shape["kind"] == "eagle3" else \
            "one layer (EAGLE-1), reads the last state after the final norm"
        rows.append(("form", f"{kind}; {shape['heads']} query and {shape['kv_heads']} key-value heads of {shape['head_dim']}, feed-forward "
                             f"{shape['ffn']}, rope theta {shape['theta']:g}; {facts.get('format', 'bfloat16')}"))
        if told:
            rows.append(("tokens that it proposes", f"{told['draft_vocab']:,}, which are {told['coverage']:.4f} of the text"))
    elif shape:
        rows.append(("shape", f"{shape['layers']} layers of {shape['hidden']}, {shape['heads']} query and {shape['kv_heads']} key-value "
                              f"heads of {shape['head_dim']}, feed-forward {shape['ffn']}, rope theta {shape['theta']:g}, {'tied' if shape['tied'] else 'own head'}; "
                              f"{facts.get('format', 'bfloat16')}"))
    if told and "mask_token" in told:
        rows.append(("tokens in one pass", f"trained for {told['unroll']}, with the mask token {told['mask_token']} (`--by-depth {told['by_depth']}`)"))
    rows.append(("tokenizer", "the target's, which is not copied here"))
    if data:
        parts = ", ".join(f"{count:,} of {source}" for source, count in data["sources"].items())
        rows.append(("data", f"{data['tokens']:,} tokens written by the target itself ({parts}); " + (f"its {data['top']} "
                             f"largest log-probabilities at each place" if data["top"] else "its states at each place")))
    if told:
        rows.append(("training", f"{told['before'] + told['minutes']:.1f} minutes, {told['steps']:,} steps, {told['tokens']:,} tokens"))
    if told and "unroll" in told:
        rows.append((f"text held back, at draft positions 1 to {told['unroll']}",
                     f"KL {by_step('kl')}; accepted at T = 1 (sum of min(p, q)) {by_step('accepted')}; argmax agrees {by_step('agreed')}"
                     f"{distill_text.tokens_a_round(told)}"))
    elif told:
        rows.append(("text held back", f"KL {by_step('kl')}, accepted at T = 1 (sum of min(p, q)) {by_step('accepted')}, "
                                       f"argmax agrees {by_step('agreed')}"))
    if told and "accepted_of_learned" in told:
        rows.append(("text it learned from", f"accepted at T = 1 {by_step('accepted_of_learned')}"))
    use = facts.get("measured")
    if use:
        places = ", ".join(f"{x:.2f}" for x in use["by_place"])
        rows.append(("in use, greedy, k 4", f"{use['accepted']} of {use['proposed']} drafted tokens accepted ({use['rate']:.3f}; by place "
                                            f"{places}), {use['tokens_per_round']:.2f} tokens a round, {use['speedup']:.2f} times plain "
                                            f"decoding; {use['answers']} prompts ({use['prompts']})"))
    origin = (told or {}).get("begun_from", "its target's embedding")
    table = "\n".join(f"| {left} | {right} |" for left, right in rows)
    return (f"# {name}: a draft for {os.path.basename(target['path'].rstrip('/'))}\n\n| | |\n|---|---|\n{table}\n\n"
            f"Last made or measured by `{command}`.\nIt began from {origin} and its target's text: whether and how it may be passed on "
            f"depends on their licences.\n")


def main():
    recipe = Recipe(options())
    os.makedirs(recipe.options.work, exist_ok=True)
    try:
        for step in STEPS:
            if step in recipe.options.only:
                print(f"--- {step}", flush=True)
                getattr(recipe, step)()
    except RuntimeError as error:
        sys.exit(f"distill.py: {error}")


if __name__ == "__main__":
    main()
