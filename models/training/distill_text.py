"""Writes the text that a draft learns from: the target writes it through the program `tandem`, with its largest log-probabilities.

Each run is one .npz. `ids` [n, width]: prompt, text, then zeros. `prompt` [n] and `length` [n]: their numbers of tokens. `held` [n]: true for
rows that are held out from training. `temperature`. Unless --top is 0 also `top` [n, longest, N] and `lp` [n, longest, N]: the N most likely
tokens at each position of the text, most likely first, and their natural log-probabilities (float16), always at T = 1.

Needs only numpy.
"""
import glob
import json
import lzma
import os
import random
import struct
import time
import zipfile
import numpy as np
from distill_program import question_in

# If all prompts of a run are the same, the texts must differ; otherwise half of them are greedy.
DRAWN = (.7, .85, .6, 1.0)
MIXED = (0.0, .7, 0.0, 1.0)
HELD = 16  # one of so many questions, and one of so many parts of a text, is held out from training


def questions_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line)["prompt"] for line in file if line.strip()]


def open_text(path):
    with (lzma.open(path, "rt", encoding="utf-8") if path.endswith(".xz") else open(path, encoding="utf-8")) as file:
        return file.read(20_000_000)


class Writer:
    """Writes runs into a folder, each from one source. A run depends only on the options, its number and, if it continues earlier texts, on
    earlier runs. So an interrupted run can be written again, and later runs are the same as without the interruption."""

    def __init__(self, form, folder, options, context):
        self.form, self.folder, self.options, self.context = form, folder, options, context
        os.makedirs(folder, exist_ok=True)
        self.asked = questions_of(options.prompts) if options.prompts else []
        self.corpus = open_text(options.text) if options.text else ""
        if form.opening is not None:
            self.plan = ["conversations", "answers"]
        else:
            self.plan = ["text" if self.corpus else "beginnings", "continuations"]
        self.plan += ["questions"] * 2 * bool(self.asked) + ["text"] * (bool(self.corpus) and form.opening is not None)

    def write(self, tokens, seconds):
        """Writes until the folder has this many tokens or the time has passed. Returns the number of tokens."""
        files = run_files(self.folder)
        written, end = sum(int(np.load(file)["length"].sum()) for file in files), time.time() + seconds
        for run in range(len(files), 1 << 30):
            if written >= tokens or time.time() >= end:
                return written
            begin = time.time()
            source, temperature, count = self._run(run)
            written += count
            print(f"run {run}: {source}, T {temperature}: {count} tokens, {count / (time.time() - begin):.0f}/s; {written} in total",
                  flush=True)

    def _run(self, run):
        source = self.plan[run % len(self.plan)]
        nth = sum(self.plan[i % len(self.plan)] == source for i in range(run))  # index among the runs of this source
        rng = random.Random(self.options.seed << 32 | run)
        prompts, held = self._fitting(source, nth, rng)
        if not prompts:
            print(f"run {run}: skipping {source}: the earlier runs have no text to continue", flush=True)
            source, (prompts, held) = self.plan[0], self._fitting(self.plan[0], nth, rng)
        temperature = (DRAWN if source in ("conversations", "beginnings") else MIXED)[nth % 4]
        stops = source in ("answers", "questions")
        answers = self.form.program.write(
            [{"prompt_ids": ids} for ids in prompts], "--batch", self.options.at_once, "--max-tokens", self.options.length,
            "--temperature", temperature, "--kv-cache", "bf16", "--seed", self.options.seed + run,
            *(["--logprobs", self.options.top] if self.options.top else []), *(["--top-p", .97] if temperature > .8 else []),
            *([] if stops else ["--ignore-eos"]))
        run_file = os.path.join(self.folder, f"{run:05d}-{source}.npz")
        arrays = lessons(prompts, answers, held)
        with open(run_file + ".part", "wb") as file:
            np.savez(file, temperature=temperature, **arrays)
        os.replace(run_file + ".part", run_file)
        return source, temperature, int(arrays["length"].sum())

    def _fitting(self, source, nth, rng):
        """Returns the prompts of a source, without those that leave no room for text."""
        room = self.context - 1 - min(32, self.options.length)
        fitting = [(ids, is_held) for ids, is_held in zip(*getattr(self, source)(nth, rng)) if ids and len(ids) <= room]
        return [ids for ids, _ in fitting], [is_held for _, is_held in fitting]

    # Each source returns the prompts (ids) of its nth run, and whether each is held out.

    def conversations(self, nth, rng):
        """The target also writes the question."""
        return [self.form.opening] * self.options.sequences, self._every()

    def beginnings(self, nth, rng):
        start = self.form.front or self.form.program.inspect()["eos_token_ids"][:1]
        return [start] * self.options.sequences, self._every()

    def answers(self, nth, rng):
        """The target answers the questions that it wrote itself."""
        prompts, held = [], []
        for ids, prompt, length, is_held in self._earlier("conversations", nth):
            question = question_in(ids[prompt:prompt + length].tolist(), self.form.closing)
            if question is not None:
                prompts.append(self.form.opening + question + self.form.closing)
                held.append(bool(is_held))
        return prompts, held

    def questions(self, nth, rng):
        """The target answers the user's questions, in their order, repeatedly."""
        first, count = nth * self.options.sequences, len(self.asked)
        places = [i % count for i in range(first, first + min(self.options.sequences, count))]
        texts = [self.asked[i] for i in places]
        if self.form.opening is not None:
            prompts = self.form.chat_ids(texts)
        else:
            prompts = [self.form.front + ids for ids in self.form.program.tokenize(texts)]
        return prompts, [place % HELD == 0 for place in places]

    def text(self, nth, rng):
        """The target continues parts of the given text; held-out prompts come from its first part."""
        size = self._size(nth)
        border, reach = len(self.corpus) // HELD, 12 * size
        pieces, held = [], self._every()
        for is_held in held:
            low, high = (0, border) if is_held else (border, len(self.corpus))
            place = rng.randrange(low, max(low + 1, high - reach))
            line = self.corpus.find("\n", place, place + 2000) + 1
            pieces.append(self.corpus[line or place:][:reach])
        cut = [ids[:size] for ids in self.form.program.tokenize(pieces)]
        return [self.form.front + ids for ids in cut if ids], [is_held for is_held, ids in zip(held, cut) if ids]

    def continuations(self, nth, rng):
        """The target continues its own texts from the middle."""
        size, prompts, held = self._size(nth), [], []
        for ids, prompt, length, is_held in self._earlier(self.plan[0], nth):
            place = rng.randrange(max(1, int(prompt + length) - size))
            prompts.append(self.form.front + ids[place:place + size].tolist())
            held.append(bool(is_held))
        return prompts, held

    def _size(self, nth):
        sizes = self.options.prompt_tokens
        return min(sizes[nth % len(sizes)], self.context // 2)

    def _every(self):
        return [i % HELD == 0 for i in range(self.options.sequences)]

    def _earlier(self, source, nth):
        """Returns the rows of the nth run of a source; an empty list if it does not exist."""
        files = [file for file in run_files(self.folder) if file.endswith(f"-{source}.npz")]
        if nth >= len(files):
            return []
        run = np.load(files[nth])
        return list(zip(run["ids"], run["prompt"], run["length"], run["held"]))


def run_files(folder):
    return sorted(glob.glob(os.path.join(folder, "*.npz")))


def states_file(run_file):
    """Returns the file of the target's states for a run (`tandem features`)."""
    folder, name = os.path.split(run_file)
    return os.path.join(folder, "states", name)


def mapped_states(run_file):
    """Returns the states of a run, [tokens, layers, width], mapped from their file, which `tandem features` writes uncompressed."""
    path = states_file(run_file)
    with zipfile.ZipFile(path) as archive, archive.open("states.npy") as member:
        entry = archive.getinfo("states.npy")
        if entry.compress_type != zipfile.ZIP_STORED:
            raise RuntimeError(f"{path}: states.npy is compressed; `tandem features` stores it")
        np.lib.format.read_magic(member)
        shape, _, kind = np.lib.format.read_array_header_1_0(member)
        after = member.tell()
    with open(path, "rb") as file:
        file.seek(entry.header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4))  # lengths in the entry's local header, which has 30 bytes
    return np.memmap(path, kind, "c", entry.header_offset + 30 + name + extra + after, shape)


def write_states(program, folder, layers):
    """Writes the target's states for every run that does not have them yet."""
    names = ["last" if layer == program.inspect()["architecture"]["num_layers"] else str(layer) for layer in layers]
    for file in run_files(folder):
        made = states_file(file)
        if os.path.exists(made) and np.load(made)["layers"].tolist() == list(layers):
            continue
        os.makedirs(os.path.dirname(made), exist_ok=True)
        run, begin = np.load(file), time.time()
        texts = [ids[:n].tolist() for ids, n in zip(run["ids"], run["prompt"] + run["length"])]
        program.features(texts, names, made + ".part")
        os.replace(made + ".part", made)
        tokens = sum(map(len, texts))
        print(f"{os.path.basename(file)}: states of {tokens} tokens, {tokens / (time.time() - begin):.0f}/s", flush=True)


def lessons(prompts, answers, held):
    """Returns the arrays of a run, for the prompts that were answered."""
    made = [(prompt, answer, is_held) for prompt, answer, is_held in zip(prompts, answers, held) if answer.get("token_ids")]
    if not made:
        raise RuntimeError(next((answer["error"] for answer in answers if "error" in answer), "the target wrote nothing"))
    length = np.array([len(answer["token_ids"]) for _, answer, _ in made], np.int32)
    prompt = np.array([len(ids) for ids, _, _ in made], np.int32)
    ids = np.zeros((len(made), int((prompt + length).max())), np.int32)
    held = np.array([is_held for _, _, is_held in made])
    for i, (before, answer, _) in enumerate(made):
        ids[i, :prompt[i] + length[i]] = before + answer["token_ids"]
    if "logprobs" not in made[0][1]:
        return dict(ids=ids, prompt=prompt, length=length, held=held)
    top = np.zeros((len(made), int(length.max()), len(made[0][1]["logprobs"][0]["top"])), np.int32)
    lp = np.zeros(top.shape, np.float16)
    for i, (_, answer, _) in enumerate(made):
        pairs = [place["top"] for place in answer["logprobs"]]
        top[i, :length[i]] = [[token for token, _ in place] for place in pairs]
        lp[i, :length[i]] = [[-60 if value is None else value for _, value in place] for place in pairs]
    return dict(ids=ids, prompt=prompt, length=length, top=top, lp=lp, held=held)


def summary(folder):
    """Returns the number of written tokens, by source."""
    sources, top = {}, 0
    for file in run_files(folder):
        source, run = os.path.basename(file)[6:-4], np.load(file)
        sources[source] = sources.get(source, 0) + int(run["length"].sum())
        top = run["top"].shape[-1] if "top" in run else 0
    return dict(tokens=sum(sources.values()), sources=sources, top=top)


def held_prompts(folder, most):
    """Returns different held-out prompts of all lengths. Uses the prompts that all texts share only without any others."""
    found = {}
    files = run_files(folder)
    for file in [file for file in files if not file.endswith(("-conversations.npz", "-beginnings.npz"))] or files:
        run = np.load(file)
        for ids, prompt, is_held in zip(run["ids"], run["prompt"], run["held"]):
            if is_held:
                found[tuple(ids[:prompt].tolist())] = None
    return [list(ids) for ids in sorted(found, key=len)[::max(1, len(found) // most)][:most]]


def figures(values):
    """Returns a figure, or a list of them by draft position, as text."""
    return ", ".join(f"{x:.3f}" for x in (values if isinstance(values, list) else [values]))


def tokens_a_round(told):
    """Returns the tokens a round of a parallel draft as text; an empty text for other students."""
    if "tokens_a_round" not in told:
        return ""
    return f"; tokens a round {told['tokens_a_round']:.2f} at T = 1, {told['tokens_a_round_greedy']:.2f} at T = 0"


def measured(answers):
    """Returns the figures of `generate --compare --json` over all answers together."""
    speculation = [answer["speculation"] for answer in answers if "speculation" in answer]
    if not speculation:
        raise RuntimeError(next((answer["error"] for answer in answers if "error" in answer), "nothing was measured"))
    places = max(len(s["proposed_per_position"]) for s in speculation)
    total = lambda name, i: sum(s[name][i] for s in speculation if i < len(s[name]))
    proposed, accepted = (sum(s[name] for s in speculation) for name in ("proposed", "accepted"))
    tokens, rounds = sum(answer.get("completion_tokens", 0) for answer in answers), sum(s["rounds"] for s in speculation)
    return dict(answers=len(speculation), proposed=proposed, accepted=accepted, rate=accepted / max(1, proposed),
                by_place=[total("accepted_per_position", i) / max(1, total("proposed_per_position", i)) for i in range(places)],
                tokens_per_round=tokens / max(1, rounds), speedup=next(a["speedup"] for a in answers if "speedup" in a),
                identical=all(a.get("identical", True) for a in answers if "speculation" in a))
